"""Errors of this library: files that are not what their headers say."""

import functools


class FileError(Exception):
    """An error of a file: what is wrong, and the likely cause."""

    def __init__(self, what: str, *, cause: str = "") -> None:
        super().__init__(what)
        self.what, self.cause = what, cause

    def __str__(self) -> str:
        return f"{self.what}\ncause: {self.cause}" if self.cause else self.what

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.what, cause=self.cause), ()


class UnlistedError(FileError):
    """The loader takes the file, but without section headers nothing tells where the tables are that it goes by."""


class ForeignError(FileError):
    """A file of 32 bits, or of the other byte order."""
