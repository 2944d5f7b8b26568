"""An archive for Docker or skopeo, and a folder."""

import contextlib
import os

from graphcrate.artifacts.conversion.job import CHUNK, Conversion, WrittenFile, leave, refuse_existing
from graphcrate.artifacts.formats import docker_archive
from graphcrate.artifacts.formats.merged import check_digest
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.host.disk.atomic import writing
from graphcrate.host.disk.space import require_room
from graphcrate.host.parallel import parallel
from graphcrate.model.command import command
from graphcrate.model.errors import HostError, UsageError
from graphcrate.oci import reference
from graphcrate.oci.layout import check_presence
from graphcrate.oci.validate import inspect_layer


def write_archive(job: Conversion) -> WrittenFile:
    """Write an archive for Docker or skopeo, unless it is there. Raises as `run.convert`."""
    name = docker_name(job.name, job.layout.tag)
    is_docker = job.request.to == "docker"
    if is_docker and docker_archive.is_docker(job.target, job.layout, name):
        return leave(job)
    if not is_docker and docker_archive.is_oci(job.target, job.layout):
        return leave(job)
    refuse_existing(job)
    require_room(job.target.absolute().parent, job.layout.size, job.target)
    job.pull()
    with (
        writing(job.target) as part,
        part.open("xb", buffering=CHUNK) as stream,
        job.ctx.progress.task(f"writing {job.target.name}", job.layout.size) as task,
    ):
        if is_docker:
            docker_archive.write_docker(stream, job.layout, name, job.created, task.advance)
        else:
            docker_archive.write_oci(stream, job.layout, job.created, task.advance)
    return WrittenFile()


def docker_name(name: str, tag: str) -> str | None:
    """`name:tag` where Docker takes that for a name, else None: it can be loaded, and has its id alone."""
    text = f"{name}:{tag or 'latest'}"
    with contextlib.suppress(UsageError):
        reference.parse(text)
        return text
    return None


def write_folder(job: Conversion) -> WrittenFile:
    """Unpack the image, its layers checked. Raises HostError for anyone but root; else as `run.convert`."""
    if os.geteuid() != 0:
        raise HostError(
            "a root file system is faithful only with its files' owners, which root alone can give them",
            next_step=f"unshare --map-root-user --map-auto {command('convert', job.request.ref, to='rootfs')}    "
            f"(a user's own ids; or sudo; {command('run', job.request.ref, '…')} needs neither)",
        )
    refuse_existing(job)
    job.pull()
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
    return WrittenFile(size=size)
