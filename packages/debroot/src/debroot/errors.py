"""Errors of this library: what is wrong, the likely cause and a next step; facts as attributes where there are some."""

import functools
from collections.abc import Sequence
from pathlib import Path

from debroot.words import printable


class DebrootError(Exception):
    """Base of all errors of this library. `cause` and `next_step` may be empty."""

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step = what, cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(_made, type(self), self.what, self.cause, self.next_step, dict(self.__dict__)), ()


def _made(kind: type[DebrootError], what: str, cause: str, step: str, facts: dict[str, object]) -> DebrootError:
    error = kind.__new__(kind)
    DebrootError.__init__(error, what, cause=cause, next_step=step)
    error.__dict__.update(facts)
    return error


class ListError(DebrootError):
    """A signed list is not what was asked for: another mirror may have it."""


class ListTimeError(ListError):
    """A signed list has no date, or one that does not allow today: this machine's clock may be wrong, too."""


class NotAPackageError(DebrootError):
    """A .deb is damaged, or was made to do harm."""


class BrokenFileError(DebrootError):
    """A packed file cannot be inflated, or inflates to more than anything honest does."""


class MissingPackageError(DebrootError):
    """No package of the suite fits a dependency."""

    def __init__(self, suite: str, asking: str, clause: str, near: Sequence[str]) -> None:
        super().__init__(
            f"{suite} cannot give a base: {asking} needs {clause}, which is not in it",
            next_step="correct the name" + (f"; near it: {', '.join(near)}" if near else ""),
        )


class DpkgError(DebrootError):
    """dpkg ended with an error. `packages`: those that it names; `lines`: what it said last."""

    def __init__(self, packages: Sequence[str], lines: Sequence[str]) -> None:
        output = "".join(f"\n    | {printable(line)}" for line in lines[-12:])
        super().__init__(
            f"dpkg cannot install {', '.join(packages) or 'a package'}{output}",
            cause="A script of the package failed, or it contradicts another package.",
            next_step="leave the package out",
        )
        self.packages, self.lines = tuple(packages), tuple(lines)


class TreeError(DebrootError):
    """The installed system has something that no root file system can have, or lacks what each has."""


class LinkInTheWayError(TreeError):
    """A file cannot be written where a script of a package left a link, or no folder."""


class TooDeepError(TreeError):
    """A folder `path` below `root` is too deep to be walked."""

    def __init__(self, root: Path, path: str, deepest: int) -> None:
        super().__init__(
            f"{path[: len(str(root)) + 60]}… is more than {deepest} folders deep",
            cause="No package has such folders, and programs that read an image's files end in them.",
            next_step="leave out the package that makes them",
        )
        self.root, self.path = root, path
