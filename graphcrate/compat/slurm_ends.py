"""Who ended a step of Slurm: the program in it, or Slurm and its nodes. Reads `data/slurm_ends.toml`; pure."""

import functools
import re
from collections.abc import Iterable

import msgspec

from graphcrate.compat.facts import table

#: how the lines of Slurm's own programs begin
_SPEAKER = re.compile(r"(?:srun|slurmstepd(?:-\S+)?|slurmd\[\S+\]): (?:error: )?(?P<said>.*)")


class End(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a step that ended, and whether nothing is known then of what ran in it."""

    says: str
    lost: bool
    source: str


ends = functools.cache(functools.partial(table, "slurm_ends", tuple[End, ...], "end"))


def taken_away(lines: Iterable[str]) -> str:
    """What Slurm says of a step that it, or a node that failed, took away; empty where what ran in it is the cause."""
    messages = [match["said"] for line in lines if (match := _SPEAKER.match(line.strip()))]
    for end in ends():
        for words in messages:
            if re.match(end.says, words):
                return words.strip() if end.lost else ""
    return ""
