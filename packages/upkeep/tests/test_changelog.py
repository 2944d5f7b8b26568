"""Fixes between two versions by changelogs of .debs, and .debs that have none, another's, or harm in mind."""

import gzip

import pytest

from graphcrate.model.errors import IntegrityError
from tests.made import deb as locked_deb
from tests.made import place, refused
from tests.unit.inputs.test_debian import deb
from tests.unit.tars import file, symlink
from tests.unit.wheel_server import sha256
from upkeep.security.changelog import DebianFix, changelog, cves, named

TEXT = """openssl (3.0.2-1~deb12u2) bookworm-security; urgency=high

  * CVE-2099-0002, CVE-2099-0003: read too far (CVE-2099-0002)

 -- Somebody <a@b.example>  Sat, 01 Aug 2099 10:00:00 +0000

openssl (3.0.2-1~deb12u1) bookworm; urgency=medium

  * CVE-2099-0001

 -- Somebody <a@b.example>  Sat, 01 Jul 2099 10:00:00 +0000
"""
DOC = "usr/share/doc/libssl3"


def packed(text=TEXT):
    return gzip.compress(text.encode())


@pytest.mark.parametrize(
    ("newest", "have", "expected"),
    [
        ("3.0.2-1~deb12u2", "3.0.2-1~deb12u1", ("CVE-2099-0002", "CVE-2099-0003")),
        ("3.0.2-1~deb12u2", "3.0.1-1", ("CVE-2099-0002", "CVE-2099-0003", "CVE-2099-0001")),
        ("3.0.2-1~deb12u2+b1", "3.0.2-1~deb12u1+b3", ("CVE-2099-0002", "CVE-2099-0003")),
        ("3.0.2-1~deb12u2", "3.0.2-1~deb12u2", ()),
        ("4:12.2", "4:12.1", ()),
    ],
)
def test_ids_are_those_of_entries_above_the_version_that_is_there(newest, have, expected):
    assert named(TEXT, newest, have) == expected


def test_text_that_is_no_changelog_has_no_ids():
    for text in ("", "CVE-2099-0001", "\0" * 1000, "openssl (" * 10_000):
        assert named(text, "1", "0") == ()


def test_changelog_of_a_package_is_read_and_another_ones_is_not(tmp_path):
    for name in ("changelog.Debian.gz", "changelog.gz"):
        entries = [file(f"./{DOC}/copyright", b"x"), file(f"./{DOC}/{name}", packed())]
        assert changelog(deb(tmp_path, "libssl3", entries), "libssl3") == TEXT
    assert changelog(deb(tmp_path, "libssl3", entries), "libssl") == ""
    assert changelog(deb(tmp_path, "libssl3", [symlink(f"./{DOC}", "openssl")]), "libssl3") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["libssl3_1_all.deb"], "nothing is left beside it"


@pytest.mark.parametrize(
    "made",
    [lambda: b"no gzip", lambda: packed()[:30], lambda: gzip.compress(b"\0" * (200 << 20), 1)],
    ids=["no-gzip", "cut", "bomb"],
)
def test_changelog_that_is_damaged_or_a_bomb_is_refused(tmp_path, made):
    content = made()
    path = deb(tmp_path, "libssl3", [file(f"{DOC}/changelog.Debian.gz", content)])
    with refused(IntegrityError, "libssl3_1_all.deb"):
        changelog(path, "libssl3")


def test_package_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "x.deb"
    path.write_bytes(b"no ar")
    with refused(IntegrityError, "is not an ar archive"):
        changelog(path, "x")


def test_ids_of_fixes_are_those_of_fetched_changelogs_and_none_of_files_that_are_nowhere(
    server, cache, no_places, tmp_path
):
    made = deb(tmp_path, "libssl3", [file(f"{DOC}/changelog.Debian.gz", packed())]).read_bytes()
    newest = locked_deb("libssl3", "3.0.2-1~deb12u2", size=len(made), sha256=sha256(made), path="pool/libssl3.deb")
    fixes = [DebianFix("3.0.2-1~deb12u1", newest, "openssl")]
    ctx = place(cache, {**no_places, "DEBIAN_MIRROR": server.url("/debian")})
    assert cves(fixes, "bookworm", ctx).get("openssl", ()) == ()
    server.put("/debian/pool/libssl3.deb", made)
    assert cves(fixes, "bookworm", ctx)["openssl"] == ("CVE-2099-0002", "CVE-2099-0003")
