"""Bad luck while an image is built: a clear error, an exit code of its own, nothing half-written, and the way on."""

import dataclasses
import hashlib
import random
import shutil
import subprocess
import time

import pytest

from graphcrate.model.errors import CacheError, DiskFullError, NetworkError
from tests.engines.workplace import Workplace, finish, kill, second_place, until

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("user namespaces")]


def failed(finished, error):
    """A run that ended with this error's exit code, a next step, nothing on stdout and no traceback."""
    assert finished.code == error.exit_code, finished.err
    assert finished.out == ""
    assert "next: " in finished.err
    assert "Traceback" not in finished.err
    return finished.err


def goes_on(place, built_image):
    """The same command again makes the same image and leaves nothing else behind."""
    report = place.run("image", *built_image.request, "--no-smoke", "--json").json
    assert report["digest"] == built_image.report["digest"]
    assert place.run("validate", place.layout(report)).code == 0
    assert place.leftovers() == []


def test_ctrl_c_and_kill_9(workplace, built_image, scratch):
    place = second_place(workplace, scratch, base=True)
    process = place.start("image", *built_image.request, "--no-smoke")
    until(lambda: any((place.cache / "tmp").glob("run-*/*")), 600, process)
    process.send_signal(2)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    assert place.leftovers() == []
    process = place.start("image", *built_image.request, "--no-smoke")
    blobs = place.cache / "blobs" / "sha256"
    before = len(list(blobs.iterdir()))  # the base is there already
    until(lambda: len(list(blobs.iterdir())) > before, 600, process)
    kill(process)
    assert not list((place.folder / "dist").glob("*/*/oci"))
    goes_on(place, built_image)


@pytest.mark.parametrize("form", ["sif", "sqsh"])
def test_kill_9_at_any_moment_of_a_conversion(workplace, built_image, scratch, form):
    place = Workplace(workplace.folder, scratch / "cache")
    command = ("convert", built_image.layout, "--to", form, "--compression", "zstd", "--output", scratch / f"x.{form}")
    start = time.monotonic()
    whole = place.run(*command, "--json").json
    seconds = time.monotonic() - start
    (scratch / f"x.{form}").unlink()
    random.seed(form)
    for _ in range(6):
        shutil.rmtree(scratch / "cache")
        process = place.start(*command)
        time.sleep(random.uniform(0, seconds))
        kill(process)
        if (made := scratch / f"x.{form}").exists():  # it was killed after that, or between
            assert hashlib.sha256(made.read_bytes()).hexdigest() == whole["sha256"]
            made.unlink()
    again = place.run(*command, "--force", "--json").json
    assert again["sha256"] == whole["sha256"]
    assert place.leftovers() == []
    assert sorted(path.name for path in scratch.iterdir()) == ["cache", f"x.{form}"]


@pytest.mark.engine("mount", "root")
def test_disk_full(workplace, built_image, scratch):
    (scratch / "cache").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", scratch / "cache"], check=True)
    place = Workplace(second_place(workplace, scratch / "two").folder, scratch / "cache")
    assert "GRAPHCRATE_CACHE" in failed(place.run("image", *built_image.request, "--no-smoke"), DiskFullError)
    assert not list((place.folder / "dist").glob("*/*/oci"))
    assert place.leftovers() == []


@pytest.mark.engine("mount", "unshare", "root")
def test_read_only_cache(workplace, built_image, scratch):
    cache = scratch / "cache"
    cache.mkdir()
    script = f'mount -t tmpfs -o ro tmpfs "{cache}" && exec "$@"'
    ctx = Workplace(second_place(workplace, scratch / "two").folder, cache)
    ctx = dataclasses.replace(ctx, prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    assert str(cache) in failed(ctx.run("image", *built_image.request), CacheError)


@pytest.mark.engine("unshare", "root")
def test_no_network_and_nothing_in_the_cache(workplace, built_image, scratch):
    folder = second_place(workplace, scratch / "two").folder
    ctx = Workplace(folder, scratch / "cache", prefix=("unshare", "--net"))
    failed(ctx.run("image", *built_image.request), NetworkError)
    assert not list((folder / "dist").glob("*/*/oci"))
    assert ctx.leftovers() == []
