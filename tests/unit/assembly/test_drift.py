"""A lock of which a Debian package is nowhere: those of today are taken and that is said everywhere, or --locked ends.

The commands run in this process on an image of a few bytes, as in test_wiring.py.
"""

import json
import shutil
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import extension_wheels, with_engine
from graphcrate.compat.plan import base_lines
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.errors import HostError, LockedError
from graphcrate.model.lock import Drift, decode_lock
from graphcrate.resolve.stack import base
from tests.made import bookworm, deb, refused
from tests.unit.house.test_wiring import BUILD, world
from tests.unit.inputs.test_compilation import COMPILED

__all__ = ("world",)  # a fixture
GONE = "no place has 1 package (libc6 1) of the lock's Debian bookworm base"
TODAY = bookworm(deb("libc6", "2"), deb("liba"))
DRIFT = [{"of": "base", "name": "liba", "locked": "", "taken": "1"}]
DRIFT += [{"of": "base", "name": "libc6", "locked": "1", "taken": "2"}]
CHANGES = "liba 1 (new) and libc6 1 → 2"


@pytest.fixture
def drifted(world):
    """A function that makes the locked base's package go from all places, and Debian have another today."""

    def go(today=TODAY):
        def prepare(ctx, lock, *_):
            if lock != today:
                raise BaseDriftError(GONE, cause="Mirrors keep the newest version only.", next_step="lock again")
            return world.base()

        world.patch.setattr(base, "prepare_base", prepare)
        world.patch.setattr(
            base, "provider", lambda name: SimpleNamespace(lock=lambda *_: today, outline=lambda *_: None)
        )

    return go


def committed(world):
    return (world.root / "images/torch/cpu/pypi.lock.json").read_bytes()


def labels(folder):
    """The labels of an image's configuration."""
    index = json.loads((folder / "oci/index.json").read_bytes())

    def blob(digest):
        return json.loads((folder / "oci/blobs/sha256" / digest.removeprefix("sha256:")).read_bytes())

    return blob(blob(index["manifests"][0]["digest"])["config"]["digest"])["config"]["Labels"]


def test_drift_is_in_plan_label_and_report_and_the_committed_lock_stays(world, drifted):
    before = committed(world)
    assert "graphcrate.drift" not in labels(world.built())
    shutil.rmtree(world.root / "dist")
    drifted()
    code, _, said = world.typed(*BUILD)
    assert code == 0
    assert f"{GONE}; taking the packages of today instead (LOCKED=yes refuses that)" in said
    line = f"no place has all that was locked of the base; of today are {CHANGES}"
    plan, end = said.index(f"  drift     {line}"), said.index(f"drift   {line}; LOCKED=yes refuses that")
    assert plan < said.index("step 3 of 4") < end
    (folder,) = (world.root / "dist/torch").glob("1.0-*")
    report = json.loads((folder / "report.json").read_bytes())
    lock = decode_lock((folder / "lock.json").read_bytes())
    assert report["drift"] == list(msgspec.to_builtins(lock.drifted)) == DRIFT
    assert (lock.base, report["lock_sha256"]) == (TODAY, lock.sha256)
    assert labels(folder)["graphcrate.drift"] == "liba 1 (new), libc6 1 → 2"
    assert committed(world) == before


def test_drift_is_printed_by_each_build_for_a_day(world, drifted):
    drifted()
    assert world.typed(*BUILD)[0] == 0
    code, _, said = world.typed(*BUILD)
    assert (code, "plan for" in said, f"of today are {CHANGES}; LOCKED=yes" in said) == (0, False, True)
    assert CHANGES in "".join(world.typed(*BUILD, "--plan")[1:])
    assert CHANGES not in "".join(world.typed(*BUILD, "--plan", "--locked")[1:])
    tomorrow = settings.now() + base.REMEMBERED
    world.patch.setattr(settings, "now", lambda: tomorrow)
    world.patch.setattr(base, "prepare_base", world.base)  # a mirror has it again
    code, _, said = world.typed(*BUILD)
    assert (code, "  drift " in said) == (0, False)


def test_locked_build_with_a_drifted_base_is_refused(world, drifted):
    before = committed(world)
    drifted()
    for times in range(2):  # also where one without it has taken others
        code, out, said = world.typed(*BUILD, "--locked")
        assert (code, out, GONE in said, "next:  make image STACK=torch CUDA=cpu    (takes what" in said) == (
            18,
            "",
            True,
            True,
        ), said
        assert world.leftovers() == []
        assert times or world.typed(*BUILD)[0] == 0
    assert committed(world) == before


def test_locked_build_takes_the_committed_lock_only(world, drifted):
    assert world.typed(*BUILD, "--locked")[0] == 0
    lock = world.root / "images/torch/cpu/pypi.lock.json"
    kept = lock.read_bytes()
    lock.unlink()
    code, _, said = world.typed(*BUILD, "--locked", "--output", "other")
    assert (code, "no committed lock answers this request" in said) == (18, True), said
    lock.write_bytes(kept)


def test_locked_build_whose_base_cannot_be_made_is_refused(ctx, monkeypatch):
    def impossible(*_):
        raise HostError("user namespaces are off", cause="Ask the site.")

    monkeypatch.setattr(base, "prepare_base", impossible)
    plan = SimpleNamespace(base=SimpleNamespace(base=TODAY, image=SimpleNamespace(reference="debian:x")))
    with refused(LockedError, "user namespaces are off", "Ask the site."):
        with_engine._base(plan, COMPILED, SourceOptions(locked=True), ctx)
    assert with_engine._base(plan, COMPILED, SourceOptions(), ctx)[0] is None


def test_locked_build_with_a_gone_toolkit_is_refused(ctx, tmp_path, monkeypatch):
    def gone(*_, **__):
        raise BaseDriftError("no place has 1 package of the lock's CUDA toolkit")

    monkeypatch.setattr(toolkits, "prepare", gone)
    monkeypatch.setattr(extension_wheels.Compiling, "files", lambda _: {})
    compiling = extension_wheels.Compiling(None, COMPILED, SourceOptions(locked=True), ctx)
    with refused(LockedError, "CUDA toolkit"):
        compiling._toolkit(COMPILED.compilation.toolkit, SimpleNamespace(rootfs=tmp_path, identity="a"))


def test_verify_rebuild_with_drift_names_the_changed_packages(world, drifted):
    published = world.published()
    drifted()
    code, out, said = world.typed("verify", "--rebuild", published)
    assert code == 17
    assert f"no place has all Debian packages of the lock; of today are {CHANGES}" in out + said


def test_drift_line_of_90_packages_names_four():
    drift = tuple(Drift(of="base", name=f"lib{number}", locked="1", taken="2") for number in range(90))
    drift += (Drift(of="compiler", name="lib0", locked="1", taken="2"),)  # the same in both
    line = base_lines.drift_line(drift)
    assert len(base_lines.drifted(drift)) == 90
    assert line.endswith("lib0 1 → 2, lib1 1 → 2, lib2 1 → 2, lib3 1 → 2 and 86 more")
    assert "of the base and the base with the compiler" in line
