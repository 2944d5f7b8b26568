"""End a command: the error that it raised becomes a message on stderr and an exit code."""

import contextlib
import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import typer.core

from graphcrate.cli import retyped, spoken
from graphcrate.cli.characters import check_characters
from graphcrate.host import settings, streams, trace
from graphcrate.model.command import CHECKOUT_PROGRAM, ETC, Command, command, is_upkeeps, setting, without
from graphcrate.model.errors import GraphcrateError, UsageError
from graphcrate.model.words import either, printable

#: what other programs call a command
_ELSEWHERE = {
    **dict.fromkeys(("build", "make", "create"), "image"),
    **dict.fromkeys(("exec", "shell", "start"), "run"),
    **dict.fromkeys(("push", "upload", "deploy"), "publish"),
    **dict.fromkeys(("info", "show"), "inspect"),
    **dict.fromkeys(("sif", "sqsh", "export", "save"), "convert"),
    **dict.fromkeys(("submit", "sbatch", "srun"), "job"),
}

#: options that would choose a part of a stack, and why there are none
OF_A_ROW = dict.fromkeys(
    ("--python", "--torch"),
    "Python and torch go with a stack's CUDA version; others take a stack of your own (docs/recipes.md).",
)
#: options → what shows the values that they take
_EXAMPLES = {
    "apt": setting(apt="git graphviz"),
    "build-apt": setting(build_apt="swig"),
    "driver": setting(driver="450.80.02"),
    "gpu": setting(gpu="v100"),
    "requirements": setting(requirements="requirements.txt"),
    "target": setting(target="dgx2"),
    "with": setting(with_="lightning wandb"),
}
_NOTHING = re.compile(r"[\s,;]*")  #: a value of separators alone
_ALIKE = 0.6  #: as difflib has it
#: every command, as `--help` lists them
GROUPS = {
    "Build": ("init", "add", "remove", "image", "adopt", "matrix", "list", "explain", "lock", "render", "schema"),
    "Use": ("run", "convert", "job", "test"),
    "Look at": ("check", "inspect", "report", "why", "diff", "audit"),
    "Share": ("serve", "publish", "verify", "keys"),
    "Help": ("doctor", "cache", "images"),
}


class Commands(typer.core.TyperGroup):
    """Commands. click would end without a word after an interrupt, and with 1 when its output is closed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's, of which typer has a copy)
        """Parse options before a command."""
        with exiting(), _said_as_ours(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 (as above)
        """Carry a command out."""
        with exiting(), _said_as_ours(ctx):
            return super().invoke(ctx)


class ProductCommands(Commands):
    """All commands of graphcrate."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 (as below)
        """Name the command of ours for one that other programs have, and who has upkeep's. Raises UsageError."""
        if is_upkeeps(args):
            raise UsageError(
                f"{args[0]}{' --check' if args[0] == 'lock' else ''} is not in this package",
                cause="What keeps the repository's recipes and locks, and shows them, is a program beside it: upkeep.",
                next_step=f"{CHECKOUT_PROGRAM} {shlex.join(args)}    (in a clone of the project)",
            )
        if args and args[0] not in self.commands and (ours := _ELSEWHERE.get(args[0])):
            raise UsageError(
                f"there is no command {args[0]!r}",
                next_step=f"{Command(ours, tuple(args[1:])).by_program()}    is what does that",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (as below)
        """Write the commands in groups."""
        texts = spoken.asked_for(settings.environment())
        for group, names in GROUPS.items():
            with formatter.section(texts.groups[group] if texts else group):
                rows = [(name, self.commands[name].get_short_help_str(limit=72)) for name in names]
                formatter.write_dl([(name, texts.commands[name]) for name in names] if texts else rows)

    def get_command(self, ctx: Any, name: str) -> Any:  # noqa: ANN401 (as below)
        """Find a command, whose help begins in the language of the locale."""
        command, texts = super().get_command(ctx, name), spoken.asked_for(settings.environment())
        if command and texts and (line := texts.commands.get(name)) and not (command.help or "").startswith(line):
            command.help = f"{line}\n\n{command.help or ''}"
            asked: list[Any] = command.params  # click's own has no help
            for parameter in asked:
                if english := getattr(parameter, "help", None):
                    parameter.help = texts.help.get(english, english)
        return command


class OwnCommand(typer.core.TyperCommand):
    """A command that refuses options with nothing in them, which it would else do without, and not a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (as above)
        """Parse options and arguments. Raises UsageError for a value of separators alone, of any option."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        for option in [] if ctx.resilient_parsing else self.params:
            source = ctx.get_parameter_source(option.name)
            if option.param_type_name == "option" and getattr(source, "name", "") == "COMMANDLINE":
                given = ctx.params.get(option.name)
                for value in given if isinstance(given, list | tuple) else (given,):
                    _refuse_nothing(option.opts[0], value, words, is_needed=option.required)
        return rest


def refusing_nothing(app: typer.Typer) -> None:
    """Let all commands of a program be such that `OwnCommand` is."""
    for row in app.registered_commands:
        if row.cls is typer.core.TyperCommand:
            row.cls = OwnCommand


def _refuse_nothing(option: str, value: object, words: list[str], *, is_needed: bool) -> None:
    """Raises UsageError for a value of separators alone. `words`: as they were typed: an empty path reads as `.`."""
    text = "" if isinstance(value, Path) and str(value) == "." and "." not in words else value
    if not isinstance(text, str | Path) or not _NOTHING.fullmatch(str(text)):
        return
    name = option.lstrip("-")
    example = _EXAMPLES[name].both() if name in _EXAMPLES else f"a value after {option}"
    step = example if is_needed else f"{without(name)}, or with {example}"
    is_empty = not str(text).strip()
    raise UsageError(
        f"{option} is empty" if is_empty else f"{option} {str(text)!r} names nothing",
        cause="Most likely a variable of the shell that is not set." if is_empty else "",
        next_step=step,
    )


@contextlib.contextmanager
def _said_as_ours(ctx: Any) -> Iterator[None]:  # noqa: ANN401 (as above)
    """Raises UsageError for what click found wrong; the group's context knows the command that was typed."""
    try:
        yield
    except Exception as error:
        if (wrong := wrong_usage(error, getattr(ctx, "invoked_subcommand", None) or "")) is None:
            raise
        raise wrong from error


def wrong_usage(error: Any, verb: str) -> UsageError | None:  # noqa: ANN401 (click's, of which typer has a copy)
    """Return what click found wrong in a command line, said as other errors are; None for other errors.

    `verb`: the command that was typed; empty for none that there is.
    """
    kind = type(error).__name__
    if not hasattr(error, "format_message") or kind == "NoArgsIsHelpError":  # which prints the help
        return None
    helps = f"{Command(verb or '--help', ('--help',) if verb else ()).by_program()}    (what it takes)"
    parameter = getattr(error, "param", None)
    if kind == "MissingParameter" and parameter is not None:
        return _missing(parameter, verb, helps)
    if kind == "NoSuchOption":
        return _no_such_option(error, verb, helps)
    text = printable(error.format_message()).removesuffix(".")
    return UsageError(f"{text[:1].lower()}{text[1:]}", next_step=helps)


def _missing(parameter: Any, verb: str, helps: str) -> UsageError:  # noqa: ANN401 (click's, as above)
    """Return the error for an argument or an option that is missing."""
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[0] if is_option else parameter.metavar or parameter.human_readable_name
    cause = f"{name}: {parameter.help}" if getattr(parameter, "help", "") else ""
    example = f"{command('image', 'pyg', cuda='11.8')}    (list has all)" if verb == "image" else ""
    if is_option and (choices := getattr(parameter.type, "choices", ())):
        example = str(command(ETC, **{parameter.name: choices[0]}))
    if is_option and name == "--runtime":
        example = str(command(ETC, runtime=_usual_runtime()))
    what = f"{verb} needs {name}" + "".join(f", and there is no file {image}" for image in _missing_images())
    return UsageError(what, cause=cause, next_step=example or helps)


def _usual_runtime() -> str:
    """Return the runtime of a job for the file that was typed, by its ending; for another image that of a SIF."""
    from graphcrate.model.runtime import opened_on_slurm

    opening = (opened_on_slurm(Path(word).suffix) for word in sys.argv[2:])
    return next(filter(None, opening), "singularity")


def _no_such_option(error: Any, verb: str, helps: str) -> UsageError:  # noqa: ANN401 (click's, as above)
    """Return the error for an option that the command does not have, with the nearest ones."""
    typed = str(error.option_name)
    near = sorted(name for name in error.possibilities or () if is_like(typed.lstrip("-"), name.lstrip("-")))
    guess = f": did you mean {either(near)}?" if near else ""
    cause = "" if near else OF_A_ROW.get(typed, "")
    step = f"{command('list')}    (shows them for each CUDA version)" if cause else helps
    return UsageError(f"{verb or 'graphcrate'} has no option {printable(typed)}{guess}", cause=cause, next_step=step)


def _missing_images() -> list[str]:
    """Return the image that was typed first, where that is a file that is not there."""
    from graphcrate.artifacts.locate import is_image_file

    return [printable(word) for word in sys.argv[2:3] if is_image_file(word) and not Path(word).exists()]


def is_like(typed: str, name: str) -> bool:
    """Return whether what was typed may have meant the option `name`, both without dashes."""
    return name.startswith(typed) or difflib.SequenceMatcher(None, typed, name).ratio() >= _ALIKE


def run(commands: Callable[[], object]) -> None:
    """Run a command line, and turn errors into a message and their exit code."""
    from graphcrate.host.process import interrupt_on_terminate

    interrupt_on_terminate()
    with exiting():
        check_characters(sys.argv[1:])
        trace.begin(settings.environment(), sys.argv[1:])
        try:
            commands()
        finally:
            trace.end()


@contextlib.contextmanager
def exiting() -> Iterator[None]:
    """Expected errors with their own exit code, 130 after an interrupt, 141 when the output is closed.

    Faults of this program pass: `defects.guard` has them.
    """
    try:
        yield
        sys.stdout.flush()
    except GraphcrateError as error:
        _end_by(error)
    except KeyboardInterrupt:
        _end("interrupted; the same command goes on where this one stopped", 130)
    except BrokenPipeError:
        streams.give_up_stdout()
        sys.exit(141)
    except OSError as error:
        from graphcrate.host.disk.os_errors import explained

        if (expected := explained(error)) is None:
            raise
        _end_by(expected)


def _end_by(error: GraphcrateError) -> NoReturn:
    from graphcrate.cli.options import request_of_image

    error.next_step = retyped.whole(error.next_step, request_of_image)
    _end(str(error), error.exit_code)


def _end(message: str, code: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except OSError:
        streams.give_up_stdout()
    sys.stderr.write(f"graphcrate: {message}\n")
    texts = spoken.asked_for(settings.environment()) if sys.stderr.isatty() else None
    if texts and (meaning := texts.meaning(message, code)):
        sys.stderr.write(f"中文:  {meaning}\n")
    sys.exit(code)
