"""The hash of a file that is there."""

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """The same as OCI writes it: `sha256:<hex>`."""
    return f"sha256:{sha256_of(path)}"
