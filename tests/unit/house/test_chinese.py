"""The Chinese pages say what the English ones say: the same headings, commands, tables, code and links, in Chinese."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests import ROOT
from tests.unit.house.test_readme import BLOCK, CHINESE, PAGES, typed

#: besides the tutorials: what an engineer who reads Chinese looks up first
WANTED = {"README", "install", "customize", "run", "notebooks", "faq", "publish", "checks", "settings", "doctor"}
#: what engineers in China do not call it (or not in one page beside the other word) → what they do
TERMS = {
    "映像": "镜像",
    "锁定文件": "锁文件",
    "驱动器": "驱动",
    "计算能力": "算力",
    "软体|软件堆栈": "软件栈",
    "笔记本环境": "Notebook",
    "缺省": "默认",
    "命令行行": "命令行",
    "登陆": "登录",
    "帐号|帐户": "账号",
    "其它": "其他",
}


def english(name):
    """The English page of a Chinese one; of any other page itself."""
    return "README.md" if name == "docs/zh/README.md" else name.replace("/zh/", "/")


def prose(name):
    """A page without its blocks."""
    return BLOCK.sub("", PAGES[name])


def headings(name):
    return re.findall(r"^(#+) (.*)$", prose(name), re.MULTILINE)


def anchor(heading):
    """As the pages' renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower()


def links(name):
    """Links of a page: (page, which of its headings), with the English page in the place of a Chinese one."""
    found = Counter()
    for path, head in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose(name)):
        target = str((ROOT / name).parent.joinpath(path).resolve().relative_to(ROOT)) if path else name
        at = [anchor(text) for _, text in headings(target)].index(head) if head else -1
        found[english(target), at] += 1
    return found


def code(name):
    """The texts between backquotes."""
    return Counter(one or other for one, other in re.findall(r"``\s?(.+?)\s?``|`([^`\n]+)`", prose(name)))


def structure(name):
    """A page's structure without its words."""
    return {
        "headings": [level for level, _ in headings(name)],
        "blocks": re.findall(r"^```(\w*)\n(?:.*\n)*?```$", PAGES[name], re.MULTILINE),
        "commands": typed(PAGES[name]),
        "columns of tables": [line.count("|") for line in prose(name).splitlines() if line.startswith("|")],
    }


def test_required_chinese_pages_exist():
    assert {f"docs/zh/{name}.md" for name in WANTED} <= set(CHINESE)


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_page_has_the_structure_and_code_of_the_english_one(name):
    assert len(typed(PAGES[name])) > 2
    ours, theirs = structure(name), structure(english(name))
    assert ours == theirs, f"{english(name)} has changed: translate that in {name}"
    said, wanted = code(name), code(english(name))
    assert (wanted - said, said - wanted) == (Counter(), Counter()), f"{english(name)} names these, {name} does not"


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_page_has_the_links_of_the_english_one(name):
    ours, theirs = links(name), links(english(name))
    assert theirs - ours == Counter(), f"{english(name)} links to these, {name} does not"
    further = [page for page, _ in ours - theirs]  # the first page is the index of all
    chinese = {english(one) for one in CHINESE}
    assert further == [] if name != "docs/zh/README.md" else set(further) <= chinese


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_page_links_to_chinese_pages(name):
    """To English ones only where there is no Chinese one, but for that to its own English page and its anchors."""
    for path in re.findall(r"\]\(([^)#:]+\.md)", prose(name)):
        target = (ROOT / name).parent.joinpath(path).resolve().relative_to(ROOT)
        own = str(target) == english(name)
        assert own or str(target) not in {english(one) for one in CHINESE}, f"{name} leads to {target}"


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_and_english_pages_link_to_each_other(name):
    other = english(name)
    for page, language, target in ((name, "English", other), (other, "中文", name)):
        link = f"[{language}]({os.path.relpath(target, Path(page).parent)})"
        assert link in PAGES[page].splitlines()[:3], f"{page} lacks {link}"


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_page_has_full_width_punctuation_and_standard_terms(name):
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\[[^]]*\](?!\()", "", prose(name))  # the last: shapes of arrays
    assert re.findall(r"[一-鿿][,;?!()]|[,;?!(][一-鿿]", text) == [], "punctuation of half width"
    assert [(wrong, right) for wrong, right in TERMS.items() if re.search(wrong, text)] == []
