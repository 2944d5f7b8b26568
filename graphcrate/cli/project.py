"""The commands of a project of one's own: `init`, `add`, `remove`. `cli` registers them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here
from graphcrate.model.command import command
from graphcrate.model.words import in_lines

if TYPE_CHECKING:
    from graphcrate.host.context import Context

Packages = Annotated[list[str], typer.Argument(help="Names, with versions or without.", metavar="PACKAGE…")]
Recipe = Annotated[Path | None, typer.Option(help="The recipe's file; else the one in this folder.")]
_SEVERAL = "leave one recipe in this folder, then the same command"
PlanToo = Annotated[bool, typer.Option(help="Resolve and plan the image afterwards; if that fails, nothing changes.")]


def init(
    devcontainer: Annotated[
        bool, typer.Option("--devcontainer", help="Write .devcontainer/devcontainer.json for the recipe's image, too.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a recipe from this project's lists and imports."""
    from graphcrate.assembly import project

    ctx = here(quiet=quiet)
    there = project.recipes(Path()) if devcontainer else []
    written = project.Written(project.only_recipe(_SEVERAL), ()) if there else project.init(Path(), ctx)
    for note in written.notes:
        ctx.progress.note(note)
    files, steps = [written.path], [str(command("image", written.path))]
    if devcontainer:
        try:
            image = _planned(written.path, ctx)
            files.append(project.write_devcontainer(Path(), written.path, image))
        except BaseException:
            if not there:
                written.path.unlink()
            raise
        steps.append(f'docker load --input "$({command("convert", image, to="docker")})"')
    ctx.progress.note(f"next: {' && '.join(steps)}")
    sys.stdout.write("".join(f"{path}\n" for path in files))


def _planned(path: Path, ctx: "Context") -> str:
    """Return the name and tag that the recipe's image will have."""
    from graphcrate.assembly import pipeline
    from graphcrate.cli.requests import build_request

    _, plan = pipeline.plan_image(build_request("image", f"./{path}", None), ctx)
    return f"{plan.name}:{plan.tag}"


def add(packages: Packages, recipe: Recipe = None, plan: PlanToo = True, quiet: options.Quiet = False) -> None:
    """Add packages to this folder's recipe, and plan its image."""
    _edit(packages, recipe, here(quiet=quiet), plan=plan, removes=False)


def remove(packages: Packages, recipe: Recipe = None, plan: PlanToo = True, quiet: options.Quiet = False) -> None:
    """Remove packages from this folder's recipe, and plan its image."""
    _edit(packages, recipe, here(quiet=quiet), plan=plan, removes=True)


def _edit(packages: list[str], recipe: Path | None, ctx: "Context", *, plan: bool, removes: bool) -> None:
    """Edit the recipe; put it back as it was where its image cannot be planned."""
    from graphcrate.assembly import pipeline, project
    from graphcrate.cli.requests import build_request
    from graphcrate.host.disk.atomic import write_file

    path, before = project.edit(recipe, packages, removes=removes)
    try:
        request = build_request("image", f"./{path}" if len(path.parts) == 1 else str(path), None)
        lines = pipeline.plan_image(request, ctx)[0] if plan else []
    except BaseException:
        write_file(path, before.encode())
        raise
    sys.stdout.write(in_lines([*lines, str(path)]))
