"""Packages that were read out of a dropped file, as a question: what `adopt` or `init` wrote, read again. Pure."""

import re
from pathlib import Path

import msgspec

from graphcrate.compat.adopt.draft import Row
from graphcrate.compat.adopt.written import Adopted
from graphcrate.compat.requirements import own
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, GraphcrateError
from graphcrate.remote.questions import Question

RECIPE = "read.toml"  #: that `adopt` writes
_TAKEN = {"extends", "cuda", "pip", "apt"}
#: of a recipe's packages, those that a question can have: names, not paths, repositories or conditions in words
_NAME = re.compile(r"[A-Za-z0-9](?!\S*://)[^\s/]*")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read. `rows`: its commands; `left`: parts of its recipe that a site does not take."""

    question: Question
    rows: tuple[Row, ...] = ()
    left: tuple[str, ...] = ()


def reading(folder: Path, printed: bytes) -> Reading | None:
    """Read what a job left in its folder, and what it printed; None for what is not whole."""
    try:
        adopted = codec.decode(printed, Adopted)
    except UNREADABLE:
        adopted = None
    name = RECIPE if adopted else Path(printed.decode("utf-8", "replace").strip()).name
    try:
        text = (folder / name).read_text(encoding="utf-8")
        recipe = own.parse(text, name)
        words = [re.sub(r"\s+(?=[<>=!~;,\[])|(?<=[<>=~;,\]])\s+", "", package) for package in recipe.pip]
        fields = {
            "stack": recipe.extends,
            "cuda": recipe.cuda,
            "packages": " ".join(word for word in words if _NAME.fullmatch(word)),
            "apt": " ".join(recipe.apt),
        }
        question = codec.convert(fields, Question)
    except (OSError, ValueError, GraphcrateError, *UNREADABLE):
        return None
    left = [field for field, value in msgspec.structs.asdict(recipe).items() if value and field not in _TAKEN]
    left = [field for field in left if field != "smoke_minutes"]
    strange = [word for word in words if not _NAME.fullmatch(word)]
    return Reading(question=question, rows=adopted.rows if adopted else (), left=(*strange, *left))
