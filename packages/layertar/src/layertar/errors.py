"""Errors of this library. Programs may have theirs inherit `ArchiveError`: readers take the class that they raise."""

import functools


class ArchiveError(Exception):
    """An error of an archive: what is wrong, the likely cause and a next step; the last two may be empty."""

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step = what, cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.what, cause=self.cause, next_step=self.next_step), ()


class TarError(ArchiveError):
    """Bytes are no whole tar, or an entry breaks a rule."""


class BombError(ArchiveError):
    """An archive holds, or says that it holds, more than its limits have."""
