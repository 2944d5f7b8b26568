"""Paths of an image as its own kernel would walk them: links are followed inside the image, never out of it."""

import contextlib
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping

from graphcrate.artifacts.formats.runtime_files import SIF_SCRIPT
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.model.contract import Settings
from graphcrate.model.tree import Entry
from treeaudit.links import resolve

#: Apptainer's own script for an image of a registry has its entry point in a variable
_OCI_ENTRYPOINT = re.compile(r"^OCI_ENTRYPOINT=(.*)$", re.MULTILINE)


def resolve_path(entries: Mapping[str, Entry], path: str) -> str:
    """Return the path with all links followed, whether something is there or not; empty for a circle of links."""

    def link_at(inside: str) -> str | None:
        entry = entries.get(inside)
        return entry.link if entry is not None and entry.kind == "symlink" else None

    return resolve(link_at, path)


def find_program(entries: Mapping[str, Entry], name: str, folders: Iterable[str]) -> str:
    """Return the path of the program of this name, links not followed; empty if there is none."""
    for candidate in [name] if "/" in name else [posixpath.join(folder, name) for folder in folders if folder]:
        entry = entries.get(resolve_path(entries, candidate))
        if entry is not None and entry.kind == "file":
            return candidate
    return ""


def program_paths(settings: Settings, word: str) -> list[str]:
    """Return the paths that a command's first word may mean, in the order of PATH."""
    folders = (settings.variables.get("PATH") or SYSTEM_PATH).split(":")
    return [word] if "/" in word else [f"{folder.rstrip('/')}/{word}" for folder in folders if folder]


def entry_words(settings: Settings | None, script: str) -> tuple[str, ...]:
    """The words of the entry point; of a SIF, whose `script` starts it, those that the script runs."""
    if not script:
        return settings.entrypoint if settings else ()
    with contextlib.suppress(ValueError):  # a shell's word, within which the words are quoted once more
        if match := _OCI_ENTRYPOINT.search(script):
            return tuple(shlex.split("".join(shlex.split(match[1]))))
    return (SIF_SCRIPT,)


def named_paths(settings: Settings, script: str) -> set[str]:
    """Paths that an image's settings name, without a slash at their end; `script` as for `entry_words`."""
    named = {settings.working_folder, *settings.volumes, *settings.variables.get("LD_LIBRARY_PATH", "").split(":")}
    for words in (settings.entrypoint, entry_words(settings, script), settings.command):
        named |= {*program_paths(settings, words[0]), *words[1:]} if words else set()
    return {path.rstrip("/") or "/" for path in named if path.startswith("/")}


def is_below(path: str, *folders: str) -> bool:
    """Return whether the path is one of the folders or below one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def folders_in_path(settings: Settings) -> list[str]:
    """The folders of PATH, in order."""
    return [folder for folder in settings.variables.get("PATH", "").split(":") if folder.startswith("/")]
