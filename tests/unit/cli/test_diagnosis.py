"""The doctor on a host: what a release of a program here is known for, and how an image's errors are mended."""

import re

import pytest

from doctor.explain import PATTERNS
from graphcrate.cli import diagnosis
from graphcrate.cli.diagnosis_facts import FIXES, RELEASES
from graphcrate.compat.facts import facts
from graphcrate.model import command as commands
from tests.unit.made_up_host import MadeUp

SIF = facts.limit("apptainer-whole-sif")


def printed(said, tmp_path, monkeypatch, capsys, *words):
    monkeypatch.setattr(diagnosis.doctor, "Host", lambda: MadeUp(tmp_path, programs={"apptainer": said}))
    diagnosis.main(["--no-imports", *words], commands.as_typed)
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("apptainer version 1.5.0", True),
        ("apptainer version 1.5.0-1.el9", True),
        ("apptainer version 1.5.1", False),
        ("apptainer version 1.5.01", False),
        ("apptainer version 1.4.5", False),
        ("singularity version 1.5.0", False),
        ("singularity-ce version 4.1.5", False),
    ],
)
def test_apptainer_1_5_0_is_named_with_its_fault_and_the_release_without(tmp_path, monkeypatch, capsys, said, is_told):
    out = printed(said, tmp_path, monkeypatch, capsys)
    assert (f"why: {SIF.objection('1.5.0')} fix: apptainer 1.5.1 or later" in out) is is_told
    assert ("warn apptainer" in out) is is_told


def test_finding_of_a_release_is_in_json_and_its_command_is_of_an_installed_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "INSTALLED", True)
    out = printed("apptainer version 1.5.0", tmp_path, monkeypatch, capsys, "--json")
    assert '"area": "Apptainer", "id": "release", "status": "warn", "seen": "apptainer 1.5.0"' in out
    assert "; graphcrate check FILE.sif" in out


@pytest.mark.parametrize(
    "text",
    ['squashfs: SQUASHFS error: Filesystem uses "zstd" compression.', "kernel reported a bad superblock for squashfs"],
)
def test_squashfs_that_an_old_kernel_does_not_mount_is_converted_with_that_kernel(tmp_path, monkeypatch, capsys, text):
    monkeypatch.setattr(diagnosis.doctor, "Host", lambda: MadeUp(tmp_path))
    assert diagnosis.main(["--explain", text]) == 0
    said = capsys.readouterr().out
    assert "./build.py convert REF --to sif --kernel 3.10" in said
    assert "without --kernel" not in said, "zstd is what is written without it"


def test_old_kernel_is_told_the_option_that_writes_gzip(tmp_path, monkeypatch, capsys):
    el7 = {"/proc/sys/kernel/osrelease": "3.10.0-1160.el7.x86_64\n"}
    monkeypatch.setattr(diagnosis.doctor, "Host", lambda: MadeUp(tmp_path, files=el7))
    diagnosis.main(["--no-imports"])
    said = " ".join(capsys.readouterr().out.split())
    assert "convert REF --to sif --kernel 3.10" in said
    assert "gzip, the default" not in said


def test_releases_are_those_of_the_table():
    assert [row[:3] for row in RELEASES] == [("apptainer", "1.5.0", "1.5.1")]
    for version, objects in (("1.4.5", False), ("1.5.0", True), ("1.5.1", False), ("1.6.0", False), ("", False)):
        assert bool(SIF.objection(version)) is objects


OF_AN_IMAGE = '  File "/opt/venv/lib/python3.11/site-packages/cv2/__init__.py", line 181, in <module>\n'


def test_fixes_are_of_errors_that_the_doctor_knows_and_what_they_have_in_braces_is_in_the_sign():
    signs = {pattern.id: pattern.sign for pattern in PATTERNS}
    assert set(FIXES) <= set(signs)
    for name, fix in FIXES.items():
        assert set(re.findall(r"\{(\w+)\}", fix)) <= set(re.compile(signs[name]).groupindex), name
        assert "pip install" not in fix


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("ImportError: libGL.so.1: cannot open shared object file", "make image WITH=opencv-python-headless"),
        ("ModuleNotFoundError: No module named 'torch_geometric.foo'", "(torch_geometric<VERSION"),
        ("error: externally-managed-environment", "make image WITH=… brings the package"),
    ],
)
def test_error_of_an_image_is_mended_by_another_image_and_not_by_pip(tmp_path, monkeypatch, capsys, error, fix):
    monkeypatch.setattr(diagnosis.doctor, "Host", lambda: MadeUp(tmp_path))
    said = {}
    for kind, text in (("image", OF_AN_IMAGE + error), ("other", error)):
        assert diagnosis.main(["--explain", text]) == 0
        said[kind] = " ".join(capsys.readouterr().out.partition("fix:")[2].split())
    assert (fix in said["image"], "pip install" in said["image"]) == (True, False)
    assert said["other"] != said["image"]
    monkeypatch.setattr(commands, "INSTALLED", True)
    diagnosis.main(["--explain", OF_AN_IMAGE + error], commands.as_typed)
    assert "make image" not in capsys.readouterr().out
