"""Builders at one shared cache: one compiles, others wait for it, and nothing that a place says keeps them for ever."""

import os
import threading
from types import SimpleNamespace

import pytest

from graphcrate.inputs.shared import leases, places, stock, turns
from graphcrate.inputs.shared.turns import EXPIRY, LEAST, Turns
from tests.unit.inputs.test_shared_cache import CONTENT, KEY, PACKAGE, WHEEL
from tests.unit.inputs.test_shared_cache import keys as keys
from tests.unit.inputs.test_shared_cache import user as user

NAME = f"compiled-{KEY}"


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on while a builder waits; `events`: what happens then."""
    made = SimpleNamespace(time=1e9, events=[])

    def wait(seconds):
        made.time += seconds
        for event in [*made.events]:
            event()

    monkeypatch.setattr(turns.settings, "wait", wait)
    monkeypatch.setattr(turns.settings, "now", lambda: made.time)
    return made


@pytest.fixture(params=["folder", "registry"])
def place(request, tmp_path, registry):
    return str(tmp_path / "shared") if request.param == "folder" else f"{registry.host}/team/cache"


class Builder:
    """A user who builds; `begins`: what they begin to compile."""

    def __init__(self, user, name, place, **options):
        self.user = user(name, place, **{"signs": True, **options})
        self.shelf = self.user.shelf(KEY)
        self.wanted = {self.shelf: PACKAGE}
        self.turns = Turns.at(self.user.cache, lambda wanted: self.user.cache.take(wanted, again=True))
        self.waits_for = self.turns.claim(self.wanted)

    def due(self, seconds=0.0):
        return self.turns.due(self.wanted, seconds) == [self.shelf]

    def has_it(self):
        return (self.shelf / WHEEL).is_file() and (self.shelf / WHEEL).read_bytes() == CONTENT

    def compile_once(self):
        if not self.has_it():
            self.compile()

    def compile(self):
        self.turns.give(self.user.make())


def test_second_builder_waits_for_the_wheel_of_the_first(user, place, clock):
    first, second = Builder(user, "first", place), Builder(user, "second", place)
    assert (first.waits_for, second.waits_for) == (set(), {second.shelf})
    assert first.due()
    clock.events = [first.compile_once]
    assert not second.due()
    assert second.has_it()
    said = [line for line in second.user.said.lines if line.startswith("waiting for torch-scatter of graphcrate ")]
    assert len(said) == 1
    assert said[0].endswith("at most 10 minutes")
    third = Builder(user, "third", place)
    assert not third.due()
    assert third.has_it()


def test_eight_builders_at_once_compile_once(user, tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "PAUSE", 0.01)
    compiled, ready = [], threading.Barrier(8)

    def build(builder):
        ready.wait()
        builder.waits_for = builder.turns.claim(builder.wanted)
        while not builder.has_it():
            if builder.due():
                compiled.append(builder)
                builder.compile()

    builders = [Builder(user, f"user{number}", tmp_path / "shared", trusts=True) for number in range(8)]
    for builder in builders:
        builder.turns.leases.leave()
    threads = [threading.Thread(target=build, args=[builder]) for builder in builders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [builder.has_it() for builder in builders] == [True] * 8
    assert len(compiled) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_who_write_a_tag_at_once_one_has_it(user, registry, clock, order):
    """Both have seen that it is absent, before either writes."""
    two = [Builder(user, f"user{number}", f"{registry.host}/team/cache") for number in order]
    text = [leases.msgspec.json.encode(leases.Lease(owner=builder.turns.leases.owner)) for builder in two]
    for builder, lease in zip(two, text, strict=True):
        builder.turns.leases._held["key"] = leases._Held(1, leases.Lease(owner=builder.turns.leases.owner), clock.time)
        builder.turns.leases.store.write("key", 1, lease)
    two[0].turns.leases.renew()
    assert [builder.turns.leases.has("key") for builder in two] == [False, True]


def test_wheel_of_a_killed_builder_is_compiled_by_another_when_its_lease_expires(user, place, clock):
    killed, second = Builder(user, "killed", place), Builder(user, "second", place)
    assert killed.due()
    begun = clock.time
    assert second.due()
    assert EXPIRY <= clock.time - begun < EXPIRY + 5 * turns.PAUSE


def test_wheel_of_a_builder_whose_compile_fails_is_compiled_by_another_at_once(user, place, clock):
    first, second = Builder(user, "first", place), Builder(user, "second", place)
    with first.turns.beating():
        pass
    begun = clock.time
    assert second.due()
    assert clock.time - begun < EXPIRY


@pytest.mark.parametrize("seconds", [0, LEAST + 10 * turns.PAUSE])
def test_builder_who_beats_for_ever_makes_others_wait_no_longer_than_compiling_takes(user, place, clock, seconds):
    hostile, second = Builder(user, "hostile", place), Builder(user, "second", place)
    clock.events = [hostile.turns.leases.renew]
    begun = clock.time
    assert second.due(seconds)
    assert max(LEAST, seconds) <= clock.time - begun < max(LEAST, seconds) + 5 * turns.PAUSE


def test_reader_without_a_key_waits_and_leaves_nothing_in_the_place(user, place, clock, tmp_path):
    alone = Builder(user, "alone", place, signs=False)
    assert alone.due()
    assert not (tmp_path / "shared").exists()
    first, reader = Builder(user, "first", place), Builder(user, "reader", place, signs=False)
    assert reader.waits_for == {reader.shelf}
    clock.events = [first.compile_once]
    assert not reader.due()
    assert reader.has_it()


def test_giver_who_trusts_nobody_waits_for_nobody(user, place, clock):
    Builder(user, "first", place)
    second = Builder(user, "second", place, trusts=False)
    begun = clock.time
    assert second.due()
    assert clock.time - begun < EXPIRY


def test_place_that_fails_while_it_is_waited_for_is_left_with_one_line(user, registry, clock, monkeypatch):
    monkeypatch.setattr(places, "_LONGEST_PAUSE", 0.0)
    address = f"{registry.host}/team/cache"
    Builder(user, "first", address)
    second = Builder(user, "second", address)
    clock.events = [lambda: registry.faults.update({"/manifests/": [500] * 99})]
    assert second.due()
    assert len([line for line in second.user.said.lines if "going on without it" in line]) == 1
    second.turns.give(second.user.make())  # and says nothing more
    assert "going on without it" in second.user.said.lines[-1]


HOSTILE = {
    "no json": lambda path, _: path.write_text("{"),
    "no lease": lambda path, _: path.write_text('{"owner": 1}'),
    "link": lambda path, outside: path.symlink_to(outside),
    "large": lambda path, _: path.write_text("x" * 10**7),
    "escapes": lambda path, _: path.write_text('{"owner": "\\u001b[2J' + "y" * 300 + '"}'),
}


@pytest.mark.parametrize("text", HOSTILE)
def test_lease_that_a_stranger_wrote_ends_after_its_time_and_no_byte_of_it_reaches_the_terminal(
    user, tmp_path, clock, text
):
    (folder := tmp_path / "shared" / "leases").mkdir(parents=True)
    (outside := tmp_path / "outside").write_text("{}")
    HOSTILE[text](folder / f"{NAME}.1.json", outside)
    builder = Builder(user, "builder", tmp_path / "shared")
    assert builder.due()
    builder.compile()
    assert outside.read_text() == "{}"
    assert [line for line in builder.user.said.lines if "\x1b" in line or len(line) > 250] == []


def test_leases_of_a_folder_that_is_a_link_are_none(user, tmp_path, clock):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "leases").symlink_to(elsewhere)
    assert Builder(user, "builder", tmp_path / "shared").due()
    assert list(elsewhere.iterdir()) == []


def test_prune_removes_leases_of_builders_that_are_gone(user, place, clock, tmp_path):
    Builder(user, "gone", place)
    keeper = user("keeper", place).cache
    assert stock.prune(keeper, 0, remove=True) == [], "it may be at work"
    clock.time += 2 * 86400
    for path in tmp_path.glob("shared/leases/*"):
        os.utime(path, (1, 1))
    assert len(stock.prune(keeper, 0, remove=False)) == 1
    (line,) = stock.prune(keeper, 0, remove=True)
    assert line.title.startswith("1 ")
    assert stock.prune(keeper, 0, remove=True) == []
    assert Builder(user, "next", place).due()
