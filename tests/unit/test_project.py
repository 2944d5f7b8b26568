"""A person's own projects: what makes another wheel of a folder, and how git is asked."""

import pytest

from graphcrate.compat import own
from graphcrate.host.process import Completed
from graphcrate.inputs.wheels import project
from graphcrate.model.errors import NetworkError
from tests.unit.wheelmaker import make_wheel

COMMIT = "0123456789" * 4


@pytest.fixture
def wheels(tmp_path, cache, monkeypatch):
    """Makes the wheel of a folder; how often that was really done."""
    made = []

    def make(source, name, back_end, work, environment, note):
        made.append(name)
        return make_wheel(work / "wheel", "demo")

    monkeypatch.setattr(project, "_make", make)

    def count():
        project.of_folder(tmp_path / "demo", lambda _: (), cache, {}, print)
        return len(made)

    return count


def test_project_folder_is_built_again_if_its_wheel_content_changes(tmp_path, wheels):
    folder = tmp_path / "demo"
    folder.mkdir()
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    (folder / "pyproject.toml").write_text("[project]\n")
    assert [wheels(), wheels()] == [1, 1]
    script.chmod(0o640)
    (folder / "build").mkdir()
    (folder / "build" / "lib.py").touch()
    assert wheels() == 1, "who may read it, and what tools leave there, are no part of a wheel"
    script.chmod(0o755)
    assert wheels() == 2, "a wheel has whether a file can be executed"
    script.write_text("#!/bin/bash\n")
    assert wheels() == 3
    script.rename(folder / "start.sh")
    assert wheels() == 4


@pytest.mark.parametrize("mine", [{}, {"GIT_TERMINAL_PROMPT": "1", "GIT_ASKPASS": "/usr/bin/ksshaskpass"}])
def test_git_runs_without_prompts_and_with_a_timeout(cache, monkeypatch, mine):
    """Nobody would see them: a build that waits for a password looks like one that is slow."""
    asked = []

    def run(argv, *, environment, on_line, timeout):
        asked.append((argv, environment, timeout))
        return Completed(128, ("fatal: could not read Password for 'https://me@git.example'",))

    monkeypatch.setattr(project.process, "run", run)
    for revision in (COMMIT, "main"):
        address = f"git+https://me@git.example/x.git@{revision}"
        with pytest.raises(NetworkError, match="could not read Password"):
            project.of_commit(address, lambda _: (), cache, {"PATH": "", **mine}, print)
    assert [argv[1] for argv, *_ in asked] == ["clone", "ls-remote"]
    assert {environment["GIT_TERMINAL_PROMPT"] for _, environment, _ in asked} == {"0"}
    assert {environment["SSH_ASKPASS_REQUIRE"] for _, environment, _ in asked} == {"force"}
    assert all(0 < timeout <= 1800 for *_, timeout in asked)


@pytest.mark.parametrize("has_submodules", [False, True])
def test_submodules_of_a_commit_are_fetched_with_it(cache, monkeypatch, has_submodules):
    asked = []

    def run(argv, **_):
        asked.append(argv[1:])
        if "checkout" in argv:
            clone = project.Path(argv[2])
            clone.mkdir()
            if has_submodules:
                (clone / ".gitmodules").touch()
        return Completed(0, ())

    monkeypatch.setattr(project.process, "run", run)
    monkeypatch.setattr(project, "_make", lambda source, name, back_end, work, *_: make_wheel(work / "wheel", "demo"))
    project.of_commit(f"git+https://git.example/x@{COMMIT}", lambda _: (), cache, {}, print)
    after = [argv[2:] for argv in asked if "submodule" in argv]
    assert after == [["submodule", "update", "--init", "--recursive", "--quiet"]] * has_submodules


@pytest.mark.parametrize(
    ("address", "url", "revision"),
    [
        ("git+ssh://git@git.example/team/repo", "ssh://git@git.example/team/repo", "HEAD"),
        ("git+ssh://git@git.example:2222/team/repo.git@v1.0", "ssh://git@git.example:2222/team/repo.git", "v1.0"),
        (f"git+ssh://git@git.example/team/repo@{COMMIT}#egg=repo", "ssh://git@git.example/team/repo", COMMIT),
        ("git+https://me@git.example/team/repo@feature/x", "https://me@git.example/team/repo", "feature/x"),
        ("git+https://git.example/@team/repo@main", "https://git.example/@team/repo", "main"),
        ("git+file:///srv/repo@main", "file:///srv/repo", "main"),
    ],
)
def test_at_sign_of_an_ssh_user_is_not_a_git_revision(cache, monkeypatch, address, url, revision):
    """How private repositories of a group are named: `git+ssh://git@HOST/…`."""
    asked = []

    def run(argv, **_):
        asked.append(argv)
        return Completed(128, ("fatal: Host key verification failed.",))

    monkeypatch.setattr(project.process, "run", run)
    with pytest.raises(NetworkError, match="git cannot fetch") as caught:
        project.of_commit(address, lambda _: (), cache, {}, print)
    assert url in asked[0]
    assert own.git_address(address) == (url, "" if revision == "HEAD" else revision)
    if "ssh:" in address:
        assert f"git clone {url} " in caught.value.next_step, "a command that works as typed"
    else:
        assert "me@" not in str(caught.value)
