"""The texts of each variant: which candidate they show, where they lie, what is in them.

All but requirements.txt and sources.txt are committed below `images/`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from graphcrate.compat import base_images, planning
from graphcrate.compat.addresses import cuda_label
from graphcrate.compat.catalog import all_recipes, examples, find_recipe, find_variant, lock_path
from graphcrate.compat.toolkits import options
from graphcrate.engines import render
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.errors import BuildError, GraphcrateError, ResolutionError, UsageError
from graphcrate.model.lock import DebianToolkit, ImageToolkit, Lock, decode_lock
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the texts that a variant can have. `base`: one of `compat.base_images.CHOICES`."""

    base: str = "debian"
    channel: str | None = None  #: only candidates whose torch comes from it


def render_all(ctx: Context, name: str | None, cuda: str | None, choice: Choice, output: Path | None) -> Iterator[Path]:
    """Write the texts of these variants (None: all of them); gives the folders in which something changed.

    `output`: instead of `images/`, where only the usual choice may go. Of several variants, those that have no text of
    another choice are noted and left out. Raises UsageError, ResolutionError, BuildError.
    """
    if output is None and choice != Choice():
        raise UsageError(
            "images/ holds the usual texts; another base or channel goes elsewhere",
            next_step=f"./build.py render {name or 'pyg'} --base {choice.base} --output /tmp/images",
        )
    wanted = list(_variants(ctx, name, cuda))
    _check(choice, wanted)
    lacking: list[GraphcrateError] = []
    for recipe, variant in wanted:
        try:
            made = texts(ctx, recipe, variant, shown(ctx, recipe, variant, choice.channel), choice.base)
        except (UsageError, ResolutionError, BuildError) as error:
            lacking.append(error)
            if cuda is not None or choice == Choice() or len(lacking) == len(wanted):
                raise
            ctx.progress.note(f"{recipe.name} CUDA {variant.cuda} is left out: {error.what}")
            continue
        folder = (output or ctx.root / "images") / recipe.name / cuda_label(variant.cuda)
        if _write(folder, made):
            yield folder if output else folder.relative_to(ctx.root)


def _check(choice: Choice, wanted: Sequence[tuple[Recipe, Variant]]) -> None:
    """Raises UsageError for a base that there is not, and for a channel that none of the variants takes torch from."""
    base_images.check_choice(choice.base)
    known = dict.fromkeys(candidate.channels[0].value for _, variant in wanted for candidate in variant.candidates)
    if choice.channel is not None and choice.channel not in known:
        raise UsageError(
            f"no variant that was asked for takes torch from channel {choice.channel!r}; they take it from "
            f"{', '.join(known)}",
            next_step="./build.py list    (recipes, variants and their channels)",
        )


def _variants(ctx: Context, name: str | None, cuda: str | None) -> Iterator[tuple[Recipe, Variant]]:
    if name is not None and cuda is not None:
        yield find_variant(ctx, name, cuda)
        return
    recipes = [find_recipe(ctx, name)] if name is not None else all_recipes(ctx)
    found = [
        (recipe, variant)
        for recipe in recipes
        for variant in recipe.variants
        if cuda in (None, variant.cuda) and variant.unavailable is None
    ]
    if not found:
        raise UsageError(f"no recipe has a variant for CUDA {cuda!r}", next_step="./build.py list")
    yield from found


def shown(ctx: Context, recipe: Recipe, variant: Variant, channel: str | None = None) -> Candidate:
    """The candidate that a variant's texts are about: the first with a lock, else the first that others can build.

    `channel`: only candidates whose torch comes from it. Raises ResolutionError when there is none.
    """
    usable = [candidate for candidate in variant.candidates if channel in (None, candidate.channels[0])]
    for candidate in usable:
        if lock_path(ctx, recipe, variant, candidate).is_file():
            return candidate
    for candidate in usable:
        if Channel.LOCAL not in candidate.channels:
            return candidate
    if not usable:
        others = dict.fromkeys(candidate.channels[0].value for candidate in variant.candidates)
        raise ResolutionError(
            f"no candidate of recipe {recipe.name} at CUDA {variant.cuda} takes torch from {channel}",
            cause=f"They take it from {', '.join(others)}.",
            next_step="./build.py list    (recipes, variants and their channels)",
        )
    raise ResolutionError(
        f"recipe {recipe.name} has no candidate at CUDA {variant.cuda} that a text could be about"
        + (f" with torch from {channel}" if channel else ""),
        cause="A folder of wheels is known to one machine only, until a lock says what is in it.",
        next_step=f"./build.py lock {recipe.name} --cuda {variant.cuda} --channel local --wheels FOLDER",
    )


def plan_of(ctx: Context, recipe: Recipe, variant: Variant, candidate: Candidate, base: str = "debian") -> Plan:
    """The candidate's plan, by its committed lock where there is one. `base`: one of `compat.base_images.CHOICES`."""
    image = None if base == "debian" else base_images.chosen_image(base, variant)
    path = lock_path(ctx, recipe, variant, candidate)
    if path.is_file():
        lock = decode_lock(path.read_bytes())
        if base == "nvidia":
            lock = _with_nvidias_toolkit(lock)
        return planning.make_plan(recipe, lock, candidate, examples=examples(ctx), image=image)
    return planning.make_open_plan(recipe, variant, candidate, examples=examples(ctx), image=image)


def _with_nvidias_toolkit(lock: Lock) -> Lock:
    """The lock with NVIDIA's own devel image in place of Debian's packages, which Ubuntu's archive does not have."""
    compilation = lock.compilation
    if compilation is None or not isinstance(compilation.toolkit, DebianToolkit):
        return lock
    image = next((option for option in options(lock.torch_cuda) if option.provider == "image"), None)
    if image is None:
        return lock
    toolkit = ImageToolkit(version=image.version, reference=image.reference, digest="")
    return msgspec.structs.replace(lock, compilation=msgspec.structs.replace(compilation, toolkit=toolkit))


def texts(ctx: Context, recipe: Recipe, variant: Variant, candidate: Candidate, base: str = "debian") -> dict[str, str]:
    """File name → text, for one variant. Raises BuildError for a step that a text cannot express."""
    plan = plan_of(ctx, recipe, variant, candidate, base)
    path = lock_path(ctx, recipe, variant, candidate)
    compiled = {"sources.txt": text} if (text := render.sources(plan)) else {}
    return compiled | {
        "Dockerfile": render.dockerfile(plan),
        f"{plan.name}.def": render.definition(plan),
        "requirements.txt": render.requirements(plan),
        "README.md": render.readme(plan, path.name if path.is_file() else ""),
    }


def _write(folder: Path, written: dict[str, str]) -> bool:
    """Write what has changed, each file whole or not at all. Whether anything had."""
    changed = {name: text for name, text in written.items() if not _is(folder / name, text)}
    for name, text in changed.items():
        write_file(folder / name, text.encode())
    return bool(changed)


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()
