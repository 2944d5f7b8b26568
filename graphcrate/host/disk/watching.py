"""Watch files of a user's for changes, by looks at their times and sizes: any file system answers these, NFS too."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphcrate.host import settings
from graphcrate.host.disk import trees
from graphcrate.model.errors import UsageError

LOOK_SECONDS = 0.2
#: in folders: what programs write themselves as they run
_NOT_LOOKED_AT = ("__pycache__", "node_modules")
_MOST_FILES = 5000

_State = dict[str, tuple[int, int, int]]


class Watch:
    """Files, and folders with all below them but hidden ones. Raises UsageError for what is not there or too much."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Take the present state as known."""
        self.paths = tuple(paths)
        if missing := next((path for path in self.paths if not path.exists()), None):
            raise UsageError(f"there is no {missing} to watch", next_step="--watch FILE, or a folder")
        self._known = self._look()
        if len(self._known) > _MOST_FILES:
            raise UsageError(
                f"more than {_MOST_FILES} files are to be watched", next_step="--watch src    a part of it"
            )

    def changed(self) -> bool:
        """Return whether anything differs from what is known."""
        return self._look() != self._known

    def wait(self) -> str:
        """Wait for a change and until it is written to its end; it is known then. Return a file's name."""
        while (now := self._look()) == self._known or any(not path.exists() for path in self.paths):
            settings.wait(LOOK_SECONDS)
        while True:
            settings.wait(LOOK_SECONDS)
            if now == (now := self._look()):
                break
        first = min(name for name in now.keys() | self._known if now.get(name) != self._known.get(name))
        self._known = now
        return first

    def _look(self) -> _State:
        return {name: state for path in self.paths for name, state in _states(path)}


def _states(path: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for number, name in enumerate(_files(path) if path.is_dir() else (path,)):
        if number > _MOST_FILES:
            return
        with contextlib.suppress(OSError):  # an editor puts a new file in its place
            status = name.stat()
            yield str(name), (status.st_mtime_ns, status.st_size, status.st_ino)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in trees.walk(folder, None):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_LOOKED_AT]
        yield from (Path(parent, name) for name in files if not name.startswith("."))
