"""What each runtime needs of an image, as lists of checks: pure functions of a view of the image and of its host.

`view` makes the view of a tree that somebody else read (`checks.contracts.run`); `docs/contracts.md` is written from
these lists.
"""

from collections.abc import Iterable, Sequence

from graphcrate.checks.contracts import apptainer, contents, docker, gpu, pai, pyxis, stack, start
from graphcrate.checks.contracts.check import Check
from graphcrate.model.contract import RUNTIMES, Finding, Host, ImageView, Runtime

#: Every check, in the order in which findings are shown.
CHECKS: tuple[Check, ...] = (
    *(*start.CHECKS, *contents.CHECKS, *gpu.CHECKS, *stack.CHECKS),
    *(*docker.CHECKS, *apptainer.CHECKS, *pyxis.CHECKS, *pai.CHECKS),
)
CONTRACTS: dict[Runtime, tuple[Check, ...]] = {
    runtime: tuple(check for check in CHECKS if runtime in check.runtimes) for runtime in RUNTIMES
}


def judge(view: ImageView, host: Host, runtimes: Sequence[Runtime]) -> tuple[Finding, ...]:
    """Every finding for these runtimes; a check that several of them share is made once."""
    wanted = tuple(runtime for runtime in RUNTIMES if runtime in runtimes)
    return tuple(check.find(view, host, wanted) for check in CHECKS if set(check.runtimes) & set(wanted))


def targets(view: ImageView) -> tuple[Runtime, ...]:
    """The runtimes that an artifact can be meant for."""
    if view.form == "sif":
        return ("apptainer",)
    return ("apptainer", "pyxis") if view.form in ("squashfs", "folder") else RUNTIMES


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many there are of each status, the worst first."""
    found = [finding.status for finding in findings]
    return {status: found.count(status) for status in ("fail", "warn", "unknown", "pass") if status in found}
