"""Jobs of a site as command lines of its own program: reading a file, plans, builds, files of images. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from buildsite.images import ShownImage
from buildsite.queue import LAYOUT, Kind, SiteJob
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host.arguments import Argv, line
from graphcrate.model.command import command
from graphcrate.remote.questions import FileForm, Question

#: that a job may take; the site of a build's Slurm may give it less
_MINUTES: dict[Kind, float] = {"read": 1, "plan": 5, "build": 12 * 60, "file": 60, "send": 60, "clean": 60}
_WALLED = "--walled"
_POLITE = ("nice", "-n", "10")  #: before what keeps a machine busy


@dataclass(frozen=True, kw_only=True)
class SiteWork:
    """The makers of a site's jobs.

    `on`: options of `--on slurm` for what takes long; empty: this machine does it. `registry`: `oras://…` for SIFs.
    """

    program: Argv
    dist: Path
    on: tuple[str, ...] = ()
    registry: str = ""

    def read(self, question: Question, user: str, now: float) -> SiteJob:
        """Read packages out of a file that is not a list of packages: Python code by `init`, all others by `adopt`."""
        name = question.file_name
        adopt = command("adopt", name, output=f"{Path(name).stem.lower()}.toml")
        shown = command("init") if name.endswith(".py") else adopt
        words = ("init",) if name.endswith(".py") else ("adopt", "--output=read.toml", "--json", f"./{name}")
        return self._job("read", question, (line(*self.program, *words),), (str(shown),), user, now)

    def plan(self, question: Question, request: BuildRequest, user: str, now: float) -> SiteJob:
        """Plan what was asked for."""
        words = self._image(request, "--plan", "--json")
        return self._job("plan", _plain(question, request), (words,), (str(request.command()),), user, now)

    def build(self, question: Question, request: BuildRequest, user: str, now: float) -> SiteJob:
        """Build it, and make the file that its runtime opens."""
        commands, shown = [self._busy(self._image(request, "--json"))], [str(request.command())]
        if question.form:
            commands.append(self._busy(self._convert(LAYOUT, question.form)))
            shown.append(str(command("convert", f"{request.name}:TAG", to=question.form)))
        return self._job("build", _plain(question, request), commands, shown, user, now)

    def file(self, image: ShownImage, form: FileForm, user: str, now: float) -> SiteJob:
        """Make a file of an image that is there; one of an earlier image of this name is replaced."""
        words = self._busy(self._convert(str(image.folder / "oci"), form))
        shown = str(command("convert", f"{image.report.name}:{image.report.tag}", to=form))
        return self._job("file", Question(), (words,), (shown,), user, now, image=image)

    def send(self, image: ShownImage, user: str, now: float) -> SiteJob:
        """Put its SIF into the registry. A machine without a GPU tested it, which is recorded there."""
        options = (f"--to={self.registry}", "--allow-cpu-only", "--json", f"--output={self.dist}")
        words = line(*_POLITE, *self.program, "publish", *options, strange=(str(image.folder / "oci"),))
        typed = f"{image.report.name}:{image.report.tag}"
        shown = str(command("publish", typed, to=self.registry, allow_cpu_only=True))
        return self._job("send", Question(), (words,), (shown,), user, now, image=image)

    def clean(self, images: Sequence[str], now: float) -> SiteJob:
        """Remove images, by the names that addresses have."""
        names = [name.replace("/", ":") for name in images]
        words = line(*self.program, "images", "rm", f"--output={self.dist}", "--json", strange=names)
        return self._job("clean", Question(), (words,), (str(command("images", "rm", *names)),), "", now)

    def _image(self, request: BuildRequest, *options: str) -> Argv:
        """Return the command line of `image` for a request, each value in one word with its option."""
        settings = request.command().settings
        values = (f"--{each.name}" if each.value is None else f"--{each.name}={each.value}" for each in settings)
        mine = (*values, _WALLED, *options, f"--output={self.dist}")
        return line(*self.program, "image", *mine, strange=(request.name,))

    def _convert(self, layout: str, form: FileForm) -> Argv:
        return line(*self.program, "convert", f"--to={form}", "--force", "--json", strange=(layout,))

    def _busy(self, words: Argv) -> Argv:
        """The same on a node, or where it disturbs others less."""
        return line(*words, *self.on) if self.on else line(*_POLITE, *words)

    def _job(
        self,
        kind: Kind,
        question: Question,
        commands: Sequence[Argv],
        shown: Sequence[str],
        user: str,
        now: float,
        *,
        image: ShownImage | None = None,
    ) -> SiteJob:
        words = tuple(tuple(argv) for argv in commands)
        asked = (kind, words, question.file_name, question.text, image.report.digest if image else "")
        return SiteJob(
            id=f"{kind[0]}{hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:31]}", kind=kind, question=question,
            commands=words, shown=tuple(shown), user=user, image=image.name if image else "", created=now,
            minutes=_MINUTES[kind],
        )  # fmt: skip


def _plain(question: Question, request: BuildRequest) -> Question:
    """Return a question with the machine by its names: others who ask for the same see no output of nvidia-smi."""
    return msgspec.structs.replace(question, gpu=request.machine.gpu, driver=request.machine.driver)
