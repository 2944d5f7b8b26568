"""Files in a folder that many share: `<name>-<tag>.sif`, its checksum, and `<name>.sif` → the newest.

A file appears whole under its name or not at all: it grows under a temporary name, is synced (a server of NFS reports
a full disk there) and renamed. No lock is held, since NFS and Lustre are often mounted without.
"""

import contextlib
import dataclasses
import errno
import filecmp
import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from dssesign import keys
from dssesign.keys import SIGNATURE
from graphcrate.artifacts import origin
from graphcrate.artifacts.conversion.job import SUFFIXES
from graphcrate.compat.plan.image_config import EXAMPLES
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk import key_files, os_errors
from graphcrate.host.disk.atomic import check_link, check_writable, claim, synced
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.disk.space import file_system, require_room
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox.attach import ask_password
from graphcrate.model.command import CHECKOUT_PROGRAM, command, for_shell
from graphcrate.model.errors import UsageError
from graphcrate.model.report import BuildReport
from graphcrate.publish import attestations
from graphcrate.publish.destinations import bases, bundle
from graphcrate.publish.destinations.destination import Delivery, Destination, Published, converted, made_of
from graphcrate.publish.destinations.parse import folder_path
from graphcrate.publish.policy import FILE_FORMS, FileForm, ImageEvidence, PublishRequest, examine

ABANDONED = 86_400.0  #: seconds after which a temporary file is not written to any more
_PART = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.ASCII)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_CHUNK = 4 << 20
#: small files stay whole, large ones lie on all servers. Source: CSCS' documentation for folders of images
_STRIPES = "lfs setstripe -E 4M -c 1 -E 64M -c 4 -E -1 -c -1 -S 4M"


def publish(
    source: Path,
    sha256: str,
    target: Path,
    latest: Path | None,
    *,
    progress: Progress,
    replace: bool = False,
    signature: bytes = b"",
) -> bool:
    """Copy a file with this hash, its checksum beside it, and link `latest` to it; False where there is no link.

    `signature`: of the file, to be beside it too. `replace`: another file under this name gives way.
    Raises UsageError for a name that is taken, DiskFullError,
    HostError; then what was there is there still.
    """
    folder = target.parent
    beside = {target.with_name(f"{target.name}.sha256"): f"{sha256}  {target.name}\n".encode()}
    beside[target.with_name(f"{target.name}{SIGNATURE}")] = signature
    with os_errors.explaining(folder):
        _prepare(folder, latest)
        there = _identity(target)
        if not _same(source, target):
            if os.path.lexists(target) and not replace:
                raise _taken(target)
            with _beside(source, target, progress) as part:
                there = _identity(part)
                if replace:
                    for path in beside:
                        path.unlink(missing_ok=True)  # none rather than a wrong one
                    part.replace(target)
                elif not claim(part, target):
                    there = _identity(target)
                    if not _same(source, target):  # another publisher was faster
                        raise _taken(target)
        for path, content in beside.items():
            if content:
                _write_beside(path, content, target, there)
        if not target.stat().st_mode & stat.S_IRGRP:
            opened = f"chmod -R g+rX {for_shell(folder)}"
            progress.note(f"{target} is for its owner alone (umask): {opened} lets your group read it")
        linked = latest is not None and _link(latest, target)
    if latest is not None and not linked:
        progress.note(f"{folder} takes no links: there is no {latest.name}")
    return linked


def _write_beside(path: Path, content: bytes, target: Path, there: object) -> None:
    """Write what is said of the file that was `there`: nothing once another publisher has replaced that."""
    if _identity(target) != there:
        return
    write(path, content)
    if _identity(target) != there:
        path.unlink(missing_ok=True)


def _identity(path: Path) -> object:
    """Return what tells a file from another one that takes its name; None where there is none."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def write(target: Path, data: bytes) -> None:
    """Write a small file whole or not at all. Raises DiskFullError, HostError."""
    with os_errors.explaining(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _part(target) as part:
            with synced(part) as stream:
                stream.write(data)
            part.replace(target)


def _prepare(folder: Path, latest: Path | None) -> None:
    """Make the folder; remove what killed publishers left. Raises HostError where the link cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    if latest is not None:
        check_link(latest)
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if _PART.fullmatch(part.name) and settings.now() - part.stat().st_mtime > ABANDONED:
                part.unlink()


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A temporary name beside `target`; a file of that name is removed at the end."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _beside(source: Path, target: Path, progress: Progress) -> Iterator[Path]:
    """A copy of a file beside `target`; the file itself where it was made there."""
    if source.parent == target.parent:
        yield source
        return
    folder, size = target.parent, source.stat().st_size
    require_room(folder, size, target)
    with _part(target) as part, progress.task(f"copying to {folder}", size) as task:
        _copy(source, part, 0o777 if target.suffix == ".sif" else 0o666, task.advance)
        yield part


def _copy(source: Path, target: Path, mode: int, advance: Callable[[int], None]) -> None:
    """Copy a file to the disk, its mode less the umask."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with source.open("rb") as reading, os.fdopen(descriptor, "wb") as writing:
        while chunk := reading.read(_CHUNK):
            writing.write(chunk)
            advance(len(chunk))
        writing.flush()
        os.fsync(descriptor)


def _same(source: Path, target: Path) -> bool:
    """Return whether both files have the same content. A link at `target` is another thing."""
    return target.is_file() and not target.is_symlink() and filecmp.cmp(source, target, shallow=False)


def _link(latest: Path, target: Path) -> bool:
    """Make the name without a tag a relative link to the file; False where the file system has no links."""
    try:
        with _part(latest) as part:
            part.symlink_to(target.name)
            part.replace(latest)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


@contextlib.contextmanager
def _made(
    image: ImageEvidence, request: PublishRequest, form: FileForm, target: Path, latest: Path | None, ctx: Context
) -> Iterator[tuple[Path, str]]:
    """Make a file and its hash: a bundle in its folder, under a temporary name; the others stay beside the image."""
    if form != "bundle":
        made = converted(image, request, form, ctx)
        yield Path(made.path), made.sha256
        return
    sif = converted(image, request, "sif", ctx)
    with os_errors.explaining(target.parent), _part(target) as path:
        _prepare(target.parent, latest)
        bundle.write(path, image, Path(sif.path), ctx)
        yield path, sha256_of(path)


def _base(request: PublishRequest, ctx: Context) -> ImageEvidence:
    """Return the image that a delta goes over, which has to be fit to go out as well. Raises GateError, UsageError."""
    over = request.over or ""
    stated = origin.of_sif(Path(over)) if Path(over).is_file() else None
    return examine(dataclasses.replace(request, ref=str(stated or over), tags=()), ctx)


def _taken(target: Path) -> UsageError:
    return UsageError(
        f"{target} is there already, and it is another file",
        cause="Another image was published under this name and tag.",
        next_step="--replace puts the new one in its place; jobs that read the old one may fail on NFS",
    )


@dataclass(frozen=True, kw_only=True)
class SharedFolder(Destination):
    """A folder that several machines share, or that is carried to a site without a network."""

    path: Path

    title: ClassVar[str] = "a folder"
    forms: ClassVar[str] = (
        "    /shared/images, ./images          a folder for .sif, .sqsh, .tar (file:PATH for any other name)"
    )
    options: ClassVar[frozenset[str]] = frozenset({"--as", "--kernel", "--compression", "--replace", "--key", "--over"})

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Self | None:
        """Read a path, or file:PATH."""
        path = folder_path(text, environment)
        return None if path is None else cls(path=path)

    @property
    def receiver(self) -> str:
        """The folder's path."""
        return str(self.path)

    def check(self) -> None:
        """Raise HostError for a folder that cannot be written."""
        check_writable(self.path)

    def publish(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> Published:
        """Write each form as a file, then the build's report and the statements beside them."""
        if "bundle" in request.forms:
            bundle.require_program(ctx)
        key = key_files.read_private(request.key, ctx.environment, ask_password) if request.key else None
        self._note_place(ctx)
        base = self._with_base(request, ctx) if request.over else None
        report, written, lines = image.report, [], {}
        for form, target in self._targets(report, request):
            suffix = target.name.removeprefix(f"{report.name}-{report.tag}")
            name = f"{report.name}{image.layout.platform.suffix}{suffix}"  # a file is for one platform
            latest = None if form == "delta" else self.path / name  # the newest delta is another user's
            with _made(image, request, form, target, latest, ctx) as (source, sha256):
                signature = keys.sign_file(key, sha256) if key else b""
                beside = target.with_name(f"{target.name}{keys.SIGNATURE}")
                was_signed = beside.exists()
                linked = publish(
                    *(source, sha256, target, latest),
                    progress=ctx.progress,
                    replace=request.replace,
                    signature=signature,
                )
                if was_signed and not beside.exists():
                    ctx.progress.warn(f"the signature of the {target.name} before is gone; --key signs this one")
            runtime, line = self._line(form, target, latest if linked and latest else target, report, base)
            lines[runtime] = line
            written.append((target, sha256))
        for name, data in attestations.files(image, ctx).items():
            write(self._proofs(report) / name, data)
        target, sha256 = written[0]
        return Published(
            name=report.name,
            tag=report.tag,
            reference=str(target),
            digest=f"sha256:{sha256}",
            signed="key" if key else "",
            lines=lines,
        )

    def require_answer(self, name: str, tag: str, request: PublishRequest, ctx: Context) -> None:
        """Do nothing: `check` has asked whether it can be written."""

    def plan(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> tuple[Delivery, ...]:
        """Tell which files would be written. Raises UsageError for a name that is taken, DiskFullError."""
        own, deliveries = 0, list[Delivery]()
        if request.over:
            own, of_base = self._plan_base(image, request, ctx)
            deliveries += of_base
        for form, target in self._targets(image.report, request):
            source = None if form == "bundle" else made_of(image, form)
            is_there = source is not None and _same(source, target)
            if source and not is_there and os.path.lexists(target) and not request.replace:
                raise _taken(target)
            made = {"bundle": 2 * image.layout.size, "delta": own}.get(form, image.layout.size)
            size = source.stat().st_size if source else made
            deliveries.append(
                Delivery(
                    what="checksum and signature beside it" if request.key else "checksum beside it",
                    place=str(target),
                    bytes=size,
                    bytes_there=size if is_there else 0,
                    is_made=source is not None,
                )
            )
        self._note_place(ctx)
        require_room(self.path, sum(row.bytes - row.bytes_there for row in deliveries), self.path)
        documents = attestations.files(image, ctx)
        size = sum(map(len, documents.values()))
        proofs = Delivery(what=f"{len(documents)} documents", place=str(self._proofs(image.report)), bytes=size)
        return (*deliveries, proofs)

    def _with_base(self, request: PublishRequest, ctx: Context) -> Path:
        """Return the folder's SIF of the image that a delta goes over, written where it is missing."""
        below = _base(request, ctx)
        if there := bases.find(self.path, below.layout.digest):
            ctx.progress.note(f"over {there}, which is there")
            return there
        return Path(self._bases.publish(below, dataclasses.replace(request, forms=(), over=None), ctx).reference)

    @property
    def _bases(self) -> Self:
        return dataclasses.replace(self, path=self.path / origin.BASES_FOLDER)

    def _plan_base(
        self, image: ImageEvidence, request: PublishRequest, ctx: Context
    ) -> tuple[int, tuple[Delivery, ...]]:
        """Tell the bytes of layers that a delta's image has over its base, and what would be written of that."""
        below = _base(request, ctx)
        there = {layer.digest for layer in below.layout.layers}
        own = sum(layer.size for layer in image.layout.layers if layer.digest not in there)
        if bases.find(self.path, below.layout.digest):
            return own, ()
        return own, self._bases.plan(below, dataclasses.replace(request, forms=(), over=None), ctx)

    def _note_place(self, ctx: Context) -> None:
        if not self.path.exists():
            ctx.progress.note(f"{self.path} is a new folder")
        if file_system(self.path) == "lustre" and self.path.name != origin.BASES_FOLDER:
            ctx.progress.note(
                f"{self.path} is on Lustre: unless its stripes are set, images lie on one server, and all nodes read "
                f"there; {_STRIPES} {for_shell(str(self.path))} spreads new ones"
            )

    def _targets(self, report: BuildReport, request: PublishRequest) -> Iterator[tuple[FileForm, Path]]:
        for form in request.forms or FILE_FORMS[:1]:
            suffix = bundle.SUFFIX if form == "bundle" else SUFFIXES[form]
            yield form, self.path / f"{report.name}-{report.tag}{suffix}"

    def _proofs(self, report: BuildReport) -> Path:
        return self.path / f"{report.name}-{report.tag}.proofs"

    def _line(
        self, form: FileForm, target: Path, path: Path, report: BuildReport, base: Path | None
    ) -> tuple[str, str]:
        """Return a runtime and what its users type. `path`: the name that they use; `base`: what a delta goes over."""
        if form in ("sif", "delta"):
            nv = "" if report.torch_cuda == "cpu" else " --nv"
            image = f"--overlay {path}:ro {base}" if form == "delta" else path
            return "singularity", f"singularity run{nv} {image} python {EXAMPLES}/torch_check.py"
        if form == "sqsh":
            return "srun", f"srun --container-image={path.absolute()} python {EXAMPLES}/torch_check.py"
        if form == "bundle":
            there = command("run", f"{report.name}:{report.tag}", "--", "python", "…").by(CHECKOUT_PROGRAM)
            return "elsewhere", f"tar -xf {shlex.quote(str(target))} && cd {bundle.FOLDER} && {there}"
        there = f"dist/{report.name}/{report.tag}"
        unpack = f"mkdir -p {there}/oci && tar -xf {shlex.quote(str(target))} -C {there}/oci"
        copy = f"cp {shlex.quote(str(self._proofs(report) / 'report.json'))} {there}"
        clone = command("run").by(CHECKOUT_PROGRAM)
        return (
            "elsewhere",
            f"{unpack} && {copy}    (in a clone of graphcrate: {clone}, convert and test take it)",
        )
