"""The batch script of a job: a shell that starts Python, passes Slurm's signals on, and clears up when Python is gone.

Python removes the container that pyxis keeps. Where Slurm or the kernel kills it, the shell does; where that is killed
too, a file beside the job's log says on which node a container may be left.
"""

import math
import re
import shlex
from pathlib import Path

from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError
from graphcrate.model.words import printable

#: of the containers that pyxis makes for jobs of ours; a dash and the job's number follow
CONTAINER = "graphcrate"
#: before a job's time limit it is told that the time is up: after it Slurm leaves 30 seconds (KillWait), often too few
SECONDS_TO_LEAVE = 60
#: below this limit it is not told: Slurm may do so a minute early
SHORTEST = 5 * 60
_TIME = re.compile(r"\d+(?:-\d+)?(?::\d+){0,2}|UNLIMITED|INFINITE", re.ASCII | re.IGNORECASE)
#: the file that names the node, beside the job's log
LEFT = ".container"

_SCRIPT = """\
#!/bin/sh
unset PYTHONHOME
export PYTHONPATH={root}
{before}{python} -sP -m {module} {order} {result} &
python=$!
# What Slurm sends reaches this shell too, which stays: Python may be killed before it has cleared up.
trap 'kill -TERM "$python" 2>/dev/null' TERM
trap 'kill -USR1 "$python" 2>/dev/null' USR1
until wait "$python"; code=$?; ! kill -0 "$python" 2>/dev/null; do :; done
trap '' TERM USR1
{after}exit "$code"
"""
_BEFORE = 'echo "$SLURMD_NODENAME" > {left}\n'
#: what fills a container may take a moment to end
_AFTER = """\
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
for pause in 1 2 4 8; do
    all=$(env -u ENROOT_DATA_PATH enroot list 2>/dev/null) || break
    ours=$(printf '%s\\n' "$all" | grep -E "^pyxis_(.*_)?{name}-$SLURM_JOB_ID\\$") || {{ rm -f {left}; break; }}
    env -u ENROOT_DATA_PATH enroot remove --force $ours </dev/null >&2 || true
    sleep "$pause"
done
"""


def script(order: Path, *, root: Path, python: str, module: str, has_container: bool, is_array: bool = False) -> str:
    """Write the batch script of an order's file. `has_container`: pyxis runs the image."""
    job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if is_array else "$SLURM_JOB_ID"
    stem = f'{shlex.quote(str(order.parent))}/"{job}"'
    left = f"{stem}{LEFT}"
    return _SCRIPT.format(
        root=shlex.quote(str(root)),  # replaces what a cluster's modules leave there
        python=shlex.quote(python),
        module=module,
        order=shlex.quote(str(order)),
        result=f"{stem}.json",
        before=_BEFORE.format(left=left) if has_container else "",
        after=_AFTER.format(left=left, name=CONTAINER) if has_container else "",
    )


def container(job: str) -> str:
    """Return the name that a job gives its container. pyxis puts `pyxis_` before it, at some sites the job's id too."""
    return f"{CONTAINER}-{job}"


def removal(job: str, node: str, partition: str) -> str:
    """Return the command that removes what a job left on a node."""
    where = f"srun --partition={shlex.quote(partition)} --nodelist={shlex.quote(node)}"
    return f"{where} enroot remove --force pyxis_{container(job)}"


def warning(limit: str, signal: str = "USR1") -> str:
    """Return sbatch's --signal for this time limit: one to the shell before it; empty for a short one."""
    return f"B:{signal}@{SECONDS_TO_LEAVE}" if seconds(limit) >= SHORTEST else ""


def check_time(limit: str) -> None:
    """Raise UsageError for what sbatch does not take for a time limit; none at all is the site's."""
    if not limit or _TIME.fullmatch(limit):
        return
    raise UsageError(
        f"{printable(limit)!r} is not a time limit of Slurm's",
        cause="It is written as minutes, hours:minutes:seconds or days-hours.",
        next_step=command(ETC, time=_meant(limit)),
    )


def _meant(limit: str) -> str:
    """Return the time limit that people mean by `8h`, `2 days` or `90min`; eight hours of what has no number."""
    match = re.match(r"(\d{1,4})\s*([dhm])", limit.lower())
    if match is None or not int(match[1]):
        return "08:00:00"
    return {"d": "{}-0", "h": "{:02}:00:00", "m": "{}"}[match[2]].format(int(match[1]))


def seconds(limit: str) -> float:
    """Return a time limit in sbatch's forms (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S); infinity where there is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit)
    if match is None or (not int(match[2]) and limit == "0"):
        return math.inf
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None:
        return ((days * 24 + first) * 60 + second) * 60 + third
    return (first * 60 + second) * 60 + third if match[4] is not None else first * 60 + second
