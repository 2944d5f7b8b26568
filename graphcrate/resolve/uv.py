"""Running uv: it resolves for the image's Python and platform, reads metadata only, and builds nothing."""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.host import process, settings
from graphcrate.model.errors import HostError, NetworkError, ResolutionError

if TYPE_CHECKING:
    from graphcrate.host.cache import Cache
    from graphcrate.resolve.target import Target

#: of the user's `UV_*` variables those about the network; the others would change what is resolved
KEPT = (
    "UV_HTTP_TIMEOUT",
    "UV_HTTP_RETRIES",
    "UV_REQUEST_TIMEOUT",
    "UV_SYSTEM_CERTS",
    "UV_NATIVE_TLS",
    "UV_INSECURE_HOST",
    "UV_KEYRING_PROVIDER",
    "UV_OFFLINE",
    "UV_CONCURRENT_DOWNLOADS",
)
#: of uv's messages: no page or file came
NETWORK_WORDS = (
    "dns error",
    "error sending request",
    "Failed to fetch",
    "Request failed",
    "timed out",
    "tls handshake",
)


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


def compile_requirements(
    requirements: Sequence[str],
    *,
    target: "Target",
    default_index: str,
    extra_indexes: Sequence[str],
    merged: bool,
    overrides: Sequence[str],
    constraints: Sequence[str],
    cache: "Cache",
    environment: Mapping[str, str],
) -> str:
    """Resolve to the text of a pylock.toml (PEP 751) with wheels only.

    Raises ResolutionError with uv's explanation, NetworkError when an index does not answer.
    """
    with cache.folder() as folder:
        argv = [program(), "pip", "compile", "--no-config", "--quiet", "--no-header", "--format", "pylock.toml"]
        argv += ["--python", sys.executable, "--no-python-downloads"]
        argv += ["--python-version", target.python, "--python-platform", target.uv_platform]
        argv += ["--only-binary", ":all:"]
        argv += ["--index-strategy", "unsafe-best-match" if merged else "first-index"]
        argv += ["--cache-dir", str(cache.path("uv"))]
        for option, lines in (("--overrides", overrides), ("--constraints", constraints)):
            if lines:
                argv += [option, _write(folder / f"{option[2:]}.txt", lines)]
        output = folder / "pylock.toml"
        argv += ["--output-file", str(output), _write(folder / "requirements.in", requirements)]
        # In variables, not in argv: addresses may hold a password, and everybody sees argv.
        variables = {
            name: value
            for name, value in settings.select_for_child(environment).items()
            if not name.startswith("UV_") or name in KEPT
        } | {"UV_DEFAULT_INDEX": default_index, "UV_INDEX": " ".join(extra_indexes)}
        done = process.run(argv, environment=variables, cwd=folder, timeout=900)
        if done.returncode:
            raise _failure(done.lines)
        return output.read_text(encoding="utf-8")


def _write(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def _failure(lines: Sequence[str]) -> ResolutionError | NetworkError:
    text = "\n".join(line for line in lines if line.strip())
    if any(word in text for word in NETWORK_WORDS):
        return NetworkError(
            f"uv cannot read the package index\n{text}",
            cause="No network, a proxy in the way, or an index that is down.",
            next_step="check the network and the index that pip and uv are set to, then run the same command again",
        )
    return ResolutionError(
        f"the requirements cannot be resolved\n{text}",
        cause="They contradict each other, or a version does not exist as a wheel for this Python.",
        next_step="change the recipe's requirements",
    )
