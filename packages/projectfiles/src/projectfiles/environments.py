"""Machines that a file is read for: their markers, and requirements that are for none of them."""

from collections.abc import Iterable

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion

from projectfiles.values import Environment


def linux(python: str, machine: str = "x86_64") -> dict[str, str]:
    """Return the markers of CPython ("3.11") on Linux, without extras."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }


def counts(requirement: Requirement, environment: Environment) -> bool | None:
    """Return whether a requirement's marker is true of a machine; None of one that cannot be evaluated."""
    if requirement.marker is None:
        return True
    try:
        return requirement.marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName, InvalidVersion):
        return None


def is_for_none(text: str, environments: Iterable[Environment]) -> bool:
    """Return whether a requirement's marker (`sys_platform == 'darwin'`) is false on each of these machines."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return False
    return all(counts(requirement, environment) is False for environment in environments)
