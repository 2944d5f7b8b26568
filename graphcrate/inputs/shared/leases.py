"""Leases in a place that several machines see: which of them does what, found out by what is there alone.

A lease has generations. The taker that creates the next one has it: in a folder that is a file `NAME.GENERATION.json`,
whose creation is atomic. Its holder counts its beats in it. A lease whose text stayed as it is for so many seconds *of
the taker's own clock* may be taken: no two clocks are compared, so none need be right.

A lease saves work and guards nothing: what two do by mistake (a node that was cut off and lives) gives the same bytes,
each under a name that appears whole.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from graphcrate.host import settings
from graphcrate.host.disk.atomic import create, write_file
from graphcrate.host.sandbox import beneath
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, UsageError
from graphcrate.model.values import is_file_name

EXPIRY = 180.0  #: seconds without a beat after which a lease may be taken; a network file system is seconds late
BEAT = 20.0
MOST_BYTES = 4096  #: of a lease's text
_FILE = re.compile(r"(?P<name>.+)\.(?P<generation>[1-9]\d{0,8})\.json")


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a lease's file. `free`: given back; `done`: it need not be done again."""

    owner: str
    beat: int = 0
    state: Literal["held", "free", "done"] = "held"


class _Held(NamedTuple):
    generation: int
    lease: Lease
    since: float


def may_take(lease: Lease | None, unchanged: float, expiry: float = EXPIRY) -> bool:
    """Return whether a lease may be taken. `unchanged`: for so many seconds of the taker; None: there is no such file.

    A file that cannot be read is one of which nothing is known but when it changed.
    """
    if lease is not None and lease.state != "held":
        return lease.state == "free"
    return unchanged >= expiry


class LeaseStore(Protocol):
    """The texts of leases by name and generation. Each method may raise what its place raises."""

    @property
    def delay(self) -> float:
        """Seconds from a creation until it shows who has the lease; 0: creating is atomic."""

    def latest(self, name: str) -> tuple[int, bytes]:
        """Return the latest generation of a lease, 0 for none, and its text; no text where it cannot be read."""

    def create(self, name: str, generation: int, text: bytes) -> bool:
        """Write the next generation; False where another has."""

    def write(self, name: str, generation: int, text: bytes) -> None:
        """Replace the text of the latest generation."""


@dataclass(frozen=True)
class LeaseFolder:
    """Leases as files of a folder. `prepare`: makes the folder, else the first lease does."""

    folder: Path
    prepare: Callable[[], object] = lambda: None
    delay: float = 0.0

    def names(self) -> set[str]:
        """Return the names of all leases."""
        return {match["name"] for match in self._matches()}

    def latest(self, name: str) -> tuple[int, bytes]:
        """Find it among the folder's files."""
        latest = max((int(match["generation"]) for match in self._matches() if match["name"] == name), default=0)
        try:
            with beneath.opened(self.folder, f"{name}.{latest}.json") as stream:
                return latest, stream.read(MOST_BYTES)
        except OSError:
            return latest, b""

    def create(self, name: str, generation: int, text: bytes) -> bool:
        """Create its file, which one taker alone can."""
        self.prepare()
        return create(self._path(name, generation), text, 0o644)

    def write(self, name: str, generation: int, text: bytes) -> None:
        """Replace the file."""
        write_file(self._path(name, generation), text, 0o644)

    def _path(self, name: str, generation: int) -> Path:
        return self.folder / f"{name}.{generation}.json"

    def _matches(self) -> list[re.Match[str]]:
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return [match for path in paths if (match := _FILE.fullmatch(path.name))]


@dataclass
class Leases:
    """The leases of one taker, `owner`."""

    store: LeaseStore
    owner: str
    clock: Callable[[], float] = field(default_factory=lambda: settings.now)
    expiry: float = EXPIRY
    beat: float = BEAT
    _seen: dict[tuple[str, int], tuple[bytes, float]] = field(default_factory=dict)  #: its text, since when it is this
    _held: dict[str, _Held] = field(default_factory=dict)

    def take(self, name: str) -> bool:
        """Take a lease; False where another has it, or it is done. Raises UsageError for what is no file's name."""
        lease, generation = Lease(owner=self.owner), self._next(name)
        if not generation or not self.store.create(name, generation, msgspec.json.encode(lease)):
            return False
        self._held[name] = _Held(generation, lease, self.clock())
        return True

    def has(self, name: str) -> bool:
        """Return whether a lease that was taken is ours, after the time in which that shows."""
        held = self._held.get(name)
        if held is None:
            return False
        if self.store.delay:
            settings.wait(max(0.0, held.since + self.store.delay - self.clock()))
        if self._is_ours(name, held):
            return True
        self._held.pop(name, None)
        return False

    def is_open(self, name: str) -> bool:
        """Return whether a lease could be taken, or need not be: it is done."""
        return self.is_done(name) or bool(self._next(name))

    def holder(self, name: str) -> str:
        """Return the name of a lease's holder, as its text has it; empty without one."""
        lease = _read(self.store.latest(name)[1])
        return lease.owner if lease is not None and lease.state == "held" else ""

    def is_done(self, name: str) -> bool:
        """Return whether it need not be done again: one of the takers did it."""
        lease = _read(self.store.latest(name)[1])
        return lease is not None and lease.state == "done"

    def renew(self) -> None:
        """Count a beat in each lease that is held; those that another has taken by now are held no more."""
        for name, held in list(self._held.items()):
            if self._is_ours(name, held):
                self._write(name, held, msgspec.structs.replace(held.lease, beat=held.lease.beat + 1))
            else:
                self._held.pop(name, None)

    def leave(self, state: Literal["free", "done"] = "free", names: Collection[str] | None = None) -> None:
        """Give back what is held; with `names`, these alone."""
        for name, held in list(self._held.items()):
            if names is not None and name not in names:
                continue
            if self._is_ours(name, held):
                self._write(name, held, msgspec.structs.replace(held.lease, state=state))
            self._held.pop(name, None)

    def free(self, names: Iterable[str], is_over: Callable[[Lease], bool]) -> None:
        """Free the leases of others of which one knows that they are over: their machine is gone."""
        for name in names:
            generation, text = self.store.latest(name)
            lease = _read(text)
            if lease is not None and is_over(lease):
                self.store.write(name, generation, msgspec.json.encode(msgspec.structs.replace(lease, state="free")))

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Renew what is held while something goes on."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(self.beat):
                with contextlib.suppress(Exception):  # a full disk: the lease expires, and another takes it
                    self.renew()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _next(self, name: str) -> int:
        """Return the generation that takes a lease; 0 where it may not be taken."""
        if not is_file_name(name):
            raise UsageError(f"{name!r} cannot be a file's name", next_step="rename the recipe or the candidate")
        generation, text = self.store.latest(name)
        if generation and not may_take(_read(text), self._unchanged(name, generation, text), self.expiry):
            return 0
        return generation + 1

    def _is_ours(self, name: str, held: _Held) -> bool:
        generation, text = self.store.latest(name)
        lease = _read(text)
        return generation == held.generation and (lease is None or lease.owner == self.owner)

    def _unchanged(self, name: str, generation: int, text: bytes) -> float:
        now, key = self.clock(), (name, generation)
        if key not in self._seen or self._seen[key][0] != text:
            self._seen[key] = text, now
        return now - self._seen[key][1]

    def _write(self, name: str, held: _Held, lease: Lease) -> None:
        self.store.write(name, held.generation, msgspec.json.encode(lease))
        self._held[name] = held._replace(lease=lease)


def _read(data: bytes) -> Lease | None:
    try:
        return codec.decode(data, Lease)
    except UNREADABLE:
        return None
