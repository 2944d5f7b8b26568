"""What `Requires-Dist` lines of core metadata ask for, on linux/amd64."""

import contextlib
from collections.abc import Iterable, Iterator

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion


def markers(python: str) -> dict[str, str]:
    """The environment of an image with this Python ("3.11"; empty: not known), without extras (PEP 508)."""
    return {
        **({"python_version": python, "python_full_version": f"{python}.0"} if python else {}),
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }


def requirements(lines: Iterable[str], python: str) -> Iterator[Requirement]:
    """What counts under `markers`; lines that are no requirement, or cannot be evaluated, are left out."""
    for line in lines:
        with contextlib.suppress(InvalidRequirement, UndefinedComparison, InvalidVersion):
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate(markers(python)):
                yield wanted
