"""Debian's archives: signed lists, dependencies, mirrors. Names of mirrors are made up."""

import dataclasses
import functools
import gzip
import itertools
import lzma

import pysequoia
import pytest

from graphcrate.host.cache import Cache
from graphcrate.inputs.bases import archive
from graphcrate.inputs.bases.archive import Archive, Mirror, fits, own_mirror, version_key
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from tests.made import refused
from tests.unit.wheel_server import WheelServer, sha256


def stanza(name, version="1", **fields):
    values = {"Package": name, "Version": version, "Architecture": "amd64", "Size": "1", "SHA256": "0" * 64}
    values |= {"Description": "words\n Size: of no matter here"}
    values |= {"Filename": f"pool/{name}_{version}_amd64.deb"}
    return "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in {**values, **fields}.items()) + "\n"


@pytest.fixture(scope="module")
def signer():
    return pysequoia.Tsk.generate("Someone <someone@debian.example>")


@dataclasses.dataclass
class Debian:
    """Debian's archives on loopback; `signer` signs their Release files."""

    server: WheelServer
    signer: pysequoia.Tsk
    cache: Cache

    def put(
        self, suite, lists, *, pack=lzma.compress, kind=".xz", by_hash=False, until="Fri, 01 Jan 2100 00:00:00 UTC"
    ):
        data, place = pack("".join(lists).encode()), f"/debian/dists/{suite}"
        name = f"main/binary-amd64/Packages{kind}"
        path = f"main/binary-amd64/by-hash/SHA256/{sha256(data)}" if by_hash else name
        release = f"Suite: x\nValid-Until: {until}\nAcquire-By-Hash: {'yes' if by_hash else 'no'}\n"
        release += f"SHA256:\n {self.server.put(f'{place}/{path}', data)} {len(data)} {name}\n"
        signed = pysequoia.sign(self.signer.signer(), release.encode(), mode=pysequoia.SignatureMode.CLEAR)
        self.server.put(f"{place}/InRelease", signed)

    def open(self):
        mirror = self.server.url("/debian")
        return Archive("bookworm", self.cache, {"DEBIAN_MIRROR": mirror, "DEBIAN_SECURITY_MIRROR": mirror})

    def opened(self, *stanzas, updates=(), security=(), **more):
        self.put("bookworm", stanzas, **more)
        self.put("bookworm-updates", updates)
        self.put("bookworm-security", security)
        return self.open()


@pytest.fixture
def debian(server, signer, cache, tmp_path, monkeypatch):
    (tmp_path / "keys.asc").write_text(str(signer.extract_certificate()))
    monkeypatch.setattr(archive, "_KEYS", tmp_path / "keys.asc")
    return Debian(server, signer, cache)


def names(packages):
    return [f"{package.name} {package.version}" for package in packages]


#: of 0, 1 and 2 those that are so to 1
RELATIONS = {"<<": ["0"], "<=": ["0", "1"], "=": ["1"], ">=": ["1", "2"], ">>": ["2"]}


def test_versions_are_ordered_as_debian_orders_them():
    for ordered in (
        "1.0~~ 1.0~ 1.0~rc1 1.0 1.0-1 1.0-1+b1 1.0a 1.0.1 1.2 1.10 2 1:0.1",
        "2.36-9 2.36-9+deb12u9 2.36-9+deb12u14 2.36-10~ 2.36-10",
    ):
        assert all(version_key(a) < version_key(b) for a, b in itertools.pairwise(ordered.split()))
    assert version_key("1.0") == version_key("1.0-0")
    taken = {relation: [version for version in "012" if fits(version, f"{relation} 1")] for relation in RELATIONS}
    assert taken == RELATIONS


def test_the_newest_of_all_archives_with_all_that_it_depends_on(debian):
    found = debian.opened(
        stanza("dpkg", Essential="yes", Pre_Depends="libc6 (>= 2), liblzma5:any"),
        stanza("libc6", "2.36", Depends="libgcc-s1 (>= 12)"),
        stanza("gcc-12-base", "12", Provides="libgcc-s1 (= 12.2), more"),
        stanza("liblzma5"),
        stanza("unwanted", Essential="no"),
        stanza("python3", Depends="mime-support | media-types, awk, other | liblzma5", Recommends="unwanted"),
        stanza("other"),
        stanza("media-types"),
        stanza("gawk", Provides="awk", Priority="optional"),
        stanza("mawk", Provides="awk", Priority="required"),
        updates=[stanza("libc6", "2.36-1")],
        security=[stanza("libc6", "2.36-1+deb12u1", Depends="libgcc-s1")],
    ).resolve(["python3"])
    expected = "dpkg 1, gcc-12-base 12, libc6 2.36-1+deb12u1, liblzma5 1, mawk 1, media-types 1, python3 1"
    assert ", ".join(names(found)) == expected


def test_what_cannot_be_installed_is_named(debian):
    for message, listed in {
        "the recipe needs a, which is not in it": [],
        "a needs b (>= 2) | c, which": [stanza("a", Depends="b (>= 2) | c"), stanza("b")],
    }.items():
        with refused(ResolutionError, message):
            debian.opened(*listed).resolve(["a"])
    with pytest.raises(ResolutionError) as caught:
        debian.opened(stanza("graphviz"), stanza("zlib1g")).resolve(["graphvz"])
    assert caught.value.next_step == "correct the name; near it: graphviz"


def test_packages_come_by_their_hashes(debian, tmp_path):
    data = b"a package"
    found = debian.opened(stanza("a"), security=[stanza("a", "2", SHA256=sha256(data), Size=str(len(data)))])
    newest, old = found.available(["a", "absent"])
    assert names([newest, old]) == ["a 2", "a 1"]
    debian.server.put("/debian/pool/a_2_amd64.deb", data)
    found.download([newest], tmp_path, lambda _: None)
    assert (tmp_path / "a_2_amd64.deb").read_bytes() == data
    debian.server.put("/debian/pool/a_1_amd64.deb", b"x")
    with pytest.raises(IntegrityError):
        found.download([old], tmp_path, lambda _: None)


GZIP = {"pack": functools.partial(gzip.compress, mtime=0), "kind": ".gz"}


@pytest.mark.parametrize("way", [{"by_hash": True}, GZIP, {"pack": bytes, "kind": ""}])
def test_lists_are_fetched_once(debian, way):
    assert names(debian.opened(stanza("a"), **way).available(["a"])) == ["a 1"]
    debian.server.asked.clear()
    debian.open()
    assert all(path.endswith("InRelease") for path in debian.server.paths())


def test_a_list_that_is_not_what_debian_signed_or_no_longer_valid_is_refused(debian, tmp_path):
    debian.opened(stanza("a"))
    place, files, unsigned = "/debian/dists/bookworm", debian.server.bodies, "not signed by a key of Debian's"
    signed = files[f"{place}/InRelease"]
    files[f"{place}/InRelease"] = signed.replace(b"Suite: x", b"Suite: y")
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
    (tmp_path / "keys.asc").write_text(str(another))
    with refused(IntegrityError, unsigned):
        debian.open()


def test_a_mirror_without_the_suite_is_said(debian):
    mirror = debian.server.url("/debian").replace("//", "//u:secret@")
    with refused(NetworkError, "Debian trixie's package lists cannot be fetched", "DEBIAN_MIRROR=") as caught:
        Archive("trixie", debian.cache, {"DEBIAN_MIRROR": mirror})
    assert "secret" not in str(caught.value)


def test_debians_own_keys_are_whole():
    keys = pysequoia.Cert.split_file(str(archive._KEYS))
    assert {name.split("(")[1][:2] for key in keys for name in map(str, key.user_ids)} == {"11", "12", "13"}


def test_mirror_from_the_environment_wins(tmp_path):
    mirror = {"DEBIAN_MIRROR": "http://mirror.example/debian/"}
    assert own_mirror(mirror) == Mirror("http://mirror.example/debian", "http://mirror.example/debian-security")
    assert own_mirror({"DEBIAN_MIRROR": "http://mirror.example/snap/1"}).security == ""
    assert own_mirror({**mirror, "DEBIAN_SECURITY_MIRROR": "http://b.example/s"}).security == "http://b.example/s"
    assert own_mirror({}, tmp_path) is None


ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb https://download.example/linux/debian bookworm stable
deb [signed-by=/k.gpg arch=amd64] http://mirror.example/debian/ bookworm main
deb http://mirror.example/debian bookworm-updates main
deb http://safe.example/debian-security bookworm-security main
"""
DEB822 = """\
Types: deb
# http://snapshot.example/debian
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates

Types: deb
URIs: http://safe.example/debian-security
Suites: bookworm-security
"""


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("sources.list", ONE_LINE, True),
        ("sources.list.d/debian.sources", DEB822, True),
        ("sources.list", "deb http://ubuntu.example/ubuntu noble main\n", False),
        ("sources.list", "deb mirror+file:/etc/mirrors bookworm main\n", False),
    ],
)
def test_mirror_of_a_debian_host(tmp_path, name, text, known):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    mirror = Mirror("http://mirror.example/debian", "http://safe.example/debian-security")
    assert own_mirror({}, tmp_path) == (mirror if known else None)
