"""Versions that a pasted text names, beside those that are here: what another release says may mean something else."""

import re
from typing import Callable, Dict, List, NamedTuple, Tuple

from doctor.finding import listed, numbers
from doctor.host import Host
from doctor.survey import look


class Stated(NamedTuple):
    """A program, and how a text names its version: `sign` has one group that is not empty.

    `here`: its distributions; else `command` says it, or it is Python itself.
    """

    name: str
    sign: str
    parts: int  #: of a version that are compared
    here: Tuple[str, ...] = ()
    command: Tuple[str, ...] = ()


STATED = (
    Stated("Python", r"[/\\]python(3\.\d+)[/\\]|^Python (3\.\d+)\.\d+", 2),
    Stated(
        "torch", r"\btorch-(\d+\.\d+\.\d+)\S{0,20}\.dist-info|PyTorch (?:version:? )?(\d+\.\d+\.\d+)", 2, ("torch",)
    ),
    Stated("PyG", r"\btorch_geometric-(\d+\.\d+)\S{0,20}\.dist-info|PyG version:? (\d+\.\d+)", 2, ("torch_geometric",)),
    Stated("NumPy", r"\bnumpy-(\d+\.\d+)\S{0,20}\.dist-info|cannot be run in\s+NumPy (\d+\.\d+)", 2, ("numpy",)),
    Stated("NCCL", r"NCCL version (\d+\.\d+)", 2, ("nvidia_nccl_cu13", "nvidia_nccl_cu12", "nvidia_nccl_cu11")),
    Stated("Slurm", r"\bslurm(?:-wlm)? (\d\d\.\d\d)\.\d", 2, command=("srun", "--version")),
    Stated("enroot", r"\benroot (?:version )?v?(\d+\.\d+)\.\d", 2, command=("enroot", "version")),
    Stated("Apptainer", r"\bapptainer (?:version )?v?(\d+\.\d+)\.\d", 2, command=("apptainer", "--version")),
    Stated("Docker", r"\bDocker version (\d+\.\d+)", 1, command=("docker", "--version")),
)


def stated_versions(text: str) -> Dict[str, str]:
    """Return the versions that a text names, each program's last: of a log that is the run which failed."""
    found = {row.name: list(re.finditer(row.sign, text, re.MULTILINE)) for row in STATED}
    return {name: next(group for group in matches[-1].groups() if group) for name, matches in found.items() if matches}


def other_versions(text: str, here: Callable[[Stated], str]) -> str:
    """Return a sentence on the programs that a text names in another version than is here; empty for none.

    `here`: a program's version, empty where it is not here. It is asked for the programs of the text alone.
    """
    told = stated_versions(text)
    others: List[str] = []
    for row in STATED:
        theirs = told.get(row.name, "")
        ours = here(row) if theirs else ""
        if ours and numbers(theirs)[: row.parts] != numbers(ours)[: row.parts]:
            others.append(f"{row.name} {theirs} (here {ours})")
    if not others:
        return ""
    return (
        f"Text of another program's version: {listed(others)}. What is said below is about the text; "
        "what `doctor` finds is about this place: run it where the text comes from."
    )


def version_here(host: Host) -> Callable[[Stated], str]:
    """Return how to find what is here: distributions of this Python, programs by their own word."""
    sights: List[Tuple[str, Dict[str, str]]] = []

    def here(row: Stated) -> str:
        if row.command:
            done = host.run(row.command)
            match = re.search(r"\d+(\.\d+)+", done.out) if done and done.code == 0 else None
            return match.group() if match else ""
        if not sights:
            sight = look(host)
            sights.append((sight.python.version, sight.installed))
        python, installed = sights[0]
        return next((installed[name] for name in row.here if installed.get(name)), "") if row.here else python

    return here
