"""Write what is generated: tables of docs/, llms.txt, the JSON schema of recipes, the doctor's facts, dist/docs.

`make generate` (`python -m tools.generate`) rewrites them; a unit test fails when one is stale. The long pages of
commands, errors and attempts against the sandbox go to dist/docs, which is not in the repository.
"""

import inspect
import json
import pprint
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from graphcrate.checks.contracts.run import CHECKS
from graphcrate.cli import main, spoken
from graphcrate.cli.spoken import Spoken
from graphcrate.cli.tables import gpus_of
from graphcrate.compat.facts import facts, glt, gpu_table, suites, torch_compile
from graphcrate.compat.facts.identities import identities
from graphcrate.compat.proofs import WORDS, Standing, standings
from graphcrate.compat.requirements import own
from graphcrate.compat.variants import catalog, recipes
from graphcrate.engines.run_order import PASSED
from graphcrate.host.context import Context
from graphcrate.model import errors, toml
from graphcrate.model.command import filled as typed
from graphcrate.model.lock import decode_lock
from graphcrate.model.platform import SUPPORTED
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.model.words import size
from tools import errors_page, llms, requirement_files, sandbox_page, source_packages, upstream_ledger, wanted_packages
from tools.pictures import pictures
from tools.tables import filled

ROOT = Path(__file__).resolve().parent.parent
#: codes that no error class stands for
OTHER_CODES = {0: "done", 1: "Python itself could not start the program", 130: "interrupted (Ctrl-C)"}


def files() -> Iterator[tuple[Path, str]]:
    """Each generated file, or file with generated parts, and its text."""
    kept = {
        "docs/images.md": {
            "variants": variants(),
            "proofs": proofs(),
            "upstream": upstream_ledger.table(),
            "suites": debians(),
        },
        "docs/proof.md": {
            "words": table(("word", "what it says"), [(f"*{word}*", text) for word, text in WORDS.items()])
        },
        "docs/requirements.md": {"files": table(requirement_files.HEAD, requirement_files.rows())},
        "docs/run.md": {"variables": passed()},
        "docs/zh/run.md": {"variables": passed()},
        "docs/settings.md": {"exit codes": exit_codes(), "settings": settings()},
        "docs/zh/settings.md": {"exit codes": exit_codes(spoken.chinese()), "settings": settings()},
        "docs/contracts.md": {"contracts": contracts()},
        "docs/customize.md": {"fields": own_fields()},
        "docs/packages.md": wanted_packages.tables(),
        "docs/sources.md": source_packages.tables(),
        "docs/identities.md": {"identities": identities_table()},
        "docs/sandbox.md": {
            "steps": table(*sandbox_page.steps()),
            "walls": table(*sandbox_page.walls()),
        },
    }
    for name, tables in kept.items():
        yield ROOT / name, filled((ROOT / name).read_text(encoding="utf-8"), tables)
    yield from pictures()
    yield ROOT / "llms.txt", llms.text(ROOT)
    yield ROOT / "recipes" / "recipe.schema.json", json.dumps(toml.schema(Recipe), indent=2) + "\n"
    yield ROOT / "doctor" / "facts.py", doctor_facts()
    yield ROOT / "graphcrate" / "cli" / "diagnosis_facts.py", hosts_facts()


def pages() -> Iterator[tuple[Path, str]]:
    """Each page that is made for readers and not kept in the repository, and its text."""
    folder = ROOT / "dist" / "docs"
    yield folder / "commands.md", commands()
    yield folder / "errors.md", errors_page.errors()
    yield folder / "escapes.md", f"# Attempts against the sandbox\n\n{table(*sandbox_page.escapes())}\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def passed() -> str:
    """Write the variables that `run` hands on."""
    return f"`{' '.join(pattern for row in PASSED for pattern in row.patterns)}`"


def variants() -> str:
    """One row per CUDA version, for all stacks."""
    rows = []
    for path in sorted((ROOT / "recipes").glob("*.toml")):
        recipe = recipes.load(path)
        rows += [(f"`{recipe.name}`", *_variant(recipe, variant)) for variant in recipe.variants]
    head = ("STACK", "CUDA", "torch", "PyG", "Python", "torch.compile", "packages of", "base", "locked for")
    return table((*head, "candidates, in order"), rows)


def proofs() -> str:
    """One row per committed lock: its standing, and what `matrix` found of its image."""
    ctx = Context.here()
    head = ("STACK", "CUDA", "proof", "tag", "digest begins", "bytes", "seconds", "suites passed", "GPUs by audit")
    return table(head, [_proof(standing) for standing in standings(ctx, catalog.all_recipes(ctx))])


def words() -> str:
    """List the words for what was shown of an image, with their meanings."""
    return table(("word", "what it says"), [(f"*{word}*", text) for word, text in WORDS.items()])


def _proof(standing: Standing) -> tuple[str, ...]:
    name = (f"`{standing.recipe.name}`", standing.title.removeprefix(f"{standing.recipe.name} "))
    if (one := standing.proof) is None:
        return (*name, standing.word, *[""] * 6)
    return (
        *name,
        f"{standing.word}, {one.date[:10]}",
        f"`{one.tag}`",
        f"`{one.digest[7:19]}`",
        size(one.bytes),
        f"{one.seconds:.0f}",
        ", ".join(suite.suite for suite in one.suites),
        " ".join(gpus_of(one)),
    )


def _platforms(recipe: Recipe, variant: Variant) -> str:
    """The platforms of a variant's committed locks, as people call them."""
    return ", ".join(
        platform.title
        for platform in SUPPORTED
        if any(
            catalog.path_of_lock(ROOT, recipe.name, variant.cuda, way.name, platform).is_file()
            for way in variant.candidates
        )
    )


def _variant(recipe: Recipe, variant: Variant) -> tuple[str, ...]:
    if variant.unavailable is not None:
        return (variant.cuda, "", "", variant.python, "", "", "", "", f"not available: {variant.unavailable.why}")
    first = variant.candidates[0]
    torch = "what the folder has" if first.torch == "*" else first.torch
    base = variant.base.reference or f"Debian {variant.base.suite}"
    ways = "; ".join(f"{way.name} ({', '.join(way.channels)})" for way in variant.candidates)
    day = variant.exclude_newer or "today"
    paths = (catalog.path_of_lock(ROOT, recipe.name, variant.cuda, way.name) for way in variant.candidates)
    lock = next((decode_lock(path.read_bytes()) for path in paths if path.is_file()), None)
    lost, extension = catalog.moved(variant, lock)
    return (
        variant.cuda,
        torch,
        f"{variant.torch_geometric}, [without {extension}](extensions.md#pyg_lib)" if lost else variant.torch_geometric,
        variant.python,
        _compiles(first.torch, variant),
        day,
        base,
        _platforms(recipe, variant),
        ways,
    )


def _compiles(torch: str, variant: Variant) -> str:
    """Say whether torch.compile works, with a compiler, for the Python of a variant."""
    if torch_compile.refusal(torch, variant.python):
        return f"no: Python {torch_compile.newest_python(torch)} at most"
    return "yes" if torch == "*" or torch_compile.is_offered(torch) else "none: torch 2.0 has it first"


def debians() -> str:
    """One row per Debian: dates alone, so that the page is the same on any day."""
    rows = []
    for name, suite in suites.known().items():
        days = (suite.security_until, suite.lts_until, suite.archived)
        python, released = suite.base.python if suite.base else "", str(suite.released or "not yet")
        rows.append((name, suite.release, python, released, *(str(day or "") for day in days)))
    head = ("Debian", "number", "Python", "released", "updates until", "by LTS until", "archived, off the mirrors")
    return table(head, rows)


def commands() -> str:
    """The page of commands: each with its arguments and options, from the functions that they call."""
    parts = [
        "# Commands and options\n",
        "Of `./build.py` in a checkout, and of `graphcrate` where it is installed. "
        "`./build.py update`, `catalog` and `lock --check` are [upkeep's](../../packages/upkeep/README.md).\n",
    ]
    functions = [(each.name, each.callback) for each in main.app.registered_commands if each.callback is not None]
    known = {name or function.__name__.rstrip("_"): function for name, function in functions}
    for name, function in sorted(known.items()):
        parts.append(f"## {name}\n\n{inspect.getdoc(function)}\n")
        hints = get_type_hints(function, include_extras=True)
        asked = inspect.signature(function).parameters
        rows = [
            _asked(each, hints[each], asked[each].default) for each in asked if get_origin(hints[each]) is Annotated
        ]
        if rows:
            parts.append(table(("", "what it says"), rows) + "\n")
    return "\n".join(parts)


def _asked(name: str, hint: Any, default: object) -> tuple[str, str]:  # noqa: ANN401  a form of typing's
    """An argument or an option with its values, and what its help says."""
    kind, info = get_args(hint)[:2]
    values = [value for part in (kind, *get_args(kind)) if get_origin(part) is Literal for value in get_args(part)]
    text = (info.help or "").replace("|", "\\|")
    if isinstance(default, str | Path) and str(default):
        text += f" Default: {default}."
    if isinstance(info, typer.models.ArgumentInfo):
        return f"`{(info.metavar or name.upper()).replace('|', ' or ')}`", text
    # typer takes the first name for a default, and puts that right when it is called.
    named = [word for word in (info.default, *(info.param_decls or ())) if isinstance(word, str) and word[:2] == "--"]
    written = named or [f"--{name.replace('_', '-')}"]
    if kind is bool and not named:
        written.append(f"--no-{name.replace('_', '-')}")
    return f"`{', '.join(written)}`" + (f" {', '.join(values)}" if values else ""), text


def identities_table() -> str:
    """One row for what packages make for one machine: where it is, what it is, how a copy of an image gets its own."""
    rows = []
    for one in identities():
        programs = dict.fromkeys(program.rpartition("/")[2] for program in one.programs)
        starts = f"made when {' or '.join(f'`{name}`' for name in programs)} first starts" if programs else ""
        made = "; ".join(filter(None, (starts, one.by_hand)))
        rows.append((", ".join(one.packages), ", ".join(f"`{path}`" for path in one.paths), one.what, made))
    return table(("package", "not in an image", "what it is", "in each copy"), rows)


def own_fields() -> str:
    """One row per field of a recipe of one's own, from its JSON schema."""
    fields = toml.schema(own.OwnRecipe)["$defs"]["OwnRecipe"]["properties"]
    return table(("field", "what it says"), [(f"`{name}`", value["description"]) for name, value in fields.items()])


def exit_codes(texts: Spoken | None = None) -> str:
    """One row per exit code, in English or with these texts."""
    kinds = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.GraphcrateError)
    ]
    meanings = {kind.exit_code: (inspect.getdoc(kind) or "").split("\n")[0].rstrip(".") for kind in kinds}
    meanings |= OTHER_CODES
    if texts:
        rows = [(str(code), texts.codes[str(code)].rstrip("。")) for code in sorted(meanings)]
        return table(("退出码", "含义"), rows)
    return table(("code", "what happened"), [(str(code), meanings[code]) for code in sorted(meanings)])


def settings() -> str:
    """List what make passes on, from the Makefile's own comment."""
    line = re.search(r"^# Settings: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line is not None
    return f"`{line[1]}`"


def contracts() -> str:
    """One row per check."""
    rows = [
        (f"`{check.id}`", check.title, ", ".join(check.runtimes), cell(check.reason), cell(check.source))
        for check in CHECKS
    ]
    return table(("check", "requirement", "runtimes", "reason", "source"), rows)


def cell(text: str) -> str:
    """Text for a table: a bar would end the cell."""
    return text.replace("|", "\\|")


# --- what the doctor knows: as Python, since it runs without msgspec and tomllib --------------------------------------

DOCTOR_HEAD = '''\
"""Requirements of drivers, GPUs, builds of torch and graphlearn-torch on each other.

Written by `make generate` from graphcrate/compat/data and recipes/. Do not edit.
"""
'''


HOSTS_HEAD = '''\
"""Facts of the doctor that a host alone is told, for `cli.diagnosis`.

Written by `make generate` from graphcrate/compat/data. Do not edit.
"""
'''


def doctor_facts() -> str:
    """doctor/facts.py, one entry a line with double quotes, as ruff formats."""
    drivers = tomllib.loads((ROOT / "graphcrate" / "compat" / "data" / "drivers.toml").read_text(encoding="utf-8"))
    releases = {release.version: (tuple(release.torch), release.cuda) for release in glt.releases()}
    values = (
        ("MINIMUM_DRIVERS", "major CUDA version → the oldest driver that runs what it made", drivers["minimum"]),
        ("TOOLKIT_DRIVERS", "CUDA version → the driver that came with it", drivers["toolkit"]),
        ("LAST_BRANCHES", "compute capability → the last branch of drivers for its GPUs", drivers["last"]),
        ("GPU_CAPABILITIES", "GPU model → compute capability", gpu_table.all_gpus()),
        ("VARIANTS", "CUDA of our variants, torch, compute capabilities with machine code", newest_of_variants()),
        ("GLT_RELEASES", "graphlearn-torch → series of torch, major CUDA version", releases),
    )
    return DOCTOR_HEAD + "".join(f"\n#: {meaning}\n{name} = {literal(value)}\n" for name, meaning, value in values)


def hosts_facts() -> str:
    """graphcrate/cli/diagnosis_facts.py, in the same form."""
    fixes = {name: typed(text) for name, text in facts.table("doctor", dict[str, str]).items()}
    noted = [row for row in facts.limits().values() if row.lost and not row.instead]
    rows = tuple((row.runtime, row.lost, row.since, row.objection(row.lost)) for row in noted)
    values = (
        ("RELEASES", "program, its release that has a fault, the one that is without, and what it is", rows),
        ("FIXES", "id of an error → what to do where its text is of an image", fixes),
    )
    return HOSTS_HEAD + "".join(f"\n#: {meaning}\n{name} = {literal(value)}\n" for name, meaning, value in values)


def newest_of_variants() -> list[tuple[str, str, tuple[str, ...]]]:
    """CUDA of a variant, its torch, and what that has code for; each CUDA and torch once, the newest last."""
    builds = {(build.torch, build.cuda): tuple(build.sm) for build in facts.torch_builds()}
    rows = set()
    for path in (ROOT / "recipes").glob("*.toml"):
        for variant in recipes.load(path).variants:
            for way in variant.candidates[:1] if variant.unavailable is None and variant.cuda != "cpu" else ():
                version = way.torch.partition("+")[0]
                rows.add((variant.cuda, version, builds.get((version, way.torch_cuda), ())))
    return sorted(rows, key=lambda row: ([int(part) for part in row[0].split(".")], row[1]))


def literal(value: Any) -> str:  # noqa: ANN401
    """A dict or a tuple as Python."""

    def quoted(entry: object) -> str:
        return pprint.pformat(entry, width=1000).replace("'", '"')

    if isinstance(value, dict):
        return "{\n" + "".join(f"    {quoted(key)}: {quoted(entry)},\n" for key, entry in value.items()) + "}"
    return "(\n" + "".join(f"    {quoted(entry)},\n" for entry in value) + ")"


if __name__ == "__main__":
    for path, text in (*files(), *pages()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
