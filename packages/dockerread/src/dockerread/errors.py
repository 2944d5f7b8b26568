"""The error of this library: a file that is not what it is read as, or larger than anybody writes one."""

import functools
from typing import Literal

#: "instruction": a line that none begins; "stages": a Dockerfile without FROM; "bootstrap": a definition without its
#: first line; "length": too many instructions or commands; "notebook": no JSON; "file": it cannot be opened, or is no
#: text
Kind = Literal["instruction", "stages", "bootstrap", "length", "notebook", "file"]


class ReadError(Exception):
    """An error of a file. `file` and `line` say where (empty and 0: of a text alone); `text` is what was read there."""

    def __init__(self, what: str, *, kind: Kind, file: str = "", line: int = 0, text: str = "") -> None:
        super().__init__(what)
        self.what, self.kind, self.file, self.line, self.text = what, kind, file, line, text

    def __reduce__(self) -> tuple[object, ...]:
        again = functools.partial(type(self), self.what, kind=self.kind, file=self.file, line=self.line, text=self.text)
        return again, ()
