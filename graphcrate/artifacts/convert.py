"""A layout becomes what a runtime takes: a SIF, enroot's squashfs, an archive for Docker or skopeo, a folder."""

import contextlib
import datetime
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from graphcrate.artifacts import layouts, origin
from graphcrate.artifacts.formats import delta, docker_archive, packed, runtime_files
from graphcrate.artifacts.formats.merged import check_digest, with_additions
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.artifacts.formats.translated import layout_errors
from graphcrate.artifacts.locate import find_image, locate
from graphcrate.compat.facts import facts, suites
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants import catalog, targets
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import check_link, check_writable, link, writing
from graphcrate.host.disk.cache import require_room
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.parallel import parallel
from graphcrate.model.command import ETC, command, for_shell, is_recipe_file, setting, without
from graphcrate.model.errors import GraphcrateError, HostError, LayoutError, UsageError
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildReport
from graphcrate.model.words import joined
from graphcrate.oci import reference
from graphcrate.oci.layout import Layout, check_presence
from graphcrate.oci.validate import inspect_layer
from sifsquash import sif, writer
from sifsquash.contents import Contents, are_equal
from sifsquash.packer import BLOCKS, LEVELS, Packed
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression, Inode

ResultForm = Literal["sif", "sqsh", "delta", "docker", "rootfs", "oci-archive"]
#: Names of the results, after the image's.
SUFFIXES: Mapping[ResultForm, str] = {
    "sif": ".sif",
    "sqsh": ".sqsh",
    "delta": ".delta.sqsh",
    "docker": ".docker.tar",
    "rootfs": ".rootfs",
    "oci-archive": ".oci.tar",
}
#: Raise it whenever the same layout would give another SIF. Part of the SIF's identity.
SIF_FORMAT = 3
_CHUNK = 1 << 20
_KERNEL = re.compile(r"\d+\.\d+")
#: options of the command line → the field of the request, and the kinds of results that it is for
Options = Mapping[str, tuple[str, tuple[str, ...]]]
_SQUASHED = ("sif", "sqsh", "delta")
_OPTIONS: Options = {
    "--compression": ("compression", _SQUASHED),
    "--kernel": ("kernel", _SQUASHED),
    "--over": ("over", ("delta",)),
}


class ConvertRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion: of which image, to what, where to."""

    ref: str
    to: ResultForm
    output: Path | None = None  #: None: beside the layout, named after the image
    force: bool = False
    compression: Compression | None = None  #: of a SIF or squashfs; None: what `kernel` mounts, zstd for enroot
    kernel: str | None = None  #: of the machine that the result is for
    over: str | None = None  #: of a difference: the image that it is to
    link: Path | None = None  #: to be a symbolic link to the result
    hashed: bool = False  #: whether the result's hash is wanted
    platform: Platform | None = None  #: of a layout for several, the one that is meant; None: this machine's
    images: Path = Path("dist")


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `size` in bytes, of a folder that of its layers' tars; `sha256` in hex, empty unless asked for."""

    path: str
    form: ResultForm
    layout: str  #: digest of the image that it was made from
    size: int
    seconds: float
    compression: str = ""  #: of a squashfs
    sha256: str = ""
    unchanged: bool = False  #: it was there already, made of the same layout in the same way
    start: str = ""  #: of a difference: what its users type


class _Job(NamedTuple):
    """One conversion on its way."""

    request: ConvertRequest
    ctx: Context
    layout: Layout
    name: str
    target: Path
    kernel: str | None  #: that the result is for
    created: int  #: when the image was made, in Unix seconds: the time of all that is added

    @property
    def title(self) -> str:
        """Return the title under which the result names its source."""
        return _title(self.name, self.layout)

    @property
    def layers_size(self) -> int:
        return sum(layer.size for layer in self.layout.layers)


class _Written(NamedTuple):
    """A writer's facts about its result. `size` None: that of the file."""

    compression: str = ""
    unchanged: bool = False
    size: int | None = None
    start: str = ""


def convert(request: ConvertRequest, ctx: Context) -> Converted:
    """Convert an image. Nothing half-written stays.

    Raises UsageError, LayoutError for an altered layout, DiskFullError (before or while writing), HostError.
    """
    start = settings.now()
    check_options(request, _OPTIONS, request.to, request.to)
    layout, report = layouts.find(request.ref, request.images, ctx, request.platform)
    name = _short_name(report)
    target = request.output or _default(request, layout, name, ctx)
    if not (folder := target.parent).is_dir():
        raise UsageError(
            f"there is no folder {folder}",
            cause="A name that is misspelt would fill a disk that nobody meant.",
            next_step=f"mkdir -p {for_shell(folder)}    and the same command again",
        )
    if request.link is not None:
        check_link(request.link)
        if request.link.parent.resolve() / request.link.name == target.parent.resolve() / target.name:
            raise UsageError(f"{target} would be the link and what it leads to", next_step="--output and --link differ")
    written = _WRITERS[request.to](
        _Job(request, ctx, layout, name, target, _kernel(request, report, ctx), created_of(layout))
    )
    if request.link is not None:
        link(request.link, Path(os.path.relpath(target.resolve(), request.link.absolute().parent.resolve())))
    return Converted(
        path=str(target),
        form=request.to,
        layout=layout.digest,
        size=target.stat().st_size if written.size is None else written.size,
        seconds=round(settings.now() - start, 3),
        compression=written.compression,
        sha256=sha256_of(target) if request.hashed and request.to != "rootfs" else "",
        unchanged=written.unchanged,
        start=written.start,
    )


def _default(request: ConvertRequest, layout: Layout, name: str, ctx: Context) -> Path:
    """Return where the result goes: beside the layout; of a registry's image in this folder, as others name it."""
    suffix = SUFFIXES[request.to]
    if not layouts.is_cached(layout, ctx):
        return layout.path.absolute().parent / f"{name}{suffix}"
    tag = reference.parse(locate(request.ref, request.images).name).tag
    return Path(f"{name}_{tag}{suffix}" if tag else f"{name}{suffix}").absolute()


def _kernel(request: ConvertRequest, report: BuildReport, ctx: Context) -> str | None:
    """Return the kernel that was named, else that of the machine which the image was built for."""
    if request.kernel or request.to not in ("sif", "delta"):
        return request.kernel
    return kernel_of(report.asked.target if report.asked else "", ctx)


def kernel_of(target: str, ctx: Context) -> str | None:
    """Return the kernel of a target, by name; None where it names none, is a file of the user's or was removed."""
    if not target or is_recipe_file(target):
        return None
    with contextlib.suppress(GraphcrateError):
        return catalog.find_target(ctx, targets.MachineRequest(target=target)).kernel or None
    return None


def check_options(request: object, options: Options, kind: str, to: str) -> None:
    """Raises UsageError for an option that does not apply to this kind of result."""
    for option, (field, kinds) in options.items():
        if getattr(request, field) not in (None, False, ()) and kind not in kinds:
            raise UsageError(
                f"{option} does not apply to {to}",
                cause=f"It is for {joined(kinds)}.",
                next_step=f"leave {option} out",
            )


def created_of(layout: Layout) -> int:
    """The image's time of creation in Unix seconds; 0 where it states none that a squashfs can hold."""
    try:
        moment = datetime.datetime.fromisoformat(layout.config.created or "")
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return min(max(int(moment.timestamp()), 0), 0xFFFFFFFF)


def _refuse_existing(job: _Job) -> None:
    """Raises UsageError where something stands that may not be replaced."""
    if job.target.is_dir() and not job.target.is_symlink():
        raise UsageError(
            f"{job.target} is a folder that is there already",
            cause="Folders are never replaced, not by --force either.",
            next_step=f"rm -r {for_shell(job.target)}    or name another place: --output PATH",
        )
    check_writable(job.target.parent)  # now, and not after a minute of compressing
    if os.path.lexists(job.target) and not job.request.force:
        raise UsageError(
            f"{job.target} exists already",
            cause="It was made from another image, or does not say from which.",
            next_step="--force replaces it; --output PATH writes elsewhere",
        )


def _sif(job: _Job) -> _Written:
    fitting = choose_compression(job.kernel)
    compression = job.request.compression or fitting
    if job.request.kernel and compression is Compression.ZSTD and fitting is Compression.GZIP:
        raise UsageError(
            f"Linux {job.request.kernel} cannot mount a SIF with zstd: kernels can from "
            f"{facts.limit('kernel-zstd').since} on",
            next_step=f"{without('compression')}    (gzip is taken for that kernel)",
        )
    definition = runtime_files.definition(job.layout.config, job.title)
    blobs = (
        sif.DataObject(sif.TYPE_DEFINITION, "", definition.encode()),
        sif.DataObject(sif.TYPE_JSON, "oci-config.json", msgspec.json.encode(job.layout.config.run)),
    )
    inputs = f"{job.layout.digest} {job.title} {_way(compression)} {SIF_FORMAT}"
    identity = uuid.uuid5(uuid.NAMESPACE_OID, inputs)
    offset = sif.partition_offset(blobs)

    def front(size: int) -> bytes:
        with layout_errors():
            return sif.front(blobs, size, job.layout.config.architecture, identity, job.created)

    front(0)  # refuses what cannot be before the work begins
    if _is_same(job.target, offset, front):
        return _leave(job, compression)
    _refuse_existing(job)
    _note_compression(job, compression)
    files, packs = _packed(job, job.layout, compression)
    _write_squashed(job, compression, _for_singularity(files, job.layout, job.title), packs, offset, front)
    return _Written(compression)


def _note_compression(job: _Job, compression: Compression) -> None:
    """Say which compression a SIF or difference gets where none was asked for, and why."""
    if job.request.compression:
        return
    since, kernel, name = facts.limit("kernel-zstd").since, job.kernel, job.target.name
    if compression is Compression.GZIP:
        why = f"gzip, since Linux {kernel} mounts zstd from {since} on"
    elif kernel:
        why = f"zstd, which Linux {kernel} mounts"
    else:
        old = setting(kernel="3.10").both()
        why = f"zstd, for FUSE and Linux from {since} on; for set-user-id Singularity on CentOS 7: {old}"
    job.ctx.progress.note(f"{name}: {why}")


def _delta(job: _Job) -> _Written:
    """Write what the image has over another one, as a squashfs for `--overlay`."""
    if not job.request.over:
        raise UsageError(
            "a difference needs the image that it is to",
            next_step=f"{command('convert', job.request.ref, to='delta', over='pyg.sif')}    (or NAME:TAG)",
        )
    below, name = _base_of(job)
    compression = job.request.compression or choose_compression(job.kernel)
    _refuse_unmounted(job, name)
    _refuse_existing(job)
    _note_compression(job, compression)
    sides, packs = [], []
    for layout, title in ((below, str(name)), (job.layout, job.title)):
        files, packed_layers = _packed(job, layout, compression)
        started = _for_singularity(files, layout, title)
        sides.append(delta.Side(started, [layer.digest for layer in layout.layers]))
        packs.append(packed_layers)
    with contextlib.ExitStack() as stack, layout_errors():
        old, new = (
            [stack.enter_context(Contents(layer, compression)) for layer in packed_layers] for packed_layers in packs
        )

        def is_same(below: Inode, above: Inode) -> bool:
            assert below.stored is not None
            assert above.stored is not None, "it is asked of files of layers alone"
            before, now = old[below.stored.layer], new[above.stored.layer]
            return are_equal(before, below.stored, now, above.stored, above.size)

        changed = delta.difference(sides[0], sides[1], is_same)
    changed.pop(runtime_files.layout_mark(below.digest), None)  # by which a delta tells its base from other images
    changed = with_additions(changed, runtime_files.over_additions(str(name), below.digest), job.created)
    _write_squashed(job, compression, changed, packs[1])
    return _Written(compression, start=_start(job, below, name))


def _refuse_unmounted(job: _Job, name: origin.Origin) -> None:
    """Raises UsageError for a difference to a SIF that its kernel does not mount."""
    over = Path(job.request.over or "")
    if choose_compression(job.kernel) is Compression.GZIP and origin.compression_of(over) is Compression.ZSTD:
        again = command("convert", name.name, to="sif", kernel=job.kernel, output=str(over), force=True)
        raise UsageError(
            f"Linux {job.kernel} does not mount {over}, which has zstd: the difference to it would not start there",
            next_step=f"{again}    makes it with gzip; then the same command again",
        )


def _start(job: _Job, below: Layout, name: origin.Origin) -> str:
    """Return the line that starts a difference, with the paths of both files as they are from here."""
    over = Path(job.request.over or "")
    if not over.is_file():
        over = Path(f"{name.name.partition(':')[0]}.sif")
        over = made if (made := below.path.parent / over).is_file() else over
    shown = job.request.link or job.target
    return f"singularity run --nv --overlay {for_shell(str(shown))}:ro {for_shell(str(over))} python train.py"


def _base_of(job: _Job) -> tuple[Layout, origin.Origin]:
    """Return the layout that a difference is to, and its name. Raises UsageError for one that it cannot be to."""
    over = job.request.over or ""
    path = Path(over)
    layout, report = _layout_of(path, job) if path.is_file() else _named(over, job)
    if layout.digest == job.layout.digest:
        raise UsageError(
            f"{over} is that image itself",
            next_step=f"{command('image', report.name, with_='einops')}    makes one with more",
        )
    return layout, origin.Origin(_title(_short_name(report), layout).partition("@")[0], layout.digest)


def _named(ref: str, job: _Job) -> tuple[Layout, BuildReport]:
    try:
        return layouts.find(ref, job.request.images, job.ctx, job.layout.platform)
    except (UsageError, LayoutError) as error:
        raise UsageError(
            f"the layout that {job.request.over} was made of is not here",
            cause=error.what,
            next_step=f"name it: {command('convert', job.request.ref, to='delta', over='NAME:TAG')}",
        ) from error


def _layout_of(sif: Path, job: _Job) -> tuple[Layout, BuildReport]:
    """Find the layout that a SIF was made of: the one beside it, else by the name and digest in its definition."""
    stated = origin.of_sif(sif)
    if stated is None:
        raise UsageError(
            f"{sif} does not say which image it was made of",
            cause="Another program wrote it.",
            next_step=f"{command('convert', job.request.ref, to='delta', over='NAME:TAG')}    names a build of yours",
        )
    with contextlib.suppress(UsageError, LayoutError):
        beside = find_image(str(sif.resolve().parent / "oci"), job.request.images, job.layout.platform)
        if beside[0].digest == stated.digest:
            return beside
    return _named(str(stated), job)


def _short_name(report: BuildReport) -> str:
    """Return an image's name without its registry and folders."""
    return report.name.rpartition("/")[2] or "image"


def _title(name: str, layout: Layout) -> str:
    tag = f":{layout.tag}" if layout.tag else ""
    return f"{name}{tag}@{layout.digest}"


def _way(compression: Compression) -> str:
    """Return what a squashfs's bytes depend on besides the layout, so that one that is there tells how it was made."""
    levels = "-".join(map(str, LEVELS[compression]))
    return f"{compression} {levels} {BLOCKS[compression]} {packed.version()}"


def _provenance(job: _Job, compression: Compression) -> str:
    """Return the line in which a squashfs for enroot names its source and how it was packed."""
    return f"oci:{job.title} ({_way(compression)})"


def _leave(job: _Job, compression: str = "") -> _Written:
    job.ctx.progress.note(f"{job.target} is there, made of the same layout in the same way")
    return _Written(compression, unchanged=True)


def _sqsh(job: _Job) -> _Written:
    if job.request.kernel:
        choose_compression(job.request.kernel)  # refuses what is no version
    compression = job.request.compression or Compression.ZSTD
    if _is_same_sqsh(job, compression):
        return _leave(job, compression)
    _refuse_existing(job)
    if not job.request.compression:
        job.ctx.progress.note(
            f"{job.target.name}: zstd, since enroot unpacks it by unsquashfs, whatever the kernel; where that is older "
            f"than {facts.limit('tools-zstd').since} (2019): {setting(compression='gzip').both()}"
        )
    files, packs = _packed(job, job.layout, compression)
    additions = runtime_files.enroot_additions(job.layout.config, _provenance(job, compression))
    files = runtime_files.enroot_imported(with_additions(files, additions, job.created))
    _write_squashed(job, compression, files, packs)
    return _Written(compression)


def _is_same_sqsh(job: _Job, compression: Compression) -> bool:
    """Return whether a whole squashfs is there whose start script names this image and today's way of making it."""
    provenance = _provenance(job, compression)
    script = runtime_files.enroot_rc(job.layout.config, provenance).encode("utf-8", "surrogateescape")
    with contextlib.suppress(OSError, LayoutError), layout_errors(), Squashfs(job.target) as image:
        padded = image.size + -image.size % writer.ALIGNMENT
        if image.compression == compression and job.target.stat().st_size == padded:
            return image.content("/etc/rc") == script
    return False


def _is_same(target: Path, offset: int, front: Callable[[int], bytes]) -> bool:
    """Return whether a SIF is there that is whole and was made from the same."""
    try:
        size = target.stat().st_size
        with target.open("rb") as file:
            return size > offset and file.read(offset) == front(size - offset)
    except OSError:
        return False


def _packed(job: _Job, layout: Layout, compression: Compression) -> tuple[dict[str, Inode], tuple[Packed, ...]]:
    """Return an image's files and where their blocks are, which are made where the cache lacks them."""
    size = sum(layer.size for layer in layout.layers)
    if job.request.to != "delta":  # whose room is known once it is
        require_room(job.target.absolute().parent, int(size * packed.GROWTH), job.target)
    with job.ctx.progress.task(f"compressing layers ({compression})", size) as task:
        return packed.read_packed(layout, compression, job.ctx.cache, task.advance)


def _for_singularity(files: Mapping[str, Inode], layout: Layout, title: str) -> dict[str, Inode]:
    """Return an image's files with those by which Singularity starts it."""
    definition = runtime_files.definition(layout.config, title)
    additions = runtime_files.singularity_additions(layout.config, definition, layout.digest)
    return with_additions(files, additions, created_of(layout))


def _write_squashed(
    job: _Job,
    compression: Compression,
    files: Mapping[str, Inode],
    packs: Sequence[Packed],
    offset: int = 0,
    front: Callable[[int], bytes] | None = None,
) -> None:
    """Write these files as a squashfs at `offset` of the target, after the `front` for its size."""
    size = writer.blocks_size(files, packs)
    require_room(job.target.absolute().parent, size, job.target)
    with (
        writing(job.target, 0o755 if front else 0o644) as part,
        job.ctx.progress.task(f"writing {job.target.name}", size) as task,
    ):
        with part.open("xb", buffering=_CHUNK) as stream:
            stream.seek(offset)
            with layout_errors():
                read = packed.EARLY[compression]
                writer.write(stream, files, packs, compression, job.created, task.advance, read)
            if front:
                data = front(stream.tell() - offset)
                stream.seek(0)
                stream.write(data)


def choose_compression(kernel: str | None) -> Compression:
    """The compression that a kernel ("3.10", "5.14.0-70.el9") can mount; zstd where none is named: FUSE reads it too.

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


def _archive(job: _Job) -> _Written:
    name = docker_name(job.name, job.layout.tag)
    is_docker = job.request.to == "docker"
    if is_docker and docker_archive.is_docker(job.target, job.layout, name):
        return _leave(job)
    if not is_docker and docker_archive.is_oci(job.target, job.layout):
        return _leave(job)
    _refuse_existing(job)
    require_room(job.target.absolute().parent, job.layout.size, job.target)
    with (
        writing(job.target) as part,
        part.open("xb", buffering=_CHUNK) as stream,
        job.ctx.progress.task(f"writing {job.target.name}", job.layout.size) as task,
    ):
        if is_docker:
            docker_archive.write_docker(stream, job.layout, name, job.created, task.advance)
        else:
            docker_archive.write_oci(stream, job.layout, job.created, task.advance)
    return _Written()


def docker_name(name: str, tag: str) -> str | None:
    """`name:tag` where Docker takes that for a name, else None: it can be loaded, and has its id alone."""
    text = f"{name}:{tag or 'latest'}"
    with contextlib.suppress(UsageError):
        reference.parse(text)
        return text
    return None


def _rootfs(job: _Job) -> _Written:
    if os.geteuid() != 0:
        raise HostError(
            "a root file system is faithful only with its files' owners, which root alone can give them",
            next_step=f"unshare --map-root-user --map-auto {command('convert', job.request.ref, to='rootfs')}    "
            f"(a user's own ids; or sudo; {command('run', job.request.ref, '…')} needs neither)",
        )
    _refuse_existing(job)
    check_presence(job.layout)
    with job.ctx.progress.task("checking layers", job.layers_size) as task:
        seen = parallel(inspect_layer, job.layout.layer_blobs, advance=task.advance)
    for layer, read in zip(job.layout.layers, seen, strict=True):
        check_digest("layer", layer.digest, read.digest)
    size = sum(read.unpacked_size for read in seen)
    require_room(job.target.absolute().parent, size, job.target)
    with job.ctx.progress.task(f"unpacking to {job.target.name}", job.layers_size) as task:
        withheld = unpack(job.layout.layer_blobs, job.target, advance=task.advance, faithful=True)
    for line in withheld.lines():
        job.ctx.progress.note(line)
    return _Written(size=size)


_WRITERS: Mapping[ResultForm, Callable[[_Job], _Written]] = {
    "sif": _sif,
    "sqsh": _sqsh,
    "delta": _delta,
    "docker": _archive,
    "rootfs": _rootfs,
    "oci-archive": _archive,
}
