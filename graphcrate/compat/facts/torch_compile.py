"""Requirements of torch.compile in an image: a Python that its torch takes, a compiler and Python's headers. Pure."""

import re
from collections.abc import Collection

from packaging.version import InvalidVersion, Version

from graphcrate.compat.facts import facts
from graphcrate.model.command import setting
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.words import listed

#: what inductor and triton run, and what the code that they write includes: pattern of Debian packages, title, package
_NEEDED = (
    (re.compile(r"(g\+\+|clang)(-\d+)?"), "a C++ compiler", "g++"),
    (re.compile(r"(lib)?python3(\.\d+)?-dev"), "Python's headers", "python3-dev"),
)


def newest_python(torch: str) -> str:
    """The newest Python ("3.10") that torch.compile of a torch ("2.0.1+cu118") takes; empty if unknown."""
    version = torch.partition("+")[0]
    return next((build.compile_python for build in facts.torch_builds() if build.torch == version), "")


def refusal(torch: str, python: str) -> str:
    """Explain why torch.compile does not work with this Python; empty where it does, or that is not known."""
    newest = newest_python(torch)
    if not newest or facts.numbers(python) <= facts.numbers(newest):
        return ""
    return f"torch.compile does not work: torch {torch} takes it up to Python {newest}, and this is {python}"


def is_offered(torch: str) -> bool:
    """Return whether a torch has torch.compile: from 2.0 on."""
    try:
        return Version(torch).major >= 2
    except InvalidVersion:
        return False


def note(torch: str, python: str, debian: Collection[str] | None, platform: Platform = DEFAULT) -> str:
    """Word a note on torch.compile in an image with these Debian packages (None: not known); empty for nothing.

    Who builds for another platform than the default one adds no packages.
    """
    if not is_offered(torch):
        return ""
    if reason := refusal(torch, python):
        return reason
    absent = [
        (title, package)
        for pattern, title, package in _NEEDED
        if debian is not None and not any(map(pattern.fullmatch, debian))
    ]
    if not absent:
        return ""
    needs = f"torch.compile needs {listed(title for title, _ in absent)}"
    if platform != DEFAULT:
        return f"{needs}, which images for {platform.title} are made without"
    apt = setting(apt=" ".join(package for _, package in absent))
    return f"{needs}: {apt}, or {setting(flavour='devel')}"
