"""The state of one build: what was asked for and chosen, where its images go, what it has said."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from graphcrate.compat import explain
from graphcrate.compat.explain import VariantChoice
from graphcrate.compat.request import BuildRequest
from graphcrate.engines.backend import Engine
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.model.plan import Plan
from graphcrate.model.report import BuildReport
from graphcrate.smoke import memory


@dataclass(frozen=True)
class ImageFolders:
    """Where the images that an engine builds are, below the output folder."""

    engine: Engine
    output: Path

    def folder(self, image: Plan | BuildReport) -> Path:
        """The folder of an image's report, and of its layout if it has one."""
        return self.engine.folder(self.output / image.name / image.tag)

    def passes(self, image: Plan | BuildReport) -> Path:
        """The folder of what an image passed, by whatever engine it was built."""
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


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """One build. `request` names the CUDA version and the GPUs that were chosen."""

    request: BuildRequest
    choice: VariantChoice
    images: ImageFolders
    journal: Journal = field(default_factory=Journal)

    def of_stack(self) -> "BuildJob":
        """Return the job for the image of the stack itself, without what is added."""
        return BuildJob(request=self.request.of_stack, choice=self.choice, images=self.images, journal=self.journal)

    def by(self, engine: Engine) -> "BuildJob":
        """Return the job for another engine."""
        images = ImageFolders(engine, self.images.output)
        return BuildJob(request=self.request, choice=self.choice, images=images, journal=self.journal)


def start(request: BuildRequest, engine: Engine, ctx: Context) -> BuildJob:
    """Choose the variant, the CUDA version and the GPUs of a request. Raises as `explain.select_variant`."""
    journal = Journal()
    choice = explain.select_variant(request, ctx)
    machine = msgspec.structs.replace(request.machine, gpu=choice.gpu)
    request = msgspec.structs.replace(request, cuda=choice.variant.cuda, machine=machine)
    return BuildJob(request=request, choice=choice, images=ImageFolders(engine, request.output), journal=journal)
