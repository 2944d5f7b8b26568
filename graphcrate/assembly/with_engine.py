"""An engine's inputs: wheels and a base for the embedded builder; base, mirrors and certificates for others.

Light to import, since an unchanged image asks for its key alone: what builds is loaded when something is built.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from graphcrate.assembly import summary
from graphcrate.compat.facts import suites
from graphcrate.compat.failures.failure import Beside, same_with
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.engines import table
from graphcrate.engines.backend import BuildOrder, Built, Engine
from graphcrate.engines.embedded import engine as embedded
from graphcrate.host import process, trace
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.context import Context
from graphcrate.inputs.bases import Base
from graphcrate.model.command import command, setting
from graphcrate.model.errors import HostError, LockedError, UsageError
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources.fetch import bytes_to_fetch, fetch, installed, paths
from graphcrate.resolve.sources.source import SourceKind
from graphcrate.resolve.sources.user_indexes import user_indexes
from graphcrate.resolve.sources.wheel_mirrors import mirror_of, mirrored
from graphcrate.resolve.stack import base as bases
from sifsquash.values import Compression

if TYPE_CHECKING:
    from graphcrate.assembly.extension_wheels import Compiling
    from graphcrate.inputs.shared.site_cache import SiteCache

#: Where nothing else is asked for.
EMBEDDED: Engine = embedded.EMBEDDED
#: tried in this order where the embedded builder cannot work
INSTEAD = ("docker", "podman", "apptainer")


def first_that_answers(ctx: Context) -> Engine | None:
    """The first engine that can build here in place of the embedded builder."""
    for other in map(table.engine, INSTEAD):
        with contextlib.suppress(HostError):
            other.check(ctx.environment)
            return other
    return None


def size_to_fetch(
    engine: Engine, lock: Lock, ctx: Context, compiled: Collection[str] = (), plan: Plan | None = None
) -> int:
    """Bytes of packages that a build fetches: what our cache lacks; all of them into another engine's own cache.

    `plan`: whose layers may be there already.
    """
    if engine is EMBEDDED:
        from graphcrate.engines.embedded import records

        return bytes_to_fetch(records.to_bring(plan, lock, ctx.cache) if plan else lock, ctx.cache, compiled)
    return sum(package.file.size for package in lock.packages if package.channel is not Channel.LOCAL)


def build(
    engine: Engine,
    plan: Plan,
    lock: Lock,
    sources: SourceOptions,
    folder: Path,
    ctx: Context,
    beside: Beside = same_with,
    *,
    is_tested: bool = False,
    packs: Compression | None = None,
    shared: "SiteCache | None" = None,
) -> Built:
    """Give the engine what it builds the plan's image from, and build it. Raises as `Engine.build`.

    `beside`: what to type for more packages, where what is compiled lacks some; `is_tested`: it will be unpacked;
    `packs`: a squashfs will be made of it, by our own builder; `shared`: a cache that may have what is compiled.
    """
    if engine is EMBEDDED:
        from graphcrate.assembly.extension_wheels import Compiling
        from graphcrate.engines.embedded import records

        layered = records.layered(plan, ctx.cache)
        compiling = Compiling(plan, lock, sources, ctx, beside, shared, layered=layered)
        return _build_from_wheels(plan, compiling, folder, is_tested, packs)
    if packs is not None:
        ctx.progress.note(f"{engine.name} builds the image: its layers are not packed for a SIF while they are written")
    return _build_from_text(engine, plan, lock, sources, folder, ctx)


@trace.span("build")
def _build_from_wheels(
    plan: Plan, compiling: "Compiling", folder: Path, is_tested: bool, packs: Compression | None
) -> Built:
    """Build with the embedded builder, from the lock's own files."""
    from graphcrate.checks.reading import watch_layer

    ctx = compiling.ctx
    ctx.progress.note(summary.step(1, "download files, make the base"))
    with compiling.in_turn(), _inputs(plan, compiling) as inputs:

        def wheels(unpacked: Callable[[], Sequence[Path]]) -> Mapping[str, Path]:
            inputs.loaded.result()
            inputs.compiler.result()
            return compiling.wheels(inputs.base.result(), folder, unpacked)

        outline = bases.outline(ctx, plan.base.base) or inputs.base.result()
        order = BuildOrder(
            plan=plan,
            folder=folder,
            base=outline,
            twin=bases.native_twin(ctx, compiling.lock, outline),
            files=inputs.files,
            arrivals=inputs.arrivals,
            made_base=inputs.base,
            python=inputs.python,
            compiled=wheels,
            toolkit=lambda: compiling.toolkit(inputs.base.result()),
            unpacks=is_tested or compiling.is_due,
            packs=packs,
            watch=watch_layer,
            cache=ctx.cache,
            environment=ctx.environment,
            progress=ctx.progress,
        )
        return EMBEDDED.build(order)


class _Inputs(NamedTuple):
    """A build's inputs, on their way."""

    base: Future[Base]
    python: Future[Path]  #: a tree that the base's Python runs in
    compiler: Future[None]  #: the base with a compiler, where one is needed
    files: Mapping[str, Path]  #: sha256 → path
    arrivals: Arrivals  #: of those files
    loaded: Future[None]  #: all of them are there


@contextlib.contextmanager
def _inputs(plan: Plan, compiling: "Compiling") -> Iterator[_Inputs]:
    """Make bases by Debian's tools while wheels arrive, that with a compiler from the image's own.

    What is under way ends where the block fails.
    """
    lock, sources, ctx = compiling.lock, compiling.sources, compiling.ctx
    without = () if sources.devel else compiling.layered
    needed = installed(lock, without)
    arrivals, python, compiled = Arrivals(each.file.sha256 for each in needed), Future[Path](), len(compiling.absent)
    more = f", compile {compiled} package{'s' * (compiled != 1)}" if compiled else ""

    def load(base: Future[Base]) -> None:
        try:
            if sources.devel:
                compiling.files(arrivals)
            else:
                fetch(lock, sources, ctx, without=without, arrivals=arrivals)
        except BaseException as error:
            arrivals.fail(error)
            raise
        base.result()
        ctx.progress.note(summary.step(2, f"write {len(plan.steps) - 1} layers{more}"))

    with ThreadPoolExecutor(1) as side, ThreadPoolExecutor(1) as loader, ThreadPoolExecutor(1) as reader:
        base = side.submit(bases.prepare_base, ctx, plan.base.base, python.set_result)
        base.add_done_callback(lambda made: _settle(python, made))
        compiler, loaded = side.submit(compiling.prepare), loader.submit(load, base)
        reader.submit(_look_at, base, ctx)
        try:
            yield _Inputs(base, python, compiler, paths(needed, ctx.cache), arrivals, loaded)
            loaded.result()
        except BaseException:
            arrivals.stop()
            process.end_all()
            raise


@trace.span("read the base")
def _look_at(base: Future[Base], ctx: Context) -> None:
    """Read the base for the checks while layers are made. Where it is not made, nothing is read."""
    from graphcrate.checks.reading import remember

    if base.exception() is None:
        remember(base.result().layers, ctx)


def _settle(python: Future[Path], base: Future[Base]) -> None:
    """Let what waits for the base's Python have that of the base, or its error, where there was none before."""
    if python.done():
        return
    if error := base.exception():
        python.set_exception(error)
    else:
        python.set_result(base.result().rootfs)


def _build_from_text(
    engine: Engine, plan: Plan, lock: Lock, sources: SourceOptions, folder: Path, ctx: Context
) -> Built:
    """Build with another engine, from the plan's text on the lock's own base."""
    _refuse_back_ends(engine, lock)
    folder.mkdir(parents=True, exist_ok=True)
    ctx.progress.note(summary.step(1, "make the base"))
    base, notes = _base(plan, lock, sources, ctx)
    certificates = Path(ctx.environment.get("SSL_CERT_FILE", ""))
    ctx.progress.note(summary.step(2, f"build with {engine.name}"))
    order = BuildOrder(
        plan=plan,
        folder=folder,
        base=base,
        files=local_files(lock, sources, ctx),
        arguments=arguments(plan, lock, sources, ctx.environment),
        certificates=certificates if certificates.is_file() else None,
        cache=ctx.cache,
        environment=ctx.environment,
        progress=ctx.progress,
    )
    built = engine.build(order)
    return built._replace(artifact=msgspec.structs.replace(built.artifact, notes=notes))


def _refuse_back_ends(engine: Engine, lock: Lock) -> None:
    """Raises UsageError for what only our own sandbox compiles: the text has no watch on what pyg_lib's CMake starts.

    What users add is theirs: an engine compiles it as it stands, but for Rust.
    """
    if names := [package.name for package in lock.packages if package.rust]:
        raise UsageError(
            f"{', '.join(names)} is in Rust, and {engine.name} does not compile that",
            cause="Its crates are locked files, which only our own builder lays out for cargo.",
            next_step=f"{command('image', lock.recipe, cuda=lock.cuda, engine='embedded')}, or bring a wheel of it: "
            f"{setting(with_=f'./{names[0]}-….whl')}",
        )
    if names := [package.name for package in lock.packages if package.back_end and not package.isolated]:
        raise UsageError(
            f"{', '.join(names)} is compiled by its own back-end, which {engine.name} does not do",
            cause="Its build chooses compiler options that only work on this machine; our own builder takes them out.",
            next_step=f"{command('image', lock.recipe, cuda=lock.cuda, engine='embedded')}, or without it: "
            f"{setting(extensions='wheels')}",
        )


def _base(plan: Plan, lock: Lock, sources: SourceOptions, ctx: Context) -> tuple[Base | None, tuple[str, ...]]:
    """The lock's own base; None where the engine pulls it by digest, or its like because none can be made here.

    Raises LockedError where it is to be the lock's own and cannot be made.
    """
    if not isinstance(lock.base, DebianBase):
        return None, ()
    try:
        return bases.prepare_base(ctx, plan.base.base), ()
    except HostError as error:
        if sources.locked:
            raise LockedError(f"the locked base cannot be made here: {error.what}", cause=error.cause) from error
        image = plan.base.image.reference
        note = f"the base is {image} with Debian's packages of today, not the lock's own ({error.what})"
        ctx.progress.warn(note)
        return None, (note,)


def arguments(plan: Plan, lock: Lock, sources: SourceOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Build arguments by name, those that the text knows: mirrors and package index as this user has set them."""
    from graphcrate import render
    from graphcrate.inputs.bases.mirrors import own_mirror

    mirror = mirror_of(sources)
    torch, torch_cuda = plan.stack.torch, plan.stack.torch_cuda
    user = user_indexes(environment)
    values = {"PACKAGE_INDEX": mirror.pypi or user.default}
    for channel, row in CHANNELS.items():
        source = mirrored(mirror, channel, torch, torch_cuda)
        if (source.kind is SourceKind.INDEX) is row.is_index:
            values[row.variable] = source.location
    # A machine that knows no archive leaves it to the base image.
    if isinstance(lock.base, DebianBase) and (archive := own_mirror(environment, suite=lock.base.suite)):
        values[suites.distribution_of(lock.base.suite).variable("MIRROR")] = archive.main
    text = render.dockerfile(plan)
    return {
        name: value.rstrip("/")
        for name, value in values.items()
        if value.startswith(("http://", "https://")) and f"ARG {name}" in text
    }


def local_files(lock: Lock, sources: SourceOptions, ctx: Context) -> Mapping[str, Path]:
    """The local channel's files, which no engine can fetch."""
    packages = tuple(package for package in lock.packages if package.channel is Channel.LOCAL)
    only = msgspec.structs.replace(lock, packages=packages)
    projects = [package.file for package in packages if package.compiled]
    files = {file.sha256: ctx.cache.file(file.sha256, file.name) for file in projects}
    return {**fetch(only, sources, ctx), **files} if packages else {}
