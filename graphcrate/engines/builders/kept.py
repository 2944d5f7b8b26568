"""What a build leaves in an engine besides its image: nothing without a name.

Docker's classic builder and podman keep each step's result as an image, and the last of a stage, or of a build that
broke off, has no name and no child: `<none>` in every listing. They are the cache that makes the next try short, so
they stay, under a name that says what they are. Those of earlier builds of the same image go.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from graphcrate.host import process

REPOSITORY = "graphcrate/steps"


class Store(Protocol):
    """An engine's images. Ids are whole, with `sha256:`."""

    def dangling(self) -> Collection[str]:
        """Ids of images with neither name nor child."""

    def named(self, repository: str) -> Mapping[str, str]:
        """Tag → id of the images of this repository."""

    def name(self, image: str, repository: str, tag: str) -> None:
        """Give an image a name; it is taken from another that has it."""

    def remove(self, reference: str) -> None:
        """Remove a name or an image, with what nobody else uses of it. No error if it is in use."""


def ends_with_us() -> tuple[str, ...]:
    """What to write before an engine's command, so that it is asked to end even when we are killed."""
    return ("setpriv", "--pdeathsig", "TERM", "--") if process.find("setpriv") else ()


def keep_steps(store: Store, seen: Collection[str], label: str, *, finished: bool) -> None:
    """Name what a build left: `seen` are the beginnings of ids that it spoke of, `label` tells its image from others.

    Those that earlier builds left go once a build has finished without them.
    """
    short = tuple(image.removeprefix("sha256:") for image in seen)
    wanted = {}
    for image in store.dangling():
        digits = image.removeprefix("sha256:")
        if short and digits.startswith(short):
            wanted[f"{label}-{digits[:12]}"] = image
    for tag, image in wanted.items():
        store.name(image, REPOSITORY, tag)
    for tag, image in store.named(REPOSITORY).items() if finished else ():
        digits = image.removeprefix("sha256:")
        if tag.startswith(f"{label}-") and tag not in wanted and not (short and digits.startswith(short)):
            store.remove(f"{REPOSITORY}:{tag}")


def replace_image(store: Store, image: str, repository: str, tag: str) -> None:
    """Give a finished image its name. Another that had it goes, unless it has more names or is in use."""
    before = store.named(repository).get(tag)
    store.name(image, repository, tag)
    if before not in (None, image) and before in store.dangling():
        store.remove(before)
