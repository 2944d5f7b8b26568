"""The script that opens the pull request of an update: a real git, and a script in place of gh."""

import os
import shutil
import subprocess

import pytest

from tests.conftest import ROOT
from tests.engines.workplace import call

pytestmark = pytest.mark.engine("git")

GH = """#!/bin/sh
echo "$*" >> "$GH_CALLS"
case $* in "pr list"*) cat "$GH_OPEN" ;; esac
"""
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.com")


@pytest.fixture
def repository(tmp_path):
    """A clone with its origin, and a folder for what an update made."""
    for name in ("origin", "update", "bin"):
        (tmp_path / name).mkdir()
    clone = tmp_path / "clone"
    call("git", "init", "--quiet", "--bare", tmp_path / "origin")
    call("git", "clone", "--quiet", tmp_path / "origin", clone)
    (clone / "recipes").mkdir()
    (clone / "recipes/torch.toml").write_text("torch = 1\n")
    (clone / "build.py").write_text("print()\n")
    (clone / ".ci").mkdir()
    shutil.copy2(ROOT / ".ci/propose", clone / ".ci/propose")
    call("git", "-C", clone, "add", "--all")
    call("git", "-C", clone, *IDENTITY, "commit", "--quiet", "--message", "first")
    call("git", "-C", clone, "push", "--quiet", "origin", "HEAD")
    (tmp_path / "bin/gh").write_text(GH)
    (tmp_path / "bin/gh").chmod(0o755)
    (tmp_path / "open").write_text("0\n")
    (tmp_path / "calls").touch()
    return clone


def propose(repository, path, content):
    """Run it with a patch of one file; how it ended."""
    folder = repository.parent
    (repository / path).write_text(content)
    patch = call("git", "-C", repository, "diff", "--binary")
    call("git", "-C", repository, "checkout", "--quiet", "--", ".")
    (folder / "update/update.patch").write_text(patch)
    (folder / "update/update.md").write_text("# Update\n\ntorch 2.99\n")
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "GH_CALLS": str(folder / "calls"),
        "GH_OPEN": str(folder / "open"),
    }
    return subprocess.run(
        [".ci/propose", folder / "update"], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )


def test_an_update_opens_one_pull_request_and_renews_it(repository):
    for content, verb in (("torch = 2\n", "pr create"), ("torch = 3\n", "pr edit")):
        done = propose(repository, "recipes/torch.toml", content)
        assert done.returncode == 0, done.stderr
        pushed = call("git", "-C", repository.parent / "origin", "show", "update/releases:recipes/torch.toml")
        assert pushed == content
        assert verb in (repository.parent / "calls").read_text()
        message = call("git", "-C", repository.parent / "origin", "log", "-1", "--format=%B", "update/releases")
        assert "Update: new releases of " in message
        call("git", "-C", repository, "switch", "--quiet", "-")
        call("git", "-C", repository, "branch", "--quiet", "-D", "update/releases")
        (repository.parent / "open").write_text("1\n")


def test_a_patch_of_anything_else_is_refused(repository):
    done = propose(repository, "build.py", "print('theirs')\n")
    assert (done.returncode, "build.py" in done.stderr) == (1, True)
    assert (repository.parent / "calls").read_text() == ""


def test_a_link_in_a_patch_is_refused(repository):
    folder = repository.parent
    (repository / "images").symlink_to("/etc")
    (repository / "recipes/torch.toml").unlink()
    (repository / "recipes/torch.toml").symlink_to("/etc/passwd")
    call("git", "-C", repository, "add", "--all")
    patch = call("git", "-C", repository, "diff", "--cached", "--binary")
    call("git", "-C", repository, "reset", "--quiet", "--hard")
    (folder / "update/update.patch").write_text(patch)
    (folder / "update/update.md").write_text("# Update\n")
    environment = {**os.environ, "GH_CALLS": str(folder / "calls"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [".ci/propose", folder / "update"], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "a link or a program" in done.stderr) == (1, True)
    assert (folder / "calls").read_text() == ""


def test_nothing_new_opens_nothing(repository):
    done = propose(repository, "recipes/torch.toml", "torch = 1\n")
    assert (done.returncode, (repository.parent / "calls").read_text()) == (0, "")
