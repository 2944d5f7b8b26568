"""The room that a build needs is in its plan, and where it is not there nothing begins."""

import re
import shutil
from pathlib import Path

import pytest

from graphcrate.assembly.room import Room, RoomStep
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs import bases
from graphcrate.inputs.bases import debian
from graphcrate.model.errors import DiskFullError
from tests.made import refused
from tests.unit.house.test_wiring import BUILD, world  # noqa: F401 (a fixture)
from tests.unit.inputs.test_bytecode import InProcess

GB = 10**9


def room(*parts, free=10 * GB, copied=0, free_output=10 * GB):
    made = tuple(RoomStep(what=what, size=int(size * GB), known=known) for what, size, known in parts)
    folders = {"cache": Path("/cache"), "output": Path("dist")}
    return Room(**folders, parts=made, copied=copied, free=free, free_output=free_output)


def test_disk_line_has_needs_estimates_and_free_space_per_folder():
    known, estimated = ("to download", 2.0, True), ("for layers", 1.5, False)
    assert room(known).line() == "needs 2.0 GB in /cache, 0.0 GB in dist (hard links), 10.0 GB are free"
    assert room(known, estimated).line().startswith("needs about 3.5 GB in /cache, ")
    apart = room(known, copied=3 * GB, free_output=GB).line()
    assert apart == "needs 2.0 GB in /cache (10.0 GB are free), 3.0 GB in dist (1.0 GB are free)"


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ([("to download", 10.0, True)], True),
        ([("to download", 10.1, True)], False),
        ([("for layers", 12.0, False)], True),  # an estimate is no reason to refuse
        ([("for layers", 13.0, False)], False),
        ([("to download", 8.0, True), ("for layers", 4.0, False)], False),
    ],
)
def test_disk_need_is_refused_only_if_certain(cache, parts, fits):
    if fits:
        room(*parts).require("pyg:1", cache)
        return
    with refused(
        DiskFullError, "pyg:1 needs", ", and 10.0 GB are free under /cache", f"{parts[0][1]:.1f} GB {parts[0][0]}"
    ):
        room(*parts).require("pyg:1", cache)


def test_disk_need_of_copied_images_counts_on_the_output_disk(cache):
    room(copied=10 * GB).require("pyg:1", cache)
    with refused(DiskFullError, "pyg:1 needs 20.0 GB, and 10.0 GB are free under dist", "--output FOLDER"):
        room(copied=20 * GB).require("pyg:1", cache)


def test_disk_space_that_a_build_frees_counts_as_free(cache):
    for name in ("one", "two"):
        path = cache.path("rootfs", name, "root", "file")
        path.write_bytes(b"x" * 10_000_000)
    full = room(("unpacked", 0.01, True), free=1_000_000)
    full.require("pyg:1", cache)
    shutil.rmtree(cache.root / "rootfs" / "one")
    with refused(DiskFullError, "pyg:1 needs"):
        full.require("pyg:1", cache)


def needed(world, *options):  # noqa: F811
    """Bytes by part that a plan would count."""
    counted = []
    line = Room.line
    world.patch.setattr(Room, "line", lambda self: counted.append(self) or line(self))
    code, out, err = world.typed(*BUILD, "--plan", *options)
    world.patch.setattr(Room, "line", line)
    assert code == 0, err
    assert re.search(
        r"^  disk      needs (about )?0\.0 GB in \S+/cache, 0\.0 GB in dist \(hard links\), ", out, re.M
    ), out
    (found,) = counted
    return {part.what: (part.size, part.known) for part in found.parts}


def test_disk_need_counts_cached_files_and_wheel_sizes(world):  # noqa: F811
    world.patch.setattr(debian, "python_version", lambda _: "3.11.2")
    world.patch.setattr(debian, "glibc_version", lambda _: "2.36")
    world.patch.setattr(bases, "identity", lambda _: InProcess.base)
    before = needed(world)
    assert before["for layers"][1] is False
    assert before["unpacked, for its tests"][1] is False, "the base is not made"
    assert needed(world, "--no-smoke").keys() == before.keys() - {"unpacked, for its tests"}
    world.built()
    after = needed(world)
    assert "for layers" not in after
    assert "to download" not in after


def test_build_without_disk_space_ends_with_8_before_its_first_step(world):  # noqa: F811
    world.patch.setattr(Cache, "free_bytes", lambda self: 100)
    code, out, err = world.typed(*BUILD)
    assert (code, out, "step 1 of 4" in err) == (8, "", False), err
    assert "  disk      needs" in err
    assert "torch:1.0-cpu-py311 needs " in err
    assert not list((world.root / "dist").glob("*/*"))
