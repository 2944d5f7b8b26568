"""What the cache takes, and giving it back: each kind by itself, nothing of a run that is at work."""

import json
import os

import pytest

from graphcrate.errors import CacheError, UsageError
from graphcrate.host.cache import Cache
from graphcrate.host.room import measure, release
from graphcrate.host.workplace import Workplace
from graphcrate.model.room import KINDS

SIZE = 40960


def keep(cache, *parts):
    path = cache.path(*parts)
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    return path


def used(cache):
    return {use.kind: use.bytes for use in measure(cache).uses if use.bytes}


def test_every_folder_counts_once_and_for_its_kind(cache):
    for folder in ("rootfs", "files", "uv", "compiled", "resolutions", "of a later version"):
        keep(cache, folder, "a", "b")
    assert used(cache) == {"unpacked": SIZE, "downloads": 2 * SIZE, "compiled": SIZE, "rest": 2 * SIZE}


def test_no_folder_is_of_two_kinds():
    folders = [folder for kind in KINDS for folder in kind.folders]
    assert len(folders) == len(set(folders))


def test_a_file_with_two_names_counts_once_and_one_that_an_image_has_is_shared(cache, tmp_path):
    inside, outside = keep(cache, "blobs", "sha256", "1"), keep(cache, "blobs", "sha256", "2")
    os.link(inside, cache.path("rootfs", "1"))
    os.link(outside, tmp_path / "in dist")
    uses = {use.kind: use for use in measure(cache).uses}
    assert (uses["unpacked"].bytes, uses["unpacked"].shared) == (SIZE, 0)
    assert (uses["layers"].bytes, uses["layers"].shared) == (SIZE, SIZE)


def test_what_is_freed_is_gone_and_the_rest_stays(cache):
    kept, freed = keep(cache, "files", "1", "a.whl"), keep(cache, "rootfs", "1", "root", "a")
    freed.parent.chmod(0o500)  # an image's folder may lack permission to write
    release(cache, [kind for kind in KINDS if kind.name == "unpacked"])
    assert kept.exists()
    assert not (cache.root / "rootfs").exists()
    assert used(cache) == {"downloads": SIZE}


def test_after_all_is_freed_the_cache_works(cache):
    keep(cache, "files", "1", "a.whl")
    keep(cache, "records", "1")
    release(cache, KINDS)
    assert used(cache) == {}
    cache.write(cache.blob("sha256:1"), b"new")
    assert cache.blob("sha256:1").read_bytes() == b"new"


def test_nothing_is_freed_while_another_run_is_at_work(cache):
    path = keep(cache, "files", "1", "a.whl")
    other = Cache(cache.root)
    with pytest.raises(CacheError, match="1 other run of graphcrate uses the cache"):
        release(cache, KINDS)
    assert path.exists()
    other.close()
    release(cache, KINDS)
    assert not path.exists()


@pytest.fixture
def place(cache, tmp_path, monkeypatch):
    place = Workplace(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(cache.root), "HOME": str(tmp_path)})
    monkeypatch.setattr(Workplace, "here", classmethod(lambda kind: place))
    yield place
    place.cache.close()


def test_the_command_tells_what_lies_there(cache, place, typed):
    keep(cache, "rootfs", "1", "root", "a")
    code, out, _ = typed("cache")
    assert code == 0
    assert str(cache.root) in out
    assert "unpacked     41.0 kB  images that were run, unpacked; unpacked again" in out
    told = json.loads(typed("cache", "--json")[1])
    assert {use["kind"]: use["bytes"] for use in told["uses"]}["unpacked"] == SIZE


def test_the_command_frees(cache, place, typed):
    keep(cache, "rootfs", "1", "root", "a")
    keep(cache, "files", "1", "a.whl")
    cache.close()
    code, out, _ = typed("cache", "--free", "unpacked,bases", "--free", "unpacked")
    assert code == 0
    assert not (cache.root / "rootfs").exists()
    assert "downloads    41.0 kB" in out
    assert typed("cache", "--free", "all")[0] == 0
    assert list((cache.root / "files").iterdir()) == []


def test_an_unknown_kind_is_answered_with_those_that_exist(place, typed):
    code, out, err = typed("cache", "--free", "everything")
    assert (code, out) == (UsageError.exit_code, "")
    assert "'everything'" in err
    assert "unpacked, downloads" in err
