"""Choices from lists of packages: each file of test-data/choose is a test."""

import itertools
import re
from pathlib import Path

import pytest

from debroot.errors import MissingPackageError
from debroot.lists import PackageLists, parse
from debroot.versions import fits, version_key

CASES = sorted(Path(__file__).parent.glob("test-data/choose/*.txt"))
#: of 0, 1 and 2 those that are so to 1
RELATIONS = {"<<": ["0"], "<=": ["0", "1"], "=": ["1"], ">=": ["1", "2"], ">>": ["2"]}


def lists_of(text):
    """Stanzas of a case, with what each needs to be a package; those after `== security` are fixes."""
    parts = []
    for part in text.partition("== security\n")[::2]:
        stanzas = [stanza.strip() for stanza in re.split(r"\n\s*\n", part) if stanza.strip()]
        more = "Architecture: amd64\nFilename: pool/x/x_1_amd64.deb\nSize: 1\nSHA256: 00"
        parts.append(["\n\n".join(f"{stanza}\n{more}" for stanza in stanzas).encode()])
    return PackageLists("Debian some", *parts)


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_chosen_packages_are_those_that_the_file_expects(case):
    asked, expected, text = (part.strip() for part in case.read_text("utf-8").split("==", 2))
    lists = lists_of(text.removeprefix("lists\n"))
    if expected.startswith("expected error:"):
        with pytest.raises(MissingPackageError) as caught:
            lists.resolve(asked.split(), "the test")
        assert expected.removeprefix("expected error:").strip() in f"{caught.value}"
    else:
        found = [f"{package.name} {package.version}" for package in lists.resolve(asked.split(), "the test")]
        assert found == expected.removeprefix("expected\n").splitlines()


def test_there_are_cases():
    assert len(CASES) > 5


def test_version_key_orders_as_debian():
    for ordered in (
        "1.0~~ 1.0~ 1.0~rc1 1.0 1.0-1 1.0-1+b1 1.0a 1.0.1 1.2 1.10 2 1:0.1",
        "2.36-9 2.36-9+deb12u9 2.36-9+deb12u14 2.36-10~ 2.36-10",
        "1.0 1:0.9 1:2:3 1:2:4 2:0",  # the first colon ends the epoch (Policy 5.6.12)
        "0 a:1",  # no number before the colon: no epoch
        f"1 {'9' * 5000} 1{'0' * 5000}",  # more digits than Python makes a number of
    ):
        assert all(version_key(a) < version_key(b) for a, b in itertools.pairwise(ordered.split()))
    assert version_key("1.0") == version_key("1.0-0") == version_key("0:01.00")
    taken = {relation: [version for version in "012" if fits(version, f"{relation} 1")] for relation in RELATIONS}
    assert taken == RELATIONS


def test_stanza_without_a_hash_is_no_package():
    text = b"Package: a\nVersion: 1\nArchitecture: amd64\nFilename: pool/a.deb\nSize: 1\n"
    assert list(parse(text)) == []
    assert [stanza.name for stanza in parse(text + b"SHA256: 00\n")] == ["a"]
