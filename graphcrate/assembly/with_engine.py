"""What builds images: the embedded builder, or an engine that gets base, mirrors and certificates.

Light to import, since an unchanged image asks for its key alone: what builds is loaded when something is built.
"""

import contextlib
import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.assembly import extensions, summary
from graphcrate.compat import slim
from graphcrate.compat.addresses import cuda_label, pyg_page
from graphcrate.compat.request import SourceOptions
from graphcrate.engines import backend
from graphcrate.engines.backend import LAYER_FORMAT, BuildOrder
from graphcrate.host import process
from graphcrate.host.context import Context
from graphcrate.inputs.bases import Base
from graphcrate.model.errors import HostError, LockedError, UsageError
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import CompileStep, Plan, content_id
from graphcrate.model.recipe import Channel
from graphcrate.model.report import Artifact, BuildReport, LayerRecord
from graphcrate.oci.layout import is_whole
from graphcrate.resolve import base as bases
from graphcrate.resolve.channels import SourceKind, mirror_of, user_indexes
from graphcrate.resolve.fetch import bytes_to_fetch, fetch


@dataclass(frozen=True)
class Engine:
    """An engine that builds the plan's text, by its name; its images lie in a folder of its own."""

    name: str

    def check(self, ctx: Context) -> str:
        """Give the engine's version. Raises HostError where it cannot be used."""
        return backend.builder(self.name).check(ctx.environment)

    def folder(self, image: Path) -> Path:
        """Where the files of an image lie that this engine builds; `image` is the folder of its name and tag."""
        return image / self.name

    def key(self, plan: Plan) -> str:
        """What the image depends on, as one word: plan, engine and text."""
        from graphcrate.engines import render

        text = render.dockerfile(plan) + render.definition(plan)
        return f"{content_id(plan)}-{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def exists(self, report: BuildReport, folder: Path, ctx: Context) -> bool:
        """Whether the image is still what was built."""
        return backend.builder(self.name).exists(report.artifact, ctx.environment)

    def bytes_to_fetch(self, lock: Lock, ctx: Context, compiled: Collection[str] = ()) -> int:
        """Bytes of packages that a build fetches: all, into a cache of the engine's own or none."""
        return sum(package.file.size for package in lock.packages if package.channel is not Channel.LOCAL)

    def build(
        self, plan: Plan, lock: Lock, sources: SourceOptions, folder: Path, ctx: Context
    ) -> tuple[Artifact, tuple[LayerRecord, ...]]:
        """Build the plan's image on the lock's own base; the layers are the engine's. Raises as `Builder.build`."""
        folder.mkdir(parents=True, exist_ok=True)
        ctx.progress.note(summary.step(1, "make the base"))
        base, notes = _base(plan, lock, sources, ctx)
        certificates = Path(ctx.environment.get("SSL_CERT_FILE", ""))
        ctx.progress.note(summary.step(2, f"build with {self.name}"))
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
        return msgspec.structs.replace(backend.builder(self.name).build(order), notes=notes), ()


class Embedded(Engine):
    """graphcrate's own builder. It makes layers from wheels, in the image's own folder."""

    def check(self, ctx: Context) -> str:
        """Nothing: it is always there. What a base wants shows when it is prepared."""
        return ""

    def folder(self, image: Path) -> Path:
        """See `Engine.folder`."""
        return image

    def key(self, plan: Plan) -> str:
        """What the image depends on: the plan and the form of the layers."""
        form = f"{LAYER_FORMAT}.{slim.SLIM_FORMAT}" if slim.LABEL in plan.config.labels else f"{LAYER_FORMAT}"
        return f"{content_id(plan)}-{form}"

    def exists(self, report: BuildReport, folder: Path, ctx: Context) -> bool:
        """Whether the layout is there with all its blobs, and the report is of this folder."""
        return is_whole(folder / "oci", report.digest) and (report.name, report.tag) == folder.parts[-2:]

    def bytes_to_fetch(self, lock: Lock, ctx: Context, compiled: Collection[str] = ()) -> int:
        """Bytes that the cache lacks."""
        return bytes_to_fetch(lock, ctx.cache, compiled)

    def build(
        self, plan: Plan, lock: Lock, sources: SourceOptions, folder: Path, ctx: Context
    ) -> tuple[Artifact, tuple[LayerRecord, ...]]:
        """Build the plan's image as a layout, with its layers. Raises as `engines.embedded.build.build_layout`."""
        from graphcrate.engines.embedded import build as embedded

        compiling = extensions.Compiling(plan, lock, sources, ctx)
        ctx.progress.note(summary.step(1, "download files, make the base"))
        with ThreadPoolExecutor(2) as side:
            # Bases are made by Debian's tools while wheels arrive.
            base = side.submit(bases.prepare_base, ctx, plan.base.base)
            side.submit(compiling.prepare)
            try:
                # What the machine lacks for the base shows at once: say it before gigabytes are on their way.
                wait([base], timeout=1.0)
                if base.done():
                    base.result()
                files = compiling.files() if sources.devel else fetch(lock, sources, ctx)
                prepared = base.result()
            except BaseException:
                process.end_all()
                raise
        order = BuildOrder(
            plan=plan,
            folder=folder,
            base=prepared,
            files=files,
            compiled=lambda: compiling.wheels(prepared, folder),
            toolkit=lambda: compiling.toolkit(prepared),
            cache=ctx.cache,
            environment=ctx.environment,
            progress=ctx.progress,
        )
        compiled = sum(len(one.packages) for one in plan.of(CompileStep))
        more = f", compile {compiled} packages" if compiled else ""
        ctx.progress.note(summary.step(2, f"write {len(plan.steps) - 1} layers{more}"))
        layout = embedded.build_layout(order)
        return embedded.artifact(layout), layout.records


EMBEDDED = Embedded("embedded")
#: By name. `singularity` is `apptainer` by its older name, and by the name of SingularityCE.
ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (EMBEDDED, *(Engine(name) for name in ("docker", "podman", "apptainer", "singularity")))
}
#: tried in this order where the embedded builder cannot work
INSTEAD = ("docker", "podman", "apptainer")


def find(name: str) -> Engine:
    """The engine of this name. Raises UsageError."""
    if name not in ENGINES:
        raise UsageError(
            f"there is no engine {name!r}; there are {', '.join(ENGINES)}",
            next_step="make image CUDA=11.8    (picks one that works here)",
        )
    return ENGINES[name]


def first_that_answers(ctx: Context) -> Engine | None:
    """The first engine that can build here in place of the embedded builder."""
    for engine in map(find, INSTEAD):
        with contextlib.suppress(HostError):
            engine.check(ctx)
            return engine
    return None


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
    from graphcrate.engines import render
    from graphcrate.inputs.bases.mirrors import own_mirror

    mirror = mirror_of(sources)
    torch, torch_cuda = plan.stack.torch, plan.stack.torch_cuda
    user = user_indexes(environment)
    values = {"PACKAGE_INDEX": mirror.pypi or user.default}
    if mirror.pytorch_kind is SourceKind.INDEX:
        values["PYTORCH_INDEX"] = mirror.pytorch.format(tag=cuda_label(torch_cuda))
    values["PYG_LINKS"] = mirror.pyg.format(page=pyg_page(torch, torch_cuda))
    # A machine that knows no archive leaves it to the base image.
    if isinstance(lock.base, DebianBase) and (archive := own_mirror(environment)):
        values["DEBIAN_MIRROR"] = archive.main
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
