"""Locate the image that a user names: a build of ours, a path, an engine's store, a registry."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graphcrate.artifacts import names, origin
from graphcrate.artifacts.reports import read_report
from graphcrate.compat.facts.addresses import cuda_label, labelled_cuda
from graphcrate.host.sandbox.emulation import this_machine
from graphcrate.model.command import USUAL_STACK, command, for_shell, without
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import Platform
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.model.tree import Form
from graphcrate.oci.layout import Layout, read_layout
from ociregistry import reference
from sifsquash import sif, squashfs

FORMS = (
    "NAME:TAG below dist/, the path of an OCI layout, of a tar (docker save, oci-archive), of a .sif, of a .sqsh, of a "
    "delta or of a root file system's folder, docker:NAME:TAG, podman:NAME:TAG"
)
#: as skopeo writes them; the path says what it is
_PATH_PREFIXES = ("oci:", "oci-archive:", "docker-archive:")
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LABELS = ("candidate", "torch", "torch.cuda", "cuda", "python", "lock.sha256")
_CALLED: Mapping[Form, str] = {
    "sif": "a SIF",
    "squashfs": "a squashfs",
    "delta": "what an image has over another one",
    "archive": "an archive (skopeo copy docker-archive:FILE oci:FOLDER:TAG makes a layout of it)",
    "folder": "a folder",
    "docker": "in Docker's store",
    "podman": "in Podman's store",
    "registry": "on a registry",
}
#: endings of files of images → the form for `convert` that makes one
_ENDINGS = {".sif": "sif", ".simg": "sif", ".img": "sif", ".sqsh": "sqsh", ".tar": "docker"}
#: of files that Apptainer fetches
_ADDRESSES = ("oras://", "library://", "http://", "https://")


@dataclass(frozen=True, kw_only=True)
class Located:
    """An image: what it is and where. `name`: in an engine's store, on a registry, or the file's or folder's.

    `ours`: the folder dist/<name>/<tag> of a build of ours, where it was named as NAME:TAG. A build by an engine alone
    has no layout there. `tag`: of one image among several in a layout.
    """

    ref: str
    form: Form
    name: str
    path: Path = Path()
    tag: str = ""
    ours: Path | None = None
    platform: Platform | None = None  #: of one for several, that was asked for

    @property
    def has_layout(self) -> bool:
        """Return whether it is an OCI layout on this machine."""
        return self.form == "layout" and _is_layout(self.path)

    def layout_for(self, platform: Platform) -> Layout:
        """Read its OCI layout, of several platforms that of this one; a single one as it is. Raises LayoutError."""
        return read_layout(self.path, self.tag, platform)

    def layout(self) -> Layout:
        """Read its OCI layout, of several platforms that of the one asked for, else of this machine's.

        Raises LayoutError, UsageError for another platform than was asked for.
        """
        layout = self.layout_for(self.platform or this_machine())
        check_platform(self.ref, f"{layout.config.os}/{layout.config.architecture}", self.platform)
        return layout


def locate(ref: str, output: Path) -> Located:
    """Locate an image. `output`: the folder of builds. Raises UsageError where there is none, with what there is.

    A NAME:TAG@DIGEST of ours must still have that digest.
    """
    if engine := store_of(ref):
        return Located(ref=ref, form=engine, name=ref.removeprefix(f"{engine}:"))
    if ref.startswith(_ADDRESSES):
        raise UsageError(
            f"{ref} is an address of a file, and an image on a registry is named without oras:// or http://",
            cause="Apptainer fetches such files.",
            next_step=f"apptainer pull image.sif {for_shell(ref)}    and give image.sif",
        )
    if located := _at_path(ref) or _built(ref, output):
        return located
    is_path = not ref.startswith(reference.SCHEME) and Path(ref.partition("/")[0]).exists()
    if not is_path and (name := reference.on_registry(ref)):
        return Located(ref=ref, form="registry", name=name)
    raise _missing(ref, output)


def store_of(ref: str) -> Literal["docker", "podman"] | None:
    """Return the engine that has the image in its store, by how it is named: docker:NAME."""
    if ref.startswith(reference.SCHEME):
        return None
    return "docker" if ref.startswith("docker:") else "podman" if ref.startswith("podman:") else None


def is_image_file(ref: str) -> bool:
    """Return whether a reference has the name of a file of an image, which may be missing."""
    return Path(ref).suffix in _ENDINGS


def check_platform(ref: str, platform: str, asked: Platform | None) -> None:
    """Raises UsageError where an image is for another platform than was asked for."""
    if asked is not None and platform != asked.name:
        raise UsageError(
            f"{ref} is an image for {platform or 'a platform that it does not name'}, and {asked.name} was asked for",
            next_step=f"name one for {asked.name}: {command('list')}; or {without('platform')}",
        )


def find_image(ref: str, output: Path, platform: Platform | None = None) -> tuple[Layout, BuildReport]:
    """Find an OCI layout by NAME:TAG[@DIGEST] below `output` or by path, with its report.

    Of one for several platforms that for `platform` is meant, else that for this machine.
    Raises UsageError for another form of image, and where the name has another digest by now, LayoutError.
    """
    located = locate(ref, output)
    if called := _CALLED.get(located.form):
        raise UsageError(
            f"{ref} is {called}, and this takes an OCI layout",
            cause="Every other form is made from the layout, which alone has all of the image.",
            next_step=f"give NAME:TAG of a build, or the folder of a layout: {command('images')} lists them",
        )
    if not located.has_layout:
        raise _missing(ref, output)
    layout = replace(located, platform=platform).layout()
    report = read_report(layout.path.parent / "report.json")
    return layout, report if report and report.digest == layout.digest else foreign_report(layout)


def kind_of(path: Path) -> Literal["sif", "squashfs", "archive"] | None:
    """Tell a file's kind by its first bytes, not by its name: "archive" for a tar, compressed or not; or None."""
    with path.open("rb") as file:
        head = file.read(512)
    if sif.is_sif(head):
        return "sif"
    if head.startswith(squashfs.MAGIC):
        return "squashfs"
    return "archive" if head[257:262] == b"ustar" or head.startswith((GZIP_MAGIC, ZSTD_MAGIC)) else None


def check_given_digest(ref: str, output: Path) -> None:
    """Check that a NAME:TAG@DIGEST below `output` still has this digest. Raises UsageError.

    Engines' builds of the same lock have digests of their own, beside the layout's. An image without a layout, such as
    a SIF that was copied here, states no digest.
    """
    name, _, digest = ref.partition("@")
    folder = output / name.replace(":", "/")
    built = [report.digest for path in folder.glob("*/report.json") if (report := read_report(path))]
    if digest in built or not _is_layout(folder / "oci"):
        return
    current = read_layout(folder / "oci").digest
    if digest not in ("", current):
        raise UsageError(
            f"{name} is {current} now, and {digest} was asked for",
            cause="It was built again since, from another lock or with another graphcrate.",
            next_step=f"name the one that is there: {name}@{current}",
        )


def _at_path(ref: str) -> Located | None:
    prefix = next((prefix for prefix in _PATH_PREFIXES if ref.startswith(prefix)), "")
    path, tag = Path(ref.removeprefix(prefix)), ""
    if not path.exists():
        stem, _, tag = str(path).rpartition(":")
        path = Path(stem)
        return Located(ref=ref, form="layout", name=_name_of(path), path=path, tag=tag) if _is_layout(path) else None
    if path.is_file():
        form: Form | None = kind_of(path)
        if form == "squashfs" and origin.is_delta(path):
            form = "delta"
        if form is None:
            raise UsageError(
                f"{path} is not an image: neither a tar nor a SIF nor a squashfs", next_step=f"give {FORMS}"
            )
        return Located(ref=ref, form=form, name=path.name, path=path)
    for folder in (path, path / "oci"):
        if _is_layout(folder):
            return Located(ref=ref, form="layout", name=_name_of(folder), path=folder)
    return Located(ref=ref, form="folder", name=path.resolve().name, path=path)


def _built(ref: str, output: Path) -> Located | None:
    """Find a build of ours by NAME:TAG[@DIGEST] below `output`; for NAME:cu118 and NAME alone see `names`.

    Raises UsageError where it has another digest now.
    """
    ref = names.full_name(ref, output)
    name = ref.partition("@")[0]
    folder = output / name.replace(":", "/")
    if name.count(":") != 1 or not folder.is_dir():
        return None
    if "@" in ref:
        check_given_digest(f"{name}@{ref.partition('@')[2]}", output)
    return Located(ref=ref, form="layout", name=name, path=folder / "oci", ours=folder)


def _missing(ref: str, output: Path) -> UsageError:
    present = [f"{p.parent.parent.parent.name}:{p.parent.parent.name}" for p in output.glob("*/*/oci/index.json")]
    if is_image_file(ref):
        return _missing_file(Path(ref), present)
    near = difflib.get_close_matches(ref, present, n=3, cutoff=0.3) or present[:3]
    stack, _, tag = ref.partition(":")
    labelled = labelled_cuda(tag)
    name = stack if re.fullmatch(r"[a-z][a-z0-9-]*", stack) else USUAL_STACK
    usual = "11.8" if name == USUAL_STACK else None
    cuda = labelled if labelled and cuda_label(labelled) == tag else usual
    return UsageError(
        f"there is no image {ref!r}" + (f"; there are {', '.join(near)}" if near else f" in {output}/"),
        cause=f"An image is {FORMS}.",
        next_step=f"{command('image', name, cuda=cuda)}    builds one; {command('list')} has the stacks and versions",
    )


def _missing_file(path: Path, images: list[str]) -> UsageError:
    """Say which file is missing. `images`: those that are there, of which such a file is made."""
    others = [other.name for other in sorted(path.parent.glob(f"*{path.suffix}"))]
    near = difflib.get_close_matches(path.name, others, n=3, cutoff=0.3) or others[:3]
    makes = command("convert", *images[-1:] or ("NAME:TAG",), to=_ENDINGS[path.suffix])
    return UsageError(
        f"there is no file {str(path)!r}" + (f"; there are {', '.join(near)}" if near else ""),
        cause=f"An image is {FORMS}.",
        next_step=f"{makes}    makes one"
        if images
        else f"{command('image', 'pyg', cuda='11.8')}    builds an image, of which {makes} makes one",
    )


def _is_layout(folder: Path) -> bool:
    return (folder / "index.json").is_file() or (folder / "oci-layout").is_file()


def _name_of(layout: Path) -> str:
    """Take the name from the build's report, else from the folder."""
    report = read_report(layout.resolve().parent / "report.json")
    return report.name if report else layout.resolve().name


def foreign_report(layout: Layout, name: str = "") -> BuildReport:
    """Make a report from a layout of others. `name`: the image's, else what its labels say."""
    size, path = sum(layer.size for layer in layout.layers), str(layout.path)
    ours = {label: layout.labels.get(f"graphcrate.{label}", "") for label in _LABELS}
    return BuildReport(
        artifact=Artifact(engine="unknown", kind="layout", reference=path, digest=layout.digest, bytes=size),
        name=name or layout.labels.get("org.opencontainers.image.title", layout.path.name),
        tag=layout.tag or "",
        digest=layout.digest,
        layout=path,
        bytes=size,
        candidate=ours["candidate"],
        torch=ours["torch"],
        torch_cuda=ours["torch.cuda"],
        cuda=ours["cuda"],
        python=ours["python"],
        packages=(),
        smoke=None,
        seconds=0.0,
        layers=layout.records,
        lock_sha256=ours["lock.sha256"],
    )
