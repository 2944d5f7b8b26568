"""Loads libraries one by one and imports packages, and says what each did. Runs inside a base, on Pythons from 3.9 on.

    python import_probe.py ORDERS.json FOUND.json

Each try has a process of its own, so that none sees what another loaded and a crash ends no more than itself. The
orders: `site` (folder), `first` (a module to import before libraries, or ""), `imports` (names; several with spaces are
imported in turn), `files` (paths below `site`), `seconds` for each try. A library is loaded after `first`, and if it
does not load then, after each of `imports`, as its own package may load what it needs before it: the first that goes
counts. So does being loaded for another: a library may find its own only by the RPATH of what needs it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 4000  #: characters of an error that are kept
LINES = 8  #: of what a try wrote


def main(orders: Path, found: Path) -> None:
    told = json.loads(orders.read_text())
    site, seconds = told["site"], told["seconds"]
    imports = {name: attempt(partial(imported, name, site), seconds) for name in told["imports"]}
    files: dict[str, Any] = {}
    for first in dict.fromkeys([told["first"], *told["imports"]]):
        left = [file for file in told["files"] if not files.get(file, {}).get("ok")]
        whole = attempt(partial(after, first, site, left, seconds), seconds * (len(left) + 1))
        for file in left:
            outcome = whole.get("files", {}).get(file, whole)
            if outcome["ok"] or file not in files:
                files[file] = {**outcome, "after": first}
    for outcome in [*imports.values(), *list(files.values())]:
        for file in outcome.pop("mapped", ()):
            if file in files and not files[file]["ok"]:
                files[file] = {"ok": True, "error": "", "signal": 0, "said": [], "after": "what needs it"}
    found.write_text(json.dumps({"imports": imports, "files": files}))


def after(first: str, site: str, files: list[str], seconds: int) -> dict[str, Any]:
    """Observe each of these libraries in a copy of a process that has imported `first`, or tried to."""
    if first:
        imported(first, site)
    outcomes = {file: attempt(partial(loaded, file, site), seconds) for file in files}
    return {"ok": True, "error": "", "files": outcomes}


def imported(names: str, site: str) -> dict[str, Any]:
    try:
        for name in names.split():
            importlib.import_module(name)
    except BaseException as error:
        return {"ok": False, "error": chain(error)}
    return {"ok": True, "error": "", "mapped": mapped(site)}


def loaded(file: str, site: str) -> dict[str, Any]:
    """As Python loads an extension module: all symbols at once, none for others to see."""
    try:
        ctypes.CDLL(f"{site}/{file}", mode=ctypes.RTLD_LOCAL)  # adds RTLD_NOW
    except OSError as error:
        return {"ok": False, "error": str(error)[:MOST]}
    return {"ok": True, "error": "", "mapped": mapped(site)}


def mapped(site: str) -> list[str]:
    """The files below the folder that this process has loaded."""
    paths = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return [path[len(site) + 1 :] for path in paths if path.startswith(f"{site}/")]


def chain(error: BaseException) -> str:
    """The error and what led to it, the last first."""
    words: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(words) < 5:
        words.append(f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__ or seen.__context__
    return " | from ".join(words)[:MOST]


def attempt(work: Callable[[], dict[str, Any]], seconds: int) -> dict[str, Any]:
    """Do the work in a child; return its result, its last lines and the signal that ended it, or 0.

    A child that does not return is no success; SIGALRM ends it after so many seconds.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            signal.alarm(seconds)
            answer.write(json.dumps(work()).encode())
            answer.flush()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        output.seek(0)
        said = output.read().decode("utf-8", "replace").splitlines()[-LINES:]
        returned = json.loads(answer.read() or b"null")
    if returned is not None:
        return {**returned, "signal": 0, "said": said}
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    how = f"ended by {signal.Signals(number).name}" if number else f"ended with exit code {os.WEXITSTATUS(status)}"
    return {"ok": False, "error": how, "signal": number, "said": said}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
