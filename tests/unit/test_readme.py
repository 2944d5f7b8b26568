"""README.md and the pages of docs/ agree with the code: what is generated is fresh, what they name exists."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphcrate.build.summary import plan_lines
from graphcrate.checks.contracts import CHECKS
from graphcrate.cli import main
from graphcrate.compat import recipes
from graphcrate.model.lock import decode_lock
from tests import ROOT
from tools import generate
from tools.pictures import pictures

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md"))}


def test_what_is_generated_is_fresh():
    assert [path for path, text in generate.files() if path.read_text(encoding="utf-8") != text] == [], "make generate"
    contracts = generate.contracts()
    assert all(f"| `{check.id}` |" in contracts for check in CHECKS)


def test_pictures_are_small_described_and_ask_nobody():
    drawn = dict(pictures())
    assert set(drawn) == set((ROOT / "docs/pictures").glob("*.svg"))
    for path, text in drawn.items():
        assert len(text.encode()) < 30_000, path
        assert ElementTree.fromstring(text).get("aria-label"), path
        assert "prefers-color-scheme: dark" in text
        assert set(re.findall(r"https?://[^\"]*", text)) == {"http://www.w3.org/2000/svg"}


def test_the_terminal_picture_shows_what_a_build_prints():
    """Up to the … of a line that was cut."""
    folder = ROOT / "docs/pictures"
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    printed = plan_lines("pyg:2.3.1-torch2.0.1-cu118-py311-compat", lock, (), "", 0)
    printed += (folder / "dna.log").read_text(encoding="utf-8").splitlines()
    shown = (folder / "build.txt").read_text(encoding="utf-8").splitlines()
    held = [line.partition("…")[0] for line in shown if re.match(r"plan|  \w|Epoch", line)]
    assert len(held) == 7
    assert [line for line in held if not any(one.startswith(line) for one in printed)] == []


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(AssertionError, match="settings"):
        generate.filled("<!-- settings, from elsewhere -->", {"settings": ""})


def test_tables_have_every_variant_and_code():
    table = generate.variants()
    for path in (ROOT / "recipes").glob("*.toml"):
        for variant in recipes.load(path).variants:
            assert f"| `{path.stem}` | {variant.cuda} |" in table
    assert "| 8 | No room left on the disk" in generate.exit_codes()


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`?make (?:[A-Z]+=\S+ )*([a-z]+(?:\.py)?)", README))
    assert "image" in named
    assert named <= set(re.findall(r"^([a-z]+(?:\.py)?):", makefile, re.MULTILINE))


def test_every_command_that_is_named_exists():
    commands = {command.name or command.callback.__name__ for command in main.app.registered_commands}
    named = {
        name: set(re.findall(r"\./build\.py ([a-z]+)", page)) for name, page in {"README": README, **PAGES}.items()
    }
    assert {name: words - commands for name, words in named.items() if words - commands} == {}


def test_every_environment_variable_that_is_named_is_read():
    code = "".join(path.read_text() for path in (ROOT / "graphcrate").rglob("*.py"))
    rows = re.findall(r"^\| `([A-Z_]+)`", PAGES[Path("docs/settings.md")], re.MULTILINE)
    assert "GRAPHCRATE_CACHE" in rows
    assert [name for name in rows if name not in code and not name.startswith("PIP_")] == []


def test_links_lead_to_files():
    for name, page in {"README.md": README, **PAGES}.items():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page):
            assert ((ROOT / name).parent / target).exists(), (name, target)


CHINESE = sorted(path for path in PAGES if path.is_relative_to("docs/zh"))


def of_english(path):
    """The English page of a Chinese one."""
    name = path.relative_to("docs/zh")
    return README if name == Path("README.md") else PAGES["docs" / name]


def typed(page):
    """What is typed: lines of blocks without comments; commands in tables and sentences."""
    blocks = "".join(re.findall(r"^```\w*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    starts = r"make|\./build\.py|srun|singularity|torchrun|sysctl|export|module|dnf|apt-get|uv|unshare"
    sentences = re.findall(rf"(?<!`)`((?:{starts}) [^`\n]+)`", page)
    return [line.partition(" #")[0].strip() for line in [*blocks.splitlines(), *sorted(set(sentences))]]


@pytest.mark.parametrize("path", CHINESE, ids=str)
def test_a_chinese_page_has_the_commands_of_the_english_one(path):
    chinese, english = typed(PAGES[path]), typed(of_english(path))
    assert len(chinese) > 2
    if path.name == "README.md":  # the first screen alone
        assert set(chinese) <= set(english)
    else:
        assert chinese == english


@pytest.mark.parametrize("path", CHINESE, ids=str)
def test_a_chinese_page_links_to_headings_that_exist(path):
    for target, heading in re.findall(r"\]\(([^)#:]+)#([^)]+)\)", PAGES[path]):
        text = ((ROOT / path).parent / target).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w\- ]", "", line).replace(" ", "-").lower()
            for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert heading in headings, (target, heading)


def test_every_tutorial_has_a_chinese_page():
    english = {path.name for path in PAGES if path.parent == Path("docs/tutorials")} - {"README.md"}
    assert english == {path.name for path in CHINESE if path.parent.name == "tutorials"}
