"""`adopt`: a recipe of a Dockerfile, a definition or a script, which is read and never run."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, write
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError
from graphcrate.model.words import in_lines


def adopt(
    file: Annotated[
        Path,
        typer.Argument(
            help="Dockerfile, .def, script, README or notebook with commands, environment.yml.", metavar="FILE"
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="Recipe to write; else one beside FILE with the name of its folder.")
    ] = None,
    context: Annotated[
        Path | None, typer.Option(help="The folder that COPY and -r are about; else that of FILE.")
    ] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option(help="The value of an ARG; again for more.", metavar="NAME=VALUE")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", "--dry-run", help="Print what becomes of each line alone.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a recipe that is there.")] = False,
    trust_paths: options.TrustPaths = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Write a recipe of what a Dockerfile or a script installs. Runs nothing of it."""
    from graphcrate.compat.adopt import written
    from graphcrate.compat.requirements import begun, requirement_files
    from graphcrate.compat.variants import catalog
    from graphcrate.host.disk.atomic import write_file

    text, folder = requirement_files.read_text(file), context or file.parent
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", next_step=command("adopt", file))
    target = output or folder / f"{begun.recipe_name(folder.absolute().resolve().name)}.toml"
    if target.suffix != ".toml":
        raise UsageError(f"{target} is not a name of a recipe", next_step=command("adopt", file, output="mine.toml"))
    recipes, below = catalog.all_recipes(here()), _below(folder, target)
    adopted = written.adopt(text, file, folder, recipes, _values(build_arg), below, trusts_paths=trust_paths)
    lines = in_lines(written.lines(adopted, file.name))
    if plan:
        write(adopted, lines, as_json=as_json)
        return
    content = adopted.recipe.encode()
    if target.exists() and not force and (not target.is_file() or target.read_bytes() != content):
        raise UsageError(
            f"{target} is there, and is another recipe",
            next_step=f"{command('image', str(target))}    (takes it as it is); or, to write it again, "
            f"{command('adopt', file, output=str(target), force=True)}",
        )
    if not quiet:
        sys.stderr.write(lines)
    write_file(target, content)
    write(adopted, f"{target}\n", as_json=as_json)


def _below(folder: Path, target: Path) -> str | None:
    """Return the path of a folder below that of the recipe; None for one that is elsewhere."""
    beside, inside = target.absolute().parent.resolve(), folder.absolute().resolve()
    if not inside.is_relative_to(beside):
        return None
    below = inside.relative_to(beside).as_posix()
    return "" if below == "." else below


def _values(texts: list[str] | None) -> dict[str, str]:
    """Return the values of `--build-arg`. Raises UsageError."""
    for text in texts or ():
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", text):
            raise UsageError(
                f"--build-arg {text!r} is not NAME=VALUE", next_step=command("adopt", ETC, build_arg=f"TORCH={ETC}")
            )
    return {name: value for name, _, value in (text.partition("=") for text in texts or ())}
