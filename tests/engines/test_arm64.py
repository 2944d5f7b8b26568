"""Programs of arm64 in the sandbox on another processor: Debian's own busybox, run by the emulator that a base gets."""

import os
import re
import shutil
from pathlib import Path

import pytest

from graphcrate.host.emulation import REGISTERED, Emulator, is_native
from graphcrate.host.sandbox import Exec, run_in
from graphcrate.host.steps import Step
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.inputs.bases.deb import extract, inflate_member
from graphcrate.inputs.bases.debs import fetch_debs
from graphcrate.inputs.emulators import prepare_emulator
from graphcrate.model.platform import ARM64
from tests.made import place

KERNEL = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine("user namespaces"),
    pytest.mark.skipif(is_native(ARM64), reason="nothing is emulated on an arm64 machine"),
    pytest.mark.skipif(KERNEL < (6, 7), reason="a namespace has its own binfmt_misc from Linux 6.7 on"),
]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    from graphcrate.host.cache import Cache

    ctx = place(Cache(tmp_path_factory.mktemp("cache")), os.environ)
    return prepare_emulator(ARM64, ctx)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root file system with one static program of arm64."""
    from graphcrate.host.cache import Cache

    folder = tmp_path_factory.mktemp("root")
    ctx = place(Cache(tmp_path_factory.mktemp("cache")), os.environ)
    archive = SuiteArchive("bookworm", ctx, platform=ARM64)
    package = next(each for each in archive.resolve(["busybox-static"]) if each.name == "busybox-static")
    (deb,) = fetch_debs([package], "bookworm", ctx, listed=archive.listed)
    extract(folder / "plain", inflate_member(deb, folder / "plain"), folder / "unpacked", only="bin/busybox")
    for name in ("proc", "sys", "dev", "tmp", "run", "bin"):
        (folder / "root" / name).mkdir(parents=True)
    shutil.copy(folder / "unpacked/bin/busybox", folder / "root/bin/busybox")
    (folder / "root/bin/sh").symlink_to("busybox")
    return folder / "root"


def registered():
    return sorted(path.name for path in REGISTERED.iterdir()) if REGISTERED.is_dir() else []


@pytest.mark.parametrize("step", [Step.BUILD, Step.SMOKE, Step.RUN])
def test_a_program_of_arm64_runs_in_each_step_and_leaves_nothing_registered(emulator, root, step):
    before = registered()
    script = "busybox uname -m; busybox ls /proc/sys/fs/binfmt_misc; echo 1 > /proc/sys/fs/binfmt_misc/status"
    done = run_in(root, Exec(["/bin/sh", "-c", script], {"PATH": "/bin"}, step=step, emulator=emulator))
    assert done.lines[0] == ARM64.machine
    if emulator.program is not None:
        assert ARM64.qemu in done.lines
    assert any("can't create" in line for line in done.lines), "who runs inside registers nothing"
    assert registered() == before


def test_without_an_emulator_a_program_of_arm64_cannot_be_run(root, emulator):
    if emulator.program is None:
        pytest.skip("this host's kernel has an emulator registered")
    done = run_in(root, Exec(["/bin/busybox", "true"], {"PATH": "/bin"}, step=Step.BUILD))
    assert done.returncode == 126
    assert "cannot be run in the image: Exec format error" in done.lines[-1]


def test_an_emulator_in_a_folder_with_a_colon_is_registered(emulator, root, tmp_path):
    if emulator.program is None:
        pytest.skip("this host's kernel has an emulator registered")
    folder = tmp_path / ("a:" + "b" * 200)
    folder.mkdir()
    shutil.copy(emulator.program, folder / "qemu")
    order = Exec(["/bin/busybox", "uname", "-m"], {"PATH": "/bin"}, emulator=Emulator(ARM64, Path(folder / "qemu")))
    assert run_in(root, order).lines == (ARM64.machine,)
