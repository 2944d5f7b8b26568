"""Compare the names under which an image was published with the one asked for: a signature is of a digest alone.

So all who may write to a registry can serve an old image under a new tag, and anybody a copy elsewhere; both with
signatures that fit. What is signed therefore has the names that the publisher gave, and this compares them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from dssesign.statement import Statement
from graphcrate.model.errors import UsageError
from graphcrate.model.words import joined
from graphcrate.oci import reference
from graphcrate.publish.destinations.parse import vpc_reference
from ociregistry.reference import Reference


class NameCheck(NamedTuple):
    """The verdict on an image's name, in words. `is_known`: whether anybody recorded what it may be called."""

    is_ok: bool
    message: str
    is_known: bool = True


def known(texts: Iterable[str]) -> tuple[Reference, ...]:
    """References in what was signed, each once; other text is left out, and one without a tag names a repository."""
    references: dict[Reference, None] = {}
    for text in texts:
        try:
            whole = reference.parse(text)
        except UsageError:
            continue
        tag = whole.tag if has_tag(text) else ""
        references[Reference(host=whole.host, repository=whole.repository, tag=tag)] = None
    return tuple(references)


def has_tag(text: str) -> bool:
    """Return whether the user wrote a tag in a reference."""
    return ":" in text.partition("@")[0].rpartition("/")[2]


def own_tag(bill: Statement | None) -> str:
    """Return the image's name in the bill of materials; empty where there is none, or another's."""
    value: Any = bill.predicate if bill else None
    for name in ("metadata", "component", "version"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def judge(asked: Reference, published: Iterable[Reference], own: str) -> NameCheck:
    """Compare. `own`: the tag in its bill of materials; with it alone nothing is refused."""
    every = tuple(published)
    tags = [entry for entry in every if entry.tag]
    published_as = joined(map(str, tags or every), most=8)
    if not every:
        its_own = f"; its own tag is {own}" if own else ""
        return NameCheck(True, f"nobody signed as what it was published{its_own}", is_known=False)
    if all(asked.name not in _places(entry) for entry in every):
        return NameCheck(False, f"published as {published_as}, not in {asked.name}: somebody has copied it")
    if not asked.tag:
        return NameCheck(True, f"published as {published_as}")
    here = [entry.tag for entry in tags if asked.name in _places(entry)]
    if asked.tag in here:
        return NameCheck(True, f"published as {published_as}")
    if here:
        return NameCheck(
            False, f"published as {published_as}, never as {asked}: somebody has put another image under that tag"
        )
    if asked.tag == own:
        return NameCheck(True, f"published in {published_as}, where {own} is its own tag")
    unsaid = f"no signature says whether {asked.tag} is a tag of it" + (f"; its own is {own}" if own else "")
    return NameCheck(True, f"published in {published_as}, and {unsaid}", is_known=False)


def _places(there: Reference) -> set[str]:
    """Registry and repository, and the same ones by their address inside a cloud's network."""
    inside = vpc_reference(there)
    return {there.name, *([inside.name] if inside else [])}
