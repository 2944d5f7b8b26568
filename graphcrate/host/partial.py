"""A file that is still arriving: kept on disk between runs, hashed as it grows."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

CHUNK = 1 << 20


class Part:
    """An open partial file. What an earlier run left is hashed and counted when it is opened."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        """`advance` gets the bytes that are there already, then those written; negative when they are thrown away."""
        self._path, self._advance = path, advance
        self._hash = hashlib.sha256()
        self._file: IO[bytes]
        self.position = 0

    def __enter__(self) -> "Part":
        self._file = self._path.open("r+b" if self._path.exists() else "w+b")
        try:
            while chunk := self._file.read(CHUNK):
                self._hash.update(chunk)
                self.position += len(chunk)
            self._advance(self.position)
        except BaseException:  # whoever waits for the bytes may refuse them: see `advance` in resolve.fetch
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def sha256(self) -> str:
        """Lower-case hex over all bytes so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.position += len(chunk)
        self._advance(len(chunk))

    def restart(self) -> None:
        """Throw away what is there."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self._advance(-self.position)
        self.position = 0

    def sync(self) -> None:
        """Bring all bytes to the disk, so that a rename afterwards names a whole file."""
        self._file.flush()
        os.fsync(self._file.fileno())
