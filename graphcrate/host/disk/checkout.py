"""Facts from git about a checkout of this project."""

from collections.abc import Mapping
from pathlib import Path

from graphcrate.host import git, settings
from graphcrate.model.errors import GraphcrateError


def commit(root: Path, environment: Mapping[str, str]) -> str:
    """Return the commit of a checkout, with "+" where tracked files differ from it; empty where git does not say.

    Proofs of locks are no difference: they change nothing of what is built.
    """
    variables = settings.select_for_child(environment)
    try:
        head = git.output("rev-parse", "HEAD", environment=variables, cwd=root).strip()
        status = ("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)*.proof.json")
        changed = git.output(*status, environment=variables, cwd=root).strip()
    except GraphcrateError:
        return ""
    return head + ("+" if changed else "")
