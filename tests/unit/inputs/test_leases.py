"""Leases in a shared folder: takers with clocks of their own, killed at any point."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from graphcrate.inputs.shared.leases import BEAT, EXPIRY, Lease, LeaseFolder, Leases, may_take
from graphcrate.model.errors import UsageError

TAKERS = range(3)
NAMES = ("row-a", "key-b")


@pytest.mark.parametrize(
    ("lease", "unchanged", "may"),
    [
        (Lease(owner="a"), EXPIRY - 1, False),
        (Lease(owner="a"), EXPIRY, True),
        (Lease(owner="a", state="free"), 0, True),
        (Lease(owner="a", state="done"), 10 * EXPIRY, False),
        (None, 0, False),  # a file that cannot be read
        (None, EXPIRY, True),
    ],
)
def test_lease_may_be_taken_when_free_or_without_a_beat(lease, unchanged, may):
    assert may_take(lease, unchanged) is may


class Machine:
    """A taker that lives or was killed, on a machine whose clock has its own zero and is a little fast or slow."""

    def __init__(self, folder, number, world):
        self.zero, self.rate, self.world, self.folder, self.starts = (
            1e6 * (number - 1),
            1 + (number - 1) / 50,
            world,
            folder,
            0,
        )
        self.begin()

    def begin(self):
        self.starts += 1
        self.lives, self.holds = True, set()
        self.leases = Leases(
            LeaseFolder(self.folder), f"{id(self)}-{self.starts}", lambda: self.zero + self.rate * self.world.time
        )


class LeasesOfMachines(stateful.RuleBasedStateMachine):
    """At most one living machine has a lease, at any time another is killed; and no lease is lost for ever."""

    def __init__(self):
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.time = 0.0
        self.machines = [Machine(Path(self.place.name), number, self) for number in TAKERS]

    def teardown(self):
        self.place.cleanup()

    @stateful.rule(number=st.sampled_from(TAKERS), name=st.sampled_from(NAMES))
    def take(self, number, name):
        machine = self.machines[number]
        if machine.lives and machine.leases.take(name):
            machine.holds.add(name)

    @stateful.rule(number=st.sampled_from(TAKERS), name=st.sampled_from(NAMES))
    def two_take_at_once(self, number, name):
        """Both have looked before either writes."""
        first, second = self.machines[number], self.machines[number - 1]
        if first.lives and second.lives and (file := first.leases._next(name)):
            second_sees = second.leases._next(name)
            if first.leases.take(name):
                first.holds.add(name)
            if second_sees == file:
                second.leases._next = lambda name: second_sees
                assert not second.leases.take(name)
                del second.leases._next

    @stateful.rule(number=st.sampled_from(TAKERS))
    def leave(self, number):
        if self.machines[number].lives:
            self.machines[number].leases.leave()
            self.machines[number].holds.clear()

    @stateful.rule(number=st.sampled_from(TAKERS))
    def kill(self, number):
        self.machines[number].lives = False
        self.machines[number].holds.clear()

    @stateful.rule(number=st.sampled_from(TAKERS))
    def start_again(self, number):
        if not self.machines[number].lives:
            self.machines[number].begin()

    @stateful.rule(beats=st.integers(1, 12))
    def time_goes_on(self, beats):
        for _ in range(beats):
            self.time += BEAT
            for machine in self.machines:
                if machine.lives:
                    machine.leases.renew()

    @stateful.invariant()
    def one_living_machine_has_it(self):
        for name in NAMES:
            assert sum(name in machine.holds for machine in self.machines if machine.lives) <= 1

    @stateful.rule()
    def a_dead_ones_lease_is_taken_in_the_end(self):
        for name in NAMES:
            if any(name in machine.holds for machine in self.machines):
                continue
            machine = next((one for one in self.machines if one.lives), None)
            if machine is None:
                return
            if not machine.leases.take(name):
                self.time_goes_on(int(2 * EXPIRY / BEAT))
                assert machine.leases.take(name)
            machine.holds.add(name)


LeasesOfMachines.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestLeases = LeasesOfMachines.TestCase


def test_done_lease_is_taken_by_nobody_until_it_is_freed(tmp_path):
    first, second = Leases(LeaseFolder(tmp_path), "a"), Leases(LeaseFolder(tmp_path), "b")
    assert first.take("key")
    assert (second.take("key"), second.is_open("key"), second.is_done("key")) == (False, False, False)
    first.leave("done")
    assert (second.take("key"), second.is_open("key"), second.is_done("key")) == (False, True, True)
    second.free({"key"}, lambda lease: lease.state == "done")
    assert second.take("key")


def test_lease_of_a_job_that_ended_is_free_at_once(tmp_path):
    for owner in ("12_0", "12_1"):
        assert Leases(LeaseFolder(tmp_path), owner).take(f"row-{owner}")
    Leases(LeaseFolder(tmp_path), "").free({"row-12_0", "row-12_1"}, lambda lease: lease.owner == "12_0")
    assert Leases(LeaseFolder(tmp_path), "c").take("row-12_0")
    assert not Leases(LeaseFolder(tmp_path), "c").take("row-12_1")


@pytest.mark.parametrize("name", ["../row", "a/b", "", "..", "a\0b"])
def test_lease_of_a_hostile_name_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be a file's name"):
        Leases(LeaseFolder(tmp_path / "leases"), "a").take(name)
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_of_the_folder_are_no_leases(tmp_path):
    for name in ("row.0.json", "row.1.json.part", "row.x.json", "row.99999999999999999999.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "other.1.json").write_text("{half")
    taker = Leases(LeaseFolder(tmp_path), "a")
    assert taker.take("row")
    assert (tmp_path / "row.1.json").exists()
    assert not taker.take("other")
    taker.free(LeaseFolder(tmp_path).names(), lambda lease: True)
    assert (tmp_path / "other.1.json").read_text() == "{half"


def test_work_renews_its_leases_meanwhile(tmp_path):
    taker, other = Leases(LeaseFolder(tmp_path), "a", beat=0.001), Leases(LeaseFolder(tmp_path), "b")
    assert taker.take("row")
    before = (tmp_path / "row.1.json").read_bytes()
    with taker.beating():
        while (tmp_path / "row.1.json").read_bytes() == before:
            pass
    assert not other.take("row")
    taker.leave()
    assert other.take("row")
