"""Measure how commands grow with what a site has: `python -m bench.scale dist/NAME/TAG`, an image that was built here.

Makes copies of the image, each with a digest of its own and the same layers, and a cache of as many images' parts; runs
each command in a process of its own with few, four times as many and sixteen times as many, and says what it took of
the processor beside its own start; then plans the image's lock with 50, 200 and 800 packages. A minute, and little
disk: blobs are hard links. Writes nothing but its result.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.page import ROOT, machine, say, today
from graphcrate.compat.plan import planning
from graphcrate.compat.variants import catalog
from graphcrate.engines.embedded import records
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.model.lock import Lock, decode_lock

COUNTS = (10, 40, 160)
CACHED = 300 // 40  #: images in the cache for each in the folder: 300 beside 40
PARTS = 12  #: layers of an image that only it has, in the cache
COMMANDS = {
    "list": ("list",),
    "images": ("images", "--output", "{dist}"),
    "images prune": ("images", "prune", "--output", "{dist}"),
    "cache": ("cache", "--output", "{dist}"),
    "catalog": ("catalog", "--images", "{dist}", "--output", "{dist}/../site"),
}
PACKAGES = (50, 200, 800)  #: of a lock
#: of milliseconds; below that a growth is noise
LEAST = 50


def main() -> None:
    """Print a table of commands by counts."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("image", type=Path, help="the folder of an image: dist/NAME/TAG")
    given = options.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="graphcrate-scale-", dir=given.image) as folder:
        for count in COUNTS:
            place = Path(folder) / str(count)
            fill(place, given.image, count)
            for name, words in COMMANDS.items():
                say(f"{name} with {count} images")
                taken[name].append(seconds(words, place))
    sys.stdout.write(
        f"{today()}, {machine(Context.here(), on_gpu=False)}. Processor seconds:\n\n"
        f"| command | {' | '.join(f'{count} images' for count in COUNTS)} | growth for each 4 times |\n"
        f"|---|{'---|' * len(COUNTS)}---|\n"
    )
    for name, row in taken.items():
        sys.stdout.write(f"| `{name}` | {' | '.join(f'{each:.2f} s' for each in row)} | {growth(row)} |\n")
    lock = decode_lock((given.image / "lock.json").read_bytes())
    plans = [planned(lock, count) for count in PACKAGES]
    sys.stdout.write(
        f"\n| | {' | '.join(f'{count} packages' for count in PACKAGES)} | growth for each 4 times |\n"
        f"|---|{'---|' * len(PACKAGES)}---|\n"
        f"| a plan, its key and its layers | {' | '.join(f'{each:.2f} s' for each in plans)} | {growth(plans)} |\n"
    )


def growth(row: list[float]) -> str:
    """Say how many times as much the last step added as the one before it: 4 for n, 16 for n squared."""
    first, second = row[1] - row[0], row[2] - row[1]
    return f"{second / first:.1f} times" if first * 1000 > LEAST else "-"


def planned(lock: Lock, count: int) -> float:
    """Plan a lock with so many packages, and look for its layers in an empty cache; give the processor seconds."""
    packages = [
        msgspec.structs.replace(package, name=f"{package.name}-{number}" if number else package.name)
        for number in range(count // len(lock.packages) + 1)
        for package in lock.packages
    ]
    lock, ctx = msgspec.structs.replace(lock, packages=tuple(packages[:count])), Context.here()
    recipe, variant = catalog.find_variant(ctx, lock.recipe, lock.cuda)
    (candidate,) = (each for each in variant.candidates if each.name == lock.candidate)
    with (
        tempfile.TemporaryDirectory(prefix="graphcrate-scale-") as folder,
        contextlib.closing(Cache(Path(folder))) as cache,
    ):
        begun = time.process_time()
        plan = planning.make_plan(recipe, lock, candidate, examples={})
        planning.build_key(plan)
        records.layered(plan, cache)
        return time.process_time() - begun


def seconds(words: tuple[str, ...], place: Path) -> float:
    """Run a command and give its processor seconds, those of a second run: the first fills what is kept."""
    line = [sys.executable, "build.py", *(word.format(dist=place / "dist") for word in words)]
    environment = {**os.environ, "GRAPHCRATE_CACHE": str(place / "cache")}
    for _ in range(2):
        process = subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(line)} ended with {process.returncode}: {said.decode()}")
    return usage.ru_utime + usage.ru_stime


def fill(place: Path, image: Path, count: int) -> None:
    """Make a folder of copies of an image, and a cache that had them and others."""
    for number in range(count):
        copy(image, place / "dist" / image.parent.name, f"{image.name}-n{number}")
    for number in range(count * CACHED):
        for part in range(PARTS):
            name = hashlib.sha256(f"{number} {part}".encode()).hexdigest()
            for path in (f"blobs/sha256/{name}", f"layers/{name}.json", f"installations/9/{name}.msgpack"):
                (target := place / "cache" / path).parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(name.encode() * 10)


def copy(image: Path, folder: Path, tag: str) -> None:
    """Copy an image with another tag: its configuration has it too, so its digest is its own."""
    target = folder / tag
    shutil.copytree(image, target, copy_function=os.link, ignore=shutil.ignore_patterns("graphcrate-scale-*"))
    blobs = target / "oci" / "blobs" / "sha256"
    index = (target / "oci" / "index.json").read_text(encoding="utf-8")
    manifest = json.loads(index)["manifests"][0]["digest"].removeprefix("sha256:")
    config = json.loads((blobs / manifest).read_bytes())["config"]["digest"].removeprefix("sha256:")
    changed = {f'"{image.name}"': f'"{tag}"'}
    for name in (config, manifest):
        text = (blobs / name).read_text(encoding="utf-8")
        if name == config:
            text = json.dumps({**json.loads(text), "author": tag})
        data = replaced(text, changed).encode()
        size, digest = len((blobs / name).read_bytes()), hashlib.sha256(data).hexdigest()
        (blobs / name).unlink()
        (blobs / digest).write_bytes(data)
        changed |= {f'{name}","size":{size}': f'{digest}","size":{len(data)}', name: digest}
    for path in (target / "oci" / "index.json", target / "report.json"):
        text = replaced(path.read_text(encoding="utf-8"), changed)
        if path.name == "report.json":
            report = {**json.loads(text), "layout": str(target / "oci")}
            report["artifact"]["reference"] = report["layout"]
            text = json.dumps(report)
        path.unlink()  # a hard link to the image's own
        path.write_text(text, encoding="utf-8")


def replaced(text: str, changed: dict[str, str]) -> str:
    """Return the text with all of these in their new form."""
    for old, new in changed.items():
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    main()
