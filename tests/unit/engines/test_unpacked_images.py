"""Unpacked images in the cache: which go by themselves."""

import contextlib
import fcntl
import os

from graphcrate.engines.embedded import unpacked_images
from graphcrate.model.errors import SmokeError

DIGEST = "sha256:" + "a" * 64


def unpack(cache):
    tree = cache.path(unpacked_images.FOLDER, "a" * 64, "root", "usr")
    tree.mkdir(parents=True)
    return tree


def test_unpacked_image_that_was_made_meanwhile_goes(cache):
    with unpacked_images.removed_after(DIGEST, cache):
        tree = unpack(cache)
    assert not tree.parent.parent.exists()
    assert not [*(cache.root / "tmp").glob("*/*")]


def test_unpacked_image_that_was_there_before_stays(cache):
    tree = unpack(cache)
    with unpacked_images.removed_after(DIGEST, cache):
        pass
    assert tree.is_dir()


def test_unpacked_image_of_suites_that_failed_stays(cache):
    with contextlib.suppress(SmokeError), unpacked_images.removed_after(DIGEST, cache):
        tree = unpack(cache)
        raise SmokeError("dna failed")
    assert tree.is_dir()


def test_unpacked_image_in_which_a_program_runs_stays(cache):
    with contextlib.ExitStack() as stack:
        with unpacked_images.removed_after(DIGEST, cache):
            tree = unpack(cache)
            program = os.open(tree.parent.parent, os.O_RDONLY)
            stack.callback(os.close, program)
            fcntl.flock(program, fcntl.LOCK_SH)
        assert tree.is_dir()


def test_image_that_was_never_unpacked_is_no_error(cache):
    with unpacked_images.removed_after(DIGEST, cache):
        pass
