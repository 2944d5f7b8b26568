"""An image of a folder: the same bytes from anywhere, whole or not at all."""

import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import tarfile

import pytest

from ocilayout import __main__, folder, layout, spec
from ocilayout.errors import LayerError, WritingError

RUN = spec.RunConfig(env=("A=b",), cmd=("sh",))


@pytest.fixture
def rootfs(tmp_path):
    root = tmp_path / "rootfs"
    (root / "usr/bin").mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "usr/bin/tool").write_text("#!/bin/sh\n")
    (root / "usr/bin/tool").chmod(0o755)
    (root / "usr/lib.so").write_bytes(bytes(3 << 20))
    (root / "bin").symlink_to("usr/bin")
    return root


def make(rootfs, out, **options):
    options = {"run": RUN, "created": 1_700_000_000, "architecture": "amd64", **options}
    return folder.make(rootfs, out, "1.0", **options)


def layer_of(out):
    manifest = json.loads(
        layout.blob(out, json.loads((out / "index.json").read_bytes())["manifests"][0]["digest"]).read_bytes()
    )
    return layout.blob(out, manifest["layers"][0]["digest"]).read_bytes()


def test_layout_of_a_folder_is_whole_and_has_its_files(rootfs, tmp_path):
    image = make(rootfs, tmp_path / "out")
    blobs = {path.name: path.read_bytes() for path in (tmp_path / "out/blobs/sha256").iterdir()}
    assert len(blobs) == 3
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())
    assert json.loads((tmp_path / "out/oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    config = json.loads(image.config)
    assert (config["architecture"], config["os"], config["config"]) == (
        "amd64",
        "linux",
        {"Env": ["A=b"], "Cmd": ["sh"]},
    )
    tar = gzip.decompress(layer_of(tmp_path / "out"))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        modes = {member.name: member.mode for member in archive}
        assert modes == {
            "bin": 0o777,
            "tmp": 0o1777,
            "usr": 0o755,
            "usr/bin": 0o755,
            "usr/bin/tool": 0o755,
            "usr/lib.so": 0o644,
        }
        assert archive.getmember("bin").linkname == "usr/bin"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rootfs"]


def test_same_files_elsewhere_give_the_same_digest(rootfs, tmp_path):
    shutil.copytree(rootfs, tmp_path / "elsewhere/rootfs", symlinks=True)
    assert make(rootfs, tmp_path / "a").digest == make(tmp_path / "elsewhere/rootfs", tmp_path / "b").digest
    (rootfs / "usr/bin/tool").chmod(0o700)
    assert make(rootfs, tmp_path / "c").digest != make(tmp_path / "elsewhere/rootfs", tmp_path / "d").digest


def test_pipe_is_left_out_and_named(rootfs, tmp_path):
    os.mkfifo(rootfs / "pipe")
    notes = []
    make(rootfs, tmp_path / "out", note=notes.append)
    assert [note.partition(" ")[0] for note in notes] == ["pipe"]


def test_layout_that_is_there_stays_and_a_failed_one_leaves_nothing(rootfs, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    with pytest.raises(WritingError, match="there already"):
        make(rootfs, tmp_path / "out")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(layout, "write", fail)
    with pytest.raises(OSError, match="disk full"):
        make(rootfs, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rootfs"]


def test_command_line_prints_the_digest_or_says_why_not(rootfs, tmp_path, capsys):
    words = [str(rootfs), str(tmp_path / "out"), "--created", "5", "--label", "a=b=c", "--command", "sh", "-c", "true"]
    assert __main__.main(words) == 0
    digest = capsys.readouterr().out.strip()
    manifest = json.loads(layout.blob(tmp_path / "out", digest).read_bytes())
    config = json.loads(layout.blob(tmp_path / "out", manifest["config"]["digest"]).read_bytes())
    assert config["config"] == {"Cmd": ["sh", "-c", "true"], "Labels": {"a": "b=c"}}
    assert config["created"] == "1970-01-01T00:00:05Z"
    assert __main__.main(words) == 1
    assert "next:  remove it" in capsys.readouterr().err


def test_errors_are_pickled_whole():
    error = LayerError("what", cause="why", next_step="do")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "what\ncause: why\nnext:  do"
