"""Other machines, users and settings for a place: what is done to it before a command runs there."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

from tests import sources
from tests.engines.workplace import until


def behind(place, *words):
    """The place with a program before each command, behind those that are there."""
    return dataclasses.replace(place, prefix=(*place.prefix, *words))


def shell(place, script):
    """The place where this goes before each command."""
    return behind(place, "sh", "-c", f'{script} && exec "$@"', "sh")


def owned(place, number):
    """The place of the user and the group of this number: all there is theirs."""
    home = place.cache.parent
    for path in (home, *home.rglob("*")):
        os.chown(path, number, number, follow_symlinks=False)
    return behind(place, "setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--")


def run_by(place, python):
    """The place with another Python (`pythons.Python`)."""
    place = place.having(PYTHONPATH=f"{sources(place.folder)}:{python.packages}")
    if python.libraries:
        place = place.having(LD_LIBRARY_PATH=python.libraries)
    return dataclasses.replace(place, program=(python.path, "-s", "-m", "graphcrate.cli.main"))


def pretending(place, what):
    """The place on a machine that is not what it says (`pretending.py`)."""
    # a copy: other users may not get to this checkout
    script = shutil.copy(Path(__file__).with_name("pretending.py"), place.cache.parent)
    if "PYTHONPATH" not in place.environment:
        place = place.having(PYTHONPATH=sources(place.folder))
    return dataclasses.replace(place, program=(place.program[0], "-s", script, what))


@contextlib.contextmanager
def small_disk(folder, **options):
    """A file system of a few megabytes; sets its limits again when called."""
    folder.mkdir(exist_ok=True)

    def words(given):
        return ",".join(f"{name}={value}" for name, value in given.items())

    subprocess.run(["mount", "-t", "tmpfs", "-o", words(options), "tmpfs", folder], check=True)
    try:
        yield lambda **new: subprocess.run(["mount", "-o", f"remount,{words(new)}", folder], check=True)
    finally:
        until(lambda: not subprocess.run(["umount", folder], capture_output=True, check=False).returncode, 60)
