"""Paths of a build's images and of their earlier results."""

from dataclasses import dataclass
from pathlib import Path

from graphcrate.engines.backend import Engine
from graphcrate.host import settings
from graphcrate.model.plan import Plan
from graphcrate.model.report import BuildReport
from graphcrate.smoke import memory


@dataclass(frozen=True)
class ImageFolders:
    """The folders of the images that an engine builds, below the output folder."""

    engine: Engine
    output: Path

    def folder(self, image: Plan | BuildReport) -> Path:
        """The folder of an image's report, and of its layout if it has one."""
        return self.engine.folder(self.output / image.name / image.tag)

    def passes(self, image: Plan | BuildReport) -> Path:
        """The folder of an image's passes; one for all engines."""
        return self.output / image.name / image.tag / memory.FOLDER

    def aliases(self, plan: Plan) -> list[Path]:
        """List the further tags of an image: links beside its folder."""
        return [self.output / plan.name / alias for alias in plan.aliases]


class Journal:
    """Since when a build runs, and which lines of its plans it has said."""

    def __init__(self) -> None:
        self._start = settings.now()
        self._said = set[tuple[str, str]]()

    def seconds(self) -> float:
        """Return the seconds since the build began."""
        return round(settings.now() - self._start, 3)

    def new(self, title: str, lines: list[str]) -> list[str]:
        """Return those lines on an image that were not said before; from now on they are."""
        new = [line for line in lines if (title, line) not in self._said]
        self._said.update((title, line) for line in new)
        return new
