"""README.md and the pages of docs/ agree with the code: what is generated is fresh, what they name exists."""

import re

import pytest

from graphcrate.assembly import planned, room
from graphcrate.assembly.summary import Aside, Upkeep, plan_lines
from graphcrate.cli import main
from graphcrate.compat.facts import suites
from graphcrate.compat.plan import planning
from graphcrate.compat.variants import recipes, targets
from graphcrate.compat.variants.targets import Target
from graphcrate.host.context import Context
from graphcrate.model import toml
from graphcrate.model.lock import decode_lock
from graphcrate.model.recipe import Recipe
from graphcrate.model.report import CandidateOutcome
from tests import ROOT
from tests.unit.conftest import TODAY
from tools import generate
from upkeep.cli import app as upkeep

FILES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
CHINESE = [name for name in PAGES if name.startswith("docs/zh/")]
#: written by programs; the others are for people, at most so many words beside commands and generated tables
GENERATED, WORDS = {"docs/performance.md"}, 700
ALL_WORDS = 60_500  #: of docs/ in English, tables and commands too
FOR_PEOPLE = [name for name in PAGES if name not in GENERATED and not re.match("docs/(dev|decisions|zh)/", name)]
LOCKS = sorted(ROOT.glob("images/*/*/*.lock.json"))
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"<!-- [\w ]+(?:, generated|: written by .*?) -->.*?<!-- end of [\w ]+ -->", re.DOTALL)


def test_generated_pages_are_fresh():
    assert [path for path, text in generate.files() if path.read_text(encoding="utf-8") != text] == [], "make generate"


def test_disk_of_a_first_build_is_the_plans_on_each_page(tmp_path):
    (lock,) = (decode_lock(path.read_bytes()) for path in LOCKS if path.match("pyg/cu118/compatible.lock.json"))
    recipe = recipes.load(ROOT / "recipes/pyg.toml")
    (candidate,) = (one for one in recipe.variant("11.8").candidates if one.name == "compatible")
    plan = planning.make_plan(recipe, lock, candidate, examples={})
    ctx = Context(root=ROOT, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    to_fetch = sum(file.size for file in lock.files().values())
    said = room.of_build(plan, lock, to_fetch, tmp_path / "dist", ctx, tested=True).line()
    needed = float(re.search(r"needs about (\S+) GB", said)[1])
    figures = [("README.md", "{} GB of disk"), ("docs/install.md", "{} GB with the cache")]
    figures += [
        ("docs/zh/README.md", "\u5360\u7528\u78c1\u76d8 {} GB"),
        ("docs/zh/install.md", "\u8fde\u540c\u7f13\u5b58 {} GB"),
    ]
    for page, words in figures:
        (figure,) = re.findall(words.format(r"([\d.]+)"), PAGES[page])
        assert abs(float(figure) - needed) < 0.15, (page, said)


def test_the_terminal_picture_shows_what_a_build_prints():
    """Up to the … of a line that was cut."""
    folder = ROOT / "docs/pictures"
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    upkeep = Upkeep(suites.described(lock.base.suite, TODAY))
    printed = plan_lines("pyg:2.3.1-torch2.0.1-cu118-py311-compat", lock, (), "", 0, upkeep=upkeep)
    printed += (folder / "dna.log").read_text(encoding="utf-8").splitlines()
    shown = (folder / "build.txt").read_text(encoding="utf-8").splitlines()
    held = [line.partition("…")[0] for line in shown if re.match(r"plan|  \w|Epoch", line)]
    assert len(held) == 7
    assert [line for line in held if not any(one.startswith(line) for one in printed)] == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("images/*/*/*.lock.json")), ids=lambda path: "-".join(path.parts[-3:])
)
def test_plan_of_a_known_stack_has_at_most_12_lines_though_hosts_are_not_reached(path):
    lock, chosen = decode_lock(path.read_bytes()), path.name.partition(".")[0]
    constraint = "pytorch channel: name does not resolve (download.pytorch.org)"
    skipped = CandidateOutcome(candidate="pytorch", chosen=False, constraint=constraint)
    both = (skipped, CandidateOutcome(candidate=chosen, chosen=True))
    outcomes, blocked = planned.blocked_hosts(both, lock, verbose=False)
    (note,) = blocked
    assert "download.pytorch.org" in note
    insist = "insist on torch" if chosen == "compatible" else ""
    usual = ("torch.compile does not work",)
    aside = Aside(insist, "needs 8 GB", ("some 5 minutes",), blocked, usual=usual, verbose=False)
    brief = plan_lines("pyg:1", lock, outcomes, "", 0, aside=aside)
    begin = [line[:12].split(":")[0] for line in brief if not line.startswith("  without ")]
    assert begin[:3] == ["plan for pyg", "  to fetch  ", "  disk      "], "its cost first"
    assert len(brief) <= 12
    aside = aside._replace(verbose=True)
    whole = plan_lines("pyg:1", lock, planned.blocked_hosts(both, lock, verbose=True)[0], "", 0, aside=aside)
    assert [line for line in brief[:-1] if line not in whole and "some 5 minutes" not in line] == []
    assert any(constraint in line for line in whole)
    assert re.fullmatch(r"  more      VERBOSE=yes \(--verbose\): \d+ lines? that each build has", brief[-1])


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_page_has_at_most_the_word_limit(name):
    words = len(TABLE.sub("", BLOCK.sub("", PAGES[name])).split())
    assert words <= WORDS, f"{words} words: cut, split, or move what developers need to docs/dev/"


def test_pages_together_have_at_most_the_word_limit():
    words = sum(len(page.split()) for name, page in PAGES.items() if name not in ("README.md", *CHINESE))
    assert words <= ALL_WORDS, f"{words} words in docs/: cut, or let `make generate` write tables to dist/docs"


def test_each_page_is_in_an_index_and_each_tutorial_has_a_chinese_one():
    """That of its folder, which docs/README.md leads to; an English page in no Chinese one alone."""
    indexes = ["docs/README.md", "docs/tutorials/README.md", "docs/decisions/README.md"]
    listed = {target for name in indexes for target, _ in links(name)}
    english = {ROOT / name for name in PAGES if name not in CHINESE and name not in ("README.md", "docs/README.md")}
    assert english <= listed
    assert {ROOT / name for name in CHINESE} <= {target for target, _ in links("docs/zh/README.md")} | listed
    tutorials = {path.name for path in ROOT.glob("docs/tutorials/*.md")} - {"README.md"}
    assert tutorials == {path.name for path in ROOT.glob("docs/zh/tutorials/*.md")}


def test_make_targets_commands_and_variables_on_pages_exist():
    """Make's targets, commands, variables, fields of recipes."""
    targets = set(re.findall(r"^([a-z-]+(?:\.py)?):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = (*main.app.registered_commands, *upkeep.registered_commands)
    commands = {command.name or command.callback.__name__ for command in known}
    for name, page in PAGES.items():
        made = re.findall(r"(?:`|^)make (?:[A-Z_]+=\S+ )*([a-z][a-z-]*(?:\.py)?)\b(?!=)", page, re.MULTILINE)
        assert set(made) <= targets, name
        assert set(re.findall(r"\./build\.py ([a-z]+)", page)) <= commands, name
    folders = (ROOT / "graphcrate", *ROOT.glob("packages/*/src"))
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    variables = re.findall(r"^\| `([A-Z_]+)`", PAGES["docs/settings.md"], re.MULTILINE)
    assert "GRAPHCRATE_CACHE" in variables
    assert [name for name in variables if name not in code and not name.startswith("PIP_")] == []
    fields = {field for one in toml.schema(Recipe)["$defs"].values() for field in one.get("properties", ())}
    assert [field for field in sorted(fields) if f"`{field}" not in PAGES["docs/recipes.md"]] == []


def test_examples_of_recipes_and_targets_are_valid():
    rules = {"docs/recipes.md": (Recipe, recipes.contradictions), "docs/explain.md": (Target, targets.contradictions)}
    for page, (kind, contradictions) in rules.items():
        example = re.search(r"^```toml\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)[1]
        assert toml.parse(example, page, kind, contradictions, "").description


def links(name):
    """Files that a page links to, and headings in them ("": none)."""
    found = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", PAGES[name])
    return [((ROOT / name).parent.joinpath(path).resolve() if path else ROOT / name, head) for path, head in found]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings(name):
    for target, heading in links(name):
        assert target.exists(), target
        if heading:
            lines = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", line).replace(" ", "-").lower() for line in lines}, target


def typed(page):
    """Commands of a page: lines of blocks without comments; commands in tables and sentences."""
    starts = r"make|\./build\.py|srun|singularity|torchrun|sysctl|export|module|dnf|apt-get|uv|unshare"
    sentences = re.findall(rf"(?<!`)`((?:{starts}) [^`\n]+)`", page)
    lines = "".join(BLOCK.findall(page)).splitlines()
    return [line.partition(" #")[0].strip() for line in [*lines, *sorted(set(sentences))]]
