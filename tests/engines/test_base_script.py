"""The script that installs a Debian base, with a dpkg that fails at one of its steps: no such base is kept."""

import shutil
from pathlib import Path

import pytest

from debroot import install
from debroot.distributions import Layout
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.inputs.bases.debroot_errors import translated
from graphcrate.inputs.bases.install import hands
from graphcrate.model.errors import BuildError
from tests.engines import tiny
from tests.unit.inputs.test_debian import deb
from tests.unit.tars import file

pytestmark = pytest.mark.engine("sh", "ldd", "user namespaces")

#: fails where its arguments have the word that the file `fails` holds, as dpkg does for one package of several
DPKG = """#!/bin/sh
echo "dpkg $*" >> /tmp/calls/asked
case "$*" in *"$(cat /etc/fails)"*) echo "dpkg: error processing package bad (--configure):"; exit 1;; esac
"""
STEPS = ("--install", "--unpack", "--configure")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    root = tmp_path_factory.mktemp("template")
    for name in ("etc", "proc", "dev", "tmp", "run", "usr/sbin"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for place, path in tiny.programs("sh", "cat", "rm", "chmod").items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / place)
    (root / "usr/bin/dpkg").write_text(DPKG)
    (root / "usr/bin/dpkg").chmod(0o755)
    return root


@pytest.mark.parametrize("fails", [*STEPS, "nothing"])
def test_failing_step_of_dpkg_fails_the_base(template, tmp_path, monkeypatch, fails):
    root = Path(shutil.copytree(template, tmp_path / "root", symlinks=True))
    (root / "etc/fails").write_text(fails)
    names = [deb(tmp_path, name, [file(f"./usr/share/{name}", b"")]).name for name in ("base-passwd", "base-files")]
    work = tmp_path / "work"
    for name in ("debs", "noting", "calls"):
        (work / name).mkdir(parents=True)
    for name in names:
        shutil.copy(tmp_path / name, work / "debs" / name)
    script = install._script((), Layout())
    if fails == "nothing":
        install._run_dpkg(root, work, script, lambda _: None, hands(None), 0)
    else:
        with pytest.raises(BuildError, match="dpkg cannot install bad"), translated():
            install._run_dpkg(root, work, script, lambda _: None, hands(None), 0)
    asked = [next(step for step in STEPS if step in line) for line in (work / "calls/asked").read_text().splitlines()]
    assert asked == list(STEPS if fails == "nothing" else STEPS[: STEPS.index(fails) + 1]), "it ends at the first"
    assert not (root / "usr/sbin/policy-rc.d").exists(), "no image forbids its services to start"
    assert run_in(root, Exec(["sh", "-c", "exit 0"], {"PATH": "/usr/bin"})).returncode == 0
