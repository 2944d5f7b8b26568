"""The suites that may run inside an image: programs of `suites/`, how they are called and how long they may take."""

from collections.abc import Mapping

import msgspec

from graphcrate.model.plan import VENV

FOLDER = "/opt/graphcrate/suites"  #: of the programs, inside


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A program with its arguments by device. `limit` in seconds, by device. docs/smoke.md says what each proves.

    `version`: raise it with any change of what follows, so that past results of the suite do not count.
    """

    program: str
    version: int = 1
    cpu: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    cpu_limit: int
    cuda_limit: int
    draws: bool = False  #: understands `--curve FILE`
    needs: str = ""  #: the package that it trains with, where that is not torch alone
    requires: bool = False  #: understands `--require NAME,…`: extensions that must be there
    measures: bool = False  #: a past result never counts
    spreads: bool = False  #: understands `--per-node`: it is started on each node of a job, and they work together
    inherits: tuple[str, ...] = ()  #: how variables begin that it gets of this process's environment

    def argv(self, *, on_gpu: bool, limit: int = 0) -> list[str]:
        """Return the command inside the image. `limit`: its seconds; 0: its own."""
        device, own, words = ("cuda", self.cuda_limit, self.cuda) if on_gpu else ("cpu", self.cpu_limit, self.cpu)
        argv = [f"{VENV}/bin/python", f"{FOLDER}/{self.program}", "--limit", str(limit or own)]
        return [*argv, "--device", device, *words]


_UNTIL_PROVEN = ("--until-proven", "--every", "3")  #: docs/decisions/smoke-length.md
_TWO = ("--ranks", "2")
_BETWEEN_NODES = ("NCCL_", "GLOO_", "FI_")
_PYG, _GLT = "torch-geometric", "graphlearn-torch"

SUITES: Mapping[str, Suite] = {
    "torch": Suite(program="torch_check.py", version=2, cpu_limit=300, cuda_limit=300),
    "dna": Suite(program="dna.py", cpu=_UNTIL_PROVEN, cpu_limit=1800, cuda_limit=600, draws=True, needs=_PYG),
    "ops": Suite(program="ops.py", cpu_limit=600, cuda_limit=600, requires=True),
    "ddp": Suite(
        program="ddp.py",
        cpu=_TWO,
        cuda=_TWO,
        cpu_limit=600,
        cuda_limit=300,
        needs=_PYG,
        spreads=True,
        inherits=_BETWEEN_NODES,
    ),
    "glt": Suite(program="glt_check.py", cpu_limit=900, cuda_limit=600, needs=_GLT),
    "glt-distributed": Suite(program="glt_distributed.py", cpu_limit=600, cuda_limit=600, needs=_GLT),
    "nccl": Suite(
        program="nccl.py",
        cpu_limit=600,
        cuda_limit=900,
        draws=True,
        measures=True,
        spreads=True,
        inherits=_BETWEEN_NODES,
    ),
}
