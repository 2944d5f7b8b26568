"""Faults of a shared cache, each a row: what was compiled comes whole or is compiled here, and no build ends by it."""

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphcrate.inputs.shared import entry, places, site_cache, stock
from graphcrate.model.errors import IntegrityError
from tests.made import refused
from tests.unit import tars
from tests.unit.inputs.test_shared_cache import (
    CONTENT,
    KEY,
    OTHER,
    PACKAGE,
    SITE,
    STRANGER,
    WHEEL,
    alter,
    entry_of,
    filled,  # noqa: F401 (a fixture)
    keys,  # noqa: F401 (a fixture)
    user,  # noqa: F401 (a fixture)
)


@dataclass
class World:
    """A folder and a registry that a first user has filled, and what a row may change."""

    folder: Path
    registry: object
    patch: pytest.MonkeyPatch
    user: Callable

    @property
    def address(self):
        return f"{self.registry.host}/team/cache"

    @property
    def entry(self):
        return self.folder / f"entries/compiled-{KEY}.json"

    @property
    def blob(self):
        return self.folder / "blobs/sha256" / tars.sha256(CONTENT)[7:]

    def seal(self, signer=SITE, **changes):
        """Sign the folder's entry again, with other fields."""
        self.entry.write_bytes(entry.sealed(entry_of(**changes), signer))

    def change(self, change):
        """Change the entry's bytes, and leave the signature."""
        self.entry.write_bytes(change(self.entry.read_bytes()))

    def slow(self, seconds):
        """Make the folder send a piece and wait."""
        fetch = places.CacheFolder.fetch

        def trickle(place, known, target, advance):
            advance(1)
            time.sleep(seconds)
            fetch(place, known, target, advance)

        self.patch.setattr(places.CacheFolder, "fetch", trickle)
        self.patch.setattr(site_cache, "SECONDS", 0.3)


@pytest.fixture
def world(filled, registry, user, monkeypatch):  # noqa: F811
    monkeypatch.setattr(places, "_LONGEST_PAUSE", 0.0)
    made = World(filled, registry, monkeypatch, user)
    first = user("pusher", made.address, signs=True)
    first.cache.give(first.make())
    registry.asked.clear()
    return made


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def of_registry(part, fault, number):
    return lambda world: world.registry.faults.update({part: [None] * number + [fault] * 99})


def flipped(world):
    world.blob.chmod(0o644)
    world.blob.write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])


def pruned(world):
    read = places.CacheFolder.read

    def reads(place, tag):
        data = read(place, tag)
        stock_of = world.user("keeper", world.folder)
        world.seal(made="2020-01-01T00:00:00Z")
        stock.prune(stock_of.cache, 1, remove=True)
        world.blob.unlink(missing_ok=True)
        return data

    world.patch.setattr(places.CacheFolder, "read", lambda place, tag: (world.patch.undo(), reads(place, tag))[1])


#: reading: what happens, and whether the wheel is taken all the same
READING = {
    **{
        f"registry fails with {fault} at {part}": (of_registry(part, fault, 0), False)
        for part in ("/manifests/", "/blobs/")
        for fault in (401, 403, 429, 500, 507, *(["truncate", "wrong"] if part == "/blobs/" else []))
    },
    "registry fails with 401 in the middle": (of_registry("/blobs/", 401, 1), False),
    "registry fails with 500 in the middle": (of_registry("/blobs/", 500, 1), False),
    "registry is down": (lambda world: world.registry.__exit__(None, None, None), False),
    "flipped bit": (flipped, False),
    "file is shorter": (lambda world: (world.blob.chmod(0o644), world.blob.write_bytes(CONTENT[:-1])), False),
    "file is longer": (lambda world: (world.blob.chmod(0o644), world.blob.write_bytes(CONTENT * 2)), False),
    "file is gone": (lambda world: world.blob.unlink(), False),
    "entry of another key": (lambda world: world.seal(key=OTHER), False),
    "entry of another kind": (lambda world: world.seal(kind="image"), False),
    "stranger's signature": (lambda world: world.seal(STRANGER), False),
    "altered after it was signed": (
        lambda world: world.entry.write_bytes(alter(seconds=1)(world.entry.read_bytes())),
        False,
    ),
    "replay of an older entry": (lambda world: world.seal(made="2020-01-01T00:00:00Z"), True),
    "clock of the maker is years ahead": (lambda world: world.seal(made="2099-01-01T00:00:00Z"), True),
    "clock of the maker tells no time": (lambda world: world.seal(made="never"), True),
    "files are dated in the future": (
        lambda world: [os.utime(path, (4e9, 4e9)) for path in (world.entry, world.blob)],
        True,
    ),
    "pruned while it is read": (pruned, False),
    "disk of the reader is full": (lambda world: world.patch.setattr(places.CacheFolder, "fetch", full), False),
    "slower than the compile": (lambda world: (world.seal(seconds=0.1), world.slow(2.0)), False),
    "slow, and the compile is slower": (lambda world: (world.seal(seconds=30.0), world.slow(0.6)), True),
    "giver was killed between files and entry": (lambda world: world.entry.unlink(), False),
    "giver was killed while it wrote the entry": (
        lambda world: world.entry.write_bytes(world.entry.read_bytes()[:40]),
        False,
    ),
}


@pytest.mark.parametrize("fault", READING)
def test_fault_while_reading_gives_the_signed_wheel_or_leaves_it_to_be_compiled(world, fault):
    break_it, is_taken = READING[fault]
    second = world.user("second", world.address if fault.startswith("registry") else world.folder)
    break_it(world)
    assert second.take() == ([WHEEL] if is_taken else [])
    assert [path.read_bytes() for path in second.home.glob("cache/compiled/*/*.whl")] == [CONTENT] * is_taken
    assert len([line for line in second.said.lines if "going on without it" in line]) <= 1
    assert [*second.home.glob("cache/tmp/run-*/*")] == [], "nothing half-written is left"


def killed(*_, **__):
    raise KeyboardInterrupt


#: giving: what happens
GIVING = {
    **{
        f"registry fails with {fault} at request {number} of {part}": of_registry(part, fault, number)
        for part in ("/blobs/uploads/", "/manifests/")
        for fault in (401, 403, 500, 507)
        for number in (0, 1, 2)
    },
    "registry is down": lambda world: world.registry.__exit__(None, None, None),
    "disk of the place is full": lambda world: world.patch.setattr(places, "writing", full),
    "disk of the place is full at the entry": lambda world: world.patch.setattr(places, "write_file", full),
}


@pytest.mark.parametrize("fault", GIVING)
def test_fault_while_giving_leaves_a_whole_entry_or_none(world, fault):
    giver = world.user("giver", world.address if fault.startswith("registry") else world.folder, signs=True)
    made = giver.make(key=OTHER)
    GIVING[fault](world)
    giver.cache.give(made)
    if fault == "registry is down":
        assert len([line for line in giver.said.lines if "going on without it" in line]) == 1
        return
    world.registry.faults.clear()
    world.patch.undo()
    is_given = not [line for line in giver.said.lines if "going on without it" in line]
    second = world.user("second", giver.cache.places[0].name)
    assert second.take(**{OTHER: PACKAGE}) == [WHEEL] * is_given
    again = world.user("again", giver.cache.places[0].name, signs=True)
    again.cache.give(again.make(key=OTHER))
    assert world.user("third", giver.cache.places[0].name).take(**{OTHER: PACKAGE}) == [WHEEL]


@pytest.mark.parametrize("step", ["writing", "write_file"])
def test_giver_that_is_killed_leaves_nothing_that_is_taken_and_the_next_one_fills_it(world, step):
    giver = world.user("giver", world.folder)
    source = giver.make(b"other" * 1000, key=OTHER)
    made = entry_of(key=OTHER, files=(entry.SharedFile.of(source[0]),))
    world.patch.setattr(places, step, killed)
    with pytest.raises(KeyboardInterrupt):
        giver.cache.places[0].write(made, entry.sealed(made, SITE), source)
    world.patch.undo()
    assert world.user("second", world.folder).take(**{OTHER: PACKAGE}) == []
    giver.cache.places[0].write(made, entry.sealed(made, SITE), source)
    assert world.user("third", world.folder).take(**{OTHER: PACKAGE}) == [WHEEL]


def test_what_a_killed_giver_left_goes_by_prune_after_a_day(world):
    """Folders under temporary names with their locks, as `kill -9` leaves them."""
    left = []
    for folder, name in (("blobs/sha256", "0" * 64), ("entries", f"compiled-{OTHER}.json")):
        part = world.folder / folder / f".{name}.part-x"
        part.mkdir()
        (part / name).write_bytes(b"half")
        (lock := part.with_name(f"{part.name}.lock")).touch()
        left += [part, lock]
    shared = world.user("keeper", world.folder).cache
    assert stock.prune(shared, 0, remove=True) == [], "it may be at work"
    for path in left:
        os.utime(path, (1, 1))
    assert [line.why for line in stock.prune(shared, 0, remove=True)] == ["no entry names them"]
    assert [path for path in left if path.exists()] == []
    assert world.user("second", world.folder).take() == [WHEEL]


#: places in a shared folder where a user puts a link that leads to another's folder
LINKED = ("entries", "blobs", "blobs/sha256", "leases")


@pytest.mark.parametrize("name", LINKED)
def test_prune_removes_nothing_of_a_folder_that_a_link_leads_to(world, tmp_path, name):
    """Files of days ago, one of which has the name of one of the cache's own."""
    names = {"entries": "thesis", "leases": "thesis", "blobs": f"sha256/{'0' * 64}", "blobs/sha256": "0" * 64}
    (victim := tmp_path / "home" / names[name]).parent.mkdir(parents=True)
    victim.write_text("a year of work")
    os.utime(victim, (1, 1))
    linked = world.folder / name
    if linked.exists():
        linked.rename(tmp_path / "away")
    linked.symlink_to(tmp_path / "home")
    with refused(IntegrityError, "is neither a file nor a folder", "has no links"):
        stock.prune(world.user("keeper", world.folder).cache, 0, remove=True)
    assert victim.read_text() == "a year of work"


@pytest.mark.parametrize("name", ["entries", "blobs/sha256"])
def test_prune_leaves_what_others_have_put_into_the_folder(world, name):
    (theirs := world.folder / name / "README").write_text("hello")
    os.utime(theirs, (1, 1))
    assert stock.prune(world.user("keeper", world.folder).cache, 0, remove=True) == []
    assert theirs.exists()


@pytest.mark.parametrize("name", LINKED[:3])
def test_nothing_is_read_or_written_through_a_folder_that_is_a_link(world, tmp_path, name):
    linked = world.folder / name
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "elsewhere").rglob("*")}
    assert world.user("reader", world.folder).take() == []
    giver = world.user("giver", world.folder, signs=True)
    giver.cache.give(giver.make(key=OTHER))
    assert "going on without it" in giver.said.lines[-1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "elsewhere").rglob("*")} == before


def test_blob_that_is_a_link_is_replaced_by_a_file_of_its_own(world, tmp_path):
    """It led to a user's file with the same bytes, which may change."""
    world.entry.unlink()
    world.blob.rename(tmp_path / "theirs")
    world.blob.symlink_to(tmp_path / "theirs")
    giver = world.user("giver", world.folder, signs=True)
    giver.cache.give(giver.make())
    assert not world.blob.is_symlink()
    assert world.user("second", world.folder).take() == [WHEEL]


@pytest.mark.parametrize(("mode", "umask"), [(0o2775, 0o077), (0o755, 0o077), (0o1777, 0o027), (0o700, 0o000)])
def test_folder_is_as_open_as_its_owner_made_it_with_any_umask_of_who_fills_it(world, tmp_path, mode, umask):
    (place := tmp_path / "site").mkdir()
    place.chmod(mode)
    giver = world.user("giver", place, signs=True)
    made = giver.make()
    before = os.umask(umask)
    try:
        giver.cache.give(made)
    finally:
        os.umask(before)
    folders = {path: path.stat().st_mode & 0o7777 for path in place.rglob("*") if path.is_dir()}
    assert set(folders.values()) == {mode}, folders
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()} == {0o644}


def test_wheel_that_the_disk_has_no_room_for_is_not_begun(world):
    world.seal(files=(entry.SharedFile(name=WHEEL, size=1 << 50, sha256="0" * 64),))
    begun = []
    world.patch.setattr(places.CacheFolder, "fetch", lambda *_: begun.append(1))
    second = world.user("second", world.folder)
    assert (second.take(), begun) == ([], [])
    assert "going on without it" in second.said.lines[-1]
