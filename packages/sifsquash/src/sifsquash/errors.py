"""Errors of this library: a file that is not what it should be, or an image that cannot be written."""

import functools
from pathlib import Path


class ImageError(Exception):
    """An error of an image: what is wrong, the likely cause and a next step; the last two may be empty."""

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step = what, cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.what, cause=self.cause, next_step=self.next_step), ()


class DamagedBlocksError(ImageError):
    """The file with the blocks of a packed layer is not as it was written."""

    def __init__(self, data: Path) -> None:
        super().__init__(
            f"{data} was damaged", cause="Its bytes were changed after they were written.", next_step="pack it again"
        )
        self.data = data

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.data,)
