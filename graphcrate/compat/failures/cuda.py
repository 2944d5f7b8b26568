"""Headers and libraries of CUDA that a compile lacks: the toolkit's own, and those of a wheel of the index. Pure."""

import re
from collections.abc import Collection
from typing import NamedTuple

from graphcrate.compat.facts import sonames

#: a header or library of CUDA that is absent
OF_TOOLKIT = re.compile(
    r"\.cuh?: No such file|(cu\w+|nv\w+|nccl|thrust/\S+|cub/\S+)\.(h|cuh|hpp): No such file|cannot find -l(cu|nv)"
)
#: in the error of a compile that has no toolkit
NEEDED = re.compile(r"(?<![a-z])cuda|nvcc|cublas", re.IGNORECASE)
#: a header or a library of CUDA; the runtime is in every toolkit
_OF_WHEEL = re.compile(
    r"fatal error: (?P<header>[\w.+/-]{1,80}): No such file|\bld: cannot find -l(?!cudart)(?P<linked>\w{1,40})|"
    r"Could NOT find (?P<found>\w{1,40})"
)


class OfWheel(NamedTuple):
    """A `header`, or else a `library` ("cusparse"), of CUDA, and the project of the index that brings it."""

    project: str
    header: str
    library: str


def of_wheel(line: str, cuda: str, there: Collection[str]) -> OfWheel | None:
    """The header or library that an error line misses and a project of the index has; None where there is no such.

    `cuda`: the toolkit's version; `there`: normalised names of the packages that are compiled against.
    """
    lacking = _OF_WHEEL.search(line)
    if lacking is None:
        return None
    if header := lacking["header"]:
        project = sonames.wheel_with(header, cuda)
        return OfWheel(project, header, "") if project else None
    library = lacking["linked"] or lacking["found"].lower()
    # its number says nothing that the toolkit does not
    project = sonames.wheel_of(f"lib{library}.so.0", cuda)
    if not project or (lacking["found"] and project in there):  # CMake found it not where it is: it looks elsewhere
        return None
    return OfWheel(project, "", library)
