"""Predicted = observed: what the audit says of real packages, against a real import of them in a clean base.

    python -m bench.audit_imports observe --out FILE.json [--predict] [--torch 2.3.1] [--only torchvision]
    python -m bench.audit_imports observe --out FILE.json --predict --again predict
    python -m bench.audit_imports compare FILE.json

Takes the pairs of bench/audit_pairs.toml one after the other: the wheels of the package index, at exactly these
versions, go into an empty site-packages of a Debian base; there each library is loaded as Python loads it and each
package is imported, without a GPU. With `--predict`, `./build.py audit` judges the same folder. A pair that FILE.json
has is not done again. Needs room for one torch with its CUDA libraries and what goes with it, at most 10 GB.

What fails for lack of the driver's own libraries (libcuda.so.1) is tried again with those of Debian's driver package,
so that all else that it needs is seen too.
"""

import argparse
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.audit_record import (
    Finding,
    Group,
    Observation,
    Outcome,
    Pair,
    Pairs,
    Prediction,
    merged,
    needs_driver,
    plain,
    summary,
)
from graphcrate.host import process, settings
from graphcrate.host.arguments import line
from graphcrate.host.context import Context
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.inputs.bases import Base, debian, debs
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.recipe import BaseSpec
from graphcrate.resolve.sources.uv import uv_program
from graphcrate.resolve.stack.pinning import constraints_of
from nsbox.box import Bind

ROOT = Path(__file__).resolve().parent.parent
PAIRS = ROOT / "bench" / "audit_pairs.toml"
SUITES = {"3.9": "bullseye", "3.11": "bookworm", "3.13": "trixie"}
#: of wheels, whatever the base has: one that asks for too much is what some pairs are about
PLATFORM = "x86_64-manylinux_2_40"
#: the driver's libraries, of the newest suite whose files run on all
DRIVER_SUITE, DRIVER_PACKAGES, NON_FREE = "bookworm", ("libcuda1", "libnvidia-ml1"), ("contrib", "non-free")
DRIVER, PROBE, FOUND, BYTECODE = "/driver", "/probe", "/found", "/bytecode"
SECONDS = 120  #: for one import or one library
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_TOLD = 12  #: lines of a program that failed


class Ground(NamedTuple):
    """The ground that pairs are observed on."""

    suite: str
    base: Base
    driver: Path
    work: Path
    wheels: Path | None
    place: Context

    @property
    def packages(self) -> str:
        """The folder in which the base's Python looks for packages."""
        return f"/usr/local/lib/python{'.'.join(self.base.python_version.split('.')[:2])}/dist-packages"


def main(arguments: Sequence[str]) -> int:
    """Observe or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    observing = commands.add_parser("observe")
    observing.add_argument("--out", type=Path, required=True, help="where observations are kept")
    observing.add_argument(
        "--predict", action="store_true", help="ask the audit too; pairs without its answer are redone"
    )
    observing.add_argument("--torch", nargs="+", help="only groups with these versions (none: without torch)")
    observing.add_argument("--only", default="", help="only pairs whose name has this")
    observing.add_argument("--again", choices=("observe", "predict"), nargs="+", default=(), help="what is done")
    observing.add_argument(
        "--wheels", type=Path, help="a folder with wheels that the index does not have: compiled ones"
    )
    observing.add_argument("--work", type=Path, help="where to unpack (default: below the cache)")
    comparing = commands.add_parser("compare")
    comparing.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "compare":
        print("\n".join(summary(read(given.file), pairs().idle)))
        return 0
    ctx = Context.here()
    with ctx.cache.folder() as folder:
        for group in pairs().groups:
            if given.torch is None or (group.torch or "none") in given.torch:
                observe_group(group, given, ctx, given.work or folder)
    return 0


def pairs() -> Pairs:
    """Return the pairs to observe; each torch alone comes first in its group."""
    told = msgspec.convert(tomllib.loads(PAIRS.read_text()), Pairs)
    alone = Pair(packages=(), about="torch alone")
    groups = [msgspec.structs.replace(one, pairs=(alone, *one.pairs)) if one.torch else one for one in told.groups]
    return msgspec.structs.replace(told, groups=tuple(groups))


def read(path: Path) -> dict[str, Observation]:
    """The observations so far, by the pairs' names."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Observation]) if path.is_file() else {}


def observe_group(group: Group, given: argparse.Namespace, ctx: Context, work: Path) -> None:
    """All pairs of one torch that are not in the file yet; the file has each as soon as it is observed."""
    done = read(given.out)

    def is_open(pair: Pair) -> bool:
        before = done.get(group.name(pair))
        return given.only in group.name(pair) and (
            bool(given.again) or before is None or (given.predict and not before.judged)
        )

    wanted = [pair for pair in group.pairs if is_open(pair)]
    if not wanted:
        return
    ground = prepare(SUITES[group.python], group.python, ctx, work, given.wheels)
    for pair in wanted:
        name, start = group.name(pair), time.monotonic()
        try:
            before = None if "observe" in given.again else done.get(name)
            found = observe(group, pair, ground, before, predict=given.predict, known=looked_at(group, pair, done))
        except GraphcrateError as error:
            say(f"{name}: {error}")
            continue
        done = {**read(given.out), name: found}
        ctx.cache.write(given.out.absolute(), msgspec.json.format(msgspec.json.encode(done)))
        broken = sum(not one.ok for one in found.files.values())
        failed = [each for each, one in found.imports.items() if not one.ok]
        told = f"; fails: import {', '.join(failed)}" if failed else ""
        say(f"{name}: {broken} of {len(found.files)} broken{told}; {time.monotonic() - start:.0f} s")
    for name in ("uv", "bytecode"):
        remove_tree(work / name)


def looked_at(group: Group, pair: Pair, done: Mapping[str, Observation]) -> set[tuple[str, str]]:
    """(distribution, version) of what was seen beside this torch before; the pair's own packages are always seen."""
    own = {plain(_name(package)) for package in pair.packages}
    if not own:
        return set()
    before = [found for name, found in done.items() if name != group.name(pair) and found.torch == group.torch]
    before = [found for found in before if found.suite == SUITES[group.python]]
    return {item for found in before for item in found.installed.items() if plain(item[0]) not in own}


def _name(requirement: str) -> str:
    return re.split(r"[=<>!~ \[]", requirement)[0]


def prepare(suite: str, python: str, ctx: Context, work: Path, wheels: Path | None) -> Ground:
    """The base as it is today, and the driver's libraries."""
    spec = BaseSpec(suite=suite)
    locked = debian.lock(spec, python, ctx)
    base = debian.prepare(locked, ctx)
    return Ground(suite, base, driver_libraries(ctx, work), work, wheels, ctx)


def driver_libraries(ctx: Context, work: Path) -> Path:
    """A folder with the driver's libraries, as Debian packs them."""
    folder = work / "driver"
    if folder.is_dir():
        return folder
    with ctx.cache.folder() as scratch:
        archive = SuiteArchive(DRIVER_SUITE, ctx, NON_FREE)
        newest = {package.name: package for package in reversed(archive.available(DRIVER_PACKAGES))}
        packages, tree = [newest[name] for name in DRIVER_PACKAGES], scratch / "tree"
        found = debs.fetch_debs(packages, DRIVER_SUITE, ctx, listed=archive.listed, what="driver")
        for deb in sorted(found, key=lambda path: path.name):
            process.output(line("dpkg-deb", "-x", str(deb), str(tree)))
        (current,) = tree.glob("usr/lib/*/nvidia/current")
        folder.parent.mkdir(parents=True, exist_ok=True)
        current.rename(folder)
    return folder


def observe(
    group: Group, pair: Pair, ground: Ground, before: Observation | None, *, predict: bool, known: Set[tuple[str, str]]
) -> Observation:
    """One pair: its wheels in a folder, what they do there, and what the audit makes of it. Raises GraphcrateError.

    What was observed `before` of the same versions is not looked at again.
    """
    site = ground.work / "site"
    remove_tree(site)
    try:
        install(group, pair, site, ground)
        there = {found.metadata["Name"]: found for found in distributions(path=[str(site)])}
        installed = {name: found.version for name, found in sorted(there.items())}
        new = [found for name, found in there.items() if (name, found.version) not in known]
        owners = {file: found.metadata["Name"] for found in new for file in libraries(found, site)}
        predicted = audit(site, ground.base) if predict else None
        if before is not None and before.installed == installed:
            return msgspec.structs.replace(before, predicted=predicted or before.predicted)
        imports, files = probe(imports_of(pair), sorted(owners), "torch" if group.torch else "", site, ground)
    finally:
        remove_tree(site)
    return Observation(
        torch=group.torch,
        packages=pair.packages,
        about=pair.about,
        suite=ground.suite,
        python=ground.base.python_version,
        glibc=ground.base.glibc,
        installed=installed,
        imports=imports,
        files={name: msgspec.structs.replace(one, package=owners[name]) for name, one in files.items()},
        predicted=predicted,
    )


def imports_of(pair: Pair) -> list[str]:
    """List the modules to import: the packages by their names unless the pair says otherwise, or torch itself."""
    names = [_name(package).replace("-", "_") for package in pair.packages]
    return list(pair.imports or names) or ["torch"]


def install(group: Group, pair: Pair, site: Path, ground: Ground) -> None:
    """The pair's wheels and what their metadata asks for, but this very torch. Raises ResolutionError, NetworkError."""
    torch = [f"torch=={group.torch}"] if group.torch else []
    without = [*pair.without, *([] if torch else ["torch"])]
    files = {
        "overrides": [*torch, *pair.packages],
        "excludes": without,
        "constraints": constraints_of(group.torch) if torch else [],
        "requirements": [*torch, *pair.packages, *pair.requirements],
    }
    for name, lines in files.items():
        (ground.work / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    argv = [
        uv_program(),
        "pip",
        "install",
        "--no-config",
        "--no-progress",
        "--no-build",
        "--link-mode",
        "hardlink",
    ]
    argv += ["--python", sys.executable, "--python-version", group.python, "--python-platform", PLATFORM]
    argv += ["--target", str(site), "--cache-dir", str(ground.work / "uv")]
    argv += [word for name in files for word in (f"--{name}", str(ground.work / f"{name}.txt"))]
    argv += ["--find-links", str(ground.wheels.absolute())] if ground.wheels else []
    done = process.run(line(*argv), environment=settings.child_environment(), timeout=1800)
    if done.returncode:
        raise GraphcrateError("uv cannot install it\n" + "\n".join(done.lines[-_TOLD:]))


def libraries(found: Distribution, site: Path) -> Iterator[str]:
    """Paths below the folder of a distribution's ELF libraries."""
    for file in found.files or ():
        if _LIBRARY.search(file.name) and (site / file).is_file():
            with (site / file).open("rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    yield str(file)


def probe(
    imports: Sequence[str], files: Sequence[str], first: str, site: Path, ground: Ground
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """(imports, libraries) of a site-packages folder: what became of each. Raises GraphcrateError."""
    imported, loaded = probe_once(imports, files, first, site, ground, {})
    again = needs_driver(imported), needs_driver(loaded)
    if any(again):
        more = probe_once(*again, first, site, ground, {"LD_LIBRARY_PATH": DRIVER})
        imported, loaded = merged(imported, more[0]), merged(loaded, more[1])
    return imported, loaded


def probe_once(
    imports: Sequence[str],
    files: Sequence[str],
    first: str,
    site: Path,
    ground: Ground,
    variables: Mapping[str, str],
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """`probe` with these variables, and without another try."""
    orders = {"site": ground.packages, "first": first, "imports": imports, "files": files, "seconds": SECONDS}
    with ground.place.cache.folder() as folder:
        (folder / "orders.json").write_bytes(msgspec.json.encode(orders))
        bytecode = ground.work / "bytecode"  # of torch, for all pairs
        bytecode.mkdir(exist_ok=True)
        binds = [Bind(site, ground.packages), Bind(ROOT / "bench", PROBE), Bind(ground.driver, DRIVER)]
        binds += [Bind(folder, FOUND, read_only=False), Bind(bytecode, BYTECODE, read_only=False)]
        command = [ground.base.python, f"{PROBE}/import_probe.py", f"{FOUND}/orders.json", f"{FOUND}/found.json"]
        environment = {**ground.base.environment, "LANG": "C.UTF-8", "PYTHONPYCACHEPREFIX": BYTECODE, **variables}
        done = run_in(ground.base.rootfs, Exec(command, environment, binds, timeout=3600))
        found = folder / "found.json"
        if done.returncode or not found.is_file():
            raise GraphcrateError("the probe failed\n" + "\n".join(done.lines[-_TOLD:]))
        told = msgspec.json.decode(found.read_bytes(), type=dict[str, dict[str, Outcome]])
    return told["imports"], told["files"]


def audit(site: Path, base: Base) -> Prediction:
    """Run `./build.py audit` on the folder in this base."""
    command = [sys.executable, str(ROOT / "build.py"), "audit", str(site), "--base", str(base.rootfs), "--json"]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    seconds = round(time.monotonic() - start, 1)
    try:
        told = msgspec.json.decode(done.stdout, type=dict[str, msgspec.Raw])
        findings = msgspec.json.decode(told["findings"], type=tuple[Finding, ...])
    except (KeyError, msgspec.MsgspecError):
        return Prediction(seconds=seconds, error=f"exit code {done.returncode}: {done.stderr[-300:]}")
    return Prediction(findings=findings, seconds=seconds)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
