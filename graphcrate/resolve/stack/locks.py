"""A resolution's subject and inputs, and which request a lock answers."""

import functools
import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.compat.facts.cutoff import exempt_of
from graphcrate.compat.facts.pyg_lib import release_for
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.lock import Lock
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import CandidateOutcome
from graphcrate.resolve.sources.channels import local_folders
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.user_indexes import wheel_folders

#: of what locks mean; a higher number makes all cached and committed ones stale
RULES = 2


@dataclass(frozen=True, kw_only=True)
class ResolveContext:
    """A resolution's subject and inputs. `built`: sha256s of a lock's compiled sdists whose wheels the cache has."""

    recipe: Recipe
    variant: Variant
    request: SourceOptions
    ctx: Context
    built: Callable[[Lock], Collection[str]] = lambda _: ()
    ungiven: dict[str, GraphcrateError] = field(default_factory=dict)  #: as in `Sources`
    next_steps: NextSteps | None = None  #: commands that messages name; None: of the stack itself, which has its own

    @functools.cached_property
    def sources(self) -> Sources:
        """All sources of this request."""
        ctx, note = self.ctx, self.ctx.progress.note
        return Sources(self.request, ctx.cache, ctx.environment, note, ctx.progress, self.ungiven)

    @functools.cached_property
    def local_torch(self) -> frozenset[str]:
        """File names of the torch wheels in the user's folders."""
        folders = local_folders(self.request, wheel_folders(self.ctx.environment))
        return frozenset(path.name for folder in folders for path in Path(folder).glob("torch-*.whl"))


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The lock to build from and why: one outcome per candidate that was looked at."""

    lock: Lock
    candidate: Candidate
    outcomes: tuple[CandidateOutcome, ...]


def request_digest(recipe: Recipe, variant: Variant, candidate: Candidate, request: SourceOptions | None = None) -> str:
    """Hash all that a lock answers, of `request` what concerns extensions; nothing of plan and smoke test."""
    asked: dict[str, Any] = {
        "rules": RULES,
        "recipe": [recipe.name, recipe.requirements],
        "variant": [variant.cuda, variant.python, variant.torch_geometric, variant.requirements, variant.extensions],
        "base": variant.base,
        "candidate": [candidate.name, candidate.channels, candidate.torch, candidate.torch_cuda, candidate.overrides],
    }
    if variant.extensions:
        asked["architectures"] = variant.architectures
    if variant.exclude_newer:
        asked["exclude_newer"] = [variant.exclude_newer, exempt_of(recipe)]
    if request is not None and variant.extensions and request.extensions != "auto":
        asked["extensions"] = request.extensions
    if request is not None and request.toolkit is not None and (variant.extensions or request.devel):
        asked["toolkit"] = request.toolkit
    if request is not None and request.pyg_lib and (release := release_for(variant.torch_geometric)):
        asked["pyg_lib"] = release.commit
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()
