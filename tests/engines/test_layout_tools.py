"""Other people's programs read a small layout of ours, and unpack it to the same files as we do."""

import json
import os
import stat
import subprocess

import pytest

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.model.plan import ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import read_layout, write_layout
from graphcrate.oci.validate import validate
from tests.unit import tars
from tests.unit.tars import file, folder, hardlink, symlink

LAYERS = [
    [
        folder("./", mtime=1),
        folder("etc", mode=0o755, mtime=2),
        file("etc/removed", mtime=3),
        file("etc/shadow", b"secret", mode=0o600, mtime=4),
        folder("opt/old/deep", mtime=5),
        file("opt/old/deep/file", mtime=6),
        folder("opaque", mtime=7),
        file("opaque/below", mtime=8),
        folder("bin", mtime=8),
        file("bin/su", b"#!", mode=0o4755, mtime=9),
        symlink("lib", "usr/lib", mtime=10),
        folder("usr", mtime=11),
        folder("usr/lib", mtime=11),
        file("usr/lib/libc", b"c" * 5000, mtime=12),
    ],
    [
        folder("etc", mode=0o750, mtime=13),
        file("etc/.wh.removed", b""),
        hardlink("etc/shadow-", "etc/shadow", mode=0o600, mtime=4),
        folder("opt", mtime=14),
        file("opt/.wh.old", b""),
        folder("opaque", mtime=15),
        file("opaque/.wh..wh..opq", b""),
        file("opaque/new", mtime=16),
    ],
    [
        folder("opt/old", mode=0o700, mtime=17),
        file("opt/old/" + "long" * 40, mtime=18),
        symlink("usr/lib/liblink", "libc", mtime=19),
        hardlink("usr/lib/libhard", "usr/lib/liblink", mtime=19),
        file("ünï", "ä".encode(), mtime=20),
    ],
]


@pytest.fixture
def layout(tmp_path):
    """Three layers, gzip of several members as our images have."""
    cache = tmp_path / "cache"
    cache.mkdir()
    records = [tars.record(cache, f"layer {number}", layer) for number, layer in enumerate(LAYERS)]
    config = ConfigStep(environment={"A": "b c"}, labels={"l": "m"}, command=("sh", "-c"), working_folder="/opt")
    image = make_image(records, config, 1_000_000_000)
    written = write_layout(tmp_path / "oci", image, lambda digest: cache / digest.removeprefix("sha256:"), "v1")
    assert validate(written) == ()
    return written


def call(*command):
    finished = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.engine("skopeo")
def test_skopeo_reads_and_copies_it(layout, tmp_path):
    seen = json.loads(call("skopeo", "inspect", f"oci:{layout.path}:v1"))
    assert seen["Digest"] == layout.digest
    assert seen["Labels"] == {"l": "m"}
    assert seen["Env"] == ["A=b c"]
    assert seen["Created"] == "2001-09-09T01:46:40Z"
    assert seen["Layers"] == [layer.digest for layer in layout.layers]
    call("skopeo", "copy", "--insecure-policy", f"oci:{layout.path}:v1", f"oci:{tmp_path / 'copy'}:v2")
    assert read_layout(tmp_path / "copy", "v2").digest == layout.digest
    # and what skopeo wrote is a layout to us
    assert validate(read_layout(tmp_path / "copy")) == ()


@pytest.mark.engine("umoci")
def test_umoci_unpacks_the_same_files_as_we_do(layout, tmp_path):
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    call("umoci", "unpack", *rootless, "--image", f"{layout.path}:v1", tmp_path / "bundle")
    unpack(layout.layer_blobs, tmp_path / "ours")
    theirs = tree(tmp_path / "bundle" / "rootfs")
    assert tree(tmp_path / "ours") == theirs
    assert len(theirs) == 17
    process = json.loads((tmp_path / "bundle" / "config.json").read_bytes())["process"]
    assert process["args"] == ["sh", "-c"]
    assert process["cwd"] == "/opt"
    assert "A=b c" in process["env"]


def tree(root):
    """path → kind, mode, time, content, and which paths are one file."""
    first: dict[int, str] = {}
    seen = {}
    for path in sorted(root.rglob("*")):
        name, status = path.relative_to(root).as_posix(), path.lstat()
        content = path.readlink().as_posix() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        same = None if path.is_dir() else first.setdefault(status.st_ino, name)
        seen[name] = (stat.filemode(status.st_mode), status.st_mtime, content, same)
    return seen
