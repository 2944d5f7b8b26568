"""Every error that a person can meet: what happened, the likely cause, the next command to type.

Raised anywhere, caught once (in `cli_end`), each kind with an exit code of its own. Exit code 1 is left to
unexpected faults and 2 to wrong usage, as shells and argparse have it.
"""

from typing import ClassVar

import msgspec


class GraphcrateError(Exception):
    """Base of all expected errors. `cause` and `next_step` are full sentences or empty."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        if self.cause:
            lines.append(f"cause: {self.cause}")
        if self.next_step:
            lines.append(f"next:  {self.next_step}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (layers are built by worker processes).
        return _rebuild, (type(self), self.what, self.cause, self.next_step)


def _rebuild(kind: type[GraphcrateError], what: str, cause: str, next_step: str) -> GraphcrateError:
    return kind(what, cause=cause, next_step=next_step)


class UsageError(GraphcrateError):
    """An argument names something that does not exist (CUDA version, GPU, recipe, reference)."""

    exit_code = 2


class RecipeError(GraphcrateError):
    """A recipe file is malformed; `what` begins with `file:line:`."""

    exit_code = 3


class ResolutionError(GraphcrateError):
    """No candidate of a variant can be locked, or the requirements contradict each other."""

    exit_code = 4


class NetworkError(GraphcrateError):
    """A file or page is not available from any source: no network, HTTP error, time-out."""

    exit_code = 5


class IntegrityError(GraphcrateError):
    """Bytes are not what the lock, RECORD, CRC or digest says, or an archive is malformed or hostile."""

    exit_code = 6


class HostError(GraphcrateError):
    """The machine lacks something: a program, user namespaces, permission."""

    exit_code = 7


class DiskFullError(GraphcrateError):
    """No room left on the disk (ENOSPC, EDQUOT) or too little before starting."""

    exit_code = 8


class BuildError(GraphcrateError):
    """A step of a build failed: a child process, an sdist, a conflict between two wheels."""

    exit_code = 9


class SmokeError(GraphcrateError):
    """The image was built but its smoke test failed."""

    exit_code = 10


class CacheError(GraphcrateError):
    """The cache folder cannot be created, read or written, or is not to be cleared while another run uses it."""

    exit_code = 11


class LayoutError(IntegrityError):
    """An OCI image layout breaks an invariant of the specification."""

    exit_code = 12


class DifferenceError(GraphcrateError):
    """Two artifacts that were compared differ in what they should share."""

    exit_code = 13


class ContractError(GraphcrateError):
    """An image that was checked breaks a contract of a runtime that it was checked for."""

    exit_code = 14


class AuditError(GraphcrateError):
    """A program or library in what was audited cannot be loaded, or cannot run on the GPUs that it is for."""

    exit_code = 15


class GateError(GraphcrateError):
    """An image may not be published: its audit, contracts or suites stand against it, or are missing."""

    exit_code = 16


class ProofError(GraphcrateError):
    """What is said about a published image is not there, not signed by this key, or not about this image."""

    exit_code = 17


#: msgspec keeps DecodeError for what is no JSON, or not of the wanted form. Text that is no UTF-8 is a
#: UnicodeDecodeError, and brackets within brackets without end are a RecursionError.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
