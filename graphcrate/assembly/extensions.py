"""Compiled extensions of an image: for which GPUs, what of them is cached, and how long the rest takes.

Light to import, as an unchanged image is looked up by it: `extension_wheels` compiles.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import compile_time, gpu_table
from graphcrate.compat.facts.toolkits import nvcc, to_compile
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.host.context import Context
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.lock import Compilation, Lock, LockedPackage
from graphcrate.model.words import duration, listed, size

if TYPE_CHECKING:
    from pathlib import Path

    from graphcrate.inputs.shared.entry import CacheEntry
    from graphcrate.inputs.shared.places import CachePlace
    from graphcrate.inputs.shared.site_cache import SiteCache


class CompilerDriftError(BaseDriftError):
    """The base with the compiler that a lock names is no longer available."""


def for_gpus(lock: Lock, gpus: str) -> Lock:
    """The lock with its sdists compiled for these GPU models ("v100,a100") instead of the recipe's architectures.

    A GPU newer than the toolkit gets PTX, with a note of what that costs. Raises UsageError for an unknown model, and
    for one that the toolkit no longer makes code for; ResolutionError for a source that makes code for none of them.
    """
    compilation = lock.compilation
    if not gpus or compilation is None or compilation.toolkit is None:
        return lock
    version = compilation.toolkit.version
    chosen, newer = to_compile(gpu_table.architectures_for(gpus), version)
    notes = lock.notes
    if newer and any(package.compiled for package in lock.packages):
        notes += (
            f"nvcc {version} makes no code for {', '.join(newer)}: extensions bring PTX of {nvcc(version).sm[-1]}, "
            "which the driver translates when it first loads them (TOOLKIT=image may be newer)",
        )
    compilation = msgspec.structs.replace(compilation, architectures=chosen)
    changed = msgspec.structs.replace(lock, compilation=compilation, notes=notes)
    compile_time.refuse_useless(changed)
    return changed


def built(lock: Lock, ctx: Context) -> Collection[str]:
    """sha256s of the lock's compiled sdists whose wheels the cache has."""
    return {sha256 for step in compile_steps(lock) for sha256 in wheelhouse.cached(step, ctx.cache)}


def time_lines(lock: Lock, ctx: Context, shared: "SiteCache | None" = None, layered: Collection[str] = ()) -> list[str]:
    """Return a plan's lines on compiling that is not cached: how long it takes, and which GPUs get no code.

    What a shared cache has is named with that, and takes no time. `layered`: packages (sha256s) whose layers are here.
    """
    from graphcrate.host.memory import free_memory
    from graphcrate.host.workers import default_jobs
    from graphcrate.inputs.extensions.compile import MEMORY_PER_JOB

    there = {*built(lock, ctx), *layered}
    offered: dict[Path, tuple[CachePlace, CacheEntry]] = {}
    if shared is not None:
        absent = {
            shelf.wheel: package
            for step in compile_steps(lock)
            for package, shelf in zip(step.packages, wheelhouse.shelves(step, ctx.cache).values(), strict=True)
            if package.file.sha256 not in there
        }
        offered = shared.wheels(absent)
        there |= {absent[shelf].file.sha256 for shelf in offered}
    missing = [package for package in lock.packages if package.compiled and package.file.sha256 not in there]
    lines = _offered_lines(list(offered.values()))
    if not missing or lock.compilation is None:
        return lines
    works = [work for package in missing if (work := work_of(package, lock.compilation, ctx))]
    cores = max(1, min(default_jobs(), free_memory() // MEMORY_PER_JOB))
    return [*lines, *compile_time.lines(works, cores)]


def _offered_lines(offered: "Sequence[tuple[CachePlace, CacheEntry]]") -> list[str]:
    """Say of each shared cache which wheels it has, and how long making them took."""
    lines = []
    for name in dict.fromkeys(place.name for place, _ in offered):
        known = [entry for place, entry in offered if place.name == name]
        titles = listed(sorted(entry.files[0].name.partition("-")[0].replace("_", "-") for entry in known))
        took = sum(entry.seconds for entry in known)
        saved = f"; compiling them took {duration(took)}" if took else ""
        lines.append(f"from the site's cache {name}: {titles}, {size(sum(entry.size for entry in known))}{saved}")
    return lines


def work_of(package: LockedPackage, compilation: Compilation, ctx: Context) -> compile_time.CompileTime | None:
    """Estimate the compiling of a package, by its sdist where the cache has it; None: it is not known."""
    from graphcrate.inputs.wheels.sdist import compiled_sources, read_sdist

    path = ctx.cache.file(package.file.sha256, package.file.name)
    if not path.is_file():
        return compile_time.of_package(package, None, compilation)
    about = read_sdist(path, path.name)
    names = {canonicalize_name(Requirement(text).name) for text in (*about.requires, *about.build_requires)}
    has_torch, parallel = "torch" in names or about.asked.torch, about.asked.parallel or not package.isolated
    return compile_time.of_package(package, compiled_sources(path), compilation, has_torch=has_torch, parallel=parallel)
