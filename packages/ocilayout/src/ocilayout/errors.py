"""Errors of this library: what cannot be written into an image."""

import functools


class WritingError(Exception):
    """An error of an image: what is wrong, the likely cause and a next step; the last two may be empty."""

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step = what, cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.what, cause=self.cause, next_step=self.next_step), ()


class LayerError(WritingError):
    """A layer's entries contradict each other, or a compressed stream is not what its header says."""


class FormError(WritingError):
    """A manifest has something for which Docker's form has no name."""
