"""An audit's subjects, and which of its findings the user accepts."""

from typing import Annotated, Literal, get_args

import msgspec

#: What an audit looks at. docs/audit.md says what each is and where its rule comes from.
Check = Literal[
    "files",
    "libraries",
    "versions",
    "symbols",
    "strings",
    "architectures",
    "copies",
    "unused",
    "toolkit",
    "metadata",
    "names",
    "start",
]
CHECKS: tuple[Check, ...] = get_args(Check)
_LONGEST = 200  #: characters: an image's label has them, and an image may be anybody's
_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


class Allowance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Findings of a check on a package that do not fail an image. Patterns as of file names: `rdkit.libs/*`."""

    package: _Pattern
    why: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]
    check: Check = "libraries"
    file: _Pattern = "*"
    library: _Pattern = "*"  #: of findings on missing libraries: every one of those that are missing
