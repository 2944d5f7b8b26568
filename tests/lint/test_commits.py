"""Subjects of commits are the area and an imperative, as CONTRIBUTING.md asks: `resolve: hash the stack's lock`."""

import re
import subprocess

import pytest

from tests import ROOT

#: commits before this day are as they are
SINCE = "2026-11-30T00:00:00Z"
#: `area: verb …`, one change or several, with a semicolon between them
SUBJECT = re.compile(r"[\w][\w ,/.()-]*: (?P<verb>[a-z]+)\b.*[^.]")
#: third person, past, gerund …
OTHER_FORM = re.compile(r".*(?:[^s]s|ed|ing)")
#: … and verbs that look like one
VERBS = {"embed", "feed", "need", "speed", "bring", "ping", "sing", "string", "bias", "focus", "canvas"}
#: what begins a sentence that is not an order
OTHERS = {
    *("a", "an", "the", "this", "that", "these", "those", "one", "some", "all", "each", "both", "any", "it", "its"),
    *("what", "whatever", "which", "who", "whoever", "where", "when", "how", "why", "if", "there", "no", "nothing"),
    *("nobody", "more", "less", "is", "are", "was", "were", "has", "have", "had", "can", "may", "will", "and", "or"),
    *(
        "not",
        "of",
        "by",
        "for",
        "from",
        "on",
        "in",
        "with",
        "new",
        "plainer",
        "better",
        "other",
        "further",
        "also",
        "now",
    ),
}


def objection(subject):
    """Return why a subject is not one of ours; empty where it is."""
    match = SUBJECT.fullmatch(subject)
    if not match:
        return "not `area: verb …`, without a full stop"
    verb = match["verb"]
    if verb in OTHERS or (OTHER_FORM.fullmatch(verb) and verb not in VERBS):
        return f"{verb!r} is not an imperative"
    return ""


@pytest.mark.parametrize(
    ("subject", "is_fine"),
    [
        ("resolve: hash the stack's lock into the digest of additions", True),
        ("git: refuse addresses that begin with a dash", True),
        ("names, shares: pass the folder of images", True),
        ("Sources: embed what a wheel lacks", True),
        ("Conflicts, audit, sources: what the last changes computed twice is computed once; plainer words", False),
        ("Packages: passes, by the option that its message names", False),
        ("cache: refused one that another user owns", False),
        ("cache: refusing others", False),
        ("apptainer: an image that does not start on every node is no failed suite", False),
        ("refuse addresses", False),
        ("git: refuse addresses.", False),
    ],
)
def test_commit_subject_is_an_area_and_an_imperative(subject, is_fine):
    assert (objection(subject) == "") is is_fine


def test_commits_from_now_on_have_such_subjects():
    """Those that are here: in a shallow clone some, in an archive none."""
    try:
        command = ["git", "-C", ROOT, "log", "--no-merges", "--format=%cI %s", f"--since={SINCE}"]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        log = ""
    subjects = [line.partition(" ")[2] for line in log.splitlines()]
    assert {subject: said for subject in subjects if (said := objection(subject))} == {}, "git commit --amend"
