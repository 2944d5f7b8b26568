"""Why packages cannot be added to a stack: which half is the stack's, why, and which CUDA version has what is wanted.

uv's explanation names every step from what was asked for to what contradicts it. The one clause that is against what
the stack fixes is looked for in it; where none is found, the explanation stands as it is.
"""

import contextlib
import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat import facts, own
from graphcrate.compat.catalog import read_lock
from graphcrate.compat.packages import markers
from graphcrate.model.command import Command, command
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.words import joined, listed
from graphcrate.resolve.locks import ResolveContext
from graphcrate.resolve.offers import Offers
from graphcrate.resolve.pinning import bounds_of

#: of uv's explanation: "libraft-cu12==26.6.0 depends on nvidia-nvjitlink-cu12>=12.9,<13"
_DEPENDS = re.compile(r"(\S+) depends? on (\S+)")
_PYTHON = re.compile(r"(\S+) depends? on (Python[<>=!~]\S+)")
_OTHER_PYTHON = "no wheels with a matching Python ABI tag"
_MARKER = re.compile(r"\{[^}]*\}")
#: what uv says around its explanation, and advice that is about uv's options
_UV_WORDS = re.compile(r"^(error: .*\n|  cause: |hint: Wheels are.*\n?)", re.M)
_STAYS = "torch, CUDA and what is compiled for them stay as they are"
_ABSENT = re.compile(r"Because (\S+) was not found in the package registry")
#: what people add most, for the nearest name
WELL_KNOWN = (
    "accelerate", "datasets", "deepspeed", "dgl", "einops", "faiss-cpu", "fastapi", "flask", "graphviz", "h5py",
    "hydra-core", "ipykernel", "jupyterlab", "lightning", "matplotlib", "mlflow", "mpi4py", "networkx", "numba",
    "numpy", "omegaconf", "opencv-python-headless", "optuna", "pandas", "peft", "pillow", "polars", "pyarrow",
    "pytorch-lightning", "pyyaml", "ray", "rdkit", "scikit-learn", "scipy", "seaborn", "sentencepiece",
    "tensorboard", "timm", "tokenizers", "torchaudio", "torchdata", "torchmetrics", "torchvision", "tqdm",
    "transformers", "wandb", "xgboost",
)  # fmt: skip
_MOST_NAMED = 4  #: packages in a command


class Clause(NamedTuple):
    """Who needs what. `who`: a package as uv names it; empty: the person."""

    who: str
    wanted: Requirement

    @property
    def needed(self) -> str:
        """What is wanted, without markers and extras, the lower bound first."""
        return self.wanted.name + ",".join(sorted(map(str, self.wanted.specifier), reverse=True))


class StackBound(NamedTuple):
    """What a stack fixes of a package: "torch 2.0.1" or "numpy<2". `why`: a clause; `version`: empty for a bound."""

    said: str
    why: str
    version: str = ""
    bound: SpecifierSet = SpecifierSet()


def clauses(text: str) -> Iterator[Clause]:
    """What uv's explanation says of who depends on what."""
    for who, wanted in _DEPENDS.findall(_MARKER.sub("", " ".join(text.split()))):
        with contextlib.suppress(InvalidRequirement):
            yield Clause(who, Requirement(wanted.rstrip(",.")))


class Conflicts:
    """What one stack fixes, and how to say that something is against it. `asked`: what a person names."""

    def __init__(
        self, context: ResolveContext, stack: Lock, staying: Mapping[str, LockedPackage], offers: Offers
    ) -> None:
        self._context, self._stack, self._staying, self._offers = context, stack, staying, offers
        self.title = f"{stack.recipe} for CUDA {stack.cuda}"
        self.asked: Sequence[Requirement] = ()

    @functools.cached_property
    def limits(self) -> dict[str, StackBound]:
        """Normalised name → what the stack fixes."""
        recipe, variant = self._context.recipe, self._context.variant
        asked = f"the recipe {recipe.name} asks for it at CUDA {variant.cuda}"
        of_recipe = [(line, asked) for line in (*recipe.requirements, *variant.requirements)]
        found = {}
        for line, why in (*of_recipe, *bounds_of(self._staying["torch"].version)):
            bound = Requirement(line)
            if bound.specifier:
                found[str(canonicalize_name(bound.name))] = StackBound(line, why, bound=bound.specifier)
        return found | {
            name: StackBound(f"{name} {one.version}", _STAYS, version=one.version)
            for name, one in self._staying.items()
        }

    def against(self, found: Iterable[Clause]) -> Clause | None:
        """The first of these clauses that no version of what the stack fixes satisfies."""
        return next((one for one in found if not self._may_be(one.wanted)), None)

    def _may_be(self, wanted: Requirement) -> bool:
        limit = self.limits.get(str(canonicalize_name(wanted.name)))
        if limit is None or (wanted.marker and not wanted.marker.evaluate({**markers(self._stack.python)})):
            return True
        if limit.version:
            return wanted.specifier.contains(Version(limit.version).public, prereleases=True)
        there = {Version(one.version) for one in self._offers.releases(str(canonicalize_name(wanted.name)))}
        return not there or any((wanted.specifier & limit.bound).contains(one, prereleases=True) for one in there)

    def reason(self, error: ResolutionError, probed: Requirement) -> str:
        """Why uv has no answer with this requirement, on one line."""
        text = " ".join(error.what.split())
        if found := _PYTHON.search(text):
            return f"{found[1]} needs {found[2].rstrip(',.')}"
        if found_clause := self.against([Clause("", probed), *clauses(text)]):
            limit = self.limits[str(canonicalize_name(found_clause.wanted.name))]
            return f"{found_clause.who} needs {found_clause.needed}" if found_clause.who else limit.why
        said = re.search(r"Because (.*?)(?:, we can conclude|\.$|\. And)", text)
        return said[1] if said else "another package is against it"

    def refusal(self, clause: Clause, why: str = "") -> ResolutionError:
        """The error for what is against the stack; `why` it is, where its requirement does not say so itself."""
        name = str(canonicalize_name(clause.wanted.name))
        limit = self.limits.get(name) or self._as_it_is(name)
        if clause.who:
            what = f"{self._needing(clause)}, and the stack has {limit.said}" + (f": {why}" if why else "")
        else:
            what = f"{clause.needed} cannot be added to {self.title}, which has {limit.said}"
        return ResolutionError(
            what, cause=f"{limit.said} is the stack's: {limit.why}.", next_step=self._next_step(clause, name)
        )

    def _needing(self, clause: Clause) -> str:
        """What was asked for and cannot be added, and who needs what."""
        asked = [one.name for one in self.asked]
        who = re.split(r"[<>=!~\[]", clause.who)[0]
        needs = "it needs" if asked == [who] else f"{clause.who} needs"
        return f"{joined(asked) or who} cannot be added to {self.title}: {needs} {clause.needed}"

    def without_wheel(self, clause: Clause, python: str) -> ResolutionError:
        """The error for a release that is there as source only of what the stack has as a wheel."""
        there = self._stack.package(str(canonicalize_name(clause.wanted.name)))
        have = f"{there.name} {there.version}" if there else "another release"
        who = re.split(r"[<>=!~\[]", clause.who)[0]
        what = self._needing(clause) if who else f"{clause.needed} cannot be added to {self.title}"
        step = f"take the source of {who}, change what it requires, and give its folder: --with ./{who}"
        return ResolutionError(
            f"{what}, of which there is no wheel for Python {python}",
            cause=f"The stack has {have}; what it has as a wheel is not compiled from a source.",
            next_step=step if who else f"ask for a release of {clause.wanted.name} that has a wheel for it",
        )

    def absent(self, text: str) -> ResolutionError | None:
        """The error for a name that no index has, with the nearest that we know; None where none is in uv's text."""
        found = _ABSENT.search(text)
        if found is None:
            return None
        near = difflib.get_close_matches(found[1], {*WELL_KNOWN, *(one.name for one in self._stack.packages)}, n=3)
        what = f"these packages cannot be added to {self.title}: the package index has no {found[1]}"
        return ResolutionError(
            what + (f"; did you mean {' or '.join(near)}?" if near else ""),
            next_step="look the name up where the package is documented: it may differ from what is imported",
        )

    def unexplained(self, text: str) -> ResolutionError:
        """The error with uv's own explanation, where no clause of it is against the stack."""
        what = f"these packages cannot be added to {self.title}\n{_UV_WORDS.sub('', text).rstrip()}"
        if _OTHER_PYTHON in text:
            return ResolutionError(
                what,
                cause="Its wheels are for other versions of Python than the image has.",
                next_step="bring a wheel of it for the image's Python, or its source: --with ./NAME",
            )
        return ResolutionError(
            what,
            cause=f"torch {self._staying['torch'].version} is the stack's: {_STAYS}.",
            next_step="./build.py list    (stacks with other versions), or ask for another version of the package",
        )

    def _as_it_is(self, name: str) -> StackBound:
        """What the stack has and would move, were there another one that fits."""
        there = self._stack.package(name)
        version = there.version if there else "none"
        return StackBound(f"{name} {version}", "no other version of it fits what else is there", version)

    def _next_step(self, clause: Clause, name: str) -> str:
        """The nearest CUDA version that has what is wanted; where none has, the nearest versions that there are."""
        there = self._elsewhere(name)
        wanted = clause.wanted.specifier
        for cuda, version in there:
            if wanted.contains(Version(version).public, prereleases=True):
                return f"{self._command(cuda)}    (CUDA {cuda} has {name} {version})"
        package = re.split(r"[<>=!~\[]", clause.who)[0] or clause.wanted.name
        exact = [Version(part.version) for part in wanted if part.operator == "=="]
        if clause.who or not exact or not there:
            other = f"ask for another version of {self.asked[0].name if len(self.asked) == 1 else package}"
            return f"{other}: no CUDA version of {self._stack.recipe} has {clause.needed}"
        mine = (self._stack.cuda, self._staying[name].version if name in self._staying else "")
        known = sorted({(Version(version), cuda) for cuda, version in (*there, mine) if version})
        near = [max((one for one in known if one[0] < exact[0]), default=None)]
        near.append(min((one for one in known if one[0] > exact[0]), default=None))
        return (
            "./build.py list    (nearest are "
            + listed(f"{name} {version.public}, CUDA={cuda}" for version, cuda in filter(None, near))
            + ")"
        )

    def _elsewhere(self, name: str) -> list[tuple[str, str]]:
        """(CUDA version, version of a package) of the recipe's other variants, the nearest CUDA version first."""
        recipe, found = self._context.recipe, []
        for variant in recipe.variants:
            if variant.cuda in (self._stack.cuda, "cpu"):
                continue
            for candidate in variant.candidates:
                lock = read_lock(self._context.ctx, recipe, variant, candidate)
                package = lock.package(name) if lock else None
                if package:
                    found.append((variant.cuda, package.version))
                elif name == "torch" and candidate.torch != "*":
                    found.append((variant.cuda, candidate.torch))
        here = facts.numbers(self._stack.cuda)
        if not here:
            return found

        def distance(one: tuple[str, str]) -> int:
            (major, minor), (own_major, own_minor) = ((*numbers, 0)[:2] for numbers in (facts.numbers(one[0]), here))
            return abs((major - own_major) * 100 + minor - own_minor)

        return sorted(found, key=distance)

    def _command(self, cuda: str) -> Command:
        request = self._context.typed
        if request is None or len(request.additions.packages) > _MOST_NAMED:
            return command("image", "…", cuda=cuda)
        # What stays is there with the CUDA version.
        kept = tuple(one for one in request.additions.packages if own.name_of(one) not in self._staying)
        additions = msgspec.structs.replace(request.additions, packages=kept)
        return msgspec.structs.replace(request, cuda=cuda, additions=additions).command()
