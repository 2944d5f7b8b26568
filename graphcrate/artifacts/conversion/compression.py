"""The compression of a SIF or a difference: what the kernel that mounts it can read."""

import contextlib
import re

from graphcrate.artifacts.conversion.job import Conversion
from graphcrate.compat.facts import facts, suites
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants import catalog, targets
from graphcrate.host.context import Context
from graphcrate.model.command import ETC, command, is_recipe_file, setting
from graphcrate.model.errors import GraphcrateError, UsageError
from sifsquash.values import Compression

_KERNEL = re.compile(r"\d+\.\d+")


def choose_compression(kernel: str | None) -> Compression:
    """Return the compression that a kernel ("3.10", "5.14.0-70.el9") can mount; without one zstd: FUSE reads it.

    Raises UsageError.
    """
    if kernel is None:
        return Compression.ZSTD
    if (version := _KERNEL.match(kernel)) is None:
        raise UsageError(
            f"{kernel!r} is not a kernel's version",
            next_step=f"{command(ETC, kernel='3.10')}    (`uname -r` on the target says it)",
        )
    oldest = min((base.kernel for base in suites.bases().values()), key=numbers)
    if numbers(version[0]) < numbers(oldest):
        raise UsageError(
            f"Linux {kernel} runs no program of an image: their C libraries need {oldest} or newer",
            next_step=f"{command(ETC, kernel='3.10')}    (`uname -r` on the target says it)",
        )
    mounts_zstd = numbers(version[0]) >= numbers(facts.limit("kernel-zstd").since)
    return Compression.ZSTD if mounts_zstd else Compression.GZIP


def kernel_of(target: str, ctx: Context) -> str | None:
    """Return the kernel of a target, by name; None without one, for a user's file, and for a removed target."""
    if not target or is_recipe_file(target):
        return None
    with contextlib.suppress(GraphcrateError):
        return catalog.find_target(ctx, targets.MachineRequest(target=target)).kernel or None
    return None


def note_choice(job: Conversion, compression: Compression) -> None:
    """Say which compression a SIF or difference gets where none was asked for, and why."""
    if job.request.compression:
        return
    since, kernel, name = facts.limit("kernel-zstd").since, job.kernel, job.target.name
    if compression is Compression.GZIP:
        why = f"gzip: Linux mounts zstd from {since} on, and this is {kernel}"
    elif kernel:
        why = f"zstd, which Linux {kernel} mounts"
    else:
        old = setting(kernel="3.10").both()
        why = f"zstd, for FUSE and Linux from {since} on; for set-user-id Singularity on CentOS 7: {old}"
    job.ctx.progress.note(f"{name}: {why}")
