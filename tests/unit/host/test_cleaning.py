"""The size of the cache, and freeing it: each folder by itself, nothing of a run that is at work."""

import json
import os

import pytest

from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.cleaning import measure, release
from graphcrate.model.errors import CacheError, UsageError

SIZE = 40960


def keep(cache, *parts):
    path = cache.path(*parts)
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    return path


def used(cache):
    return {name: taken for name, taken in measure(cache).items() if taken}


def test_cache_usage_counts_hard_links_once_and_no_run_folders(cache):
    for folder in ("rootfs", "files", "of a later version"):
        keep(cache, folder, "a", "b")
    os.link(keep(cache, "files", "c"), cache.path("rootfs", "c"))
    keep(cache, "tmp", "a")
    assert used(cache) == {"files": 2 * SIZE, "rootfs": SIZE, "of a later version": SIZE}
    assert next(iter(measure(cache))) == "files", "the largest is first"


def test_cache_release_beside_another_run_is_refused(cache):
    path = keep(cache, "files", "1", "a.whl")
    other = Cache(cache.root)
    with pytest.raises(CacheError, match="1 other run of graphcrate uses the cache"):
        release(cache, ["all"])
    assert path.exists()
    other.close()
    release(cache, ["all"])
    assert not path.exists()
    cache.write(cache.blob("sha256:1"), b"new")
    assert cache.blob("sha256:1").read_bytes() == b"new"


def test_cache_command_shows_sizes_and_frees_folders(cache, context, typed):
    keep(cache, "rootfs", "1", "root", "a").parent.chmod(0o500)  # an image's folder may lack permission to write
    keep(cache, "files", "1", "a.whl")
    cache.close()
    code, out, _ = typed("cache")
    assert code == 0
    assert (str(cache.root) in out, "were freed" in out) == (True, False)
    assert "rootfs           41.0 kB  images that were run, unpacked; unpacked again" in out
    assert json.loads(typed("cache", "--json")[1])["folders"]["rootfs"] == SIZE
    code, out, _ = typed("cache", "--free", "rootfs,bases", "--free", "rootfs")
    assert code == 0
    assert not (cache.root / "rootfs").exists()
    assert "files            41.0 kB" in out
    assert typed("cache", "--free", "all")[0] == 0
    assert used(cache) == {}


@pytest.mark.parametrize("name", ["everything", "tmp", ".."])
def test_cache_free_of_an_unknown_folder_lists_the_known_ones(context, typed, name):
    code, out, err = typed("cache", "--free", name)
    assert (code, out) == (UsageError.exit_code, "")
    assert f"{name!r}" in err
    assert "blobs, files, all" in err
