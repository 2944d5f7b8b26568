"""Paths of a build's images and of their earlier results."""

from dataclasses import dataclass
from pathlib import Path

from graphcrate.artifacts import names
from graphcrate.engines.backend import Engine
from graphcrate.host import settings
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError
from graphcrate.model.plan import Plan
from graphcrate.model.report import BuildReport
from graphcrate.model.words import printable
from graphcrate.smoke import memory


@dataclass(frozen=True)
class ImageFolders:
    """The folders of the images that an engine builds, below the output folder. `recipe`: the user's own file."""

    engine: Engine
    output: Path
    recipe: Path | None = None

    def folder(self, image: Plan | BuildReport) -> Path:
        """The folder of an image's report, and of its layout if it has one."""
        return self.engine.folder(self.output / image.name / image.tag)

    def passes(self, image: Plan | BuildReport) -> Path:
        """The folder of an image's passes; one for all engines."""
        return self.output / image.name / image.tag / memory.FOLDER

    def aliases(self, plan: Plan) -> list[Path]:
        """List the further tags of an image: links beside its folder."""
        return [self.output / plan.name / alias for alias in plan.aliases]

    def refuse_anothers(self, name: str) -> None:
        """Raise UsageError where images of this name are another recipe's: the new one would take their place."""
        folder = self.output / name
        owner = names.owner(folder)
        if not owner or (self.recipe and Path(owner) == self.recipe.resolve()):
            return
        stacks = owner == names.STACK
        if (self.recipe is None and stacks) or not (stacks or Path(owner).is_file()):
            return
        raise UsageError(
            f"images called {name} are here, of {f'the stack {name}' if stacks else printable(owner)}",
            cause=f"Those of {self.recipe or f'the stack {name}'} would take their place: both have that name.",
            next_step=f'name = "{name}-2" in {self.recipe}, then the same command'
            if self.recipe
            else command("image", ETC, output="FOLDER"),
        )

    def own(self, name: str) -> None:
        """Write whose the images of this name are."""
        if self.recipe:
            write_file(self.output / name / names.OWNER, f"{self.recipe.resolve()}\n".encode())


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
