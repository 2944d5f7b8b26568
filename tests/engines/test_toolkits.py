"""A real nvcc: Debian's 11.8 with NVIDIA's wheels. What it compiles is in test_stacks."""

import contextlib
import hashlib
import os
import subprocess
import sys

import pytest

from graphcrate.compat.facts import compilers
from graphcrate.compat.facts import toolkits as facts
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import debian
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model.lock import DebianToolkit
from graphcrate.model.recipe import BaseSpec
from tests.engines.workplace import tree
from tests.made import locked, place

SUITE = "bookworm"
OPTION = facts.options("11.8")[0]
COMPILER = compilers.compiler_for(SUITE, facts.nvcc(OPTION.version).newest_gcc)
pytestmark = [
    pytest.mark.weekly,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
]


@pytest.fixture(scope="module")
def rootfs(cache):
    spec = BaseSpec(suite=SUITE, packages=compilers.packages(COMPILER))
    return debian.prepare(debian.lock(spec, "3.11", place(cache, os.environ)), place(cache, os.environ)).rootfs


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Those that belong to nvcc, by sha256; the others are hundreds of megabytes of libraries."""
    folder = tmp_path_factory.mktemp("wheels")
    platforms = ("--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64", "--only-binary", ":all:")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *platforms, "--dest", folder]
    subprocess.run([*command, *OPTION.wheels], check=True)
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def toolkit(cache, wheels):
    archive = SuiteArchive(OPTION.suite, place(cache, os.environ), facts.COMPONENTS)
    return DebianToolkit(
        version=OPTION.version,
        suite=OPTION.suite,
        packages=tuple(archive.available(OPTION.packages)),
        wheels=tuple(locked((path.name, path.read_bytes())) for path in wheels.values()),
        listed=archive.listed,
    )


@pytest.fixture(scope="module")
def cuda(toolkit, wheels, rootfs, cache):
    return toolkits.prepare(toolkit, wheels, rootfs, place(cache, os.environ), base="base")


def test_the_same_packages_give_the_same_folder(cuda, toolkit, wheels, rootfs, cache, scratch):
    with contextlib.closing(Cache(scratch / "other")) as other:
        for package in toolkit.packages:
            there = other.file(package.file.sha256, package.file.name)
            there.parent.mkdir(parents=True)
            os.link(cache.file(package.file.sha256, package.file.name), there)
        before = os.umask(0o077)
        try:
            again = toolkits.prepare(toolkit, wheels, rootfs, place(other, os.environ), base="base")
        finally:
            os.umask(before)
        assert tree(again) == tree(cuda)
        assert again.stat().st_mode == cuda.stat().st_mode
