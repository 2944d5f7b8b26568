"""A suite without a list of security updates: what a lock, a plan, an image and its report say; older lists; http.

The commands run in this process on an image of a few bytes, as in test_wiring.py.
"""

import json

import msgspec
import pytest

from graphcrate.assembly import locking, planned
from graphcrate.compat.plan import base_images
from graphcrate.inputs.bases import debian
from graphcrate.model.errors import IntegrityError
from graphcrate.model.lock import decode_lock, encode
from graphcrate.model.recipe import BaseSpec
from tests.made import bookworm, deb, place, refused
from tests.unit import small_debian
from tests.unit.assembly.test_drift import committed, labels
from tests.unit.house.test_wiring import BUILD, world
from tests.unit.small_debian import stanza

__all__ = ("world",)  # a fixture
LINE = "none of the security updates of Debian bookworm, which no mirror gave (WITHOUT_SECURITY=yes)"


def test_base_locked_without_security_says_so_in_plan_label_and_report(world):
    path = world.root / "images/torch/cpu/pypi.lock.json"
    lock = decode_lock(committed(world))
    assert "without_security" not in committed(world).decode(), "a lock of before has the bytes of before"
    assert "graphcrate.without-security" not in labels(world.built())
    base = msgspec.structs.replace(lock.base, without_security=True)
    path.write_bytes(encode(msgspec.structs.replace(lock, base=base)))
    code, _, said = world.typed(*BUILD)
    assert code == 0
    assert f"  fixes     {LINE}" in said
    assert f"fixes   {LINE}" in said.rpartition("step 3 of 4")[2]
    (folder,) = (world.root / "dist/torch").glob("1.0-*")
    assert json.loads((folder / "report.json").read_bytes())["unfixed"] == ["bookworm"]
    assert labels(folder)["graphcrate.without-security"] == "Debian bookworm"


@pytest.mark.parametrize("has_security", [True, False])
def test_lock_records_that_no_mirror_gave_the_security_list(
    server, cache, progress, tmp_path, monkeypatch, has_security
):
    archive = small_debian.trusted(server, cache, progress, tmp_path, monkeypatch)
    names = [*base_images.base_packages("bookworm"), "usr-is-merged"]
    python = stanza("python3.11", "3.11.2-6")
    archive.put("bookworm", [*(stanza(name) for name in names if name != "python3"), stanza("python3"), python])
    if has_security:
        archive.put("bookworm-security", [])
    opened = archive.open(without_security=True)
    base = debian.lock_of(opened, BaseSpec(suite="bookworm", packages=("python3.11",)), "3.11")
    assert base.without_security is not has_security


def test_lock_is_not_replaced_by_one_of_older_lists(world, tmp_path):
    path, lock = tmp_path / "a.lock.json", decode_lock(committed(world))

    def listed(day):
        base = msgspec.structs.replace(bookworm(deb("libc6")), listed=f"{day}T000000Z")
        return msgspec.structs.replace(lock, base=base)

    path.write_bytes(encode(listed("20261126")))
    before = path.read_bytes()
    with refused(IntegrityError, "the lists of today are of 2026-11-25", "2026-11-26", "DEBIAN_MIRROR="):
        locking.write_lock(path, listed("20261125"), world.place)
    assert path.read_bytes() == before
    day = place(None, {"DEBIAN_MIRROR": "https://snapshots.example/archive/debian/20261125T120000Z"})
    locking.write_lock(path, listed("20261125"), day)
    locking.write_lock(path, listed("20261127"), world.place)
    path.write_bytes(b"{")
    locking.write_lock(path, listed("20261101"), world.place)
    assert decode_lock(path.read_bytes()) == listed("20261101")


@pytest.mark.parametrize(
    ("mirror", "shown"),
    [
        ("http://mirror.example/debian", "from mirror.example"),
        ("https://mirror.example/debian http://other.example:80/debian", "from other.example"),
        ("https://mirror.example/debian", ""),
        ("http://127.0.0.1:3142/debian", ""),
    ],
)
def test_plan_names_mirrors_without_tls(world, mirror, shown):
    (note,) = planned.line_notes(decode_lock(committed(world)), place(None, {"DEBIAN_MIRROR": mirror})) or [""]
    assert (f"Debian's packages come over plain http {shown}:" in note) if shown else not note
