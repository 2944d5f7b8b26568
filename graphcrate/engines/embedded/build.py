"""The builder that needs nothing but Python and the cache: a plan and a base become an OCI image layout.

Layers are made side by side in worker processes and cached by what goes into them, so images share them and a
changed package costs one layer.
"""

import contextlib
import hashlib
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from graphcrate.compat.facts import start_up
from graphcrate.compat.plan.planning import ADDED_FILES_TITLE
from graphcrate.engines.backend import BuildOrder
from graphcrate.engines.embedded.layers import WheelsLayer, Workshop, make
from graphcrate.host import process, settings, trace
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import file_digest
from graphcrate.host.parallel import parallel
from graphcrate.host.workers import default_jobs
from graphcrate.inputs.bases import Base
from graphcrate.inputs.wheels import bytecode
from graphcrate.inputs.wheels.bytecode import InsidePython
from graphcrate.inputs.wheels.layer import Claims
from graphcrate.model.command import LOCK_AGAIN, command, for_shell
from graphcrate.model.errors import BuildError, LayoutError
from graphcrate.model.plan import (
    CUDA_HOME,
    LAYER_MTIME,
    CompileStep,
    ConfigStep,
    FilesStep,
    PlannedFile,
    RequirementsStep,
    ToolkitStep,
    WheelsStep,
)
from graphcrate.model.report import Artifact, LayerRecord, PackageBytes
from graphcrate.oci import layer_files
from graphcrate.oci.image import make_image, recorded, writing_errors
from graphcrate.oci.layout import Layout, write_layout
from layertar.entries import parents
from ocilayout import spec
from ocilayout.layer import LayerWriter

#: The layout's name in an order's folder.
FOLDER = "oci"
#: Links in every Debian of the last years; a layer that had folders of these names would hide the base's programs.
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CHUNK = 1 << 20


def artifact(layout: Layout) -> Artifact:
    """Return the name and size of a layout."""
    size = sum(layer.size for layer in layout.layers)
    return Artifact(engine="embedded", kind="layout", reference=str(layout.path), digest=layout.digest, bytes=size)


def build_layout(order: BuildOrder) -> Layout:
    """Build the plan's image as a layout `oci` in the order's folder, with as many processes as there are cores.

    Another one there is replaced when this one is whole. `order.compiled` and `order.toolkit` are called only where the
    cache lacks the layer that needs them; finished layers stay there. Raises IntegrityError, BuildError, HostError.
    """
    start = settings.now()
    made, base = build_layers(order, default_jobs()), _base(order)
    layers, plan = [*base.layers, *made], order.plan
    _check_older(layers, order.cache, start)
    config = _labelled(plan.config, [start.path for layer in made for start in layer.starts])
    image = make_image(layers, config, plan.created, base.environment, plan.platform)
    return write_layout(order.folder / FOLDER, image, order.cache.blob, order.plan.tag)


def _base(order: BuildOrder) -> Base:
    """Return the base, when it is made. Raises what its maker raises."""
    base = order.made_base.result() if order.made_base else order.base
    assert base is not None, "the embedded builder always has the lock's own base"
    return base


def _labelled(config: ConfigStep, starts: Sequence[str]) -> ConfigStep:
    """Say on a label what runs by itself in the image; the step as it is where nothing does."""
    if not starts:
        return config
    return msgspec.structs.replace(config, labels={**config.labels, start_up.LABEL: " ".join(sorted({*starts}))})


@trace.span("check older layers")
def _check_older(layers: Sequence[LayerRecord], cache: Cache, start: float) -> None:
    """Read the layers that are older than this build. Raises LayoutError for a damaged one, which is removed."""
    older = [layer for layer in layers if cache.blob(layer.digest).stat().st_mtime < start]
    for layer, digest in zip(
        older, parallel(lambda layer, _: file_digest(cache.blob(layer.digest)), older), strict=True
    ):
        if layer.digest != digest:
            cache.blob(layer.digest).unlink(missing_ok=True)
            raise LayoutError(
                f"the cache's layer {layer.title} is damaged: its bytes hash to {digest}",
                cause="The cache's disk is faulty, or something wrote to it.",
                next_step="the same command again makes it once more",
            )


@trace.span("make layers")
def build_layers(order: BuildOrder, jobs: int) -> tuple[LayerRecord, ...]:
    """The layers above the base, lowest first; their blobs are in the cache. `jobs` 0: all work in this process."""
    plan, base = order.plan, order.base
    assert base is not None
    python = next((step.python for step in plan.of(WheelsStep)), "")
    if python and not base.python_version.startswith(f"{python}."):
        raise BuildError(
            f"the plan is for Python {python} and the base has {base.python_version}",
            next_step=f"{LOCK_AGAIN}    (locks base and packages again)",
        )
    for step in plan.of(RequirementsStep):
        raise BuildError(
            f"the embedded builder cannot install {step.title!r}: no lock says which files those are",
            cause=f"They come from the channel {step.channel.value}, which this machine could not reach.",
            next_step=f"{command('lock', plan.name, cuda=plan.stack.cuda)}    (on a network that reaches it)",
        )
    shop = _workshop(order, python)
    compiler = _compiler(order)
    ready = [WheelsLayer(step, shop) for step in plan.of(WheelsStep)]
    later = [WheelsLayer(step, shop) for step in plan.of(CompileStep)]
    claims = Claims()
    files = plan.of(FilesStep)
    additions = [step for step in files if step.title == ADDED_FILES_TITLE]
    for files_step in files:
        if files_step not in additions:
            _claim(files_step, claims)
    with _beside(None if all(layer.exists for layer in later) else order.compiled, order.arrivals) as (written, wheels):
        make(ready, claims, order.progress, jobs, order.arrivals, compiler)
        written.set_result(_unpacked(ready, order.cache))
        shop.compiled.update(wheels.result())
    make(later, claims, order.progress, jobs, order.arrivals, compiler)
    claims.check_folders()
    claims.check_names()
    base = _base(order)
    replaced = {path: whose for step in additions for path, whose in _replaced(step, claims, base).items()}
    made = {
        layer.key: msgspec.structs.replace(layer.record, starts=layer.starts())
        for layer in (*ready, *later)
        if layer.record is not None
    }
    steps = [step for step in plan.steps if isinstance(step, WheelsStep | CompileStep | FilesStep | ToolkitStep)]
    there = {path for step in additions for path in _folders_there(step, claims, base)}
    records = [
        _write_layer(step, shop, order.toolkit, replaced, plan.config.labels, there)
        if step in additions
        else _write_layer(step, shop, order.toolkit, {}, plan.config.labels)
        if isinstance(step, FilesStep | ToolkitStep)
        else made[shop.key(step)]
        for step in steps
    ]
    return tuple(records)


def _workshop(order: BuildOrder, python: str) -> Workshop:
    """Return what the layers of an order share."""
    base = order.base
    assert base is not None
    return Workshop(
        python=python,
        glibc=base.glibc,
        platform=base.platform,
        interpreter=_interpreter(order.twin or base, (order.twin or base).rootfs),
        files=order.files,
        cache=order.cache,
        environment=settings.select_for_child(order.environment),
        unpacks=order.unpacks,
        packs=order.packs,
        watch=order.watch,
    )


def _unpacked(layers: Sequence[WheelsLayer], cache: Cache) -> tuple[Path, ...]:
    """The folders of layers that this run unpacked with all bytes of their wheels: none whose libraries are cut."""
    whole = (layer.record for layer in layers if isinstance(layer.step, WheelsStep) and not layer.step.slim)
    places = (layer_files.place(cache, record.digest) for record in whole if record is not None)
    return tuple(place for place in places if place.is_dir())


def _interpreter(base: Base, rootfs: Path) -> InsidePython:
    """Return the interpreter that compiles bytecode, in a tree of the base."""
    version = base.python_version
    return InsidePython(rootfs=rootfs, python=base.python, version=version, base=base.identity, emulator=base.emulator)


def _compiler(order: BuildOrder) -> Future[InsidePython]:
    """Return the interpreter that compiles bytecode, when it is there."""
    made = Future[InsidePython]()
    base = order.twin or order.base
    assert base is not None

    def there(rootfs: Future[Path]) -> None:
        if error := rootfs.exception():
            made.set_exception(error)
        else:
            made.set_result(_interpreter(base, rootfs.result()))

    if order.twin or order.python is None:
        made.set_result(_interpreter(base, base.rootfs))
    else:
        order.python.add_done_callback(there)
    return made


@contextlib.contextmanager
def _beside(
    compiled: Callable[[Callable[[], Sequence[Path]]], Mapping[str, Path]] | None,
    arrivals: Arrivals,
) -> Iterator[tuple[Future[Sequence[Path]], Future[Mapping[str, Path]]]]:
    """The wheelhouse at work while layers are made that need nothing of it; ended when one of those fails.

    Gives what it waits for, where those layers are unpacked, and what it makes.
    """
    written: Future[Sequence[Path]] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix="wheelhouse") as side:
        try:
            yield written, side.submit(compiled or _nothing, written.result)
        except BaseException:
            written.cancel()
            arrivals.stop()  # the wheelhouse may wait for files
            process.end_all()
            raise


def _nothing(_: Callable[[], Sequence[Path]]) -> Mapping[str, Path]:
    """Compile nothing."""
    return {}


def _claim(step: FilesStep, claims: Claims) -> None:
    """Note the files that the image itself brings: no wheel may have others in their place. Raises BuildError."""
    for file in step.files:
        if not file.folder:
            identity = hashlib.sha256(f"{file.mode:o} {file.link} {file.content}".encode()).hexdigest()
            claims.claim(f"the image's {step.title}", file.path, identity)


def _is_folder(path: str, claims: Claims, base: Base) -> bool:
    inside = base.rootfs / path.removeprefix("/")
    return claims.is_folder(path) or (inside.is_dir() and not inside.is_symlink())


def _folders_there(step: FilesStep, claims: Claims, base: Base) -> Iterator[str]:
    """Yield the user's folders that the image has. Raises BuildError for one whose permissions would change."""
    for file in step.files:
        if file.folder and _is_folder(file.path, claims, base):
            if file.mode != 0o755:
                raise BuildError(
                    f"the recipe gives {file.path} the permissions {file.mode:04o}, and it is a folder of the image",
                    cause="Permissions of the stack's and Debian's folders stay as they are.",
                    next_step=f"leave {file.path} out of the recipe's directories, or name one below it",
                )
            yield file.path


def _replaced(step: FilesStep, claims: Claims, base: Base) -> dict[str, str]:
    """Map paths that a user's files replace to their owners. Raises BuildError for what is no place for a file."""
    replaced = {}
    for file in step.files:
        inside = base.rootfs / file.path.removeprefix("/")
        for parent in itertools.takewhile(lambda parent: parent, parents(file.path.removeprefix("/"))):
            link = base.rootfs / parent
            whose = claims.owner(f"/{parent}") or ("the base" if link.is_symlink() or link.is_file() else "")
            if whose:
                raise BuildError(
                    f"a file of the recipe cannot be {file.path}: /{parent} is a file or a link, of {whose}",
                    cause="Engines disagree on what a file below a link means: some follow it, others replace it.",
                    next_step=f"realpath {for_shell(f'/{parent}')}    in the image "
                    "says the folder's own name: give the file that one",
                )
        if _is_folder(file.path, claims, base):
            if file.folder:
                continue
            raise BuildError(
                f"a file of the recipe cannot be {file.path}, which is a folder",
                next_step=f"name it with its file name: {file.path}/…",
            )
        if file.folder and (claims.owner(file.path) or os.path.lexists(inside)):
            raise BuildError(
                f"a folder of the recipe cannot be {file.path}, which is a file or a link in the image",
                next_step="name another: /opt/mine is free",
            )
        if whose := claims.owner(file.path) or ("the base" if os.path.lexists(inside) else ""):
            replaced[file.path] = whose
    return replaced


def _bytecode(path: str, python: str) -> PlannedFile:
    """Return the file that removes a module's stale bytecode: Python would go on running it in place of the source.

    A whiteout (OCI image-spec, layers): an empty file of this name.
    """
    folder, _, name = bytecode.compiled_path(path, python).rpartition("/")
    return PlannedFile(path=f"{folder}/{spec.WHITEOUT}{name}")


def _write_layer(
    step: FilesStep | ToolkitStep,
    shop: Workshop,
    toolkit: Callable[[], Path] | None,
    replaced: Mapping[str, str],
    labels: Mapping[str, str],
    there: Collection[str] = (),
) -> LayerRecord:
    """The layer of a step's files or of a CUDA toolkit, from the cache or written now. `replaced`: see `_replaced`.

    `there`: folders that the image has, which are not written again.
    """
    if there and isinstance(step, FilesStep):
        step = msgspec.structs.replace(step, files=tuple(file for file in step.files if file.path not in there))
    more = tuple(_bytecode(path, shop.python) for path in replaced if path.endswith(".py") and shop.python)
    if more and isinstance(step, FilesStep):
        step = msgspec.structs.replace(step, files=(*step.files, *more))
    record = _layer(step, shop, toolkit)
    files = {file.path: file.content.encode() for file in step.files} if isinstance(step, FilesStep) else {}
    concerned = {path: content for path, content in files.items() if start_up.concerns(path)}
    return msgspec.structs.replace(
        record,
        starts=tuple(start_up.found(concerned, labels)),
        replaces=tuple(f"{path} ({whose})" for path, whose in replaced.items()),
    )


@writing_errors()
def _layer(step: FilesStep | ToolkitStep, shop: Workshop, toolkit: Callable[[], Path] | None) -> LayerRecord:
    cache, key = shop.cache, shop.key(step)
    if (record := shop.record(key)) is not None:
        return record
    with cache.folder() as folder:
        blob = folder / "layer"
        with blob.open("wb") as stream:
            writer = LayerWriter(stream, LAYER_MTIME)
            if isinstance(step, FilesStep):
                # By parts of the path: a folder comes before what it holds.
                for file in sorted(step.files, key=lambda file: file.path.split("/")):
                    _write_planned(writer, file)
                size = sum(len(file.content.encode()) for file in step.files)
                owner = PackageBytes(name="files", version="", bytes=size)
            else:
                assert toolkit is not None, "whoever plans a toolkit brings it"
                size = _write_tree(writer, toolkit(), CUDA_HOME)
                owner = PackageBytes(name="toolkit", version=step.toolkit.version, bytes=size)
            record = recorded(writer.finish(), step.title, [owner])
        cache.adopt(blob, cache.blob(record.digest))
    return shop.keep(key, record)


def _write_tree(writer: LayerWriter, folder: Path, target: str) -> int:
    """A folder with all that is in it; the bytes of its files."""
    writer.folder(target, 0o755)
    total = 0
    for path in sorted(folder.iterdir()):
        inside = f"{target}/{path.name}"
        if path.is_symlink():
            writer.symlink(inside, str(path.readlink()))
        elif path.is_dir():
            total += _write_tree(writer, path, inside)
        else:
            status = path.stat()
            with path.open("rb") as stream:
                chunks = iter(lambda: stream.read(_CHUNK), b"")
                writer.stream(inside, status.st_size, chunks, 0o755 if status.st_mode & 0o100 else 0o644)
            total += status.st_size
    return total


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
