"""Sources among what is added: which releases uv may choose as such, and what a chosen one is locked with.

uv builds nothing, and sees a source as an empty wheel of its name and version. What the stack has as a wheel is never
compiled: numpy takes an hour, where it can be.
"""

import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat import toolkits
from graphcrate.inputs.wheels.sdist import SdistMetadata, compiled_sources, read_sdist
from graphcrate.model.command import command, setting
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, Lock, LockedPackage
from graphcrate.model.recipe import Candidate, Variant
from graphcrate.resolve.base import lock_compiler
from graphcrate.resolve.conflicts import Conflicts
from graphcrate.resolve.extensions import TOOLS, CompilerChoice, choose_compiler, lock_compilation
from graphcrate.resolve.locks import ResolveContext
from graphcrate.resolve.obstacles import Clause
from graphcrate.resolve.offers import Offer
from graphcrate.resolve.pinning import constraints_of, lock_offer, lock_offers, resolve_pins
from graphcrate.resolve.resolver import lock_sdist
from graphcrate.resolve.target import target_of


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
        self.barred = dict[str, ResolutionError]()
        self.locked = {package.name: self._lock(package) for package in local}
        self._local = frozenset(self.locked)
        self.admitted = {*self.locked}
        for package in self.locked.values():
            stand_in(folder, package.name, package.version)

    def is_decided(self, name: str) -> bool:
        """Whether sources of a package are admitted, or barred."""
        return name in self.admitted or name in self.barred

    def requirements(self) -> Iterator[Clause]:
        """What those that are taken require; uv sees it as asked for."""
        for package in self.locked.values():
            for line in read_sdist(self._stored(package), package.file.name).requires:
                yield Clause(f"{package.name}=={package.version}", Requirement(line))

    def admit(self, wanting: Mapping[str, Clause]) -> bool:
        """Let uv choose among the sources of these packages, each with what needs it. False where none may be.

        A package that has no wheel at all goes first: another one may be there in a release with a wheel.
        """
        names = {name for name in wanting if not self.is_decided(name)}
        wheels = {package.name for package in self._stack.packages if not package.is_sdist}
        for name in names & wheels:
            self.barred[name] = self._conflicts.without_wheel(wanting[name], self._target.python)
        names -= wheels
        alone = {name for name in names if not any(map(self._conflicts.fits, self._conflicts.releases(name)))}
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
        """An sdist with its back-end, or one to be compiled with what that needs beside the lock's tools."""
        path = self._stored(package)
        if not (sources := compiled_sources(path)):
            return lock_sdist(package, self._offers)
        about = read_sdist(path, path.name)
        if obstacle := self._obstacle(about):
            wheel = setting(with_=f"./{package.name}-….whl")
            with_tool = command("image", "…", flavour="devel", apt=about.tool.lower())
            raise ResolutionError(
                f"{package.name} {package.version} is there as source only, and has to be compiled ({sources[0]})",
                cause=obstacle,
                next_step=f"bring a wheel of it ({wheel}), or ask for another version"
                + (f"; {with_tool} has what makes one" if about.tool else ""),
            )
        self._with_cuda = self._with_cuda or any(name.endswith(".cu") for name in sources)
        there = {*self._conflicts.staying, *(_name(Requirement(tool)) for tool in TOOLS)}
        needed = [line for line in about.build_requires if _name(Requirement(line)) not in there]
        constraints = constraints_of(self._conflicts.staying["torch"].version)
        pinned = resolve_pins(
            needed, self._target, self._offers, constraints=constraints, preferred=self._stack.packages
        )
        build = lock_offers((offer for offer in pinned if offer.name not in there), self._offers.sources)
        return msgspec.structs.replace(package, build=build)

    def _obstacle(self, about: SdistMetadata) -> str:
        """Why an sdist cannot be compiled; empty where it can."""
        if not about.is_setup:
            return "Only what setuptools builds by a setup.py is compiled."
        if about.tool:
            return f"Its setup.py builds it by {about.tool}, and compiling has setuptools and a compiler alone."
        try:
            self._compiler()
        except ResolutionError as error:
            return error.what
        return ""

    def _compiler(self) -> CompilerChoice:
        return choose_compiler(self._context.variant, self._candidate, self._offers.sources.request)

    def _stored(self, package: LockedPackage) -> Path:
        return self._cache.file(package.file.sha256, package.file.name)

    def compilation(self, variant: Variant, *, with_apt: bool) -> Compilation | None:
        """With what they are compiled: what the stack has, or the compiler alone where none has CUDA sources.

        `with_apt`: the variant has Debian packages that the stack's base has not.
        """
        compilation, ctx = self._stack.compilation, self._context.ctx
        if not any(package.compiled for package in self.locked.values()):
            return compilation
        if compilation is None:
            choice = self._compiler()
            if not self._with_cuda:
                choice = msgspec.structs.replace(choice, option=None, architectures=())
            elif choice.option and not choice.architectures:  # a stack that has nothing to compile names none
                torch, cuda = self._conflicts.staying["torch"].version, self._candidate.torch_cuda
                architectures = toolkits.architectures_of(torch, cuda, choice.option.version)
                choice = msgspec.structs.replace(choice, architectures=architectures)
            return lock_compilation(choice, variant, self._stack.packages, self._offers, ctx)
        if not with_apt:
            return compilation
        base = lock_compiler(ctx, variant, compilation.base.suite, compilation.compiler)
        return msgspec.structs.replace(compilation, base=base)


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
