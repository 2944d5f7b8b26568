"""Images below the site's folder: those with a report of ours, and files of them to download. Nothing else is there."""

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts.conversion.job import SUFFIXES
from graphcrate.artifacts.origin import is_of
from graphcrate.artifacts.reports import read_report
from graphcrate.model.report import BuildReport
from graphcrate.pages.report import NAME, FetchedFile, RunTab, run_tabs
from graphcrate.remote.questions import FORMS, FileForm

_USED = ".used"  #: a file whose time says when it was of use last
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class ImageFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to download."""

    name: str
    form: FileForm
    bytes: int
    address: str  #: below the site's
    sha256: str = ""  #: as the API tells it


class ImageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An image, as the API tells it. `proof`: that of its lock; `commands`: how each runtime starts it."""

    report: BuildReport
    proof: str
    files: tuple[ImageFile, ...]
    commands: dict[str, str]


class ShownImage(NamedTuple):
    """An image that may be looked at: its own tag, its folder, and what was reported of it."""

    report: BuildReport
    folder: Path

    @property
    def name(self) -> str:
        """ "pyg/2.8.1-torch2.7.1-cu126", as addresses have it."""
        return f"{self.report.name}/{self.report.tag}"

    @property
    def has_layout(self) -> bool:
        """Return whether files can be made of it."""
        return (self.folder / "oci/index.json").is_file()

    @property
    def has_page(self) -> bool:
        """Return whether its report was drawn."""
        return self.file(NAME) is not None

    @property
    def used(self) -> float:
        """The time of its last use: made, asked for or fetched."""
        times = [0.0]
        for name in (_USED, "report.json"):
            with contextlib.suppress(OSError):
                times.append((self.folder / name).stat().st_mtime)
        return max(times)

    def use(self) -> None:
        """Note that it is of use now."""
        with contextlib.suppress(OSError):  # of another user, or on its way out
            (self.folder / _USED).touch()

    def files(self) -> list[ImageFile]:
        """List its files for runtimes."""
        paths = [path for path in sorted(self.folder.iterdir()) if path.name != NAME and self.file(path.name)]
        return [
            ImageFile(name=path.name, form=form, bytes=path.stat().st_size, address=f"/images/{self.name}/{path.name}")
            for path in paths
            if (form := _form(path.name))
        ]

    def file(self, name: str) -> Path | None:
        """Return the path of a file of it that may be read: a SIF, a squashfs, an archive, its report; no link.

        A file that was made of an earlier image of this name does not belong to it.
        """
        path, form = self.folder / name, _form(name)
        if (name != NAME and form is None) or path.is_symlink() or not path.is_file():
            return None
        if form == "docker":  # an archive does not name its layout
            index = self.folder / "oci/index.json"
            return path if index.is_file() and path.stat().st_mtime >= index.stat().st_mtime else None
        return path if form is None or is_of(path, self.report.digest) else None

    def answer(self, tabs: Sequence[RunTab], proof: str) -> ImageAnswer:
        """Tell it to a program."""
        commands = {tab.id: tab.text for tab in tabs}
        files = (msgspec.structs.replace(file, sha256=_sha256(self.folder / file.name)) for file in self.files())
        return ImageAnswer(report=self.report, proof=proof, files=tuple(files), commands=commands)

    def tabs(self, site: str, pull: str = "") -> list[RunTab]:
        """Return how each runtime starts it, with its files from a site; `pull`: the line for its SIF in a registry."""
        typed = f"{self.report.name}:{self.report.tag}"
        fetch = "curl --remote-name --continue-at -"
        there: dict[str, FetchedFile] = {
            file.form: FetchedFile(file.name, f"{fetch} {site}{file.address}") for file in self.files()
        }
        if pull:
            there["sif"] = FetchedFile(f"{self.report.name}.sif", pull)
        return run_tabs(typed, typed, has_gpus=self.report.cuda != "cpu", brought=there)


def _sha256(path: Path) -> str:
    status = path.stat()
    return _hashed(path, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=1000)
def _hashed(path: Path, *_: int) -> str:
    """Return the hash of a file as long as it is the same: one of 3 GB takes some seconds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _form(name: str) -> FileForm | None:
    """Return the form of a file by its name; None for one that is not to be downloaded."""
    return next((form for form in FORMS if _PART.fullmatch(name) and name.endswith(SUFFIXES[form])), None)


def shown(dist: Path, name: str, tag: str) -> ShownImage | None:
    """Find an image by its name and one of its tags; None where there is none, or it is elsewhere."""
    if not (_PART.fullmatch(name) and _PART.fullmatch(tag)):
        return None
    folder = (dist / name / tag).resolve()
    if folder.parent != dist.resolve() / name:
        return None
    report = _report(folder / "report.json")
    return ShownImage(report, folder) if report and (report.name, report.tag) == (name, folder.name) else None


def _report(path: Path) -> BuildReport | None:
    """Read a report, and not again as long as its file is the same."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _read(path, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=5000)
def _read(path: Path, *_: int) -> BuildReport | None:
    return read_report(path)


def every(dist: Path) -> Iterator[ShownImage]:
    """Yield all images, the newest first; further tags of one are links, and left out."""
    paths = [path for path in dist.glob("[!.]*/[!.]*/report.json") if not path.parent.is_symlink()]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime):
        if image := shown(dist, path.parent.parent.name, path.parent.name):
            yield image
