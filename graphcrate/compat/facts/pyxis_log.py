"""Explain why pyxis started no container: its words and enroot's, node by node. Pure.

pyxis prints enroot's log line by line where a start fails, and slurmstepd puts its own name before each, with the
node's in a step on several: `slurmstepd-n1: error: pyxis:     [ERROR] Command not found: …`.
"""

import re
from collections.abc import Iterable, Mapping

_LINE = re.compile(r"(?:slurmstepd|srun)(?:-(?P<node>[\w.-]+))?: (?:error: )?pyxis: (?P<text>.*)")
#: pyxis_slurmstepd.c 0.24: what it says where a container was not made, not started, or not joined
_NOT_STARTED = re.compile(
    r"(slurmstepd|srun)\S*: (error: )?"
    r"(pyxis: (failed to (create container filesystem|import|load)|container start failed|couldn't join)"
    r"|spank: required plugin spank_pyxis\.so: \w+\(\) failed)"
)
#: of pyxis' own lines: they name no cause, or follow from one
_OF_PYXIS = re.compile(
    r"child \d+ (failed|terminated)|failed to|container (start failed|was not started)|printing |couldn't|"
    r"import(ing|ed) "
)
_INFO = re.compile(r"\[(INFO|WARN)\]|Parallel unsquashfs|\d+ inodes|\W*$")
_ERROR = re.compile(r"\[ERROR\] *")
_FULL = "No space left on device"
#: the folder that holds a container, from a file in it
_FOLDER = re.compile(r"(?P<folder>/\S*?)/pyxis_[^/\s]+(/|$)")


def is_failed_start(lines: Iterable[str]) -> bool:
    """Tell whether a step's lines say that pyxis started no container on some node."""
    return any(_NOT_STARTED.match(line.strip()) for line in lines)


def why_not_started(lines: Iterable[str]) -> str:
    """Name the first cause of each node: `n1, n2: no space left in /var/lib/enroot`; empty where none is told.

    Nodes with the same cause are named together. In a step on one node no node is named.
    """
    nodes: dict[str, list[str]] = {}
    for line in lines:
        if match := _LINE.match(line.strip()):
            nodes.setdefault(match["node"] or "", []).append(match["text"].strip())
    causes: dict[str, list[str]] = {}
    for node, messages in nodes.items():
        if cause := _first_cause(messages):
            causes.setdefault(cause, []).append(node)
    return "; ".join(f"{named}: {cause}" if (named := _names(causes, cause)) else cause for cause in causes)


def _names(causes: Mapping[str, list[str]], cause: str) -> str:
    return ", ".join(sorted(filter(None, causes[cause])))


def _first_cause(messages: list[str]) -> str:
    """enroot's first error, in its own words but for a full disk; else its first line that is no mere information."""
    if any(_FULL in line for line in messages):
        folder = next((match["folder"] for line in messages if (match := _FOLDER.search(line))), "")
        return f"no space left in {folder}" if folder else "no space left"
    errors = [_ERROR.sub("", line) for line in messages if _ERROR.match(line)]
    others = [line for line in messages if not _INFO.match(line) and not _OF_PYXIS.match(line)]
    own = [line for line in messages if not _INFO.match(line) and not line.startswith("printing ")]
    return next(iter([*errors, *others, *own]), "")
