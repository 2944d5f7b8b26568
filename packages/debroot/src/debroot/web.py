"""Files from mirrors by the standard library: small, for the command line; a program hands in its own client."""

import hashlib
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from debroot.errors import DebrootError
from debroot.words import redacted

_TIMEOUT = 30.0  #: seconds without an answer
_CHUNK = 1 << 20


class FetchError(DebrootError):
    """No server gave a file."""


def read(url: str, most: int) -> bytes:
    """The content at an address. Raises FetchError, also for more than `most` bytes."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read(most + 1)
    except (OSError, ValueError) as error:
        raise FetchError(f"{redacted(url)}: {getattr(error, 'reason', None) or error}") from error
    if len(content) > most:
        raise FetchError(f"{redacted(url)} has more than {most} bytes")
    return content


def download(urls: Iterable[str], target: Path, size: int, sha256: str) -> None:
    """Write a file from the first of these addresses that has it, by its hash. Raises FetchError.

    `target` is there only when it is whole.
    """
    partial, failures = target.with_name(f".{target.name}.part"), list[str]()
    for url in urls:
        try:
            if _is_written(url, partial, size, sha256):
                partial.replace(target)
                return
            failures.append(f"{redacted(url)}: another file")
        except (OSError, ValueError) as error:
            failures.append(f"{redacted(url)}: {getattr(error, 'reason', None) or error}")
        finally:
            partial.unlink(missing_ok=True)
    reasons = "; ".join(failures) or "no address is known"
    raise FetchError(f"no server gives {target.name}: {reasons}", next_step="name another mirror")


def is_whole(path: Path, size: int, sha256: str) -> bool:
    """Return whether a file has these bytes."""
    if path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _is_written(url: str, target: Path, size: int, sha256: str) -> bool:
    digest, left = hashlib.sha256(), size
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, target.open("wb") as file:
        while left >= 0 and (piece := answer.read(_CHUNK)):
            left -= len(piece)
            digest.update(piece)
            file.write(piece)
    return left == 0 and digest.hexdigest() == sha256
