"""A real nvcc: Debian's 11.8 with NVIDIA's wheels, in a base with the compiler that it takes."""

import contextlib
import hashlib
import os
import subprocess
import sys

import pytest

from graphcrate.compat import compilers
from graphcrate.compat import toolkits as facts
from graphcrate.host.cache import Cache
from graphcrate.host.sandbox import Bind, Exec, run_in
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import debian
from graphcrate.inputs.bases.archive import Archive
from graphcrate.model.lock import DebianToolkit
from graphcrate.model.plan import CUDA_HOME
from graphcrate.model.recipe import BaseSpec
from tests.engines.workplace import tree
from tests.made import locked, place

SUITE = "bookworm"
OPTION = facts.options("11.8")[0]
COMPILER = compilers.compiler_for(SUITE, facts.nvcc(OPTION.version).newest_gcc)
PROGRAM = """\
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <thrust/complex.h>
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
int main() {
    twice<<<1, 1>>>(nullptr);
    std::puts(cudaGetErrorName(cudaGetLastError()));
}
"""
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
    archive = Archive(OPTION.suite, cache, os.environ, facts.COMPONENTS)
    return DebianToolkit(
        version=OPTION.version,
        suite=OPTION.suite,
        packages=tuple(archive.available(OPTION.packages)),
        wheels=tuple(locked((path.name, path.read_bytes())) for path in wheels.values()),
    )


@pytest.fixture(scope="module")
def cuda(toolkit, wheels, rootfs, cache):
    return toolkits.prepare(toolkit, wheels, rootfs, place(cache, os.environ))


def test_it_compiles_links_and_runs(cuda, rootfs, tmp_path):
    (tmp_path / "a.cu").write_text(PROGRAM)
    lines = (
        f"{CUDA_HOME}/bin/nvcc -gencode arch=compute_70,code=sm_70 -gencode arch=compute_80,code=sm_80 -o a a.cu",
        f"LD_LIBRARY_PATH={CUDA_HOME}/lib64 ./a",
        f"{CUDA_HOME}/bin/cuobjdump -lelf a",
    )
    variables = {"PATH": "/usr/bin:/bin", "NVCC_PREPEND_FLAGS": f"-ccbin {COMPILER}"}
    binds = [Bind(cuda, CUDA_HOME), Bind(tmp_path, "/build", read_only=False)]
    done = run_in(rootfs, Exec(["sh", "-ec", "\n".join(lines)], variables, binds, cwd="/build", timeout=600))
    said = "\n".join(done.lines)
    assert done.returncode == 0, said
    assert "cudaError" in said, "no GPU here, and its own library says so"
    assert {"sm_70", "sm_80"} == {part for part in ("sm_70", "sm_75", "sm_80", "sm_90") if f".{part}.cubin" in said}


def test_the_same_packages_give_the_same_folder(cuda, toolkit, wheels, rootfs, cache, scratch):
    with contextlib.closing(Cache(scratch / "other")) as other:
        for package in toolkit.packages:
            there = other.file(package.file.sha256, package.file.name)
            there.parent.mkdir(parents=True)
            os.link(cache.file(package.file.sha256, package.file.name), there)
        before = os.umask(0o077)
        try:
            again = toolkits.prepare(toolkit, wheels, rootfs, place(other, os.environ))
        finally:
            os.umask(before)
        assert tree(again) == tree(cuda)
        assert again.stat().st_mode == cuda.stat().st_mode
