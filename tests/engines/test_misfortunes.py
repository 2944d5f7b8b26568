"""Bad luck while an image is built: a clear error, an exit code of its own, nothing half-written, and the way on."""

import dataclasses
import subprocess
import time

import pytest

from graphcrate.model.errors import CacheError, DiskFullError, NetworkError, RecipeError, UsageError
from tests.engines.test_main_job import second_place
from tests.engines.workplace import Workplace, finish, kill

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


def until(process, condition):
    """Wait until something has happened; the process must still run then."""
    deadline = time.monotonic() + 600
    while not condition():
        assert process.poll() is None, "".join(process.communicate())
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_kill_9(workplace, built_image, scratch):
    place = second_place(workplace, scratch, base=True)
    process = place.start("image", *built_image.request, "--no-smoke")
    blobs = place.cache / "blobs" / "sha256"
    until(process, lambda: len(list(blobs.iterdir())) > 1)  # the base is there already
    kill(process)
    assert not list((place.folder / "dist").glob("*/*/oci"))
    goes_on(place, built_image)


@pytest.mark.engine("mount", "root")
def test_disk_full(workplace, built_image, scratch):
    cache = scratch / "cache"
    cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", cache], check=True)
    ctx = Workplace(second_place(workplace, scratch / "two").folder, cache)
    told = failed(ctx.run("image", *built_image.request, "--no-smoke"), DiskFullError)
    assert "GRAPHCRATE_CACHE" in told
    assert not list((ctx.folder / "dist").glob("*/*/oci"))
    assert ctx.leftovers() == []


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


def test_an_interrupt_is_told_in_one_line(workplace, built_image, scratch):
    place = second_place(workplace, scratch, base=True)
    process = place.start("image", *built_image.request, "--no-smoke")
    until(process, lambda: any((place.cache / "tmp").glob("run-*/*")))
    process.send_signal(2)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    assert place.leftovers() == []


def test_a_cuda_or_gpu_that_does_not_exist_is_answered_with_the_nearest(workplace):
    assert "11.8" in failed(workplace.run("image", "pyg", "--cuda", "11.9"), UsageError)
    assert "V100" in failed(workplace.run("image", "pyg", "--cuda", "11.8", "--gpu", "v1000"), UsageError)


def test_a_malformed_recipe_is_told_with_file_and_line(workplace, scratch):
    ctx = Workplace(second_place(workplace, scratch).folder, scratch / "cache")
    recipe = ctx.folder / "recipes" / "torch.toml"
    text = recipe.read_text()
    recipe.write_text(text.replace('python = "3.11"', "python = 3.11", 1))
    line = text[: text.index('python = "3.11"')].count("\n") + 1
    assert f"torch.toml:{line}:" in failed(ctx.run("image", "torch", "--cuda", "cpu"), RecipeError)
