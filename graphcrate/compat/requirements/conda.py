"""Sort conda's packages into those of the stack, of the package index, of Debian, and unknown ones.

An image has no conda: taken are those whose name on the package index is known (`data/conda.toml`).
"""

import difflib
import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.requirements.refusals import refusing
from graphcrate.compat.requirements.translated import Lines, Translated
from graphcrate.model.command import filled, setting
from graphcrate.model.recipe import Expected
from graphcrate.model.words import listed, printable
from projectfiles.conda_spec import CondaSpec, conda_specifier, parse_spec

_TOOLS = ("pip", "setuptools", "wheel")
#: a CUDA version in a build: py3.10_cuda11.8_cudnn8.7.0_0, cuda118py310h…
_CUDA_BUILD = re.compile(r"cuda_?(\d+)\.?(\d)(?!\d)")


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    """Conda's names of packages: `data/conda.toml` says what each part means, and where it is from."""

    stack: dict[str, str]
    index: dict[str, str]
    same: tuple[str, ...]
    debian: dict[str, str]
    system: tuple[str, ...]
    none: dict[str, str]


_names = table_reader("conda", _Names)


@dataclass
class _Aside:
    """Names of conda's packages by what becomes of them, and what is left of what was said of others."""

    stacks: list[str] = field(default_factory=list)
    debian: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    system: list[str] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)


@refusing()
def sorted_out(specs: Lines, name: str, channels: Iterable[str] = ()) -> Translated:
    """Sort conda's packages: those of the stack, of the index, of Debian, and unknown ones. Raises UsageError."""
    known, made, aside = _names(), Translated(), _Aside(channels=[*channels])
    for where, text in specs:
        spec = parse_spec(text, where)
        package, as_written = str(canonicalize_name(spec.name)), f"{spec.name}{spec.version}"
        if spec.build.startswith("pypi"):  # of `conda list --export`: pip put it there
            made.lines.append((where, f"{package}=={spec.version.lstrip('=')}"))
        elif (of := known.stack.get(package)) is not None:
            aside.stacks.append(spec.name if of else as_written)
            _take_of_stack(made, of, spec, where)
            _keep_aside(aside, spec, of_stack=True)
        elif named := on_index(package):
            made.lines.append((where, f"{named}{conda_specifier(spec, where)}"))
            _keep_aside(aside, spec, of_stack=False)
        elif package in known.debian:
            aside.debian[spec.name] = known.debian[package]
        elif why := next((why for key, why in known.none.items() if fnmatch.fnmatchcase(package, key)), ""):
            made.notes.append(f"{where}: {spec.name} is not taken: {filled(why)}")
        elif any(fnmatch.fnmatchcase(package, pattern) for pattern in known.system):
            is_there = package == "pip" and not spec.version
            (aside.stacks if is_there else aside.system).append(as_written if package in _TOOLS else spec.name)
        else:
            aside.unknown[spec.name] = where
    made.notes += _notes(name, aside)
    return made


@refusing()
def of_debian(text: str) -> str:
    """Return the Debian package in place of one of conda's, as it is asked for; empty where another is taken."""
    return _names().debian.get(str(canonicalize_name(parse_spec(text, "").name)), "")


def _keep_aside(aside: _Aside, spec: CondaSpec, *, of_stack: bool) -> None:
    """Remember what a package index has no word for, to say it: builds, channels, sums of files."""
    is_compared = of_stack and _CUDA_BUILD.search(spec.build) is not None
    aside.builds += [f"{spec.name} {spec.build}"] if spec.build and not is_compared else []
    aside.builds += [f"{spec.name} {other}" for other in spec.others]
    aside.channels += [spec.channel] if spec.channel else []


def on_index(package: str) -> str:
    """Return the name of a conda package on the package index; empty if unknown."""
    known = _names()
    if package in known.same:
        return package
    return next((name for pattern, name in known.index.items() if fnmatch.fnmatchcase(package, pattern)), "")


def _take_of_stack(made: Translated, of: str, spec: CondaSpec, where: str) -> None:
    """Ask the stack for the package that it has, or compare Python and CUDA with it; CUDA of a build, too."""
    if of in ("python", "cuda"):
        if specifier := conda_specifier(spec, where):
            made.expected.append(Expected(name=of, where=where, specifier=specifier))
    elif of:
        made.lines.append((where, f"{of}{conda_specifier(spec, where)}"))
    if of not in ("python", "cuda") and (cuda := _CUDA_BUILD.search(spec.build)):
        made.expected.append(Expected(name="cuda", where=where, specifier=f"=={cuda[1]}.{cuda[2]}.*"))


def _notes(name: str, aside: _Aside) -> Iterator[str]:
    if stacks := aside.stacks:
        yield f"{name}: {listed(stacks)} {'is' if len(stacks) == 1 else 'are'} the stack's"
    if system := aside.system:
        are = "is a package" if len(system) == 1 else "are packages"
        yield f"{name}: {listed(system)} {are} of conda's own system, and passed over"
    if aside.builds:
        yield f"{name}: builds of conda's are not looked at: {listed(map(printable, aside.builds))}"
    if aside.channels:
        named = listed(dict.fromkeys(map(printable, aside.channels)))
        yield f"{name}: conda's channels ({named}) are not asked: the package index is"
    if aside.debian:
        of_debian = " ".join(dict.fromkeys(aside.debian.values()))
        yield f"{name}: Debian has {listed(aside.debian)}, which is not taken by itself: {setting(apt=of_debian)}"
    if aside.unknown:
        names = ", ".join(
            f"{unknown_name} (line {where.rpartition(':')[2]}{_near(unknown_name)})"
            for unknown_name, where in aside.unknown.items()
        )
        takes = setting(with_="…")
        yield f"{name}: not taken, as the index may have another package of that name: {names}; {takes} takes them"


def _near(name: str) -> str:
    known = _names()
    near = difflib.get_close_matches(name, [*known.index.values(), *known.same], n=1, cutoff=0.8)
    return f", did you mean {near[0]}?" if near else ""
