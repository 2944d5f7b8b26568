"""Find the locks to check: the committed ones, or those beside a recipe of the user's own."""

import glob
from pathlib import Path

from graphcrate.assembly import matrix
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.requirements import own
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.model.command import command, is_recipe_file
from graphcrate.model.errors import BuildError
from upkeep.standing import files as standing
from upkeep.standing.files import LockQuery
from upkeep.standing.values import LocksStanding

raise_if_gone = standing.raise_if_gone


def check(name: str, cuda: str, request: SourceOptions, ctx: Context, platform: str = "") -> LocksStanding:
    """Check the locks of a recipe, by its name or its path, or of all recipes.

    Of one CUDA version or platform where it is named.

    Raises UsageError for a recipe or a CUDA version that there is not, BuildError where no lock is committed for it,
    and what `standing.check` raises.
    """
    locks = _own(Path(name), cuda) if is_recipe_file(name) else _committed(name, cuda, platform, ctx)
    return standing.check(locks, request, ctx)


def _committed(name: str, cuda: str, platform: str, ctx: Context) -> list[LockQuery]:
    again = lambda other: command("lock", name, check=True, cuda=other)  # noqa: E731
    rows = matrix.rows(ctx, matrix.MatrixRequest(recipe=name, cuda=cuda, platform=platform), again)
    locks = [
        LockQuery(
            recipe=row.recipe.name,
            path=str(row.path.relative_to(ctx.root)),
            renew=str(catalog.renewal(row.recipe, row.variant, row.candidate)),
            lock=row.lock,
        )
        for row in sorted(rows, key=lambda row: row.path)
        if row.lock is not None
    ]
    if not locks:
        raise BuildError(
            f"no lock is committed for {' '.join(filter(None, (name, cuda, platform)))}",
            next_step=f"{command('list')}    (the last column)",
        )
    return locks


def _own(recipe: Path, cuda: str) -> list[LockQuery]:
    own.load(recipe)  # says what is wrong with the name
    label = cuda_label(cuda) if cuda else "*"
    paths = sorted(recipe.parent.glob(f"{glob.escape(recipe.stem)}.{label}.*.lock.json"))
    if not paths:
        raise BuildError(f"{recipe} has no lock beside it", next_step=command("lock", recipe))
    locks = []
    for path in paths:
        made_for = path.name.removeprefix(f"{recipe.stem}.").partition(".")[0]
        if lock := documents.read_lock(path, command("lock", recipe, cuda=made_for)):
            locks.append((path, lock))
    return [
        LockQuery(str(recipe), str(path), str(command("lock", recipe, cuda=lock.cuda)), lock) for path, lock in locks
    ]
