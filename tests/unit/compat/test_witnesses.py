"""Hashes that public locks of others have, beside those of pages."""

import hashlib

import pytest

from graphcrate.compat.facts import witnesses
from graphcrate.compat.facts.facts import table
from graphcrate.compat.facts.witnesses import Witnessed
from graphcrate.host.disk import documents
from graphcrate.model.errors import IntegrityError
from tests import ROOT
from tests.made import refused
from tests.unit.small_index import COMPATIBLE, CP311, PYTORCH
from tests.unit.wheel_server import small_wheel

TORCH, CONTENT = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"])
COMMIT = "0123456789" * 4
WITNESSES = (f"one/a:uv.lock@{COMMIT}", f"two/b:server/poetry.lock@{COMMIT}")


@pytest.fixture
def known(monkeypatch):
    """Let witnesses say that torch has this content."""

    def put(content):
        row = Witnessed(name=TORCH, sha256=hashlib.sha256(content).hexdigest(), witnesses=WITNESSES)
        monkeypatch.setattr(witnesses, "witnessed", lambda: {TORCH: row})

    return put


def test_row_has_two_independent_witnesses_and_the_table_is_one_of_names():
    rows = table("witnesses", tuple[Witnessed, ...], "file")
    assert [row.name for row in rows if not row.is_proved] == []
    assert len({row.name for row in rows}) == len(rows) > 0
    waiting = table("witnesses", tuple[Witnessed, ...], "single")
    assert [row.name for row in waiting if row.is_proved or row.name in {row.name for row in rows}] == []


def test_two_locks_of_one_owner_are_one_witness():
    row = Witnessed(name=TORCH, sha256="0" * 64, witnesses=(f"One/a:uv.lock@{COMMIT}", f"one/b:uv.lock@{COMMIT}"))
    assert not row.is_proved


def test_committed_locks_agree_with_witnesses():
    rows = {row.name: row.sha256 for row in table("witnesses", tuple[Witnessed, ...], "file")}
    locks = [documents.read_lock(path, "", committed=True) for path in ROOT.glob("images/*/*/*.lock.json")]
    files = [package.file for lock in locks for package in lock.packages]
    assert files
    assert [file.name for file in files if rows.get(file.name, file.sha256) != file.sha256] == []


@pytest.mark.parametrize(("hashes", "told"), [(True, "page and witnesses"), (False, "witnesses only")])
def test_hash_of_page_and_witnesses_is_told_in_the_lock(world, known, hashes, told):
    known(CONTENT)
    world.server.pytorch("cu118", {TORCH: CONTENT}, hashes=hashes)
    locked = world.choose(PYTORCH, COMPATIBLE).lock
    assert locked.package("torch").file.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert f"hash of {TORCH}: {told}" in locked.notes
    first = next(asked for asked in world.server.asked if asked.path == f"/whl/cu118/{TORCH}")
    assert first.method == "HEAD"  # the file is not fetched for its hash


def test_page_with_another_hash_than_witnesses_names_file_page_and_each_of_them(world, known):
    known(b"what others had")
    world.server.pytorch("cu118", {TORCH: CONTENT})
    with refused(IntegrityError, TORCH, "127.0.0.1", *WITNESSES, "CHANNEL=pypi"):
        world.choose(PYTORCH, COMPATIBLE)


def test_silent_page_whose_file_is_another_is_not_fetched_past_the_hash(world, known):
    known(b"what others had")
    world.server.pytorch("cu118", {TORCH: CONTENT}, hashes=False)
    locked = world.choose(PYTORCH, COMPATIBLE).lock
    assert locked.package("torch").file.sha256 == hashlib.sha256(b"what others had").hexdigest()
    with refused(IntegrityError, TORCH):
        world.fetch(locked)
