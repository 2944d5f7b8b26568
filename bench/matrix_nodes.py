"""Measures what nodes save where a matrix is built on Slurm: `python -m bench.matrix_nodes`.

As root, with cgroups of version 1. One machine plays all nodes: each is a daemon of Slurm that a cgroup gives a part of
a core, so that three of them stay within two cores, and one has a third of what three have. The images are of the
smallest stack, whose base and layers the cache has: each row writes its image, checks and tests it. Prints a table;
docs/slurm.md has its figures.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.main_job import working_folder
from bench.page import machine, say, today
from graphcrate.host.context import Context
from tests.engines.slurm_cluster import Ground, slurm_cluster
from tests.engines.small_matrix import matrix_of
from tests.engines.workplace import Workplace, copy_project, small_stack

NODES = 3
CORES = 0.6  #: of each node; three of them leave a tenth of two cores to what submits and schedules
GOAL = 2.2  #: times as fast as one node
_CGROUPS = Path("/sys/fs/cgroup")
_PERIOD = 100_000  #: microseconds
_SHARES = 8192  #: of a core that others want too: eight times what they have
#: goes before a node's daemon: what that starts stays in its groups
_ENTER = 'echo $$ > "$1/cgroup.procs"; echo $$ > "$2/cgroup.procs"; shift 2; exec "$@"'


class Run(NamedTuple):
    """The matrix on so many nodes: seconds by the clock and of processors."""

    nodes: int
    wall: float
    processor: float


class LimitedNode(NamedTuple):
    """The cgroups of a node: what it may use, and what it has used."""

    limit: Path
    account: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before the command of its daemon."""
        return ("sh", "-ec", _ENTER, "sh", str(self.limit), str(self.account))

    def seconds(self) -> float:
        """Return what it has used of processors."""
        return int((self.account / "cpuacct.usage").read_text()) / 1e9


@contextmanager
def limited_node(name: str) -> Iterator[LimitedNode]:
    """Make the groups of a node, which go when all in them has ended."""
    node = LimitedNode(_CGROUPS / "cpu" / name, _CGROUPS / "cpuacct" / name)
    with ExitStack() as stack:
        for group in node:
            group.mkdir()
            stack.callback(group.rmdir)
        (node.limit / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (node.limit / "cpu.cfs_quota_us").write_text(str(round(CORES * _PERIOD)))
        (node.limit / "cpu.shares").write_text(str(_SHARES))
        yield node


def measured(first: Workplace, lock: Path, nodes: int, limited: list[LimitedNode], rows: int) -> Run:
    """Prove rows on so many nodes, in a project of their own. Ends the bench where one is not proved.

    Their names are this run's alone: an image of another one would be there, unpacked and known.
    """
    names = [f"of{nodes}-row{number}" for number in range(rows)]
    project = copy_project(first.folder.parent / f"project-{nodes}")
    matrix_of(project, json.loads(lock.read_text()), names)
    say(f"{len(names)} images on {nodes} of {len(limited)} nodes")
    used, begin = sum(node.seconds() for node in limited), time.monotonic()
    # each job asks for more than half of a node, so that none has two
    words = ("--on", "slurm", "--partition", "dgx2", "--jobs", str(nodes), "--cpus", "40")
    done = Workplace(project, first.cache, first.environment).run("matrix", *words)
    wall = time.monotonic() - begin
    proofs = list(project.glob("images/*/*/pypi.proof.json"))
    if done.code or len(proofs) != len(names):
        sys.exit(f"{len(proofs)} of {len(names)} were proved, exit code {done.code}\n{done.err}")
    return Run(nodes, wall, sum(node.seconds() for node in limited) - used)


def table(runs: list[Run]) -> str:
    """The runs, each beside the first."""
    rows = [
        f"| {run.nodes} of {CORES} cores | {run.wall:.0f} s | {run.processor:.0f} s | {runs[0].wall / run.wall:.2f} |\n"
        for run in runs
    ]
    return f"| nodes | wall | processor | times as fast (goal: {GOAL}) |\n|---|---|---|---|\n{''.join(rows)}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10, help="images")
    options.add_argument("--nodes", type=int, nargs="+", default=[1, NODES], choices=range(1, NODES + 1))
    options.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    options.add_argument("--cache", type=Path, help="one that may have the small image (default: a new one)")
    given = options.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder(given.folder))
        folder.chmod(0o755)  # munge has a user of its own
        limited = [stack.enter_context(limited_node(f"{folder.name}-{number}")) for number in range(NODES)]
        ground = Ground(nodes=("127.0.0.1",) * NODES, at_nodes=tuple(node.prefix for node in limited))
        first = Workplace(copy_project(folder / "first"), given.cache or folder / "cache")
        say("the small image, for its base and layers")
        first.run("lock", *small_stack()).ok()
        report = first.run("image", *small_stack(), "--json").json
        lock = (first.folder / report["layout"]).with_name("lock.json")
        with slurm_cluster(folder / "slurm", ground) as environment:
            here = first.having(**environment)
            runs = [measured(here, lock, nodes, limited, given.rows) for nodes in given.nodes]
    sys.stdout.write(
        f"{today()}, {given.rows} images of one lock, once on each number of nodes, "
        f"{machine(Context.here(), on_gpu=False)}.\n\n{table(runs)}"
    )


if __name__ == "__main__":
    main()
