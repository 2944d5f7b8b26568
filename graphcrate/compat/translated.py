"""What a file of another format says, as lines of pip's requirements files."""

import re
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from graphcrate.model.recipe import Expected

Lines = list[tuple[str, str]]  #: (where: "environment.yml:7", a line as pip has it)
#: what every stack has with its torch, and locks of others pin for theirs
_STACKS = re.compile(
    r"torch|triton|pytorch-triton(-.*)?|torchvision|torchaudio|torch-geometric|pyg-lib"
    r"|torch-(scatter|sparse|cluster|spline-conv)|(nvidia|cuda)-.*"
)


@dataclass
class Translated:
    """Packages and constraints in pip's lines, what is the stack's, and what was passed over."""

    lines: Lines = field(default_factory=list)
    constraints: Lines = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def is_stacks(name: str) -> bool:
    """Whether a package is the stack's, whichever version a lock of another project has of it."""
    return _STACKS.fullmatch(str(canonicalize_name(name))) is not None
