"""The difference of an image to another one, as a squashfs for `--overlay`."""

import contextlib
from pathlib import Path

from graphcrate.artifacts import layouts, origin
from graphcrate.artifacts.conversion import squashed
from graphcrate.artifacts.conversion.compression import choose_compression, note_choice
from graphcrate.artifacts.conversion.job import Conversion, WrittenFile, refuse_existing, short_name, title_of
from graphcrate.artifacts.formats import delta, runtime_files
from graphcrate.artifacts.formats.merged import with_additions
from graphcrate.artifacts.formats.translated import layout_errors
from graphcrate.artifacts.locate import find_image
from graphcrate.model.command import command, for_shell
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.model.report import BuildReport
from graphcrate.oci.layout import Layout
from sifsquash.contents import Contents, are_equal
from sifsquash.values import Compression, Inode


def write_delta(job: Conversion) -> WrittenFile:
    """Write what the image has over another one, as a squashfs for `--overlay`."""
    if not job.request.over:
        raise UsageError(
            "a difference needs the image that it is to",
            next_step=f"{command('convert', job.request.ref, to='delta', over='pyg.sif')}    (or NAME:TAG)",
        )
    below, name = _base_of(job)
    compression = job.request.compression or choose_compression(job.kernel)
    _refuse_unmounted(job, name)
    refuse_existing(job)
    note_choice(job, compression)
    sides, packs = [], []
    for layout, title in ((below, str(name)), (job.layout, job.title)):
        files, packs_of_layout = squashed.packed_layers(job, layout, compression)
        started = squashed.for_singularity(files, layout, title)
        sides.append(delta.Side(started, [layer.digest for layer in layout.layers]))
        packs.append(packs_of_layout)
    with contextlib.ExitStack() as stack, layout_errors():
        old, new = ([stack.enter_context(Contents(layer, compression)) for layer in layers] for layers in packs)

        def is_same(below: Inode, above: Inode) -> bool:
            assert below.stored is not None
            assert above.stored is not None, "it is asked of files of layers alone"
            before, now = old[below.stored.layer], new[above.stored.layer]
            return are_equal(before, below.stored, now, above.stored, above.size)

        changed = delta.difference(sides[0], sides[1], is_same)
    changed.pop(runtime_files.layout_mark(below.digest), None)  # by which a delta tells its base from other images
    changed = with_additions(changed, runtime_files.over_additions(str(name), below.digest), job.created)
    squashed.write_squashed(job, compression, changed, packs[1])
    return WrittenFile(compression, start=_start(job, below, name))


def _refuse_unmounted(job: Conversion, name: origin.Origin) -> None:
    """Raises UsageError for a difference to a SIF that its kernel does not mount."""
    over = Path(job.request.over or "")
    if choose_compression(job.kernel) is Compression.GZIP and origin.compression_of(over) is Compression.ZSTD:
        again = command("convert", name.name, to="sif", kernel=job.kernel, output=str(over), force=True)
        raise UsageError(
            f"Linux {job.kernel} does not mount {over}, which has zstd: the difference to it would not start there",
            next_step=f"{again}    makes it with gzip; then the same command again",
        )


def _start(job: Conversion, below: Layout, name: origin.Origin) -> str:
    """Return the line that starts a difference, with the paths of both files as they are from here."""
    over = Path(job.request.over or "")
    if not over.is_file():
        over = Path(f"{name.name.partition(':')[0]}.sif")
        over = made if (made := below.path.parent / over).is_file() else over
    shown = job.request.link or job.target
    return f"singularity run --nv --overlay {for_shell(str(shown))}:ro {for_shell(str(over))} python train.py"


def _base_of(job: Conversion) -> tuple[Layout, origin.Origin]:
    """Return the layout that a difference is to, and its name. Raises UsageError for one that it cannot be to."""
    over = job.request.over or ""
    path = Path(over)
    layout, report = _layout_of(path, job) if path.is_file() else _named(over, job)
    if layout.digest == job.layout.digest:
        raise UsageError(
            f"{over} is that image itself",
            next_step=f"{command('image', report.name, with_='einops')}    makes one with more",
        )
    return layout, origin.Origin(title_of(short_name(report), layout).partition("@")[0], layout.digest)


def _named(ref: str, job: Conversion) -> tuple[Layout, BuildReport]:
    try:
        image = layouts.find(ref, job.request.images, job.ctx, job.layout.platform)
    except (UsageError, LayoutError) as error:
        raise UsageError(
            f"the layout that {job.request.over} was made of is not here",
            cause=error.what,
            next_step=f"name it: {command('convert', job.request.ref, to='delta', over='NAME:TAG')}",
        ) from error
    image.pull()
    return image.layout, image.report


def _layout_of(sif: Path, job: Conversion) -> tuple[Layout, BuildReport]:
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
