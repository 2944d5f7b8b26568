"""Paths of an image as its own kernel would walk them: links are followed inside the image, never out of it."""

import posixpath
from collections.abc import Iterable, Mapping

from graphcrate.model.contract import Settings
from graphcrate.model.tree import Entry

_MOST_LINKS = 40  #: as Linux has it


def resolve_path(entries: Mapping[str, Entry], path: str) -> str:
    """The path with all links followed, whether something is there or not; empty for a circle of links."""
    waiting = path.split("/")[::-1]
    found, links = "", 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            found = posixpath.dirname(found).rstrip("/")
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


def find_program(entries: Mapping[str, Entry], name: str, folders: Iterable[str]) -> str:
    """Where a program lies that is called by this name, links not followed; empty where it does not."""
    for place in [name] if "/" in name else [posixpath.join(folder, name) for folder in folders if folder]:
        entry = entries.get(resolve_path(entries, place))
        if entry is not None and entry.kind == "file":
            return place
    return ""


def is_below(path: str, *folders: str) -> bool:
    """Whether the path is one of the folders or lies in it."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def folders_in_path(settings: Settings) -> list[str]:
    """The folders of PATH, in order."""
    return [folder for folder in settings.variables.get("PATH", "").split(":") if folder.startswith("/")]
