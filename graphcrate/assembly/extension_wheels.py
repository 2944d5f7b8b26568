"""The wheels of an image's compiled extensions: from a shared cache, or compiled in turn with its other builders."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from graphcrate.assembly import extensions
from graphcrate.compat.failures import compiling, loading
from graphcrate.compat.failures.failure import Beside, CompileFailure, same_with
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import trace
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.context import Context
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs.bases import Base, BaseDriftError
from graphcrate.inputs.shared.site_cache import SiteCache, Taken
from graphcrate.inputs.shared.turns import Turns, Wheels
from graphcrate.model.command import command
from graphcrate.model.errors import BuildError, GraphcrateError, LockedError, ResolutionError
from graphcrate.model.lock import Lock, LockedPackage, Toolkit, platform_of
from graphcrate.model.plan import CompileStep, Plan, ToolkitStep
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.stack import base as bases


def make_again(lock: Lock, step: CompileStep, folder: Path, ctx: Context) -> Collection[Path]:
    """Compile a step's packages in `folder`, though the cache may have their wheels; return these by their keys.

    Raises as `Compiling.wheels`, BaseDriftError too.
    """
    from graphcrate.inputs.extensions.compile import provide

    needed = msgspec.structs.replace(lock, packages=(*step.against, *step.packages))
    alone = Compiling(None, needed, SourceOptions(locked=True), ctx)
    job = dataclasses.replace(alone.job(step, bases.prepare_base(ctx, lock.base), folder), apart=folder)
    try:
        return provide(job).values()
    except wheelhouse.CompileError as error:
        raise explained(error.failure, job, same_with, ctx) from error


def explained(failure: CompileFailure, job: wheelhouse.CompileJob, beside: Beside, ctx: Context) -> BuildError:
    """The error for a failed compile, with Debian's packages and the command that was typed."""
    diagnosis = compiling.explain(failure, job.step, _of_debian(failure, job, ctx))
    return BuildError(diagnosis.what, cause=diagnosis.cause, next_step=diagnosis.typed(beside))


def _of_debian(failure: CompileFailure, job: wheelhouse.CompileJob, ctx: Context) -> compiling.DebianPackages:
    """Look up what would explain a failure: in Debian's index of files, and in the base with the compiler."""
    from debroot.contents import installed
    from graphcrate.inputs.bases import contents

    compiles, suite = job.step.compilation.base, job.step.compilation.base.suite
    match compiling.sought(failure, job.step):
        case None:
            return compiling.NOT_LOOKED_UP
        case loading.Unlinked(libraries):
            packages = {name: installed(name, job.build_base.rootfs) for name in libraries}
            return compiling.DebianPackages(libraries={name: names[0] for name, names in packages.items() if names})
        case absent:
            asked = absent.kind, absent.name, suite, ctx, platform_of(compiles)  # BUILD_APT is for where compilers run
            bringing = (absent.package,) if absent.package else contents.bringing(*asked)
            is_linked = bringing and absent.kind in compiling.LINKED_KINDS
            image = compiles if job.step.base is msgspec.UNSET else job.step.base
            linked = contents.linked_by(bringing[0], suite, ctx, platform_of(image)) if is_linked else ()
            return compiling.DebianPackages(bringing=bringing, linked=linked)


@dataclass(frozen=True)
class Compiling:
    """The compiling that a plan needs, made when it is asked for."""

    plan: Plan | None  #: None: of no image, the lock's wheels alone
    lock: Lock
    sources: SourceOptions
    ctx: Context
    beside: Beside = same_with  #: what to type for more packages
    shared: SiteCache | None = None  #: asked before anything is compiled
    taken: Taken = field(default_factory=Taken)
    others: set[Path] = field(default_factory=set)  #: wheels that other builders compile now, by their folders here
    layered: Collection[str] = ()  #: sha256s of sdists whose layers are there: no wheel of them is needed

    @functools.cached_property
    def steps(self) -> tuple[CompileStep, ...]:
        """The steps that compile the lock's sources."""
        return compile_steps(self.lock)

    @property
    def is_due(self) -> bool:
        """Return whether something is to be compiled whose wheel is not there."""
        return bool(self.absent)

    @property
    def absent(self) -> set[str]:
        """Return what is to be compiled, by the sha256 of its sdist."""
        sources = {package.file.sha256 for step in self.steps for package in step.packages}
        return sources - {*extensions.built(self.lock, self.ctx), *self.layered}

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Bring what a shared cache has into this one, and let no other builder compile meanwhile what is to be here.

        Whether the cache has anything decides what else is made.
        """
        with self.turns.beating():
            if self.shared is not None:
                for step in self.steps:
                    self.taken.compared |= self.shared.take(self._absent(step)).compared
                    self.others.update(self.turns.claim(self._uncompared(step)))
            yield

    @functools.cached_property
    def turns(self) -> Turns:
        """The turns of those who compile for the shared cache."""
        return Turns.at(self.shared, self._look)

    def _look(self, sources: Wheels) -> None:
        assert self.shared is not None
        self.taken.compared |= self.shared.take(sources, again=True).compared

    def _absent(self, step: CompileStep) -> dict[Path, LockedPackage]:
        """Map the folders of a step's wheels that are to be compiled to their sources."""
        shelves, absent = wheelhouse.shelves(step, self.ctx.cache), self.absent
        return {
            shelves[package.file.sha256].wheel: package for package in step.packages if package.file.sha256 in absent
        }

    def _uncompared(self, step: CompileStep) -> dict[Path, LockedPackage]:
        """Return those of which the shared cache's own is not compared with what is compiled here."""
        compared = self.taken.compared
        return {shelf: package for shelf, package in self._absent(step).items() if shelf.name not in compared}

    def prepare(self) -> None:
        """Make the base with a compiler, where something is to be compiled. What fails here fails again later."""
        if self.is_due and any(shelf not in self.others for step in self.steps for shelf in self._absent(step)):
            with contextlib.suppress(GraphcrateError):
                self._build_base(self.steps[0])
                self._libraries(self.steps)

    @trace.span("compile")
    def wheels(self, base: Base, folder: Path, unpacked: Callable[[], Sequence[Path]] = tuple) -> Mapping[str, Path]:
        """Make the wheels of the plan's compiled sdists (sha256 → wheel). `folder`: where a failure's log goes.

        `unpacked`: waits for the layers of wheels, and gives where they are unpacked.
        """
        from graphcrate.inputs.extensions.compile import provide

        made: dict[str, Path] = {}
        for step in self.steps:
            while len(there := wheelhouse.cached(step, self.ctx.cache)) < len(step.packages):
                if not (due := self._due(step)):
                    continue
                job = self.job(msgspec.structs.replace(step, packages=due), base, folder, unpacked)
                try:
                    compiled = provide(job)
                except wheelhouse.CompileError as error:
                    raise explained(error.failure, job, self.beside, self.ctx) from error
                if self.shared is not None:
                    self.shared.compare(self.taken, compiled.values())
                    self.turns.give(compiled.values())
            made |= there
        return made

    def _due(self, step: CompileStep) -> tuple[LockedPackage, ...]:
        """Return the packages of a step to compile now; waits for other builders at the shared cache."""
        there, others = wheelhouse.cached(step, self.ctx.cache), self._uncompared(step)
        absent = {package.file.sha256: package for package in step.packages if package.file.sha256 not in there}
        if alone := absent.keys() - {package.file.sha256 for package in others.values()}:
            return tuple(absent[sha256] for sha256 in absent if sha256 in alone)
        works = [extensions.work_of(package, step.compilation, self.ctx) for package in absent.values()]
        due = self.turns.due(others, sum(work.seconds for work in works if work is not None))
        return tuple(others[shelf] for shelf in due)

    def job(
        self, step: CompileStep, base: Base, folder: Path, unpacked: Callable[[], Sequence[Path]] = tuple
    ) -> wheelhouse.CompileJob:
        """Make the wheelhouse's job for a step, with all of its inputs in the cache; see `wheels`."""
        from graphcrate.host.workers import default_jobs

        build_base = self._build_base(step)
        return wheelhouse.CompileJob(
            step=step,
            base=base,
            build_base=build_base,
            toolkit=self._toolkit(step.compilation.toolkit, build_base),
            files={**self.files(), **self._libraries([step]), **self._headers(step)},
            cache=self.ctx.cache,
            progress=self.ctx.progress,
            jobs=default_jobs(),
            log_folder=folder,
            unpacked=unpacked,
        )

    def toolkit(self, base: Base) -> Path:
        """Make the folder of a devel image's CUDA toolkit."""
        toolkits = [step.toolkit for step in self.plan.of(ToolkitStep)] if self.plan else []
        folder = self._toolkit(toolkits[0], base)
        assert folder is not None
        return folder

    def files(self, arrivals: Arrivals | None = None) -> Mapping[str, Path]:
        """Fetch what is compiled, its tools and what it is compiled against (`arrivals` hear of it); sha256 → path.

        Raises what `fetch` raises.
        """
        arguments = (self.lock, self.sources, self.ctx)
        return {**fetch(*arguments, arrivals=arrivals), **fetch(*arguments, compilation=True)}

    def _build_base(self, step: CompileStep) -> Base:
        image = self.plan.base.base if self.plan else self.lock.base
        try:
            return bases.prepare_compiler(self.ctx, step.compilation.base, image)
        except BaseDriftError as drift:
            raise extensions.CompilerDriftError(drift.what, cause=drift.cause, next_step=drift.next_step) from drift

    def _toolkit(self, toolkit: Toolkit | None, base: Base) -> Path | None:
        from graphcrate.inputs import toolkits

        if toolkit is None:
            return None
        if (folder := toolkits.cached(toolkit, base.identity, self.ctx.cache)) is not None:
            return folder
        there = self.files()
        with self._no_drift():
            return toolkits.prepare(toolkit, there, base.rootfs, self.ctx, base=base.identity)

    def _libraries(self, steps: Iterable[CompileStep]) -> Mapping[str, Path]:
        """The sources of what the steps' packages are linked to, in the cache; sha256 → path."""
        sources = {source.file.sha256: source for step in steps for source in step.compilation.linked}
        if not sources:
            return {}
        from graphcrate.inputs.bases.debs import fetch_sources

        with self._no_drift():
            return dict(zip(sources, fetch_sources(list(sources.values()), self.ctx), strict=True))

    def _headers(self, step: CompileStep) -> Mapping[str, Path]:
        """The packages with a cross-compiler's headers, in the cache; sha256 → path."""
        if (cross := step.compilation.crossed) is None:
            return {}
        from graphcrate.inputs.bases.debs import fetch_debs

        base = step.compilation.base
        with self._no_drift():
            debs = fetch_debs(cross.headers, base.suite, self.ctx, listed=base.listed, what="Python's headers")
        return dict(zip((package.file.sha256 for package in cross.headers), debs, strict=True))

    @contextlib.contextmanager
    def _no_drift(self) -> Iterator[None]:
        """Raises LockedError or ResolutionError where no place has a file: today's base would not bring it back."""
        try:
            yield
        except BaseDriftError as drift:
            sources, lock = self.sources, self.lock
            if sources.locked:
                raise LockedError(drift.what, cause=drift.cause) from drift
            again = command(
                "lock",
                lock.recipe,
                cuda=lock.cuda,
                channel=sources.channel,
                extensions=sources.extensions.replace("auto", ""),
                toolkit=sources.toolkit,
            )
            raise ResolutionError(
                drift.what,
                cause=drift.cause,
                next_step=f"{again}    (or name a place that still "
                "has them: DEBIAN_SNAPSHOT=http://a-mirror-of-the-snapshot-service)",
            ) from drift
