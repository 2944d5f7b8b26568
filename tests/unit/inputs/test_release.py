"""Signed lists that are not those asked for: of another suite, of another time, without an end. All signatures hold."""

import lzma

import pysequoia
import pytest

from debroot import release
from debroot.errors import ListError
from debroot.release import SuiteSource
from graphcrate.host import settings
from graphcrate.inputs.bases import contents
from graphcrate.model import limits
from graphcrate.model.errors import IntegrityError, NetworkError
from tests.made import place, refused
from tests.unit import small_debian
from tests.unit.small_debian import stanza
from tests.unit.wheel_server import Fault

NOW, LATER, OLD = "Sat, 09 Aug 2025 10:00:00 UTC", "Sun, 10 Aug 2025 10:00:00 UTC", "Sat, 21 Nov 2020 02:10:46 UTC"
MAIN, UPDATES, SECURITY = "bookworm", "bookworm-updates", "bookworm-security"
HOLED, FIXED = stanza("libssl3", "3.0"), stanza("libssl3", "3.0+deb12u9")


@pytest.fixture
def debian(server, cache, progress, tmp_path, monkeypatch):
    """Its archives, with a fix in security's alone."""
    found = small_debian.trusted(server, cache, progress, tmp_path, monkeypatch)
    found.put(MAIN, [HOLED])
    found.put(UPDATES, [])
    found.put(SECURITY, [FIXED])
    return found


def path(suite):
    return f"/debian/dists/{suite}/InRelease"


def taken(debian, **more):
    """The newest version that a lock would take."""
    return debian.open(**more).available(["libssl3"])[0].version


def serving(suite, another):
    """A whole suite in another one's place, lists and all: its signature is real."""

    def game(debian):
        bodies = debian.server.bodies
        debian.put(another, [HOLED])
        beginning = f"/debian/dists/{another}/"
        for name in [name for name in bodies if name.startswith(beginning)]:
            bodies[name.replace(beginning, f"/debian/dists/{suite}/")] = bodies[name]

    return game


def signing(suite, **fields):
    """The suite with other fields in what is signed."""
    return lambda debian: debian.put(suite, [HOLED], says={name.replace("_", "-"): fields[name] for name in fields})


def signed(text):
    signer = small_debian.signer().signer()
    return pysequoia.sign(signer, text.encode(), mode=pysequoia.SignatureMode.CLEAR)


def codename_outside_of_the_signature(debian):
    serving(SECURITY, UPDATES)(debian)
    body = debian.server.bodies[path(SECURITY)]
    debian.server.bodies[path(SECURITY)] = f"Codename: {SECURITY}\nSuite: stable-security\n\n".encode() + body


def codename_below_the_hashes(debian):
    text = f"Suite: stable-security\nDate: {NOW}\nSHA256:\n {'0' * 64} 1 main/x\nCodename: {SECURITY}\n"
    debian.server.bodies[path(SECURITY)] = signed(text)


def two_documents(debian):
    honest = debian.server.bodies[path(SECURITY)]
    serving(SECURITY, UPDATES)(debian)
    debian.server.bodies[path(SECURITY)] = debian.server.bodies[path(SECURITY)] + honest


def redirected(debian):
    debian.server.redirects[path(SECURITY)] = debian.server.url(path(UPDATES))
    del debian.server.bodies[path(SECURITY)]


def longer_than_signed(debian):
    name = "/debian/dists/bookworm-security/main/binary-amd64/Packages.xz"
    debian.server.bodies[name] = lzma.compress(HOLED.encode()) + b"\0" * 1_000_000


def larger_than_any_list(debian):
    listed = f"SHA256:\n {'0' * 64} {release.LARGEST + 1} main/binary-amd64/Packages.xz\n"
    debian.server.bodies[path(MAIN)] = signed(f"Codename: {MAIN}\nSuite: stable\nDate: {NOW}\n{listed}")


def release_without_an_end(debian):
    debian.server.bodies[path(MAIN)] = b"x" * (limits.RELEASE + 1)


def security_is(**fault):
    return lambda debian: debian.server.faults.update({path(SECURITY): [Fault(**fault)] * 99})


def security_is_gone(debian):
    del debian.server.bodies[path(SECURITY)]


ANOTHER = "has the signed lists of another suite"
GAMES = {
    "updates as security": (serving(SECURITY, UPDATES), ANOTHER),
    "main as security": (serving(SECURITY, MAIN), ANOTHER),
    "another suite's security": (serving(SECURITY, "trixie-security"), ANOTHER),
    "another suite": (serving(MAIN, "trixie"), ANOTHER),
    "security as main": (serving(MAIN, SECURITY), ANOTHER),
    "backports as main": (serving(MAIN, "bookworm-backports"), ANOTHER),
    "what is proposed as updates": (serving(UPDATES, "bookworm-proposed-updates"), ANOTHER),
    "security of before bullseye as main": (signing(MAIN, Label="Debian-Security", Suite="oldstable"), ANOTHER),
    "Suite of security with Codename of main": (signing(MAIN, Suite="stable-security"), ANOTHER),
    "Codename of updates with Suite of security": (signing(SECURITY, Codename=UPDATES), ANOTHER),
    "no Codename": (signing(MAIN, Codename=""), ANOTHER),
    "Codename that begins alike": (signing(MAIN, Codename="bookwormier"), ANOTHER),
    "Codename outside of the signature": (codename_outside_of_the_signature, "signed"),
    "Codename below the hashes": (codename_below_the_hashes, ANOTHER),
    "two signed documents": (two_documents, "signed"),
    "redirect to another suite": (redirected, ANOTHER),
    "no date": (signing(MAIN, Date=""), "says no date"),
    "a date that is none": (signing(MAIN, Date="yesterday"), "says no date"),
    "a date to come": (signing(MAIN, Date="Sat, 09 Aug 2098 10:00:00 UTC"), "which is to come"),
    "valid until before today": (signing(SECURITY, Valid_Until=OLD), "was valid until"),
    "valid until nothing that can be read": (signing(SECURITY, Valid_Until="ever"), "can be read"),
    "a list that is longer than was signed": (longer_than_signed, "bytes instead of"),
    "a list that is larger than any": (larger_than_any_list, "more than is read"),
    "a Release file without an end": (release_without_an_end, "the answer is too large"),
    "no list of security": (security_is_gone, "no mirror gives their list"),
    "forbidden list of security": (security_is(status=403), "no mirror gives their list"),
    "list of security gone for good": (security_is(status=410), "no mirror gives their list"),
}


@pytest.mark.parametrize("name", GAMES)
def test_signed_lists_that_are_not_those_asked_for_are_refused(debian, name):
    play, message = GAMES[name]
    play(debian)
    with pytest.raises((IntegrityError, NetworkError)) as caught:
        debian.open()
    assert message in str(caught.value)
    assert "DEBIAN_" in caught.value.next_step


@pytest.mark.parametrize("suite", [MAIN, SECURITY])
def test_older_list_than_the_one_seen_does_not_count_and_is_said(debian, suite, progress):
    debian.put(suite, [FIXED], date=LATER)
    assert (taken(debian), progress.lines) == ("3.0+deb12u9", [])
    debian.put(SECURITY, [])
    debian.put(MAIN, [HOLED])  # of the day before
    debian.put(suite, [HOLED])
    debian.put(SECURITY if suite == MAIN else MAIN, [stanza("other")], date=LATER)
    assert taken(debian) == "3.0+deb12u9"
    assert [line for line in progress.lines if suite in line and "older than those seen before" in line]


def test_newer_list_whose_validity_is_over_is_not_taken_from_the_cache_either(debian):
    debian.put(SECURITY, [FIXED], date=LATER, until="Sun, 10 Aug 2025 11:00:00 UTC")
    record = debian.cache.path("bases", "releases", SECURITY)
    debian.cache.keep(record, debian.server.bodies[path(SECURITY)])
    debian.put(SECURITY, [HOLED])
    with refused(IntegrityError, "was valid until Sun, 10 Aug 2025"):
        debian.open()


@pytest.mark.parametrize("kept", ["another suite's", "unsigned", "damaged"])
def test_list_in_the_cache_that_does_not_hold_is_not_compared(debian, kept):
    debian.put(UPDATES, [HOLED], date=LATER)
    document = debian.server.bodies[path(UPDATES)]
    if kept != "another suite's":
        document = f"Codename: {SECURITY}\nSuite: stable-security\nDate: {LATER}\n".encode()
    record = debian.cache.path("bases", "releases", SECURITY)
    debian.cache.keep(record, document)
    if kept == "damaged":
        record.write_bytes(record.read_bytes()[:-1])
    assert taken(debian) == "3.0+deb12u9"


def test_mirror_that_lags_is_asked_after_one_that_does_not(debian):
    """The second mirror is a day behind, and the first is down on the next day: what was seen counts."""
    debian.put(MAIN, [FIXED], date=LATER, root="/ahead/debian", by_hash=True)
    mirrors = f"{debian.server.url('/ahead/debian')} {debian.server.url('/debian')}"
    assert taken(debian, DEBIAN_MIRROR=mirrors) == "3.0+deb12u9"
    for name in [name for name in debian.server.bodies if name.startswith("/ahead")]:
        del debian.server.bodies[name]
    debian.put(SECURITY, [])
    assert taken(debian, DEBIAN_MIRROR=mirrors) == "3.0+deb12u9"


def test_snapshot_address_gives_the_lists_of_its_day(debian, progress):
    """Asked for on purpose: neither what was seen since nor the end of their validity counts; who signed them does."""
    taken(debian)
    day = "/archive/debian/20201122T000000Z"
    for suite in (MAIN, UPDATES, SECURITY):
        debian.put(suite, [HOLED], date=OLD, until="Sat, 28 Nov 2020 02:10:46 UTC", root=day)
    snapshot = dict.fromkeys(("DEBIAN_MIRROR", "DEBIAN_SECURITY_MIRROR"), debian.server.url(day))
    found = debian.open(**snapshot)
    assert (found.listed, found.available(["libssl3"])[0].version) == ("20201121T021046Z", "3.0")
    assert taken(debian) == "3.0+deb12u9"
    assert progress.lines == []
    later = {name: address.replace("1122", "1229") for name, address in snapshot.items()}
    for name in list(debian.server.bodies):
        debian.server.bodies[name.replace("20201122", "20201229")] = debian.server.bodies[name]
    with refused(IntegrityError, "was valid until Sat, 28 Nov 2020"):
        debian.open(**later)


@pytest.mark.parametrize(
    ("suite", "fields"),
    [
        ("bookworm", "Label: Debian\nSuite: oldstable\nCodename: bookworm"),
        ("bookworm-updates", "Label: Debian\nSuite: oldstable-updates\nCodename: bookworm-updates"),
        ("bookworm-security", "Label: Debian-Security\nSuite: oldoldstable-security\nCodename: bookworm-security"),
        ("forky", "Label: Debian\nSuite: testing\nCodename: forky"),
        ("sid", "Label: Debian\nSuite: unstable\nCodename: sid"),
        ("jammy", "Label: Ubuntu\nSuite: jammy\nCodename: jammy"),
        ("jammy-updates", "Label: Ubuntu\nSuite: jammy-updates\nCodename: jammy"),
        ("jammy-security", "Label: Ubuntu\nSuite: jammy-security\nCodename: jammy"),
    ],
)
def test_names_of_real_suites_are_taken(suite, fields):
    """As Debian's and Ubuntu's had them in November 2026; Suite's word for a release changes with the next one."""
    release.check_suite(f"{fields}\n", SuiteSource("http://a.example", suite))


def test_suite_of_ubuntus_updates_is_not_taken_for_the_release_itself():
    text = "Label: Ubuntu\nSuite: jammy-updates\nCodename: jammy\n"
    with pytest.raises(ListError, match=ANOTHER):
        release.check_suite(text, SuiteSource("http://a.example", "jammy"))


def test_index_of_files_of_another_suite_is_refused(debian):
    debian.put_contents("trixie", "usr/lib/x86_64-linux-gnu/libx.so.1 libs/libx1")
    bodies = debian.server.bodies
    for name in [name for name in bodies if "/dists/trixie/" in name]:
        bodies[name.replace("trixie", MAIN)] = bodies[name]
    mirror = {"DEBIAN_MIRROR": debian.server.url("/debian"), "DEBIAN_FALLBACK": "none"}
    with refused(NetworkError, ANOTHER):
        contents.index(MAIN, place(debian.cache, mirror))


def test_clock_a_day_behind_is_no_date_to_come(debian, monkeypatch):
    monkeypatch.setattr(settings, "now", lambda: 1754733600.0 - 80_000)  # NOW is 1754733600
    assert taken(debian) == "3.0+deb12u9"
