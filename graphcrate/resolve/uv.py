"""uv, the program that resolves: where it is, and which indexes it would use."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path

from graphcrate.host import process, settings
from graphcrate.model.errors import HostError


@functools.lru_cache
def program() -> str:
    """Path of uv. Raises HostError when this environment lacks it."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise HostError(
            "uv is not installed in graphcrate's environment", next_step="make    (prepares .venv with all it needs)"
        ) from error


def emitted_indexes(environment: Mapping[str, str]) -> str:
    """uv's own words on the indexes it would use."""
    argv = [program(), "pip", "compile", "--quiet", "--no-header", "--emit-index-url", "--python", sys.executable, "-"]
    # From the root folder: a uv.toml or pyproject.toml where the user happens to stand is not about this.
    return process.output(
        argv, environment=settings.select_for_child(environment), cwd=Path("/"), stdin=b"", timeout=60
    )
