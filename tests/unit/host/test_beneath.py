"""Links that others' code leaves in its folder lead no reader out of it."""

import os
import socket

import pytest

from graphcrate.host.sandbox import beneath
from graphcrate.model.errors import BuildError, IntegrityError
from tests.made import refused


@pytest.fixture
def world(tmp_path):
    """A folder, and a secret beside it that links in the folder lead to."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "etc/link").symlink_to(tmp_path / "secret")
    (root / "out").symlink_to(tmp_path)
    (root / "etc/plain").write_text("plain")
    os.mkfifo(root / "etc/fifo")
    return root


def test_beneath_read_gives_none_through_links(world):
    assert beneath.read(world, "etc/plain") == b"plain"
    for name in ("etc/link", "out/secret", "etc/fifo", "etc", "absent", "absent/file"):
        assert beneath.read(world, name) is None


def test_is_plain_is_false_through_links(world):
    assert beneath.is_plain(world / "etc/plain", world)
    for name in ("etc/link", "out/secret", "etc/../etc/plain", "absent", "etc/fifo"):
        assert not beneath.is_plain(world / name, world)
    assert not beneath.is_plain(world.parent / "secret", world)


@pytest.fixture
def tree(tmp_path):
    """A folder with a file `a/plain`, and a secret beside it."""
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/plain").write_text("plain")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "rooted").mkdir()
    return root


def test_files_gives_plain_files_in_order_and_links_within(tree):
    (tree / "z").touch()
    (tree / "link").symlink_to("a/plain")
    (tree / "absolute").symlink_to(tree / "a/plain")
    (tree / "a/b/up").symlink_to("../../a/../a/plain")
    (tree / "folder").symlink_to("a")
    (tree / "nothing").symlink_to("absent")
    given = dict(beneath.files(tree))
    assert list(given) == ["absolute", "link", "z", "a/plain", "a/b/up"]
    assert {file.read() for name, file in given.items() if name != "z"} == {b"plain"}


#: a link below the folder → what it says; each leads out of it
LINKS_OUT = {
    "plain": "../secret", "absolute": "{top}/secret", "deep/er/x": "../../../secret", "round": "a/../../secret",
    "home": "/etc/hostname", "folder": "..", "root": "/", "above": "../..", "sibling": "../rooted",
    "prefix": "{top}/rooted/x", "proc": "/proc/self/environ", "own": "/proc/self/fd/0", "dev": "/dev/null",
    "zero": "/dev/zero", "git": ".git/config", "git-folder": ".git", "through": "a/../.git/config",
    "absent": "../absent", "nowhere": "/nonexistent/x", "dots": "./././../secret", "slashes": "..//secret",
    "trailing": "../rooted/", "a/b/c": "../../../secret", "double": "a/b/../../../secret", "self": "../root/../secret",
    "tilde": "../~", "network": "/net/host/x", "sys": "/sys/kernel/notes", "cwd": "/proc/self/cwd", "run": "/run",
    "stdin": "/dev/stdin", "newline": "../a\nb", "escape": "../\x1b]0;x\x07",
}  # fmt: skip


@pytest.mark.parametrize("name", LINKS_OUT)
def test_link_out_of_a_folder_is_refused_by_its_name(tree, name):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(LINKS_OUT[name].format(top=tree.parent))
    with refused(IntegrityError, f"{path} is a link that leads out of its folder, to ") as caught:
        list(beneath.files(tree))
    assert str(caught.value).isprintable() or str(caught.value).replace("\n", "").isprintable()


def test_chain_of_links_that_ends_outside_is_refused(tree):
    (tree / "a/first").symlink_to("second")
    (tree / "a/second").symlink_to("../third")
    (tree / "third").symlink_to("../secret")
    with refused(IntegrityError, "is a link that leads out of its folder"):
        list(beneath.files(tree))


def test_folder_that_became_a_link_meanwhile_is_not_followed(tree):
    (tree.parent / "rooted/plain").write_text("secret")
    given = dict(beneath.files(tree))
    (tree / "a").rename(tree / "moved")
    (tree / "a").symlink_to(tree.parent / "rooted")
    with refused(IntegrityError, "a/plain cannot be read"):
        given["a/plain"].read()
    (tree / "moved/plain").unlink()
    (tree / "moved/plain").symlink_to(tree.parent / "secret")
    with refused(IntegrityError, "cannot be read"):
        beneath.PlainFile(tree, "moved/plain").read()


def test_links_in_a_circle_count_as_nothing(tree):
    (tree / "one").symlink_to("two")
    (tree / "two").symlink_to("one")
    (tree / "me").symlink_to("me")
    assert [name for name, _ in beneath.files(tree)] == ["a/plain"]


def test_fifos_sockets_and_devices_are_refused_by_name(tree):
    os.mkfifo(tree / "a/pipe")
    with refused(IntegrityError, "a/pipe is a FIFO"):
        list(beneath.files(tree))
    (tree / "a/pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tree / "sock"))
    with refused(IntegrityError, "sock is a socket"):
        list(beneath.files(tree))


def test_what_is_left_out_is_not_looked_at(tree):
    (tree / "build").mkdir()
    (tree / "build/out").symlink_to("/etc")
    (tree / "venv").symlink_to("/opt")
    left = list(beneath.files(tree, lambda name, _: name in ("build", "venv", ".git")))
    assert [name for name, _ in left] == ["a/plain"]


def test_folders_a_thousand_deep_are_refused(tmp_path):
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=opened)
        below = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    with refused(BuildError, "deep"):
        list(beneath.files(tmp_path))
    for _ in range(1200):  # pytest's own cleaning is recursive
        above = os.open("..", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        os.rmdir("d", dir_fd=above)
        opened = above
    os.close(opened)
