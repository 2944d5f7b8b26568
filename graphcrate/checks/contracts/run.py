"""An image, whatever its form and whoever made it, against the contracts of runtimes: read it, and judge."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.runtime_files import read_settings
from graphcrate.artifacts.tree import layers as trees
from graphcrate.artifacts.tree import opening
from graphcrate.artifacts.tree.opening import Fetch
from graphcrate.artifacts.tree.reader import Opened, Tools, Wanted
from graphcrate.checks.contracts import apptainer, contents, docker, gpu, pyxis, start
from graphcrate.checks.contracts.check import Check
from graphcrate.checks.contracts.view import make_view, wants_content
from graphcrate.host.context import Context
from graphcrate.model.contract import RUNTIMES, Finding, Host, ImageView, Inspection, LayerFact, Runtime
from graphcrate.model.plan import CompileStep, Plan, ToolkitStep, WheelsStep, site_packages
from graphcrate.model.report import BuildReport
from graphcrate.oci import spec
from graphcrate.oci.layout import read_layout

#: Every check, in the order in which findings are shown.
CHECKS = tuple(
    one
    for module in (start, contents, gpu, docker, apptainer, pyxis)
    for one in vars(module).values()
    if type(one) is Check
)
_WANTED = Wanted(keep=wants_content, hashes=False)


def check(
    ref: str,
    host: Host,
    ctx: Context,
    *,
    runtimes: Sequence[Runtime] = (),
    output: Path = Path("dist"),
    fetch: Fetch = "small",
) -> Inspection:
    """Judge what a person names, for these runtimes (none: all it can be meant for). Raises as `opening.opened`."""
    view = read_view(ref, ctx, output, fetch)
    asked = tuple(runtimes) or targets(view)
    findings = judge(view, host, asked)
    return Inspection(image=ref, form=view.form, runtimes=asked, host=host, findings=findings, unread=view.unread)


def read_view(ref: str, ctx: Context, output: Path = Path("dist"), fetch: Fetch = "small") -> ImageView:
    """What contracts ask about, of any artifact that `diff` takes, or of REGISTRY/NAME:TAG."""
    with ExitStack() as stack:
        return _view(ref, opening.opened(ref, Tools(ctx, stack, _WANTED), output, fetch))


def of_build(report: BuildReport, plan: Plan, ctx: Context, gpus: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """The findings on an image that was just built, for all that it can be meant for.

    Of a layout only the base and planned files are read: what wheels and toolkits hold, and where, the plan says.
    """
    view = _planned_view(report, plan, ctx) if report.layout else read_view(report.image, ctx)
    return judge(view, Host(gpus=gpus), targets(view))


def _planned_view(report: BuildReport, plan: Plan, ctx: Context) -> ImageView:
    layout = read_layout(Path(report.layout))
    steps = [step for step in plan.steps if isinstance(step, WheelsStep | CompileStep | ToolkitStep)]
    known = {step.title for step in steps}
    packages = [package for step in steps if not isinstance(step, ToolkitStep) for package in step.packages]
    read = [layer for layer, record in zip(layout.layers, layout.records, strict=True) if record.title not in known]
    with ExitStack() as stack:
        tools = Tools(ctx, stack, _WANTED)
        opened = trees.read_layout(report.name, opening.with_layers(layout, read), tools)
        opened = dataclasses.replace(opened, manifest=layout.manifest)
        view = _view(report.name, opened, {package.name: package.version for package in packages})
    site = (site_packages(plan.stack.python),) if packages else ()
    unpacked = sum(layer.unpacked_size for layer in report.layers)
    return msgspec.structs.replace(view, packages=(*view.packages, *site), unpacked=unpacked)


def _view(name: str, opened: Opened, distributions: Mapping[str, str] | None = None) -> ImageView:
    entries = opened.entries

    def read(path: str) -> bytes | None:
        if path not in entries or not wants_content(path, entries[path].size):
            return None
        try:
            return opened.read(path)
        except (KeyError, OSError):  # not kept; or in a folder of another user
            return None

    layers: tuple[LayerFact, ...] = ()
    manifest_type = ""
    if opened.manifest is not None:
        layers = tuple(LayerFact(media_type=layer.media_type, size=layer.size) for layer in opened.manifest.layers)
        manifest_type = opened.manifest.media_type or spec.MANIFEST  # which whoever names it may have to say
    elif opened.config is not None:
        layers = (LayerFact(media_type="", size=0),) * len(opened.config.rootfs.diff_ids)
    base = ImageView(
        name=name,
        form=opened.form,
        settings=opened.settings or read_settings(entries, lambda path: (read(path) or b"").decode("utf-8", "replace")),
        manifest_type=manifest_type,
        layers=layers,
        without_platform=sum(entry.platform is None for entry in opened.index),
        unread=opened.unread,
        broken=opened.broken.what if opened.broken else "",
        compression=opened.compression,
    )
    return make_view(base, entries, read, distributions)


def judge(view: ImageView, host: Host, runtimes: Sequence[Runtime]) -> tuple[Finding, ...]:
    """Every finding for these runtimes; a check that several of them share is made once."""
    wanted = tuple(runtime for runtime in RUNTIMES if runtime in runtimes)
    return tuple(check.find(view, host, wanted) for check in CHECKS if set(check.runtimes) & set(wanted))


def targets(view: ImageView) -> tuple[Runtime, ...]:
    """The runtimes that an artifact can be meant for."""
    if view.form == "sif":
        return ("apptainer",)
    return ("apptainer", "pyxis") if view.form in ("squashfs", "folder") else RUNTIMES
