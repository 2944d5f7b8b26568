"""Cargo.lock and Cargo.toml of a source in Rust: its crates by their hashes, and the Rust that it needs. Pure.

A Cargo.lock has the sha256 of every crate as crates.io has it, so cargo need not run to know what a build takes.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from graphcrate.model import codec
from graphcrate.model.values import AnySha256, CrateName, CrateVersion

LOCK, MANIFEST = "Cargo.lock", "Cargo.toml"
NO_LOCK = f"It is written in Rust, and has no {LOCK} that names its crates by their hashes."
MOST = 5000  #: crates of one source; the largest that are known have 1200
#: how a Cargo.lock writes crates.io, by git and by HTTP
_CRATES_IO = ("registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/")
_KINDS = {"git": "a git repository", "registry": "another registry", "sparse": "another registry"}
#: where maturin looks for a manifest that pyproject.toml does not name
MANIFESTS = (MANIFEST, f"rust/{MANIFEST}", f"native/{MANIFEST}")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2}")
_Document = TypeVar("_Document")


class Crate(NamedTuple):
    """One crate of crates.io."""

    name: str
    version: str
    sha256: str  #: of its `.crate` file

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}-{self.version}.crate"


class CargoNeeds(NamedTuple):
    """Cargo's needs for a source. `obstacle`: why it cannot be built by hashes alone, as a sentence."""

    crates: tuple[Crate, ...] = ()
    rust: str = ""  #: oldest version of rustc, where its manifest says one: "1.74"
    obstacle: str = ""


class _Package(msgspec.Struct, frozen=True):
    name: CrateName
    version: CrateVersion
    source: str = ""  #: empty for what is in the source itself
    checksum: AnySha256 = ""


class _Lock(msgspec.Struct, frozen=True):
    package: list[_Package] = []


class _Section(msgspec.Struct, frozen=True, rename="kebab"):
    version: Any = ""  #: a text, or a table that says to take the workspace's
    rust_version: Any = ""


class _Workspace(msgspec.Struct, frozen=True):
    package: _Section = _Section()


class _Manifest(msgspec.Struct, frozen=True):
    package: _Section = _Section()
    workspace: _Workspace = _Workspace()


def manifest_of(paths: Collection[str], named: str = "") -> str:
    """The Cargo.toml that maturin begins with, `named` by pyproject.toml or found; empty if unknown."""
    return next((path for path in (named.removeprefix("./"), *MANIFESTS) if path in paths), "")


def documents(paths: Collection[str], manifest: str = "") -> list[str]:
    """Each Cargo.lock that cargo may go by, and the manifests beside them. `manifest`: what it begins with, if known.

    It takes the lock of the workspace, which is in the manifest's folder or in one above that.
    """
    locks = [path for path in sorted(paths) if path.rpartition("/")[2] == LOCK]
    if manifest:
        locks = [path for path in locks if manifest.startswith(path.removesuffix(LOCK))]
    beside = [manifest, *(f"{path.removesuffix(LOCK)}{MANIFEST}" for path in locks)]
    return [*locks, *dict.fromkeys(path for path in beside if path in paths)]


def needs(texts: Mapping[str, bytes]) -> CargoNeeds:
    """Read the `documents` (path → content). Raises ValueError or msgspec.ValidationError for malformed ones."""
    locks = [path for path in texts if path.rpartition("/")[2] == LOCK]
    crates: dict[tuple[str, str], Crate] = {}
    obstacle = ""
    for path in locks:
        for package in _read(texts[path], _Lock).package:
            if not package.source:
                continue
            crate = Crate(package.name, package.version, package.checksum)
            if package.source not in _CRATES_IO:
                kind = _KINDS.get(package.source.partition("+")[0], "elsewhere")
                obstacle = f"It takes the crate {crate.name} from {kind}, and only crates.io has them by a hash."
            elif not crate.sha256:
                obstacle = f"Its {LOCK} has no hash of the crate {crate.name}: it is of a cargo of before 2020."
            elif crates.setdefault(crate[:2], crate) != crate:
                raise ValueError(f"{path} has two hashes of the crate {crate.name} {crate.version}")
    if len(crates) > MOST:
        raise ValueError(f"it asks for {len(crates)} crates, and at most {MOST} are fetched for a source")
    if not locks:
        obstacle = NO_LOCK
    versions = [version for path, text in texts.items() if path not in locks for version in _rust_versions(text)]
    return CargoNeeds(tuple(sorted(crates.values())), max(versions, key=numbers, default=""), obstacle)


def version_of(manifest: bytes) -> str:
    """The version that a Cargo.toml has; empty where it takes a workspace's. Raises as `needs`."""
    version = _read(manifest, _Manifest).package.version
    return version if isinstance(version, str) else ""


def numbers(version: str) -> tuple[int, ...]:
    """A version of Rust to compare: "1.74" is 1.74.0."""
    parts = [int(number) for number in re.findall(r"\d+", version)[:3]]
    return (*parts, 0, 0, 0)[:3]


def _rust_versions(manifest: bytes) -> Iterator[str]:
    document = _read(manifest, _Manifest)
    for section in (document.package, document.workspace.package):
        if isinstance(section.rust_version, str) and _VERSION.fullmatch(section.rust_version):
            yield section.rust_version


def _read(text: bytes, kind: type[_Document]) -> _Document:
    return codec.convert(tomllib.loads(text.decode()), kind)
