"""The command line on a machine that is not what it says: python -m tests.faults.pretending free|clock=SECONDS …

`free`: disks are said to have room, as where another job fills them a moment later. `clock`: it goes wrong by so much.
"""

import shutil
import sys
import time
from types import SimpleNamespace

from graphcrate.cli.main import main


def pretend(what):
    """Change what the standard library says of the machine."""
    if what == "free":
        shutil.disk_usage = lambda _: SimpleNamespace(total=1 << 50, used=0, free=1 << 50)
    else:
        shift, true = float(what.removeprefix("clock=")), time.time
        time.time = lambda: true() + shift
        broken_down = time.gmtime
        time.gmtime = lambda seconds=None: broken_down(time.time() if seconds is None else seconds)


if __name__ == "__main__":
    pretend(sys.argv.pop(1))
    sys.argv[0] = "graphcrate"
    main()
