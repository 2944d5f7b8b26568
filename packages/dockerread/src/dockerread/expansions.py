"""Texts that a shell makes of a value: `${A//./}`, `${A%.*}`, `${A:0:3}`, `$(echo "$A" | sed 's/\\.//g')`.

Patterns are plain texts, and `.*` behind `%`. Labels of CUDA are usually made so of its version. Pure.
"""

import re
from collections.abc import Callable

_REPLACED = re.compile(r"(//?)(\\?[^\\/*?\[\]]|\[[^\\\]]\])(?:/([^/*?\[\]$`]*))?")
_CUT = re.compile(r"(%%?)\.\*")
_PART = re.compile(r":(\d{1,4})(?::(\d{1,4}))?")
_PRINTED = re.compile(
    r"""\s*(?:echo\s+(?:-n\s+)?|printf\s+)(["']?)(?P<text>[^"'|`;&()\n]*)\1\s*\|\s*"""
    r"""(?:tr\s+-d\s+(["']?)(?P<dropped>[^"'\\\s-])\3"""
    r"""|sed\s+(?:-e\s+)?(["']?)s/(?P<old>\\?[^\\/*\[\]^$])/(?P<new>[^/&\\"']*)/(?P<all>g?)\5)\s*"""
)


def changed(value: str, change: str) -> str | None:
    """Return a variable's value as what stands behind its name in `${…}` changes it; None where that is not known."""
    if match := _REPLACED.fullmatch(change):
        return value.replace(_plain(match[2]), match[3] or "", -1 if match[1] == "//" else 1)
    if match := _CUT.fullmatch(change):
        return value.partition(".")[0] if match[1] == "%%" else value.rpartition(".")[0] or value
    if match := _PART.fullmatch(change):
        begin = int(match[1])
        return value[begin : begin + int(match[2]) if match[2] else None]
    return None


def printed(command: str, expand: Callable[[str], str]) -> str | None:
    """Return what a command between `$(` and `)` prints, with variables put in by `expand`; None where it is not known.

    Known is a text that goes through `tr -d` or sed's `s`, each with one plain character.
    """
    match = _PRINTED.fullmatch(command)
    if not match:
        return None
    text = (match["text"] if match[1] == "'" else expand(match["text"])).strip()
    if match["dropped"]:
        return text.replace(match["dropped"], "")
    if match["old"] == ".":  # any character
        return None
    return text.replace(_plain(match["old"]), match["new"], -1 if match["all"] else 1)


def _plain(pattern: str) -> str:
    """Return the character that a pattern of one stands for: `.`, `\\.` or `[.]`."""
    return pattern.strip("[]\\") or pattern
