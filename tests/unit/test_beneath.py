"""Links that others' code leaves in its folder lead nobody out of it."""

import os

import pytest

from graphcrate.host import beneath


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
