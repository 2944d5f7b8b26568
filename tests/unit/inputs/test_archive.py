"""Debian's archives: signed lists and dependencies. Names of mirrors are made up."""

import functools
import gzip
import lzma

import pysequoia
import pytest

from debroot import release
from graphcrate.inputs.bases import archive
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from tests.made import refused
from tests.unit import small_debian
from tests.unit.small_debian import stanza
from tests.unit.wheel_server import Fault


@pytest.fixture
def debian(server, cache, progress, tmp_path, monkeypatch):
    return small_debian.trusted(server, cache, progress, tmp_path, monkeypatch)


def names(packages):
    return [f"{package.name} {package.version}" for package in packages]


@pytest.mark.parametrize(
    ("package", "libraries"),
    [
        ("libcairo2-dev", ("libcairo2",)),
        ("libsnappy-dev", ("libsnappy1v5",)),
        ("liblapack-dev", ("liblapack3",)),
        ("libmumps-dev", ("libcmumps5", "libdmumps5", "libzmumps5")),
        ("libsuitesparse-dev", ()),  # too many to name before it is known to which it is linked
        ("libeigen3-dev", ()),
        ("swig", ()),
        ("libabsent-dev", ()),
    ],
)
def test_libraries_of_a_package_to_compile_with_are_those_of_its_version(debian, package, libraries):
    """As bookworm has them, the first of each kind."""
    of_suitesparse = ", ".join(f"lib{name} (= 1:5.12)" for name in ("amd2", "btf1", "camd2", "umfpack5"))
    suite = debian.opened(
        stanza(
            "libcairo2-dev",
            "1.16",
            Depends="libcairo2 (= 1.16), libcairo-gobject2 (= 1.16), libx11-dev, libxcb1 (>= 1)",
        ),
        stanza("libsnappy-dev", "1.1", Depends="libsnappy1v5 (= 1.1)"),
        stanza("liblapack-dev", "3.11", Depends="liblapack3 (= 3.11), libblas-dev | libblas.so, libtmglib-dev"),
        stanza("libmumps-dev", "5", Depends=", ".join(f"lib{kind}mumps5 (= 5)" for kind in "cdz")),
        stanza("libsuitesparse-dev", "1:5.12", Depends=of_suitesparse),
        stanza("libeigen3-dev", Suggests="libeigen3-doc"),
        stanza("swig", Depends="swig4.0 (= 1)"),
    )
    assert suite.lists.linked_by(package) == libraries


def test_uninstallable_package_is_named_with_its_dependency(debian):
    for message, listed in {
        "the recipe needs a, which is not in it": [],
        "a needs b (>= 2) | c, which": [stanza("a", Depends="b (>= 2) | c"), stanza("b")],
    }.items():
        with refused(ResolutionError, message):
            debian.opened(*listed).resolve(["a"])
    with pytest.raises(ResolutionError) as caught:
        debian.opened(stanza("graphviz"), stanza("zlib1g")).resolve(["graphvz"])
    assert caught.value.next_step == "correct the name; near it: graphviz"


def test_locked_package_has_hash_path_and_list_time(debian):
    debian.put("bookworm", [stanza("a")], date="Sat, 09 Aug 2025 10:00:00 UTC")
    debian.put("bookworm-updates", [], date="Sun, 10 Aug 2025 10:00:00 UTC")
    filename = "pool/updates/main/a/a/a_2_amd64.deb"
    security = stanza("a", "2", SHA256="A" * 64, Size="9", Filename=filename)
    debian.put("bookworm-security", [security], date="Mon, 11 Aug 2025 02:03:04 UTC")
    found = debian.open()
    newest, old = found.available(["a", "absent"])
    assert names([newest, old]) == ["a 2", "a 1"]
    assert (newest.path, newest.file.name, newest.file.size, newest.file.sha256) == (
        filename,
        "a_2_amd64.deb",
        9,
        "a" * 64,
    )
    assert found.lists.paths() == {"a" * 64: filename, "0" * 64: "pool/a_1_amd64.deb"}
    assert found.listed == "20250811T020304Z"


GZIP = {"pack": functools.partial(gzip.compress, mtime=0), "kind": ".gz"}


@pytest.mark.parametrize("way", [{"by_hash": True}, GZIP, {"pack": bytes, "kind": ""}])
def test_package_lists_are_downloaded_once(debian, way):
    assert names(debian.opened(stanza("a"), **way).available(["a"])) == ["a 1"]
    debian.server.asked.clear()
    debian.open()
    assert all(path.endswith("InRelease") for path in debian.server.paths())


def test_unsigned_or_expired_package_list_is_refused(debian, tmp_path):
    debian.opened(stanza("a"))
    place, files, unsigned = "/debian/dists/bookworm", debian.server.bodies, "not signed by a key of Debian's"
    signed = files[f"{place}/InRelease"]
    files[f"{place}/InRelease"] = signed.replace(b"Suite: stable", b"Suite: stably")
    with refused(IntegrityError, unsigned):
        debian.open()
    debian.put("bookworm", [stanza("b")])
    files[f"{place}/main/binary-amd64/Packages.xz"] = lzma.compress(b"x")
    with refused(IntegrityError, "another file under this name"):
        debian.open()
    debian.put("bookworm", [stanza("a")], until="Sat, 28 Nov 2020 02:10:46 UTC")
    with refused(IntegrityError, "was valid until Sat, 28 Nov 2020"):
        debian.open()
    files[f"{place}/InRelease"] = signed
    another = pysequoia.Tsk.generate("Another <another@debian.example>").extract_certificate()
    (tmp_path / "debian-archive-keys.asc").write_text(str(another))
    with refused(IntegrityError, unsigned):
        debian.open()


def test_mirror_without_the_suite_is_a_network_error(debian):
    mirror = debian.server.url("/debian").replace("//", "//u:secret@")
    with refused(NetworkError, "Debian trixie's package lists cannot be fetched", "DEBIAN_MIRROR=") as caught:
        debian.open("trixie", DEBIAN_MIRROR=mirror)
    assert "secret" not in str(caught.value)


def test_debian_archive_keys_are_complete():
    keys = pysequoia.Cert.split_file(str(release.KEYS / "debian-archive-keys.asc"))
    assert {name.split("(")[1][:2] for key in keys for name in map(str, key.user_ids)} == {"11", "12", "13"}


# -- several mirrors

OLD, OVER = "Sat, 21 Nov 2020 02:10:46 UTC", "Sat, 28 Nov 2020 02:10:46 UTC"


def two(debian):
    """The variables of a user who names two mirrors."""
    first, second = debian.server.url("/one/debian"), debian.server.url("/two/debian")
    return {"DEBIAN_MIRROR": f"{first} {second}", "DEBIAN_SECURITY_MIRROR": f"{first}-security {second}-security"}


def put_two(debian, suite="bookworm"):
    """Two mirrors: the first has version 1 of a package, the second 2."""
    for version, root in (("1", "/one/debian"), ("2", "/two/debian")):
        debian.put(suite, [stanza("a", version)], root=root)
        debian.put(f"{suite}-updates", [], root=root)
        debian.put(f"{suite}-security", [], root=f"{root}-security")


def test_package_lists_come_from_the_first_mirror(debian):
    put_two(debian)
    assert names(debian.open(**two(debian)).available(["a"])) == ["a 1"]
    assert not [path for path in debian.server.paths() if path.startswith("/two")]
    assert debian.progress.lines == []


def out_of_date(debian):
    debian.put("bookworm", [stanza("a", "0")], root="/one/debian", until=OVER, date=OLD)


def unsigned(debian):
    path = "/one/debian/dists/bookworm/InRelease"
    debian.server.bodies[path] = debian.server.bodies[path].replace(b"Suite: stable", b"Suite: stably")


def gone(debian):
    del debian.server.bodies["/one/debian/dists/bookworm/InRelease"]


def busy(debian):
    debian.server.faults["/one/debian/dists/bookworm/InRelease"] = [Fault(status=503)] * 99


def without_a_section(debian):
    debian.put("bookworm", [stanza("a", "0")], root="/one/debian", section="contrib")


@pytest.mark.parametrize("spoil", [out_of_date, unsigned, gone, busy, without_a_section])
def test_package_lists_come_from_the_next_mirror_with_a_note(debian, no_places, spoil):
    put_two(debian)
    spoil(debian)
    assert names(debian.open(**two(debian)).available(["a"])) == ["a 2"]
    (line,) = debian.progress.lines
    assert "/one/debian/dists/bookworm" in line


def test_package_lists_invalid_on_all_mirrors_are_refused(debian):
    put_two(debian)
    out_of_date(debian)
    gone_too = "/two/debian/dists/bookworm/InRelease"
    del debian.server.bodies[gone_too]
    with refused(IntegrityError, "was valid until"):
        debian.open(**two(debian))


def test_mirror_without_updates_or_security_is_accepted_where_that_is_asked_for(debian):
    debian.put("bookworm", [stanza("a")])
    for mirror in ("", debian.server.url("/elsewhere")):
        with refused(
            NetworkError,
            "Debian bookworm gets security updates, and no mirror gives their list",
            "WITHOUT_SECURITY=yes (--without-security)",
        ):
            debian.open(DEBIAN_SECURITY_MIRROR=mirror)
    debian.progress.lines.clear()
    found = debian.open(DEBIAN_SECURITY_MIRROR="", without_security=True)
    assert names(found.available(["a"])) == ["a 1"]
    assert found.lacks_security
    assert sorted(debian.progress.lines) == [
        f"Debian bookworm: no mirror has its {kind} list; going on without it" for kind in ("security", "updates")
    ]


def test_failing_security_mirror_is_a_network_error(debian, no_places):
    debian.put("bookworm", [stanza("a")])
    debian.server.faults["/debian-security/dists/bookworm-security/InRelease"] = [Fault(status=503)] * 99
    with refused(NetworkError, "bookworm-security", "HTTP error (503"):
        debian.open(DEBIAN_SECURITY_MIRROR=debian.server.url("/debian-security"))


def test_retired_suite_is_read_from_its_archive_despite_expiry(debian, monkeypatch):
    retired = {"DEBIAN_ARCHIVE": debian.server.url("/retired")}
    debian.put("bookworm", [stanza("a", "11")], root="/retired/debian", until=OVER, date=OLD)
    fixes = [stanza("a", "11-2"), stanza("b", "11")]
    debian.put("bookworm-security", fixes, root="/retired/debian-security", until=OVER, date=OVER)
    with refused(NetworkError, "bookworm's package lists cannot be fetched"):
        debian.open(**retired)
    monkeypatch.setattr(archive.suites, "retired", lambda suite, today: "yes" if suite == "bookworm" else "no")
    found = debian.open(**retired)
    assert names(found.resolve(["a", "b"])) == ["a 11-2", "b 11"]
    assert found.listed == "20201128T021046Z"
    with refused(NetworkError, "bookworm's package lists cannot be fetched"):
        debian.open(DEBIAN_ARCHIVE="none")
    # While a mirror still has it, with lists that are over, the archive's count.
    debian.put("bookworm", [stanza("a", "10")], until=OVER, date=OLD)
    assert names(debian.open(**retired).available(["a"])) == ["a 11-2", "a 11"]
