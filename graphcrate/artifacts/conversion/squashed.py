"""A SIF, and enroot's squashfs: their files, and what tells that one is there already."""

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.conversion.compression import choose_compression, note_choice
from graphcrate.artifacts.conversion.job import CHUNK, Conversion, WrittenFile, created_of, leave, refuse_existing
from graphcrate.artifacts.formats import packed, runtime_files
from graphcrate.artifacts.formats.merged import with_additions
from graphcrate.artifacts.formats.translated import layout_errors
from graphcrate.compat.facts import facts
from graphcrate.host.disk.atomic import writing
from graphcrate.host.disk.space import require_room
from graphcrate.model.command import setting, without
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.oci.layout import Layout
from sifsquash import sif, writer
from sifsquash.packer import BLOCKS, LEVELS, Packed
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression, Inode

#: Raise it whenever the same layout would give another SIF. Part of the SIF's identity.
SIF_FORMAT = 3


def write_sif(job: Conversion) -> WrittenFile:
    """Write a SIF, unless it is there. Raises UsageError for what the kernel does not mount; else as `run.convert`."""
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
        return leave(job, compression)
    refuse_existing(job)
    note_choice(job, compression)
    files, packs = packed_layers(job, job.layout, compression)
    write_squashed(job, compression, for_singularity(files, job.layout, job.title), packs, offset, front)
    return WrittenFile(compression)


def write_sqsh(job: Conversion) -> WrittenFile:
    """Write a squashfs as enroot imports one, unless it is there. Raises as `run.convert`."""
    if job.request.kernel:
        choose_compression(job.request.kernel)  # refuses what is no version
    compression = job.request.compression or Compression.ZSTD
    if _is_same_sqsh(job, compression):
        return leave(job, compression)
    refuse_existing(job)
    if not job.request.compression:
        job.ctx.progress.note(
            f"{job.target.name}: zstd, since enroot unpacks it by unsquashfs, whatever the kernel; where that is older "
            f"than {facts.limit('tools-zstd').since} (2019): {setting(compression='gzip').both()}"
        )
    files, packs = packed_layers(job, job.layout, compression)
    additions = runtime_files.enroot_additions(job.layout.config, _provenance(job, compression))
    files = runtime_files.enroot_imported(with_additions(files, additions, job.created))
    write_squashed(job, compression, files, packs)
    return WrittenFile(compression)


def packed_layers(
    job: Conversion, layout: Layout, compression: Compression
) -> tuple[dict[str, Inode], tuple[Packed, ...]]:
    """Return an image's files and where their blocks are, which are made where the cache lacks them."""
    size = sum(layer.size for layer in layout.layers)
    if job.request.to != "delta":  # whose room is known once it is
        require_room(job.target.absolute().parent, int(size * packed.GROWTH), job.target)
    job.pull()
    with job.ctx.progress.task(f"compressing layers ({compression})", size) as task:
        return packed.read_packed(layout, compression, job.ctx.cache, task.advance)


def for_singularity(files: Mapping[str, Inode], layout: Layout, title: str) -> dict[str, Inode]:
    """Return an image's files with those by which Singularity starts it."""
    definition = runtime_files.definition(layout.config, title)
    additions = runtime_files.singularity_additions(layout.config, definition, layout.digest)
    return with_additions(files, additions, created_of(layout))


def write_squashed(
    job: Conversion,
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
        with part.open("xb", buffering=CHUNK) as stream:
            stream.seek(offset)
            with layout_errors():
                read = packed.EARLY[compression]
                writer.write(stream, files, packs, compression, job.created, task.advance, read)
            if front:
                data = front(stream.tell() - offset)
                stream.seek(0)
                stream.write(data)


def _is_same(target: Path, offset: int, front: Callable[[int], bytes]) -> bool:
    """Return whether a SIF is there that is whole and was made from the same."""
    try:
        size = target.stat().st_size
        with target.open("rb") as file:
            return size > offset and file.read(offset) == front(size - offset)
    except OSError:
        return False


def _is_same_sqsh(job: Conversion, compression: Compression) -> bool:
    """Return whether a whole squashfs is there whose start script names this image and today's way of making it."""
    provenance = _provenance(job, compression)
    script = runtime_files.enroot_rc(job.layout.config, provenance).encode("utf-8", "surrogateescape")
    with contextlib.suppress(OSError, LayoutError), layout_errors(), Squashfs(job.target) as image:
        padded = image.size + -image.size % writer.ALIGNMENT
        if image.compression == compression and job.target.stat().st_size == padded:
            return image.content("/etc/rc") == script
    return False


def _way(compression: Compression) -> str:
    """Return what a squashfs's bytes depend on besides the layout, so that one that is there tells how it was made."""
    levels = "-".join(map(str, LEVELS[compression]))
    return f"{compression} {levels} {BLOCKS[compression]} {packed.version()}"


def _provenance(job: Conversion, compression: Compression) -> str:
    """Return the line in which a squashfs for enroot names its source and how it was packed."""
    return f"oci:{job.title} ({_way(compression)})"
