"""From requirements to locked wheels: uv chooses for the image, reading metadata alone; missing sizes are asked for."""

import contextlib
import json
import re
import sys
import tomllib
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import pairs
from graphcrate.compat.facts.cutoff import Cutoff
from graphcrate.compat.facts.packages import markers
from graphcrate.compat.failures import ends
from graphcrate.compat.failures.ends import ProgramFailure
from graphcrate.host import arguments, process, settings
from graphcrate.host.net import HttpError
from graphcrate.model.errors import GraphcrateError, NetworkError, ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.failures import OtherBytesError, UngivenError, source_name
from graphcrate.resolve.sources.offers import FIXES, Offer, Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link, Source, SourceKind, local_path
from graphcrate.resolve.sources.storing import locked_file, store
from graphcrate.resolve.sources.target import WheelTarget
from graphcrate.resolve.sources.uv import uv_program
from graphcrate.resolve.sources.wheel_mirrors import mirror_of
from patienthttp.connections import BUNDLES
from patienthttp.errors import NoAnswer
from patienthttp.retry import STALLED_TRIES

#: (first torch that does not need it, constraint, why): what torch's own metadata forgets to say
CONSTRAINTS = (
    # "A module that was compiled using NumPy 1.x …"
    ("2.3", "numpy<2", "was built for numpy 1"),
    ("2.2", "setuptools<70", "imports pkg_resources.packaging in its cpp_extension, which setuptools 70 has no more"),
)
#: Of build requirements, where nothing asks for newer: setuptools 81 took `dry_run` out of what a setup.py may call
#: (mpi4py 3.1.6, numpy.distutils), 82 pkg_resources.
BUILT_BY = "setuptools<81"
#: of the user's `UV_*` variables those about the network; the others would change what is resolved
KEPT = (
    "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_REQUEST_TIMEOUT", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_INSECURE_HOST",
    "UV_KEYRING_PROVIDER", "UV_OFFLINE", "UV_CONCURRENT_DOWNLOADS",
)  # fmt: skip
#: uv's exit codes where packages contradict each other, and where it could not look for a solution
NO_SOLUTION, NO_ANSWER = 1, 2
#: uv's word on a wheel that it was told the address of: torch, an extension
_BY_ADDRESS = re.compile(r"Failed to download `[^`\s]+ @ (https?://[^`\s#?]+)")
COMMON = "numpy"  #: a project that every package index has
THREADS = 8


def parse_pylock(text: str, target: WheelTarget) -> tuple[Offer, ...]:
    """The wheels for this image but for those given by address. Raises ResolutionError when a package has none."""
    pinned = []
    for package in tomllib.loads(text).get("packages", ()):
        marker = package.get("marker")
        if "archive" in package or (marker and not Marker(marker).evaluate(markers(target.python, target.platform))):
            continue
        name, version = canonicalize_name(package["name"]), str(package.get("version", ""))
        links = {link.name: link for link in map(_link_of, package.get("wheels", ()))}
        if (best := target.best(list(links))) is None:
            raise ResolutionError(
                f"{name} {version} has no wheel for Python {target.python} and glibc {target.glibc}",
                cause=f"On offer are {', '.join(links) or 'no wheels at all'}.",
                next_step=f"ask for another version of {name} in the recipe",
            )
        pinned.append(Offer(name, version, Channel.PYPI, links[best]))
    return tuple(pinned)


def _link_of(wheel: dict[str, Any]) -> Link:
    url = wheel.get("url") or "file://" + urllib.parse.quote(wheel["path"])
    name = wheel.get("name") or urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
    return Link(name=name, url=url, sha256=wheel.get("hashes", {}).get("sha256", ""), size=wheel.get("size"))


def build_limits(torch: str) -> tuple[tuple[str, ...], ...]:
    """Bounds of what builds a source beside this torch: one set after another, until one leaves a solution."""
    of_torch = tuple(constraints_of(torch))
    return tuple(dict.fromkeys([(*of_torch, BUILT_BY), of_torch, ()]))


def constraints_of(torch: str) -> list[str]:
    """List what goes with this torch beyond what its metadata says."""
    return [constraint for constraint, _ in bounds_of(torch)]


def bounds_of(torch: str) -> list[tuple[str, str]]:
    """The same, each with why it is so, as a clause."""
    release = Version(torch)
    bounds = [(line, f"torch {release.public} {why}") for first, line, why in CONSTRAINTS if release < Version(first)]
    return [*bounds, *((line, f"torch {release.public} goes with {line}") for line in pairs.constraints(torch))]


def resolve_pins(
    requirements: Sequence[str],
    target: WheelTarget,
    offers: Offers,
    *,
    overrides: Sequence[str] = (),
    constraints: Sequence[str] = (),
    preferred: Sequence[LockedPackage] = (),
    wheels: Path | None = None,
    cutoff: Cutoff | None = None,
) -> tuple[Offer, ...]:
    """Let uv choose for these requirements, from the mirror's index if it answers, else the user's own.

    `preferred`: versions to keep where nothing is against it; `wheels`: a folder that counts as a further index;
    `cutoff`: leaves newer files out, and those of which an index does not say when they were uploaded.
    """
    sources = offers.sources
    index = _index(sources)
    _refuse_unusable(index, sources)
    options = {"overrides": overrides, "constraints": constraints}
    names = sorted({str(canonicalize_name(Requirement(line).name)) for line in requirements})
    named = {name: source for name in names if (source := offers.named(name))}
    text = compile_requirements(requirements, target, index, sources, options, preferred, wheels, cutoff, named)
    return tuple(
        msgspec.structs.replace(offer, index=_place(offer, named, sources.user.further))
        for offer in parse_pylock(text, target)
    )


def _place(offer: Offer, named: Mapping[str, Source], further: Sequence[Source]) -> str:
    """The line of a requirements file that named a package's index; empty for the user's own index."""
    if source := named.get(offer.name):
        return source.where
    folders = (source for source in further if source.kind is SourceKind.FOLDER)
    return next((source.where for source in folders if _is_in(offer.link.url, source.location)), "")


def _is_in(url: str, folder: str) -> bool:
    return url.startswith("file:") and local_path(url).is_relative_to(folder)


def _index(sources: Sources) -> str:
    """The mirror's index if it answers, else the user's own."""
    if mirror := mirror_of(sources.request).pypi:
        with contextlib.suppress(NetworkError):
            sources.listings.project(Source(SourceKind.INDEX, mirror), COMMON)
            return mirror
    return sources.user.default


def without_times(sources: Sources) -> list[str]:
    """Titles of the indexes that are not known to say when their files were uploaded (PEP 700)."""
    user = sources.user
    indexes = [Source(SourceKind.INDEX, address) for address in (_index(sources), *user.extra)]
    indexes += [source for source in user.further if source.kind is SourceKind.INDEX]  # for some packages
    return list(dict.fromkeys(index.title for index in indexes if not sources.listings.has_times(index, COMMON)))


def _refuse_unusable(index: str, sources: Sources) -> None:
    """Raises HttpError where an index lets a request hang, or answers with something else than its page.

    uv waits for minutes for one that drips without end, and takes a login page for an index without packages. Other
    faults of it uv says.
    """
    if index.startswith(("http:", "https:")):
        try:
            sources.listings.project(Source(SourceKind.INDEX, index), COMMON, tries=STALLED_TRIES)
        except HttpError as error:
            if error.failure.kind in (NoAnswer.STALLED, NoAnswer.FOREIGN):
                raise
        except NetworkError:
            pass


def compile_requirements(
    requirements: Sequence[str],
    target: WheelTarget,
    index: str,
    sources: Sources,
    options: Mapping[str, Sequence[str]],
    preferred: Sequence[LockedPackage] = (),
    wheels: Path | None = None,
    cutoff: Cutoff | None = None,
    named: Mapping[str, Source] = MappingProxyType({}),
) -> str:
    """Resolve to the text of a pylock.toml (PEP 751) with wheels only, from this index and the user's further ones.

    `named`: packages that come from another place, and nothing else does. `options`: lines of uv's overrides and
    constraints. Raises UnsolvableError with uv's explanation, NetworkError, DiskFullError, CacheError, and BuildError
    where uv ended in another way.
    """
    user, cache = sources.user, sources.cache
    with cache.folder() as folder:
        argv = [uv_program(), "pip", "compile", "--no-config", "--quiet", "--no-header", "--format", "pylock.toml"]
        argv += ["--python", sys.executable, "--no-python-downloads"]
        argv += ["--python-version", target.python, "--python-platform", target.uv_platform]
        argv += ["--only-binary", ":all:"]
        argv += ["--index-strategy", "unsafe-best-match" if user.merged else "first-index"]
        argv += ["--cache-dir", str(cache.path("uv"))]
        argv += cutoff.options if cutoff else []
        for option, lines in options.items():
            if lines:
                (folder / f"{option}.txt").write_text("\n".join(lines), encoding="utf-8")
                argv += [f"--{option}", str(folder / f"{option}.txt")]
        asked = _write_requirements(requirements, named, folder)
        output = folder / "pylock.toml"
        if preferred:  # uv keeps what its output file has
            output.write_text(_preferences(preferred), encoding="utf-8")
        argv += ["--output-file", str(output)]
        # In variables, not in argv: addresses may hold a password, and everybody sees argv.
        variables = {
            name: value
            for name, value in settings.select_for_child(sources.environment).items()
            if not name.startswith("UV_") or name in KEPT
        }
        variables = {"UV_HTTP_RETRIES": str(STALLED_TRIES)} | _trust(sources.environment) | variables
        variables |= {"UV_DEFAULT_INDEX": index, "UV_INDEX": " ".join(user.extra)}
        # All of them: the option would put the variable out of force.
        variables["UV_FIND_LINKS"] = ",".join(_find_links(user.further, wheels))
        command = arguments.line(*argv, strange=[str(asked)])
        done = process.run(command, environment=variables, cwd=folder, timeout=900)
        if done.returncode in (NO_SOLUTION, NO_ANSWER):
            raise _failure(
                ProgramFailure(program="uv", exit_code=done.returncode, lines=tuple(done.lines), address=index)
            )
        if done.returncode:
            raise process.failure(command, done.returncode, done.lines)
        return output.read_text(encoding="utf-8")


def _trust(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables by which uv trusts whom our own requests trust: by itself it reads neither the system's nor pip's."""
    given = next((environment[name] for name in BUNDLES if environment.get(name)), None)
    if given is None:
        return {"UV_SYSTEM_CERTS": "1"}
    return {"SSL_CERT_DIR" if Path(given).is_dir() else "SSL_CERT_FILE": given}


def _write_requirements(requirements: Sequence[str], named: Mapping[str, Source], folder: Path) -> Path:
    """Write what uv is asked for, as it reads where single packages come from: in the tables of a project alone.

    An index there that is called explicit gives the packages whose source it is and no others (uv, "Package indexes").
    """
    if not named:
        path = folder / "requirements.in"
        path.write_text("\n".join(requirements), encoding="utf-8")
        return path
    lines = [
        "[project]",
        'name = "graphcrate-asked"',
        'version = "0"',
        f"dependencies = {json.dumps([*requirements], ensure_ascii=False)}",
    ]
    sources = list(dict.fromkeys(named.values()))
    for number, source in enumerate(sources):
        lines += [
            "[[tool.uv.index]]",
            f'name = "named-{number}"',
            f"url = {json.dumps(source.location, ensure_ascii=False)}",
        ]
        lines += ["explicit = true", *(['format = "flat"'] if source.kind is SourceKind.LINKS else [])]
    lines += ["[tool.uv.sources]"]
    lines += [f'{name} = {{ index = "named-{sources.index(source)}" }}' for name, source in named.items()]
    path = folder / "pyproject.toml"
    path.touch(0o600)  # an address may hold a password
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _find_links(further: Sequence[Source], wheels: Path | None) -> Iterator[str]:
    """Folders, as addresses: a comma, which stands between them, is quoted there."""
    folders = [source.location for source in further if source.kind is SourceKind.FOLDER]
    for folder in (*([wheels] if wheels else ()), *map(Path, folders)):
        yield folder.absolute().as_uri()


def _preferences(packages: Sequence[LockedPackage]) -> str:
    """A pylock.toml of these versions. uv reads no more of it, but requires a file for each."""
    text = 'lock-version = "1.0"\ncreated-by = "graphcrate"\n'
    for package in packages:
        file = f"https://none/{package.name.replace('-', '_')}-{package.version}-py3-none-any.whl"
        text += f'\n[[packages]]\nname = "{package.name}"\nversion = "{package.version}"\n'
        text += f'wheels = [{{ url = "{file}", hashes = {{ sha256 = "{"0" * 64}" }} }}]\n'
    return text


class UnsolvableError(ResolutionError):
    """No packages satisfy what is asked for. `explanation`: uv's, prose for the reader."""

    explanation: str = ""


def _failure(failure: ProgramFailure) -> GraphcrateError:
    text, other = failure.text, next(ends.errors(failure), None)
    if other is not None and not isinstance(other, NetworkError):  # of this machine: no other source would help
        return other
    if (given := _BY_ADDRESS.search(text)) and "certificate" not in text:
        kind = OtherBytesError if "unzip" in text and "upstream reader" not in text else UngivenError
        name = urllib.parse.unquote(given[1].rpartition("/")[2])
        what = "gives other bytes as" if kind is OtherBytesError else "does not give"
        ungiven = kind(f"{source_name(given[1])} {what} {name}\n{text}", next_step=FIXES[Channel.PYTORCH])
        ungiven.file = name
        return ungiven
    if other is not None:
        return other
    error = UnsolvableError(
        f"the requirements cannot be resolved\n{text}",
        cause="They contradict each other, a version does not exist as a wheel for this Python, or an index lists a "
        "file that it does not give.",
        next_step="change the recipe's requirements",
    )
    error.explanation = text
    return error


def lock_offers(offers: Iterable[Offer], sources: Sources) -> tuple[LockedPackage, ...]:
    """Lock files, sorted by name; sizes that an index does not state are asked for side by side."""
    with ThreadPoolExecutor(THREADS) as pool:
        packages = pool.map(lambda offer: lock_offer(offer, sources), offers)
        return tuple(sorted(packages, key=lambda package: package.name))


def lock_offer(offer: Offer, sources: Sources) -> LockedPackage:
    """Lock a file. An sdist, to be compiled, is stored: what it requires is read from it. Raises NetworkError."""
    file = locked_file(offer.link, sources.client, sources.cache, sources.progress)
    if offer.is_sdist:
        store(file, offer.link.url, sources.client, sources.cache)
    return LockedPackage(
        name=offer.name,
        version=offer.version,
        channel=offer.channel,
        file=file,
        compiled=offer.is_sdist,
        back_end=bool(offer.commit),
        commit=offer.commit,
        unreachable=offer.unreachable,
        index=offer.index,
    )
