"""Runs small trainings inside an image and judges what they say. `docs/smoke.md` tells what each proves.

A suite is a program of `examples/` that streams its curve and ends with one JSON line. The line is not taken at its
word: where the run contradicts it, the suite has failed.
"""

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from graphcrate.errors import BuildError, UsageError
from graphcrate.host import gpu, settings
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import Bind
from graphcrate.host.workers import default_jobs
from graphcrate.model.plan import VENV
from graphcrate.model.report import SmokeReport

EXAMPLES = "/opt/graphcrate/examples"
OUT = "/out"  #: inside: the folder that a suite may write to
MOST_THREADS = 16  #: the programs' tensors are too small for more
SECONDS_TO_SAY_SO = 30.0  #: beyond a suite's limit, for the program's own account of the phase it hangs in
LAST_LINES = 8
#: packages whose operators are examined
EXTENSIONS = ("pyg-lib", "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv")
SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
HINTS = {
    4: "; the CPU lacks an instruction that the wheel was built with",
    7: "; /dev/shm or memory may be too small",
    9: "; the machine may have run out of memory",
    11: "; an extension built for another torch crashes like this",
}


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A program with its arguments by device. `limit` in seconds, by device; `proves` in words."""

    program: str
    proves: str
    cpu: tuple[str, ...]
    cuda: tuple[str, ...]
    cpu_limit: int
    cuda_limit: int
    draws: bool = False  #: understands `--curve FILE`
    requires: bool = False  #: understands `--require NAME,…`: extensions that must be there


SUITES: Mapping[str, Suite] = {
    "torch": Suite(
        program="torch_check.py",
        proves="torch imports, multiplies, trains, and its processes or GPUs reach one another",
        cpu=(),
        cuda=(),
        cpu_limit=300,
        cuda_limit=300,
    ),
    "dna": Suite(
        program="dna.py",
        proves="a graph network trains with PyG and lands where it should; every installed extension imports",
        # docs/decisions/smoke-length.md
        cpu=("--until-proven", "--every", "3"),
        cuda=(),
        cpu_limit=1800,
        cuda_limit=600,
        draws=True,
    ),
    "ops": Suite(
        program="ops.py",
        proves="every operator of the installed extensions gives what dense PyTorch does, gradients too; PyG uses them",
        cpu=(),
        cuda=(),
        cpu_limit=600,
        cuda_limit=600,
        requires=True,
    ),
    "glt": Suite(
        program="glt_check.py",
        proves="GLT partitions a graph, samples it as it is from both parts at once, and GraphSAGE learns from that",
        cpu=(),
        cuda=(),
        cpu_limit=900,
        cuda_limit=600,
    ),
}

#: A CPU run shares its machine, so waiting threads sleep. MKL takes the one code path that all x86 CPUs have: it gives
#: the same figures everywhere and is twice as fast on the tiny matrices of an attention.
CPU_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "MKL_CBWR": "COMPATIBLE"}


class Inside(Protocol):
    """An image that commands can be run in (`runners.embedded.Inside`)."""

    def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        binds: Sequence[Bind] = (),
        on_line: Callable[[str], None] | None = None,
        timeout: float | None = None,
        gpu: bool = False,
    ) -> Completed:
        """Run a command; stdout and stderr come merged, by line. BuildError after `timeout` seconds."""


class Verdict(msgspec.Struct, frozen=True):
    """The programs' last line. Other fields in it are figures too."""

    suite: str
    status: Literal["passed", "failed"]
    device: str
    metrics: dict[str, Any]
    versions: dict[str, Any]
    reason: str = ""


def run_suite(
    name: str,
    inside: Inside,
    folder: Path,
    *,
    say: Callable[[str], None],
    device: Literal["auto", "cpu", "cuda"] = "auto",
    packages: Collection[str] = (),
) -> SmokeReport:
    """Run a suite in an image, telling its lines to `say`; a failure is a report, not an exception.

    `packages`: what the image is said to have; a suite that examines some of them fails where one is missing.
    `auto` is the GPU where this machine has one. Writes `smoke-<suite>.log` into `folder`, and `smoke-<suite>.svg`
    where the suite draws. Raises UsageError for an unknown suite, HostError when nothing can be run at all.
    """
    if name not in SUITES:
        raise UsageError(f"there is no smoke suite {name!r}", cause=f"There are {', '.join(SUITES)}.")
    suite = SUITES[name]
    on_gpu = device == "cuda" or (device == "auto" and bool(gpu.detect().devices))
    limit = suite.cuda_limit if on_gpu else suite.cpu_limit
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"smoke-{name}.svg"
    kept.unlink(missing_ok=True)  # an earlier run's curve must not pass for this one's
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        if not line.startswith("{"):
            say(f"  {line}")

    start = settings.now()
    with tempfile.TemporaryDirectory(prefix="graphcrate-smoke-") as scratch:
        try:
            completed: Completed | None = inside.run(
                command(suite, name, on_gpu=on_gpu, limit=limit, packages=packages),
                environment=_environment(on_gpu),
                binds=(Bind(Path(scratch), OUT, read_only=False),),
                on_line=hear,
                timeout=limit + SECONDS_TO_SAY_SO,
                gpu=on_gpu,
            )
        except BuildError as error:  # the runner's time-out: the program could not even say so itself
            completed, late = None, error.what
            lines.append(late)
        _keep(folder / f"smoke-{name}.log", "".join(f"{line}\n" for line in lines).encode(errors="replace"))
        drawing = Path(scratch) / f"{name}.svg"
        if drawing.is_file():
            _keep(kept, drawing.read_bytes())
    seconds = round(settings.now() - start, 2)
    if completed is None:
        return failed(name, seconds, f"machine: {late} (while {phase(lines)})", on_gpu=on_gpu)
    return judge(name, lines, completed.returncode, seconds, on_gpu=on_gpu)


def command(suite: Suite, name: str, *, on_gpu: bool, limit: int, packages: Collection[str] = ()) -> list[str]:
    """What is run inside the image."""
    argv = [f"{VENV}/bin/python", f"{EXAMPLES}/{suite.program}", "--limit", str(limit)]
    argv += ["--device", "cuda" if on_gpu else "cpu", *(suite.cuda if on_gpu else suite.cpu)]
    if suite.requires and (required := [extension for extension in EXTENSIONS if extension in packages]):
        argv += ["--require", ",".join(extension.replace("-", "_") for extension in required)]
    return [*argv, "--curve", f"{OUT}/{name}.svg"] if suite.draws else argv


def judge(name: str, lines: Sequence[str], returncode: int, seconds: float, *, on_gpu: bool) -> SmokeReport:
    """The report of a run that ended, from its output and exit code (-N or 128 + N after signal N)."""
    found = read_verdict(name, lines)
    if isinstance(found, str):
        tail = " | ".join(line.strip() for line in lines[-LAST_LINES:] if line.strip()) or "no output"
        reason = f"{_ending(returncode)} while {phase(lines)}: {found}; last lines: {tail}"
        return failed(name, seconds, reason, on_gpu=on_gpu)
    verdict, figures = found
    reason = verdict.reason
    if verdict.status == "passed":
        reason = "; ".join(contradictions(verdict, returncode, on_gpu=on_gpu))
    return SmokeReport(
        suite=name,
        status="failed" if reason or verdict.status == "failed" else "passed",
        device=verdict.device,
        seconds=seconds,
        metrics={**verdict.metrics, **figures, "versions": verdict.versions},
        reason=reason or ("" if verdict.status == "passed" else "the program gives no reason"),
    )


def failed(name: str, seconds: float, reason: str, *, on_gpu: bool) -> SmokeReport:
    """The report of a run that gave no verdict."""
    return SmokeReport(suite=name, status="failed", device="gpu" if on_gpu else "cpu", seconds=seconds, reason=reason)


def read_verdict(name: str, lines: Sequence[str]) -> tuple[Verdict, dict[str, Any]] | str:
    """The last JSON line and its further figures, or why there is none to go by."""
    last = next((line for line in reversed(lines) if line.startswith('{"suite"')), None)
    if last is None:
        return "it gave no verdict"
    try:
        verdict = msgspec.json.decode(last, type=Verdict)
        fields = msgspec.json.decode(last, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return f"its verdict cannot be read ({error})"
    if verdict.suite != name:
        return f"its verdict is on {verdict.suite!r}, not on {name!r}"
    known = {*Verdict.__struct_fields__, "seconds", "layer", "phase"}
    return verdict, {key: value for key, value in fields.items() if key not in known}


def contradictions(verdict: Verdict, returncode: int, *, on_gpu: bool) -> list[str]:
    """What a run that says `passed` shows to the contrary."""
    found = []
    if returncode:
        found.append(f"it said passed, then {_ending(returncode)}")
    if on_gpu and verdict.device == "cpu":
        found.append("it ran on the CPU although there is a GPU")
    band = verdict.metrics.get("accuracy_band")
    if band is not None:
        accuracy = verdict.metrics.get("test_accuracy")
        try:
            low, high = band
            inside = low <= accuracy <= high
        except (TypeError, ValueError):
            inside = False
        if not inside:
            found.append(f"its test accuracy {accuracy} is outside {band}")
    return found


def phase(lines: Sequence[str]) -> str:
    """What the program was doing, by its last `Phase:` line."""
    last = next((line for line in reversed(lines) if line.startswith("Phase: ")), "Phase: starting Python")
    return re.sub(r"\s+", " ", last.removeprefix("Phase: ")).strip()


def _ending(returncode: int) -> str:
    number = -returncode if returncode < 0 else returncode - 128
    if number in SIGNALS:
        return f"it was ended by {SIGNALS[number]}{HINTS.get(number, '')}"
    return f"it ended with exit code {returncode}"


def _environment(on_gpu: bool) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": str(min(default_jobs(), MOST_THREADS))}
    return threads if on_gpu else {**threads, **CPU_ENVIRONMENT}


def _keep(target: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(target)
