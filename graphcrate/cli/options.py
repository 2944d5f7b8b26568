"""What several commands take in the same words: CUDA versions as people write them, GPUs named once or again."""

import re
from typing import Annotated

import typer

_LABEL = re.compile(r"cu(\d+)(\d)")  #: as PyTorch's index has it
_PATCH = re.compile(r"(\d+\.\d+)\.\d+")


def cuda_version(text: str | None) -> str | None:
    """ "11.8" of what people write: 11.8.0, cu118. Raises UsageError for an empty one."""
    if text is None:
        return None
    version = text.strip().lower()
    if not version:
        from graphcrate.model.errors import UsageError

        raise UsageError(
            "--cuda is empty",
            cause="Most likely a variable of the shell that is not set.",
            next_step="--cuda 11.8, or leave it out",
        )
    if label := _LABEL.fullmatch(version):
        return f"{label[1]}.{label[2]}"
    return _PATCH.sub(r"\1", version) if _PATCH.fullmatch(version) else version


def joined(values: list[str] | None) -> str | None:
    """GPUs that were named, once or several times, as one list. Raises UsageError for an empty one."""
    if values is None:
        return None
    if not all(value.strip() for value in values):
        from graphcrate.model.errors import UsageError

        raise UsageError("--gpu is empty", next_step="--gpu v100, or leave it out")
    return ",".join(values)


CudaOrNone = Annotated[
    str | None,
    typer.Option(
        callback=cuda_version,
        help='CUDA version or "cpu"; else the newest that the named machine runs, or 11.8.',
    ),
]
#: use `joined` on it
Gpus = Annotated[list[str] | None, typer.Option(help="GPU models, such as v100 or v100,a100; again for more.")]
