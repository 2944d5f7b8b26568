"""`image --at`: the build of a site of `serve`, as if it were one of this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from graphcrate.cli.options import here, write
from graphcrate.model.command import setting
from graphcrate.model.errors import UsageError
from graphcrate.model.words import visible

if TYPE_CHECKING:
    from graphcrate.compat.variants.request import BuildRequest

At = Annotated[str, typer.Option(help="A site of `serve`, which builds it instead of this machine.", metavar="URL")]
Save = Annotated[
    Path | None, typer.Option(help="With --at: save the image as this file: .sif or .sqsh.", metavar="FILE")
]


def sent(request: "BuildRequest", mirror: str | None, walled: bool) -> "BuildRequest":
    """Return what was typed of a request: neither the mirror of the configuration nor the walls of every site."""
    sources = msgspec.structs.replace(request.sources, mirror=mirror, walled=walled)
    return msgspec.structs.replace(request, sources=sources)


def build(
    request: "BuildRequest",
    as_json: bool,
    *,
    at: str,
    save: Path | None,
    typed: tuple[str | None, bool],
    plan_only: bool,
    shown: dict[str, bool],
) -> None:
    """Have it built or planned at a site; print what a build here prints, and the image's page on stderr.

    `typed`: the mirror and the walls, as `sent` has them.
    """
    from graphcrate.remote import client

    if not at or (save and plan_only):
        raise UsageError(
            f"{setting(save=str(save or 'pyg.sif'))} is for an image of a site",
            next_step=f"{setting(at='https://site.example/').both()} too, and no plan",
        )
    ctx = here(**shown)
    question = client.question_of(sent(request, *typed), save)
    if save:
        client.check_absent(save)
    site = client.RemoteSite(at, ctx)
    result = site.made("plans" if plan_only else "builds", question, _show if not ctx.quiet else lambda _: None)
    if plan_only:
        write(msgspec.Raw(result.value), f"{result.lines}\n", as_json=as_json)
        return
    report = site.report(result)
    if save:
        site.fetch(result.page, save)
    write(msgspec.Raw(result.value), f"{visible(report.reference)}\n", as_json=as_json)
    if result.page and not ctx.quiet:
        _show(f"page:  {result.page}\n")


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
