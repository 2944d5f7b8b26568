"""`make image`, end to end: what a person gets, the same bytes for everybody, and no work where nothing changed.

Tests of another file would wait for the image while this one makes it.
"""

import dataclasses
import json
import os
import re
import shutil
import sys
import urllib.request

import pytest

from graphcrate.host.disk import key_files
from tests import ROOT
from tests.engines.workplace import call, copy_project, finish, second_place

pytestmark = [pytest.mark.network, pytest.mark.engine("user namespaces")]

PROMISED = {"name", "tag", "digest", "layout", "bytes", "candidate", "torch", "torch_cuda", "cuda", "python"}
PROMISED |= {"packages", "smoke", "seconds"}


def state(folder):
    """Every file below a folder as (path, inode, time of change): rewriting shows."""
    return {
        (str(path.relative_to(folder)), path.lstat().st_ino, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def test_stdout_is_the_result_and_the_report_has_what_is_promised(built_image):
    report = json.loads((built_image.layout.parent / "report.json").read_text())
    assert built_image.finished.out == f"{report['name']}:{report['tag']}@{report['digest']}\n"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", report["digest"])
    assert set(report) >= PROMISED
    assert report["smoke"]["status"] == "passed"
    assert report["smoke"]["seconds"] > 0
    assert {package["name"] for package in report["packages"]} >= {"torch", "numpy"}
    assert report["bytes"] == sum(layer["size"] for layer in report["layers"])


def test_built_image_has_a_clean_audit_beside_it(workplace, built_image):
    report, audit = built_image.report, json.loads((built_image.layout.parent / "audit.json").read_text())
    assert (report["audit"]["fail"], report["audit"]["warn"]) == (0, 0), report["audit"]
    assert audit["digest"] == report["digest"]
    assert audit["broken"] == []
    assert audit["binaries"] == report["audit"]["binaries"] > 300
    assert audit["python"] == report["python"]
    assert workplace.run("audit", built_image.layout, "--json").json["findings"] == audit["findings"]


def test_layout_is_valid_and_at_most_2_percent_over_its_wheels(workplace, built_image):
    """Its compressed layers, Debian and bytecode apart, are no larger than the wheels + 2 %."""
    workplace.run("validate", built_image.layout).ok()
    packages = json.loads((built_image.layout.parent / "lock.json").read_text())["packages"]
    files = [package["file"] for package in packages]
    wheels = sum(file["size"] for file in files if file["name"].endswith(".whl"))
    layers = [(layer["size"], layer["owners"]) for layer in built_image.report["layers"]]
    python = sum(size for size, owners in layers if not {"debian", "files"} & {owner["name"] for owner in owners})
    bytecode = sum(owner["bytes"] for _, owners in layers for owner in owners if owner["name"] == "bytecode")
    assert 0 < python <= 1.02 * wheels + bytecode


@pytest.mark.engine("unshare", "root")
def test_an_unchanged_image_is_not_touched_and_needs_no_network(workplace, built_image):
    assert workplace.leftovers() == []
    folders = (workplace.folder / "dist", workplace.cache / "blobs", workplace.cache / "files")
    before = [state(folder) for folder in folders]
    offline = dataclasses.replace(workplace, prefix=("unshare", "--net"))
    again = offline.run("image", *built_image.request)
    assert (again.code, again.out) == (0, built_image.finished.out), again.err
    assert before == [state(folder) for folder in folders]


def test_an_image_is_tested_once_and_its_passes_go_with_it(workplace, built_image, scratch):
    # its build has tested it; other tests may have done so with other runtimes
    assert list((built_image.layout.parent / "passes").glob("torch-*.json"))
    told = workplace.run("test", f"torch:{built_image.report['tag']}").ok()
    assert "torch passed on this kind of node before (" in told.err
    assert "Phase: " not in told.err
    assert told.out.startswith("torch: passed on cpu in ")
    assert told.out.endswith("; not run again, --rerun runs it\n")

    copy = scratch / "copy"
    shutil.copytree(built_image.layout.parent, copy, symlinks=True)
    passes = sorted((copy / "passes").iterdir())
    request = ("test", copy / "oci", "--output", scratch / "out", "--json")
    other = workplace.run(*request).json
    assert other["suites"][0]["remembered"]
    assert other["artifact"]["digest"] == built_image.report["digest"]

    again = workplace.run(*request, "--rerun")
    assert "Phase: training on cpu" in again.err
    (suite,) = again.json["suites"]
    assert (suite["status"], suite["remembered"]) == ("passed", "")
    assert sorted((copy / "passes").iterdir()) == passes


@pytest.mark.slow
@pytest.mark.engine("setpriv", "root", "useradd", "make")
def test_a_plain_user_with_an_environment_of_their_own_gets_the_same_bytes(workplace, built_image, scratch, plain_user):
    """Nor do folder, time zone, locale and umask matter."""
    uid, gid = plain_user.pw_uid, plain_user.pw_gid
    home = scratch / "a home with spaces"
    strange = {"HOME": str(home), "TZ": "Asia/Kathmandu", "LANG": "C", "LC_ALL": "POSIX", "PYTHONHASHSEED": "77"}
    place = second_place(workplace, home, environment=strange)
    for path in (home, *home.rglob("*")):
        # downloads are hard links and stay with whom they belong to
        if path.is_dir() or not path.is_relative_to(place.cache):
            os.chown(path, uid, gid, follow_symlinks=False)
    user = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "sh", "-c", 'umask 077; exec "$@"', "sh")
    # this process's Python may lie where that user cannot go: they make an environment with the system's
    place = dataclasses.replace(place, prefix=user, program=("/usr/bin/env", "PATH=/usr/bin:/bin", "./build.py"))
    report = place.run("image", *built_image.request, "--json").json
    assert report["digest"] == built_image.report["digest"]
    assert report["smoke"]["status"] == "passed"
    assert place.layout(report).stat().st_uid == uid


@pytest.mark.weekly  # a row of faults has 32 of a smaller one each day
def test_two_builds_at_once_share_one_cache(workplace, built_image, scratch):
    place = second_place(workplace, scratch, base=True)
    both = [place.start("image", *built_image.request, "--no-smoke", "--output", scratch / f"out{i}") for i in (1, 2)]
    ended = [finish(process) for process in both]
    assert [end.code for end in ended] == [0, 0], "\n".join(end.err for end in ended)
    assert ended[0].out == ended[1].out == built_image.finished.out
    for number in (1, 2):
        layout = next((scratch / f"out{number}").glob("*/*/oci"))
        assert place.run("validate", layout).code == 0
    assert place.leftovers() == []


def test_it_becomes_a_sif_that_keeps_its_contracts(workplace, small_sif):
    assert workplace.run("check", small_sif, "--runtime", "apptainer").code == 0


@pytest.mark.engine("make", "docker-registry", "cosign")
def test_what_the_workflow_publishes_can_be_pulled_and_is_in_the_catalogue(
    workplace, built_image, registry, scratch, dist_alone
):
    (workplace.folder / ".venv").symlink_to(sys.prefix)
    try:
        options = zip(built_image.request[1::2], built_image.request[2::2], strict=True)
        variables = {name.removeprefix("--").upper(): str(value) for name, value in options}
        private, public = key_files.make_pair(scratch, "canary")
        signing = {"COSIGN_KEY": private.read_text(), "COSIGN_PASSWORD": "canary"}
        environment = {**os.environ, "GRAPHCRATE_CACHE": str(workplace.cache), "STACK": "torch", **variables, **signing}
        call(ROOT / ".ci" / "publish", f"{registry}/Workflow", folder=workplace.folder, environment=environment)
    finally:
        (workplace.folder / ".venv").unlink()
    label = "cpu" if variables["CUDA"] == "cpu" else f"cu{variables['CUDA'].replace('.', '')}"
    for repository in ("workflow/torch", "workflow/sif/torch"):
        with urllib.request.urlopen(f"http://{registry}/v2/{repository}/tags/list") as answer:
            assert label in json.load(answer)["tags"]
        image, home = f"{registry}/{repository}:{label}", {"PATH": os.environ["PATH"], "HOME": str(scratch)}
        call("cosign", "verify", "--key", public, "--insecure-ignore-tlog=true", image, environment=home)
    site = workplace.folder / "site"
    assert workplace.run("catalog", "--output", site).code == 0
    page = (site / f"torch-{label}.html").read_text()
    assert built_image.report["tag"] in page
    assert (site / "reports" / f"torch-{built_image.report['tag']}.html").is_file()


@pytest.mark.engine("make")
def test_build_py_below_a_make_of_the_user_prints_only_the_result(tmp_path):
    """Its own make, which prepares the environment, is quiet and takes no variables of that one."""
    copy = copy_project(tmp_path / "copy")
    rule = f"python := {sys.prefix}\n.venv/ready-run:\n\t@echo preparing; ln -s $(python) .venv\n"
    (copy / "Makefile").write_text(rule)
    environment = {**os.environ, "MAKELEVEL": "1", "MAKEFLAGS": "w -- python=/nowhere"}
    out = call(sys.executable, "-E", "-s", "build.py", "list", folder=copy, environment=environment)
    assert "pyg" in out
    assert "preparing" not in out
    assert "directory" not in out
