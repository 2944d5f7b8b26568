"""Sources among what is added: which releases uv may choose as such, and what a chosen one is locked with.

uv builds nothing, and sees a source as an empty wheel of its name and version. What the stack has as a wheel is never
compiled: numpy takes an hour, where it can be.
"""

import contextlib
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import back_ends, build_environment, compilers, crates, cuda_sources, toolkits
from graphcrate.compat.facts.compilers import folder_for
from graphcrate.compat.facts.crates import CargoNeeds
from graphcrate.compat.facts.libraries import with_libraries
from graphcrate.compat.facts.suites import titled
from graphcrate.inputs.wheels.sdist import SdistMetadata, compiled_sources, read_cargo, read_sdist, wants_cuda
from graphcrate.model.command import filled, setting
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import Compilation, DebianBase, Lock, LockedPackage
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions, Candidate, Channel, Variant
from graphcrate.model.words import listed
from graphcrate.resolve.additions.conflicts import Conflicts
from graphcrate.resolve.additions.obstacles import Clause
from graphcrate.resolve.sources.crates import lock_crates
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.target import target_of
from graphcrate.resolve.stack import base
from graphcrate.resolve.stack.extensions import TOOLS, CompilerChoice, choose_compiler, lock_compilation
from graphcrate.resolve.stack.locks import ResolveContext
from graphcrate.resolve.stack.pinning import UnsolvableError, build_limits, lock_offer, lock_offers, resolve_pins
from graphcrate.resolve.stack.resolver import lock_sdist


class Sdists:
    """The sources of one resolution, by name.

    `admitted`: of which uv may choose one; `locked`: those that are taken; `barred`: why none may be.
    """

    def __init__(
        self,
        context: ResolveContext,
        stack: Lock,
        candidate: Candidate,
        conflicts: Conflicts,
        folder: Path,
        local: Iterable[LockedPackage],
    ) -> None:
        """`folder`: where uv finds empty wheels; `local`: the user's own projects that are to be compiled."""
        self._context, self._stack, self._candidate, self._conflicts = context, stack, candidate, conflicts
        self._offers, self.folder = conflicts.offers, folder
        self._cache = context.ctx.cache
        self._target = target_of(context.variant.base, context.variant.python)
        self._with_cuda = False  #: whether something with CUDA sources is compiled
        self._spared = set[str]()  #: which are taken as Python alone, never compiled
        self.barred = dict[str, ResolutionError]()
        self.locked = {package.name: self._lock(package) for package in local}
        self._local = frozenset(self.locked)
        self.admitted = {*self.locked}
        for package in self.locked.values():
            stand_in(folder, package.name, package.version)

    def is_decided(self, name: str) -> bool:
        """Return whether sources of a package are admitted, or barred."""
        return name in self.admitted or name in self.barred

    def requirements(self) -> Iterator[Clause]:
        """Yield the requirements of those that are taken; uv sees them as asked for."""
        for package in self.locked.values():
            about = read_sdist(self._stored(package), package.file.name)
            for line in (*about.requires, *self._wheels(package)):
                yield Clause(f"{package.name}=={package.version}", Requirement(line))

    def _wheels(self, package: LockedPackage) -> tuple[str, ...]:
        """List CUDA packages that a source is known to be compiled and run with, beside what stays."""
        named = back_ends.wheels(package.name, self._candidate.torch_cuda) if package.isolated else ()
        return tuple(project for project in named if project not in self._conflicts.staying)

    def notes(self, asked: Collection[str]) -> Iterator[str]:
        """Yield notes on what those that are taken bring besides what was `asked` for (names), and no metadata says."""
        for package in self.locked.values():
            if wheels := [project for project in self._wheels(package) if project not in asked]:
                yield f"{package.name} {package.version} is compiled and run with {listed(wheels)}, added for it"

    def admit(self, wanting: Mapping[str, Clause], *, for_newer: bool = False) -> bool:
        """Let uv choose among the sources of these packages, each with what needs it. False where none may be.

        A package that has no wheel at all goes first: another one may be there in a release with a wheel.
        `for_newer`: there is a solution without them, and they would only bring a newer release of another package.
        What has a wheel in some release is then not compiled (scipy takes half an hour and a Fortran compiler).
        """
        names = {name for name in wanting if not self.is_decided(name)}
        wheels = {package.name for package in self._stack.packages if not package.is_sdist}
        for name in names & wheels:
            self.barred[name] = self._conflicts.without_wheel(wanting[name], self._target.python)
        names -= wheels
        alone = {name for name in names if not any(map(self._conflicts.fits, self._conflicts.releases(name)))}
        if for_newer and not alone:
            self._spared |= names
        for name in sorted(alone or names):
            self.offer(name)
        return bool(names)

    def offer(self, name: str) -> None:
        """Let uv choose among a package's sources of releases without a wheel."""
        self.admitted.add(name)
        with_wheel = {release.version for release in self._conflicts.releases(name) if self._conflicts.fits(release)}
        for source in self._sources_of(name):
            if source.version not in with_wheel:
                stand_in(self.folder, name, source.version)

    def _sources_of(self, name: str) -> list[Offer]:
        return [release for release in self._conflicts.releases(name) if release.is_sdist and release.link.sha256]

    def take(self, pinned: Sequence[Offer]) -> bool:
        """Lock the sources that uv chose; True where there are new ones, whose own requirements count from now on."""
        new = False
        for chosen in pinned:
            known = self.locked.get(chosen.name)
            is_source = chosen.name in self.admitted and chosen.link.url.startswith(self.folder.absolute().as_uri())
            if known and not is_source and chosen.name not in self._local:
                del self.locked[chosen.name]  # a release with a wheel after all
                new = True
            if is_source and (known is None or known.version != chosen.version):
                source = next(sdist for sdist in self._sources_of(chosen.name) if sdist.version == chosen.version)
                new = True
                try:
                    self.locked[chosen.name] = self._lock(lock_offer(source, self._offers.sources))
                except ResolutionError as error:
                    self._bar(chosen.name, error)
        return new

    def _bar(self, name: str, error: ResolutionError) -> None:
        """Take no source of this package: another one may do with a release that has a wheel."""
        self.barred[name] = error
        self.admitted.discard(name)
        self.locked.pop(name, None)
        for path in self.folder.glob(f"{name.replace('-', '_')}-*.whl"):
            path.unlink()

    def _lock(self, package: LockedPackage) -> LockedPackage:
        """An sdist with its back-end: one that is compiled with all that this asks for."""
        path = self._stored(package)
        sources, about = compiled_sources(path), read_sdist(path, path.name)
        if not (sources or about.asked.compiles or about.imports_stack):
            return lock_sdist(package, self._offers)
        self._refuse_other_python(package)
        cargo = read_cargo(path, path.name) if about.asked.rust else None
        if obstacle := self._obstacle(package.name, cargo):
            what = f" ({sources[0]})" if sources else ""
            is_unlocked = obstacle == crates.NO_LOCK and package.channel is Channel.LOCAL
            raise ResolutionError(
                f"{package.name} {package.version} is there as source only, and has to be compiled{what}",
                cause=obstacle,
                next_step=_WRITE_LOCK if is_unlocked else _by_hand(package),
            )
        self._with_cuda = self._with_cuda or any(map(cuda_sources.is_kernel, sources)) or wants_cuda(path)
        is_known = folder_for(package.name) is not None  # how to compile its files side by side
        build = self._build(package, about, known=is_known)
        title = f"{package.name} {package.version}"
        vendored = lock_crates(cargo.crates, self._offers.sources, title) if cargo else msgspec.UNSET
        return msgspec.structs.replace(package, build=build, back_end=not is_known, crates=vendored)

    def _refuse_other_python(self, package: LockedPackage) -> None:
        """Raises ResolutionError for a release that the image's Python cannot import; folders may have it mended."""
        known, python = back_ends.package(package.name), self._target.python
        if package.channel is Channel.PYPI and not known.imports_in(python):
            raise ResolutionError(
                f"{package.name} {package.version} is for Python {known.python}, and the image has {python}",
                cause=known.because,
                next_step=filled(known.instead),
            )

    def _build(self, package: LockedPackage, about: SdistMetadata, *, known: bool) -> tuple[LockedPackage, ...]:
        """Lock what builds a source, beside torch and all else that stays; with the stack's numpy where that will do.

        `known`: beside the lock's tools, too.
        """
        there = {*self._conflicts.staying, *(_name(Requirement(tool)) for tool in TOOLS if known)}
        asked = back_ends.all_asked(package.name, about.build_requires, about.asked)
        needed = [line for line in asked if _name(Requirement(line)) not in there]
        try:
            pinned = self._pins(needed)
        except UnsolvableError as error:
            what = f"what builds {package.name} {package.version} is not available: {listed(needed)}"
            raise ResolutionError(
                f"{what}\n{error.explanation}",
                cause="Its build requirements contradict each other, or have no wheel for this Python.",
                next_step=_by_hand(package),
            ) from error
        return lock_offers((offer for offer in pinned if offer.name not in there), self._offers.sources)

    def _pins(self, needed: Sequence[str]) -> tuple[Offer, ...]:
        """Raises UnsolvableError where no bounds leave a solution. Those of torch are of what imports it."""
        *bounded, free = build_limits(self._conflicts.staying["torch"].version)
        for limits in bounded:
            with contextlib.suppress(UnsolvableError):
                return self._resolve(needed, limits)
        return self._resolve(needed, free)

    def _resolve(self, needed: Sequence[str], limits: Sequence[str]) -> tuple[Offer, ...]:
        preferred = self._stack.packages
        return resolve_pins(needed, self._target, self._offers, constraints=[*limits], preferred=preferred)

    def _obstacle(self, name: str, cargo: CargoNeeds | None) -> str:
        """Explain why an sdist cannot be compiled, or is not; empty where it is. `cargo`: of one in Rust."""
        if name in self._spared:
            return f"An older release of {name} has a wheel."
        if cargo and cargo.obstacle:
            return cargo.obstacle
        platform = self._target.platform
        if platform != DEFAULT and folder_for(name) is None:
            return f"For {platform.title} PyG's own extensions are compiled, and nothing by a back-end of its own."
        try:
            self._compiler()
        except ResolutionError as error:
            return error.what
        return ""

    def _compiler(self) -> CompilerChoice:
        return choose_compiler(self._context.variant, self._candidate, self._offers.sources.request)

    def _stored(self, package: LockedPackage) -> Path:
        return self._cache.file(package.file.sha256, package.file.name)

    def compilation(self, variant: Variant, additions: Additions) -> Compilation | None:
        """With what they are compiled: what the stack has, or the compiler alone where none has CUDA sources.

        Debian packages of `additions` are in the variant's base. Raises UsageError for what is for compiling alone, and
        nothing is compiled.
        """
        compilation, ctx, build_apt = self._stack.compilation, self._context.ctx, additions.build_apt
        with_apt = bool(additions.apt)
        compiled = [package.name for package in self.locked.values() if package.compiled]
        self._refuse_unused(additions)
        if not compiled:
            return compilation
        if compilation is None:
            choice = self._compiler()
            if not (self._with_cuda or build_environment.asks_for_cuda(additions.build_environment)):
                choice = msgspec.structs.replace(choice, option=None, architectures=())
            elif choice.option and not choice.architectures:  # a stack that has nothing to compile names none
                torch, cuda = self._conflicts.staying["torch"].version, self._candidate.torch_cuda
                architectures = toolkits.architectures_of(torch, cuda, choice.option.version, self._target.platform)
                choice = msgspec.structs.replace(choice, architectures=architectures)
            compilation = lock_compilation(choice, variant, self._stack.packages, self._offers, ctx)
            with_apt = False  # they are in its base
        compilation = with_libraries(compilation, compiled)
        if variables := [f"{name}={value}" for name, value in sorted(additions.build_environment.items())]:
            compilation = msgspec.structs.replace(compilation, with_env=tuple(variables))
        suite = compilation.base.suite
        besides = compilers.besides(self.locked.values(), suite, build_apt)
        if not (with_apt or besides):
            return compilation
        compiling = base.lock_compiler(ctx, variant, suite, compilation.compiler, besides)
        self._check_rust(compiling)
        return msgspec.structs.replace(compilation, base=compiling, with_apt=tuple(build_apt) or msgspec.UNSET)

    def _refuse_unused(self, additions: Additions) -> None:
        """Raises UsageError for what is for compiling alone, where nothing is compiled that would see it."""
        if additions.build_apt and not any(package.compiled for package in self.locked.values()):
            debian = " ".join(additions.build_apt)
            raise UsageError(
                f"{setting(build_apt=debian).both()} is for sources that are compiled, and nothing that you add is",
                cause="All of it is there as wheels, or in Python alone.",
                next_step=f"leave it out; packages for the image: {setting(apt=debian).both()}",
            )
        if additions.build_environment and not any(package.isolated for package in self.locked.values()):
            typed = setting(build_env=build_environment.written(additions.build_environment))
            raise UsageError(
                f"{typed.both()} is for sources that their own back-end compiles, and nothing that you add is",
                cause="It is there as wheels, in Python alone, or compiled file by file, as PyG's extensions are.",
                next_step="leave it out; variables of the image: `env` of a recipe (docs/customize.md)",
            )

    def _check_rust(self, compiling: DebianBase) -> None:
        """Raises ResolutionError for a source whose manifest asks for a newer Rust than the base to compile in has."""
        has = compilers.rust_of(compiling)
        for package in self.locked.values():
            asks = read_cargo(self._stored(package), package.file.name).rust if package.rust else ""
            if asks and crates.numbers(asks) > crates.numbers(has):
                raise ResolutionError(
                    f"{package.name} {package.version} is written for Rust {asks}, and {titled(compiling.suite)} has "
                    f"{has or 'none'}",
                    cause="Its Cargo.toml says so (rust-version), and cargo refuses an older one.",
                    next_step=_by_hand(package),
                )


_WRITE_LOCK = "cargo generate-lockfile    (where its Cargo.toml is; then the same command with that folder)"


def _by_hand(package: LockedPackage) -> str:
    return f"bring a wheel of it ({setting(with_=f'./{package.name}-….whl')}), or ask for another version"


def _name(requirement: Requirement) -> str:
    return str(canonicalize_name(requirement.name))


def stand_in(folder: Path, name: str, version: str) -> str:
    """Write an empty wheel of this name and version; its address."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path.as_uri()
