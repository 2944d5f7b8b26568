"""README.md agrees with the code: generated tables, commands and settings that exist."""

import re

from graphcrate import cli, recipes
from tools import readme_tables

README = (readme_tables.ROOT / "README.md").read_text(encoding="utf-8")


def test_tables_are_fresh():
    assert readme_tables.rendered(README) == README, "python -m tools.readme_tables"


def test_tables_have_every_variant_and_code():
    table = readme_tables.variants()
    for path in (readme_tables.ROOT / "recipes").glob("*.toml"):
        for variant in recipes.load(path).variants:
            assert f"| `{path.stem}` | {variant.cuda} |" in table
    assert "| 8 | No room left on the disk" in readme_tables.exit_codes()


def test_every_make_target_that_is_named_exists():
    makefile = (readme_tables.ROOT / "Makefile").read_text()
    named = set(re.findall(r"`?make (?:[A-Z]+=\S+ )*([a-z]+(?:\.py)?)", README))
    assert "image" in named
    assert named <= set(re.findall(r"^([a-z]+(?:\.py)?):", makefile, re.MULTILINE))


def test_every_command_that_is_named_exists():
    commands = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    pages = [README, *(path.read_text() for path in (readme_tables.ROOT / "docs").glob("*.md"))]
    for page in pages:
        assert set(re.findall(r"\./build\.py ([a-z]+)", page)) <= commands


def test_every_environment_variable_that_is_named_is_read():
    code = "".join(path.read_text() for path in (readme_tables.ROOT / "graphcrate").rglob("*.py"))
    rows = re.findall(r"^\| `([A-Z_]+)`", README, re.MULTILINE)
    assert "GRAPHCRATE_CACHE" in rows
    assert [name for name in rows if name not in code and not name.startswith("PIP_")] == []


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (readme_tables.ROOT / target).exists(), target
