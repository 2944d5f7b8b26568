"""Short names of images of ours: NAME:cu118 is the newest image of its kind here that passed all its tests.

A link below `dist/NAME` says which. It moves when the last test of an image has passed. Where what it leads to is gone
or has failed since, the name is the newest other image that passed. Looking a name up changes nothing: links are
written by builds alone (`give`, `tidy`).
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from graphcrate.artifacts.reports import read_report
from graphcrate.host.disk.atomic import link
from graphcrate.model.command import command
from graphcrate.model.errors import GraphcrateError, UsageError
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildReport
from graphcrate.oci.layout import read_layout

OWNER = ".recipe"  #: beside images of a recipe of the user's own: a file with the path of the recipe
STACK = "stack"  #: the owner of images that are no such recipe's


def owner(folder: Path) -> str:
    """Return the path of the recipe whose images are in this folder, or STACK; empty where none is or nothing says."""
    reports = _reports(folder)
    if not reports:
        return ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (folder / OWNER).read_text(encoding="utf-8").strip()
    asked = reports[-1].asked
    return STACK if asked and not (asked.additions and asked.additions.name) else ""


def leave(folder: Path) -> None:
    """Remove a folder of images of one name where none is in it any more. Raises OSError where others are."""
    if [path.name for path in folder.iterdir()] == [OWNER]:
        (folder / OWNER).unlink()
    folder.rmdir()


def give(output: Path, report: BuildReport) -> None:
    """Let the short name of an image that has passed be this one. What a user gave that name to stays theirs."""
    path = output / report.name / (report.short or ".")
    if report.passed and report.layout and (path.is_symlink() or not path.exists()):
        link(path, Path(report.tag))
    tidy(path.parent)


def tidy(folder: Path) -> None:
    """Let each short name in the folder of a recipe's images be one that passed, and leave no link that leads nowhere.

    A link to another folder is the user's, and another name of one image stays while that is there.
    """
    reports = _reports(folder)
    images = [report for report in reports if _exists(report)]
    for path in sorted(folder.glob("*")):
        with contextlib.suppress(FileNotFoundError):  # another run was faster
            if not path.is_symlink() or "/" in str(path.readlink()):
                continue
            target = path.readlink().name
            if path.exists() and not any(report.tag == target and report.short == path.name for report in reports):
                continue
            chosen = _meant(images, path)
            if chosen is None:
                path.unlink()
            elif str(path.readlink()) != chosen.tag:
                link(path, Path(chosen.tag))


def full_name(
    ref: str, output: Path, say: Callable[[str], None] = lambda _: None, platform: Platform | None = None
) -> str:
    """Give NAME:TAG[@DIGEST] of the image that a short name (NAME:cu118) or NAME alone means; `say` is told which.

    `platform`: that was asked for: NAME:cu130 is NAME:cu130-arm64 then, and so with each tag, where there is such an
    image. Anything else comes back as it is. Raises UsageError for a name whose images have failed or were not tested.
    """
    name, at, digest = ref.partition("@")
    stack, colon, short = name.partition(":")
    folder = output / stack
    if platform and platform.suffix and short and not at and (folder / f"{short}{platform.suffix}").is_dir():
        short = f"{short}{platform.suffix}"
        ref = name = f"{stack}:{short}"
    path = folder / short
    if not stack or "/" in name or ":" in short or Path(ref).exists() or not folder.is_dir():
        return ref
    if colon and path.is_dir() and not path.is_symlink():
        return ref
    reports = [report for report in _reports(folder) if not colon or report.short == short]
    if not reports:
        return ref
    images = [report for report in reports if _exists(report)]
    chosen = _meant(images, path) if colon else _newest(images, platform)
    if chosen is None:
        last = (images or reports)[-1]
        newest = f"{stack}:{last.tag}"
        became = "failed its tests" if last.failed else "was not tested to the end" if images else "is not whole"
        by_name = f"{command('inspect', newest)}    run, convert and test take it by that name, too"
        raise UsageError(
            f"no image of the name {name} has passed its tests; the newest, {newest}, {became}",
            next_step=by_name if images else f"the command that built it builds it again: {command('image', '…')}",
        )
    image = f"{stack}:{chosen.tag}"
    say(f"{name} is {image}, the newest {'of its kind ' if colon else ''}here that passed its tests")
    return f"{image}{at}{digest}"


def has(ref: str, output: Path, platform: Platform | None = None) -> bool:
    """Return whether a folder of images has one of this name, whole, short or of a stack alone."""
    stack, colon, tag = ref.partition("@")[0].partition(":")
    if not stack or "/" in ref.partition("@")[0] or stack in (".", ".."):
        return False
    tags = (tag, f"{tag}{platform.suffix}") if platform else (tag,)
    if colon and any((output / stack / name).is_dir() for name in tags if name.strip(".")):
        return True
    return any(not colon or report.short in tags for report in _reports(output / stack))


def _meant(images: list[BuildReport], path: Path) -> BuildReport | None:
    """The image that a short name means: what its link leads to where that has passed, else the newest that has."""
    good = [report for report in images if report.passed and report.short == path.name]
    linked = path.readlink().name if path.is_symlink() else ""
    return next((report for report in good if report.tag == linked), good[-1] if good else None)


def _newest(images: list[BuildReport], platform: Platform | None) -> BuildReport | None:
    """The newest image that passed, of those of the stack as it is before those with additions.

    `platform`: that was asked for; else those for the default one come first.
    """
    suffix = platform.suffix if platform else ""
    good = [report for report in images if report.passed and (report.short or "").endswith(suffix)]
    plain = [report for report in good if report.short and "-" not in report.short.removesuffix(suffix)]
    return next(reversed(plain or good), None)


def _reports(folder: Path) -> list[BuildReport]:
    """The reports of images, also of those that are being built again or were removed, the newest last."""
    written = []
    for path in folder.glob("*/report.json"):
        with contextlib.suppress(FileNotFoundError):
            if not path.parent.is_symlink():
                written.append((path.stat().st_mtime_ns, path))
    reports = (read_report(path) for _, path in sorted(written))
    return [report for report in reports if report is not None and report.layout]


def whole_images(folder: Path) -> list[BuildReport]:
    """The reports of a recipe's images that are there and whole, the newest last."""
    return [report for report in _reports(folder) if _exists(report)]


def _exists(report: BuildReport) -> bool:
    with contextlib.suppress(GraphcrateError):
        return read_layout(Path(report.layout)).digest == report.digest
    return False
