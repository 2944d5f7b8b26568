"""Folders become images and come back; trees of data/trees have the bytes that they had before.

A tree is a file of JSON, `paths`: path -> its mode as text, and its content, link or nothing for a folder; `sha256`: of
the squashfs with each compression. One file more there is one test more.
"""

import hashlib
import json
import os
import stat
import struct
from pathlib import Path

import pytest

from sifsquash import images, sif
from sifsquash.__main__ import main
from sifsquash.errors import ImageError
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression, Entry

TREES = {path.stem: json.loads(path.read_text("utf-8")) for path in Path(__file__).parent.glob("data/trees/*.json")}
MOMENT = 1_700_000_000


def lay_out(root, paths):
    """A tree on the disk, all of one time."""
    root.mkdir()
    for path, (mode, *rest) in paths.items():
        place = root / path
        if not rest:
            place.mkdir()
        elif mode == "link":
            place.symlink_to(rest[0])
        elif mode == "hard":
            place.hardlink_to(root / rest[0])
        else:
            place.write_bytes(rest[0].encode() * (rest[1] if len(rest) > 1 else 1))
        if mode not in ("link", "hard"):
            place.chmod(int(mode, 8))
    root.chmod(0o755)
    for place in [root, *root.rglob("*")]:
        os.utime(place, (MOMENT, MOMENT), follow_symlinks=False)
    return root


def on_disk(root):
    """Paths with what an image keeps of them."""
    tree = {}
    for place in sorted(root.rglob("*")):
        status = place.lstat()
        content = place.readlink() if place.is_symlink() else place.read_bytes() if place.is_file() else None
        tree[f"{place.relative_to(root)}"] = (stat.filemode(status.st_mode), int(status.st_mtime), content)
    return tree


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("name", TREES)
def test_tree_has_its_golden_digest_and_comes_back(tmp_path, name, compression):
    root, target = lay_out(tmp_path / "root", TREES[name]["paths"]), tmp_path / "image.sqsh"
    images.make_squashfs(root, target, compression=compression, root_owned=True)
    assert hashlib.sha256(target.read_bytes()).hexdigest() == TREES[name]["sha256"][compression]
    with Squashfs(target) as image:
        assert image.compression == compression
    assert images.extract(target, tmp_path / "back") == []
    assert on_disk(tmp_path / "back") == on_disk(root)


def test_sif_of_a_folder_has_its_squashfs_architecture_and_definition(tmp_path):
    root = lay_out(tmp_path / "root", {"a": ("644", "a")})
    for name in ("one.sif", "two.sif"):
        images.make_sif(root, tmp_path / name, architecture="arm64", definition="From: a folder\n")
    data = (tmp_path / "one.sif").read_bytes()
    assert data == (tmp_path / "two.sif").read_bytes(), "the same folder, the same bytes"
    assert sif.is_sif(data)
    assert data[45:48] == b"04\0"
    assert b"From: a folder\n" in data[: images.root_offset(tmp_path / "one.sif")]
    assert images.read_file(tmp_path / "one.sif", "/a") == b"a"
    assert dict(images.entries(tmp_path / "one.sif"))["/a"] == Entry(
        "file", 0o644, os.getuid(), os.getgid(), 1, "", MOMENT
    )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert (tmp_path / "one.sif").stat().st_mode & 0o111


def test_image_that_cannot_be_written_leaves_nothing(tmp_path):
    root = lay_out(tmp_path / "root", {"a": ("644", "a")})
    (tmp_path / "there.sif").write_text("before")
    for folder, changes, message in ((root, {"architecture": "vax"}, "'vax'"), (root / "a", {}, "is not a folder")):
        with pytest.raises(ImageError, match=message):
            images.make_sif(folder, tmp_path / "there.sif", **changes)
    with pytest.raises(ImageError, match="a part of itself"):
        images.make_sif(tmp_path, root / "new.sif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "there.sif"]
    assert (tmp_path / "there.sif").read_text() == "before"


def test_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    root = lay_out(tmp_path / "root", {"a": ("644", "four")})
    whole = os.lstat

    def shorter(path):
        status = whole(path)
        if str(path).endswith("/a"):
            with Path(path).open("w") as file:
                file.write("now longer")
        return status

    monkeypatch.setattr(os, "lstat", shorter)
    with pytest.raises(ImageError, match="changed while it was read"):
        images.make_squashfs(root, tmp_path / "image")


def test_extract_of_a_link_and_a_folder_of_one_name_writes_nothing_outside(tmp_path):
    """The names of two entries are made one in the bytes, as no writer would."""
    root = tmp_path / "root"
    lay_out(root, {"d1": ("755",), "d1/file": ("644", "inside"), "d2": ("link", str(tmp_path / "outside"))})
    (tmp_path / "outside").mkdir()
    images.make_squashfs(root, tmp_path / "image")
    data = (tmp_path / "image").read_bytes()
    name = struct.pack("<H", 1) + b"d"
    assert data.count(name + b"1") == data.count(name + b"2") == 1, "names of folders are not compressed"
    for ours, other in ((b"1", b"2"), (b"2", b"1")):
        (tmp_path / "image").write_bytes(data.replace(name + ours, name + other))
        target = tmp_path / f"target{ours.decode()}"
        with pytest.raises(FileExistsError):
            images.extract(tmp_path / "image", target)
        assert list((tmp_path / "outside").iterdir()) == []


def test_extract_leaves_set_user_id_and_devices_out(tmp_path):
    root = lay_out(tmp_path / "root", {"sudo": ("4755", "program"), "tmp": ("1777",)})
    os.mkfifo(root / "pipe", 0o600)
    images.make_squashfs(root, tmp_path / "image")
    assert dict(images.entries(tmp_path / "image"))["/sudo"].mode == 0o4755
    assert images.extract(tmp_path / "image", tmp_path / "back") == []
    modes = {path.name: stat.filemode(path.lstat().st_mode) for path in (tmp_path / "back").iterdir()}
    assert modes == {"sudo": "-rwxr-xr-x", "tmp": "drwxrwxrwt", "pipe": "prw-------"}


def test_program_makes_lists_prints_and_extracts(tmp_path, capsysbinary, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")
    root = lay_out(tmp_path / "root", {"a": ("644", "hello\n"), "l": ("link", "a"), "bad\x1bname": ("600", "x")})
    image = tmp_path / "image.sif"
    assert main(["make", str(root), str(image), "--root-owned"]) == 0
    assert main(["list", str(image)]) == 0
    assert main(["cat", str(image), "/a"]) == 0
    out, err = capsysbinary.readouterr()
    assert out.decode().splitlines() == [
        "drwxr-xr-x     0     0           0 2023-11-14 22:13 /",
        "-rw-r--r--     0     0           6 2023-11-14 22:13 /a",
        "-rw-------     0     0           1 2023-11-14 22:13 /bad\\x1bname",
        "lrwxrwxrwx     0     0           0 2023-11-14 22:13 /l -> a",
        "hello",
    ]
    assert err == b""
    assert main(["extract", str(image), str(tmp_path / "back")]) == 0
    assert (tmp_path / "back/l").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "junk"], "junk is neither a SIF nor a squashfs\nnext:  file junk"),
        (["list", "missing"], "No such file or directory"),
        (["cat", "image", "/missing"], "image has no file /missing\nnext:  python -m sifsquash list image"),
        (["extract", "image", "root"], "File exists"),
        (["make", "missing", "new.sif"], "missing is not a folder"),
    ],
)
def test_program_ends_in_a_sentence(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk").write_text("junk")
    images.make_squashfs(lay_out(tmp_path / "root", {}), tmp_path / "image")
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert (out, message in err) == ("", True), err
    assert not (tmp_path / "new.sif").exists()
