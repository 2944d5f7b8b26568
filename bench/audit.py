"""The audit of an image beside NVIDIA's `cuobjdump -lelf` over the same libraries: time, memory, architectures.

    .venv/bin/python -m bench.audit torch:2.0.1-cu117-py311 [--cuobjdump PATH] [--rounds 3]

Both get the image unpacked in a folder: cuobjdump its libraries with GPU code, one after another, and lists them; the
audit reads every program and library and does all of its checks. Then the audit of the image as it is, compressed, with
nothing remembered, and with its layers remembered. cuobjdump is in Debian's nvidia-cuda-toolkit (non-free), which
need not be installed: `apt-get download nvidia-cuda-toolkit && dpkg -x nvidia-cuda-toolkit_*.deb toolkit`.
"""

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from graphcrate.artifacts.tree.binaries import read_binary
from treeaudit.values import GpuCode

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str]) -> int:
    """Measure, compare, and print what came out; 1 where the architectures differ."""
    given = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rootfs = place / "rootfs"
        subprocess.run([*build_py("convert"), given.ref, "--to", "rootfs", "--output", rootfs], check=True)
        libraries = with_code(rootfs)
        size = sum(path.stat().st_size for path in rootfs.rglob("*") if path.is_file() and not path.is_symlink())
        print(f"{given.ref}: {size / 1e9:.1f} GB of files, {len(libraries)} libraries with GPU code", flush=True)
        print(about())
        caches = [place / f"cache{number}" for number in range(given.rounds)]
        unpacked = measured("audit of the folder", str(rootfs), [place / "cache"] * given.rounds)
        measured("audit of the image", given.ref, caches)
        measured("audit of the image, its layers remembered", given.ref, caches)
        if given.cuobjdump is None:
            print("cuobjdump: not here; --cuobjdump PATH compares with it")
            return 0
        began = time.monotonic()
        theirs = {path: listed(given.cuobjdump, path) for path in libraries}
        other = time.monotonic() - began
        print(f"cuobjdump: {other:.1f} s; the audit of the folder takes {unpacked / other:.2f} of its time")
        different = [path for path, code in libraries.items() if {*code.sass, *code.some} != theirs[path]]
        for path in different:
            ours = sorted({*libraries[path].sass, *libraries[path].some})
            print(f"{path.name}: audit {ours}, cuobjdump {sorted(theirs[path])}")
        print(f"architectures: the same in {len(libraries) - len(different)} of {len(libraries)} libraries")
        return 1 if different else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def build_py(*command: str) -> list[str]:
    """A command of the command line."""
    return [sys.executable, "-E", "-s", str(ROOT / "build.py"), *command]


def about() -> str:
    """The machine and the day."""
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}"


def with_code(rootfs: Path) -> dict[Path, GpuCode]:
    """The libraries with GPU code, and for which architectures."""
    found = {}
    for path in sorted(rootfs.rglob("*.so*")):
        if path.is_file() and not path.is_symlink():
            one = read_binary(path, path.name)
            if one is not None and one.code != GpuCode():
                found[path] = one.code
    return found


def measured(what: str, ref: str, caches: Sequence[Path]) -> float:
    """Seconds of the quickest of several audits, one for each cache."""
    audits = [audited(ref, cache) for cache in caches]
    seconds, memory = min(one for one, _ in audits), max(one for _, one in audits)
    print(f"{what}: {seconds:.1f} s at best of {len(audits)}, {memory / 1e6:.0f} MB of memory at most", flush=True)
    return seconds


def audited(ref: str, cache: Path) -> tuple[float, int]:
    """(seconds, bytes of memory of the largest audit until now)."""
    environment = {**os.environ, "GRAPHCRATE_CACHE": str(cache)}
    began = time.monotonic()
    done = subprocess.run(build_py("audit", ref, "--json"), env=environment, stdout=subprocess.PIPE, check=False)
    seconds = time.monotonic() - began
    if not json.loads(done.stdout)["binaries"]:
        raise SystemExit("the audit read nothing")
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def listed(cuobjdump: str, library: Path) -> set[str]:
    """Compute capabilities of the machine code in a library, as NVIDIA's tool lists it."""
    done = subprocess.run([cuobjdump, "-lelf", library], capture_output=True, text=True, check=False)
    return {f"{number[:-1]}.{number[-1]}{suffix}" for number, suffix in re.findall(r"\.sm_(\d+)([af]?)\.", done.stdout)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
