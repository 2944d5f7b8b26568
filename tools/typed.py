"""Commands for packages: what is typed, what a request that failed said, and what to type by that.

`source_packages` and `wanted_packages` keep both in their ledgers.
"""

import re

import msgspec

_WORD = r"""('[^'…]+'|"[^"…]+"|[^\s"'…;,()]+)(?=[\s;,()]|$)"""  # as make and the command line have them
_NAMES = "BUILD_APT|APT|WITH|CUDA|STACK"
#: by make, by make with the whole setting in quotation marks, by the command line
_OPTIONS = (
    rf"(?<!')\b({_NAMES})={_WORD}",
    rf"'({_NAMES})=([^'…]+)'",
    rf"--({_NAMES.lower().replace('_', '-')})[ =]{_WORD}",
)


class Typed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command of a person: `make image STACK=… CUDA=… GPU=… WITH="…" APT="…" BUILD_APT="…"`."""

    stack: str = ""  #: empty: that of the list
    cuda: str = "11.8"
    gpu: str = ""
    with_: str = msgspec.field(default="", name="with")
    apt: str = ""
    build_apt: str = ""

    def words(self) -> list[str]:
        """The arguments of `image`, but for the stack."""
        pairs = (("--gpu", self.gpu), ("--with", self.with_), ("--apt", self.apt), ("--build-apt", self.build_apt))
        return ["--cuda", self.cuda, *(word for name, text in pairs if text for word in (name, text))]

    def shown(self) -> str:
        """The form that make takes, without the version of CUDA where the stack is the list's."""
        options = (("GPU", self.gpu), ("WITH", self.with_), ("APT", self.apt), ("BUILD_APT", self.build_apt))
        pairs = ((("STACK", self.stack), ("CUDA", self.cuda)) if self.stack else ()) + options
        return " ".join(f'{name}="{text}"' if " " in text else f"{name}={text}" for name, text in pairs if text)


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message of a request that failed."""

    typed: Typed
    exit_code: int
    what: str
    cause: str = ""  #: empty where `what` has it
    next_step: str


def advised(said: Message, own: str) -> Typed:
    """Return what to type by a message; what was typed where it names nothing as it has to be typed.

    `own`: the stack of the list, which is not typed.
    """
    found = [option for pattern in _OPTIONS for option in re.findall(pattern, said.next_step)]
    texts = [(name.upper().replace("-", "_"), text.strip("\"'")) for name, text in found]
    named = {name: text for name, text in texts if not text.startswith("./")}  # a folder that the user would make
    typed = said.typed
    stack = named.get("STACK", typed.stack)
    return Typed(
        stack="" if stack == own else stack,
        cuda=named.get("CUDA", typed.cuda),
        gpu=typed.gpu,
        with_=named.get("WITH", typed.with_),
        apt=_beside(typed.apt, named.get("APT", "")),
        build_apt=_beside(typed.build_apt, named.get("BUILD_APT", "")),
    )


def _beside(before: str, named: str) -> str:
    words = dict.fromkeys(f"{before} {named}".split())
    return before if "PACKAGE" in words else " ".join(words)  # that stands for a name that nobody knows
