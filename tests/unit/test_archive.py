"""Debian's archives: signed lists, dependencies, mirrors. Names of mirrors are made up."""

import functools
import gzip
import hashlib
import itertools
import lzma

import pysequoia
import pytest

from graphcrate.host.connections import HttpError, Reason
from graphcrate.inputs.bases import archive
from graphcrate.inputs.bases.archive import Archive, Mirror, check_valid, fits, own_mirror, parse, version_key
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError

MIRROR = {"DEBIAN_MIRROR": "http://m.example/debian", "DEBIAN_SECURITY_MIRROR": "http://s.example/debian-security"}
LIBC = """\
Package: libc6
Source: glibc
Version: 2.36-9+deb12u14
Depends: libgcc-s1,
 libcrypt1 (>= 1:4.4.10-10~)
Architecture: amd64
Description: GNU C Library: Shared libraries
 Size: of no matter here
Filename: pool/main/g/glibc/libc6_2.36-9+deb12u14_amd64.deb
Size: 2759320
SHA256: BA4F88F73DBC3AE9055F3C20F4523BFDBAF1AD13FF95E258924F77D20B4FBEDF
"""


def stanza(name, version="1", **fields):
    values = {"Package": name, "Version": version, "Architecture": "amd64", "Size": "1", "SHA256": "0" * 64}
    values |= {"Filename": f"pool/{name}_{version}_amd64.deb"}
    return "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in {**values, **fields}.items()) + "\n"


class Server:
    """The archives' files by URL; `signer` signs their Release files."""

    def __init__(self, signer):
        self.signer, self.files, self.asked = signer, {}, []

    def put(self, place, lists, *, component="main", pack=lzma.compress, kind=".xz", by_hash=False):
        data = pack("".join(lists).encode())
        digest = hashlib.sha256(data).hexdigest()
        name = f"{component}/binary-amd64/Packages{kind}"
        lists_of = f"SHA256:\n {digest} {len(data)} {name}\n"
        release = f"Suite: x\nAcquire-By-Hash: {'yes' if by_hash else 'no'}\n{lists_of}"
        mode = pysequoia.SignatureMode.CLEAR
        self.files[f"{place}/InRelease"] = pysequoia.sign(self.signer.signer(), release.encode(), mode=mode)
        self.files[f"{place}/{component}/binary-amd64/by-hash/SHA256/{digest}" if by_hash else f"{place}/{name}"] = data

    def request(self, _, url):
        return type("Answer", (), {"body": self.read(url)})

    def download(self, url, partial, *, size, sha256, advance):
        data = self.read(url)
        assert size in (None, len(data))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise IntegrityError(f"{url} has other bytes")
        partial.write_bytes(data)
        advance(len(data))

    def read(self, url):
        self.asked.append(url)
        if url not in self.files:
            raise HttpError.of(Reason.NAME, url)
        return self.files[url]


@pytest.fixture(scope="module")
def signer():
    return pysequoia.Tsk.generate("Someone <someone@debian.example>")


@pytest.fixture
def server(signer, tmp_path, monkeypatch):
    server = Server(signer)
    (tmp_path / "keys.asc").write_text(str(signer.extract_certificate()))
    monkeypatch.setattr(archive, "_KEYS", tmp_path / "keys.asc")
    monkeypatch.setattr(archive, "Client", lambda _: server)
    return server


def opened(server, cache, *stanzas, updates=(), security=(), **more):
    server.put("http://m.example/debian/dists/bookworm", stanzas, **more)
    server.put("http://m.example/debian/dists/bookworm-updates", updates)
    server.put("http://s.example/debian-security/dists/bookworm-security", security)
    return Archive("bookworm", cache, MIRROR)


def names(packages):
    return [f"{package.name} {package.version}" for package in packages]


def test_stanzas_give_packages_with_their_pools_file_names():
    text = LIBC + "\nPackage: virtual\nVersion: 1\n\n" + stanza("libcap2", "1:2.66-4")
    first, second = parse(text.encode(), "http://x")
    assert (first.package.name, first.version, first.package.file.size) == ("libc6", "2.36-9+deb12u14", 2759320)
    assert first.package.file.sha256.startswith("ba4f88f7")
    assert second.package.file.name == "libcap2_1:2.66-4_amd64.deb"
    assert second.url == "http://x/pool/libcap2_1:2.66-4_amd64.deb"


def test_versions_are_ordered_as_debian_orders_them():
    for ordered in (
        ("1.0~rc1", "1.0", "1.0-1", "1.0-1+b1", "1.0a", "1.0.1", "1.2", "1.10", "2", "1:0.1"),
        ("2.36-9", "2.36-9+deb12u9", "2.36-9+deb12u14", "2.36-10~", "2.36-10"),
        ("1.0~~", "1.0~", "1.0"),
    ):
        assert all(version_key(a) < version_key(b) for a, b in itertools.pairwise(ordered))
    assert version_key("1.0") == version_key("1.0-0")
    relations = {"<<": "0.9", "<=": "1", "=": "1", ">=": "1", ">>": "1.1"}
    assert all(fits(version, f"{relation} 1") for relation, version in relations.items())
    assert not any(fits(version, f"{relation} 1") for relation, version in zip(relations, "12301", strict=True))


def test_the_newest_of_all_archives_with_all_that_it_depends_on(server, cache):
    found = opened(
        server,
        cache,
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
    assert names(found) == [
        *("dpkg 1", "gcc-12-base 12", "libc6 2.36-1+deb12u1", "liblzma5 1", "mawk 1", "media-types 1", "python3 1")
    ]


@pytest.mark.parametrize(
    ("stanzas", "message"),
    [
        ([], "the recipe needs a, which is not in it"),
        ([stanza("a", Depends="b (>= 2) | c"), stanza("b")], r"a needs b \(>= 2\) \| c, which"),
        ([stanza("a", Depends="b"), stanza("b", Conflicts="a (<< 2)")], "b and a of .* cannot be installed together"),
    ],
)
def test_what_cannot_be_installed_is_named(server, cache, stanzas, message):
    with pytest.raises(ResolutionError, match=message):
        opened(server, cache, *stanzas).resolve(["a"])


def test_packages_come_from_their_own_archive_by_their_hashes(server, cache, tmp_path):
    data = b"a package"
    fields = {"SHA256": hashlib.sha256(data).hexdigest(), "Size": str(len(data))}
    found = opened(server, cache, stanza("a"), security=[stanza("a", "2", **fields)])
    newest, old = found.available(["a", "absent"])
    assert names([newest, old]) == ["a 2", "a 1"]
    server.files["http://s.example/debian-security/pool/a_2_amd64.deb"] = data
    found.download([newest], tmp_path, lambda _: None)
    assert (tmp_path / "a_2_amd64.deb").read_bytes() == data
    server.files["http://m.example/debian/pool/a_1_amd64.deb"] = b"x"
    with pytest.raises(IntegrityError):
        found.download([old], tmp_path, lambda _: None)


GZIP = {"pack": functools.partial(gzip.compress, mtime=0), "kind": ".gz"}


@pytest.mark.parametrize("way", [{"by_hash": True}, GZIP, {"pack": bytes, "kind": ""}])
def test_lists_are_fetched_once(server, cache, way):
    assert names(opened(server, cache, stanza("a"), **way).available(["a"])) == ["a 1"]
    server.asked.clear()
    opened(server, cache, stanza("a"), **way)
    assert all(url.endswith("InRelease") for url in server.asked)


def test_a_list_that_nobody_signed_or_that_is_not_the_signed_one_is_refused(server, cache, tmp_path):
    opened(server, cache, stanza("a"))
    url = "http://m.example/debian/dists/bookworm"
    signed = server.files[f"{url}/InRelease"]
    server.files[f"{url}/InRelease"] = signed.replace(b"Suite: x", b"Suite: y")
    with pytest.raises(IntegrityError, match="not signed by a key of Debian's"):
        Archive("bookworm", cache, MIRROR)
    server.put(url, [stanza("b")])
    server.files[f"{url}/main/binary-amd64/Packages.xz"] = lzma.compress(b"x")
    with pytest.raises(IntegrityError, match="other bytes"):
        Archive("bookworm", cache, MIRROR)
    server.files[f"{url}/InRelease"] = signed
    another = pysequoia.Tsk.generate("Another <another@debian.example>").extract_certificate()
    (tmp_path / "keys.asc").write_text(str(another))
    with pytest.raises(IntegrityError, match="not signed by a key of Debian's"):
        Archive("bookworm", cache, MIRROR)


def test_a_release_file_ends():
    text = "Suite: x\nValid-Until: Sat, 28 Nov 2026 02:10:46 UTC\n"
    check_valid(text, "http://m.example", 1_795_831_846)
    check_valid("Suite: x\n", "http://m.example", 1e12)
    with pytest.raises(IntegrityError, match="was valid until Sat, 28 Nov 2026"):
        check_valid(text, "http://m.example", 1_795_831_847)


def test_a_mirror_without_the_suite_is_said(server, cache):
    with pytest.raises(NetworkError, match="Debian trixie's package lists cannot be fetched") as caught:
        Archive("trixie", cache, {"DEBIAN_MIRROR": "http://u:secret@m.example/debian"})
    assert "DEBIAN_MIRROR=" in caught.value.next_step
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
Components: main

Types: deb
URIs: http://safe.example/debian-security
Suites: bookworm-security
Components: main
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
