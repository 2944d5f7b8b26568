"""The layout that an image is read from: one of this machine; of a registry's image, which is pulled, the cache."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts import pull
from graphcrate.artifacts.locate import check_platform, find_image, foreign_report, locate
from graphcrate.host.context import Context
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildReport
from graphcrate.oci import reference
from graphcrate.oci.layout import Layout
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ociregistry.reference import Reference


class FoundImage(NamedTuple):
    """An image's layout and report. `pull` brings the layers that the layout still lacks."""

    layout: Layout
    report: BuildReport
    pull: Callable[[], None]
    name: Reference | None = None  #: on a registry; such a layout is the cache's, beside which no result belongs


def find(ref: str, output: Path, ctx: Context, platform: Platform | None = None) -> FoundImage:
    """Find an image as `locate.find_image`, or on a registry, whose documents are brought into the cache.

    Raises as `find_image` and `pull.documents`; `FoundImage.pull` raises NetworkError, IntegrityError, DiskFullError.
    """
    located = locate(ref, output)
    if located.form != "registry":
        return FoundImage(*find_image(ref, output, platform), lambda: None)
    name = reference.parse(located.name)
    source, layout = pull.read_layout(name, ctx, platform or this_machine())
    check_platform(ref, f"{layout.config.os}/{layout.config.architecture}", platform)
    pull.check_types(layout.layers, str(name), "name another image")
    tag = {spec.REF_NAME: name.tag} if name.tag else {}
    layout = replace(layout, descriptor=msgspec.structs.replace(layout.descriptor, annotations=tag))
    report = msgspec.structs.replace(foreign_report(layout, name.name), layout="")
    return FoundImage(layout, report, partial(_pull, source, name, layout, ctx), name)


def _pull(source: Repository, name: Reference, layout: Layout, ctx: Context) -> None:
    missing = [layer for layer in layout.layers if not layout.blob(layer.digest).is_file()]
    if missing:
        ctx.cache.require(sum(layer.size for layer in missing), f"the layers of {name}")
        pull.bring(source, str(name), missing, ctx)
