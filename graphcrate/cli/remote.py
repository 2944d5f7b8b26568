"""`image --at`: the build of a site of `serve`, as if it were one of this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from graphcrate.cli.options import here, write
from graphcrate.model import codec
from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.compat.variants.request import BuildRequest

At = Annotated[str, typer.Option(help="A site of `serve`, which builds it instead of this machine.", metavar="URL")]
Fetch = Annotated[
    Path | None, typer.Option(help="With --at: fetch the image as this file: .sif or .sqsh.", metavar="FILE")
]


def sent(request: "BuildRequest", mirror: str | None, *, walled: bool) -> "BuildRequest":
    """Return what was typed of a request: neither the mirror of the configuration nor the walls of every site."""
    sources = msgspec.structs.replace(request.sources, mirror=mirror, walled=walled)
    return msgspec.structs.replace(request, sources=sources)


def build(
    request: "BuildRequest", at: str, fetch: Path | None, as_json: bool, *, plan_only: bool, shown: dict[str, bool]
) -> None:
    """Have it built or planned at a site; print what a build here prints, and the image's page on stderr."""
    from graphcrate.model.report import BuildReport
    from graphcrate.serve import remote

    if not at or (fetch and plan_only):
        raise UsageError("--fetch is for an image of a site", next_step="--at https://site.example/ too, and no --plan")
    ctx = here(**shown)
    question = remote.question_of(request, fetch)
    if fetch:
        remote.check_absent(fetch)
    site = remote.RemoteSite(at, ctx)
    result = site.made("plans" if plan_only else "builds", question, _show if not ctx.quiet else lambda _: None)
    if plan_only:
        write(msgspec.Raw(result.value), f"{result.lines}\n", as_json=as_json)
        return
    if fetch:
        site.fetch(result.page, fetch)
    report = codec.decode(result.value, BuildReport)
    write(report, f"{report.reference}\n", as_json=as_json)
    if not ctx.quiet:
        _show(f"page:  {result.page}\n")


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
