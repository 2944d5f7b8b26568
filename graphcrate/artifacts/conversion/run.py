"""Convert an image: find it, choose where the result goes and who writes it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from graphcrate.artifacts import layouts
from graphcrate.artifacts.conversion import difference, squashed, unsquashed
from graphcrate.artifacts.conversion.compression import kernel_of
from graphcrate.artifacts.conversion.job import (
    OPTIONS,
    SUFFIXES,
    Conversion,
    Converted,
    ConvertRequest,
    ResultForm,
    WrittenFile,
    check_options,
    created_of,
    short_name,
)
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import check_link, link
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.model.command import for_shell
from graphcrate.model.errors import UsageError
from graphcrate.model.report import BuildReport

_WRITERS: Mapping[ResultForm, Callable[[Conversion], WrittenFile]] = {
    "sif": squashed.write_sif,
    "sqsh": squashed.write_sqsh,
    "delta": difference.write_delta,
    "docker": unsquashed.write_archive,
    "rootfs": unsquashed.write_folder,
    "oci-archive": unsquashed.write_archive,
}


def convert(request: ConvertRequest, ctx: Context) -> Converted:
    """Convert an image. Nothing half-written stays.

    Raises UsageError, LayoutError for an altered layout, DiskFullError (before or while writing), HostError.
    """
    start = settings.now()
    check_options(request, OPTIONS, request.to, request.to)
    image = layouts.find(request.ref, request.images, ctx, request.platform)
    layout, name = image.layout, short_name(image.report)
    target = request.output or _default(request, image, name)
    if not (folder := target.parent).is_dir():
        raise UsageError(
            f"there is no folder {folder}",
            cause="Making it for a misspelt name could fill the wrong disk.",
            next_step=f"mkdir -p {for_shell(folder)}    and the same command again",
        )
    if request.link is not None:
        check_link(request.link)
        if request.link.parent.resolve() / request.link.name == target.parent.resolve() / target.name:
            raise UsageError(f"{target} would be the link and what it leads to", next_step="--output and --link differ")
    kernel = _kernel(request, image.report, ctx)
    written = _WRITERS[request.to](
        Conversion(request, ctx, layout, name, target, kernel, created_of(layout), image.pull)
    )
    if request.link is not None:
        link(request.link, Path(os.path.relpath(target.resolve(), request.link.absolute().parent.resolve())))
    return Converted(
        path=str(target),
        form=request.to,
        layout=layout.digest,
        size=target.stat().st_size if written.size is None else written.size,
        seconds=round(settings.now() - start, 3),
        compression=written.compression,
        sha256=sha256_of(target) if request.hashed and request.to != "rootfs" else "",
        unchanged=written.unchanged,
        start=written.start,
    )


def _default(request: ConvertRequest, image: layouts.FoundImage, name: str) -> Path:
    """Return where the result goes: beside the layout; of the cache's in this folder, as others name it."""
    suffix = SUFFIXES[request.to]
    if image.stem:
        return Path(f"{image.stem}{suffix}").absolute()
    return image.layout.path.absolute().parent / f"{name}{suffix}"


def _kernel(request: ConvertRequest, report: BuildReport, ctx: Context) -> str | None:
    """Return the kernel that was named, else that of the machine which the image was built for."""
    if request.kernel or request.to not in ("sif", "delta"):
        return request.kernel
    return kernel_of(report.asked.target if report.asked else "", ctx)
