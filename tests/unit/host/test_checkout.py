"""The commit of a checkout, as a proof names it."""

import pytest

from graphcrate.host.disk import checkout
from graphcrate.model.errors import HostError

HEAD = "ab" * 20


@pytest.mark.parametrize(("status", "commit"), [("", HEAD), (" M recipes/pyg.toml\n", f"{HEAD}+")])
def test_commit_of_a_checkout_with_changes_ends_with_a_plus(monkeypatch, tmp_path, status, commit):
    def output(argv, *, environment, cwd, timeout):
        assert cwd == tmp_path
        assert "PATH" in environment
        return f"{HEAD}\n" if "rev-parse" in argv else status

    monkeypatch.setattr(checkout.git.process, "output", output)
    assert checkout.commit(tmp_path, {}) == commit


def test_commit_without_git_is_empty(monkeypatch, tmp_path):
    def output(*_, **__):
        raise HostError("git is not installed")

    monkeypatch.setattr(checkout.git.process, "output", output)
    assert checkout.commit(tmp_path, {}) == ""
