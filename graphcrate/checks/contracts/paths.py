"""Paths of an image as its own kernel would walk them: links are followed inside the image, never out of it."""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Protocol

from graphcrate.model.tree import Kind

_MOST_LINKS = 40  #: as Linux has it


class _Entry(Protocol):
    @property
    def kind(self) -> Kind: ...

    @property
    def link(self) -> str: ...


def resolve(entries: Mapping[str, _Entry], path: str) -> str:
    """The path with all links followed, whether something is there or not; empty for a circle of links."""
    waiting = [part for part in reversed(path.split("/")) if part]
    found, links = "", 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            found = posixpath.dirname(found).rstrip("/")
            continue
        if part in ("", "."):
            continue
        entry = entries.get(f"{found}/{part}")
        if entry is None or entry.kind != "symlink":
            found = f"{found}/{part}"
            continue
        links += 1
        if links > _MOST_LINKS:
            return ""
        if entry.link.startswith("/"):
            found = ""
        waiting += reversed(entry.link.split("/"))
    return found or "/"


def find_program(entries: Mapping[str, _Entry], name: str, folders: Iterable[str]) -> str:
    """Where a program lies that is called by this name, links not followed; empty where it does not."""
    places = [name] if "/" in name else [posixpath.join(folder, name) for folder in folders if folder]
    for place in places:
        entry = entries.get(resolve(entries, place))
        if entry is not None and entry.kind == "file":
            return place
    return ""


def is_below(path: str, folder: str) -> bool:
    """Whether the path is the folder or lies in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
