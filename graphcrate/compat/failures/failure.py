"""A failed compile, and its diagnosis, as values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from graphcrate.model.command import ETC, command

#: - `silent`: nothing was finished for `seconds`
#: - `interrupted`: a signal ended it
#: - `compiler`: a compiler, a linker or the back-end ended with an error, which is the only line
#: - `requirements`: the same, after the back-end asked for `requirements` that its metadata does not name
#: - `no GPU code`: the packages in `lines` have CUDA sources, and their wheels no code for GPUs
#: - `loading`: wheels are there, and the image's Python does not load them; the lines are its complaints
Kind = Literal["silent", "interrupted", "compiler", "requirements", "no GPU code", "loading"]

#: options that take more packages
More = Literal["with_", "apt", "build_apt"]
#: more packages by option → what to type
Beside = Callable[[Mapping[More, Sequence[str]]], str]


class CompileFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a compile without wheels that work. `names`: packages that were compiled together, or the one."""

    kind: Kind
    names: tuple[str, ...]
    lines: tuple[str, ...] = ()  #: by kind
    source: str = ""  #: the file that failed
    log: str = ""  #: the file with all output
    signal: int = 0
    seconds: float = 0
    requirements: tuple[str, ...] = ()
    #: CUDA's libraries in the image's packages → their folders there
    folders: Mapping[str, Sequence[str]] = {}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Words for a failure: its likely cause, and as the next step more packages to ask for, a sentence, or both."""

    what: str
    cause: str = ""
    next_step: str = ""
    more: Mapping[More, Sequence[str]] = {}

    def typed(self, beside: Beside) -> str:
        """The next step, beginning with the command that asks for more packages, where that helps."""
        return f"{beside(self.more)}{self.next_step}" if self.more else self.next_step


def same_with(more: Mapping[More, Sequence[str]]) -> str:
    """Say what to type besides, where the command is not known."""
    options = {option: " ".join(packages) for option, packages in more.items()}
    return str(command("image", ETC, **options))
