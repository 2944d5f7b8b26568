"""Judge an image, whatever its form and whoever made it, by the contracts of runtimes. Pure."""

from collections.abc import Sequence

from graphcrate.checks.contracts import apptainer, contents, docker, gpu, pyxis, start
from graphcrate.checks.contracts.check import Check, asked_by
from graphcrate.model.contract import RUNTIMES, ContractFinding, Host, ImageView, Runtime

#: Every check, in the order in which findings are shown.
CHECKS = tuple(
    one
    for module in (start, contents, gpu, docker, apptainer, pyxis)
    for one in vars(module).values()
    if type(one) is Check
)
#: what a reader of an image has to look for
ASKED = asked_by(CHECKS)


def judge(view: ImageView, host: Host, runtimes: Sequence[Runtime]) -> tuple[ContractFinding, ...]:
    """Every finding for these runtimes; a check that several of them share is made once."""
    wanted = tuple(runtime for runtime in RUNTIMES if runtime in runtimes)
    return tuple(check.find(view, host, wanted) for check in CHECKS if set(check.runtimes) & set(wanted))


def targets(view: ImageView) -> tuple[Runtime, ...]:
    """The runtimes that an artifact can be meant for."""
    if view.form == "sif":
        return ("apptainer",)
    return ("apptainer", "pyxis") if view.form in ("squashfs", "folder") else RUNTIMES
