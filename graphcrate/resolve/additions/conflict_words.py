"""Words for why packages cannot be added to a stack. Pure: facts about indexes and other stacks are given."""

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.model.command import AGAIN, Command, command, setting
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.words import joined, listed
from graphcrate.resolve.additions.obstacles import Clause, Obstacle
from graphcrate.resolve.additions.stack_bounds import STAYS, StackBound

#: what people add most, for the nearest name
WELL_KNOWN = (
    "accelerate", "datasets", "deepspeed", "dgl", "einops", "faiss-cpu", "fastapi", "flask", "graphviz", "h5py",
    "hydra-core", "ipykernel", "jupyterlab", "lightning", "matplotlib", "mlflow", "mpi4py", "networkx", "numba",
    "numpy", "omegaconf", "opencv-python-headless", "optuna", "pandas", "peft", "pillow", "polars", "pyarrow",
    "pytorch-lightning", "pyyaml", "ray", "rdkit", "scikit-learn", "scipy", "seaborn", "sentencepiece",
    "tensorboard", "timm", "tokenizers", "torchaudio", "torchdata", "torchmetrics", "torchvision", "tqdm",
    "transformers", "wandb", "xgboost",
)  # fmt: skip


class Attempt(NamedTuple):
    """A request for packages on a stack: its `title` ("pyg for CUDA 11.8"), its Python, and what the user named."""

    title: str
    python: str
    asked: tuple[Requirement, ...]


def reason(obstacles: Collection[Obstacle], limits: Mapping[str, StackBound], *, asked_first: bool) -> str:
    """Explain why a tried release cannot be taken, on one line. `asked_first`: the user has indexes before others."""
    kinds = ("python", "bound", "source", "absent", "wheels", "version")
    obstacle = min(obstacles, key=lambda obstacle: kinds.index(obstacle.kind), default=None)
    if obstacle is None:
        first = "an index that is asked first has no such release, or " if asked_first else ""
        return f"{first}another package is against it"
    clause = obstacle.clause
    if obstacle.kind == "python":
        return f"{clause.needed} needs {obstacle.detail}"
    if obstacle.kind == "bound" and not clause.who:
        return limits[clause.name].why
    what = f"{clause.who} needs {clause.needed}" if clause.who else clause.needed
    more = {
        "source": "which is there as source only",
        "absent": "which no index has",
        "wheels": "whose wheels are for other versions of Python",
        "version": "which no release is",
    }
    return f"{what}, {more[obstacle.kind]}" if obstacle.kind in more else what


def refusal(attempt: Attempt, clause: Clause, limit: StackBound, why: str, next_step: str) -> ResolutionError:
    """The error for what is against the stack; `why` it is, where its requirement does not say so itself."""
    if clause.who:
        what = f"{_needing(attempt, clause)}, and the stack has {limit.text}" + (f": {why}" if why else "")
    else:
        what = f"{clause.needed} cannot be added to {attempt.title}, which has {limit.text}"
    return ResolutionError(what, cause=f"{limit.text} is the stack's: {limit.why}.", next_step=next_step)


def at_another_cuda(again: Command, cuda: str, package: str) -> str:
    """The next step where another CUDA version of the stack has a fitting release ("torch 2.3.1")."""
    return f"{again}    (CUDA {cuda} has {package})"


def nearest(
    attempt: Attempt, clause: Clause, recipe: str, there: Sequence[tuple[str, str]], mine: tuple[str, str]
) -> str:
    """The next step where no CUDA version has what was asked for: another version of it, or the nearest that are there.

    `there`: CUDA version and version of the package, of the recipe's others; `mine`: of this stack.
    """
    name = str(canonicalize_name(clause.requirement.name))
    exact = [Version(part.version) for part in clause.requirement.specifier if part.operator == "=="]
    if clause.who or not exact or not there:
        package = _project(clause) or clause.requirement.name
        other = f"ask for another version of {attempt.asked[0].name if len(attempt.asked) == 1 else package}"
        return f"{other}: no CUDA version of {recipe} has {clause.needed}"
    known = sorted({(Version(version), cuda) for cuda, version in (*there, mine) if version})
    near = [max((entry for entry in known if entry[0] < exact[0]), default=None)]
    near.append(min((entry for entry in known if entry[0] > exact[0]), default=None))
    return (
        f"{command('list')}    (nearest are "
        + listed(f"{name} {version.public}, {setting(cuda=cuda)}" for version, cuda in filter(None, near))
        + ")"
    )


def without_wheel(
    attempt: Attempt, clause: Clause, there: LockedPackage | None, python: str, step: str
) -> ResolutionError:
    """The error for a release that is there as source only of what the stack has as a wheel, `there`."""
    have = f"{there.name} {there.version}" if there else "another release"
    who = _project(clause)
    what = _needing(attempt, clause) if who else f"{clause.needed} cannot be added to {attempt.title}"
    if who:
        changed = f"take the source of {who}, change what it requires, and give its folder: --with ./{who}"
        step = step or changed
    else:
        step = step or f"ask for a release of {clause.requirement.name} that has a wheel for it"
    return ResolutionError(
        f"{what}, of which there is no wheel for Python {python}",
        cause=f"The stack has {have}; what it has as a wheel is not compiled from a source.",
        next_step=step,
    )


def of_another_python(again: Command, python: str, release: str, lacking: Sequence[str]) -> str:
    """The next step where a stack of another Python has a wheel of a release, and lacks some packages."""
    why = f"for its Python {python} there is {release}"
    why += f"; it is without {listed(lacking)}" if lacking else ""
    return f"{again}    ({why})"


def at_another_index(attempt: Attempt, clause: Clause, title: str, where: str) -> ResolutionError:
    """The error for a name that only an index has which a file names, at `where`."""
    name = clause.requirement.name
    needing = f", which {clause.who} needs," if clause.who else ""
    return ResolutionError(
        f"these packages cannot be added to {attempt.title}: {name}{needing} is at {title} alone",
        cause=f"{where} names that index, which gives what the file itself names and nothing else.",
        next_step=f"add a line to that file: {name}; or call the index your own, for all packages: "
        f"UV_INDEX=https://… {AGAIN}",
    )


def absent(
    attempt: Attempt,
    clause: Clause,
    of_stack: Collection[str],
    instead: Callable[[Sequence[str]], str] | None = None,
) -> ResolutionError:
    """The error for a name that no index has, with the nearest that we know. `of_stack`: names of its packages.

    `instead`: makes the command that asks for others.
    """
    name = clause.requirement.name
    near = difflib.get_close_matches(name, {*WELL_KNOWN, *of_stack}, n=3)
    what = f"these packages cannot be added to {attempt.title}: the package index has no {name}"
    what += f", which {clause.who} needs" if clause.who else ""
    right = [near[0] if asked.name == name else str(asked) for asked in attempt.asked] if near else []
    again = instead(right) if instead and near[:1] == right[:1] and len(right) == 1 else ""
    look = "look the name up where the package is documented: it may differ from what is imported"
    return ResolutionError(
        what + (f"; did you mean {' or '.join(near)}?" if near else ""),
        next_step=f"{again}    (or {look})" if again else look,
    )


def without_release(
    attempt: Attempt, obstacle: Obstacle, pins: Sequence[Requirement] = (), again: str = ""
) -> ResolutionError:
    """The error for a package of which the index has releases, and none that can be taken.

    `pins`: what files allow of it besides; `again`: what to type for the same with any release of it.
    """
    clause, python = obstacle.clause, attempt.python
    for pin in pins:
        requirement = Requirement(f"{clause.requirement.name}{clause.requirement.specifier & pin.specifier}")
        clause = clause._replace(requirement=requirement)
    needing = f"{clause.who} needs {clause.needed}, which " if clause.who else f"{clause.needed} "
    has = {
        "wheels": f"has wheels, none for Python {python}: {obstacle.detail}",
        "python": f"needs {obstacle.detail}, and the image has {python}",
        "version": f"matches none of its releases: {obstacle.detail}",
    }
    is_version = obstacle.kind == "version"
    another = f"{again}    takes another version than the file names" if again else ""
    return ResolutionError(
        f"these packages cannot be added to {attempt.title}: {needing}{has[obstacle.kind]}",
        cause="" if is_version else "Its wheels are for other versions of Python than the image has.",
        next_step=another or f"ask for another version of {clause.requirement.name}"
        if is_version
        else f"bring a wheel of it for the image's Python, or its source: {setting(with_='./NAME')}",
    )


def unexplained(attempt: Attempt, torch: str, explanation: str) -> ResolutionError:
    """The error with uv's own explanation, where no package is known to be an obstacle."""
    lines = "".join(f"\n    {line.strip()}" for line in explanation.splitlines())
    return ResolutionError(
        f"these packages cannot be added to {attempt.title}{lines}",
        cause=f"torch {torch} is the stack's: {STAYS}.",
        next_step=f"{command('list')}    (stacks with other versions), or ask for another version of the package",
    )


def _needing(attempt: Attempt, clause: Clause) -> str:
    """Say what was asked for and cannot be added, and who needs what."""
    asked = [requirement.name for requirement in attempt.asked]
    who = _project(clause)
    needs = "it needs" if asked == [who] else f"{clause.who} needs"
    return f"{joined(asked) or who} cannot be added to {attempt.title}: {needs} {clause.needed}"


def _project(clause: Clause) -> str:
    """Return the name of the package that needs something; empty: the user does."""
    return re.split(r"[<>=!~\[]", clause.who)[0]
