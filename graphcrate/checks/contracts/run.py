"""An image, whatever its form and whoever made it, against the contracts of runtimes: reads it, asks `contracts`."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.artifacts import pull as pulled
from graphcrate.artifacts.formats import sif
from graphcrate.artifacts.formats.squashfs import Squashfs
from graphcrate.artifacts.locate import locate
from graphcrate.artifacts.tree import layouts, opening
from graphcrate.artifacts.tree.reader import Opened, Tools, Wanted, settings_of
from graphcrate.checks import contracts
from graphcrate.checks.contracts.view import make_view, wants_content
from graphcrate.host.context import Context
from graphcrate.host.workers import default_jobs
from graphcrate.model.contract import Finding, Host, ImageView, Inspection, LayerFact, Runtime
from graphcrate.model.plan import CompileStep, Plan, ToolkitStep, WheelsStep, site_packages
from graphcrate.model.report import BuildReport
from graphcrate.oci import reference, spec
from graphcrate.oci.layout import Layout, read_layout

#: Which layers of an image on a registry are brought here: up to a gigabyte in all, the lowest first; all; none.
Fetch = Literal["small", "all", "none"]
_MOST_FETCHED = 10**9
_WANTED = Wanted(keep=wants_content, hashes=False, patient=True)


def check(
    ref: str,
    host: Host,
    ctx: Context,
    *,
    runtimes: Sequence[Runtime] = (),
    output: Path = Path("dist"),
    fetch: Fetch = "small",
) -> Inspection:
    """Judge what a person names, for these runtimes (none: all that it can be meant for).

    Raises UsageError for what does not exist, LayoutError for what is no image, NetworkError, ResolutionError.
    """
    view = read_view(ref, ctx, output, fetch)
    asked = tuple(runtimes) or contracts.targets(view)
    return Inspection(
        image=ref,
        form=view.form,
        runtimes=asked,
        host=host,
        findings=contracts.judge(view, host, asked),
        unread=view.unread,
    )


def read_view(ref: str, ctx: Context, output: Path = Path("dist"), fetch: Fetch = "small") -> ImageView:
    """What contracts ask about, of any artifact that `diff` takes, or of REGISTRY/NAME:TAG."""
    with ExitStack() as stack:
        tools = _tools(ctx, stack)
        image = locate(ref, output)
        if image.form == "registry":
            opened, unread = pull(image.name, tools, fetch)
            return msgspec.structs.replace(_view(ref, opened, unread), form="registry")
        view = _view(ref, opening.reader(image)(tools))
    if view.form in ("sif", "squashfs"):
        return msgspec.structs.replace(view, compression=_compression(Path(ref), view.form))
    return view


def of_build(report: BuildReport, plan: Plan, ctx: Context, gpus: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """The findings on an image that was just built, for all that it can be meant for.

    Of a layout only the base and planned files are read: what wheels and toolkits hold, and where, the plan says.
    """
    view = _planned_view(report, plan, ctx) if report.layout else read_view(report.image, ctx)
    return contracts.judge(view, Host(gpus=gpus), contracts.targets(view))


def _planned_view(report: BuildReport, plan: Plan, ctx: Context) -> ImageView:
    layout = read_layout(Path(report.layout))
    steps = [step for step in plan.steps if isinstance(step, WheelsStep | CompileStep | ToolkitStep)]
    known = {step.title for step in steps}
    packages = [package for step in steps if not isinstance(step, ToolkitStep) for package in step.packages]
    read = [layer for layer, record in zip(layout.layers, layout.records, strict=True) if record.title not in known]
    with ExitStack() as stack:
        opened = layouts.read(report.name, _only(layout, read), _tools(ctx, stack))
        opened = dataclasses.replace(opened, manifest=layout.manifest)
        distributions = {package.name: package.version for package in packages}
        view = _view(report.name, opened, distributions=distributions)
    site = site_packages(plan.stack.python)
    return msgspec.structs.replace(
        view,
        packages=(*view.packages, site) if packages else view.packages,
        unpacked=sum(layer.unpacked_size for layer in report.layers),
    )


def _only(layout: Layout, layers: Sequence[spec.Descriptor]) -> Layout:
    """The layout with some of its layers."""
    return dataclasses.replace(layout, manifest=msgspec.structs.replace(layout.manifest, layers=tuple(layers)))


def _tools(ctx: Context, stack: ExitStack) -> Tools:
    return Tools(
        cache=ctx.cache,
        progress=ctx.progress,
        environment=ctx.environment,
        stack=stack,
        jobs=default_jobs(),
        wanted=_WANTED,
    )


def _view(
    name: str, opened: Opened, unread: tuple[str, ...] = (), distributions: Mapping[str, str] | None = None
) -> ImageView:
    entries = opened.tree.entries

    def read(path: str) -> bytes | None:
        if path not in entries or not wants_content(path, entries[path].size):
            return None
        try:
            return opened.read(path)
        except (KeyError, OSError):  # not kept; or in a folder of another user
            return None

    if opened.broken:
        unread = (f"the layers cannot be read: {opened.broken}", *unread)
    base = ImageView(
        name=name,
        form=opened.tree.form,
        settings=settings_of(opened, lambda path: (read(path) or b"").decode("utf-8", "replace")),
        manifest_type=_manifest_type(opened),
        layers=_layers(opened),
        without_platform=sum(entry.platform is None for entry in opened.index),
        unread=unread,
        broken=opened.broken,
    )
    return make_view(base, entries, read, distributions)


def _manifest_type(opened: Opened) -> str:
    """An OCI manifest may leave its type to whoever names it."""
    return (opened.manifest.media_type or spec.MANIFEST) if opened.manifest is not None else ""


def _layers(opened: Opened) -> tuple[LayerFact, ...]:
    if opened.manifest is not None:
        return tuple(LayerFact(media_type=layer.media_type, size=layer.size) for layer in opened.manifest.layers)
    count = len(opened.config.rootfs.diff_ids) if opened.config is not None else 0
    return (LayerFact(media_type="", size=0),) * count


def _compression(path: Path, form: str) -> str:
    """What the squashfs of this file is compressed with."""
    with Squashfs(path, sif.root_partition(path).offset if form == "sif" else 0) as image:
        return image.compression


def pull(ref: str, tools: Tools, fetch: Fetch) -> tuple[Opened, tuple[str, ...]]:
    """An image of a registry by its reference, and which of its layers were left there."""
    name = reference.parse(ref)
    source = pulled.repository(name, tools.environment)
    document = source.manifest(name.digest or name.tag)
    index: tuple[spec.Descriptor, ...] = ()
    if document.media_type in spec.INDEX_TYPES:
        index = pulled.decode(document.data, spec.Index, str(name)).manifests
        nameless = [entry for entry in index if entry.platform is None]
        if len(nameless) == len(index) == 1:
            document = source.manifest(index[0].digest)
    document = pulled.for_platform(source, document, str(name))
    manifest, config = pulled.documents(source, document.digest, tools.cache, any_platform=True)
    layers, unread = _chosen(manifest.layers, fetch)
    with tools.progress.task(f"pulling {name}", sum(layer.size for layer in layers)) as task:
        pulled.download(source, layers, tools.cache, task.advance)
    descriptor = spec.Descriptor(media_type=document.media_type, digest=document.digest, size=len(document.data))
    layout = Layout(path=tools.cache.root, descriptor=descriptor, manifest=manifest, config=config, records=())
    opened = layouts.read(str(name), _only(layout, layers), tools)
    typed = msgspec.structs.replace(manifest, media_type=document.media_type)
    return dataclasses.replace(opened, manifest=typed, index=index), unread


def _chosen(layers: Sequence[spec.Descriptor], fetch: Fetch) -> tuple[list[spec.Descriptor], tuple[str, ...]]:
    """The layers to bring, and what is said of the others."""
    most = {"small": _MOST_FETCHED, "all": sum(layer.size for layer in layers), "none": -1}[fetch]
    chosen, left, total = [], 0, 0
    unread: list[str] = []
    for layer in layers:
        if layer.media_type not in spec.LAYER_TYPES:
            unread.append(f"a layer of type {layer.media_type} cannot be read")
        elif total + layer.size <= most:
            chosen.append(layer)
            total += layer.size
        else:
            left += 1
    if left:
        unread.append(f"{left} of {len(layers)} layers were left on the registry (--fetch all brings them)")
    return chosen, tuple(unread)
