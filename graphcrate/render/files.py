"""The texts of each variant: the candidate that they show, their paths and contents.

All but requirements.txt and sources.txt are committed below `images/`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from graphcrate import render
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.plan import planning
from graphcrate.compat.plan.programs import examples
from graphcrate.compat.variants.catalog import all_recipes, find_recipe, find_variant, lock_path, read_lock
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.command import command
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant


def render_all(ctx: Context, name: str | None, cuda: str | None, output: Path | None = None) -> Iterator[Path]:
    """Write the texts of these variants (None: all of them); gives the folders in which something changed.

    `output`: instead of `images/`. Raises UsageError, ResolutionError.
    """
    if output is None:
        ctx.require_checkout("its texts below images/")
    for recipe, variant in _variants(ctx, name, cuda):
        folder = (output or ctx.root / "images") / recipe.name / cuda_label(variant.cuda)
        if write(folder, texts(ctx, recipe, variant)):
            yield folder if output else folder.relative_to(ctx.root)


def write(folder: Path, made: Mapping[str, str]) -> bool:
    """Write texts, by file name, into a folder. False where all were there."""
    paths = {folder / file: text.encode() for file, text in made.items()}
    changed = {path: text for path, text in paths.items() if not path.is_file() or path.read_bytes() != text}
    for path, text in changed.items():
        write_file(path, text)
    return bool(changed)


def _variants(ctx: Context, name: str | None, cuda: str | None) -> Iterator[tuple[Recipe, Variant]]:
    if name is not None and cuda is not None:
        yield find_variant(ctx, name, cuda, lambda other: command("render", name, cuda=other))
        return
    recipes = [find_recipe(ctx, name)] if name is not None else all_recipes(ctx)
    variants = [
        (recipe, variant)
        for recipe in recipes
        for variant in recipe.variants
        if cuda in (None, variant.cuda) and variant.unavailable is None
    ]
    if not variants:
        raise UsageError(f"no recipe has a variant for CUDA {cuda!r}", next_step=command("list"))
    yield from variants


def shown(ctx: Context, recipe: Recipe, variant: Variant) -> Candidate:
    """Return the first candidate with a lock, else the first that others can build. Raises ResolutionError."""
    for candidate in variant.candidates:
        if lock_path(ctx, recipe, variant, candidate).exists():
            return candidate
    for candidate in variant.candidates:
        if Channel.LOCAL not in candidate.channels:
            return candidate
    raise ResolutionError(
        f"recipe {recipe.name} has no candidate at CUDA {variant.cuda} that a text could be about",
        cause="A folder of wheels is known to one machine only, until a lock says what is in it.",
        next_step=command("lock", recipe.name, cuda=variant.cuda, channel="local", wheels="FOLDER"),
    )


def plan_of(ctx: Context, recipe: Recipe, variant: Variant) -> Plan:
    """Plan the candidate that is shown, by its committed lock where there is one."""
    candidate = shown(ctx, recipe, variant)
    if lock := read_lock(ctx, recipe, variant, candidate):
        return planning.make_plan(recipe, lock, candidate, examples=examples(ctx))
    return planning.make_open_plan(recipe, variant, candidate, examples=examples(ctx))


def texts(ctx: Context, recipe: Recipe, variant: Variant) -> dict[str, str]:
    """Write the texts of one variant, by file name. Raises ResolutionError."""
    plan = plan_of(ctx, recipe, variant)
    return {**of_plan(plan), "README.md": render.readme(plan)}


def of_plan(plan: Plan) -> dict[str, str]:
    """Write the texts that build a plan, by file name."""
    written = {
        "Dockerfile": render.dockerfile(plan),
        f"{plan.name}.def": render.definition(plan),
        "requirements.txt": render.requirements_text(plan),
        "sources.txt": render.sources_text(plan),
    }
    return {name: text for name, text in written.items() if text}
