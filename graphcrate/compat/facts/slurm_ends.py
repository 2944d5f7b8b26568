"""Tell whether its program or Slurm and its nodes ended a step of Slurm. Reads `data/slurm_ends.toml`; pure."""

import re
from collections.abc import Iterable

import msgspec

from graphcrate.compat.facts.facts import table_reader

#: how the lines of Slurm's own programs begin
_SPEAKER = re.compile(r"(?:srun|slurmstepd(?:-\S+)?|slurmd\[\S+\]): (?:error: )?(?P<said>.*)")


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a step as it is told, and whether nothing is known then of what ran in it."""

    says: str
    lost: bool
    source: str


ends = table_reader("slurm_ends", tuple[End, ...], "end")


def taken_away(lines: Iterable[str]) -> str:
    """Say in Slurm's words that it, or a failed node, took a step away; empty where what ran in it is the cause."""
    messages = [match["said"] for line in lines if (match := _SPEAKER.match(line.strip()))]
    for end in ends():
        for words in messages:
            if re.match(end.says, words):
                return words.strip() if end.lost else ""
    return ""
