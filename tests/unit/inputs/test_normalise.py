"""From the tree of a Debian system to a base layer."""

import io
import os
import re
import tarfile

import pytest

from debroot.deb import FileOwner
from debroot.normalise import DPKG_RULES
from graphcrate.compat.facts.identities import identities
from graphcrate.inputs.bases.normalise import entries, private_keys
from graphcrate.model.errors import BuildError
from ocilayout.tar import END_OF_ARCHIVE

TIME = 315_532_800
ONE_LINE = """\
deb http://mirror.example/debian bookworm main
deb http://mirror.example/debian bookworm-updates main
deb http://mirror.example/debian-security bookworm-security main
"""

LEFT = """
etc/machine-id etc/hostname etc/resolv.conf etc/hosts etc/passwd- etc/.pwd.lock etc/apt/sources.list
var/log/dpkg.log var/log/apt/term.log var/cache/apt/pkgcache.bin var/cache/ldconfig/aux-cache
var/lib/apt/lists/lock var/lib/dpkg/status-old var/lib/dpkg/lock-frontend var/cache/debconf/templates.dat-old
dev/null tmp/x var/tmp/x run/utmp
usr/share/man/man1/ls.1.gz usr/share/locale/de/LC_MESSAGES/apt.mo usr/share/info/dir usr/share/doc/apt/README
usr/share/lintian/overrides/apt
"""
KEPT = """
etc/passwd etc/shadow var/log/ usr/share/doc/apt/copyright usr/share/man/man1/ usr/share/locale/locale.alias
var/lib/dpkg/status var/lib/dpkg/info/apt.list run/lock/ dev/ tmp/ var/cache/debconf/templates.dat
usr/share/documentation
"""


def make(root, files):
    """A tree of files by path; one that ends with a slash is a folder."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_bytes(content)


def tidied(root, owners=(), suite="bookworm"):
    data = b"".join(entries(root, dict(owners), suite))
    assert len(data) % 512 == 0
    return tarfile.open(fileobj=io.BytesIO(data + END_OF_ARCHIVE), mode="r:")


def test_normalised_base_omits_machine_specific_files(tmp_path):
    make(tmp_path, dict.fromkeys((*LEFT.split(), *KEPT.split()), b"x"))
    with tidied(tmp_path) as tar:
        names = tar.getnames()
    assert names == sorted(names)
    wanted = {path.rstrip("/") for path in KEPT.split()} | {"etc/dpkg/dpkg.cfg.d/graphcrate"}
    folders = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_dir()}
    assert wanted <= set(names) <= wanted | folders
    assert not set(names) & set(LEFT.split())


def test_normalised_base_omits_machine_identities(tmp_path):
    """Whichever package made them, and what is below where that is a folder."""
    listed = [path.strip("/").replace("*", "some") for one in identities() for path in one.paths]
    make(
        tmp_path, dict.fromkeys([*(path for path in listed if not path.endswith("main")), "etc/ssh/sshd_config"], b"x")
    )
    make(tmp_path, {f"{path}/base/1": b"x" for path in listed if path.endswith("main")})
    with tidied(tmp_path) as tar:
        names = tar.getnames()
    assert "etc/ssh/sshd_config" in names
    assert [name for name in names if any(f"{name}/".startswith(f"{path}/") for path in listed)] == []


KEY = b"-----BEGIN RSA PRIVATE KEY-----\nxx\n-----END RSA PRIVATE KEY-----\n"


def test_normalised_base_omits_generated_private_keys(tmp_path):
    made = {"etc/some/a.key": KEY, "var/lib/some/both.pem": b"-----BEGIN CERTIFICATE-----\n" + KEY}
    others = {
        "etc/some/brought.key": KEY,
        "etc/some/certificate.pem": b"-----BEGIN CERTIFICATE-----\n",
        "etc/some/text": b"a key begins so: " + KEY,
        "usr/share/some/example.key": KEY,
        "var/lib/dpkg/info/some.postinst": KEY,
        "var/lib/dpkg/info/some.list": b"/.\n/etc/some/brought.key\n",
    }
    make(tmp_path, made | others | {"etc/ssl/private/ssl-cert-snakeoil.key": KEY})
    (tmp_path / "etc/some/link").symlink_to("a.key")
    assert private_keys(tmp_path) == sorted(made)
    data = b"".join(entries(tmp_path, {}, "bookworm", private_keys(tmp_path)))
    with tarfile.open(fileobj=io.BytesIO(data + END_OF_ARCHIVE), mode="r:") as tar:
        names = set(tar.getnames())
    assert not names & set(made)
    assert set(others) <= names


def test_odd_lists_of_packages_bring_no_private_key(tmp_path):
    """A script may leave what is no list there: bytes that are no text, a FIFO that is never written to."""
    info = "var/lib/dpkg/info"
    make(tmp_path, {"etc/a.key": KEY, "etc/k\u00e9y": KEY, f"{info}/a.list": b"\xff\n" + "/etc/k\u00e9y\n".encode()})
    os.mkfifo(tmp_path / info / "b.list")
    (tmp_path / info / "c.list").symlink_to(tmp_path / info / "b.list")
    assert private_keys(tmp_path) == ["etc/a.key"]


@pytest.mark.parametrize("link", ["srv", "usr"])
def test_private_keys_are_not_looked_for_behind_links_out_of_the_tree(tmp_path, link):
    """A script of a package may leave one to the builder's home."""
    make(tmp_path / "home", {"local/id_rsa": KEY, "id_rsa": KEY})
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / link).symlink_to(tmp_path / "home")
    assert private_keys(tmp_path / "root") == []


def test_normalised_base_has_given_owners_and_no_times(tmp_path):
    make(tmp_path, {"usr/wall": b"program", "usr/café": b"name", "usr/" + "long/" * 30 + "name": b"long", "tmp/": b""})
    (tmp_path / "usr/wall").chmod(0o2755)
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "bin").symlink_to("usr/bin")
    with tidied(tmp_path, {"usr/wall": FileOwner(0, 5)}) as tar:
        found = {item.name: item for item in tar}
        assert {item.mtime for item in found.values()} == {TIME}
        assert {(item.uid, item.gid) for name, item in found.items() if name != "usr/wall"} == {(0, 0)}
        assert (found["usr/wall"].mode, found["usr/wall"].gid, found["usr/wall"].uname) == (0o2755, 5, "")
        assert found["bin"].linkname == "usr/bin"
        assert found["tmp"].mode == 0o1777
        assert tar.extractfile("usr/café").read() == b"name"
        assert tar.extractfile("usr/" + "long/" * 30 + "name").read() == b"long"


def test_hard_link_content_is_at_the_first_kept_name(tmp_path):
    make(tmp_path, {"usr/perl": b"program", "var/log/x": b"text", "usr/": b"", "var/": b""})
    for name, other in (("usr/a", "usr/perl"), ("usr/z", "usr/perl"), ("var/y", "var/log/x")):
        os.link(tmp_path / other, tmp_path / name)
    with tidied(tmp_path) as tar:
        kinds = [(item.name, item.islnk(), item.linkname) for item in tar if item.name.startswith("usr/")]
        assert kinds == [("usr/a", False, ""), ("usr/perl", True, "usr/a"), ("usr/z", True, "usr/a")]
        assert tar.extractfile("usr/a").read() == b"program"
        assert tar.extractfile("var/y").read() == b"text"


MAGIC = b"\xa7\x0d\x0d\x0a"


@pytest.mark.parametrize(
    ("code", "written"),
    [
        (MAGIC + bytes(4) + b"12345678marshalled", MAGIC + b"\1\0\0\0" + bytes(8) + b"marshalled"),
        (MAGIC + b"\1\0\0\0" + b"12345678code", MAGIC + b"\1\0\0\0" + b"12345678code"),
        (b"short", b"short"),
    ],
    ids=["time of its source", "unchecked hash", "no header"],
)
def test_normalised_bytecode_is_unchecked(tmp_path, code, written):
    make(tmp_path, {"usr/lib/python3.11/__pycache__/os.cpython-311.pyc": code})
    with tidied(tmp_path) as tar:
        assert tar.extractfile("usr/lib/python3.11/__pycache__/os.cpython-311.pyc").read() == written


NEWER = """\
## Debian
Types: deb
URIs: http://m.example/debian
Suites: trixie trixie-updates
Components: main contrib non-free non-free-firmware
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://m.example/debian-security
Suites: trixie-security
Components: main contrib
Signed-By: /usr/share/keyrings/k.gpg
"""


@pytest.mark.parametrize(
    ("suite", "example", "written"),
    [
        (
            "bookworm",
            f"# See sources.list(5)\n{ONE_LINE}\n#deb-src x main\n".replace(" main\n", " main contrib non-free\n"),
            ONE_LINE,
        ),
        (  # completed: bullseye's own lacks the updates
            "bullseye",
            "deb http://m.example/debian bullseye main contrib\ndeb http://s.example bullseye-security main contrib\n",
            "deb http://m.example/debian bullseye main\n"
            "deb http://m.example/debian bullseye-updates main\n"
            "deb http://s.example/debian-security bullseye-security main\n",
        ),
        ("trixie", NEWER, re.sub(r"main contrib.*", "main", NEWER.removeprefix("## Debian\n"))),
    ],
)
def test_normalised_base_has_apt_sources_and_dpkg_rules(tmp_path, suite, example, written):
    make(tmp_path, {"usr/share/doc/apt/examples/sources.list": example.encode(), "etc/apt/sources.list": b"deb x ./"})
    with tidied(tmp_path, suite=suite) as tar:
        assert tar.extractfile("etc/apt/sources.list").read().decode() == written
        assert tar.extractfile("etc/dpkg/dpkg.cfg.d/graphcrate").read().decode() == DPKG_RULES
    with pytest.raises(BuildError, match="not for forky"):
        tidied(tmp_path, suite="forky")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BuildError, match="a base layer cannot have: /pipe"):
        tidied(tmp_path, suite=suite)


def test_name_that_is_no_utf8_is_refused_with_the_name(tmp_path):
    """A maintainer script may make any; the layers of others have them as they are."""
    make(tmp_path, {"usr/share/doc/apt/examples/sources.list": ONE_LINE.encode()})
    tmp_path.joinpath(os.fsdecode(b"etc-\xff")).touch()
    with pytest.raises(BuildError, match=r"a name that is not UTF-8: /etc-\\udcff"):
        tidied(tmp_path)


def test_sparse_file_larger_than_any_base_is_refused_before_it_is_read(tmp_path):
    make(tmp_path, {"usr/share/doc/apt/examples/sources.list": ONE_LINE.encode(), "var/lib/big": b""})
    os.truncate(tmp_path / "var/lib/big", 3 << 40)
    with pytest.raises(BuildError, match="more than 64 GiB of files, with /var/lib/big"):
        tidied(tmp_path)
