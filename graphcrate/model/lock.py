"""Lock: exactly what goes into an image. Holds names, versions, sizes and hashes; never a host name of an index."""

import hashlib
from collections.abc import Collection
from typing import Literal

import msgspec

from graphcrate.model import codec
from graphcrate.model.platform import DEFAULT, PLATFORMS, Platform, platform_named
from graphcrate.model.recipe import Channel
from graphcrate.model.values import (
    AnyDigest,
    AnyFileName,
    AnyVersion,
    Assignment,
    BelowPath,
    Capability,
    Commit,
    CrateName,
    CrateVersion,
    CudaVersion,
    Day,
    DebianName,
    Digest,
    FileName,
    ImagePath,
    Listed,
    PackageName,
    PlatformName,
    PythonVersion,
    Repository,
    Sha256,
    Size,
    Time,
    Version,
)


class LockedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file to fetch. `size` in bytes."""

    name: FileName
    size: Size
    sha256: Sha256


class LockedCrate(msgspec.Struct, frozen=True, kw_only=True):
    """A crate of crates.io that a source in Rust is compiled with, and that is in its wheel."""

    name: CrateName
    version: CrateVersion
    file: LockedFile


class LockedPackage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wheel, or an sdist: pure and built on the host by `build`, or `compiled` by the lock's `Compilation`."""

    name: PackageName
    version: Version  #: PEP 440, with local label
    channel: Channel
    file: LockedFile
    #: of a pure sdist: the build back-end's own wheels; of a compiled one: what it needs beside the lock's tools, or
    #: where it is `isolated`, all that builds it
    build: tuple["LockedPackage", ...] = ()
    compiled: bool = False  #: an sdist with C++ or CUDA sources
    #: compiled by its own back-end, which starts compilers itself, and not file by file as its setup.py lists them
    back_end: bool = False
    commit: Commit = ""  #: of the repository that the sdist was packed of (`compat.facts.pyg_lib`)
    unreachable: tuple[Channel, ...] = ()  #: channels that did not answer when it was locked and may have a wheel
    #: line of a file that names the place that has it ("requirements.txt:2"); empty: the user's own
    index: AnyFileName = ""
    crates: tuple[LockedCrate, ...] | msgspec.UnsetType = msgspec.UNSET  #: of an sdist in Rust, all that cargo takes

    @property
    def rust(self) -> bool:
        """Return whether cargo compiles it."""
        return isinstance(self.crates, tuple)

    @property
    def vendored(self) -> tuple[LockedCrate, ...]:
        """The crates that it is compiled with, if any."""
        return self.crates if isinstance(self.crates, tuple) else ()

    @property
    def is_sdist(self) -> bool:
        return not self.file.name.endswith(".whl")

    @property
    def isolated(self) -> bool:
        """Return whether its own back-end sees what it asks for and no other's (PEP 517).

        pyg_lib's is known by its commit.
        """
        return self.back_end and not self.commit


class MissingPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that the recipe asks for and no channel has as a wheel."""

    name: str
    reason: str
    cost: str = ""  #: what the user loses
    unreachable: tuple[Channel, ...] = ()  #: channels that did not answer when the lock was made and may have it

    @property
    def told(self) -> str:
        """Describe the package, the reason and what is lost, for plan, report and its page."""
        return f"{self.name}: {self.reason}" + (f"; without it: {self.cost}" if self.cost else "")


class DebianPackage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One .deb. `file.name` is its base name."""

    name: DebianName
    version: Version
    architecture: DebianName
    file: LockedFile
    #: below the root of its archive: "pool/main/b/bash/bash_5.2.15-2_amd64.deb", "pool/updates/…" of the security
    #: archive; empty in locks from before 2026-11-25
    path: BelowPath = ""


class DebianSource(DebianPackage, frozen=True, kw_only=True, omit_defaults=True):
    """Sources of a library as Debian's archive has them. `version`: of the source package; `architecture`: "source"."""

    suite: DebianName  #: one that has them
    listed: Listed = ""  #: as of a DebianBase


class DebianBase(msgspec.Struct, frozen=True, kw_only=True, tag="debian", tag_field="provider", omit_defaults=True):
    """A minimal Debian made of exactly these packages."""

    suite: DebianName
    packages: tuple[DebianPackage, ...]
    #: when the lists were made that they were taken from, as Debian's snapshot service writes times
    #: ("20261125T021215Z"); empty as `path`
    listed: Listed = ""
    without_security: bool = False  #: no mirror gave the list of the suite's security updates, and the user went on


class RegistryBase(msgspec.Struct, frozen=True, kw_only=True, tag="registry", tag_field="provider"):
    """A base image pulled by digest. `reference` names registry and repository, without tag or digest."""

    reference: Repository
    digest: Digest  #: of the platform's manifest
    platform: PlatformName = DEFAULT.name
    interpreter: ImagePath  #: absolute path of the wanted Python inside the image


def platform_of(base: DebianBase | RegistryBase | None) -> Platform:
    """Return the platform of an image on this base; the default one for an open base, or packages for any."""
    if isinstance(base, RegistryBase):
        return platform_named(base.platform)
    architectures = {package.architecture for package in base.packages} if base else set()
    return next((platform for platform in PLATFORMS if platform.debian in architectures), DEFAULT)


class DebianToolkit(msgspec.Struct, frozen=True, kw_only=True, tag="debian", tag_field="provider", omit_defaults=True):
    """Debian's nvcc, unpacked and not installed, with headers and libraries from wheels. `version` is nvcc's."""

    version: Version  #: "11.8.89"
    suite: DebianName
    packages: tuple[DebianPackage, ...]
    wheels: tuple[LockedPackage, ...]
    listed: Listed = ""  #: as of a DebianBase


class WheelToolkit(msgspec.Struct, frozen=True, kw_only=True, tag="pypi", tag_field="provider"):
    """A toolkit that consists of wheels (CUDA 13 and newer)."""

    version: Version
    wheels: tuple[LockedPackage, ...]


class ImageToolkit(msgspec.Struct, frozen=True, kw_only=True, tag="image", tag_field="provider"):
    """The toolkit in /usr/local/cuda of an image, such as nvidia/cuda:…-devel, pulled by digest."""

    version: Version
    reference: Repository  #: registry and repository, without tag or digest
    digest: AnyDigest  #: of the platform's manifest; empty in texts that go by a tag


Toolkit = DebianToolkit | WheelToolkit | ImageToolkit


class Cross(msgspec.Struct, frozen=True, kw_only=True):
    """A cross-compile's needs besides those of any compile."""

    platform: PlatformName  #: of the image, whose own base the sources' build runs in, by an emulator
    headers: tuple[DebianPackage, ...]  #: of that base's Python, unpacked and not installed


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """With what the lock's compiled sdists become wheels, and for which GPUs. Nothing of it gets into the image."""

    architectures: tuple[Capability, ...]  #: TORCH_CUDA_ARCH_LIST: "7.0", "8.0+PTX"; empty: for the CPU alone
    compiler: DebianName  #: Debian's package: "g++-11"
    base: DebianBase  #: the image's base with the compiler; of a cross-compiler, what that one runs in
    tools: tuple[LockedPackage, ...]  #: pip, setuptools, wheel, ninja, for the image's Python
    toolkit: Toolkit | None = None  #: None: for the CPU alone
    #: libraries that packages are linked to, made beside them; left out of the file where there are none
    libraries: tuple[DebianSource, ...] | msgspec.UnsetType = msgspec.UNSET
    #: Debian's packages in `base` that the user asked for to compile with; left out of the file where there are none
    with_apt: tuple[DebianName, ...] | msgspec.UnsetType = msgspec.UNSET
    #: variables that the user asked for, of what is `isolated`, sorted; left out of the file where there are none
    with_env: tuple[Assignment, ...] | msgspec.UnsetType = msgspec.UNSET
    #: of a cross-compiler; left out of the file where the compiler is the image's own platform's
    cross: Cross | msgspec.UnsetType = msgspec.UNSET

    @property
    def crossed(self) -> Cross | None:
        """Return what a cross-compiler takes besides; None where the image's own platform compiles."""
        return self.cross if isinstance(self.cross, Cross) else None

    @property
    def besides(self) -> tuple[str, ...]:
        """Debian's packages that the user asked for to compile with, if any."""
        return self.with_apt if isinstance(self.with_apt, tuple) else ()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the user asked for, if any."""
        return dict(text.split("=", 1) for text in (self.with_env if isinstance(self.with_env, tuple) else ()))

    @property
    def linked(self) -> tuple[DebianSource, ...]:
        """Libraries that packages are linked to, if any."""
        return self.libraries if isinstance(self.libraries, tuple) else ()


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """The user's additions to the stack: normalised names of packages of the lock."""

    packages: tuple[PackageName, ...] = ()  #: in layers of their own, above the stack's
    asked: tuple[PackageName, ...] = ()  #: by name; the smoke test imports them
    moved: tuple[PackageName, ...] = ()  #: of `packages`, those of which the stack has another version


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """A Debian package of a lock that no place has, or one that came or went with it, and what was taken instead."""

    of: Literal["base", "compiler"]  #: the image's base, or the base with the compiler
    name: DebianName
    locked: AnyVersion  #: version; empty: the lock has no such package
    taken: AnyVersion  #: today's version; empty: today's base has no such package


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that goes into one image of `recipe` at `cuda`, by one candidate."""

    format: Literal[1] = 1
    recipe: FileName
    cuda: CudaVersion
    candidate: FileName
    torch_cuda: CudaVersion
    python: PythonVersion
    created: Time  #: the beginning of the day that it was made on; becomes the image's `created`
    request_sha256: Sha256  #: of what was asked for (`request_digest`); tells a stale lock
    base: DebianBase | RegistryBase
    packages: tuple[LockedPackage, ...]  #: sorted by name
    compilation: Compilation | None = None  #: there when a package is compiled
    missing: tuple[MissingPackage, ...] = ()
    notes: tuple[str, ...] = ()  #: e.g. metadata that disagrees with what is installed
    added: Added | msgspec.UnsetType = msgspec.UNSET  #: by the user; left out of the file where nothing was
    #: day ("2023-08-31") as of which the packages are that no recipe pins; left out where they are of the lock's own
    exclude_newer: Day | msgspec.UnsetType = msgspec.UNSET
    #: packages of today in place of locked ones; left out of the file where there are none, so of all committed locks
    drift: tuple[Drift, ...] | msgspec.UnsetType = msgspec.UNSET

    def package(self, name: str) -> LockedPackage | None:
        """The package of this normalised name, or None."""
        return next((package for package in self.packages if package.name == name), None)

    @property
    def platform(self) -> Platform:
        """Return the platform of the image."""
        return platform_of(self.base)

    @property
    def additions(self) -> Added:
        """Return the user's additions, if any."""
        return self.added if isinstance(self.added, Added) else Added()

    @property
    def as_of(self) -> str:
        """The day ("2023-08-31") as of which the stack's packages are; empty where they are of the lock's own."""
        return self.exclude_newer if isinstance(self.exclude_newer, str) else ""

    @property
    def drifted(self) -> tuple[Drift, ...]:
        """List Debian packages that differ from the lock."""
        return self.drift if isinstance(self.drift, tuple) else ()

    @property
    def debian_bases(self) -> list[tuple[Literal["base", "compiler"], DebianBase]]:
        """List its bases of Debian: the image's, and that with the compiler, which FLAVOUR=devel puts into an image."""
        bases: list[tuple[Literal["base", "compiler"], DebianBase]] = []
        if isinstance(self.base, DebianBase):
            bases.append(("base", self.base))
        if self.compilation is not None:
            bases.append(("compiler", self.compilation.base))
        return bases

    @property
    def unfixed(self) -> tuple[str, ...]:
        """The suites of its bases that were taken without the list of their security updates."""
        return tuple(dict.fromkeys(base.suite for _, base in self.debian_bases if base.without_security))

    @property
    def interpreter(self) -> str:
        """Absolute path of the base's Python."""
        return self.base.interpreter if isinstance(self.base, RegistryBase) else f"/usr/bin/python{self.python}"

    @property
    def sha256(self) -> str:
        """Hash of the lock's canonical bytes, as written on the image's label."""
        return hashlib.sha256(encode(self)).hexdigest()

    @property
    def contents_sha256(self) -> str:
        """Hash of what the lock puts into an image, base and packages, whenever and by what request it was made."""
        contents = (self.recipe, self.cuda, self.python, self.base, self.packages)
        return hashlib.sha256(msgspec.json.encode(contents)).hexdigest()

    def files(self, built: Collection[str] = ()) -> dict[str, LockedFile]:
        """All that is fetched, by sha256; an image's layers are not files of a lock.

        What only a compile needs counts unless all compiled sdists are `built` (sha256s of those that have wheels).
        """
        packages: list[LockedPackage | LockedCrate | DebianPackage] = [*self.installed()]
        packages += self.base.packages if isinstance(self.base, DebianBase) else ()
        if self.compilation is not None and self.compiles(built):
            toolkit = self.compilation.toolkit
            packages += (
                *self.for_compilation(),
                *self.crates(),
                *self.compilation.base.packages,
                *self.compilation.linked,
                *(self.compilation.crossed.headers if self.compilation.crossed else ()),
            )
            packages += toolkit.packages if isinstance(toolkit, DebianToolkit) else ()
        return {package.file.sha256: package.file for package in packages}

    def compiles(self, built: Collection[str]) -> bool:
        """Return whether an sdist has to be compiled that is not `built`."""
        return any(package.compiled and package.file.sha256 not in built for package in self.packages)

    def installed(self) -> list[LockedPackage]:
        """List what is installed as it is, wheels and pure sdists, with what builds those."""
        return [item for package in self.packages if not package.compiled for item in (package, *package.build)]

    def for_compilation(self) -> list[LockedPackage]:
        """List what only a compile needs, without Debian's packages."""
        if self.compilation is None:
            return []
        toolkit = self.compilation.toolkit
        wheels = toolkit.wheels if isinstance(toolkit, DebianToolkit | WheelToolkit) else ()
        sources = (item for package in self.packages if package.compiled for item in (package, *package.build))
        return [*sources, *self.compilation.tools, *wheels]

    def crates(self) -> list[LockedCrate]:
        """List the crates that cargo takes to compile the packages in Rust, each once."""
        every = (crate for package in self.packages for crate in package.vendored)
        return [*{crate.file.sha256: crate for crate in every}.values()]


def encode(value: msgspec.Struct) -> bytes:
    """Canonical JSON: fixed field order, two spaces, one final newline. The same value gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def decode_lock(data: bytes) -> Lock:
    """Parse a lock file. Raises what `errors.UNREADABLE` names."""
    return codec.decode(data, Lock)
