"""The program of a job on its node: `python -m graphcrate.engines.slurm_node ORDER.json RESULT.json`."""

import os
import sys
import traceback
from pathlib import Path

import msgspec

from graphcrate.engines import run_suites, slurm_step
from graphcrate.host import arguments, process, settings, streams
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.model import codec
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.trial import CommandOrder, JobOrder, Returned, Stopped

INTERRUPTED = 130


TIME_IS_UP = "the job's time limit came before the end; --time gives it more"
#: runs its words with stdout in the file that is the first of them
_INTO_FILE = 'printed=$1; shift; exec "$@" > "$printed"'


def main(order: Path, result: Path) -> int:
    """Carry out an order, its lines on stdout; write the result whole or not at all, remove the order.

    Return the exit code. A job that is cancelled leaves no result: Slurm says what became of it.
    """
    streams.prepare()
    came = process.interrupt_once()  # scancel and the time limit: end what runs, and leave no container
    try:
        asked: JobOrder = codec.decode(order.read_bytes(), JobOrder)  # type: ignore[arg-type]
        if isinstance(asked, CommandOrder):
            returned = Returned(exit_code=_run(asked))
        else:
            returned = Returned(suites=run_suites.run_suites(asked, Context.here(), say=_say).suites)
    except GraphcrateError as error:
        returned = Returned(error=str(error))
    except KeyboardInterrupt:
        _say("ended by Slurm: what ran is ended; what became of a container is said above")
        if "SIGUSR1" not in came:
            _remove(order)
            return INTERRUPTED
        returned = Returned(error=TIME_IS_UP, stopped=Stopped.TIME)
    except Exception as error:  # the process that waits for the job must read it
        traceback.print_exc()
        returned = Returned(error=f"graphcrate on the node broke off: {type(error).__name__}: {error}")
    write_file(result, msgspec.json.encode(returned))
    _remove(order)
    return 0


def _remove(order: Path) -> None:
    """Remove an order that no other task of an array is going to read."""
    if slurm_step.own_job() == slurm_step.here().get("job", ""):
        order.unlink(missing_ok=True)


def _say(line: str) -> None:
    print(line, flush=True)


def _run(order: CommandOrder) -> int:
    """Run a command of ours as a program of its own, with all that the job's environment says; its exit code."""
    program = (order.program,) if order.program else ("-m", "graphcrate")
    typed = ("-X", f"typed={order.typed}") if order.typed else ()
    python = (sys.executable, "-sP", *typed, *program, *order.words)
    command = arguments.line("sh", "-c", _INTO_FILE, "sh", order.printed or os.devnull, *python)
    return process.run(command, environment=settings.environment(), cwd=Path(order.folder), on_line=_say).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
