"""The layout that an image is read from: one of this machine; of a registry's image, which is pulled, the cache."""

from dataclasses import replace
from pathlib import Path

import msgspec

from graphcrate.artifacts import pull
from graphcrate.artifacts.locate import check_platform, find_image, foreign_report, locate
from graphcrate.host.context import Context
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildReport
from graphcrate.oci import reference
from graphcrate.oci.layout import Layout
from ocilayout import spec


def find(
    ref: str, output: Path, ctx: Context, platform: Platform | None = None, *, layers: bool = True
) -> tuple[Layout, BuildReport]:
    """Find an image's layout and report, as `locate.find_image`; of a registry's image in the cache.

    `layers`: bring them too, else the documents alone. Raises as `find_image` and `pull.documents`, and DiskFullError.
    """
    located = locate(ref, output)
    if located.form != "registry":
        return find_image(ref, output, platform)
    name = reference.parse(located.name)
    source, layout = pull.read_layout(name, ctx, platform or this_machine())
    check_platform(ref, f"{layout.config.os}/{layout.config.architecture}", platform)
    if layers:
        pull.check_types(layout.layers, str(name), "name another image")
        missing = [layer for layer in layout.layers if not layout.blob(layer.digest).is_file()]
        ctx.cache.require(sum(layer.size for layer in missing), f"the layers of {name}")
        with ctx.progress.task(f"pulling {name}", sum(layer.size for layer in layout.layers)) as task:
            pull.download(source, layout.layers, ctx.cache, task.advance)
    tag = {spec.REF_NAME: name.tag} if name.tag else {}
    layout = replace(layout, descriptor=msgspec.structs.replace(layout.descriptor, annotations=tag))
    return layout, msgspec.structs.replace(foreign_report(layout, name.name), layout="")


def is_cached(layout: Layout, ctx: Context) -> bool:
    """Return whether a layout is the cache's, beside which no result belongs."""
    return layout.path == ctx.cache.root
