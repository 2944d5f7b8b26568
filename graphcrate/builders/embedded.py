"""The builder that needs nothing but Python and the cache: a plan and a base become an OCI image layout.

Layers are made side by side in worker processes and cached by what goes into them, so images share them and a
changed package costs one layer.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate import __version__
from graphcrate.bases import Base
from graphcrate.builders import Order, work
from graphcrate.builders.layers import Advance, WheelsLayer, Workshop
from graphcrate.errors import BuildError
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.host.workers import Inline, Processes, default_jobs
from graphcrate.model.plan import LAYER_MTIME, FilesStep, Plan, PlannedFile, RequirementsStep, WheelsStep
from graphcrate.model.report import Artifact, LayerRecord, Owner
from graphcrate.oci.image import make_image
from graphcrate.oci.layer import LayerWriter
from graphcrate.oci.layout import Layout, write_layout
from graphcrate.wheels.bytecode import InsidePython
from graphcrate.wheels.claims import Claims
from graphcrate.wheels.install import Site

#: The layout's name in an order's folder.
FOLDER = "oci"
#: Links in every Debian of the last years; a layer that had folders of these names would hide the base's programs.
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
#: Room that layers need beyond their wheels: bytecode and its archives.
_MORE_ROOM = 1.1
_MARGIN = 200 << 20


def check(environment: Mapping[str, str]) -> str:
    """graphcrate's own version: this builder is always there. What a base wants shows when it is prepared."""
    return f"graphcrate {__version__}"


def build(order: Order) -> Artifact:
    """Build the plan's image as a layout `oci` in the order's folder. Raises what `build_layout` raises."""
    return artifact(build_layout(order))


def artifact(layout: Layout) -> Artifact:
    """What a layout is called and weighs."""
    size = sum(layer.size for layer in layout.layers)
    return Artifact(engine="embedded", kind="layout", reference=str(layout.path), digest=layout.digest, bytes=size)


def build_layout(order: Order) -> Layout:
    """As `build`, with as many processes as there are cores. The layout's records tell who owns how much of a layer.

    Another one there is replaced when this one is whole. `order.files` has every wheel, sdist and build wheel. Raises
    IntegrityError, BuildError, DiskFullError, HostError. Finished layers stay in the cache whatever happens.
    """
    plan, base = order.plan, order.base
    refuse_open(plan)
    if base is None:
        raise BuildError(f"the embedded builder got no base for {plan.name}:{plan.tag}")
    layers = build_layers(
        plan,
        base,
        order.files,
        cache=order.cache,
        environment=order.environment,
        progress=order.progress,
        jobs=default_jobs(),
    )
    image = make_image([*base.layers, *layers], plan.config, plan.created, base.environment)
    return write_layout(order.folder / FOLDER, image, order.cache.blob, plan.tag)


def build_layers(
    plan: Plan,
    base: Base,
    files: Mapping[str, Path],
    *,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
    jobs: int,
) -> tuple[LayerRecord, ...]:
    """The layers above the base, lowest first; their blobs are in the cache. `jobs` 0: all work in this process."""
    refuse_open(plan)
    python = next((step.python for step in plan.steps if isinstance(step, WheelsStep)), "")
    if python and not base.python_version.startswith(f"{python}."):
        raise BuildError(
            f"the plan is for Python {python} and the base has {base.python_version}",
            next_step="./build.py lock …    (locks base and packages anew)",
        )
    shop = Workshop(
        site=Site(python=python, glibc=base.glibc, mtime=LAYER_MTIME),
        interpreter=InsidePython(rootfs=base.rootfs, python=base.python, version=base.python_version),
        files=files,
        cache=cache,
        environment=settings.select_for_child(environment),
    )
    steps = [step for step in plan.steps if isinstance(step, WheelsStep | FilesStep)]
    wheels = {shop.key(step): WheelsLayer(step, shop) for step in steps if isinstance(step, WheelsStep)}
    _make_wheels_layers(list(wheels.values()), cache, progress, jobs)
    made = {key: layer.record for key, layer in wheels.items()}
    made |= {shop.key(step): write_files_layer(step, shop) for step in steps if isinstance(step, FilesStep)}
    return tuple(record for step in steps if (record := made[shop.key(step)]) is not None)


def refuse_open(plan: Plan) -> None:
    """Raises BuildError for a step that this builder cannot express: files that nobody has locked."""
    for step in plan.steps:
        if isinstance(step, RequirementsStep):
            raise BuildError(
                f"the embedded builder cannot install {step.title!r}: no lock says which files those are",
                cause=f"They come from the channel {step.channel.value}, which this machine could not reach.",
                next_step=f"./build.py lock {plan.name} --cuda {plan.stack.cuda}    (on a network that reaches it)",
            )


def _make_wheels_layers(layers: Sequence[WheelsLayer], cache: Cache, progress: Progress, jobs: int) -> None:
    missing = [layer for layer in layers if layer.record is None]
    total = sum(layer.size for layer in missing)
    claims = Claims()
    with contextlib.ExitStack() as stack:
        advance: Advance = lambda _: None  # noqa: E731
        if missing:
            cache.require(int(total * _MORE_ROOM) + _MARGIN, "making layers")
            what = f"making {len(missing)} layer{'s' if len(missing) > 1 else ''}"
            advance = stack.enter_context(progress.task(what, total)).advance
        crew = stack.enter_context(Processes(jobs, advance)) if jobs else Inline(advance)
        for layer in layers:
            layer.begin(crew, claims, advance)
        crew.finish()
    claims.check_folders()


def write_files_layer(step: FilesStep, shop: Workshop) -> LayerRecord:
    """The layer of a step's files, from the cache or written now. Raises BuildError for a path that cannot be."""
    cache, key = shop.cache, shop.key(step)
    if (record := work.read_record(cache, key)) is not None:
        return record
    with cache.folder() as folder:
        blob = folder / "layer"
        with blob.open("wb") as stream:
            writer = LayerWriter(stream, shop.site.mtime)
            # By parts of the path: a folder comes before what it holds.
            for file in sorted(step.files, key=lambda file: file.path.split("/")):
                _write_planned(writer, file)
            size = sum(len(file.content.encode()) for file in step.files)
            record = writer.finish(step.title, [Owner(name="files", version="", bytes=size)])
        cache.adopt(blob, cache.blob(record.digest))
    cache.write(work.record_path(cache, key), msgspec.json.encode(record))
    return record


def _write_planned(writer: LayerWriter, file: PlannedFile) -> None:
    parts = file.path.split("/")
    if parts[0] or len(parts) < 2 or parts[1] in MERGED:
        raise BuildError(
            f"a planned file cannot be {file.path!r}",
            cause="A path must be absolute, and /bin, /lib and the like are links to below /usr in the base.",
            next_step=f"name it /usr{file.path}",
        )
    if file.folder:
        writer.folder(file.path, file.mode)
    elif file.link:
        writer.symlink(file.path, file.link)
    else:
        writer.data(file.path, file.content.encode(), file.mode)
