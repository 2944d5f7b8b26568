"""Trials of an image for another processor, by an emulator: its imports and five steps of a training.

It shows that the image's programs and libraries load and compute. It takes a processor minutes for what the suites do
in seconds, so those run on a machine of its own; and it says nothing of GPUs, which an emulator does not have.
"""

import hashlib
from collections.abc import Collection

import msgspec

from graphcrate.model.plan import VENV
from graphcrate.model.platform import Platform
from graphcrate.model.report import SmokeReport
from graphcrate.smoke.suites import Ran, SuiteProgram
from graphcrate.smoke.verdict import failed, judge_output, phase

NAME = "emulated"
LIMIT = 1500  #: seconds: two minutes of a processor of its own, more where many share it
#: Raise it with a change that may give another verdict: past results do not count then.
_JUDGING = 1
#: PyG swallows what an extension's import raises, so each is imported by name, before it
_FURTHER = ("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "pyg-lib", "torch-geometric")

#: Runs in the image, from Python 3.9 on. Says its phases and its verdict as the suites do.
_STEPS = """
import json, math, sys, time
start, versions = time.monotonic(), {}
print("Phase: importing torch (torch)", flush=True)
import torch
versions["torch"], versions["cuda"] = torch.__version__, torch.version.cuda
for name in sys.argv[1:]:
    print("Phase: importing", name, "(PyG)", flush=True)
    versions[name] = __import__(name).__version__
torch.manual_seed(0)
torch.set_num_threads(1)
edges = torch.randint(0, 64, (2, 256))
features, classes = torch.rand(64, 16), torch.arange(64) % 4
if "torch_scatter" in versions:
    print("Phase: adding up (torch_scatter)", flush=True)
    plain = torch.zeros(64, 16).index_add_(0, edges[0], features[edges[1]])
    theirs = sys.modules["torch_scatter"].scatter(features[edges[1]], edges[0], dim=0, dim_size=64, reduce="sum")
    if not torch.allclose(plain, theirs, atol=1e-5):
        raise SystemExit("torch_scatter adds up otherwise than torch")
print("Phase: training (torch)", flush=True)
sums = torch.zeros(64, 64).index_put_((edges[0], edges[1]), torch.ones(256), accumulate=True) + torch.eye(64)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
losses = []
for step in range(1, 6):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(sums @ features / sums.sum(1, keepdim=True)), classes)
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
    print(f"Step: {step:03d}, Loss: {losses[-1]:.4f}", flush=True)
learns = all(map(math.isfinite, losses)) and losses[-1] < losses[0]
verdict = {"suite": "emulated", "status": "passed" if learns else "failed", "device": "cpu", "versions": versions}
verdict["metrics"] = {"first_loss": round(losses[0], 4), "last_loss": round(losses[-1], 4), "steps": len(losses)}
verdict["reason"] = "" if learns else f"the losses of five steps do not fall: {losses}"
verdict["layer"] = None if learns else "training"
print(json.dumps(verdict), flush=True)
sys.exit(not learns)
"""


def program(platform: Platform, packages: Collection[str]) -> SuiteProgram:
    """The program for a platform. `packages`: what the image is said to have (normalised names)."""
    further = [name.replace("-", "_") for name in _FURTHER if name in packages]
    argv = (f"{VENV}/bin/python", "-c", _STEPS, *further)
    version = hashlib.sha256(repr((argv, _JUDGING)).encode()).hexdigest()[:16]
    title = f"imports and five steps by an emulator of {platform.title}, which prove nothing of a GPU"
    return SuiteProgram(NAME, f"{NAME} {version}", title, argv, LIMIT, _judge)


def marked(device: str, platform: Platform) -> str:
    """A device that a report names, as one that an emulator made: never a GPU, never a machine of that platform."""
    return f"{device.partition(' ')[0]} (emulating {platform.title})"


def _judge(program: SuiteProgram, ran: Ran, on_gpu: bool) -> SmokeReport:
    if ran.late:
        reason = f"{ran.late} (while {phase(ran.lines)[0]})"
        return failed(program.name, ran.seconds, reason, layer="machine", on_gpu=False)
    report = judge_output(program.name, ran.lines, ran.returncode, ran.seconds, on_gpu=False)
    return msgspec.structs.replace(report, device="cpu")
