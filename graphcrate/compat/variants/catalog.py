"""The catalogue: recipes and their variants, their committed locks; targets."""

import contextlib
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.compat.facts import driver_table, facts, gpu_table, packages
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.variants import recipes, targets
from graphcrate.compat.variants.targets import MachineRequest, NodeFabric, Partition, Target
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.model import toml
from graphcrate.model.command import Command, command, filled, setting
from graphcrate.model.errors import RecipeError, ResolutionError, UsageError
from graphcrate.model.lock import Lock
from graphcrate.model.lock_proof import LockProof
from graphcrate.model.platform import DEFAULT, SUPPORTED, Platform
from graphcrate.model.recipe import Candidate, Recipe, Variant

#: from a CUDA version to the command that was typed, with this one in place of what it has
Again = Callable[[str], Command]


def recipe_path(ctx: Context, name: str) -> Path:
    """Return the path of a recipe of this name, existing or not."""
    return ctx.root / "recipes" / f"{name}.toml"


def find_recipe(ctx: Context, name: str, file: Path | None = None) -> Recipe:
    """The recipe of this name. Raises UsageError with the nearest that exist; RecipeError where `file` extends it."""
    path = recipe_path(ctx, name)
    if not path.is_file():
        near = difflib.get_close_matches(name, [other.stem for other in path.parent.glob("*.toml")], n=2, cutoff=0.3)
        what = f"there is no recipe {name!r}" + (f"; the nearest is {', '.join(near)}" if near else "")
        if place := toml.place(file, "extends", name):
            raise RecipeError(f"{place}{what}", next_step=f"correct it there; {command('list')} shows all")
        raise UsageError(
            what,
            next_step=f"{setting(gpu=name.lower()).both()}    (several by commas: {setting(gpu='v100,a100').both()})"
            if _is_gpu(name)
            else command("list"),
        )
    return recipes.load(path)


def _is_gpu(name: str) -> bool:
    with contextlib.suppress(UsageError):
        return bool(gpu_table.gpu_model(name))
    return False


def find_variant(
    ctx: Context, name: str, cuda: str, again: Again | None = None, file: Path | None = None
) -> tuple[Recipe, Variant]:
    """The recipe and its variant. Raises UsageError with the nearest that exist, ResolutionError for a refused one.

    `again`: the command that was typed, for another CUDA version. `file`: of the user's own that may name both, whose
    errors are RecipeErrors.
    """
    recipe = find_recipe(ctx, name, file)
    variant = refuse_unknown_cuda(recipe, cuda, again, file)
    if variant.unavailable is not None:
        raise ResolutionError(
            f"recipe {name} is not available for CUDA {cuda!r}",
            cause=f"{variant.unavailable.why[0].upper()}{variant.unavailable.why[1:]}.",
            next_step=filled(variant.unavailable.instead),
        )
    return recipe, variant


def refuse_unknown_cuda(recipe: Recipe, cuda: str, again: Again | None = None, file: Path | None = None) -> Variant:
    """The recipe's variant, whether it is available or not. Raises as `find_variant` does."""
    variant = recipe.variant(cuda)
    if variant is None:
        near = nearest_cuda(cuda, [variant.cuda for variant in recipe.variants])
        step = again(near[0]) if again else command("image", recipe.name, cuda=near[0])
        place = toml.place(file, "cuda", cuda)
        raise (RecipeError if place else UsageError)(
            f"{place}recipe {recipe.name} has no variant for CUDA {cuda!r}; "
            f"the nearest {'are' if len(near) > 1 else 'is'} {' and '.join(near)}",
            next_step=f"{step}    ({_where_shown(recipe.name, cuda)})",
        )
    return variant


def _where_shown(recipe: str, cuda: str) -> str:
    """Say what to ask about a CUDA version that no variant has: nvidia-smi may show it."""
    if driver_table.own_driver(cuda):
        return f"{command('explain', recipe, driver=cuda)} says what runs where nvidia-smi shows it"
    return f"{command('list')} shows all"


def all_recipes(ctx: Context) -> list[Recipe]:
    """Every recipe, by name. Raises RecipeError."""
    return [recipes.load(path) for path in sorted((ctx.root / "recipes").glob("*.toml"))]


def short_tag(variant: Variant, candidate: Candidate) -> str:
    """The tag that people pull without knowing versions: `cu118`, and `cu118-compat` for a fall-back.

    Two candidates never share one, so whichever is published last takes nothing from the other.
    """
    return cuda_label(variant.cuda) + candidate.suffix


def nearest_cuda(cuda: str, known: Sequence[str]) -> list[str]:
    """At most two of the known CUDA versions, the nearest first; of a major version alone its newest."""
    of_major = [version for version in known if version.partition(".")[0] == cuda]
    if of_major:
        return sorted(of_major, key=facts.numbers, reverse=True)[:2]
    try:
        distance = {version: abs(float(version) - float(cuda)) for version in known if version != "cpu"}
    except ValueError:
        return difflib.get_close_matches(cuda, known, n=2, cutoff=0.4) or ["11.8"]
    return sorted(distance, key=lambda version: distance[version])[:2]


def lock_path(ctx: Context, recipe: Recipe, variant: Variant, candidate: Candidate) -> Path:
    """Return the path of the candidate's committed lock."""
    return path_of_lock(ctx.root, recipe.name, variant.cuda, candidate.name, variant.base.runs_on)


def path_of_lock(root: Path, recipe: str, cuda: str, candidate: str, platform: Platform = DEFAULT) -> Path:
    """The same by names, of the checkout below `root`; in a folder of its own for another platform."""
    folder = root / "images" / recipe / cuda_label(cuda)
    if platform != DEFAULT:
        folder /= platform.architecture
    return folder / f"{candidate}.lock.json"


def renewal(recipe: Recipe, variant: Variant, candidate: Candidate) -> Command:
    """The command that locks a candidate again."""
    platform = typed_platform(variant.base.runs_on)
    return command("lock", recipe.name, cuda=variant.cuda, platform=platform, channel=candidate.channels[0])


def typed_platform(platform: Platform) -> str | None:
    """Return the platform's name as commands take it; None for the default one."""
    return None if platform == DEFAULT else platform.name


def read_lock(ctx: Context, recipe: Recipe, variant: Variant, candidate: Candidate) -> Lock | None:
    """The candidate's committed lock; None where there is none. Raises RecipeError."""
    path = lock_path(ctx, recipe, variant, candidate)
    return documents.read_lock(path, renewal(recipe, variant, candidate), committed=True)


def moved(variant: Variant, lock: Lock | None) -> tuple[str, str]:
    """Features that this PyG lost with an extension that is new to them, and that extension (`packages.moved`)."""
    there = {package.name for package in lock.packages} if lock else set()
    return packages.moved(variant.torch_geometric, there) if variant.torch_geometric else ("", "")


def locked_platforms(ctx: Context, recipe: Recipe, variant: Variant, candidate: Candidate) -> tuple[Platform, ...]:
    """The platforms that the candidate has committed locks for."""
    return tuple(
        platform
        for platform in SUPPORTED
        if path_of_lock(ctx.root, recipe.name, variant.cuda, candidate.name, platform).is_file()
    )


def proof_path(lock: Path) -> Path:
    """Return the path of a lock's proof, beside it."""
    return lock.with_name(lock.name.replace(".lock.json", ".proof.json"))


def read_proof(path: Path, lock: Lock) -> LockProof | None:
    """The proof beside a lock; None where there is none, or it is damaged or another lock's."""
    with contextlib.suppress(RecipeError):
        proof = documents.read(proof_path(path), LockProof, "the proof of a lock", command("matrix"))
        if proof and proof.lock_sha256 == lock.sha256:
            return proof
    return None


def renewal_of(ctx: Context, path: Path) -> Command:
    """The command that makes the lock of this path again, committed or beside a recipe of the user's own."""
    stem, *rest = path.name.removesuffix(".lock.json").rsplit(".", 2)
    if len(rest) > 1 and (recipe := path.with_name(f"{stem}.toml")).is_file():
        return command("lock", recipe, cuda=rest[0])
    folder = path.absolute().parent
    if platform := next((row for row in SUPPORTED if row.architecture == folder.name), None):
        folder = folder.parent
    if (ctx.root / "recipes" / f"{folder.parent.name}.toml").is_file():
        named = typed_platform(platform or DEFAULT)
        return command("lock", folder.parent.name, cuda=folder.name, platform=named)
    return command("lock", "NAME", cuda="VERSION")


def find_target(ctx: Context, described: MachineRequest) -> Target:
    """Join what was said of the machine with the target that it names. Raises UsageError, RecipeError."""
    if not described.target:
        return targets.merge_target(described, Target())
    paths = {path.stem: path for path in sorted((ctx.root / "targets").glob("*.toml"))}
    path = Path(described.target) if described.target.endswith(".toml") else paths.get(described.target.lower())
    if path is None or not path.is_file():
        near = difflib.get_close_matches(described.target.lower(), paths, n=2, cutoff=0.3)
        of_a_name = f"there is no target {described.target!r}" + (
            f"; the nearest is {' or '.join(near)}" if near else ""
        )
        raise UsageError(
            f"there is no file {described.target}" if described.target.endswith(".toml") else of_a_name,
            next_step=f"choose one of: {', '.join(paths)}    (or the path of a .toml like those in targets/)",
        )
    return targets.merge_target(described, targets.load(path))


class SlurmPartition(NamedTuple):
    """A partition of Slurm, and the network between its nodes where that is known."""

    name: str
    partition: Partition
    fabric: NodeFabric | None


def find_partition(ctx: Context, name: str, target: str) -> SlurmPartition | None:
    """Find a partition of Slurm in the target that is named, or in any; without a name, a target's only one.

    Raises UsageError, RecipeError.
    """
    names = [target] if target else [path.stem for path in sorted((ctx.root / "targets").glob("*.toml"))]
    for target_name in names:
        machine = find_target(ctx, MachineRequest(target=target_name))
        known = machine.partitions
        chosen = next(iter(known)) if target and not name and len(known) == 1 else name
        if chosen in known:
            return SlurmPartition(chosen, known[chosen], machine.fabric)
    return None
