"""A recipe's text with another torch in a variant, or with one variant more. Comments and order stay as they are. Pure.

Values are put in their lines, and a new variant is a copy of the block of another one, so that its comments come along.
What comes out is read again, and has to say what was meant: a layout that these patterns do not know is refused.
"""

import itertools
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from graphcrate.model.errors import RecipeError
from upkeep.news.changes import VariantChange

_VARIANT = re.compile(r"^\[\[variant\]\][ \t]*$", re.MULTILINE)
_CANDIDATE = re.compile(r"^\[\[variant\.candidate\]\][ \t]*$", re.MULTILINE)
_CUDA = re.compile(r'^cuda[ \t]*=[ \t]*"([^"\n]*)"', re.MULTILINE)
_NAME = re.compile(r'^name[ \t]*=[ \t]*"([^"\n]*)"', re.MULTILINE)


def changed(text: str, change: VariantChange) -> str:
    """The recipe's text with this change. Raises RecipeError where its layout is another one than recipes have."""
    blocks = _blocks(text)
    number = next((place for place, block in enumerate(blocks) if _cuda(block) == change.like), -1)
    if number < 0:
        raise _unknown(change)
    own = _own(blocks[number])
    block = _block(own, change)
    if change.kind == "new":
        # behind the variant that it is like; what stands between that and the next one, a comment, stays with the next
        rest = blocks[number][len(own) :]
        blocks[number] = f"{own.rstrip()}\n\n{block.rstrip()}\n{rest}" if rest else f"{own.rstrip()}\n\n{block}"
    else:
        blocks[number] = block + blocks[number][len(own) :]
    result = "".join(blocks)
    if _read(result) != _meant(_read(text), change):
        raise _unknown(change)
    return result


def _blocks(text: str) -> list[str]:
    """The head, then each variant with all that follows up to the next."""
    starts = [0, *(match.start() for match in _VARIANT.finditer(text)), len(text)]
    return [text[first:last] for first, last in itertools.pairwise(starts)]


def _own(block: str) -> str:
    """A variant's block without the blank lines and comments that lead to the next one."""
    lines = block.splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return "".join(lines)


def _cuda(block: str) -> str:
    match = _CUDA.search(block) if block.startswith("[[variant]]") else None
    return match[1] if match else ""


def _block(block: str, change: VariantChange) -> str:
    """A variant's block with the values of a change; of a new one with this candidate alone."""
    starts = [match.start() for match in _CANDIDATE.finditer(block)]
    head, ways = block[: starts[0]] if starts else block, _ways(block, starts)
    chosen = next((way for way in ways if (name := _NAME.search(way)) and name[1] == change.candidate), "")
    if not chosen:
        raise _unknown(change)
    changed_way = _put(chosen, "torch", change.torch)
    head = _put(head, "torch_geometric", change.pyg)
    head = _dated(head, change.exclude_newer)
    if change.kind == "new":
        head = _without(head, change)
        return _put(head, "cuda", change.cuda) + _put(changed_way, "torch_cuda", change.cuda)
    return head + "".join(changed_way if way == chosen else way for way in ways)


def _ways(block: str, starts: list[int]) -> list[str]:
    return [block[first:last] for first, last in zip(starts, [*starts[1:], len(block)], strict=True)]


def _put(text: str, name: str, value: str) -> str:
    """A line with another value."""
    return re.sub(rf'^({name}[ \t]*=[ \t]*)"[^"\n]*"', lambda match: f'{match[1]}"{value}"', text, count=1, flags=re.M)


def _without(head: str, change: VariantChange) -> str:
    """The head of a variant that lacks some of its requirements, with a comment that says so."""
    for text in change.without:
        line = re.compile(
            rf'^(requirements[ \t]*=[ \t]*\[[^\]\n]*?)(, )?"{re.escape(text)}"(?(2)|(?:, )?)', re.MULTILINE
        )
        comment = f"# No {text}: no release goes with torch {change.torch} yet (docs/dev/update.md).\n"
        if match := line.search(head):
            head = head[: match.start()] + comment + match[1] + head[match.end() :]
    return head


def _dated(head: str, day: str) -> str:
    """The head of a variant with this day, or without any."""
    line = re.compile(r'^exclude_newer[ \t]*=[ \t]*"[^"\n]*"[^\n]*\n', re.MULTILINE)
    if not day:
        return line.sub("", head)
    if line.search(head):
        return _put(head, "exclude_newer", day)
    return re.sub(r"^(base[ \t]*=[^\n]*\n)", lambda match: f'{match[1]}exclude_newer = "{day}"\n', head, flags=re.M)


def _read(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _meant(value: Mapping[str, Any], change: VariantChange) -> Mapping[str, Any]:
    """A recipe's value with this change, made without its text."""

    def with_values(variant: Mapping[str, Any]) -> dict[str, Any]:
        new = dict(variant)
        new.pop("exclude_newer", None)
        new |= {"exclude_newer": change.exclude_newer} if change.exclude_newer else {}
        new |= {"torch_geometric": change.pyg} if change.pyg else {}
        new["candidate"] = _candidates(variant.get("candidate", []), change)
        new["cuda"] = change.cuda
        if change.without:
            new["requirements"] = [text for text in variant.get("requirements", []) if text not in change.without]
        return new

    variants = []
    for variant in value.get("variant", []):
        if variant.get("cuda") != change.like:
            variants.append(variant)
        elif change.kind == "new":
            variants += [variant, with_values(variant)]
        else:
            variants.append(with_values(variant))
    return {**value, "variant": variants}


def _candidates(ways: list[dict[str, Any]], change: VariantChange) -> list[dict[str, Any]]:
    is_it: Callable[[dict[str, Any]], bool] = lambda way: way.get("name") == change.candidate  # noqa: E731
    if change.kind == "new":
        return [{**way, "torch": change.torch, "torch_cuda": change.cuda} for way in ways if is_it(way)]
    return [{**way, "torch": change.torch} if is_it(way) else way for way in ways]


def _unknown(change: VariantChange) -> RecipeError:
    return RecipeError(
        f"recipes/{change.recipe}.toml: the variant for CUDA {change.like} is not laid out as an update can change it",
        cause="It puts values in lines of their own: cuda, torch, torch_cuda, torch_geometric, exclude_newer.",
        next_step=f"write torch {change.torch} for CUDA {change.cuda} by hand",
    )
