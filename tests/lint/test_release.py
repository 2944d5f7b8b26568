"""Proofs and figures are of today at a release: `RELEASE=yes` refuses old ones, any other run names them (-rx).

A commit that changes the bytes of images makes every proof stale, so only a release can ask for all of them.
"""

import os
import re
import subprocess
import tomllib

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


FIGURES = tomllib.loads((ROOT / "bench/figures.toml").read_text(encoding="utf-8"))
ROWS = {row["section"]: row for row in FIGURES["figure"]}
#: a number with a unit: 314 s, 2.8 GB, 7 minutes
FIGURE = re.compile(r"\b\d[\d.]* (?:s|GB|minutes)\b")


def sections(name):
    """Heading → text, of a page."""
    parts = re.split(r"^#+ (.+)\n", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_sections_with_figures_name_script_day_and_a_commit_of_the_history():
    for heading, text in sections("docs/performance.md").items():
        assert heading in ROWS or not FIGURE.search(text), f"bench/figures.toml has no row for {heading}"
    for heading, row in ROWS.items():
        text = sections(row.get("page", "docs/performance.md"))[heading]
        assert row["by"].startswith("./build.py") or (ROOT / row["by"]).is_file(), heading
        assert re.search(r"\b2\d{3}-\d\d-\d\d\b", text), heading
        assert [word for word in (row["by"], row["commit"]) if word not in text] == [], heading
        assert in_history(row["commit"]), f"{heading}: {row['commit']} is no commit of this history"
        assert ("*Old*" in text) == row.get("old", False), heading
        assert all((ROOT / path).exists() for path in row["measures"]), heading


def test_figures_are_of_few_commits_ago_at_a_release():
    old = []
    for heading, row in ROWS.items() if HISTORY else ():
        count = git("rev-list", "--count", f"{row['commit']}..HEAD", "--", *row["measures"]).stdout.strip()
        if int(count) > FIGURES["commits"]:
            old.append(f"{heading}, by {row['by']}: {count} commits")
    refused_at_a_release(old, "measure again")


def test_each_figure_of_readme_is_of_a_measured_section():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for sentence, source in FIGURES["readme"].items():
        assert sentence in text, sentence
        assert source in ROWS or source.startswith("./build.py "), sentence
        text = text.replace(sentence, "")
    assert FIGURE.findall(text) == [], "a row in bench/figures.toml, and the script that measures it"
