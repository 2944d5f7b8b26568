"""The records of an image's layers: with them a build goes on from layers that another machine has made.

A layer of wheels has a record of the blob and one for each of its wheels, of where that one's files go; a base has one.
They are found by the plan alone, before anything is fetched.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from graphcrate.engines.embedded.layers import WheelsLayer, Workshop
from graphcrate.host.disk.cache import Cache, kept, kept_bytes
from graphcrate.inputs import bases
from graphcrate.inputs.bases import debian
from graphcrate.inputs.wheels.bytecode import InsidePython
from graphcrate.inputs.wheels.install import Installation
from graphcrate.model import codec
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import CompileStep, FilesStep, Plan, ToolkitStep, WheelsStep
from graphcrate.model.report import LayerRecord


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
    there = (layer for layer in _layers(plan, cache) if layer.exists)
    return frozenset(package.file.sha256 for layer in there for package in layer.step.packages)


def to_bring(plan: Plan, lock: Lock, cache: Cache) -> Lock:
    """Return a lock without the packages whose layers the cache has, and without those of a base that it has."""
    there, base = layered(plan, cache), lock.base
    if isinstance(base, DebianBase) and debian.made(base, cache) is not None:
        base = msgspec.structs.replace(base, packages=())
    packages = tuple(package for package in lock.packages if package.file.sha256 not in there)
    return msgspec.structs.replace(lock, packages=packages, base=base)


def packed(plan: Plan, cache: Cache) -> bytes:
    """Return the records of a plan's layers that the cache has, by their names below its root, for `keep`."""
    paths = {**_records(plan, cache), **_installations(plan, cache)}
    records = {name: data for name, path in paths.items() if (data := kept_bytes(path)) is not None}
    return msgspec.msgpack.encode(records)


def keep(data: bytes, digests: Collection[str], plan: Plan, cache: Cache) -> None:
    """Put records into the cache, where it lacks them: those that the plan names, and of layers with these digests.

    Raises what msgspec raises for what are no records.
    """
    records = codec.unpack(data, dict[str, bytes])
    for name, path in _records(plan, cache).items():
        if name in records and kept(path, LayerRecord) is None:
            record = codec.decode(records[name], LayerRecord)
            if record.digest in digests:
                cache.keep(path, records[name])
    for name, path in _installations(plan, cache).items():
        if name in records and kept_bytes(path) is None:
            codec.unpack(records[name], Installation)
            cache.keep(path, records[name])


def _layers(plan: Plan, cache: Cache) -> Iterator[WheelsLayer]:
    shop = workshop(plan, cache)
    return (WheelsLayer(step, shop) for step in plan.steps if isinstance(step, WheelsStep | CompileStep))


def _records(plan: Plan, cache: Cache) -> dict[str, Path]:
    """Map names of layers' records to their paths, the base's too."""
    shop = workshop(plan, cache)
    steps = [step for step in plan.steps if isinstance(step, WheelsStep | CompileStep | FilesStep | ToolkitStep)]
    paths = [cache.path("layers", f"{shop.key(step)}.json") for step in steps]
    if isinstance(plan.base.base, DebianBase):
        paths.append(debian.record_path(plan.base.base, cache))
    return {str(path.relative_to(cache.root)): path for path in paths}


def _installations(plan: Plan, cache: Cache) -> dict[str, Path]:
    paths = [path for layer in _layers(plan, cache) for path in layer.installation_paths()]
    return {str(path.relative_to(cache.root)): path for path in paths}
