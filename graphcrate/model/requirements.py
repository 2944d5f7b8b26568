"""What `Requires-Dist` lines of core metadata ask for, on linux/amd64."""

import contextlib
from collections.abc import Iterable, Iterator

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion


def requirements(lines: Iterable[str], python: str) -> Iterator[Requirement]:
    """Without extras, under this Python ("3.11"; empty: not known).

    Lines that are no requirement are left out, and those with a marker that cannot be evaluated.
    """
    environment = {
        **({"python_version": python, "python_full_version": f"{python}.0"} if python else {}),
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }
    for line in lines:
        with contextlib.suppress(InvalidRequirement, UndefinedComparison, InvalidVersion):
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate(environment):
                yield wanted
