"""The program uv: where it is, and which indexes it would use."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path

from graphcrate.host import arguments, process, settings
from graphcrate.host.disk.os_errors import MachineError


@functools.lru_cache
def uv_program() -> str:
    """Path of uv. Raises MachineError when this environment lacks it."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise MachineError(
            "uv is not installed in graphcrate's environment", next_step="make    (prepares .venv with all it needs)"
        ) from error


def emitted_indexes(environment: Mapping[str, str], *options: str) -> str:
    """uv's own words on the indexes it would use, with these further options."""
    begin = (uv_program(), "pip", "compile", "--quiet", "--no-header", "--emit-index-url")
    argv = arguments.line(*begin, *options, "--python", sys.executable, "-")
    # From the root folder: a uv.toml or pyproject.toml where the user happens to stand is not about this.
    return process.output(
        argv, environment=settings.select_for_child(environment), cwd=Path("/"), stdin=b"", timeout=60
    )
