"""The command `import`: arguments → `destinations.unbundle`. `cli` registers it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(help="A bundle, as `publish … --to bundle:FILE` writes it.", metavar="FILE")]
Output = Annotated[Path, typer.Option(help="Where images are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def take_in(file: File, output: Output = Path("dist"), as_json: Json = False) -> None:
    """Take in a bundle: its image, and the files to build it again without a network. Every byte is checked."""
    from graphcrate.destinations import unbundle
    from graphcrate.host.workplace import Workplace
    from graphcrate.model.lock import encode

    place = Workplace.here()
    found = unbundle.take_in(file, output, place)
    if found.unchanged:
        place.progress.note(f"{found.folder} and all files of {file} are there already: nothing was done")
    for note in found.notes:
        place.progress.note(note)
    sys.stdout.write(encode(found).decode() if as_json else f"{found.name}:{found.tag}@{found.digest}\n")
