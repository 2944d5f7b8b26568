"""What is to be compiled, with what, and where it goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import Base
from graphcrate.model.plan import CompileStep


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that a compile goes by. The calls are made when the cache lacks a wheel, and not before."""

    step: CompileStep
    base: Base  #: the image's base, where the wheels have to work
    build_base: Callable[[], Base]  #: `step.compilation.base`: the same with a compiler
    toolkit: Callable[[Base], Path | None]  #: the folder of the step's CUDA toolkit; gets the base with the compiler
    files: Callable[[], Mapping[str, Path]]  #: sha256 → the sdists, tools and wheels that the step names
    cache: Cache
    environment: Mapping[str, str]
    progress: Progress
    jobs: int  #: cores to use
    log_folder: Path  #: where the output of a compile that fails goes
