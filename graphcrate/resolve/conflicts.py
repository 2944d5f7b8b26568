"""Why packages cannot be added to a stack: which half is the stack's, why, and which CUDA version has what is wanted.

What the stack fixes is compared with what indexes list and metadata requires (`obstacles`). Where nothing is found
there, two of the packages that are asked for contradict each other, and uv's explanation is shown as it is.
"""

import contextlib
import difflib
import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from graphcrate.compat import facts, sonames
from graphcrate.compat.catalog import all_recipes, read_lock
from graphcrate.compat.packages import markers
from graphcrate.model.command import Command, command, setting
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.model.words import joined, listed
from graphcrate.resolve.locks import ResolveContext
from graphcrate.resolve.metadata import MetadataReader
from graphcrate.resolve.obstacles import Clause, Obstacle
from graphcrate.resolve.offers import Offer, Offers
from graphcrate.resolve.pinning import bounds_of
from graphcrate.resolve.target import target_of

_ONE_FOLDER = "both have the same files, and torch needs its own"
_STAYS = "torch, CUDA and what is compiled for them stay as they are"
#: what people add most, for the nearest name
WELL_KNOWN = (
    "accelerate", "datasets", "deepspeed", "dgl", "einops", "faiss-cpu", "fastapi", "flask", "graphviz", "h5py",
    "hydra-core", "ipykernel", "jupyterlab", "lightning", "matplotlib", "mlflow", "mpi4py", "networkx", "numba",
    "numpy", "omegaconf", "opencv-python-headless", "optuna", "pandas", "peft", "pillow", "polars", "pyarrow",
    "pytorch-lightning", "pyyaml", "ray", "rdkit", "scikit-learn", "scipy", "seaborn", "sentencepiece",
    "tensorboard", "timm", "tokenizers", "torchaudio", "torchdata", "torchmetrics", "torchvision", "tqdm",
    "transformers", "wandb", "xgboost",
)  # fmt: skip
#: packages that people import, and that one stack has and another lacks
_ASKED_FOR = {
    "torchvision",
    "torchaudio",
    "pyg-lib",
    "torch-scatter",
    "torch-sparse",
    "torch-cluster",
    "torch-spline-conv",
}
_THREADS = 8  #: that read pages of indexes


class StackBound(NamedTuple):
    """What a stack fixes of a package: "torch 2.0.1" or "numpy<2". `why`: a clause; `version`: empty for a bound."""

    text: str
    why: str
    version: str = ""
    bound: SpecifierSet = SpecifierSet()


class Conflicts:
    """What one stack fixes, and how to say that something is against it. `asked`: what the user names.

    `bounded` makes of it the `World` of a question.
    """

    def __init__(
        self, context: ResolveContext, stack: Lock, staying: Mapping[str, LockedPackage], offers: Offers
    ) -> None:
        self._context, self._stack, self.staying, self.offers = context, stack, staying, offers
        self._target = target_of(context.variant.base, context.variant.python)
        self._metadata = MetadataReader(offers.sources)
        self._releases: dict[str, tuple[Offer, ...]] = {}
        self.python = self._target.python
        self.title = f"{stack.recipe} for CUDA {stack.cuda}"
        self.asked: Sequence[Requirement] = ()

    def releases(self, name: str) -> tuple[Offer, ...]:
        """All files of a project that indexes list. Raises NetworkError where none lists it and one does not say."""
        if name not in self._releases:
            listed = tuple(self.offers.releases(name))
            if not listed and (error := self.offers.unanswered(name)) is not None:
                raise error
            self._releases[name] = listed
        return self._releases[name]

    def needs(self, release: Offer, extras: Collection[str] = ()) -> list[Requirement]:
        """What a wheel requires in the image, with these extras. Raises NetworkError."""
        listed = next((other for other in self.releases(release.name) if other.link.name == release.link.name), release)
        return _counting(self._metadata.of(listed).requires, self._target.python, ("", *extras))

    def needs_of_extras(self, release: Offer, extras: Collection[str]) -> list[Requirement]:
        """What these extras of a wheel require that it does not require without them. Raises NetworkError."""
        without = set(map(str, self.needs(release)))
        return [need for need in self.needs(release, extras) if str(need) not in without]

    def prefetch(self, releases: Iterable[Offer]) -> None:
        """Read the metadata of several releases side by side."""
        names = {release.link.name: release.name for release in releases}
        listed = (
            release for file, name in names.items() for release in self.releases(name) if release.link.name == file
        )
        self._metadata.prefetch(listed)

    def expect(self, clauses: Sequence[Clause]) -> None:
        """Read the pages of what is needed side by side: they are looked at one by one."""

        def read(name: str) -> None:
            with contextlib.suppress(NetworkError):
                self.releases(name)

        names = {clause.name for clause in clauses} - self._releases.keys()
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(read, sorted(names)))

    def fits(self, release: Offer) -> bool:
        """Whether it is a wheel whose tags are the image's."""
        return not release.is_sdist and self._target.rank(release.link.name) is not None

    def rank(self, release: Offer) -> float:
        """How well its tags are the image's; a source comes last."""
        rank = self._target.rank(release.link.name)
        return -math.inf if rank is None else rank[0]

    def runs(self, release: Offer) -> bool:
        """Whether its Requires-Python, as far as it can be read, has the image's."""
        try:
            return SpecifierSet(release.link.python).contains(f"{self._target.python}.0", prereleases=True)
        except InvalidSpecifier:
            return True

    def is_against(self, clause: Clause) -> bool:
        """Whether no version of what the stack fixes satisfies it."""
        return not self._may_be(clause.requirement)

    def bounded(
        self, lines: Iterable[str], others: Collection[str], as_sources: Collection[str] = ()
    ) -> "BoundedConflicts":
        """What is known where these constraints count too, the packages `others` are there and `as_sources` may be."""
        return BoundedConflicts(self, lines, others, as_sources)

    @functools.cached_property
    def limits(self) -> dict[str, StackBound]:
        """Normalised name → what the stack fixes."""
        recipe, variant = self._context.recipe, self._context.variant
        asked = f"the recipe {recipe.name} asks for it at CUDA {variant.cuda}"
        of_recipe = [(line, asked) for line in (*recipe.requirements, *variant.requirements)]
        bounds = {}
        for line, why in (*of_recipe, *bounds_of(self.staying["torch"].version)):
            bound = Requirement(line)
            if bound.specifier:
                bounds[str(canonicalize_name(bound.name))] = StackBound(line, why, bound=bound.specifier)
        for other, package in self._of_other_cuda.items():
            bounds[other] = StackBound(f"{package.name} {package.version}", _ONE_FOLDER, bound=SpecifierSet("<0"))
        return bounds | {
            name: StackBound(f"{name} {package.version}", _STAYS, version=package.version)
            for name, package in self.staying.items()
        }

    def of_other_cuda(self) -> list[str]:
        """Constraints that leave out what has the files of the stack's own libraries of CUDA, for another version."""
        return [f"{other}<0" for other in self._of_other_cuda]

    @functools.cached_property
    def _of_other_cuda(self) -> dict[str, LockedPackage]:
        """Name of a library for another CUDA → the stack's own that has the same files."""
        return {other: package for name, package in self.staying.items() for other in sonames.of_other_cuda(name)}

    def against(self, clauses: Iterable[Clause]) -> Clause | None:
        """The first of these clauses that no version of what the stack fixes satisfies."""
        return next(filter(self.is_against, clauses), None)

    def _may_be(self, requirement: Requirement) -> bool:
        limit = self.limits.get(str(canonicalize_name(requirement.name)))
        if limit is None or (requirement.marker and not requirement.marker.evaluate({**markers(self._stack.python)})):
            return True
        if limit.version:
            return requirement.specifier.contains(Version(limit.version).public, prereleases=True)
        there = {Version(release.version) for release in self.releases(str(canonicalize_name(requirement.name)))}
        return not there or any(
            (requirement.specifier & limit.bound).contains(version, prereleases=True) for version in there
        )

    def reason(self, obstacles: Collection[Obstacle]) -> str:
        """Why a release that was tried cannot be taken, on one line."""
        kinds = ("python", "bound", "source", "absent", "wheels", "version")
        obstacle = min(obstacles, key=lambda obstacle: kinds.index(obstacle.kind), default=None)
        if obstacle is None:
            return "another package is against it"
        clause = obstacle.clause
        if obstacle.kind == "python":
            return f"{clause.needed} needs {obstacle.detail}"
        if obstacle.kind == "bound" and not clause.who:
            return self.limits[clause.name].why
        what = f"{clause.who} needs {clause.needed}" if clause.who else clause.needed
        more = {
            "source": "which is there as source only",
            "absent": "which no index has",
            "wheels": "whose wheels are for other versions of Python",
            "version": "which no release is",
        }
        return f"{what}, {more[obstacle.kind]}" if obstacle.kind in more else what

    def refusal(self, clause: Clause, why: str = "") -> ResolutionError:
        """The error for what is against the stack; `why` it is, where its requirement does not say so itself."""
        name = str(canonicalize_name(clause.requirement.name))
        limit = self.limits.get(name) or self._as_it_is(name)
        if clause.who:
            what = f"{self._needing(clause)}, and the stack has {limit.text}" + (f": {why}" if why else "")
        else:
            what = f"{clause.needed} cannot be added to {self.title}, which has {limit.text}"
        return ResolutionError(
            what, cause=f"{limit.text} is the stack's: {limit.why}.", next_step=self._next_step(clause, name)
        )

    def _needing(self, clause: Clause) -> str:
        """What was asked for and cannot be added, and who needs what."""
        asked = [requirement.name for requirement in self.asked]
        who = re.split(r"[<>=!~\[]", clause.who)[0]
        needs = "it needs" if asked == [who] else f"{clause.who} needs"
        return f"{joined(asked) or who} cannot be added to {self.title}: {needs} {clause.needed}"

    def without_wheel(self, clause: Clause, python: str) -> ResolutionError:
        """The error for a release that is there as source only of what the stack has as a wheel."""
        there = self._stack.package(str(canonicalize_name(clause.requirement.name)))
        have = f"{there.name} {there.version}" if there else "another release"
        who = re.split(r"[<>=!~\[]", clause.who)[0]
        what = self._needing(clause) if who else f"{clause.needed} cannot be added to {self.title}"
        if who:
            changed = f"take the source of {who}, change what it requires, and give its folder: --with ./{who}"
            step = self._of_another_python(clause) or changed
        else:
            step = f"ask for a release of {clause.requirement.name} that has a wheel for it"
        return ResolutionError(
            f"{what}, of which there is no wheel for Python {python}",
            cause=f"The stack has {have}; what it has as a wheel is not compiled from a source.",
            next_step=step,
        )

    def _of_another_python(self, clause: Clause) -> str:
        """The same for a stack of another Python that has a wheel, with what that stack lacks; else nothing.

        It has torch, and PyG where this one has. Of several the one of the nearest CUDA version.
        """
        steps = self._context.next_steps
        if steps is None or steps.typed.recipe is not None:
            return ""
        asked = clause.requirement.specifier
        offers = [offer for offer in self.releases(clause.name) if asked.contains(offer.version) and not offer.is_sdist]
        for recipe, variant in self._nearest_first(all_recipes(self._context.ctx)):
            target = target_of(variant.base, variant.python)
            versions = [offer.version for offer in offers if target.rank(offer.link.name) is not None]
            if target.python == self.python or not versions:
                continue
            locks = (read_lock(self._context.ctx, recipe, variant, candidate) for candidate in variant.candidates)
            if (there := next(filter(None, locks), None)) is None:
                continue
            lacking = self.staying.keys() - {package.name for package in there.packages}
            if "torch-geometric" not in lacking:
                newest, without = max(versions, key=Version), sorted(lacking & _ASKED_FOR)
                why = f"for its Python {target.python} there is {clause.requirement.name} {newest}"
                why += f"; it is without {listed(without)}" if without else ""
                return f"{steps.on(variant.cuda, recipe.name)}    ({why})"
        return ""

    def _nearest_first(self, recipes: Iterable[Recipe]) -> list[tuple[Recipe, Variant]]:
        """Their variants for GPUs, the nearest CUDA version first; none for a stack without CUDA."""
        here = facts.numbers(self._stack.cuda)
        variants = [(recipe, variant) for recipe in recipes for variant in recipe.variants if variant.cuda != "cpu"]
        return sorted(variants, key=lambda entry: _distance(entry[1].cuda, here)) if here else []

    def absent(self, clause: Clause) -> ResolutionError:
        """The error for a name that no index has, with the nearest that we know."""
        name = clause.requirement.name
        near = difflib.get_close_matches(name, {*WELL_KNOWN, *(package.name for package in self._stack.packages)}, n=3)
        what = f"these packages cannot be added to {self.title}: the package index has no {name}"
        what += f", which {clause.who} needs" if clause.who else ""
        return ResolutionError(
            what + (f"; did you mean {' or '.join(near)}?" if near else ""),
            next_step="look the name up where the package is documented: it may differ from what is imported",
        )

    def without_release(self, obstacle: Obstacle) -> ResolutionError:
        """The error for a package of which the index has releases, and none that can be taken."""
        clause, python = obstacle.clause, self._stack.python
        needing = f"{clause.who} needs {clause.needed}, which " if clause.who else f"{clause.needed} "
        has = {
            "wheels": f"has wheels, none for Python {python}: {obstacle.detail}",
            "python": f"needs {obstacle.detail}, and the image has {python}",
            "version": f"matches none of its releases: {obstacle.detail}",
        }
        is_version = obstacle.kind == "version"
        return ResolutionError(
            f"these packages cannot be added to {self.title}: {needing}{has[obstacle.kind]}",
            cause="" if is_version else "Its wheels are for other versions of Python than the image has.",
            next_step=f"ask for another version of {clause.requirement.name}"
            if is_version
            else f"bring a wheel of it for the image's Python, or its source: {setting(with_='./NAME')}",
        )

    def unexplained(self, explanation: str) -> ResolutionError:
        """The error with uv's own explanation, where no package is known to be an obstacle."""
        lines = "".join(f"\n    {line.strip()}" for line in explanation.splitlines())
        return ResolutionError(
            f"these packages cannot be added to {self.title}{lines}",
            cause=f"torch {self.staying['torch'].version} is the stack's: {_STAYS}.",
            next_step=f"{command('list')}    (stacks with other versions), or ask for another version of the package",
        )

    def _as_it_is(self, name: str) -> StackBound:
        """What the stack has and would move, were there another one that fits."""
        there = self._stack.package(name)
        version = there.version if there else "none"
        return StackBound(f"{name} {version}", "no other version of it fits what else is there", version)

    def _next_step(self, clause: Clause, name: str) -> str:
        """The nearest CUDA version that has what is wanted; where none has, the nearest versions that there are."""
        there = self._elsewhere(name)
        specifier = clause.requirement.specifier
        for cuda, version in there:
            if specifier.contains(Version(version).public, prereleases=True):
                return f"{self._command(cuda)}    (CUDA {cuda} has {name} {version})"
        package = re.split(r"[<>=!~\[]", clause.who)[0] or clause.requirement.name
        exact = [Version(part.version) for part in specifier if part.operator == "=="]
        if clause.who or not exact or not there:
            other = f"ask for another version of {self.asked[0].name if len(self.asked) == 1 else package}"
            return f"{other}: no CUDA version of {self._stack.recipe} has {clause.needed}"
        mine = (self._stack.cuda, self.staying[name].version if name in self.staying else "")
        known = sorted({(Version(version), cuda) for cuda, version in (*there, mine) if version})
        near = [max((entry for entry in known if entry[0] < exact[0]), default=None)]
        near.append(min((entry for entry in known if entry[0] > exact[0]), default=None))
        return (
            f"{command('list')}    (nearest are "
            + listed(f"{name} {version.public}, {setting(cuda=cuda)}" for version, cuda in filter(None, near))
            + ")"
        )

    def _elsewhere(self, name: str) -> list[tuple[str, str]]:
        """(CUDA version, version of a package) of the recipe's other variants, the nearest CUDA version first."""
        recipe, versions = self._context.recipe, list[tuple[str, str]]()
        for variant in recipe.variants:
            if variant.cuda in (self._stack.cuda, "cpu"):
                continue
            for candidate in variant.candidates:
                lock = read_lock(self._context.ctx, recipe, variant, candidate)
                package = lock.package(name) if lock else None
                if package:
                    versions.append((variant.cuda, package.version))
                elif name == "torch" and candidate.torch != "*":
                    versions.append((variant.cuda, candidate.torch))
        here = facts.numbers(self._stack.cuda)
        if not here:
            return versions

        return sorted(versions, key=lambda entry: _distance(entry[0], here))

    def _command(self, cuda: str) -> Command:
        steps = self._context.next_steps
        # What stays is there with the CUDA version.
        return steps.on_without(cuda, self.staying) if steps else command("image", "…", cuda=cuda)


def _distance(cuda: str, here: tuple[int, ...]) -> int:
    """How far a CUDA version ("11.7") is from another one, as numbers."""
    (major, minor), (own_major, own_minor) = ((*numbers, 0)[:2] for numbers in (facts.numbers(cuda), here))
    return abs((major - own_major) * 100 + minor - own_minor)


class BoundedConflicts:
    """A `World` with constraints besides the stack's. `fixed`: names that are there whatever is asked for."""

    def __init__(
        self, conflicts: Conflicts, lines: Iterable[str], others: Collection[str], as_sources: Collection[str]
    ) -> None:
        self._conflicts, self._as_sources = conflicts, as_sources
        self.fixed = frozenset({*conflicts.staying, *others})
        self.releases, self.expect = conflicts.releases, conflicts.expect
        self.runs, self.rank, self.is_against = conflicts.runs, conflicts.rank, conflicts.is_against
        self._bounds = {name: limit.bound for name, limit in conflicts.limits.items() if not limit.version}
        for requirement in _counting(lines, conflicts.python, ("",)):
            name = str(canonicalize_name(requirement.name))
            self._bounds[name] = self._bounds.get(name, SpecifierSet()) & requirement.specifier

    def fits(self, release: Offer) -> bool:
        """Whether it may be taken: a wheel whose tags are the image's, or a source of a package that may be one."""
        return self._conflicts.fits(release) or (release.is_sdist and release.name in self._as_sources)

    def needs(self, release: Offer, extras: Collection[str] = ()) -> list[Requirement]:
        """What a wheel requires; of a source that is taken it is asked for already. Raises NetworkError."""
        return [] if release.is_sdist else self._conflicts.needs(release, extras)

    def bound(self, name: str) -> SpecifierSet:
        """What else is asked of a package."""
        return self._bounds.get(name, SpecifierSet())


def _counting(lines: Iterable[str], python: str, extras: Sequence[str]) -> list[Requirement]:
    """The requirements that count for this Python with one of these extras; what cannot be read is left out."""
    counting = []
    for line in lines:
        with contextlib.suppress(InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName, InvalidVersion):
            requirement = Requirement(line)
            environments = ({**markers(python), "extra": extra} for extra in extras)
            if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
                requirement.marker = None  # it is true here, of an extra too
                counting.append(requirement)
    return counting
