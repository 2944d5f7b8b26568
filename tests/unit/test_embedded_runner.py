"""Unpacked images in the cache: made once, kept while in use, pruned. Running in them is in tests/engines."""

import os
from pathlib import Path

import pytest

from graphcrate.engines.embedded import run as embedded
from graphcrate.host.cache import Cache
from graphcrate.model.errors import DiskFullError
from tests.unit import small_layouts, tars


@pytest.fixture
def image(tmp_path: Path):
    """A function that makes a layout with one file."""
    return lambda name: small_layouts.layout(tmp_path / name, [tars.file("etc/name", name.encode())], tag=name)


def unpacked(cache):
    return {path.read_text() for path in cache.root.glob("rootfs/*/root/etc/name")}


def use(layout, cache, when: float):
    with embedded.unpacked(layout, cache=cache) as inside:
        assert (inside.rootfs / "etc/name").read_text() == layout.tag
    os.utime(embedded._place(layout, cache), (when, when))


def test_an_image_is_unpacked_once_and_the_two_used_last_are_kept(cache, image, monkeypatch):
    one, two, three = map(image, ("one", "two", "three"))
    for when, layout in enumerate((one, two, one, three), 1000):
        use(layout, cache, when)
    assert unpacked(cache) == {"one", "three"}
    monkeypatch.setattr(embedded, "unpack", None)
    use(three, cache, 2000)


def test_an_image_in_use_stays(cache, image):
    one, two, three = image("one"), image("two"), image("three")
    with embedded.unpacked(one, cache=cache):
        os.utime(embedded._place(one, cache), (1, 1))
        use(two, cache, 1000)
        use(three, cache, 2000)
        assert "one" in unpacked(cache)
    os.utime(embedded._place(one, cache), (1, 1))
    use(three, cache, 3000)
    assert unpacked(cache) == {"two", "three"}


def test_what_a_killed_run_began_is_removed_after_a_while(cache, image):
    old, young = (cache.path("rootfs", letter * 64, ".root.partial") for letter in "ab")
    for partial in (old, young):
        partial.mkdir(parents=True)
    os.utime(old.parent, (1, 1))
    use(image("one"), cache, 1000)
    assert (old.parent.exists(), young.exists()) == (False, True)


def test_too_little_room_is_told_before_unpacking(cache, image, monkeypatch):
    layout = image("one")
    monkeypatch.setattr(Cache, "free_bytes", lambda self: 10)
    with pytest.raises(DiskFullError, match="unpacking the image"), embedded.unpacked(layout, cache=cache):
        pass
    assert not list(cache.root.glob("rootfs/*/root"))
