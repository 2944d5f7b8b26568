"""The pages of docs/ on one page of the catalogue: all sections are there, and links lead to them."""

import html
import re
import shutil

import pytest

from tests import ROOT
from upkeep.catalogue import guide
from upkeep.catalogue.pages import file_name

README = "# Top\nOne [page](docs/a.md#two-words) and [code](build.py).\n"
INDEX = "# Index\n[b](b.md), [a](a.md)\n"
A = "# A\n<script>alert(1)</script>\n\n![a picture](p.svg)\n\n## Two words\n### Below\n"
A += "[up](../README.md), [zh](zh/c.md)\n"
B = "# B\n<!-- rows, generated -->\n| x |\n|---|\n| `y` |\n<!-- end of rows -->\n[out](https://example.com/x.md)\n"


@pytest.fixture
def guides(tmp_path):
    for name, text in {
        "README.md": README, "docs/README.md": INDEX, "docs/a.md": A, "docs/b.md": B,
        "docs/zh/README.md": "# \u7d22\u5f15\n[c](c.md)\n", "docs/zh/c.md": "# C\n[a](../a.md#below)\n",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return guide.guides(tmp_path, ["en", "zh", "de"], file_name)


def test_sections_are_in_the_order_of_the_index_with_those_of_the_readme_first(guides):
    assert list(guides) == ["en", "zh"]
    assert [(part.page, part.heading) for part in guides["en"]] == [
        ("Top", ""), ("B", ""), ("A", ""), ("A", "Two words"), ("Index", "")
    ]  # fmt: skip
    assert [part.page for part in guides["zh"]] == ["C", "\u7d22\u5f15"]


def test_links_lead_to_sections_to_the_other_language_or_are_words(guides):
    top, b, a, two, _ = guides["en"]
    assert '<a href="#docs-a--two-words">page</a>' in top.html
    assert "code" in top.html
    assert "build" not in top.html
    assert '<a href="https://example.com/x.md">' in b.html
    assert '<a href="#README">up</a>' in two.html
    assert '<a href="docs.zh.html#docs-zh-c">zh</a>' in two.html
    assert '<h2 id="docs-a--below">Below</h2>' in two.html, "the next below the page's own"
    assert '<a href="docs.html#docs-a--below">a</a>' in guides["zh"][0].html
    assert "a picture" in a.html


def test_pages_html_and_comments_are_text_or_left_out(guides):
    _, b, a, *_ = guides["en"]
    assert html.escape("<script>alert(1)</script>") in a.html
    assert "<img" not in a.html
    assert "generated" not in b.html
    assert "<td><code>y</code></td>" in b.html


def test_links_of_the_real_pages_all_lead_somewhere(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    guides = guide.guides(tmp_path, ["en", "zh"], file_name)
    ids = {language: {one for part in parts for one in guide.ids(part)} for language, parts in guides.items()}
    for language, parts in guides.items():
        for page, target in re.findall(r'href="(?!http)([^"#]*)#([^"]*)"', "".join(part.html for part in parts)):
            assert html.unescape(target) in ids[{"docs.html": "en", "docs.zh.html": "zh"}.get(page, language)]
    assert len(guides["en"]) > 250
