"""A Debian system from .debs, up to the point where dpkg runs in it."""

import gzip
import io
import lzma
import tarfile

import pytest
import zstandard

from graphcrate.host.process import Completed
from graphcrate.inputs.bases import install
from graphcrate.inputs.bases.install import Owner, asked, read
from graphcrate.model.errors import BuildError, DiskFullError, HostError, IntegrityError
from tests.unit.tars import entry, file, folder, hardlink, symlink, tar

PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


def member(name, content):
    head = f"{name:16}{'0':12}{'0':6}{'0':6}{'100644':8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)


def deb(folder_, name, entries, kind=".xz", **fields):
    """A package of these files."""
    text = "".join(f"{key}: {value}\n" for key, value in {"Package": name, **fields}.items()) + " more\n"
    control = tar([file("./control", text.encode())])
    path = folder_ / f"{name}_1_all.deb"
    parts = [("debian-binary", b"2.0\n"), (f"control.tar{kind}", control), (f"data.tar{kind}", tar(entries))]
    packed = [(label, PACKERS[kind](data) if ".tar" in label else data) for label, data in parts]
    path.write_bytes(b"!<arch>\n" + b"".join(member(label, data) for label, data in packed))
    return path


@pytest.fixture
def plain(tmp_path):
    (tmp_path / "plain").mkdir()
    return tmp_path / "plain"


@pytest.mark.parametrize("kind", PACKERS)
def test_a_package_is_read_and_written_without_compression(tmp_path, plain, kind):
    entries = [folder("./usr"), file("./usr/wall", b"odd", uid=0, gid=5), file("./usr/x", b"x" * 70_001)]
    found = read(deb(tmp_path, "some", entries, kind, Essential="yes"), plain)
    assert (found.name, found.fields["Essential"], found.owners) == ("some", "yes", {"usr/wall": Owner(0, 5)})
    with tarfile.open(fileobj=io.BytesIO(found.path.read_bytes()[found.data :])) as archive:
        assert archive.extractfile("./usr/x").read() == b"x" * 70_001


def test_a_packages_own_files_come_before_all_that_it_depends_on(tmp_path, plain):
    fields = {
        "dpkg": {"Essential": "yes", "Pre-Depends": "libc6 (>= 2.36), liblzma5 | other"},
        "libc6": {"Depends": "libgcc-s1, absent"},
        "gcc-12-base": {"Provides": "libgcc-s1 (= 1), more"},
        "liblzma5": {},
        "python3": {"Depends": "libc6"},
    }
    packages = {name: read(deb(tmp_path, name, [], **more), plain) for name, more in fields.items()}
    assert [found.name for found in install._needed_first(packages)] == ["dpkg", "gcc-12-base", "libc6", "liblzma5"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([file("./../out", b"")], "leaves the tree"),
        ([file("./a/../../out", b"")], "leaves the tree"),
        ([symlink("./lib", "/"), file("./lib/out", b"")], "leaves the tree"),
        ([symlink("./lib", "../../"), file("./lib/out", b"")], "leaves the tree"),
        ([hardlink("./a", "./../secret")], "hard link out of the tree"),
        ([entry("./null", tarfile.CHRTYPE, devmajor=1, devminor=3)], "a device or a pipe"),
    ],
)
def test_packages_that_leave_the_tree_are_refused(tmp_path, plain, entries, message):
    root = tmp_path / "place" / "root"
    root.mkdir(parents=True)
    (root.parent / "secret").write_text("secret")
    with pytest.raises(IntegrityError, match=f"the package bad has .*{message}"):
        install._extract(read(deb(tmp_path, "bad", entries), plain), root)
    assert {path.name for path in root.parent.iterdir()} == {"root", "secret"}


def test_files_are_written_with_their_modes_over_links_into_usr(tmp_path, plain):
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    entries = [folder("./"), folder("./bin"), file("./bin/su", b"su", mode=0o4755), hardlink("./bin/b", "./bin/su")]
    install._extract(read(deb(tmp_path, "login", [*entries, symlink("./bin/c", "su")]), plain), root)
    assert (root / "usr/bin/su").stat().st_mode & 0o7777 == 0o4755
    assert (root / "usr/bin/b").read_bytes() == (root / "usr/bin/c").read_bytes() == b"su"


def test_owners_are_what_scripts_asked_for(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n_apt:x:42:65534::/:/bin/false\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nshadow:x:43:\n")
    (tmp_path / "var/lib/x").mkdir(parents=True)
    (tmp_path / "var/lib/x/y").touch()
    calls = (
        ("chown", "/", "root:shadow", "/etc/shadow", "etc/gshadow"),
        ("chgrp", "/var", "-h", "7", "mail"),
        ("chown", "/var/lib", "-R", "_apt", "x"),
        ("chown", "/", "--reference=/etc/shells", "/etc/shells.tmp"),
    )
    text = b"".join(b"\0".join(word.encode() for word in call) + b"\0\0\0" for call in calls)
    assert asked(text, tmp_path) == {
        "etc/shadow": Owner(0, 43),
        "etc/gshadow": Owner(0, 43),
        "var/mail": Owner(0, 7),
        "var/lib/x": Owner(42, 0),
        "var/lib/x/y": Owner(42, 0),
    }


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("dpkg: error processing package bad:amd64 (--configure):", BuildError, "cannot install bad:amd64\n"),
        (
            "dpkg: error processing archive /tmp/debs/bad_1_all.deb (--unpack):",
            BuildError,
            "cannot install bad_1_all.deb",
        ),
        ("tar: ./usr/x: Cannot write: No space left on device", DiskFullError, "is full"),
        ("this kernel has no seccomp filters: Invalid argument", HostError, "cannot be made here"),
    ],
)
def test_what_dpkg_cannot_install_is_named_with_its_last_lines(tmp_path, monkeypatch, line, kind, message):
    lines = ("Setting up bad (1) ...", "exit status 7", line)
    monkeypatch.setattr(install, "run_in", lambda *_, **__: Completed(1, lines))
    path = deb(tmp_path, "bad", [file("./etc/x", b"")], Essential="yes")
    with pytest.raises(kind, match=message) as caught:
        install.install([path], tmp_path / "root", "bookworm", lambda _: None)
    assert line.partition(":")[0] in caught.value.what
    assert not (tmp_path / "root.work").exists()


def test_another_architecture_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(install.platform, "machine", lambda: "aarch64")
    with pytest.raises(HostError, match="cannot be made on aarch64"):
        install.install([], tmp_path / "root", "bookworm", lambda _: None)
