"""The command line of upkeep: graphcrate's options, output and exit codes.

`./build.py update`, `catalog` and `lock --check` are the same: the checkout's program hands them over.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from graphcrate.cli import exit as ending
from graphcrate.cli import options, tables
from graphcrate.cli.options import config, cuda_version, here, write
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from upkeep.request import UpdateRequest

app = typer.Typer(
    cls=ending.Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Mirror = Annotated[str | None, typer.Option(help="sjtu, aliyun, nju, tuna, or the URL of a mirror.")]
#: of locking, which is graphcrate's
OfLocking = Annotated[str, typer.Option(hidden=True)]


@app.callback()
def program() -> None:
    """Keep the recipes, facts and committed locks of this repository up to date, and show them."""


@app.command()
def update(
    name: Annotated[str, typer.Argument(help="Recipe; all if left out.", metavar="[NAME]")] = "",
    check_only: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 20 where there is something new.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Build, check and test what changes, too; what fails is held back.")
    ] = False,
    disk: Annotated[
        str, typer.Option(help="With --prove: what cache and images may take together, such as 40GB; else all.")
    ] = "",
    security: Annotated[
        bool, typer.Option("--security", help="Renew only packages and bases of locks that have known vulnerabilities.")
    ] = False,
    mirror: Mirror = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Take new releases into facts, recipes and locks.

    New torches are measured, variants changed, locked and rendered; stdout has what a reviewer has to know. What cannot
    be decided, or does not lock, is held back with its reason, and the rest goes on.
    With --security: locks get the lowest releases that fix what is known, and what these need; nothing else moves.
    """
    from upkeep.news import review as texts
    from upkeep.news import run as updating

    options.bytes_of(disk)
    request = UpdateRequest(
        recipe=name,
        check=check_only,
        prove=prove,
        security=security,
        disk=disk,
        mirror=mirror or config().mirror or None,
    )
    request.raise_if_contradictory()
    if security:
        from upkeep.security import run as renewing
        from upkeep.security import text

        fixes = renewing.run(request, here(quiet=quiet))
        write(fixes, text.text(fixes), as_json=as_json)
        if check_only:
            renewing.raise_if_fixable(fixes)
        return
    review = updating.run(request, here(quiet=quiet))
    write(review, texts.text(review), as_json=as_json)
    if check_only:
        updating.raise_if_news(review)


@app.command()
def catalog(
    output: Annotated[Path, typer.Option(help="Folder to write.")] = Path("site"),
    images: options.Output = Path("dist"),
    shared: options.SharedCache = None,
    cache_trust: options.CacheTrust = None,
) -> None:
    """Write a catalogue of all stacks as static pages. English and Chinese; with what was measured of images here.

    With --cache it names those images that a site's shared cache has.
    """
    from graphcrate.inputs.shared.named import shared_cache
    from upkeep.catalogue import pages

    of_site = SourceOptions(**options.of_shared(shared, cache_trust, None))
    pages.write(here(), images, output, shared_cache(of_site, here(), gives=False))
    sys.stdout.write(f"{output / 'index.html'}\n")


@app.command()
def gpus(
    page: Annotated[Path, typer.Argument(help="NVIDIA's page of CUDA GPUs, saved as HTML.", metavar="FILE")],
    check_only: Annotated[bool, typer.Option("--check", help="Compare, and write nothing.")] = False,
) -> None:
    """Add GPU models of NVIDIA's list that are not known yet. Ends with 6 where one has another capability there."""
    from upkeep import gpu_list

    for line in gpu_list.update(page, here().root, check=check_only):
        sys.stdout.write(f"{line}\n")


@app.command()
def witnesses(
    files: Annotated[list[Path], typer.Argument(help="Lock files, by their paths in the repository.", metavar="FILE…")],
    repository: Annotated[str, typer.Option(help="OWNER/NAME of a public one that has them.")],
    commit: Annotated[str, typer.Option(help="The commit that they are of, in 40 digits.")],
    folder: Annotated[Path, typer.Option(help="The folder that has that repository's files.")] = Path(),
    check_only: Annotated[bool, typer.Option("--check", help="Compare, and write nothing.")] = False,
) -> None:
    """Add others' lock files as witnesses of hashes, or compare them with what is known.

    Ends with 6 where one has another hash for a file that is known.
    """
    from upkeep import witnesses as known

    for line in known.update(files, repository, commit, folder, here().root, check=check_only):
        sys.stdout.write(f"{line}\n")


@app.command()
def lock(
    name: Annotated[
        str,
        typer.Argument(help="Recipe, or the file of one of your own; all if left out.", metavar="[NAME]"),
    ] = "",
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version; all if left out.")] = None,
    platform: options.Platform = "",
    mirror: Mirror = None,
    check_only: Annotated[
        bool, typer.Option("--check", help="Look whether every file of the committed locks is still there.")
    ] = False,
    as_json: options.Json = False,
    channel: OfLocking = "",
    wheels: OfLocking = "",
    toolkit: OfLocking = "",
    pyg_lib: OfLocking = "",
    extensions: OfLocking = "auto",
    without_security: Annotated[bool, typer.Option("--without-security", hidden=True)] = False,
) -> None:
    """Say where the files of locks are, what has updates since and what was yanked.

    Ends with 18 where a file is nowhere any more.
    """
    given = {"channel": channel, "wheels": wheels, "toolkit": toolkit, "pyg-lib": pyg_lib}
    _refuse(**given, **{"extensions": extensions.replace("auto", ""), "without-security": without_security})
    if not check_only:
        raise UsageError(
            "upkeep looks at locks, and graphcrate writes them",
            next_step=f"{command('lock', *filter(None, [name]), check=True)}, or {command('lock', name or 'pyg')}",
        )
    from upkeep.standing import committed, text

    sources = SourceOptions(mirror=mirror or config().mirror or None)
    standings = committed.check(name, cuda or "", sources, here(), platform)
    tables.write(standings, text.answer(standings), as_json=as_json)
    committed.raise_if_gone(standings)


def _refuse(**given: object) -> None:
    """Raises UsageError for options that `lock --check` would ignore."""
    if names := [f"--{name}" for name, value in given.items() if value]:
        raise UsageError(
            f"{' and '.join(names)} is for locking, and --check locks nothing",
            next_step=f"{command('lock', check=True)}, or leave --check out",
        )


ending.refusing_nothing(app)
