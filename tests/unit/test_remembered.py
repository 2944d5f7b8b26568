"""trees.remembered: a layer is read once; what is kept of it comes back the same, or is read again."""

import pytest

from graphcrate.artifacts.tree import layouts
from graphcrate.artifacts.tree.layers import Found
from graphcrate.artifacts.tree.reader import Spool
from graphcrate.host.cache import Cache
from graphcrate.model.errors import LayoutError
from graphcrate.model.tree import Entry
from graphcrate.oci.entries import Entries

DIGEST = f"sha256:{'ab' * 32}"


@pytest.fixture
def place(tmp_path):
    from contextlib import ExitStack

    cache = Cache(tmp_path)
    with ExitStack() as stack:
        yield cache, Spool(cache, stack)
    cache.close()


def layer(spool):
    kept = Found(Entry("file", 0o644, 0, 0, 5), spool.add(b"hello"))
    return Entries(
        found={"a/b": kept, "a/c": kept, "d": Found(Entry("folder", 0o755)), "e": Found(Entry("file", 0o600, size=9))},
        folders={"d"},
        implied={"a"},
        removed={"gone"},
        emptied={"opaque"},
        links_below={"f": "below"},
    )


def told(found, spool):
    contents = {path: one.place and spool.read(one.place) for path, one in found.found.items()}
    entries = {path: one.entry for path, one in found.found.items()}
    return contents, entries, found.folders, found.implied, found.removed, found.emptied, found.links_below


def test_the_second_time_nothing_is_read(place):
    cache, spool = place
    first = layouts.cached_layer(cache, "reader-1", DIGEST, spool, lambda: layer(spool))
    second = layouts.cached_layer(cache, "reader-1", DIGEST, spool, lambda: pytest.fail("read again"))
    assert told(second, spool) == told(first, spool)


@pytest.mark.parametrize(("reader", "digest"), [("reader-2", DIGEST), ("reader-1", f"sha256:{'cd' * 32}")])
def test_another_reader_or_layer_is_read(place, reader, digest):
    cache, spool = place
    layouts.cached_layer(cache, "reader-1", DIGEST, spool, lambda: layer(spool))
    reads = []
    layouts.cached_layer(cache, reader, digest, spool, lambda: reads.append(1) or layer(spool))
    assert reads == [1]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: b"x" + data, bytes.upper])
def test_a_damaged_record_is_read_anew_and_written_again(place, damage):
    cache, spool = place
    layouts.cached_layer(cache, "reader-1", DIGEST, spool, lambda: layer(spool))
    (path,) = cache.path("trees", "x").parent.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    again = layouts.cached_layer(cache, "reader-1", DIGEST, spool, lambda: layer(spool))
    assert again.found.keys() == layer(spool).found.keys()
    layouts.cached_layer(cache, "reader-1", DIGEST, spool, lambda: pytest.fail("read again"))


def test_a_layer_that_cannot_be_read_leaves_no_record(place):
    cache, spool = place

    def broken():
        raise LayoutError("broken")

    with pytest.raises(LayoutError):
        layouts.cached_layer(cache, "reader-1", DIGEST, spool, broken)
    assert list(cache.path("trees", "x").parent.iterdir()) == []
