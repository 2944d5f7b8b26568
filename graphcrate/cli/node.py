"""Options of commands that a node of Slurm may carry out: `--on slurm`. `cli` registers them with these commands."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.core

from graphcrate.cli import retyped
from graphcrate.cli.exit import OwnCommand
from graphcrate.cli.options import here
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.model.trial import Resources

_ARRAY = f"{__name__}.array"
#: name and help of each; all take a value
_OPTIONS = {
    "on": "slurm: do it on a node of this cluster, as a job of its own, with its lines here.",
    "partition": "With --on: Slurm's partition; else its default one.",
    "time": "With --on: the job's time limit; else the partition's.",
    "account": "With --on: Slurm's account.",
    "cpus": "With --on: cores; else all of a node, at most 32.",
}


def _option(name: str, text: str = "") -> typer.core.TyperOption:
    return typer.core.TyperOption(param_decls=[f"--{name}"], help=text, type=int if name == "cpus" else str)


#: takes the options of a job, and the number of an array's, out of the words of a command
_OF_JOB = typer.core.TyperCommand(
    None,
    params=[_option(name) for name in (*_OPTIONS, "jobs")],
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)


class NodeCommand(OwnCommand):
    """A command that is carried out here, or by a job of Slurm where it is typed with `--on slurm`."""

    def __init__(self, *args: Any, params: Any, **rest: Any) -> None:  # noqa: ANN401 (click's, which typer has a copy of)
        super().__init__(*args, params=[*params, *(_option(*row) for row in _OPTIONS.items())], **rest)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Keep the words that are not of the job: a node gets them as they were typed."""
        ctx.meta[__name__] = _OF_JOB.make_context(None, list(args), resilient_parsing=True).args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        """Carry it out. Raises UsageError for options of a job without one."""
        given = {name: ctx.params.pop(name) for name in _OPTIONS}
        on, others = given.pop("on"), {name: value for name, value in given.items() if value}
        if on is None:
            if others:
                raise UsageError(f"--{next(iter(others))} is for a job", next_step=command(ETC, on="slurm"))
            return super().invoke(ctx)
        if on != "slurm":
            raise UsageError(f"{on!r} is not a scheduler that is known", next_step=command(ETC, on="slurm"))
        from graphcrate.model.trial import Resources
        from graphcrate.render import slurm_batch

        slurm_batch.check_time(given["time"] or "")
        return self.carry_out(ctx, (ctx.info_name, *ctx.meta[__name__]), Resources(**others))

    def carry_out(self, ctx: Any, words: Sequence[str], resources: "Resources") -> object:  # noqa: ANN401
        """Run the command as one job, and end as it ended."""
        from graphcrate.engines import on_node

        output = Path("dist" if ctx.info_name == "convert" else ctx.params["output"])
        mine = here(quiet=ctx.params["quiet"])
        printed, code = on_node.run(words, resources, mine, output, retyped.line())
        sys.stdout.write(printed)
        sys.stdout.flush()
        ctx.exit(code)
        return None


class ArrayCommand(NodeCommand):
    """A command that asks itself, by `array_of`, for jobs that share its work."""

    def carry_out(self, ctx: Any, words: Sequence[str], resources: "Resources") -> object:  # noqa: ANN401
        """Go on with the command here, which gets the words for its jobs, and what they ask for."""
        ctx.meta[_ARRAY] = words, resources
        return OwnCommand.invoke(self, ctx)


def array_of(ctx: typer.Context) -> "tuple[Sequence[str], Resources] | None":
    """Return the words of an array's jobs and what they ask for; None where the command is to be done here."""
    given: tuple[Sequence[str], Resources] | None = ctx.meta.get(_ARRAY)
    return given
