"""Take from a shared cache what would be compiled, and give to it what was, after a build that passed.

Never a reason to fail, and never longer than what it saves: a place that fails or is slow is left out for the rest of
the build, with one line. One fault is an error: a wheel that was compiled here again and is another one.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from graphcrate import __version__
from graphcrate.attest import keys
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.sandbox.attach import ask_password
from graphcrate.inputs.shared import entry, places
from graphcrate.inputs.shared.entry import COMPILED, CacheEntry
from graphcrate.inputs.shared.places import CachePlace
from graphcrate.model.command import setting
from graphcrate.model.errors import GraphcrateError, IntegrityError, UsageError
from graphcrate.model.lock import LockedPackage

#: Seconds that reading a wheel may take. The smallest of PyG's extensions compiles for longer on two cores.
SECONDS = 60.0
#: the variables that stand for the options, for commands that have none
PLACES, TRUST, KEY, SHARE = (
    "GRAPHCRATE_REMOTE_CACHE",
    "GRAPHCRATE_CACHE_TRUST",
    "GRAPHCRATE_CACHE_KEY",
    "GRAPHCRATE_CACHE_CHECK",
)
_REFUSED = "refused"  #: folder of the cache with what turned out wrong here
_Result = TypeVar("_Result")


@dataclass
class Taken:
    """Wheels that came from a shared cache, and entries whose wheels are compiled here all the same, to compare."""

    names: list[str] = field(default_factory=list)
    compared: dict[str, tuple[CacheEntry, CachePlace]] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteCache:
    """The shared caches of one build, in the order in which they are asked."""

    places: Sequence[CachePlace]
    trusted: Sequence[keys.PublicKey]
    signer: keys.PrivateKey | None
    share: int  #: of so many entries one is compiled here and compared; 0: of none
    ctx: Context
    _failed: set[str] = field(default_factory=set)

    def take(self, sources: Mapping[Path, LockedPackage]) -> Taken:
        """Bring wheels into the cache. `sources`: the folder for a wheel, which its key names → the source."""
        taken = Taken()
        if self.trusted:
            for shelf, package in sources.items():
                self._take(shelf, package, taken)
        if taken.names:
            self.ctx.progress.note(
                f"from a shared cache, signed by a key that you trust: {', '.join(sorted(taken.names))}"
            )
        return taken

    def compare(self, taken: Taken, wheels: Iterable[Path]) -> None:
        """Compare wheels that were compiled here with entries. Raises IntegrityError for another one."""
        made = {wheel.parent.name: wheel for wheel in wheels}
        for key, (known, place) in taken.compared.items():
            if key not in made or (here := sha256_of(made[key])) == known.sha256:
                continue
            self.ctx.cache.write(self.ctx.cache.path(_REFUSED, f"{key}-{known.sha256}"), b"")
            raise IntegrityError(
                f"{made[key].name}, compiled here, is another file than the one in {place.name}",
                cause=f"The same sources and compilers give the same bytes: {known.maker} wrote {known.sha256} on "
                f"{known.made}, and this machine made {here}. One of the two is faulty, or was changed.",
                next_step="the same command again builds with the wheel from here; remove the entry "
                f"{known.tag} from {place.name}, and ask who has the key that signed it",
            )

    def give(self, wheels: Iterable[Path]) -> None:
        """Put wheels of the cache into the first place that takes them, where it lacks them."""
        place = next((place for place in self.places if place.is_writable), None)
        if self.signer is None or place is None or place.name in self._failed:
            return
        given = []
        for wheel in wheels:
            answer = self._asked(place, "cannot be written", functools.partial(self._put, place, self.signer, wheel))
            if answer is None:
                break
            given += [wheel.name] if answer else []
        if given:
            self.ctx.progress.note(f"to the shared cache {place.name}: {', '.join(given)}")

    def _put(self, place: CachePlace, signer: keys.PrivateKey, wheel: Path) -> bool:
        """Put a wheel into a place; False where an entry that counts is there."""
        made = CacheEntry(
            kind=COMPILED,
            key=wheel.parent.name,
            name=wheel.name,
            size=wheel.stat().st_size,
            sha256=sha256_of(wheel),
            maker=f"graphcrate {__version__} on {os.uname().nodename}",
            made=settings.now_utc(),
        )
        there, own = place.read(made.tag), [*self.trusted, signer.public_key()]
        if there is not None and isinstance(entry.opened(there, made.kind, made.key, own), CacheEntry):
            return False
        place.write(made, entry.sealed(made, signer), wheel)
        return True

    def _take(self, shelf: Path, package: LockedPackage, taken: Taken) -> None:
        key = shelf.name
        for place in self.places:
            data = self._asked(place, "cannot be read", functools.partial(_read, place, entry.tag(COMPILED, key)))
            if not data:
                continue
            known = entry.opened(data, COMPILED, key, self.trusted)
            why = known if isinstance(known, str) else self._objection(known, key, package)
            if why or isinstance(known, str):
                self.ctx.progress.note(f"{place.name}: {package.name} is not taken: {why}")
                continue
            if self.share and int(key[:8], 16) % self.share == 0:
                taken.compared[key] = (known, place)
                return
            if self._fetched(place, known, shelf):
                taken.names.append(package.name)
                return

    def _objection(self, known: CacheEntry, key: str, package: LockedPackage) -> str:
        """Return why an entry is not taken for a package; empty where it is."""
        try:
            name, version, _, _ = parse_wheel_filename(known.name)
        except InvalidWheelFilename:
            return f"{known.name} is not a wheel"
        if (name, str(version)) != (canonicalize_name(package.name), str(package.version)):
            return f"{known.name} is another package"
        if self.ctx.cache.path(_REFUSED, f"{key}-{known.sha256}").exists():
            return "compiled here it was another file"
        return ""

    def _fetched(self, place: CachePlace, known: CacheEntry, shelf: Path) -> bool:
        with (
            self.ctx.cache.folder() as folder,
            self.ctx.progress.task(f"{known.name} of {place.name}", known.size) as task,
        ):
            (wheel := folder / "wheel" / known.name).parent.mkdir()

            def fetch() -> bool:
                place.fetch(known, wheel, task.advance)
                return wheel.stat().st_size == known.size and sha256_of(wheel) == known.sha256

            answer = self._asked(place, "cannot be read", fetch)
            if answer:
                self.ctx.cache.adopt(wheel.parent, shelf)
            elif answer is not None:
                self.ctx.progress.note(f"{place.name}: {known.name} is not taken: it has other bytes than were signed")
            return bool(answer)

    def _asked(self, place: CachePlace, what: str, question: Callable[[], _Result]) -> _Result | None:
        """Return a place's answer; None where it fails or takes longer than compiling, and then it is asked no more."""
        if place.name in self._failed:
            return None
        answers: list[_Result] = []
        faults: list[str] = []

        def ask() -> None:
            try:
                answers.append(question())
            except GraphcrateError as error:
                faults.append(error.what)
            except OSError as error:
                faults.append(error.strerror or str(error))

        # Nothing can end a server's silence or a dead file server from here: it is left behind when the time is over.
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(SECONDS)
        if answers:
            return answers[0]
        why = faults[0] if faults else f"it took more than {SECONDS:.0f} s, and compiling takes as much"
        self._failed.add(place.name)
        self.ctx.progress.warn(f"the shared cache {place.name} {what}: {why}; going on without it")
        return None


def _read(place: CachePlace, tag: str) -> bytes:
    """Return an entry's envelope; empty where there is none."""
    return place.read(tag) or b""


def of(options: SourceOptions, ctx: Context) -> SiteCache | None:
    """Return the shared cache of a build; None where none is named.

    Raises UsageError for a place, a key or a number that is none, and for a cache that nothing could come of.
    """
    environment = ctx.environment
    named = options.cache or tuple(environment.get(PLACES, "").split())
    if not named:
        return None
    trust = options.cache_trust or tuple(map(Path, environment.get(TRUST, "").split()))
    key = options.cache_key or (Path(environment[KEY]) if environment.get(KEY) else None)
    known = [places.parse(text, ctx) for text in named]
    if not trust and key is None:
        raise UsageError(
            f"the shared cache {known[0].name} has no key to check it by",
            cause="Whoever may write to it could put any program into the image: an entry counts by its signature.",
            next_step=f"{setting(cache_trust='cosign.pub').both()}    (the public key of who fills it)",
        )
    if key is not None and not any(place.is_writable for place in known):
        raise UsageError(
            f"{known[0].name} is a web server, which is read alone",
            next_step="name a registry or a folder first, or leave the key out",
        )
    return SiteCache(
        known,
        [keys.read_public(path) for path in trust],
        keys.read_private(key, environment, ask_password) if key else None,
        _share(options.cache_check or environment.get(SHARE, "")),
        ctx,
    )


def _share(text: str) -> int:
    if text and (not text.isdecimal() or int(text) < 1):
        raise UsageError(
            f"{text!r} is not one in how many entries to check", next_step=setting(cache_check="20").both()
        )
    return int(text or 0)
