"""The reading of pip's, uv's and apt's words by tools/prepare; that it installs is shown by tests/engines."""

import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tools import prepare


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "E: Failed to fetch http://m.example/x  Could not connect to m.example:80\nReading package lists...",
            "NETWORK",
        ),
        ("E: Unable to fetch some archives\nTemporary failure resolving 'm.example'", "NETWORK"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "DISK"),
        ("E: Unable to locate package no-such-thing", "HOST"),
    ],
)
def test_apt_failure_has_its_kind_and_error_lines(text, kind):
    stop = prepare.failure("apt-get", f"Ign:1 http://m.example sid\n{text}", "apt-get install x")
    assert stop.code == getattr(prepare, kind)
    assert text.splitlines()[0] in stop.what
    assert "Ign:1" not in stop.what
    assert "apt-get install x" in stop.following


def test_uv_gets_the_index_settings_of_pip():
    listed = (
        "global.index-url='https://mirror.example/simple'\n"
        "global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'\n"
        ":env:.find-links='/wheels /more'\n"
        ":env:.cert='/ca.pem'\n"
        "user.timeout='60'\n"
    )
    assert prepare.uv_settings(listed) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/ca.pem",
    }
    assert prepare.uv_settings("") == {}
    assert prepare.uv_settings("global.trusted-host='mirror.example'\n") is None


def test_the_environment_names_the_libraries_of_this_checkout(monkeypatch, tmp_path):
    site = tmp_path / ".venv/lib/python3.11/site-packages"
    for folder in (site, tmp_path / "packages/two/src", tmp_path / "packages/one/src", tmp_path / "packages/three"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(prepare, "ROOT", tmp_path)
    monkeypatch.setattr(prepare, "VENV", tmp_path / ".venv")
    for _ in range(2):
        prepare.add_packages()
        lines = (site / prepare.PACKAGES).read_text().splitlines()
        assert [(site / line).resolve().relative_to(tmp_path) for line in lines] == [
            Path("packages/one/src"),
            Path("packages/two/src"),
        ]


def test_failed_uv_falls_back_to_pip_with_a_note(monkeypatch, tmp_path):
    requirements = tmp_path / "requirements.txt"
    pinned = "uv==1.0 \\\n    --hash=sha256:bb"
    requirements.write_text(f"anyio==4.0 \\\n    --hash=sha256:aa\n{pinned}\n    # via -r x\nzstd==1\n")
    ran = []

    def quiet(command, environment=None):
        ran.append(command)
        if len(ran) == 2:
            assert Path(command[-1]).read_text() == pinned
        code = 1 if str(requirements) in command else 0
        return subprocess.CompletedProcess(command, code, "", "ERROR: it does not answer: timed out")

    monkeypatch.setattr(prepare, "quiet", quiet)
    monkeypatch.setattr(prepare, "installer", lambda: ["pip", "install"])
    with pytest.raises(prepare.StopError, match="the network or the index fails"):
        prepare.install(requirements)
    assert [command[0].rpartition("/")[2] for command in ran] == ["pip", "pip", "uv", "pip"]


@pytest.fixture
def carried(monkeypatch, tmp_path):
    """The wheels of a bundle; what pip is called with, and what it answers."""
    for name in ("pip-1-py3-none-any.whl", "cffi-2-cp311-cp311-x.whl", "cffi-2-cp312-cp312-x.whl"):
        (tmp_path / name).touch()
    ran, answers = [], {"code": 0, "stderr": ""}

    def quiet(command, environment=None):
        ran.append(command)
        code = answers["code"] if "install" in command else 1
        return subprocess.CompletedProcess(command, code, "", answers["stderr"])

    monkeypatch.setattr(prepare, "WHEELS", tmp_path)
    monkeypatch.setattr(prepare, "quiet", quiet)
    return ran, answers


def test_wheels_of_a_bundle_are_installed_by_their_own_pip_without_an_index(carried, tmp_path):
    ran, _ = carried
    prepare.install(tmp_path / "requirements.txt")
    assert ran[-1][1:] == [
        str(tmp_path / "pip-1-py3-none-any.whl" / "pip"),
        *("install", "--no-index", "--find-links", str(tmp_path)),
        *("--quiet", "--no-deps", "--require-hashes", "--requirement", str(tmp_path / "requirements.txt")),
    ]


def test_wheels_of_a_bundle_for_other_pythons_name_those(carried, tmp_path):
    carried[1].update(code=1, stderr="ERROR: No matching distribution found for cffi==2")
    with pytest.raises(prepare.StopError, match="tools/wheels has nothing for Python") as stop:
        prepare.install(tmp_path / "requirements.txt")
    assert (stop.value.code, "3.11, 3.12" in stop.value.following) == (prepare.HOST, True)


def test_failed_network_names_the_page_for_sites_without_one():
    stop = prepare.failure("pip", "ERROR: No matching distribution found for rich==1", "make")
    assert "docs/publish.md#to-a-site-without-a-network" in stop.following
    assert "\n## To a site without a network\n" in (ROOT / "docs/publish.md").read_text(encoding="utf-8")
