"""Versions of packages, and what they are compared by (deb-version(7), Debian Policy 7.1)."""

import functools
import re


def fits(version: str, constraint: str) -> bool:
    """Return whether a version is one of a constraint such as ">= 1:2.3-4" (Debian Policy 7.1).

    Any is of an empty one.
    """
    if not constraint:
        return True
    relation, _, bound = constraint.strip().partition(" ")
    left, right = version_key(version), version_key(bound.strip())
    relations = {"<<": left < right, "<=": left <= right, "=": left == right, ">=": left >= right, ">>": left > right}
    return relations[relation]


@functools.cache
def version_key(version: str) -> tuple[object, ...]:
    """Return the sort key of versions (deb-version(7)): epoch, upstream's version, revision."""
    epoch, _, rest = version.partition(":")
    if not epoch.isdecimal() or not rest:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return _number(epoch), _parts(upstream if dash else rest), _parts(revision if dash else "0")


def _parts(text: str) -> tuple[object, ...]:
    """Split a part of a version into pairs of what is no digit and a number, which are compared in turn."""
    end = 0
    pairs = re.findall(r"([^0-9]*)([0-9]*)", text)
    return tuple(((*map(_order, others), end), _number(digits)) for others, digits in pairs)


def _order(character: str) -> int:
    """Place of a character that is no digit: a tilde before the end of the text (0), then letters, then all others."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def _number(digits: str) -> tuple[int, str]:
    """Return the sort key of numbers of any length: Python makes none of more than 4300 digits."""
    significant = digits.lstrip("0")
    return len(significant), significant
