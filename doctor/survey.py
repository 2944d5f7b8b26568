"""Looks everywhere at once and gathers the findings; nothing that goes wrong on the way ends it."""

import json
import threading
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from doctor.container import PROBE, Interpreter, container_of, judge_container
from doctor.driver import Nvidia, judge_driver, look_at_driver
from doctor.enroot import judge_enroot, judge_slurm
from doctor.fabric import judge_fabric
from doctor.finding import FAIL, Finding, note, warn
from doctor.host import Host
from doctor.machine import judge_machine, judge_network, judge_storage
from doctor.singularity import judge_singularity
from doctor.stack import installed_in, judge_imports, judge_versions

Judge = Callable[[], Iterable[Finding]]
Report = List[Tuple[str, List[Finding]]]


class Sight(NamedTuple):
    """The facts that several areas go by."""

    container: str
    nvidia: Nvidia
    python: Interpreter
    installed: Dict[str, str]


def look(host: Host) -> Sight:
    """Gather what several areas need."""
    python = _interpreter(host)
    return Sight(container_of(host), look_at_driver(host), python, installed_in(host, python))


def _interpreter(host: Host) -> Interpreter:
    done = host.run([host.python, "-c", PROBE], limit=20.0)
    try:
        told = json.loads(done.out.strip().splitlines()[-1]) if done else {}
    except (ValueError, IndexError):
        told = {}
    return (
        Interpreter(**{**told, "path": tuple(told["path"])})
        if isinstance(told, dict) and "path" in told
        else Interpreter()
    )


def survey(host: Host, imports: Optional[bool] = None) -> Report:
    """Every area with its findings. `imports`: import torch and the extensions; by default where torch is installed."""
    alone: Tuple[Tuple[str, Judge], ...] = (
        ("machine", lambda: judge_machine(host)),
        ("network", lambda: _network(host)),
    )
    gathered: Dict[str, List[Finding]] = {}
    threads = _start(alone, gathered)
    sight = look(host)
    has_gpu = bool(sight.nvidia.devices)
    areas: List[Tuple[str, Judge]] = [
        ("GPU", lambda: judge_driver(host, sight.nvidia, sight.container)),
        ("storage", lambda: judge_storage(host, sight.container)),
        ("environment", lambda: judge_container(host, sight.container, sight.python)),
    ]
    runtimes: List[Tuple[str, Tuple[str, ...], Judge]] = [
        ("Apptainer", ("apptainer", "singularity"), lambda: judge_singularity(host)),
        ("enroot", ("enroot",), lambda: judge_enroot(host, has_gpu)),
        ("Slurm", ("srun",), lambda: judge_slurm(host, has_gpu)),
    ]
    # In a container those alone that are in it too: a workspace, a node of a cluster in Kubernetes.
    areas += [(area, judge) for area, names, judge in runtimes if not sight.container or any(map(host.find, names))]
    if "torch" in sight.installed or imports:
        areas.append(("torch", lambda: _torch(host, sight, imports is not False)))
    for thread in [*threads, *_start(areas, gathered)]:
        thread.join()
    order = ("GPU", "torch", "environment", "machine", "storage", "network", "Apptainer", "enroot", "Slurm")
    return [(area, gathered[area]) for area in order if gathered.get(area)]


def _network(host: Host) -> Iterator[Finding]:
    yield from judge_network(host)
    yield from judge_fabric(host, container_of(host))


def _torch(host: Host, sight: Sight, imports: bool) -> Iterator[Finding]:
    if "torch" not in sight.installed:
        yield note("packages", f"torch is not installed for {host.python}")
        return
    for finding in judge_versions(host, sight.installed):
        yield finding
    if imports:
        for finding in judge_imports(host, sight.installed, sight.nvidia, sight.container):
            yield finding


def _start(areas: Iterable[Tuple[str, Judge]], gathered: Dict[str, List[Finding]]) -> List[threading.Thread]:
    threads = [threading.Thread(target=_gather, args=(area, judge, gathered), daemon=True) for area, judge in areas]
    for thread in threads:
        thread.start()
    return threads


def _gather(area: str, judge: Judge, gathered: Dict[str, List[Finding]]) -> None:
    found = gathered.setdefault(area, [])
    try:
        found.extend(judge())
    except Exception as error:  # whatever a strange machine has in store: the other areas are told
        why = f"{type(error).__name__}: {error}"
        found.append(warn("doctor", "the doctor stumbled here", why, "please report it with `doctor --json`"))


def cannot_work(report: Report) -> int:
    """The number of findings that say so."""
    return sum(finding.status == FAIL for _, findings in report for finding in findings)
