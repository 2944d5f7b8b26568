"""A torch that is cut to this machine's GPU, compared with the whole one, bit for bit.

    python3 -m bench.slim_gpu [--site DIR] [--folder DIR] [--device cuda]
    .venv/bin/python -m bench.slim_gpu --images pyg:WHOLE pyg:CUT

Copies torch and NVIDIA's packages from a site-packages (this Python's own, if none is named) to a folder, cuts the
copy to the GPU, and runs the same operations with both: matmul, convolution, FFT, sparse, sort, scatter, random
numbers, attention, a training step. Or runs them in two images that are here. The whole one runs twice: what differs
between its own runs is not counted. Prints a table; ends with 1 where a result differs. Needs torch and no network.
"""

import argparse
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from graphcrate.compat.facts import slim
from graphcrate.compat.facts.facts import ordered
from graphcrate.inputs.wheels.slim import cut_file
from graphcrate.model.plan import Slim

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  #: cuBLAS computes the same each time with these alone
VARIABLES_BY_ENV = ["env", *(f"{name}={value}" for name, value in VARIABLES.items())]
PACKAGES = re.compile(r"(torch|nvidia|triton|torchgen|functorch|cusparselt)([-_.].*)?")
OPERATIONS = """
import hashlib, json, sys
import torch
attention = torch.nn.functional.scaled_dot_product_attention
device = sys.argv[1]
torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
def fixed(*shape, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), **options).to(device)
def step():
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 10)
    model = torch.nn.Sequential(*layers)
    for parameter in model.parameters():
        parameter.data = fixed(*parameter.shape) * 0.01
    loss = torch.nn.functional.cross_entropy(model(fixed(4, 3, 16, 16)), torch.arange(4, device=device))
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
a, index = fixed(512, 512), torch.randint(0, 64, (512,), generator=torch.Generator().manual_seed(3)).to(device)
sparse = torch.where(a > 1, a, torch.zeros_like(a)).to_sparse_csr()
results = {
    "matmul float32": lambda: a @ a,
    "matmul float64": lambda: a.double() @ a.double(),
    "matmul float16": lambda: a.half() @ a.half(),
    "matmul bfloat16": lambda: a.bfloat16() @ a.bfloat16(),
    "conv2d": lambda: torch.nn.functional.conv2d(fixed(8, 3, 64, 64), fixed(16, 3, 3, 3)),
    "conv3d": lambda: torch.nn.functional.conv3d(fixed(2, 3, 16, 16, 16), fixed(4, 3, 3, 3, 3)),
    "fft": lambda: torch.view_as_real(torch.fft.fft2(a)),
    "fft of 3 x 5 x 7": lambda: torch.view_as_real(torch.fft.fft(fixed(105))),
    "sparse": lambda: sparse @ a,
    "sort": lambda: a.flatten().sort().values,
    "scatter": lambda: torch.zeros(64, 512, device=device).index_add(0, index, a),
    "cumsum": lambda: a.cumsum(0),
    "random": lambda: torch.randn(1000, device=device, generator=torch.Generator(device).manual_seed(4)),
    "solve": lambda: torch.linalg.solve(a + 50 * torch.eye(512, device=device), a),
    "svd": lambda: torch.linalg.svdvals(a),
    "attention": lambda: attention(*(fixed(2, 4, 64, 64) for _ in range(3))),
    "attention float16": lambda: attention(*(fixed(2, 4, 64, 64).half() for _ in range(3))),
    "gelu and softmax": lambda: torch.nn.functional.gelu(fixed(64, 64)).softmax(1),
    "training step": step,
}
made = {}
for name, operation in results.items():
    try:
        value = operation().detach().to("cpu").contiguous()
        made[name] = hashlib.sha256(value.view(torch.uint8).numpy().tobytes()).hexdigest()
    except Exception as error:
        made[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print(json.dumps(made))
"""


Runner = Callable[[], dict[str, str]]  #: runs the operations: the digest of each one's result, or its error


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--site", type=Path, default=Path(sysconfig.get_path("purelib")))
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options.add_argument("--device", default="cuda")
    options.add_argument("--capability", help="cut to this one instead of the GPU's: 9.0")
    options.add_argument("--images", nargs=2, metavar=("WHOLE", "CUT"), help="tags of images below dist/")
    given = options.parse_args()
    if given.images:
        whole, cut = (functools.partial(run_in_image, tag, given.device) for tag in given.images)
        return compare(whole, cut)
    folder = Path(tempfile.mkdtemp(dir=given.folder, prefix="slim-"))
    try:
        cut_copy(given.site, folder, given.capability)
        whole, cut = (functools.partial(run_in_folder, site, given.device) for site in (given.site, folder))
        return compare(whole, cut)
    finally:
        shutil.rmtree(folder)


def cut_copy(site: Path, folder: Path, capability: str | None) -> None:
    """Copy torch and NVIDIA's packages to a folder and cut them to a compute capability, the GPU's if none is named."""
    for path in site.iterdir():
        if PACKAGES.fullmatch(path.name):
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / path.name)
    asked = "import torch; print('.'.join(map(str, torch.cuda.get_device_capability())))"
    capability = capability or python(site, "-c", asked).strip()
    wish = Slim(capabilities=ordered([capability]), ptx=False, everything=True)
    zeros = size = 0
    for path in sorted(folder.rglob("*.so*")):
        if path.is_file() and slim.may_cut("torch", str(path), path.stat().st_size, wish):
            with path.open("r+b", buffering=0) as stream:
                zeros += cut_file(stream, path.name, wish)[0]
            size += path.stat().st_size
    print(f"cut to {capability}: {zeros / 1e6:.0f} of {size / 1e6:.0f} MB are zeros")


def compare(whole: Runner, cut: Runner) -> int:
    """Run the whole one twice and the cut one once, print what came out; 1 where the cut one alone differs."""
    first, second, other = whole(), whole(), cut()
    print("| operation | whole and cut |\n|---|---|")
    differing = 0
    for name, value in first.items():
        if value != second[name]:
            said = "differs between two runs of the whole one"
        elif value == other[name]:
            said = "bit for bit the same"
        else:
            differing += 1
            said = f"**differs**: {value[:60]} / {other[name][:60]}"
        error = "" if len(value) == hashlib.sha256().digest_size * 2 else f": {value[:80]}"
        print(f"| {name} | {said}{error} |")
    return int(differing > 0)


def run_in_folder(site: Path, device: str) -> dict[str, str]:
    results: dict[str, str] = json.loads(python(site, "-c", OPERATIONS, device))
    return results


def run_in_image(tag: str, device: str) -> dict[str, str]:
    command = [str(ROOT / "build.py"), "run", tag, "--", *VARIABLES_BY_ENV, "python", "-c", OPERATIONS, device]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    results: dict[str, str] = json.loads(done.stdout)
    return results


def python(site: Path, *arguments: str) -> str:
    """stdout of this Python with the packages of a folder in front."""
    environment = {"PYTHONPATH": str(site), **VARIABLES, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
