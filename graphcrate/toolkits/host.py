"""The CUDA toolkit that this machine has installed: in CUDA_HOME, or where its nvcc lies."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphcrate.errors import HostError
from graphcrate.host import process, settings
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.lock import HostToolkit

VARIABLES = ("CUDA_HOME", "CUDA_PATH")
USUAL = Path("/usr/local/cuda")
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)\b")
_INSTEAD = "take another toolkit: make image … TOOLKIT=debian, or TOOLKIT=image"
_ASK_SECONDS = 60.0


class Installed(msgspec.Struct, frozen=True):
    """A toolkit on this machine. `version` is nvcc's, "11.8.89"."""

    folder: Path
    version: str


def find(environment: Mapping[str, str]) -> Installed:
    """This machine's toolkit. Raises HostError where there is none, or one that no image can be shown as it is."""
    folder = _folder(environment)
    # As in the image: a folder of its own that can be bound, not links into the host's /usr.
    for name in ("bin/nvcc", "include/cuda_runtime.h"):
        place = (folder / name).resolve()
        if not place.is_file() or not place.is_relative_to(folder):
            raise HostError(
                f"{folder} is no CUDA toolkit of its own: it has no {name}",
                cause="It is a part of one, or a distribution's, which is spread over the whole system.",
                next_step=f"CUDA_HOME=/usr/local/cuda make image …, or {_INSTEAD}",
            )
    return Installed(folder, _version(folder, environment))


def prepare(
    toolkit: HostToolkit,
    files: Mapping[str, Path],
    rootfs: Path,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
) -> Path:
    """As `Provider` has it: the folder itself, no copy. A lock of "11.8" takes any 11.8."""
    found = find(environment)
    if not f"{found.version}.".startswith(f"{toolkit.version}."):
        raise HostError(
            f"this machine has CUDA {found.version} in {found.folder}, and the lock wants CUDA {toolkit.version}",
            cause="The toolkit was replaced since, or the image was locked on another machine.",
            next_step=f"CUDA_HOME=/usr/local/cuda-{toolkit.version} make image …, or lock anew: ./build.py lock …",
        )
    progress.note(f"toolkit: this machine's CUDA {found.version} in {found.folder}")
    return found.folder


def _folder(environment: Mapping[str, str]) -> Path:
    for variable in VARIABLES:
        if chosen := environment.get(variable):
            if not Path(chosen).is_dir():
                raise HostError(
                    f"{variable} is {chosen}, and there is no such folder",
                    next_step=f"{variable}=/usr/local/cuda make image …, or {_INSTEAD}",
                )
            return Path(chosen).resolve()
    if nvcc := process.find("nvcc"):
        return Path(nvcc).resolve().parent.parent
    if (USUAL / "bin" / "nvcc").is_file():
        return USUAL.resolve()
    raise HostError(
        "this machine has no CUDA toolkit",
        cause=f"{' and '.join(VARIABLES)} are not set, no nvcc is in PATH, and {USUAL} is not there.",
        next_step=f"load or install one (module load cuda), or {_INSTEAD}",
    )


def _version(folder: Path, environment: Mapping[str, str]) -> str:
    """What nvcc says, or else the toolkit's own note."""
    nvcc = folder / "bin" / "nvcc"
    if os.access(nvcc, os.X_OK):
        variables = settings.select_for_child(environment)
        done = process.run([str(nvcc), "--version"], environment=variables, timeout=_ASK_SECONDS)
        if done.returncode == 0 and (match := _RELEASE.search("\n".join(done.lines))):
            return match[1]
    note = folder / "version.json"
    try:
        return str(json.loads(note.read_text())["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        raise HostError(
            f"{nvcc} does not say which version it is",
            cause="It does not run on this machine, or it is another program of this name.",
            next_step=f"{nvcc} --version, or {_INSTEAD}",
        ) from None
