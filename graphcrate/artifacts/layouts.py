"""The layout that an image is read from: one of this machine; of a registry, a tar or an engine's store, the cache."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts import pull, saved, saved_layout
from graphcrate.artifacts.locate import Located, check_platform, find_image, foreign_report, locate
from graphcrate.host.context import Context
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildReport
from graphcrate.model.tree import Form
from graphcrate.oci import reference
from graphcrate.oci.layout import Layout
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ociregistry.reference import Reference

#: forms of images of which the cache becomes the layout
BROUGHT: tuple[Form, ...] = ("registry", "archive", "docker", "podman")
_ENDINGS = (".gz", ".zst", ".tgz", ".tar", ".docker", ".oci")  #: of archives' names, the last one first


class FoundImage(NamedTuple):
    """An image's layout and report. `pull` brings the layers that the layout still lacks."""

    layout: Layout
    report: BuildReport
    pull: Callable[[], None]
    place: str  #: where it was found, for people
    stem: str = ""  #: of a result's name in this folder, where the layout is the cache's, beside which none belongs


def find(ref: str, output: Path, ctx: Context, platform: Platform | None = None, *, layers: bool = True) -> FoundImage:
    """Find an image as `locate.find_image`; of a registry, a tar or an engine's store, bring it into the cache.

    Of a registry's image the documents alone, and its layers by `FoundImage.pull`. A tar is read once; its layers stay
    in the cache unless no `layers` are wanted. Raises as `find_image`, `pull.documents`, `saved.opened` and
    `saved_layout.read`; `FoundImage.pull` raises NetworkError, IntegrityError, DiskFullError.
    """
    image = locate(ref, output)
    if image.form not in BROUGHT:
        layout, report = find_image(ref, output, platform)
        return FoundImage(layout, report, lambda: None, report.layout)
    if image.form == "registry":
        return _on_registry(ref, reference.parse(image.name), ctx, platform)
    with saved.opened(image, ctx) as tar:
        layout = saved_layout.read(tar, ctx, platform or this_machine(), layers=layers)
    _check_layout(layout, image.ref, platform)
    name, tag = _name_in_tar(image)
    return _in_cache(layout, name, tag, lambda: None, f"in {image.ref}")


def _on_registry(ref: str, name: Reference, ctx: Context, platform: Platform | None) -> FoundImage:
    source, layout = pull.read_layout(name, ctx, platform or this_machine())
    _check_layout(layout, ref, platform)
    return _in_cache(layout, name.name, name.tag, partial(_pull, source, name, layout, ctx), "on the registry")


def _pull(source: Repository, name: Reference, layout: Layout, ctx: Context) -> None:
    missing = [layer for layer in layout.layers if not layout.blob(layer.digest).is_file()]
    if missing:
        ctx.cache.require(sum(layer.size for layer in missing), f"the layers of {name}")
        pull.bring(source, str(name), missing, ctx)


def _check_layout(layout: Layout, ref: str, platform: Platform | None) -> None:
    """Raise UsageError for an image of another platform than was asked for, ResolutionError for an unknown layer."""
    check_platform(ref, f"{layout.config.os}/{layout.config.architecture}", platform)
    pull.check_types(layout.layers, ref, "name another image")


def _in_cache(layout: Layout, name: str, tag: str, bring: Callable[[], None], place: str) -> FoundImage:
    tagged = msgspec.structs.replace(layout.descriptor, annotations={spec.REF_NAME: tag} if tag else {})
    layout = replace(layout, descriptor=tagged)
    report = msgspec.structs.replace(foreign_report(layout, name), layout="")
    return FoundImage(layout, report, bring, place, "_".join(filter(None, (name.rpartition("/")[2], tag))))


def _name_in_tar(image: Located) -> tuple[str, str]:
    """Return name and tag: of an engine's image its own, of an archive that of the file."""
    if image.form == "archive":
        name = image.name
        for ending in _ENDINGS:
            name = name.removesuffix(ending)
        return name, ""
    name, _, tag = image.name.partition("@")[0].rpartition(":")
    return (name, tag) if name and "/" not in tag else (image.name.partition("@")[0], "")
