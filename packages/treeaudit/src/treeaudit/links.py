"""Paths of a tree as its own kernel would walk them: links are followed inside the tree, never out of it."""

import posixpath
from collections.abc import Callable

_MOST_LINKS = 40  #: as Linux has it


def resolve(link_at: Callable[[str], str | None], path: str) -> str:
    """Return an absolute path with all links followed, whether something is there or not; empty for a circle of links.

    `link_at`: the target of the symbolic link at a path; None where there is no link.
    """
    waiting = path.split("/")[::-1]
    resolved, links = "", 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            resolved = posixpath.dirname(resolved).rstrip("/")
            continue
        target = link_at(f"{resolved}/{part}")
        if target is None:
            resolved = f"{resolved}/{part}"
            continue
        links += 1
        if links > _MOST_LINKS:
            return ""
        if target.startswith("/"):
            resolved = ""
        waiting += reversed(target.split("/"))
    return resolved or "/"
