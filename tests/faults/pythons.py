"""Other Pythons with the packages that graphcrate needs: those of this machine, else one of Debian's sid."""

import dataclasses
import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests import ROOT
from tests.conftest import IN_CI
from tests.engines import install
from tests.faults.rows import ALL
from tools.prepare import EXACTLY, StopError, has_apt_as_root, quiet, uv_settings

PLACES = (
    "/usr/bin/python{0}",
    "/usr/local/bin/python{0}",
    "~/.pyenv/versions/{0}*/bin/python{0}",
    "/opt/hostedtoolcache/Python/{0}*/x64/bin/python{0}",
)
ASK = "import ssl, sys, platform; print(platform.python_version(), sys.base_prefix)"
#: Debian's packages of one Python, besides the libraries that they are linked to
PARTS = ("python{0}", "python{0}-minimal", "libpython{0}-minimal", "libpython{0}-stdlib", "libc6")
START = """#!/bin/sh
exec '{0}/usr/lib64/ld-linux-x86-64.so.2' --argv0 "$0" --library-path '{0}/usr/lib/x86_64-linux-gnu' '{1}' "$@"
"""


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter that any user may start, the folder with the packages, and one with libraries of its own."""

    version: str
    path: Path
    packages: Path
    libraries: str = ""


def prepared(minor, folder):
    """A Python such as 3.13 with the packages, in this folder as far as it is made for it; None: there is none here."""
    found = find(minor) or from_debian(minor, folder / "debian")
    if found is None:
        return None
    (version, path, prefix), libraries = found, ""
    if not anybody_reads(path):  # where it is root's own
        shutil.copytree(prefix, folder / "python", symlinks=True, ignore=shutil.ignore_patterns("test", "share"))
        path, libraries = folder / "python" / path.relative_to(prefix), str(folder / "python/lib")
    packages = Path(sysconfig.get_path("purelib"))
    if not (f"{sys.version_info[0]}.{sys.version_info[1]}" == minor and anybody_reads(packages)):
        packages = folder / "packages"
        add_packages(path, packages)
    return Python(version, path, packages, libraries)


def find(minor):
    """This machine's own: (version, path, folder of all of it)."""
    for pattern in PLACES:
        for name in sorted(glob.glob(os.path.expanduser(pattern.format(minor)))):  # noqa: PTH111, PTH207
            if (found := asked(name)) and found[0].startswith(f"{minor}."):
                return found
    return None


def asked(name):
    """A Python's answer about itself; None where it does not start or lacks a module."""
    told = subprocess.run([name, "-IS", "-c", ASK], capture_output=True, encoding="utf-8", check=False)
    if told.returncode:
        return None
    version, prefix = told.stdout.split(maxsplit=1)
    return version, Path(name), Path(prefix.strip())


def anybody_reads(path):
    """Return whether other users get there."""
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in [path, *path.parents])


def add_packages(python, folder):
    """Install what requirements.txt pins for an interpreter, from where pip's configuration says."""
    settings = uv_settings(quiet([sys.executable, "-m", "pip", "config", "list"]).stdout) or {}
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--no-config", "--no-cache", "--target", folder]
    # the hashes say which file it is, whatever index has it
    command = [*uv, "--index-strategy", "unsafe-best-match", "--python", python, *EXACTLY, ROOT / "requirements.txt"]
    for left in (2, 1, 0):  # tries that are left where the index fails
        done = quiet([str(word) for word in command], {**os.environ, **settings})
        assert left or done.returncode == 0, done.stderr
        if done.returncode == 0:
            return


def from_debian(minor, folder):
    """One of Debian's sid with its own C library, unpacked in this folder; as `find` says it."""
    if (IN_CI and not ALL) or not has_apt_as_root():  # a run that decides on a change needs no archive
        return None
    with tempfile.TemporaryDirectory() as work:
        try:
            debs = install.fetch(
                Path(work), install.find_mirror(), install.SUITE, *(part.format(minor) for part in PARTS)
            )
        except StopError:
            return None
        folder.mkdir(parents=True)
        for deb in debs:
            subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True)
    program = folder / f"usr/bin/python{minor}"
    started = program.rename(program.with_suffix(".program"))
    program.write_text(START.format(folder, started))
    program.chmod(0o755)
    return asked(program)
