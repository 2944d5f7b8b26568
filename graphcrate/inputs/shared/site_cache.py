"""Take from a shared cache what would be made here, and give to it what was, after a build that passed.

Never a reason to fail, and never longer than what it saves: a place that fails or is slow is left out for the rest of
the build, with one line. One fault is an error: a wheel that was compiled here again and is another one.
"""

import collections
import contextlib
import functools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from dssesign import keys
from graphcrate.host import settings, trace
from graphcrate.host.context import Context
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.parallel import StoppedError
from graphcrate.inputs import making
from graphcrate.inputs.making import Making
from graphcrate.inputs.shared import entry
from graphcrate.inputs.shared.entry import COMPILED, CacheEntry, SharedFile
from graphcrate.inputs.shared.places import CachePlace
from graphcrate.model.command import command
from graphcrate.model.errors import GraphcrateError, IntegrityError, NetworkError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.report import SharedPart
from graphcrate.model.words import printable

#: Seconds that a place may take; more where making took longer. The smallest of PyG's extensions compiles for longer.
SECONDS = 60.0
THREADS = 4  #: files at once
_SLOWEST = 1 << 20  #: bytes a second that writing is waited for
_REFUSED = "refused"  #: folder of the cache with what turned out wrong here
OTHER_HERE = "made here it was another file"
OTHER_FILES = "its files are not what was signed"
_FILES = b"files"  #: in the record of an entry with such files; that of another one is empty
_Result = TypeVar("_Result")


@dataclass
class Taken:
    """Entries whose files are made here all the same, to compare, by their keys."""

    compared: dict[str, tuple[CachePlace, CacheEntry]] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteCache:
    """The shared caches of one build, in the order in which they are asked. `parts`: what came from them so far."""

    places: Sequence[CachePlace]
    trusted: Sequence[keys.PublicKey]
    signer: keys.PrivateKey | None
    share: int  #: of so many entries one is compiled here and compared; 0: of none
    ctx: Context
    parts: list[SharedPart] = field(default_factory=list)
    pick: Callable[[int], int] = secrets.randbelow  #: the entries to check are not the same ones each time
    _failed: set[str] = field(default_factory=set)
    _read: dict[tuple[str, str], CacheEntry | None] = field(default_factory=dict)  #: by place and tag: those that count

    def entries(
        self, kind: str, key: str, title: str, objection: Callable[[CacheEntry], str]
    ) -> Iterator[tuple[CachePlace, CacheEntry]]:
        """Yield the entries of this key that count, and say why others do not.

        `objection`: says why the files are not those of `title`; empty where they are.
        """
        for place in self.places if self.trusted else ():
            asked = place.name, entry.tag(kind, key)
            if asked not in self._read:  # a plan asks before the build
                self._read[asked] = self._counting(place, kind, key, title, objection)
            if (known := self._read[asked]) is not None:
                yield place, known

    def _counting(
        self, place: CachePlace, kind: str, key: str, title: str, objection: Callable[[CacheEntry], str]
    ) -> CacheEntry | None:
        answer = self.asked(place, "cannot be read", [functools.partial(place.read, entry.tag(kind, key))])
        if not answer or not answer[0]:
            return None
        known = entry.opened(answer[0], kind, key, self.trusted)
        why = known if isinstance(known, str) else objection(known)
        if isinstance(known, CacheEntry) and not why:
            why = self.refusal(known)
        if why or isinstance(known, str):
            self.ctx.progress.note(f"{place.name}: {title} is not taken: {why}")
            return None
        return known

    def wheels(self, sources: Mapping[Path, LockedPackage]) -> dict[Path, tuple[CachePlace, CacheEntry]]:
        """Find the entries of wheels; of each the first one that counts. `sources`: as for `take`."""
        firsts = {
            shelf: next(self.entries(COMPILED, shelf.name, package.name, functools.partial(_objection, package)), None)
            for shelf, package in sources.items()
        }
        return {shelf: first for shelf, first in firsts.items() if first is not None}

    def bring(
        self, place: CachePlace, known: CacheEntry, targets: Mapping[str, Path], title: str, needed: int = 0
    ) -> bool:
        """Write files of an entry, by name; tell whether all are what was signed. It may take as long as making them.

        `needed`: bytes on the cache's disk, with what is made of them.
        """
        files = [file for file in known.files if file.name in targets]
        stop, size = threading.Event(), sum(file.size for file in files)
        with (
            trace.span(f"{title} from the shared cache {place.name}") as span,
            self.ctx.progress.task(f"{title} of {place.name}", size) as task,
        ):
            span.bytes = size

            def advance(count: int) -> None:
                if stop.is_set():
                    raise StoppedError
                task.advance(count)

            def fetch(file: SharedFile) -> str:
                self.ctx.cache.require(needed or size, title)
                place.fetch(file, targets[file.name], advance)
                return "" if file.is_at(targets[file.name]) else file.name

            questions = [functools.partial(fetch, file) for file in files]
            others = self.asked(place, "cannot be read", questions, max(SECONDS, known.seconds), stop)
        if others is None:
            return False
        if names := list(filter(None, others)):
            self.ctx.progress.note(f"{place.name}: {names[0]} is not taken: it has other bytes than were signed")
            return False
        part = SharedPart(title=title, place=place.name, bytes=size, maker=known.who, seconds=known.seconds)
        self.parts.append(part)
        return True

    def offer(self, kind: str, key: str, sources: Mapping[str, Path], title: str, of: Making) -> bool:
        """Put files under their names into the first place that takes them, where it lacks the entry; tell whether.

        `of`: who made them; `title`: what it is, for people.
        """
        place = next((place for place in self.places if place.is_writable), None)
        if self.signer is None or place is None:
            return False
        size = sum(path.stat().st_size for path in sources.values())
        new = CacheEntry(kind=kind, key=key, files=(), seconds=of.seconds, maker=of.maker, made=of.made, title=title)
        question = functools.partial(self._put, place, self.signer, new, sources)
        with trace.span(f"{title} to the shared cache {place.name}") as span:
            answer = self.asked(place, "cannot be written", [question], SECONDS + size / _SLOWEST)
            span.bytes = size if answer is not None and answer[0] else 0
        return answer is not None and answer[0]

    @property
    def writes_to(self) -> str:
        """The name of the place that gets what is made here; empty where none does, or none any more."""
        names = [place.name for place in self.places if place.is_writable and self.signer is not None][:1]
        return "".join(name for name in names if name not in self._failed)

    def take(self, sources: Mapping[Path, LockedPackage], *, again: bool = False) -> Taken:
        """Bring wheels into the cache. `sources`: the folder for a wheel, which its key names → the source.

        `again`: places that lacked them before are asked once more.
        """
        taken, names = Taken(), []
        for shelf, package in sources.items():
            for place in self.places if again else ():
                self._read.pop((place.name, entry.tag(COMPILED, shelf.name)), None)
            key, objection = shelf.name, functools.partial(_objection, package)
            for place, known in self.entries(COMPILED, key, package.name, objection):
                if self.is_picked():
                    taken.compared[key] = place, known
                    break
                if self.bring_wheel(place, known, shelf, package.name):
                    names.append(package.name)
                    break
        if names:
            self.ctx.progress.note(f"from a shared cache, signed by a key that you trust: {', '.join(sorted(names))}")
        return taken

    def is_picked(self) -> bool:
        """Return whether an entry is one of those to make here too."""
        return bool(self.share) and self.pick(self.share) == 0

    def bring_wheel(self, place: CachePlace, known: CacheEntry, shelf: Path, title: str) -> bool:
        """Bring an entry's wheel into its folder of the cache, with the record of who made it; tell whether."""
        with self.ctx.cache.folder() as folder:
            (wheel := folder / "wheel" / known.files[0].name).parent.mkdir()
            if not self.bring(place, known, {wheel.name: wheel}, title):
                return False
            making.keep(wheel.parent, known.making, self.ctx.cache)
            self.ctx.cache.adopt(wheel.parent, shelf)
        return True

    def compare(self, taken: Taken, wheels: Iterable[Path]) -> None:
        """Compare wheels that were compiled here with entries. Raises IntegrityError for another one."""
        made = {wheel.parent.name: wheel for wheel in wheels}
        for key, (place, known) in taken.compared.items():
            (file,) = known.files
            if key in made:
                self.compare_file(place, known, file, f"{made[key].name}, compiled here,", sha256_of(made[key]))

    def compare_file(self, place: CachePlace, known: CacheEntry, file: SharedFile, what: str, here: str) -> None:
        """Compare a file of an entry with what was made here (SHA-256). Raises IntegrityError for another one."""
        if here == file.sha256:
            return
        self.ctx.cache.write(self._refusal(known), b"")
        raise IntegrityError(
            f"{what} is another file than the one in {place.name}",
            cause=f"The same sources and compilers give the same bytes: {printable(known.maker)} wrote "
            f"{file.sha256} on {printable(known.made)}, and this machine, {making.this_machine()}, made {here}. "
            "One of the two is faulty, or was changed.",
            next_step=f"{command('cache', 'prune', cache=place.name, cache_trust='cosign.pub')}    (with --yes it "
            "goes); ask who has the key that signed it. The same command again takes it from here",
        )

    def give(self, wheels: Iterable[Path]) -> None:
        """Put wheels of the cache into the place that is written to, where it lacks them."""
        given = [
            wheel.name
            for wheel in wheels
            if self.offer(COMPILED, wheel.parent.name, {wheel.name: wheel}, wheel.name, making.read(wheel.parent))
        ]
        if given:
            self.ctx.progress.note(f"to the shared cache {self.writes_to}: {', '.join(given)}")

    def _put(self, place: CachePlace, signer: keys.PrivateKey, new: CacheEntry, sources: Mapping[str, Path]) -> bool:
        """Put an entry with these files into a place; False where one that counts is there."""
        data, own = place.read(new.tag), [*self.trusted, signer.public_key()]
        there = entry.opened(data, new.kind, new.key, own) if data is not None else ""
        if isinstance(there, CacheEntry) and self.refusal(there) != OTHER_FILES:
            return False
        files = tuple(SharedFile.of(path, name) for name, path in sources.items())
        new = msgspec.structs.replace(new, files=files)
        place.write(new, entry.sealed(new, signer), list(sources.values()))
        self.note_files(new, whole=True)
        return True

    def require_no_failure(self) -> None:
        """Raises NetworkError where a place failed, which was said."""
        if self._failed:
            raise NetworkError(
                f"not all was done: {', '.join(sorted(self._failed))} failed, as said above",
                next_step="the same command again goes on where it stopped",
            )

    def refusal(self, known: CacheEntry) -> str:
        """Return why an entry turned out wrong here; empty where it did not."""
        try:
            return OTHER_FILES if self._refusal(known).read_bytes() == _FILES else OTHER_HERE
        except FileNotFoundError:
            return ""

    def note_files(self, known: CacheEntry, *, whole: bool) -> None:
        """Keep whether all files of an entry are what was signed, for later commands."""
        if not whole:
            self.ctx.cache.write(self._refusal(known), _FILES)
        elif self.refusal(known) == OTHER_FILES:
            self._refusal(known).unlink(missing_ok=True)

    def _refusal(self, known: CacheEntry) -> Path:
        return self.ctx.cache.path(_REFUSED, f"{known.key}-{known.files[0].sha256}")

    def asked(
        self,
        place: CachePlace,
        what: str,
        questions: Sequence[Callable[[], _Result]],
        seconds: float = 0,
        stop: threading.Event | None = None,
    ) -> list[_Result] | None:
        """Return a place's answers, in any order; None where it fails or takes too long, and then it is asked no more.

        Several are asked for at once. `seconds`: how long it may take, at least SECONDS; `stop` is set when it failed.
        """
        if place.name in self._failed:
            return None
        seconds, left = max(SECONDS, seconds), collections.deque(questions)
        answers: list[_Result] = []
        faults: list[str] = []

        def ask() -> None:
            try:
                while left and not faults:
                    with contextlib.suppress(IndexError):  # another thread had the last
                        question = left.popleft()
                        answers.append(question())
            except GraphcrateError as error:
                faults.append(error.what)
            except OSError as error:
                faults.append(error.strerror or str(error))
            except StoppedError:
                pass

        # Nothing can end a server's silence or a dead file server from here: it is left behind when the time is over.
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(THREADS, len(questions)))]
        end = settings.now() + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - settings.now()))
        if len(answers) == len(questions):
            return answers
        if stop is not None:
            stop.set()
        why = faults[0] if faults else f"it took more than {seconds:.0f} s, and making it takes as much"
        self._failed.add(place.name)
        self.ctx.progress.warn(f"the shared cache {place.name} {what}: {why}; going on without it")
        return None


def _objection(package: LockedPackage, known: CacheEntry) -> str:
    """Return why an entry is not taken for a package; empty where it is."""
    name = known.files[0].name
    try:
        project, version, _, _ = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return f"{printable(name)} is not a wheel"
    if (project, str(version)) != (canonicalize_name(package.name), str(package.version)):
        return f"{name} is another package"
    return "" if len(known.files) == 1 else "it is more than a wheel"
