"""What git says of a checkout of this project."""

from collections.abc import Mapping
from pathlib import Path

from graphcrate.host import process, settings
from graphcrate.model.errors import GraphcrateError


def commit(root: Path, environment: Mapping[str, str]) -> str:
    """Return the commit of a checkout, with "+" where tracked files differ from it; empty where git does not say.

    Proofs of locks are no difference: they change nothing of what is built.
    """
    variables = settings.select_for_child(environment)
    try:
        head = process.output(["git", "rev-parse", "HEAD"], environment=variables, cwd=root).strip()
        status = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)*.proof.json"]
        changed = process.output(status, environment=variables, cwd=root).strip()
    except GraphcrateError:
        return ""
    return head + ("+" if changed else "")
