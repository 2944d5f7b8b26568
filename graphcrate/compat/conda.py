"""Conda's environments: what of them is the stack's, what the package index has, what is Debian's, what nobody knows.

An image has no conda. Its `pip:` part is taken as it is; of conda's own packages those whose name on the package index
is known (`data/conda.toml`).
"""

import difflib
import fnmatch
import functools
import re
from collections.abc import Iterator

import msgspec
import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import table
from graphcrate.compat.translated import Lines, Translated
from graphcrate.model.command import filled, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Expected
from graphcrate.model.words import joined, printable

_SPEC = re.compile(r"(?:[\w./:+-]+::)?(?P<name>[A-Za-z0-9_.-]+?)\s*(?:\[(?P<inner>[^]]*)\]|(?P<rest>[=<>!~\s].*))?")
_INNER_VERSION = re.compile(r"version\s*=\s*['\"]?([^'\",\s]+(?:,[^'\",\s]+)*)")
#: of `conda list --export`, whose lines are name=version=build
_LIST = re.compile(r"^# (\$ conda create --name|platform: )|^[A-Za-z0-9_.-]+=[^=\s]+=[^=\s]+$", re.MULTILINE)
_EXPLICIT = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)

_TOOLS = ("pip", "setuptools", "wheel")


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    """What conda's packages are: `data/conda.toml` says what each part means, and where it is from."""

    stack: dict[str, str]
    index: dict[str, str]
    same: tuple[str, ...]
    debian: dict[str, str]
    system: tuple[str, ...]
    none: dict[str, str]


_names = functools.cache(functools.partial(table, "conda", _Names))


def is_list(text: str) -> bool:
    """Whether a text is a list of conda's (`conda list --export`), not a requirements file."""
    return bool(_LIST.search(text) or _EXPLICIT.search(text))


def listed_packages(text: str, name: str) -> Translated:
    """What a list of conda's says. Raises UsageError for one of addresses."""
    if _EXPLICIT.search(text):
        raise UsageError(
            f"{name} lists conda's packages by their addresses, and an image has no conda",
            next_step="conda env export --from-history > environment.yml    (give that file)",
        )
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return _sorted_out(
        [(f"{name}:{number}", line) for number, line in lines if line and not line.startswith("#")], name
    )


def environment(text: str, name: str) -> Translated:
    """What an environment.yml says. Raises UsageError that names file and line."""
    top = _mapping(_document(text, name))
    if "dependencies" not in top or not isinstance(top["dependencies"], yaml.SequenceNode):
        raise UsageError(
            f"{name} is not an environment of conda: it has no list of `dependencies`",
            next_step="conda env export --from-history > environment.yml    (of the environment that works)",
        )
    specs, pip = Lines(), Lines()
    for node in top["dependencies"].value:
        where = f"{name}:{node.start_mark.line + 1}"
        if isinstance(node, yaml.ScalarNode):
            specs.append((where, node.value))
        elif isinstance(part := _mapping(node).get("pip"), yaml.SequenceNode):
            pip += [(f"{name}:{node.start_mark.line + 1}", node.value) for node in part.value if _is_line(node)]
        else:
            raise UsageError(
                f"{where}: neither a package nor a list under `pip:`", next_step="conda env export shows its form"
            )
    made = _sorted_out(specs, name)
    # a comment after a line of pip's, which YAML leaves where the text is quoted
    made.lines += [(where, re.sub(r"\s#.*$", "", line).strip()) for where, line in pip]
    if "variables" in top:
        made.notes.append(f"{name}: its `variables` are not taken: env of a recipe has them (docs/customize.md)")
    return made


def _document(text: str, name: str) -> yaml.Node | None:
    """Read YAML as a tree with lines: nothing in it is made a value, and an alias is not unfolded."""
    try:
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = printable(str(error.problem or error.context))
        raise UsageError(f"{name}:{line}: not YAML: {what}", next_step=f"fix line {line}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = "lists within lists without end" if isinstance(error, RecursionError) else printable(str(error))
        raise UsageError(f"{name} is not YAML: {what[:200]}", next_step="give an environment.yml of conda") from error


def _mapping(node: yaml.Node | None) -> dict[str, yaml.Node]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _is_line(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and bool(node.value.strip())


def _sorted_out(specs: Lines, name: str) -> Translated:
    """Sort conda's packages: those of the stack, of the index, of Debian, and those that nobody knows."""
    known, made = _names(), Translated()
    stacks, debian, unknown = list[str](), dict[str, str](), dict[str, str]()
    system = list[str]()
    for where, spec in specs:
        package, version = _parts(spec, where)
        if version == "pypi":  # of `conda list --export`: pip put it there
            made.lines.append((where, _requirement(package, f"=={spec.split('=')[1]}")))
        elif (of := known.stack.get(package)) is not None:
            stacks.append(package)
            _take_of_stack(made, of, version, where)
        elif named := _on_index(package):
            made.lines.append((where, _requirement(named, version)))
        elif package in known.debian:
            debian[package] = known.debian[package]
        elif package in known.none:
            made.notes.append(f"{where}: {package} is not taken: {filled(known.none[package])}")
        elif any(fnmatch.fnmatchcase(package, pattern) for pattern in known.system):
            system += [] if package in _TOOLS else [package]
        else:
            unknown[re.split(r"[\s=<>!~\[]", spec)[0]] = where
    made.notes += _notes(name, stacks, debian, system, unknown)
    return made


def _on_index(package: str) -> str:
    """The name of a package of conda's on the package index; empty where nobody knows."""
    known = _names()
    if package in known.same:
        return package
    return next((name for pattern, name in known.index.items() if fnmatch.fnmatchcase(package, pattern)), "")


def _take_of_stack(made: Translated, of: str, version: str, where: str) -> None:
    """Ask the stack for the package that it has, or compare Python and CUDA with it."""
    if of in ("python", "cuda"):
        if specifier := _specifier(version):
            made.expected.append(Expected(name=of, where=where, specifier=specifier))
    elif of:
        made.lines.append((where, _requirement(of, version)))


def _notes(
    name: str, stacks: list[str], debian: dict[str, str], system: list[str], unknown: dict[str, str]
) -> Iterator[str]:
    if stacks:
        yield f"{name}: {joined(stacks)} {'is' if len(stacks) == 1 else 'are'} the stack's"
    if system:
        are = "is a package" if len(system) == 1 else "are packages"
        yield f"{name}: {joined(system)} {are} of conda's own system, and passed over"
    if debian:
        of_debian = " ".join(dict.fromkeys(debian.values()))
        yield f"{name}: Debian has {joined(debian)}, which is not taken by itself: {setting(apt=of_debian)}"
    if unknown:
        names = ", ".join(
            f"{unknown_name} (line {where.rpartition(':')[2]}{_near(unknown_name)})"
            for unknown_name, where in unknown.items()
        )
        takes = setting(with_="…")
        yield f"{name}: not taken, as the index may have another package of that name: {names}; {takes} takes them"


def _near(name: str) -> str:
    known = _names()
    near = difflib.get_close_matches(name, [*known.index.values(), *known.same], n=1, cutoff=0.8)
    return f", did you mean {near[0]}?" if near else ""


def _parts(spec: str, where: str) -> tuple[str, str]:
    """Name and version of a package as conda has it, the version in the index's form; "pypi" of one that pip has put.

    Raises UsageError.
    """
    match = _SPEC.fullmatch(spec.partition(" #")[0].strip())
    if not match:
        raise UsageError(
            f"{where}: {printable(spec)!r} is not a package of conda's",
            next_step="numpy, numpy=1.26, 'numpy>=1.26' or conda-forge::numpy",
        )
    name, rest = str(canonicalize_name(match["name"])), (match["rest"] or "").strip()
    if match["inner"] is not None:
        inner = _INNER_VERSION.search(match["inner"])
        return name, inner[1] if inner else ""
    if rest.startswith("=") and not rest.startswith("=="):
        version, _, build = rest[1:].partition("=")
        if build.startswith("pypi"):
            return name, "pypi"
        return name, f"={version.strip()}"
    version = rest.split()[0] if rest and rest[0] not in "=<>!~" else re.sub(r"\s*([=<>!~,]+)\s*", r"\1", rest)
    return name, version.split()[0] if version else ""


def _specifier(version: str) -> str:
    """A version of conda's as PEP 440 has it: 1.26 and what begins so, `>=1,<2`; empty for any or what it has not."""
    if not version or version in ("*", "=*"):
        return ""
    if re.match(r"=[^=]", version) or version[0] not in "=<>!~":
        plain = version.removeprefix("=").removesuffix(".*").removesuffix("*").removesuffix(".")
        version = f"=={plain}.*" if re.fullmatch(r"[\d.]+", plain) else f"=={plain}"
    try:
        return str(SpecifierSet(version))
    except InvalidSpecifier:  # alternatives (1.2|1.3), versions such as 9e
        return ""


def _requirement(name: str, version: str) -> str:
    return f"{name}{_specifier(version)}"
