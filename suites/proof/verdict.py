"""Runs a proof under a time limit and prints what came of it: one JSON object, the last line of stdout.

Any error in between is caught and blamed on a layer of the stack: a failed proof is a verdict, not a traceback.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import re
import signal
import sys
import threading
import time
import traceback
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CAUSES = 3  #: of an error that are told
GRACE_SECONDS = 5.0  #: after the limit, for a hang that keeps Python's own threads from running


class Layer(str, Enum):  # StrEnum came with Python 3.11
    """The layer to blame."""

    DRIVER = "driver"
    CUDA = "CUDA library"
    SYSTEM = "C library"
    TORCH = "torch"
    EXTENSION = "extension"
    PYG = "PyG"
    GLT = "GLT"
    NETWORK = "network"
    DATA = "data"
    MACHINE = "machine"
    TRAINING = "training"


class Fault(Exception):  # noqa: N818  it is what the stack has
    """A reason to fail: the layer at fault, what was seen, what to do."""

    def __init__(self, layer: Layer, what: str) -> None:
        super().__init__(what)
        self.layer = layer


#: what an error's text says of its layer, in order: the first that matches
SIGNS = (
    (
        Layer.MACHINE,
        r"out of memory|Cannot allocate memory|DefaultCPUAllocator|shared memory|No space left|No usable temporary",
    ),
    (
        Layer.DRIVER,
        r"driver version is insufficient|driver on your system is too old|no NVIDIA driver|driver initialization failed"
        r"|unsupported display driver|forward compatibility was attempted|libcuda\.so|CUDA-capable device",
    ),
    (Layer.SYSTEM, r"version [`']?(GLIBC|GLIBCXX|CXXABI)_"),
    (Layer.TORCH, r"no kernel image is available|PTX was compiled with an unsupported toolchain"),
    (
        Layer.CUDA,
        r"lib(cudart|cublas|cublasLt|cudnn\w*|nccl|cusparse\w*|nvrtc\S*|cufft|cusolver|curand|cupti|nvJitLink|nvToolsExt)\.so"
        r"|CUBLAS_STATUS|CUDNN_STATUS|cuDNN error",
    ),
    (
        Layer.EXTENSION,
        r"(torch_scatter|torch_sparse|torch_cluster|torch_spline_conv|pyg_lib|libpyg)\b.*"
        r"(undefined symbol|cannot open shared object|Could not find|not compiled with CUDA)",
    ),
    (
        Layer.NETWORK,
        r"Address already in use|Connection (refused|reset|closed)|TCPStore|[Tt]ensorpipe|RPC .*(timed out|timeout)"
        r"|[Gg]loo.*([Cc]onnect|[Tt]imed out)|failed to (connect|listen)|Unable to find address"
        r"|NCCL [Ee]rror|nccl(Internal|System|Remote)Error|Watchdog caught collective",
    ),
)


KNOWN_MODULES = {
    "torch": Layer.TORCH,
    "torch_geometric": Layer.PYG,
    "torch_sparse": Layer.EXTENSION,
    "graphlearn_torch": Layer.GLT,
}


def blame(error: BaseException, suspect: Layer) -> Layer:
    """The layer at fault: the error's own, or what its text says, or the suspect of the phase it came up in."""
    if isinstance(error, Fault):
        return error.layer
    if isinstance(error, MemoryError):
        return Layer.MACHINE
    if isinstance(error, ModuleNotFoundError):
        return KNOWN_MODULES.get((error.name or "").split(".")[0], suspect)
    text = explained(error)
    return next((layer for layer, sign in SIGNS if re.search(sign, text, re.DOTALL)), suspect)


def explained(error: BaseException) -> str:
    """The error in a line, with what it came from; of another process's traceback its beginning and its end."""
    told: list[str] = []
    found: BaseException | None = error
    while found is not None and len(told) < MOST_CAUSES:
        lines = [line.strip() for line in str(found).splitlines() if line.strip()]
        if any(line.startswith("Traceback (most recent call last)") for line in lines):
            lines = [lines[0], lines[-1]]
        told.append(f"{type(found).__name__}: {_short(' '.join(lines))}")
        found = found.__cause__
    return _short("; from ".join(told))


class Proof:
    """A proof that is going on. Fill in `device`, `metrics`, `versions` and `extra` as they become known."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.device = "none"
        self.metrics: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        self.phase = "starting"
        self.suspect = Layer.MACHINE
        self._start = time.monotonic()
        self._once = threading.Lock()
        self._told = False

    def enter(self, phase: str, suspect: Layer) -> None:
        """Say what begins, and which layer is to blame should it fail in an unknown way, or crash without a word."""
        self.phase, self.suspect = phase, suspect
        self.say(f"Phase: {phase} ({suspect.value})")

    def say(self, line: str) -> None:
        """A line for people; a closed pipe is no reason to fail."""
        with contextlib.suppress(BrokenPipeError):
            print(line, flush=True)

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return time.monotonic() - self._start

    def tell(self, fault: Fault | None) -> None:
        """Print the verdict; only the first call does."""
        with self._once:
            if self._told:
                return
            self._told = True
            verdict: dict[str, Any] = {
                "suite": self.suite,
                "status": "failed" if fault else "passed",
                "device": self.device,
                **self.extra,
                "seconds": round(self.seconds, 2),
                "metrics": self.metrics,
                "versions": self.versions,
                "layer": fault.layer.value if fault else None,
                "phase": self.phase,
                "reason": f"{fault.layer.value}: {fault} (while {self.phase})" if fault else "",
            }
            self.say(json.dumps(plain(verdict), allow_nan=False, default=str))


def plain(value: Any) -> Any:  # noqa: ANN401  whatever a verdict has
    """The same with the numbers that JSON lacks, NaN and the infinities, as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def prove(suite: str, body: Callable[[Proof], None], limit: float | None, kind: Callable[[str], Proof] = Proof) -> int:
    """Run `body` for at most `limit` seconds, print the verdict, return the exit code: 0 passed, 1 failed."""
    proof = kind(suite)
    with contextlib.suppress(Exception):  # stderr may be no real file
        faulthandler.enable()  # a crash inside a library then shows where
    timer = _watch(proof, limit) if limit else None
    fault: Fault | None = None
    before = signal.signal(signal.SIGTERM, _ended)
    try:
        body(proof)
    except Fault as error:
        fault = error
    except KeyboardInterrupt:
        fault = Fault(Layer.MACHINE, "interrupted")
    except BaseException as error:  # the verdict must come whatever happened
        traceback.print_exc()
        fault = Fault(blame(error, proof.suspect), explained(error))
    signal.signal(signal.SIGTERM, before)
    if timer:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
    proof.tell(fault)
    return 1 if fault else 0


def _ended(number: int, frame: object) -> None:
    raise Fault(Layer.MACHINE, f"ended from outside by {signal.Signals(number).name}")


def _watch(proof: Proof, limit: float) -> threading.Timer:
    def expire() -> None:
        end_at_once(proof, Fault(Layer.MACHINE, f"not finished within the limit of {limit:g} s"))

    timer = threading.Timer(limit, expire)
    timer.daemon = True
    timer.start()
    with contextlib.suppress(Exception):
        faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True)
    return timer


def _short(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= 500 else first[:499] + "…"


def end_at_once(proof: Proof, fault: Fault) -> None:
    """Give the verdict and end, from any thread: the main thread may hang inside a library."""
    proof.tell(fault)
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            child.kill()
    exit_with(1)


def exit_with(code: int) -> None:
    """End at once: a library's own shutdown (NCCL, CUDA) must not change a verdict that was told."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
