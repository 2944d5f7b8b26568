"""A file of another format, as lines of pip's requirements files."""

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
#: of these what torch itself asks for: a frozen list names them with their versions, though no one chose them
_TORCHS = re.compile(
    r"triton|cuda-(bindings|pathfinder|toolkit)|nvidia-(cublas|cuda-[a-z]+|cudnn|cufft|cufile|curand|cusolver|cusparse"
    r"|cusparselt|nccl|nvjitlink|nvshmem|nvtx)(-cu\d+)?"
)


@dataclass
class Translated:
    """Packages and constraints in pip's lines, what is the stack's, and what was passed over."""

    lines: Lines = field(default_factory=list)
    constraints: Lines = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def is_stacks(name: str) -> bool:
    """Return whether a package is the stack's, whichever version a lock of another project has of it."""
    return _STACKS.fullmatch(str(canonicalize_name(name))) is not None


def is_torchs(name: str) -> bool:
    """Return whether a package is one of those that torch's own metadata asks for: CUDA's libraries and triton."""
    return _TORCHS.fullmatch(str(canonicalize_name(name))) is not None
