"""The page on who may be hostile: each row names tests that hold it, and those exist. How to report a hole."""

import ast
import re

from tests import ROOT

PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("security.md", "cache.md", "serve.md")]
LINES = [line for page in PAGES for line in page.splitlines() if line.startswith("| ")]
ROWS = [line for line in LINES if not line.startswith("| who, with what")]
#: who may be hostile
WHO = (
    "recipe",
    "source",
    "wheel",
    "mirror",
    "index",
    "registry",
    "image",
    "published",
    "cache",
    "other users",
    "CI",
    "site",
    "no login",
)


def test_each_row_names_tests_that_exist():
    assert len(ROWS) >= len(WHO)
    for row in ROWS:
        named = re.findall(r"`([a-z/]+/test_[a-z0-9_]+\.py)::(test_\w+)`", row)
        assert named, f"no test holds: {row[:60]}"
        for path, name in named:
            folder = ROOT if path.startswith("packages/") else ROOT / "tests"
            tree = ast.parse((folder / path).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"


def test_everybody_who_hands_something_in_has_a_row():
    assert [who for who in WHO if not any(f"**{who}**" in row for row in ROWS)] == []


def test_how_to_report_is_at_the_top_and_names_no_address():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in text
    assert "docs/security.md" in text
    assert "@" not in text
