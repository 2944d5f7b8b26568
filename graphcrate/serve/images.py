"""Images below the site's folder: those with a report of ours, and files of them to download. Nothing else is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts.reports import read_report
from graphcrate.model.report import BuildReport
from graphcrate.pages.report import NAME

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ENDINGS = (".sif", ".sqsh")


class ImageFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to download."""

    name: str
    bytes: int


class ShownImage(NamedTuple):
    """An image that may be looked at: its own tag, its folder, and what was reported of it."""

    report: BuildReport
    folder: Path

    @property
    def name(self) -> str:
        """ "pyg/2.8.1-torch2.7.1-cu126", as addresses have it."""
        return f"{self.report.name}/{self.report.tag}"

    @property
    def has_page(self) -> bool:
        """Return whether its report was drawn."""
        return self.file(NAME) is not None

    def files(self) -> list[ImageFile]:
        """List its files for runtimes."""
        paths = (path for path in sorted(self.folder.iterdir()) if path.suffix in _ENDINGS and self.file(path.name))
        return [ImageFile(name=path.name, bytes=path.stat().st_size) for path in paths]

    def file(self, name: str) -> Path | None:
        """Return the path of a file of it that may be read: a SIF, a squashfs, its report; no link."""
        path = self.folder / name
        is_known = name == NAME or (_PART.fullmatch(name) and path.suffix in _ENDINGS)
        return path if is_known and path.is_file() and not path.is_symlink() else None


def shown(dist: Path, name: str, tag: str) -> ShownImage | None:
    """Find an image by its name and one of its tags; None where there is none, or it is elsewhere."""
    if not (_PART.fullmatch(name) and _PART.fullmatch(tag)):
        return None
    folder = (dist / name / tag).resolve()
    if folder.parent != dist.resolve() / name:
        return None
    report = read_report(folder / "report.json")
    return ShownImage(report, folder) if report and (report.name, report.tag) == (name, folder.name) else None


def every(dist: Path) -> Iterator[ShownImage]:
    """Yield all images, the newest first; further tags of one are links, and left out."""
    paths = [path for path in dist.glob("[!.]*/[!.]*/report.json") if not path.parent.is_symlink()]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime):
        if image := shown(dist, path.parent.parent.name, path.parent.name):
            yield image
