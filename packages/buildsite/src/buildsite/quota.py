"""Disk of a site's users: images that only one of them had built, and those of them that go first."""

from collections.abc import Iterable
from pathlib import Path

from buildsite import images
from buildsite.images import ShownImage
from buildsite.queue import SiteJob
from graphcrate.host.disk.cleaning import bytes_below


def surplus(made: Iterable[tuple[str, SiteJob]], dist: Path, user: str, most: int, kept: str) -> list[str]:
    """Return the images that go, so that a user has at most so many bytes: those used least, and never `kept`.

    `made`: images as addresses have them, with the jobs that made them or files of them.
    """
    sizes = {image.name: bytes_below(image.folder) for image in _own(made, dist, user)}
    left, names = sum(sizes.values()), list[str]()
    for name in sizes:
        if left <= most:
            break
        if name != kept:
            names.append(name)
            left -= sizes[name]
    return names


def _own(made: Iterable[tuple[str, SiteJob]], dist: Path, user: str) -> list[ShownImage]:
    """Return the images that a user alone had built here, those used least first."""
    askers, built = dict[str, set[str]](), dict[str, float]()
    for name, job in made:
        askers.setdefault(name, set()).update((job.user, *job.others))
        if job.kind == "build":
            built[name] = min(job.created, built.get(name, job.created))
    own = [
        images.shown(dist, *name.partition("/")[::2])
        for name, users in askers.items()
        if users == {user} and name in built
    ]
    # what was there before it was asked for is the site's
    there = [image for image in own if image and _made(image) >= built[image.name]]
    return sorted(there, key=lambda image: image.used)


def _made(image: ShownImage) -> float:
    try:
        return (image.folder / "oci/index.json").stat().st_mtime
    except OSError:
        return 0.0
