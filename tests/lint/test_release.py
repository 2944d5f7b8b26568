"""What has to be of today when a release is made: `RELEASE=yes` refuses what is old, any other run names it (-rx).

A commit that changes the bytes of images makes every proof stale, so only a release can ask for all of them.
"""

import os
import subprocess

import pytest

from graphcrate.compat import proofs
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from tests import ROOT


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


#: a shallow clone has no history to ask
HISTORY = git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"


def in_history(commit):
    return not HISTORY or git("merge-base", "--is-ancestor", commit.rstrip("+"), "HEAD").returncode == 0


def refused_at_a_release(old, instead):
    """Fail at a release; before, say what would fail then."""
    if old and os.environ.get("RELEASE") != "yes":
        pytest.xfail(f"before a release: {instead}: {'; '.join(old)}")
    assert old == [], instead


def test_proofs_of_committed_locks_are_of_todays_code_at_a_release():
    ctx = Context.here()
    found = list(proofs.standings(ctx, catalog.all_recipes(ctx)))
    old = [f"{each.title} is {each.dated}" for each in found if each.word not in ("proved", "emulated")]
    refused_at_a_release(old, "make images")


def test_proofs_name_a_commit_of_the_history_at_a_release():
    ctx = Context.here()
    found = [each for each in proofs.standings(ctx, catalog.all_recipes(ctx)) if each.proof]
    lost = [f"{each.title}: {each.proof.commit}" for each in found if not in_history(each.proof.commit)]
    refused_at_a_release(lost, "make images AGAIN=yes of these")
