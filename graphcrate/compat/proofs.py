"""The words for what was shown of an image, and which of them fits a committed lock (docs/proof.md).

A proof is of the code that built it: another state of this project makes other bytes of the same lock.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from graphcrate.compat.plan.planning import build_key, make_plan
from graphcrate.compat.plan.programs import examples
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.ported import on_platform
from graphcrate.host.context import Context
from graphcrate.model.lock import Lock
from graphcrate.model.lock_proof import LockProof
from graphcrate.model.platform import SUPPORTED
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import BuildReport

Word = Literal["tested", "proved", "emulated", "expected", "witnessed", "stale", "unproved", "not shown"]
#: what each means, for docs/proof.md
WORDS: dict[Word, str] = {
    "tested": "a suite ran in this image, on the device and in the runtime that are named, and passed",
    "proved": "the image of its committed lock was built by today's code, audited and tested",
    "emulated": "the same, but its programs ran in an emulator: no suite, no GPU",
    "expected": "judged from the image's bytes and tables of facts; nothing ran",
    "witnessed": "a file's hash, which no page states, is the one in public lock files of others",
    "stale": "proved by other code: today's has another build key, so the digest differs",
    "unproved": "nothing was built of its committed lock",
    "not shown": "it ran nowhere that this image knows of",
}
_EMULATOR = "emulated"  #: the suite that an emulator runs


class Standing(NamedTuple):
    """A committed lock's standing: what its proof is worth today."""

    recipe: Recipe
    variant: Variant
    candidate: Candidate
    lock: Lock
    word: Word
    proof: LockProof | None  #: None where it is unproved

    @property
    def title(self) -> str:
        """Name the lock: "pyg 13.0 for linux/arm64"."""
        platform = catalog.typed_platform(self.variant.base.runs_on)
        return f"{self.recipe.name} {self.variant.cuda}" + (f" for {platform}" if platform else "")

    @property
    def dated(self) -> str:
        """Word the standing: "stale, of 2026-11-27"."""
        return self.word + (f", of {self.proof.date[:10]}" if self.proof else "")


def judged(
    recipe: Recipe, variant: Variant, candidate: Candidate, lock: Lock, ctx: Context, programs: Mapping[str, str]
) -> Standing:
    """Judge the proof beside a committed lock. `programs`: `examples(ctx)`."""
    proof = catalog.read_proof(catalog.lock_path(ctx, recipe, variant, candidate), lock)
    word: Word = "unproved"
    if proof is not None:
        is_todays = proof.build_key == build_key(make_plan(recipe, lock, candidate, examples=programs))
        is_emulated = {suite.suite for suite in proof.suites} == {_EMULATOR}
        word = "stale" if not is_todays else "emulated" if is_emulated else "proved"
    return Standing(recipe, variant, candidate, lock, word, proof)


def standings(ctx: Context, recipes: Sequence[Recipe]) -> Iterator[Standing]:
    """Judge every committed lock of these recipes, those of one variant together."""
    programs = examples(ctx)
    return (judged(*locked, ctx, programs) for recipe in recipes for locked in _locked(recipe, ctx))


def proof_of(report: BuildReport | None, ctx: Context) -> Standing | None:
    """Judge the committed lock that an image was built from; None for one with additions, and of other recipes."""
    if report is None or not (ctx.root / "images" / report.name).is_dir():
        return None
    locked = _locked(catalog.find_recipe(ctx, report.name), ctx)
    own = next((each for each in locked if each[-1].sha256 == report.lock_sha256), None)
    return judged(*own, ctx, examples(ctx)) if own else None


def _locked(recipe: Recipe, ctx: Context) -> Iterator[tuple[Recipe, Variant, Candidate, Lock]]:
    for variant in recipe.variants:
        for platform in SUPPORTED:
            ported = on_platform(variant, platform)
            for candidate in variant.candidates:
                if lock := catalog.read_lock(ctx, recipe, ported, candidate):
                    yield recipe, ported, candidate, lock
