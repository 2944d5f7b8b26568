"""The commands `report` and `catalog`: pages to look at. `main` registers them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from graphcrate.cli.config import here

Ref = Annotated[str, typer.Argument(help="Any image, as for `check`, but of a registry.", metavar="REF")]
Other = Annotated[str | None, typer.Argument(help="Another image to compare it with.", metavar="[OTHER]")]
File = Annotated[Path | None, typer.Option("--output", help="File to write; else report.html beside the image.")]
Images = Annotated[Path, typer.Option(help="Folder of images.")]


def report(ref: Ref, other: Other = None, output: File = None, images: Images = Path("dist")) -> None:
    """Draw a page about an image, or about what differs between two. Prints the path of the HTML file."""
    from graphcrate.artifacts.locate import locate
    from graphcrate.host.atomic import write_file
    from graphcrate.pages import report as pages

    ctx = here()
    page = pages.read(ref, ctx, images)
    if other is not None:
        text, target = pages.comparison(page, pages.read(other, ctx, images)), Path("comparison.html")
    else:
        image = locate(ref, images)
        target = image.path.parent / pages.NAME if image.has_layout else Path(f"{page.name}.{pages.NAME}")
        text = pages.html(page)
    target = output or target
    write_file(target, text.encode())
    sys.stdout.write(f"{target}\n")


def catalog(
    output: Annotated[Path, typer.Option(help="Folder to write.")] = Path("site"),
    images: Images = Path("dist"),
) -> None:
    """Write a catalogue of all stacks as static pages. English and Chinese; with what was measured of images here."""
    from graphcrate.pages import catalog as pages

    pages.write(here(), images, output)
    sys.stdout.write(f"{output / 'index.html'}\n")
