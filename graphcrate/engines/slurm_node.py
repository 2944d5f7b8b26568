"""The program of a job on its node: `python -m graphcrate.engines.slurm_node ORDER.json RESULT.json`."""

import sys
import traceback
from pathlib import Path

import msgspec

from graphcrate.engines import run_suites
from graphcrate.host import process, streams
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.model import codec
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.trial import Returned, TrialOrder

INTERRUPTED = 130


TIME_IS_UP = "the job's time limit came before they had ended; --time gives it more"


def main(order: Path, result: Path) -> int:
    """Run the suites of an order, their lines on stdout; write the result whole or not at all, remove the order.

    Return the exit code. A job that is cancelled leaves no result: Slurm says what became of it.
    """
    streams.prepare()
    came = process.interrupt_once()  # scancel and the time limit: end what runs, and leave no container
    try:
        trial = codec.decode(order.read_bytes(), TrialOrder)
        report = run_suites.run_suites(trial, Context.here(), say=lambda line: print(line, flush=True))
        returned = Returned(suites=report.suites)
    except GraphcrateError as error:
        returned = Returned(error=str(error))
    except KeyboardInterrupt:
        print("ended by Slurm: what ran is ended; what became of a container is said above", flush=True)
        if "SIGUSR1" not in came:
            order.unlink(missing_ok=True)
            return INTERRUPTED
        returned = Returned(error=TIME_IS_UP)
    except Exception as error:  # the process that waits for the job must read it
        traceback.print_exc()
        returned = Returned(error=f"graphcrate on the node broke off: {type(error).__name__}: {error}")
    write_file(result, msgspec.json.encode(returned))
    order.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
