"""What several commands take and print in the same words."""

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.compat.targets import Said

_LABEL = re.compile(r"cu(\d+)(\d)")  #: as PyTorch's index has it
_PATCH = re.compile(r"(\d+\.\d+)\.\d+")


def cuda_version(text: str | None) -> str | None:
    """ "11.8" of what people write: 11.8.0, cu118. Raises UsageError for an empty one."""
    if text is None:
        return None
    version = text.strip().lower()
    if not version:
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
        raise UsageError("--gpu is empty", next_step="--gpu v100, or leave it out")
    return ",".join(values)


Cuda = Annotated[
    str | None,
    typer.Option(
        callback=cuda_version, help='CUDA version or "cpu"; else the newest that the named machine runs, or 11.8.'
    ),
]
#: use `joined` on it
Gpus = Annotated[list[str] | None, typer.Option(help="GPU models, such as v100 or v100,a100; again for more.")]
Target = Annotated[
    str, typer.Option(help="A machine of targets/, such as dgx2, or a file like those: GPUs, driver, kernel, runtimes.")
]
Driver = Annotated[str, typer.Option(help="NVIDIA driver of the machine, such as 450.80.02.")]
Runtime = Annotated[list[str] | None, typer.Option(help="docker, apptainer, pyxis or pai; again for more.")]
RuntimeVersion = Annotated[str, typer.Option(help="Version of the one runtime; of pyxis that of enroot.")]
Kernel = Annotated[str, typer.Option(help="Kernel of the machine, such as 3.10.")]
Glibc = Annotated[str, typer.Option(help="glibc of the machine, such as 2.35.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="Where suites run; auto: a GPU where there is one.")
]
#: for what is mounted as a file: a SIF, a squashfs
MountKernel = Annotated[
    str | None, typer.Option(help="Kernel of the machine that mounts a sif: zstd from 4.14 on; gzip where unknown.")
]
Compression = Annotated[Literal["gzip", "zstd"] | None, typer.Option(help="Of sif and sqsh; of sqsh zstd if left out.")]
Output = Annotated[Path, typer.Option(help="Folder of images.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def said(
    target: str,
    gpu: list[str] | None,
    driver: str,
    runtime: list[str] | None,
    runtime_version: str,
    kernel: str,
    glibc: str,
) -> "Said":
    """What was said of a machine."""
    from graphcrate.compat import targets

    return targets.Said(
        target=target,
        gpu=joined(gpu) or "",
        driver=driver,
        runtimes=tuple(runtime or ()),
        runtime_version=runtime_version,
        kernel=kernel,
        glibc=glibc,
    )


def write(value: Any, text: str, *, as_json: bool) -> None:  # noqa: ANN401 (what msgspec encodes)
    """Print a command's result: one JSON value, or text. What it says on stderr afterwards comes after it."""
    from graphcrate.model.lock import encode

    if as_json and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as JSON is, whatever the locale
    sys.stdout.write(encode(value).decode() if as_json else text)
    sys.stdout.flush()
