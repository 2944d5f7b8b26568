"""The verdict on a suite's program. Its word is not taken: where the run contradicts it, it has failed.

Pure. Raise `smoke.suites.JUDGING` with a change that may give another verdict.
"""

import contextlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.report import SmokeReport
from graphcrate.model.words import printable

_LAST_LINES = 8
_NO_GPU = ("cpu", "none", "")  #: what a verdict says of the device where it used no GPU, or ended earlier
#: whom a failure may be blamed on; `Layer` of suites/proof/verdict.py
LAYERS = (
    *("driver", "CUDA library", "C library", "torch", "extension", "PyG", "GLT"),
    *("network", "data", "machine", "training"),
)
#: by number: a signal's name, a hint, and whether it speaks of the machine and not of the program
_SIGNALS = {
    4: ("SIGILL", "; the CPU lacks an instruction that the wheel was built with", True),
    6: ("SIGABRT", "", False),
    7: ("SIGBUS", "; /dev/shm or memory may be too small", True),
    8: ("SIGFPE", "", False),
    9: ("SIGKILL", "; the machine may have run out of memory", True),
    11: ("SIGSEGV", "; an extension built for another torch crashes like this", False),
    15: ("SIGTERM", "", True),
}


class Verdict(msgspec.Struct, frozen=True):
    """The programs' last line. Other fields in it are figures too."""

    suite: str
    status: Literal["passed", "failed"]
    device: str
    metrics: dict[str, Any]
    versions: dict[str, Any]
    reason: str = ""
    layer: str | None = None


def judge_output(name: str, lines: Sequence[str], returncode: int, seconds: float, *, on_gpu: bool) -> SmokeReport:
    """The report of a run that ended, from its output and exit code (-N or 128 + N after signal N).

    The reason of a failure begins with the layer at fault, where that is known.
    """
    printed = read_verdict(name, lines)
    if isinstance(printed, str):
        layer, ending = _ending(returncode, lines)
        reason = f"{ending} while {phase(lines)[0]}: {printed}; last lines: {tail(lines)}"
        return failed(name, seconds, reason, layer=layer, on_gpu=on_gpu)
    verdict, figures = printed
    reason, layer = verdict.reason or "the program gives no reason", verdict.layer or ""
    if verdict.status == "passed":
        against = contradictions(verdict, lines, returncode, on_gpu=on_gpu)
        layer, reason = against[0][0] if against else "", "; ".join(words for _, words in against)
    return SmokeReport(
        suite=name,
        status="failed" if reason else "passed",
        device=verdict.device if on_gpu else "cpu",
        seconds=seconds,
        metrics={**verdict.metrics, **figures, "versions": verdict.versions},
        reason=_blaming(layer, reason),
        layer=layer,
    )


def tail(lines: Sequence[str]) -> str:
    """The last lines of an output, in one."""
    return " | ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip()) or "no output"


def failed(name: str, seconds: float, reason: str, *, layer: str, on_gpu: bool) -> SmokeReport:
    """The report of a run that gave no verdict."""
    device, reason = "gpu" if on_gpu else "cpu", _blaming(layer, reason)
    return SmokeReport(suite=name, status="failed", device=device, seconds=seconds, reason=reason, layer=layer)


def _blaming(layer: str, reason: str) -> str:
    return reason if not layer or reason.startswith(f"{layer}:") else f"{layer}: {reason}"


def read_verdict(name: str, lines: Sequence[str]) -> tuple[Verdict, dict[str, Any]] | str:
    """The last JSON line and its further figures, or why there is none to go by."""
    last = next((line for line in reversed(lines) if line.startswith('{"suite"')), None)
    if last is None:
        return "it gave no verdict"
    try:
        verdict = codec.decode(last, Verdict)
        fields = codec.decode(last, dict[str, Any])
    except (*UNREADABLE, UnicodeEncodeError) as error:
        return f"its verdict cannot be read ({error})"
    if verdict.suite != name:
        return f"its verdict is on {verdict.suite!r}, not on {name!r}"
    known = {*Verdict.__struct_fields__, "seconds", "phase"}
    return verdict, {key: value for key, value in fields.items() if key not in known}


def contradictions(verdict: Verdict, lines: Sequence[str], returncode: int, *, on_gpu: bool) -> list[tuple[str, str]]:
    """List contradictions of a run that says `passed`: (layer, what)."""
    reasons = []
    if returncode:
        layer, ending = _ending(returncode, lines)
        reasons.append((layer, f"it said passed, then {ending}"))
    if on_gpu and verdict.device in _NO_GPU:
        reasons.append(("driver", "it ran on the CPU although there is a GPU"))
    if not on_gpu and verdict.device not in _NO_GPU:
        reasons.append(("", f"it says that it ran on {printable(verdict.device)}, and it was given no GPU"))
    band = verdict.metrics.get("accuracy_band")
    if band is not None:
        accuracy, is_inside = verdict.metrics.get("test_accuracy"), False
        with contextlib.suppress(TypeError, ValueError):
            low, high = band
            is_inside = low <= accuracy <= high
        if not is_inside:
            reasons.append(("training", f"its test accuracy {accuracy} is outside {band}"))
    return reasons


def phase(lines: Sequence[str]) -> tuple[str, str]:
    """Find the program's last `Phase:` line, and the layer suspected in it; empty: none is named.

    "Phase: importing torch_scatter 2.1.2 (extension)".
    """
    last = next((line for line in reversed(lines) if line.startswith("Phase: ")), "Phase: starting Python")
    name = re.sub(r"\s+", " ", last.removeprefix("Phase: ")).strip()
    what, _, rest = name.rpartition(" (")
    return (what, rest[:-1]) if rest.endswith(")") and rest[:-1] in LAYERS else (name, "")


def _ending(returncode: int, lines: Sequence[str]) -> tuple[str, str]:
    """(the layer at fault, how the program ended)."""
    doing, suspect = phase(lines)
    name, hint, of_machine = _SIGNALS.get(-returncode if returncode < 0 else returncode - 128, ("", "", False))
    if not name:
        return suspect, f"it ended with exit code {returncode}"
    if name == "SIGBUS" and doing.startswith("importing "):  # memory ends a program elsewhere
        hint, of_machine = "; a library that is cut off ends like this", False
    return ("machine" if of_machine else suspect), f"it was ended by {name}{hint}"
