"""Measures how long extensions compile: with small headers, with torch's own, and by `pip wheel`, side by side.

    .venv/bin/python -m bench.wheelhouse [--stack pyg] [--cuda 11.8] [--packages torch-scatter …]
        [--architectures 7.0 8.0+PTX] [--jobs N] [--ways fast plain pip]

Same base, compiler, toolkit, torch, machine. What the wheelhouse does besides compiling counts: unpacking torch, and
the checks. For pip, which takes one package after the other, compiling alone does. The packages are taken from the
committed lock. Seconds of processor are what to compare where a machine has other work. All three take hours.
"""

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from graphcrate.compat.facts import compilers
from graphcrate.compat.facts.compilers import variables
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox import sandbox
from graphcrate.host.workers import default_jobs
from graphcrate.inputs import extensions, toolkits
from graphcrate.inputs.bases.debs import fetch_sources
from graphcrate.inputs.extensions.compile import make_venv, provide
from graphcrate.model.lock import Lock, decode_lock
from graphcrate.model.plan import BUILD, CUDA_HOME, VENV, CompileStep
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.stack.base import prepare_base
from nsbox.box import Bind

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str]) -> int:
    """Measure, and print what came out."""
    given = parse(arguments)
    ctx = Context.here()
    lock, step = chosen(given)
    with ctx.cache.folder() as folder:
        store = Cache(folder / "cache")
        try:
            job = make_job(lock, step, ctx, store, given.jobs, folder / "logs")
            print(about(step, given.jobs), flush=True)
            taken = {}
            if "fast" in given.ways:
                taken["fast"] = timed("wheelhouse, small headers", lambda: provide(job))
                timed("wheelhouse, from the cache", lambda: provide(job))
            if "plain" in given.ways:
                compilers._FOLDERS.clear()  # as if nobody had looked at these packages
                taken["plain"] = timed("wheelhouse, torch's own headers", lambda: provide(job))
            if "pip" in given.ways:
                taken["pip"] = plainly(job, folder / "plain")
            first, *others = taken.items()
            for other, seconds in others:
                print(f"{first[0]} takes {first[1] / seconds:.2f} of the processor that {other} takes")
        finally:
            store.close()
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="pyg")
    parser.add_argument("--cuda", default="11.8")
    parser.add_argument("--packages", nargs="+", default=list(compilers._FOLDERS))
    parser.add_argument("--architectures", nargs="+", default=["7.0", "8.0+PTX"])
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--ways", nargs="+", choices=("fast", "plain", "pip"), default=["fast", "plain"])
    return parser.parse_args(arguments)


def chosen(given: argparse.Namespace) -> tuple[Lock, CompileStep]:
    """The committed lock, and of what it compiles these packages for these architectures."""
    folder = ROOT / "images" / given.stack / f"cu{given.cuda.replace('.', '')}"
    for path in sorted(folder.glob("*.lock.json")):
        lock = decode_lock(path.read_bytes())
        (step,) = compile_steps(lock)
        if step is not None:
            packages = tuple(package for package in step.packages if package.name in given.packages)
            compilation = msgspec.structs.replace(step.compilation, architectures=tuple(given.architectures))
            return lock, msgspec.structs.replace(step, packages=packages, compilation=compilation)
    raise SystemExit(f"no lock in {folder} compiles anything")


def make_job(lock: Lock, step: CompileStep, ctx: Context, store: Cache, jobs: int, logs: Path) -> extensions.CompileJob:
    """A job whose wheels go to a cache of their own, so that nothing is there before."""
    wanted = {package.file.sha256 for package in (*step.packages, *step.against)}
    needed = tuple(package for package in lock.packages if package.file.sha256 in wanted)
    smaller = msgspec.structs.replace(lock, packages=needed)
    sources = (smaller, SourceOptions(), ctx)
    linked = step.compilation.linked
    archives = dict(zip((source.file.sha256 for source in linked), fetch_sources(linked, ctx), strict=True))
    files = {**fetch(*sources), **fetch(*sources, compilation=True), **archives}
    build_base, toolkit = prepare_base(ctx, step.compilation.base), step.compilation.toolkit
    return extensions.CompileJob(
        step=step,
        base=prepare_base(ctx, lock.base),
        build_base=build_base,
        toolkit=toolkits.prepare(toolkit, files, build_base.rootfs, ctx, base=build_base.identity) if toolkit else None,
        files=files,
        cache=store,
        progress=ctx.progress,
        jobs=jobs,
        log_folder=logs,
    )


def plainly(job: extensions.CompileJob, folder: Path) -> float:
    """Seconds of processor that `pip wheel` takes for the packages, one after the other, as a manual would have it.

    That is without METIS.
    """
    step = job.step
    environment = variables(step.compilation)
    for ours in ("FORCE_ONLY_CUDA", "CFLAGS", "CXXFLAGS", "LDFLAGS", "WITH_CUDA"):
        environment.pop(ours, None)
    environment["PATH"] = f"{VENV}/bin:{CUDA_HOME}/bin:/usr/bin:/bin"
    folder.mkdir()
    beside = {package.name: package for package in (*step.against, *step.compilation.tools)}
    venv = folder / "venv"
    make_venv(job, venv, [*beside.values()])
    total = 0.0
    for package in step.packages:
        build = folder / package.name
        build.mkdir()
        shutil.copyfile(job.files[package.file.sha256], build / package.file.name)
        (build / "tmp").mkdir()
        binds = [Bind(venv, VENV), Bind(build, BUILD, read_only=False)]
        binds += [Bind(job.toolkit, CUDA_HOME)] if job.toolkit is not None else []
        command = [f"{VENV}/bin/python", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
        command += ["--no-index", "--wheel-dir", BUILD, f"{BUILD}/{package.file.name}"]
        inside = {**environment, "TMPDIR": f"{BUILD}/tmp"}

        def compile_it(
            command: list[str] = command, inside: "dict[str, str]" = inside, binds: list[Bind] = binds
        ) -> None:
            done = sandbox.run_in(job.build_base.rootfs, sandbox.Exec(command, inside, binds))
            if done.returncode != 0:
                raise SystemExit("\n".join(done.lines[-20:]))

        total += timed(f"pip wheel {package.name}", compile_it)
    return total


def timed(what: str, work: Callable[[], object]) -> float:
    """Do the work and print how long it took; the processors' seconds of it, where other work does not count."""
    start, used = time.monotonic(), processor_seconds()
    work()
    used = processor_seconds() - used
    print(f"{what}: {time.monotonic() - start:.2f} s ({used:.0f} s of processor)", flush=True)
    return used


def processor_seconds() -> float:
    """Return the seconds that this program and the programs that it started and that ended have used of processors."""
    return sum(os.times()[:4])


def about(step: CompileStep, jobs: int) -> str:
    """Say what is measured, where and when."""
    compilation = step.compilation
    cuda = f"CUDA {compilation.toolkit.version}" if compilation.toolkit else "no CUDA"
    names = ", ".join(f"{package.name} {package.version}" for package in step.packages)
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu}, {jobs} cores: {names} for {', '.join(compilation.architectures)}, "
        f"{cuda}, {compilation.compiler}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
