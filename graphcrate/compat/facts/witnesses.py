"""Hashes of files that others' public lock files have (`data/witnesses.toml`), for pages that state none.

They prove the same bytes as those others had, and nothing more.
"""

import functools
from collections.abc import Mapping
from typing import Annotated

import msgspec

from graphcrate.compat.facts.facts import table
from graphcrate.model.values import FileName, Sha256, Size

#: owner/repository:path@commit
Witness = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+/[\w.-]+:[^@:\s\"\\]+@[0-9a-f]{40}\Z")]
LEAST = 2  #: witnesses of a file, of different owners, until its hash is used


class Witnessed(msgspec.Struct, frozen=True, kw_only=True):
    """A file's hash with those who have it in a lock."""

    name: FileName
    sha256: Sha256
    size: Size | None = None  #: where a witness has it
    witnesses: tuple[Witness, ...]

    @property
    def owners(self) -> frozenset[str]:
        """Owners of the repositories: two of one owner may be copies of each other."""
        return frozenset(witness.partition("/")[0].lower() for witness in self.witnesses)

    @property
    def is_proved(self) -> bool:
        """Return whether independent ones say the same."""
        return len(self.owners) >= LEAST


@functools.cache
def witnessed() -> Mapping[str, Witnessed]:
    """Return what is known of each file, by its name."""
    return {row.name: row for row in table("witnesses", tuple[Witnessed, ...], "file")}


def of(name: str) -> Witnessed | None:
    """Return what witnesses know of a file; None for one without them."""
    return witnessed().get(name)
