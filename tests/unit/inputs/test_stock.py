"""Entries of a shared cache: listed, read, brought here, and removed where they are damaged."""

import dataclasses
import os
from pathlib import Path

import msgspec
import pytest

from graphcrate.host import settings
from graphcrate.inputs.shared import entry, stock
from graphcrate.model.errors import IntegrityError, NetworkError
from tests.made import refused
from tests.unit.inputs.test_shared_cache import (
    CONTENT,
    KEY,
    OTHER,
    SITE,
    STRANGER,
    WHEEL,
    alter,
    entry_of,
    filled,  # noqa: F401 (a fixture)
    keys,  # noqa: F401 (a fixture)
    user,  # noqa: F401 (a fixture)
)

DAY = 86400
TAG = f"compiled-{KEY}"


def put(folder, key, signer=SITE, change=lambda data: data, **changes):
    """Put a further entry there, whose file is that of the first."""
    made = entry_of(key=key, **changes)
    (folder / "entries" / f"{made.tag}.json").write_bytes(change(entry.sealed(made, signer)))


@pytest.fixture
def registry_place(registry, user):  # noqa: F811
    """A registry with two entries, which answers in pages of one."""
    registry.page = 1
    first = user("pusher", f"{registry.host}/team/cache", signs=True)
    first.cache.give([*first.make(), *first.make(key=OTHER)])
    registry.put("team/cache", {"schemaVersion": 2}, "x/y", "latest")
    return f"{registry.host}/team/cache"


def test_entries_of_a_folder_are_listed_with_makers_and_with_the_reason_why_one_is_not_taken(filled, user):  # noqa: F811
    put(filled, OTHER, STRANGER, title="\x1b[31mtorch")
    put(filled, "ef" * 32, change=alter(seconds=1))
    put(filled, "01" * 32, change=lambda _: b"{}")
    (filled / "entries" / "README.json").write_text("no entry")
    lines = {line.tag[9:11]: line for line in stock.listed(user("second", filled).cache)}
    assert {name: line.why for name, line in lines.items()} == {
        "ab": "",
        "cd": entry.UNTRUSTED,
        "ef": entry.UNTRUSTED,
        "01": "it is not a signed statement",
    }
    assert (lines["ab"].title, lines["ab"].bytes, lines["ab"].place) == (WHEEL, len(CONTENT), str(filled))
    assert lines["ab"].maker.startswith("graphcrate ")
    assert "\x1b" not in lines["cd"].title


def test_tags_of_a_registry_are_listed_page_by_page_and_those_of_images_are_no_entries(registry_place, user):  # noqa: F811
    lines = stock.listed(user("second", registry_place).cache)
    assert [(line.tag, line.why) for line in lines] == [(TAG, ""), (f"compiled-{OTHER}", "")]


def test_an_empty_or_absent_place_has_no_entries(registry, user, tmp_path):  # noqa: F811
    for name in (f"{registry.host}/team/none", f"{tmp_path}/none"):
        assert stock.listed(user("second", name).cache) == []


def test_a_web_server_cannot_be_listed(user):  # noqa: F811
    with refused(NetworkError, "of which entries are read by their names alone"):
        stock.listed(user("second", "http://127.0.0.1:9/cache").cache)


def test_links_and_pipes_are_listed_with_the_reason(filled, user):  # noqa: F811
    (path,) = filled.glob("entries/*")
    for make in (lambda: path.symlink_to("/etc/passwd"), lambda: os.mkfifo(path)):
        path.unlink()
        make()
        assert [line.why for line in stock.listed(user("second", filled).cache)] == [
            f"{path} is neither a file nor a folder"
        ]


def test_pull_brings_signed_wheels_once_and_leaves_strangers(filled, user):  # noqa: F811
    put(filled, OTHER, STRANGER)
    put(filled, "ef" * 32, kind="image")
    second = user("second", filled)
    assert [line.tag for line in stock.pull(second.cache, second.ctx)] == [TAG]
    assert (second.shelf(KEY) / WHEEL).read_bytes() == CONTENT
    assert not second.shelf(OTHER).exists()
    assert stock.pull(second.cache, second.ctx) == []


def test_verify_reads_all_files_and_names_the_entry_whose_bytes_changed(filled, user):  # noqa: F811
    second = user("second", filled)
    stock.raise_if_faulty(stock.read(second.cache, second.ctx))
    (blob,) = filled.glob("blobs/sha256/*")
    blob.chmod(0o644)
    blob.write_bytes(CONTENT.replace(b"wheel", b"whEel"))
    lines = stock.read(second.cache, second.ctx)
    with refused(IntegrityError, "1 of 1 entries are faulty", TAG, "cache prune"):
        stock.raise_if_faulty(lines)


def changed_blob(folder):
    """Change the one file of a shared folder; return its path and its bytes before."""
    (blob,) = folder.glob("blobs/sha256/*")
    before = blob.read_bytes()
    blob.chmod(0o644)
    blob.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    return blob, before


def test_entry_whose_bytes_changed_is_listed_and_pruned_from_its_verify_on(filled, user):  # noqa: F811
    second = user("second", filled)
    changed_blob(filled)
    assert stock.prune(second.cache, 0, remove=False) == [], "it reads no files"
    stock.read(second.cache, second.ctx)
    for lines in (stock.listed(second.cache), stock.prune(second.cache, 0, remove=True)):
        assert [line.why for line in lines] == ["its files are not what was signed"]
    assert stock.listed(second.cache) == []


def test_push_of_an_entry_whose_bytes_changed_brings_it_again_and_it_counts(filled, user):  # noqa: F811
    giver = user("giver", filled, signs=True)
    blob, before = changed_blob(filled)
    wheels = giver.make()
    giver.cache.give(wheels)
    assert blob.read_bytes() != before, "nothing has read it"
    stock.read(giver.cache, giver.ctx)
    giver.cache.give(wheels)
    assert blob.read_bytes() == before
    assert [line.why for line in stock.read(giver.cache, giver.ctx)] == [""]
    assert user("third", filled).take() == [WHEEL]


def test_verify_of_an_entry_that_was_repaired_elsewhere_takes_it_again(filled, user):  # noqa: F811
    second = user("second", filled)
    blob, before = changed_blob(filled)
    stock.read(second.cache, second.ctx)
    blob.write_bytes(before)
    assert [line.why for line in stock.read(second.cache, second.ctx)] == [""]
    assert [line.why for line in stock.listed(second.cache)] == [""]


def test_verify_of_a_place_that_fails_in_the_middle_is_an_error_and_no_verdict(registry_place, registry, user):  # noqa: F811
    registry.faults["/blobs/"] = [403] * 99
    second = user("second", registry_place)
    with refused(NetworkError):
        stock.read(second.cache, second.ctx)


def test_prune_shows_first_and_removes_damaged_entries(filled, user):  # noqa: F811
    put(filled, OTHER, STRANGER)
    put(filled, "ef" * 32, change=lambda _: b"{}")
    (left := filled / "blobs/sha256" / ("0" * 64)).write_bytes(b"left")
    os.utime(left, (1, 1))
    before = sorted(filled.rglob("*"))
    shared = user("second", filled).cache
    doomed = stock.prune(shared, 0, remove=False)
    assert [(line.tag[9:11], line.why) for line in doomed] == [
        ("ef", "it is not a signed statement"),
        ("", "no entry names them"),
    ]
    assert sorted(filled.rglob("*")) == before
    assert stock.prune(shared, 0, remove=True) == doomed
    assert {path.name for path in filled.rglob("*")} & {left.name, f"compiled-{'ef' * 32}.json"} == set()
    assert user("third", filled).take() == [WHEEL]


def test_prune_leaves_a_file_whose_entry_may_be_on_its_way_and_those_of_strangers_entries(filled, user):  # noqa: F811
    (path,) = filled.glob("entries/*")
    path.write_bytes(entry.sealed(entry_of(), STRANGER))
    (new := filled / "blobs/sha256" / ("0" * 64)).write_bytes(b"new")
    for blob in set(filled.glob("blobs/sha256/*")) - {new}:
        os.utime(blob, (1, 1))
    assert stock.prune(user("second", filled).cache, 0, remove=True) == []
    assert len(list(filled.glob("blobs/sha256/*"))) == 2


def test_prune_by_age_takes_entries_of_trusted_keys_alone(filled, user):  # noqa: F811
    put(filled, OTHER, made=settings.now_utc(8 * DAY))
    put(filled, "ef" * 32, STRANGER, made=settings.now_utc(8 * DAY))
    shared = user("second", filled).cache
    assert stock.prune(shared, 9, remove=True) == []
    assert [line.why for line in stock.prune(shared, 7, remove=True)] == ["it was made more than 7 days ago"]
    assert len(list(filled.glob("entries/*"))) == 2


def test_prune_removes_an_entry_that_turned_out_wrong_here(filled, user):  # noqa: F811
    second = user("second", filled, check="1")
    second.take()
    with refused(IntegrityError, "cache prune"):
        second.cache.compare(second.taken, second.make(b"changed"))
    assert [line.why for line in stock.prune(second.cache, 0, remove=True)] == ["made here it was another file"]
    assert list(filled.glob("entries/*")) == []


def test_prune_of_a_registry_removes_manifests_or_says_that_it_does_not_take_that(registry_place, registry, user):  # noqa: F811
    shared = user("second", registry_place).cache
    old = msgspec.structs.replace(entry_of(key="ef" * 32), made=settings.now_utc(8 * DAY))
    source = user("old", registry_place, signs=True).make()
    shared.places[0].write(old, entry.sealed(old, SITE), source)
    registry.deletes = False
    with refused(NetworkError, "does not take the removal", "405"):
        stock.prune(shared, 7, remove=True)
    registry.deletes = True
    assert [line.tag for line in stock.prune(shared, 7, remove=True)] == [old.tag]
    assert len(stock.listed(shared)) == 2


@pytest.mark.parametrize("kind", ["filled", "registry_place"])
def test_a_reader_meanwhile_goes_on_when_prune_removes_a_file_whose_entry_was_read(kind, request, user, registry):  # noqa: F811
    """The wheel is compiled then, and that costs a line."""
    second = user("second", request.getfixturevalue(kind))
    source = second.cache.places[0]

    class Pruned(type(source)):
        def read(self, tag):
            data = super().read(tag)
            registry.blobs = {digest: data for digest, data in registry.blobs.items() if data != CONTENT}
            for blob in Path(self.name).glob("blobs/sha256/*"):
                blob.unlink()
            return data

    fields = {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}
    second.cache = dataclasses.replace(second.cache, places=[Pruned(**fields)])
    assert second.take() == []
    assert len([line for line in second.said.lines if "going on without it" in line]) == 1
