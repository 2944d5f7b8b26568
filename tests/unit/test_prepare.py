"""What tools/prepare makes of the operating system's answers; that it installs is shown by tests/engines."""

import subprocess
from pathlib import Path

import pytest

from tests.engines import install as engines
from tools import prepare


def test_the_mirror_is_debians_own_archive():
    text = """\
'https://download.example/linux/debian/dists/bookworm/InRelease' download.example_linux_debian_dists 0
'https://deb.example/node_20.x/dists/nodistro/InRelease' deb.example_node 0
'http://mirror.example/debian-security/dists/bookworm-security/InRelease' mirror.example_debian-security 0
'http://mirror.example/debian/dists/bookworm-updates/InRelease' mirror.example_debian 0
'http://mirror.example/debian/dists/bookworm/InRelease' mirror.example_debian_dists_bookworm_InRelease 0
"""
    assert engines.mirror_among(text) == "http://mirror.example/debian"
    assert engines.mirror_among("\n".join(text.splitlines()[:4])) == ""


def test_the_mirror_in_the_form_of_one_line_sources():
    lines = "I: automatically chosen mode\ndeb [signed-by=/keys.gpg] http://mirror.example/debian/ sid main\n"
    assert engines.mirror_among(lines) == "http://mirror.example/debian"
    assert engines.mirror_among("deb http://archive.example/ubuntu noble main\n") == ""


def test_a_mirror_that_was_chosen_is_taken_unasked(monkeypatch):
    monkeypatch.setenv("DEBIAN_MIRROR", "http://chosen.example/debian/")
    assert engines.find_mirror() == "http://chosen.example/debian"


def test_without_a_mirror_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    monkeypatch.setattr(engines, "quiet", lambda *_: subprocess.CompletedProcess([], 0, "", ""))
    with pytest.raises(prepare.StopError) as caught:
        engines.find_mirror()
    assert caught.value.code == prepare.HOST
    assert "DEBIAN_MIRROR=" in caught.value.following


def test_libraries_are_taken_from_what_the_package_depends_on():
    stanza = (
        "Package: apptainer\n"
        "Depends: ca-certificates, squashfs-tools, libc6 (>= 2.38), libseccomp2 (>= 2.5.0), libfoo1t64 | libfoo1\n"
        "Recommends: libnothing1\n"
    )
    assert engines.libraries_of(stanza) == ["libc6", "libfoo1", "libfoo1t64", "libseccomp2"]
    assert engines.libraries_of("Package: apptainer\n") == []


def test_apts_folders_are_all_our_own(tmp_path):
    text = engines.apt_configuration(tmp_path)
    for name in ("State", "State::lists", "State::status", "Cache", "Etc::sourcelist", "Etc::sourceparts"):
        assert f'Dir::{name} "{tmp_path}' in text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", 200_000),
        ("someone:100000:65536\n", 200_000),
        ("someone:165536:65536\nother:231072:65536\n", 296_608),
        ("# a comment\nbroken\n", 200_000),
        ("someone:100000:65536\nroot:200000:65536\n", None),
        ("0:200000:65536\n", None),
    ],
)
def test_roots_subordinate_ids_are_free_ones(text, first):
    assert engines.free_range(text) == first


def test_only_the_line_about_capabilities_changes():
    text = "# ROOT DEFAULT CAPABILITIES: [full/file/no]\nroot default capabilities = full\nmount tmp = yes\n"
    changed = engines.ask_for_no_capabilities(text)
    assert changed == text.replace("= full", "= file")


def test_a_link_takes_the_place_of_another(tmp_path):
    (tmp_path / "apptainer").symlink_to("/nowhere")
    engines.link(tmp_path / "apptainer", "/opt/a/bin/apptainer")
    assert [path.name for path in tmp_path.iterdir()] == ["apptainer"]
    assert str((tmp_path / "apptainer").readlink()) == "/opt/a/bin/apptainer"


@pytest.mark.parametrize("name", ["apptainer", "cosign"])
def test_a_run_that_fails_leaves_nothing_and_no_link(monkeypatch, tmp_path, name):
    """Whichever step fails: a program counts as installed by its link, which comes last."""
    monkeypatch.setattr(engines, "ROOT", tmp_path / "opt")
    monkeypatch.setattr(engines, "LINKS", tmp_path / "bin")
    monkeypatch.setattr(engines, "KEYRING", tmp_path)
    monkeypatch.setenv("DEBIAN_MIRROR", "http://mirror.example/debian")

    def arrange(files, target, prefix):
        assert prefix == tmp_path / "opt" / name
        target.mkdir(parents=True)

    def refuse(command, what):
        assert command == [str(tmp_path / "opt" / name / "bin" / name), "trial"]
        assert (tmp_path / "opt" / name).is_dir()
        raise prepare.StopError(prepare.HOST, what, "")

    monkeypatch.setattr(engines, "fetch", lambda work, mirror, package: [])
    monkeypatch.setattr(engines, "must", refuse)
    (tmp_path / "bin").mkdir()
    with pytest.raises(prepare.StopError, match=f"{name} of Debian sid does not start"):
        engines.install_apart(name, arrange, "trial")
    assert not list((tmp_path / "opt").iterdir())
    assert not list((tmp_path / "bin").iterdir())
    monkeypatch.setattr(engines, "must", lambda command, what: None)
    engines.install_apart(name, arrange, "trial")
    assert [path.name for path in (tmp_path / "opt").iterdir()] == [name]
    assert (tmp_path / "bin" / name).is_symlink()


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
def test_apts_failure_is_told_by_its_kind_and_its_errors(text, kind):
    stop = prepare.failure("apt-get", f"Ign:1 http://m.example sid\n{text}", "apt-get install x")
    assert stop.code == getattr(prepare, kind)
    assert text.splitlines()[0] in stop.what
    assert "Ign:1" not in stop.what
    assert "apt-get install x" in stop.following


def test_missing_programs_become_packages_once(monkeypatch):
    monkeypatch.setattr(engines, "find", lambda program: None if program.startswith("no") else "/usr/bin/x")
    found = engines.packages_of({"no-one": "one", "two": "two", "nothing": "three"})
    assert [name for name in found if "keyring" not in name] == ["one", "three"]


def test_uv_goes_where_pip_would():
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


def test_where_uv_fails_pip_installs_and_tells(monkeypatch, tmp_path):
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
