"""Every error that the user can meet: what happened, the likely cause, the next command to type.

Raised anywhere, caught once (in `cli.exit`). Exit code 2 is wrong usage; 19, an unhandled error (`host.defects`).
"""

import functools
from typing import ClassVar

import msgspec

from graphcrate.model.command import Command, Setting, command, without
from layertar.errors import ArchiveError

_CAUSE, _NEXT = "cause: ", "next:  "  #: at the begin of a line of a message; none of another part has them


class GraphcrateError(Exception):
    """Base of all expected errors. `cause` and `next_step` are full sentences or empty.

    `usual`: the next step of a class's errors that are raised without a better one. `of_machine`: the machine or its
    network has to change, not what was asked for; its next steps are for who sits there.
    """

    exit_code: ClassVar[int] = 1
    usual: ClassVar[str] = ""
    of_machine: ClassVar[bool] = False

    def __init_subclass__(cls, *, exit_code: int = 0, usual: str = "", of_machine: bool | None = None) -> None:
        cls.exit_code = exit_code or cls.exit_code
        cls.usual = usual or cls.usual
        cls.of_machine = cls.of_machine if of_machine is None else of_machine

    def __init__(self, what: str, *, cause: str = "", next_step: str | Command | Setting = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.next_step = str(next_step or self.usual)

    def __str__(self) -> str:
        parts = {"": self.what, _CAUSE: self.cause, _NEXT: self.next_step}
        return "\n".join(f"{label}{_continued(text)}" for label, text in parts.items() if text or not label)

    @property
    def brief(self) -> str:
        """In a few words, for a list."""
        return self.what.partition("\n")[0]

    @property
    def why(self) -> str:
        """In a few words, beside the name of the server or file that it is about."""
        return self.brief

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (layers are built by worker processes).
        return functools.partial(type(self), self.what, cause=self.cause, next_step=self.next_step), ()


def _continued(text: str) -> str:
    """A part of a message, whose further lines are indented: none of them poses as another part."""
    first, *others = text.split("\n")
    return "\n".join([first, *(line if line.startswith("  ") or not line else f"    | {line}" for line in others)])


class UsageError(GraphcrateError, exit_code=2):
    """An argument names something that does not exist (CUDA version, GPU, recipe, reference)."""


class RecipeError(GraphcrateError, exit_code=3):
    """A recipe, a lock or another file that people keep is malformed; `what` begins with its path and where in it."""


class ResolutionError(GraphcrateError, exit_code=4):
    """No candidate can be locked, nothing of a stack runs on the machine, or requirements contradict each other."""


class NetworkError(GraphcrateError, exit_code=5, of_machine=True):
    """A file or page is not available from any source: no network, HTTP error, time-out."""


class IntegrityError(
    GraphcrateError,
    ArchiveError,  # so that `layertar` raises it, and its kinds, itself: a stream's error comes from any later read
    exit_code=6,
    usual="fetch or copy it again; if it stays so, tell whoever published it",
    of_machine=True,
):
    """Bytes are not what the lock, RECORD, CRC or digest says, or an archive is malformed or hostile."""


class HostError(GraphcrateError, exit_code=7, of_machine=True):
    """The machine lacks something: a program, user namespaces, permission."""


class DiskFullError(GraphcrateError, exit_code=8, of_machine=True):
    """No room left on the disk (ENOSPC, EDQUOT) or too little before starting."""


class BuildError(GraphcrateError, exit_code=9):
    """A step of a build failed: a child process, an sdist, a conflict between two wheels."""


class SmokeError(
    GraphcrateError,
    exit_code=10,
    usual=f"read its log, which is named above; {command('doctor')} looks at the node",
    of_machine=True,
):
    """The image was built but its smoke test failed."""


class CacheError(GraphcrateError, exit_code=11, of_machine=True):
    """The cache folder cannot be created, read or written, or is not to be cleared while another run uses it."""


class LayoutError(IntegrityError, exit_code=12, usual="build the image again, or copy it again from where it is whole"):
    """An OCI image layout breaks an invariant of the specification."""


class DifferenceError(GraphcrateError, exit_code=13, usual="the list above says what differs; --all lists what may"):
    """Two artifacts that were compared differ in what they should share."""


class ContractError(GraphcrateError, exit_code=14, usual="the list above has the fix of each"):
    """An image that was checked breaks a contract of a runtime that it was checked for."""


class AuditError(GraphcrateError, exit_code=15, usual="the list above has the fix of each"):
    """A program or library in what was audited cannot be loaded, or cannot run on the GPUs that it is for."""


class GateError(GraphcrateError, exit_code=16):
    """An image may not be published: its audit, contracts or suites failed or are missing."""


class ProofError(GraphcrateError, exit_code=17):
    """A statement about a published image is not there, not signed by this key, or about another image."""


class LockedError(
    GraphcrateError,
    exit_code=18,
    usual=f"{without('locked')}    (takes what is available today instead, and says so)",
):
    """Something that was locked is no longer available anywhere, or nothing was locked, and `--locked` takes no other.

    Also of `lock --check`: a file of a committed lock is nowhere any more.
    """


class NewsError(GraphcrateError, exit_code=20):
    """`update --check` found something new; nothing was written."""


class DefectError(GraphcrateError, exit_code=19, of_machine=True):
    """A defect of graphcrate itself; what to send of it is in a file that the message names."""


#: msgspec keeps DecodeError for what is no JSON, or not of the wanted form. Text that is no UTF-8 is a
#: UnicodeDecodeError, and brackets within brackets without end are a RecursionError.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def class_of(exit_code: int) -> type[GraphcrateError]:
    """Return the class of the errors that end with an exit code; BuildError where it has none."""
    classes, by_code = [GraphcrateError], dict[int, type[GraphcrateError]]()
    while classes:
        classes = [each for parent in classes for each in parent.__subclasses__()]
        for each in classes:
            by_code.setdefault(each.exit_code, each)
    return by_code.get(exit_code, BuildError)


def read(text: str, exit_code: int) -> GraphcrateError:
    """Return the error of a message, as `str` writes it, of a program that ended with this code."""
    text, _, next_step = text.partition(f"\n{_NEXT}")
    what, _, cause = text.partition(f"\n{_CAUSE}")
    return class_of(exit_code)(what, cause=cause, next_step=next_step)
