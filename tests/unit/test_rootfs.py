import os
import stat
import tarfile
import threading

import pytest

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.host.cache import remove_tree
from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec
from tests.unit import tars
from tests.unit.tars import file, folder, hardlink, symlink

TYPES = (spec.LAYER_TAR, spec.LAYER_GZIP, spec.LAYER_ZSTD)
ROOT = os.geteuid() == 0


def unpacked(tmp_path, *layers):
    """The root file system of these layers, each of another type."""
    blobs = [tars.blob(tmp_path, layer, TYPES[number % 3]) for number, layer in enumerate(layers)]
    destination = tmp_path / "root"
    remove_tree(destination)
    unpack(blobs, destination)
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


def test_hard_links_in_a_layer_and_to_layers_below(tmp_path):
    root = unpacked(
        tmp_path,
        [file("a", b"1"), hardlink("d/b", "a"), hardlink("c", "./d/b")],
        [hardlink("e", "/a"), hardlink("f", "e")],
        [file("a", b"2")],
    )
    inodes = {name: (root / name).stat().st_ino for name in ("a", "d/b", "c", "e", "f")}
    assert len({inodes[name] for name in ("d/b", "c", "e", "f")}) == 1
    assert inodes["a"] != inodes["e"]
    assert (root / "e").read_bytes() == b"1"


def test_modes_and_times_are_kept_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        root = unpacked(
            tmp_path,
            [
                folder("closed", mode=0o555, mtime=1),
                file("closed/suid", mode=0o4755, mtime=1234567890.5),
                file("shadow", mode=0o640, mtime=5),
                file("implied/x", mode=0o644),
                folder("sticky", mode=0o1777, mtime=2),
                symlink("l", "x", mtime=77),
            ],
            [file("closed/later", mode=0o600), folder("sticky/sub", mode=0o700, mtime=3)],
        )
    finally:
        os.umask(before)
    modes = {path.relative_to(root).as_posix(): oct(stat.S_IMODE(path.lstat().st_mode)) for path in root.rglob("*")}
    assert modes == {
        "closed": "0o555",
        "closed/suid": "0o4755",
        "closed/later": "0o600",
        "shadow": "0o640",
        "implied": "0o755",
        "implied/x": "0o644",
        "sticky": "0o1777",
        "sticky/sub": "0o700",
        "l": "0o777",
    }
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert (root / "closed" / "suid").stat().st_mtime_ns == 1234567890_500000000
    assert [(root / name).lstat().st_mtime for name in ("closed", "shadow", "sticky", "sticky/sub", "l")] == [
        1,
        5,
        2,
        3,
        77,
    ]


def test_the_root_has_the_mode_of_its_entry(tmp_path):
    assert stat.S_IMODE(unpacked(tmp_path, [folder("./", mode=0o711)], [file("x")]).stat().st_mode) == 0o711


def test_a_folder_without_an_entry_has_no_time_of_ours(tmp_path):
    root = unpacked(tmp_path, [file("a/b/c")], [file("a/d/e"), folder("a", mtime=5)])
    assert [(root / name).stat().st_mtime for name in (".", "a", "a/b", "a/d")] == [0, 5, 0, 0]


def test_a_folder_that_was_removed_takes_its_mode_with_it(tmp_path):
    root = unpacked(tmp_path, [folder("d", mode=0o700), folder("d/e", mode=0o711)], [file(".wh.d")], [file("d/e/x")])
    assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("d", "d/e")] == [0o755, 0o755]


@pytest.mark.skipif(not ROOT, reason="owners, devices and attributes are for root")
def test_root_gets_owners_devices_and_capabilities(tmp_path):
    capability = b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    headers = {"SCHILY.xattr.security.capability": capability.decode("utf-8", "surrogateescape")}
    device = tars.entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666)
    root = unpacked(
        tmp_path,
        [
            file("owned", uid=42, gid=43, mode=0o4711),
            symlink("l", "x", uid=44, gid=45),
            folder("d", uid=46, gid=47),
            file("ping", pax_headers=headers),
            device,
        ],
    )
    owners = {name: ((root / name).lstat().st_uid, (root / name).lstat().st_gid) for name in ("owned", "l", "d")}
    assert owners == {"owned": (42, 43), "l": (44, 45), "d": (46, 47)}
    assert stat.S_IMODE((root / "owned").stat().st_mode) == 0o4711
    if (root / "null").exists():  # a root without CAP_MKNOD goes without
        assert stat.S_ISCHR((root / "null").stat().st_mode)
        assert (root / "null").stat().st_rdev == os.makedev(1, 3)
    if "security.capability" in os.listxattr(root / "ping"):
        assert os.getxattr(root / "ping", "security.capability") == capability


def test_a_plain_user_goes_without_owners_and_devices(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    device = tars.entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3)
    root = unpacked(tmp_path, [file("owned", uid=42, gid=43, mode=0o4711), device, hardlink("zero", "null")])
    assert sorted(tree(root)) == ["owned"]
    assert (root / "owned").stat().st_uid == os.getuid()
    assert stat.S_IMODE((root / "owned").stat().st_mode) == 0o4711


def test_fifos_long_names_sparse_files_and_old_formats(tmp_path):
    long = "n" * 200 + "/" + "m" * 200
    gnu = tars.tar([file(long, b"gnu"), symlink("l", "t" * 300)], tarfile.GNU_FORMAT)
    # GNU tar -S, format 0.1 in pax headers: 4 bytes at 8192 of 16384.
    sparse = file(
        "sparse",
        b"data",
        pax_headers={"GNU.sparse.map": "8192,4", "GNU.sparse.size": "16384", "GNU.sparse.name": "sparse"},
    )
    blobs = [tars.blob(tmp_path, [sparse, tars.entry("fifo", tarfile.FIFOTYPE, mode=0o622)])]
    path = tmp_path / "gnu"
    path.write_bytes(gnu)
    blobs.append(spec.LayerBlob(path=path, media_type=spec.LAYER_TAR))
    root = tmp_path / "root"
    unpack(blobs, root)
    assert (root / long).read_bytes() == b"gnu"
    assert (root / "l").readlink().as_posix() == "t" * 300
    assert (root / "sparse").read_bytes() == bytes(8192) + b"data" + bytes(8188)
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    assert stat.S_IMODE((root / "fifo").stat().st_mode) == 0o622


def test_whiteouts_do_not_follow_links_out_of_the_root(tmp_path):
    out = tmp_path / "outside"
    (out / "sub").mkdir(parents=True)
    (out / "secret").write_text("secret")
    unpacked(tmp_path, [symlink("l", str(out))], [file("l/.wh.secret"), file("l/sub/.wh..wh..opq")])
    assert (out / "secret").exists()


def test_a_destination_that_stands_is_left_alone(tmp_path):
    destination = tmp_path / "root"
    destination.mkdir()
    unpack([tars.blob(tmp_path, [file("a")])], destination)
    assert list(destination.iterdir()) == []


def test_two_at_once_give_one_whole_tree(tmp_path):
    blobs = [tars.blob(tmp_path, [file(f"{layer}/{n}", b"x" * n) for n in range(200)]) for layer in range(4)]
    threads = [threading.Thread(target=unpack, args=(blobs, tmp_path / "root")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tree(tmp_path / "root")) == 4 * 201
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["root"]


def test_what_a_killed_run_left_is_removed(tmp_path):
    (tmp_path / ".root.partial" / "root" / "x").mkdir(parents=True)
    (tmp_path / ".root.partial" / "root" / "x").chmod(0)
    root = unpacked(tmp_path, [file("a")])
    assert sorted(tree(root)) == ["a"]
    assert not (tmp_path / ".root.partial").exists()


def test_one_broken_layer_stops_the_others(tmp_path):
    blobs = [tars.blob(tmp_path, [file("a", b"x" * 100_000)]) for _ in range(3)]
    broken = tmp_path / "broken"
    broken.write_bytes(b"this is no gzip")
    counted: list[int] = []
    with pytest.raises(LayoutError, match="layer broken"):
        unpack(
            [spec.LayerBlob(path=broken, media_type=spec.LAYER_GZIP), *blobs],
            tmp_path / "root",
            advance=counted.append,
        )
    assert not (tmp_path / "root").exists()
    assert not (tmp_path / ".root.partial").exists()
