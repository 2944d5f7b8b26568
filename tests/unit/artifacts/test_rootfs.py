"""Layers unpacked: what a disk has beyond the paths and contents that `test_layer_cases` compares."""

import contextlib
import os
import stat
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import LayoutError
from ocilayout import spec
from tests.unit import tars
from tests.unit.tars import file, folder, hardlink, symlink

TYPES = (spec.LAYER_TAR, spec.LAYER_GZIP, spec.LAYER_ZSTD)
CAPABILITY = (b"\x01\x00\x00\x02\x00\x20" + bytes(14)).decode()
NULL = tars.entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666)


def unpacked(tmp_path, *layers, below=None):
    """The root file system of these layers, each of another type."""
    blobs = [tars.blob(tmp_path, layer, TYPES[number % 3]) for number, layer in enumerate(layers)]
    destination = tmp_path / "root"
    remove_tree(destination)
    unpack(blobs, destination, below=below)
    return destination


def tree(root):
    """Everything below root: path → what it is; hard links show as one number."""
    seen, inodes = {}, {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            seen[name] = ("link", path.readlink().as_posix())
        elif path.is_dir():
            seen[name] = ("folder", stat.S_IMODE(status.st_mode))
        else:
            seen[name] = ("file", path.read_bytes(), inodes.setdefault(status.st_ino, len(inodes)))
    return seen


def modes(root):
    # Path.rglob of Python 3.11.2 raises at a link whose target is a name too long.
    paths = [root, *(Path(place, name) for place, folders, files in os.walk(root) for name in folders + files)]
    return {path.relative_to(root).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in paths}


@pytest.mark.parametrize("split", [False, True])
def test_hard_links_stay_one_inode_across_layers_and_trees(tmp_path, split):
    lower = [folder("./", mode=0o750, mtime=4), file("a", b"1"), hardlink("d/b", "a"), hardlink("c", "./d/b")]
    lower += [folder("closed", mode=0o700, mtime=5), symlink("l", "d")]
    upper = [[hardlink("e", "/a"), hardlink("f", "e")], [file("a", b"2")]]
    below = None
    if split:  # the lowest layer is on the disk already
        below = unpacked(tmp_path, lower).rename(tmp_path / "below")
    before = below and tree(below)
    root = unpacked(tmp_path, *(upper if split else [lower, *upper]), below=below)
    assert tree(root) == {
        "a": ("file", b"2", 0),
        "c": ("file", b"1", 1),
        "closed": ("folder", 0o700),
        "d": ("folder", 0o755),
        "d/b": ("file", b"1", 1),
        "e": ("file", b"1", 1),
        "f": ("file", b"1", 1),
        "l": ("link", "d"),
    }
    assert [(root / name).stat().st_mtime for name in (".", "closed")] == [4, 5]
    assert stat.S_IMODE(root.stat().st_mode) == 0o750
    if split:
        assert tree(below) == before
        assert (below / "c").samefile(root / "f")


def test_unpacked_modes_and_times_do_not_depend_on_umask(tmp_path):
    before = os.umask(0o077)
    try:
        root = unpacked(
            tmp_path,
            [
                folder("./", mode=0o711),
                folder("closed", mode=0o555, mtime=1),
                file("closed/suid", mode=0o4755, mtime=1234567890.5),
                file("implied/x", mode=0o640, mtime=5),
                folder("sticky", mode=0o1777, mtime=2),
                symlink("l", "x", mtime=77),
                folder("gone", mode=0o700, mtime=6),
                folder("gone/sub", mode=0o711),
            ],
            [file("closed/later", mode=0o600), folder("sticky/sub", mode=0o700, mtime=3), file(".wh.gone")],
            [file("gone/sub/again")],
        )
    finally:
        os.umask(before)
    found = {name: (mode, (root / name).lstat().st_mtime) for name, mode in modes(root).items() if name != "."}
    implied = (0o755, 0)  # without an entry: the tree depends on the layers alone
    assert stat.S_IMODE(root.stat().st_mode) == 0o711
    assert found == {
        "closed": (0o555, 1),
        "closed/suid": (0o755, 1234567890.5),
        "closed/later": (0o600, 0),
        "l": (0o777, 77),
        "implied": implied,
        "implied/x": (0o640, 5),
        "sticky": (0o1777, 2),
        "sticky/sub": (0o700, 3),
        "gone": implied,
        "gone/sub": implied,
        "gone/sub/again": (0o644, 0),
    }


def test_plain_user_unpacks_folders_without_own_permissions():
    """Of any depth, in an order of their names in which the parent comes first; each has its time at the end."""
    place = Path(tempfile.mkdtemp())  # tmp_path is below a folder of root's alone
    try:
        os.chown(place, 65534, 65534) if os.geteuid() == 0 else None
        with as_plain_user():
            layer = [
                folder("a", mode=0o500, mtime=10),
                folder("a/b", mode=0o000, mtime=20),
                folder("a/b/c", mode=0o111, mtime=30),
                file("a/b/c/d", b"deep", mode=0o400, mtime=40),
                folder("z", mode=0o300, mtime=50),
                file("z/x", b"", mtime=60),
            ]
            root = unpacked(place, layer)
            with pytest.raises(PermissionError):
                list((root / "a/b").iterdir())
        names = ("a", "a/b", "a/b/c", "a/b/c/d", "z", "z/x")
        if os.geteuid() == 0:
            found = [(stat.S_IMODE((root / name).stat().st_mode), (root / name).stat().st_mtime) for name in names]
            assert found == [(0o500, 10), (0, 20), (0o111, 30), (0o400, 40), (0o300, 50), (0o644, 60)]
    finally:
        remove_tree(place)


@contextlib.contextmanager
def as_plain_user():
    """Run the block as user 65534, if this is root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="owners, devices and attributes are for root")
def test_unpacking_as_root_keeps_owners_and_dev_null(tmp_path):
    layer = [file("owned", uid=42, gid=43, mode=0o751), symlink("l", "x", uid=44, gid=45), folder("d", uid=46, gid=47)]
    root = unpacked(tmp_path, [*layer, file("ping", pax_headers={"SCHILY.xattr.user.note": "x"}), NULL])
    owners = {name: ((root / name).lstat().st_uid, (root / name).lstat().st_gid) for name in ("owned", "l", "d")}
    assert owners == {"owned": (42, 43), "l": (44, 45), "d": (46, 47)}
    assert modes(root)["owned"] == 0o751
    if (root / "null").exists():  # a root without CAP_MKNOD goes without
        assert ((root / "null").is_char_device(), (root / "null").stat().st_rdev) == (True, os.makedev(1, 3))
    if "user.note" in os.listxattr(root / "ping"):  # a disk may have none
        assert os.getxattr(root / "ping", "user.note") == b"x"


#: what would give users of this machine more than they have: entry, what is said of it
HOSTILE = [
    (tars.entry("dev/vda", tarfile.BLKTYPE, devmajor=254, mode=0o666), "devices", "/dev/vda (b 254:0)"),
    (tars.entry("dev/mem", tarfile.CHRTYPE, devmajor=1, devminor=1, mode=0o666), "devices", "/dev/mem (c 1:1)"),
    (tars.entry("null", tarfile.BLKTYPE, devmajor=1, devminor=3, mode=0o666), "devices", "/null (b 1:3)"),
    (file("bin/su", mode=0o4755), "set_id", "/bin/su"),
    (file("bin/wall", mode=0o2755), "set_id", "/bin/wall"),
    (file("bin/ping", pax_headers={"SCHILY.xattr.security.capability": CAPABILITY}), "attributes", "/bin/ping"),
    (folder("etc", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"}), "attributes", "/etc"),
    (folder("opt", pax_headers={"SCHILY.xattr.user.overlay.redirect": "/etc"}), "attributes", "/opt"),
]


@pytest.mark.parametrize(("hostile", "what", "said"), HOSTILE, ids=[said for *_, said in HOSTILE])
@pytest.mark.parametrize("faithful", [False, True])
def test_setuid_bits_and_devices_of_an_image_are_withheld(tmp_path, hostile, what, said, faithful):
    if faithful and os.geteuid() != 0:
        pytest.skip("a faithful tree is for root")
    withheld = unpack(
        [tars.blob(tmp_path, [folder("dir", mode=0o2775), hostile])], tmp_path / "root", faithful=faithful
    )
    assert getattr(withheld, what) == [said]
    assert len(withheld.lines()) == 1
    assert said in withheld.lines()[0]
    for path in (tmp_path / "root").rglob("*"):
        status = path.lstat()
        assert stat.S_IFMT(status.st_mode) not in (stat.S_IFBLK, stat.S_IFCHR)
        assert stat.S_ISDIR(status.st_mode) or not status.st_mode & 0o6000
        assert not [name for name in os.listxattr(path) if not name.startswith("security.selinux")]
    assert modes(tmp_path / "root")["dir"] == 0o2775, "a folder's bit gives no rights"


def test_withheld_setuid_files_are_one_short_line(tmp_path):
    layer = [file(f"bin/{number}", mode=0o4755) for number in range(500)]
    (line,) = unpack([tars.blob(tmp_path, layer)], tmp_path / "root").lines()
    assert "and 497 more" in line
    assert len(line) < 200


def test_unpacking_as_a_plain_user_skips_owners_and_devices(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    root = unpacked(tmp_path, [file("owned", uid=42, gid=43, mode=0o711), NULL, hardlink("zero", "null")])
    assert sorted(tree(root)) == ["owned"]
    assert (root / "owned").stat().st_uid == os.getuid()
    assert modes(root)["owned"] == 0o711


def test_fifos_long_names_sparse_files_and_gnu_tars_are_unpacked(tmp_path):
    long = "n" * 200 + "/" + "m" * 200
    # GNU tar -S, format 0.1 in pax headers: 4 bytes at 8192 of 16384.
    sparse = {"GNU.sparse.map": "8192,4", "GNU.sparse.size": "16384", "GNU.sparse.name": "sparse"}
    layer = [file("sparse", b"data", pax_headers=sparse), tars.entry("fifo", tarfile.FIFOTYPE, mode=0o622)]
    (tmp_path / "gnu").write_bytes(tars.tar([file(long, b"gnu"), symlink("l", "t" * 300)], tarfile.GNU_FORMAT))
    root = tmp_path / "root"
    unpack([tars.blob(tmp_path, layer), spec.LayerBlob(path=tmp_path / "gnu", media_type=spec.LAYER_TAR)], root)
    assert (root / long).read_bytes() == b"gnu"
    assert (root / "l").readlink().as_posix() == "t" * 300
    assert (root / "sparse").read_bytes() == bytes(8192) + b"data" + bytes(8188)
    assert (root / "fifo").is_fifo()
    assert modes(root)["fifo"] == 0o622


def test_whiteouts_do_not_follow_links_out_of_the_root(tmp_path):
    (tmp_path / "outside" / "sub").mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_text("secret")
    layers = [symlink("l", str(tmp_path / "outside"))], [file("l/.wh.secret"), file("l/sub/.wh..wh..opq")]
    root = unpacked(tmp_path, *layers)
    assert (tmp_path / "outside" / "secret").exists()
    unpack([tars.blob(tmp_path, [file("a")])], root)
    assert sorted(tree(root)) == ["l"], "a destination that stands is left alone"


def test_concurrent_unpacks_give_one_whole_tree(tmp_path):
    (tmp_path / ".root.partial" / "root" / "x").mkdir(parents=True)  # a killed run left it
    (tmp_path / ".root.partial" / "root" / "x").chmod(0)
    blobs = [tars.blob(tmp_path, [file(f"{layer}/{n}", b"x" * n) for n in range(200)]) for layer in range(4)]
    threads = [threading.Thread(target=unpack, args=(blobs, tmp_path / "root")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tree(tmp_path / "root")) == 4 * 201
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["root"]


def test_broken_layer_ends_the_unpacking_of_all(tmp_path):
    blobs = [tars.blob(tmp_path, [file("a", b"x" * 100_000)]) for _ in range(3)]
    (tmp_path / "broken").write_bytes(b"this is not a gzip")
    broken = spec.LayerBlob(path=tmp_path / "broken", media_type=spec.LAYER_GZIP)
    with pytest.raises(LayoutError, match="layer broken"):
        unpack([broken, *blobs], tmp_path / "root")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
