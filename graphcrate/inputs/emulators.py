"""Emulators of other platforms' programs on this machine: Debian's package, by its hash, in the cache."""

import os
from pathlib import Path, PurePosixPath

from graphcrate.compat.facts.emulators import EmulatorPackage, emulator_package
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.emulation import Emulator, is_native, is_registered
from graphcrate.inputs.bases.deb import extract, inflate_member
from graphcrate.inputs.bases.debs import fetch_debs
from graphcrate.model.errors import HostError, IntegrityError
from graphcrate.model.platform import Platform, of_machine

_MODE = 0o755


def prepare_emulator(platform: Platform, ctx: Context) -> Emulator | None:
    """Return what runs a platform's programs here, fetched where nothing does yet; None: this machine's own processor.

    Raises HostError where nothing is known to, NetworkError, IntegrityError, BaseDriftError.
    """
    if is_native(platform) or is_registered(platform):
        return _known_to_host(platform)
    known = _package(platform)
    target = _place(known, ctx.cache)
    if not target.is_file():
        _unpack(known, target, ctx)
    return Emulator(platform, target)


def stored_emulator(platform: Platform, cache: Cache) -> Emulator | None:
    """The same of what is here already. Raises HostError where it is not."""
    if is_native(platform) or is_registered(platform):
        return _known_to_host(platform)
    target = _place(_package(platform), cache)
    if not target.is_file():
        raise HostError(
            f"the emulator of {platform.title} is gone from the cache: {target}",
            cause="Something removed it while this run went on.",
            next_step="run the same command again",
        )
    return Emulator(platform, target)


def _known_to_host(platform: Platform) -> Emulator | None:
    return None if is_native(platform) else Emulator(platform)


def _package(platform: Platform) -> EmulatorPackage:
    """The package for this machine. Raises HostError for one that none is known for."""
    machine = os.uname().machine
    host = of_machine(machine)
    known = emulator_package(host.name, platform.name) if host else None
    if known is None:
        raise HostError(
            f"programs for {platform.title} cannot be run on {machine}",
            next_step=f"build on a machine for {platform.title}",
        )
    return known


def _place(known: EmulatorPackage, cache: Cache) -> Path:
    name = PurePosixPath(known.program).name
    return cache.path("bases", "emulators", known.package.file.sha256, name)


def _unpack(known: EmulatorPackage, target: Path, ctx: Context) -> None:
    """Take the program out of its package."""
    ctx.progress.note(f"fetching {known.package.name} {known.package.version}, which runs {known.runs} here")
    (deb,) = fetch_debs([known.package], known.suite, ctx, listed=known.listed, what="emulator")
    with ctx.cache.guard(), ctx.cache.folder() as folder:
        begin = inflate_member(deb, folder / "deb")
        extract(folder / "deb", begin, folder / "root", only=known.program)
        program = folder / "root" / known.program
        if program.is_symlink() or not program.is_file():
            raise IntegrityError(f"{deb.name} has no program {known.program}")
        program.chmod(_MODE)
        ctx.cache.adopt(program.parent, target.parent)
