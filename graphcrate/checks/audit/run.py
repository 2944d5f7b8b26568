"""An audit from what a person names to its report: reads image, wheels or folder, asks `audit`."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.locate import locate
from graphcrate.artifacts.tree import binaries, opening
from graphcrate.artifacts.tree.binaries import Read
from graphcrate.artifacts.tree.reader import Tools
from graphcrate.checks import audit
from graphcrate.checks.contracts import run as checking
from graphcrate.compat import facts
from graphcrate.host.context import Context
from graphcrate.host.workers import default_jobs
from graphcrate.model.audit import Audit, Contents
from graphcrate.model.errors import UsageError
from graphcrate.model.plan import site_packages
from graphcrate.model.report import BuildReport

_UNKNOWN_PYTHON = "3"
_CONDA = "/opt/conda/envs/audited"  #: where an environment of conda's lies, beside whatever conda an image has


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks. `names`: one image or folder, or wheels. `base`: an image that wheels and folders lie in."""

    names: tuple[str, ...]
    base: str = ""
    gpus: tuple[str, ...] = ()
    output: Path = Path("dist")


def run(request: Request, ctx: Context) -> Audit:
    """Audit it. Raises UsageError for what does not exist, LayoutError, IntegrityError for what cannot be read."""
    with ExitStack() as stack:
        contents = _Reader(request, ctx, stack).contents()
    return audit.judge(contents, request.gpus or _models(contents))


def read_image(name: str, ctx: Context) -> Read:
    """What an audit looks at in an image; what it read of a layer before is remembered."""
    with ExitStack() as stack:
        return _Reader(Request(names=(name,)), ctx, stack).opened(name)


def of_build(report: BuildReport, ctx: Context, gpus: tuple[str, ...] = ()) -> Audit:
    """The audit of an image that was just built, for these GPU models or those that it was compiled for."""
    found = run(Request(names=(report.artifact.location,), gpus=gpus), ctx)
    return msgspec.structs.replace(found, subject=report.image, digest=report.digest)


class _Reader:
    def __init__(self, request: Request, ctx: Context, stack: ExitStack) -> None:
        self._request, self._place, self._stack = request, ctx, stack
        self._folder = stack.enter_context(ctx.cache.folder())

    def contents(self) -> Contents:
        names, base = self._request.names, self._request.base
        wheels = [Path(name) for name in names if name.endswith(".whl")]
        if wheels:
            return self._wheels(wheels)
        if len(names) != 1:
            raise UsageError("one image or folder can be audited at a time", next_step="run it once for each")
        folder = Path(names[0])
        if (folder / "conda-meta").is_dir():
            lower, _ = self._base()
            return self._whole(names[0], self.opened(names[0], _CONDA), lower, "")
        site = _site(folder)
        if site is not None:
            lower, below = self._base()
            return self._whole(names[0], self.opened(str(site), below), lower, below)
        if base:
            raise UsageError(f"{names[0]} has a base of its own", next_step="leave --base out")
        read = self.opened(names[0])
        if read.form == "folder" and not read.binaries:
            raise _nothing(folder)
        return binaries.contents(names[0], read, base=True)

    def _wheels(self, wheels: list[Path]) -> Contents:
        if len(wheels) < len(self._request.names):
            raise UsageError("wheels cannot be audited together with anything else", next_step="give wheels alone")
        absent = next((wheel for wheel in wheels if not wheel.is_file()), None)
        if absent is not None:
            raise UsageError(f"there is no wheel {absent}", next_step="ls *.whl    shows those in this folder")
        lower, below = self._base()
        read = binaries.of_wheels(wheels, below, self._tools(below))
        return self._whole(" ".join(wheel.name for wheel in wheels), read, lower, below)

    def _base(self) -> tuple[Read | None, str]:
        """What lies below the packages, and where in it they lie."""
        lower = self.opened(self._request.base) if self._request.base else None
        python = (binaries.interpreter_of(lower) if lower else "") or _UNKNOWN_PYTHON
        return lower, site_packages(python)

    def _whole(self, name: str, upper: Read, lower: Read | None, site: str) -> Contents:
        """`site`: the folder that packages are laid into; an environment of conda's has a Python of its own."""
        read = binaries.over(upper, lower, site) if lower else upper
        return binaries.contents(name, read, base=lower is not None, python="" if site else binaries.python_of(upper))

    def opened(self, name: str, below: str = "") -> Read:
        tools = self._tools(below)
        image = locate(name, self._request.output)
        if image.form == "registry":
            opened, unread = checking.pull(image.name, tools, "all")
            read = binaries.of_opened(opened, tools)
            read.form, read.unread = "registry", (*read.unread, *unread)
            return read
        return binaries.of_opened(opening.reader(image)(tools), tools, below)

    def _tools(self, below: str) -> Tools:
        return Tools(
            cache=self._place.cache,
            progress=self._place.progress,
            environment=self._place.environment,
            stack=self._stack,
            jobs=default_jobs(),
            wanted=binaries.wanted(self._folder, below),
        )


def _site(folder: Path) -> Path | None:
    """The folder of installed packages that a person means: it itself, or that of a virtual environment."""
    if not folder.is_dir() or (folder / "oci-layout").is_file() or (folder / "index.json").is_file():
        return None
    if any(folder.glob("*.dist-info")):
        return folder
    if (folder / "pyvenv.cfg").is_file():
        return next(iter(sorted(folder.glob("lib/python3*/site-packages"))), None)
    return None


def _nothing(folder: Path) -> UsageError:
    """The error for a folder without programs, libraries and packages, where silence would say that all is well."""
    if any(folder.glob("*.whl")):
        return UsageError(f"{folder} holds wheels, not what they install", next_step=f"./build.py audit {folder}/*.whl")
    return UsageError(
        f"there is nothing to audit in {folder}: no program and no library",
        next_step="name an image, wheels, a virtual environment, a folder with *.dist-info, or a root file system",
    )


def _models(contents: Contents) -> tuple[str, ...]:
    """GPU models of the architectures that the image says its extensions are compiled for."""
    capabilities = {name.removesuffix("+PTX") for name in contents.architectures}
    return tuple(model for model, capability in facts.gpus().items() if capability in capabilities)
