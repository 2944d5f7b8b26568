"""The error of this library: a file that is not taken, with facts for callers who have words of their own."""

import functools
from collections.abc import Collection
from typing import Literal

from projectfiles.words import listed, printable

#: "syntax": no TOML, YAML or quotation; "form": other tables or values than the format has; "version", "alternatives":
#: versions that no requirement can say; "extra": one that the file lacks; "needs": it says nothing of what is needed;
#: "dynamic": the project's own program says it; "subdirectory": a folder of an archive; "addresses": a list of conda's
#: with addresses in place of names; "machines": a lock for none of those asked about; "beside": the file that it
#: goes with is not there; "format": none that is read; "file": it cannot be opened, or is no text
Kind = Literal[
    "syntax", "form", "version", "alternatives", "extra", "needs", "dynamic", "subdirectory", "addresses",
    "machines", "beside", "format", "file",
]  # fmt: skip


class ProjectFileError(Exception):
    """An error of a file: what is wrong, the likely cause and a next step; the last two may be empty.

    `where`: the file, with its line where that is known (`environment.yml:7`). `text`: the name or value it is about.
    """

    def __init__(
        self, what: str, *, kind: Kind, where: str, text: str = "", cause: str = "", next_step: str = ""
    ) -> None:
        super().__init__(what)
        self.what, self.kind, self.where, self.text = what, kind, where, text
        self.cause, self.next_step = cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    @property
    def file(self) -> str:
        """The file without a line."""
        file, _, line = self.where.rpartition(":")
        return file if line.isdigit() else self.where

    @property
    def line(self) -> int:
        """The line; 0 where none is known."""
        line = self.where.rpartition(":")[2]
        return int(line) if line.isdigit() and ":" in self.where else 0

    def __reduce__(self) -> tuple[object, ...]:
        again = functools.partial(
            type(self),
            *(self.what,),
            kind=self.kind,
            where=self.where,
            text=self.text,
            cause=self.cause,
            next_step=self.next_step,
        )
        return again, ()


def unknown(what: str, asked: str, where: str, known: Collection[str]) -> ProjectFileError:
    """Return the error for a name that was asked for and that a file lacks. `what`: "feature", "extra or group"."""
    return ProjectFileError(
        f"{where} has no {what} {printable(asked)!r}" + (f"; it has {listed(sorted(known))}" if known else ""),
        kind="extra",
        where=where,
        text=asked,
        next_step="leave it out",
    )
