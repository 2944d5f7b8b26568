"""The layers of a plan that the cache has: found by their records before anything is fetched, another machine's too.

A layer of wheels has a record of the blob and one for each of its wheels, of where that one's files go; a base has one.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from graphcrate.engines.embedded.layers import WheelsLayer, Workshop
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs import bases
from graphcrate.inputs.bases import debian
from graphcrate.inputs.wheels.bytecode import InsidePython
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import CompileStep, Plan, WheelsStep


def workshop(plan: Plan, cache: Cache) -> Workshop:
    """Return the state by which a plan's layers are found: nothing is made with it.

    A registry's base tells its Python when it is there: layers on it are not found.
    """
    base, version, glibc = plan.base.base, "", ""
    if isinstance(base, DebianBase):
        version, glibc = debian.python_version(base), debian.glibc_version(base)
    identity = bases.identity(base) if base else ""
    interpreter = InsidePython(rootfs=Path(), python="", version=version, base=identity)
    python = next((step.python for step in plan.of(WheelsStep)), "")
    return Workshop(python=python, glibc=glibc, interpreter=interpreter, files={}, cache=cache, environment={})


def layered(plan: Plan, cache: Cache) -> frozenset[str]:
    """Return the packages (sha256s of their files) whose layers the cache has: nothing of these is fetched or made."""
    there = (layer for layer in layers(plan, cache) if layer.exists)
    return frozenset(package.file.sha256 for layer in there for package in layer.step.packages)


def to_bring(plan: Plan, lock: Lock, cache: Cache) -> Lock:
    """Return a lock without the packages whose layers the cache has, and without those of a base that it has."""
    there, base = layered(plan, cache), lock.base
    if isinstance(base, DebianBase) and debian.made(base, cache) is not None:
        base = msgspec.structs.replace(base, packages=())
    packages = tuple(package for package in lock.packages if package.file.sha256 not in there)
    return msgspec.structs.replace(lock, packages=packages, base=base)


def layers(plan: Plan, cache: Cache) -> Iterator[WheelsLayer]:
    """Yield the layers of wheels of a plan."""
    shop = workshop(plan, cache)
    return (WheelsLayer(step, shop) for step in plan.steps if isinstance(step, WheelsStep | CompileStep))
