"""Leases in a folder that several machines share: which of them does what, found out by files alone.

A lease is a file `NAME.GENERATION.json`. The taker that creates the next generation has it: creating a name is
atomic. Its holder counts its beats in it. A lease whose file stayed as it is for EXPIRY seconds *of the
taker's own clock* may be taken: no two clocks are compared, so none need be right.

A lease saves work and guards nothing: what two do by mistake (a node that was cut off and lives) gives the same bytes,
each under a name that appears whole.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.host import settings
from graphcrate.host.disk.atomic import create, write_file
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, UsageError
from graphcrate.model.values import is_file_name

EXPIRY = 180.0  #: seconds without a beat after which a lease may be taken; a network file system is seconds late
BEAT = 20.0
_FILE = re.compile(r"(?P<name>.+)\.(?P<generation>[1-9]\d{0,8})\.json")


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a lease's file. `free`: given back; `done`: it need not be done again."""

    owner: str
    beat: int = 0
    state: Literal["held", "free", "done"] = "held"


def may_take(lease: Lease | None, unchanged: float) -> bool:
    """Return whether a lease may be taken. `unchanged`: for so many seconds of the taker; None: there is no such file.

    A file that cannot be read is one of which nothing is known but when it changed.
    """
    if lease is not None and lease.state != "held":
        return lease.state == "free"
    return unchanged >= EXPIRY


@dataclass
class Leases:
    """The leases of one taker, `owner`, in a folder."""

    folder: Path
    owner: str
    clock: Callable[[], float] = field(default_factory=lambda: settings.now)
    _seen: dict[str, tuple[bytes, float]] = field(default_factory=dict)  #: file → its bytes, since when they are these
    _held: dict[str, Lease] = field(default_factory=dict)  #: by the file's name

    def take(self, name: str) -> bool:
        """Take a lease; False where another has it, or it is done. Raises UsageError for what is no file's name."""
        lease, file = Lease(owner=self.owner), self._next(name)
        if not file or not create(self.folder / file, msgspec.json.encode(lease), 0o644):
            return False
        self._held[file] = lease
        return True

    def is_open(self, name: str) -> bool:
        """Return whether a lease could be taken, or need not be: it is done."""
        return self.is_done(name) or bool(self._next(name))

    def _next(self, name: str) -> str:
        """The file that takes a lease; empty where it may not be taken."""
        if not is_file_name(name):
            raise UsageError(f"{name!r} cannot be a file's name", next_step="rename the recipe or the candidate")
        generation, data = self._latest(name)
        if generation and not may_take(_read(data), self._unchanged(f"{name}.{generation}.json", data)):
            return ""
        return f"{name}.{generation + 1}.json"

    def is_done(self, name: str) -> bool:
        """Return whether it need not be done again: one of the takers did it."""
        lease = _read(self._latest(name)[1])
        return lease is not None and lease.state == "done"

    def renew(self) -> None:
        """Count a beat in each lease that is held; those that another has taken by now are held no more."""
        for file, lease in list(self._held.items()):
            if self._is_latest(file):
                self._write(file, msgspec.structs.replace(lease, beat=lease.beat + 1))
            else:
                self._held.pop(file, None)

    def leave(self, state: Literal["free", "done"] = "free") -> None:
        """Give back all that is held."""
        for file, lease in list(self._held.items()):
            if self._is_latest(file):
                self._write(file, msgspec.structs.replace(lease, state=state))
            self._held.pop(file, None)

    def free(self, is_over: Callable[[Lease], bool]) -> None:
        """Free the leases of others of which one knows that they are over: their machine is gone."""
        for name in {match["name"] for path in self._files() if (match := _FILE.fullmatch(path.name))}:
            generation, data = self._latest(name)
            lease = _read(data)
            if lease is not None and is_over(lease):
                self._write(f"{name}.{generation}.json", msgspec.structs.replace(lease, state="free"))

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Renew what is held while something goes on."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT):
                with contextlib.suppress(Exception):  # a full disk: the lease expires, and another takes it
                    self.renew()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _files(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.is_dir() else []

    def _latest(self, name: str) -> tuple[int, bytes]:
        """The latest generation of a lease, 0 for none, and its bytes."""
        matches = [_FILE.fullmatch(path.name) for path in self._files()]
        latest = max((int(match["generation"]) for match in matches if match and match["name"] == name), default=0)
        try:
            return latest, (self.folder / f"{name}.{latest}.json").read_bytes() if latest else b""
        except OSError:
            return latest, b""

    def _is_latest(self, file: str) -> bool:
        match = _FILE.fullmatch(file)
        return match is not None and self._latest(match["name"])[0] == int(match["generation"])

    def _unchanged(self, file: str, data: bytes) -> float:
        now = self.clock()
        if file not in self._seen or self._seen[file][0] != data:
            self._seen[file] = data, now
        return now - self._seen[file][1]

    def _write(self, file: str, lease: Lease) -> None:
        write_file(self.folder / file, msgspec.json.encode(lease))
        if file in self._held:
            self._held[file] = lease


def _read(data: bytes) -> Lease | None:
    try:
        return codec.decode(data, Lease)
    except UNREADABLE:
        return None
