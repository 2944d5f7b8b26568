"""The commands that look at an image or give it another form: `inspect`, `why`, `report`, `diff`, `convert`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, named, write
from graphcrate.model.errors import DifferenceError
from graphcrate.model.words import in_lines
from sifsquash.values import Compression

Ref = Annotated[str, typer.Argument(help="NAME:TAG below dist/, or the path of an OCI layout.", metavar="REF")]
AnyLayout = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG below dist/, the path of a layout or a tar, REGISTRY/NAME:TAG, docker:NAME or podman:NAME.",
        metavar="REF",
    ),
]


def inspect(
    ref: AnyLayout,
    output: options.Output = Path("dist"),
    plain_http: options.PlainHttp = False,
    as_json: options.Json = False,
) -> None:
    """Show an image's layers, packages and environment."""
    from graphcrate.artifacts import layouts
    from graphcrate.cli import tables

    image = layouts.find(named(ref, output), output, here(plain_http=plain_http), layers=False)
    tables.write(image.report, tables.inspect(image.report, image.layout.environment, image.place), as_json=as_json)


def why(ref: Ref, output: options.Output = Path("dist"), as_json: options.Json = False) -> None:
    """Say by what each sentence about an image was shown."""
    from graphcrate.artifacts.locate import find_image
    from graphcrate.assembly import why as reasons
    from graphcrate.cli import tables

    layout, report = find_image(named(ref, output), output)
    sentences = reasons.shown(report, layout.path.parent, here())
    tables.write(sentences, reasons.answer(report, sentences), as_json=as_json)


def draw(
    ref: Annotated[str, typer.Argument(help="Any image, as for `check`, but of a registry.", metavar="REF")],
    other: Annotated[str | None, typer.Argument(help="Another image to compare it with.", metavar="[OTHER]")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write; else report.html beside the image.")] = None,
    images: options.Output = Path("dist"),
) -> None:
    """Draw a page about an image, or about what differs between two. Prints the path of the HTML file."""
    from graphcrate.artifacts.locate import locate
    from graphcrate.host.disk.atomic import write_file
    from graphcrate.pages import report as pages

    ctx, ref = here(), named(ref, images)
    page = pages.read(ref, ctx, images)
    if other is not None:
        text, target = pages.comparison(page, pages.read(named(other, images), ctx, images)), Path("comparison.html")
    else:
        image = locate(ref, images)
        target = image.path.parent / pages.NAME if image.has_layout else Path(f"{page.name}.{pages.NAME}")
        text = pages.html(page)
    target = output or target
    write_file(target, text.encode())
    sys.stdout.write(f"{target}\n")


def convert(
    ref: AnyLayout,
    to: Annotated[
        Literal["sif", "sqsh", "delta", "docker", "rootfs", "oci-archive"],
        typer.Option(help="sif: Singularity, Apptainer; sqsh: enroot, pyxis; delta: over a SIF; docker: an archive."),
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write (rootfs: folder); else beside the layout, named after the image.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    compression: options.Compression = None,
    kernel: options.MountKernel = None,
    over: Annotated[
        str | None, typer.Option(help="Of delta: the SIF, or NAME:TAG of the image, that it goes over.")
    ] = None,
    link: Annotated[Path | None, typer.Option(help="Make this a symbolic link to the result.")] = None,
    platform: options.AnyPlatform = "",
    plain_http: options.PlainHttp = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Convert to SIF, enroot squashfs, a docker archive or a folder. Prints the path."""
    from graphcrate.artifacts.conversion import run as conversion
    from graphcrate.artifacts.conversion.job import ConvertRequest

    request = ConvertRequest(
        ref=named(ref, Path("dist"), platform, quiet=quiet),
        to=to,
        output=output,
        force=force,
        compression=Compression(compression) if compression else None,
        kernel=kernel,
        over=over,
        link=link,
        hashed=as_json,
        platform=options.platform_of(platform),
    )
    ctx = here(quiet=quiet, plain_http=plain_http)
    result = conversion.convert(request, ctx)
    write(result, f"{result.path}\n", as_json=as_json)
    if result.start:
        ctx.progress.note(f"to start it: {result.start}")
    options.tidy(ctx)


def diff(
    first: Annotated[
        str, typer.Argument(help="NAME:TAG, a path, docker:NAME, podman:NAME or REGISTRY/NAME:TAG.", metavar="A")
    ],
    second: Annotated[str, typer.Argument(help="The other image, named alike.", metavar="B")],
    output: options.Output = Path("dist"),
    everything: Annotated[bool, typer.Option("--all", help="List what may differ too, path by path.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Nothing may differ.")] = False,
    plain_http: options.PlainHttp = False,
    as_json: options.Json = False,
) -> None:
    """Compare two images file by file. They may be in any form: layouts, archives, SIF, of an engine or a registry."""
    from graphcrate.artifacts.tree import opening
    from graphcrate.artifacts.tree.compare import ALLOWANCES, lines, summary

    first, second = named(first, output), named(second, output)
    comparison = opening.compare(first, second, here(plain_http=plain_http), () if strict else ALLOWANCES, output)
    text = in_lines(lines(comparison, everything=everything))
    write(comparison, text, as_json=as_json)
    if comparison.unexpected:
        raise DifferenceError(f"{first} and {second} are not the same: {summary(comparison)}")
