"""A Debian system: what its lock says, and its .debs up to the point where dpkg runs in it."""

import bz2
import gzip
import itertools
import lzma
import os
import shutil
import stat
import tarfile
from types import SimpleNamespace
from unittest import mock

import msgspec
import pytest

from debroot.deb import FileOwner
from debroot.install import asked, overridden
from debroot.normalise import EXAMPLES
from graphcrate.host.process import Completed
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.bases import Base, debian, install, normalise
from graphcrate.inputs.bases import deb as packages
from graphcrate.model.errors import BuildError, DiskFullError, HostError, IntegrityError
from graphcrate.model.report import LayerRecord
from tests import made
from tests.made import bookworm
from tests.unit.tars import entry, file, folder, hardlink, symlink, tar

PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def member(name, content):
    head = f"{name:16}{'0':12}{'0':6}{'0':6}{'100644':8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)


def long_member(content):
    """A data.tar whose header has more bytes than there are, cut where a tar could end."""
    return member("data.tar", content)[: -len(content) % 512 or None][:-1024]


def deb(folder_, name, entries, kind=".xz"):
    """A package of these files."""
    control = tar([file("./control", f"Package: {name}\n".encode())])
    path = folder_ / f"{name}_1_all.deb"
    parts = [("debian-binary", b"2.0\n"), (f"control.tar{kind}", control), (f"data.tar{kind}", tar(entries))]
    packed = [(label, PACKERS[kind](data) if ".tar" in label else data) for label, data in parts]
    path.write_bytes(b"!<arch>\n" + b"".join(member(label, data) for label, data in packed))
    return path


def extract(package, root):
    return packages.extract(root.parent / "plain", packages.inflate_member(package, root.parent / "plain"), root)


def test_python_version_of_a_base_is_read_from_the_lock():
    versions = {"libpython3.11-stdlib": "3.11.9-1", "python3": "3.11.2-1+b1", "python3.11": "3.11.2-6+deb12u9"}
    assert debian.python_version(bookworm(*itertools.starmap(made.deb, versions.items()))) == "3.11.2"


def test_base_is_built_again_only_if_a_package_changes(cache, monkeypatch):
    digest, built = "sha256:" + "0" * 64, []

    def build(lock, ctx, on_python):
        built.append(lock)
        ctx.cache.write(ctx.cache.blob(digest), b"")
        return LayerRecord(title="", digest=digest, diff_id=digest, size=0, unpacked_size=0)

    monkeypatch.setattr(debian, "_build", build)
    monkeypatch.setattr(debian, "unpack", lambda layers, folder, advance: folder.mkdir())
    python = made.deb("python3.11", "3.11.2")
    first = bookworm(made.deb("libc6", "2.36"), python)
    others = [
        bookworm(made.deb("libc6", "2.36", sha256="1" * 64), python),  # built again under the same version
        bookworm(made.deb("libc6", "2.37"), python),
        bookworm(made.deb("libc6", "2.36"), python, made.deb("git")),
        msgspec.structs.replace(first, suite="trixie"),
    ]
    for lock in (first, *others, first, *others):
        debian.prepare(lock, made.place(cache))
    assert built == [first, *others]
    debian.prepare(msgspec.structs.replace(first, listed="20261125T021215Z"), made.place(cache))
    assert len(built) == 5, "where its packages were listed is no part of a base"


def test_compiler_base_is_installed_on_a_copy_of_the_image_base(cache, monkeypatch):
    libc, python, gcc = made.deb("libc6", "2.36"), made.deb("python3.11", "3.11.2"), made.deb("g++-11", "11.3.0")
    base, lock = bookworm(libc, python), bookworm(libc, gcc, python)
    tree = cache.root / "tree"
    tree.mkdir()
    (tree / "libc").write_text("of the base")
    prepared = Base(
        layers=(),
        rootfs=tree,
        python="/usr/bin/python3.11",
        python_version="3.11.2",
        glibc="2.36",
        environment={},
        labels={},
    )
    asked, installed = [], []
    monkeypatch.setattr(debian, "prepare", lambda one, _: asked.append(one) or prepared)
    monkeypatch.setattr(debian, "fetch_debs", lambda packages, *_, **__: installed.append(packages) or [])
    monkeypatch.setattr(debian, "unpack", lambda _, root: shutil.copytree(tree, root))
    monkeypatch.setattr(debian, "install_more", lambda debs, root, *_: (root / "libc").write_text("changed"))
    for _ in range(2):  # the second time it is there
        grown = debian.prepare_compiler(lock, base, made.place(cache))
        assert (grown.layers, grown.python_version, grown.glibc) == ((), "3.11.2", "2.36")
        assert (grown.rootfs / "libc").read_text() == "changed"
    assert (asked, installed) == ([base], [(gcc,)])
    assert (tree / "libc").read_text() == "of the base"


def test_compiler_base_without_the_image_base_in_it_is_made_whole(cache, monkeypatch):
    libc, gcc, newer = (
        made.deb("libc6", "2.36"),
        made.deb("g++-11", "11.3.0"),
        made.deb("libc6", "2.37", sha256="1" * 64),
    )
    lock, whole = bookworm(libc, gcc), []
    monkeypatch.setattr(debian, "prepare", lambda one, _: whole.append(one))
    others = [
        bookworm(newer),
        bookworm(libc, made.deb("git")),
        msgspec.structs.replace(bookworm(libc), suite="trixie"),
        lock,
    ]
    for base in others:
        debian.prepare_compiler(lock, base, made.place(cache))
    assert whole == [lock] * len(others)


def test_python_of_a_new_base_is_handed_over_before_dpkg_runs_with_files_of_its_own(tmp_path, cache, monkeypatch):
    entries = [file("./usr/bin/python3.11", b"python"), file("./usr/share/doc/x", b"x"), file("./var/lib/y", b"y")]
    seen = []

    def run_in(root, command):
        seen.append("dpkg")
        (root / "usr/bin/new").write_bytes(b"changed")
        (root / "usr/bin/new").rename(root / "usr/bin/python3.11")
        return Completed(0, ())

    monkeypatch.setattr(install, "run_in", run_in)
    monkeypatch.setattr("debroot.install._FILES", {"etc/passwd": "", "etc/group": ""})
    early = debian.python_tree(seen.append, cache)
    some = deb(tmp_path, "some", entries)
    install.install([some], tmp_path / "root", "trixie", lambda _: None, on_extracted=early)
    tree, dpkg = seen
    assert dpkg == "dpkg"
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError))  # vfat has no hard links
    install.install([some], tmp_path / "other", "trixie", lambda _: None, on_extracted=early)
    assert (seen[2] / "usr/bin/python3.11").read_bytes() == b"python", "a second base of this run"
    assert (tree / "usr/bin/python3.11").read_bytes() == b"python"
    assert (tmp_path / "root/usr/bin/python3.11").read_bytes() == b"changed"
    assert [list((tree / name).iterdir()) for name in ("usr/share", "var")] == [[], []]
    assert tree.is_relative_to(cache.own)


@pytest.mark.parametrize("kind", PACKERS)
def test_extracted_deb_gives_files_and_owners(tmp_path, kind):
    (tmp_path / "root").mkdir()
    entries = [folder("./usr"), file("./usr/wall", b"odd", uid=0, gid=5), file("./usr/x", b"x" * 70_001)]
    owners = extract(deb(tmp_path, "some", entries, kind), tmp_path / "root")
    assert owners == {"usr/wall": FileOwner(0, 5)}
    assert (tmp_path / "root/usr/x").read_bytes() == b"x" * 70_001


def test_debs_are_extracted_through_usrmerge_links(tmp_path, monkeypatch):
    su = [folder("./"), folder("./bin"), file("./bin/su", b"su", mode=0o4755), hardlink("./bin/b", "./bin/su")]
    debs = [
        deb(tmp_path, "dpkg", [folder("./etc"), symlink("./usr/x", "lib"), file("./usr/x/d", b"")]),
        deb(tmp_path, "login", [*su, symlink("./bin/c", "su")]),
    ]

    def run_in(root, command):
        for line in ("Unpacking dpkg (1.21) ...", "Setting up dpkg:amd64 (1.21) ...", "Unpacking dpkg (1.21) over ..."):
            command.on_line(line)
        return Completed(0 if command.step is Step.INSTALL else 1, ())

    monkeypatch.setattr(install, "run_in", run_in)
    monkeypatch.setattr("debroot.install._FILES", {"etc/passwd": "", "etc/group": ""})
    root, counted = tmp_path / "root", []
    assert install.install(debs, root, "bookworm", counted.append) == {}
    assert counted == [debs[0].stat().st_size // 2] * 2 + [0], "each package counts once for each step"
    assert (root / "usr/bin/su").stat().st_mode & 0o7777 == 0o755, "set-user-id bits are for dpkg to set, inside"
    assert (root / "usr/bin/b").read_bytes() == (root / "usr/bin/c").read_bytes() == b"su"
    assert (root / "usr/lib/d").is_file()
    monkeypatch.setattr(install.os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    with pytest.raises(HostError, match="cannot be made on aarch64"):
        install.install([], tmp_path / "other", "bookworm", lambda _: None)


def fortress(tmp_path):
    """A root, and beside it what no package may change: a file, a folder, a program."""
    root, canary = tmp_path / "place" / "root", tmp_path / "canary"
    root.mkdir(parents=True)
    canary.mkdir(mode=0o700)
    (canary / "shadow").write_text("secret")
    (canary / "shadow").chmod(0o600)
    return root, canary


def seen(canary):
    paths = [canary, *sorted(canary.rglob("*"))]
    return {str(path): (path.lstat().st_mode, path.lstat().st_nlink, path.lstat().st_ino) for path in paths}


OUT = "/CANARY"
ATTACKS = {
    "absolute name": [file("/CANARY/out", b"")],
    "absolute name behind dots": [file(".//CANARY/out", b"")],
    "dots": [file("./../../canary/out", b"")],
    "dots in the middle": [file("./a/../../../canary/out", b"")],
    "dots at the end": [folder("./a/.."), folder("./..", mode=0o777)],
    "through an absolute link": [symlink("./lib", "/CANARY"), file("./lib/out", b"")],
    "through a relative link": [symlink("./lib", "../../canary"), file("./lib/out", b"")],
    "through two links": [symlink("./a", "../.."), symlink("./b", "a/canary"), file("./b/shadow", b"")],
    "over a link": [symlink("./shadow", "/CANARY/shadow"), file("./shadow", b"new")],
    "mode through a link": [symlink("./lib", "/CANARY"), folder("./lib", mode=0o777)],
    "mode of a file through a link": [symlink("./lib", "/CANARY"), file("./lib/shadow", b"", mode=0o666)],
    "hard link to an absolute name": [hardlink("./a", "/CANARY/shadow"), file("./a", b"new")],
    "hard link with dots": [hardlink("./a", "./../../canary/shadow")],
    "hard link through a link": [symlink("./lib", "/CANARY"), hardlink("./a", "./lib/shadow")],
    "hard link to a link": [symlink("./lib", "/CANARY/shadow"), hardlink("./a", "./lib"), file("./a", b"new")],
    "device": [entry("./null", tarfile.CHRTYPE, devmajor=1, devminor=3), entry("./b", tarfile.BLKTYPE, devmajor=8)],
    "pipe": [entry("./pipe", tarfile.FIFOTYPE)],
    "hard link to itself": [file("./a", b"old"), hardlink("./a", "./a")],
    "name with a NUL": [file("./\u00e4\0b", b"")],
    "circle of links": [symlink("./a", "b"), symlink("./b", "a"), file("./a/x", b"")],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_deb_writes_nothing_outside_its_root(tmp_path, name):
    root, canary = fortress(tmp_path)
    before = seen(canary)
    placed = []
    for member_, content in ATTACKS[name]:
        member_.name, member_.linkname = (text.replace(OUT, str(canary)) for text in (member_.name, member_.linkname))
        placed.append((member_, content))
    extract(deb(tmp_path, "bad", placed), root)
    assert seen(canary) == before
    assert {path.name for path in tmp_path.iterdir()} == {"place", "canary", "bad_1_all.deb"}
    assert {path.name for path in root.parent.iterdir()} == {"plain", "root"}
    made = [path.lstat().st_mode for path in root.rglob("*")]
    assert not any(stat.S_ISBLK(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) for mode in made)


def test_deb_through_a_link_of_an_earlier_deb_writes_nothing_outside(tmp_path):
    root, canary = fortress(tmp_path)
    before = seen(canary)
    extract(deb(tmp_path, "one", [symlink("./etc", str(canary))]), root)
    extract(deb(tmp_path, "two", [file("./etc/shadow", b"new"), file("./etc/new", b"new")]), root)
    assert seen(canary) == before


@pytest.mark.parametrize(
    "second", [file("./etc/x", b"new"), symlink("./etc/x", "elsewhere"), hardlink("./etc/x", "./a")]
)
def test_deb_with_a_file_in_the_place_of_a_folder_leaves_the_folder_to_dpkg(tmp_path, second):
    root, _ = fortress(tmp_path)
    extract(deb(tmp_path, "one", [folder("./etc/x"), file("./etc/x/inside", b"old"), file("./a", b"a")]), root)
    extract(deb(tmp_path, "two", [second]), root)
    assert (root / "etc/x/inside").read_bytes() == b"old"


def test_extracted_deb_has_no_setuid_bits(tmp_path):
    root, _ = fortress(tmp_path)
    extract(deb(tmp_path, "su", [file("./su", b"", mode=0o6755), folder("./mail", mode=0o2775)]), root)
    assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("su", "mail")] == [0o755, 0o2775]


def test_base_files_are_not_written_through_links(tmp_path, monkeypatch):
    _, canary = fortress(tmp_path)
    before = seen(canary)
    entries = [folder("./etc"), symlink("./etc/fstab", str(canary / "shadow")), symlink("./var", str(canary))]
    entries += [symlink("./etc/passwd", str(canary / "shadow")), symlink("./etc/group", "/etc/group")]
    monkeypatch.setattr(install, "run_in", lambda *_, **__: Completed(0, ()))
    install.install([deb(tmp_path, "bad", entries)], tmp_path / "root", "trixie", lambda _: None)
    assert seen(canary) == before
    assert (tmp_path / "root/etc/fstab").read_text().startswith("# UNCONFIGURED")


def test_apt_sources_link_to_a_host_file_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("Types: deb\nSuites: bookworm\nComponents: main secret\n")
    place = tmp_path / "root" / EXAMPLES
    place.mkdir(parents=True)
    (place / "debian.sources").symlink_to(tmp_path / "secret")
    assert b"secret" not in b"".join(normalise.entries(tmp_path / "root", {}, "bookworm", ("usr", "secret")))[:4096]


DAMAGED = {
    "no archive": lambda data: b"MZ" + data,
    "cut in a header": lambda data: data[:30],
    "no data": lambda data: data[:8],
    "a size that is no number": lambda data: data.replace(
        b"data.tar.xz     0           0     0     100644  ", b"data.tar.xz     0           0     0     100644  x"
    ),
    "a size beyond the end": lambda data: data[:-40],
    "broken xz": lambda data: data[:-60] + b"x" * 60,
    "files that end before their size says": lambda data: (
        b"!<arch>\n" + long_member(tar([file("./usr/x", b"x" * 512)]))
    ),
    "no tar inside": lambda data: b"!<arch>\n" + member("data.tar", b"x" * 600),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_deb_is_an_integrity_error(tmp_path, name):
    (tmp_path / "root").mkdir()
    package = deb(tmp_path, "some", [file("./usr/x", b"x" * 70_001)])
    package.write_bytes(DAMAGED[name](package.read_bytes()))
    with pytest.raises(IntegrityError, match=r"some_1_all\.deb|plain"):
        extract(package, tmp_path / "root")


def test_owners_follow_chown_calls_of_scripts(tmp_path):
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
    (tmp_path / "out").mkdir()
    (tmp_path / "out/theirs").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "out")
    of_link = b"\0".join([b"chown", b"/", b"-R", b"7", b"link"]) + b"\0\0\0"
    assert asked(of_link, tmp_path / "root") == {"link": FileOwner(7, 0)}, "and nothing below what it leads to"
    assert asked(text, tmp_path) == {
        "etc/shadow": FileOwner(0, 43),
        "etc/gshadow": FileOwner(0, 43),
        "var/mail": FileOwner(0, 7),
        "var/lib/x": FileOwner(42, 0),
        "var/lib/x/y": FileOwner(42, 0),
    }


def test_owners_follow_dpkg_statoverride(tmp_path):
    for name, text in (("passwd", "root:x:0:0::/root:/bin/sh\n"), ("group", "root:x:0:\nssl-cert:x:103:\n")):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text(text)
    assert overridden(tmp_path) == {}
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/run").symlink_to("/run")
    overrides = "root ssl-cert 710 /etc/ssl/private", "#7 #8 4755 /usr/lib/a b", "root root 755 /var/run/outside"
    (tmp_path / "var/lib/dpkg/statoverride").write_text("\n".join(overrides) + "\n")
    assert overridden(tmp_path) == {"etc/ssl/private": FileOwner(0, 103), "usr/lib/a b": FileOwner(7, 8)}


def test_dpkg_script_ends_with_the_removal_of_identities(tmp_path, monkeypatch):
    scripts = []
    monkeypatch.setattr(
        install, "run_in", lambda root, command, **_: scripts.append(command.argv[2]) or Completed(0, ())
    )
    monkeypatch.setattr("debroot.install._FILES", {"etc/passwd": "", "etc/group": ""})
    for name in ("bash", "openssh-server"):
        (tmp_path / name).mkdir()
        package = deb(tmp_path, name, [folder("./etc"), folder("./var/lib/dpkg")])
        install.install([package], tmp_path / name / "root", "trixie", lambda _: None)
    assert scripts[1].startswith(scripts[0])
    assert "ssh_host" not in scripts[0]
    assert scripts[1].index("dpkg --force-unsafe-io --configure") < scripts[1].index("rm -rf /etc/ssh/ssh_host_*")


def test_implicit_deb_folders_are_world_readable_for_any_umask(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "run_in", lambda root, command: Completed(0, ()))
    package = deb(tmp_path, "small", [folder("./etc"), file("./usr/share/doc/small/copyright", b"mine")])
    before = os.umask(0o077)
    try:
        install.install([package], tmp_path / "root", "bookworm", lambda _: None)
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "root").rglob("*") if not path.is_symlink()]
    assert {path: f"{path.stat().st_mode & 0o777:o}" for path in made if path.stat().st_mode & 0o044 != 0o044} == {}


@pytest.mark.parametrize("link", ["etc/fstab", "var/lib/apt"])
def test_link_left_by_a_script_is_not_followed_out_of_the_root(tmp_path, monkeypatch, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("the host's")

    def script(root, command):
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(outside / "file" if link == "etc/fstab" else outside)
        return Completed(0, ())

    monkeypatch.setattr(install, "run_in", script)
    package = deb(tmp_path, "bad", [folder("./etc"), folder("./var/lib/dpkg"), folder("./var/lib")])
    if link == "etc/fstab":
        monkeypatch.setattr("debroot.install._FILES", {"etc/fstab": "ours", "etc/passwd": "", "etc/group": ""})
    install.install([package], tmp_path / "root", "trixie", lambda _: None)
    if link == "etc/fstab":
        assert (tmp_path / "root/etc/fstab").read_text() == "ours"
    else:  # it leads to a folder of this name in the tree
        assert (tmp_path / "root" / str(outside)[1:] / "extended_states").is_file()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "the host's"}


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("dpkg: error processing package bad:amd64 (--configure):", BuildError, "cannot install bad:amd64\n"),
        ("dpkg: error processing archive /tmp/debs/bad_1_all.deb (--unpack):", BuildError, "install bad_1_all.deb"),
        ("tar: ./usr/x: Cannot write: No space left on device", DiskFullError, "is full"),
        ("this kernel has no seccomp filters: Invalid argument", HostError, "cannot be made here"),
    ],
)
def test_dpkg_failure_has_its_last_lines(tmp_path, monkeypatch, line, kind, message):
    lines = ("Setting up bad (1) ...", "exit status 7", line)
    monkeypatch.setattr(install, "run_in", lambda *_, **__: Completed(1, lines))
    path = deb(tmp_path, "bad", [file("./etc/x", b"")])
    with pytest.raises(kind, match=message) as caught:
        install.install([path], tmp_path / "root", "bookworm", lambda _: None)
    assert line.partition(":")[0] in caught.value.what
    assert {one.name for one in tmp_path.iterdir()} == {"root", path.name}
