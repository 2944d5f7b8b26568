"""Prove the matrix: build, check and test every candidate of every variant, in turn, within a given disk.

What is proved of a committed lock is written beside it (`CANDIDATE.proof.json`), so the same command goes on where it
stopped. A candidate without a lock is tested where its channel answers; nothing is committed of it.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.assembly import extensions, pipeline
from graphcrate.assembly.room import COMPILING
from graphcrate.assembly.with_engine import EMBEDDED
from graphcrate.compat.facts import facts
from graphcrate.compat.plan.planning import make_plan
from graphcrate.compat.plan.programs import examples
from graphcrate.compat.proofs import Standing, judged
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.ported import on_platform
from graphcrate.compat.variants.request import BuildRequest, SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk import checkout, cleaning
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model import words
from graphcrate.model.command import command
from graphcrate.model.errors import (
    BuildError,
    DiskFullError,
    GraphcrateError,
    HostError,
    NetworkError,
    ResolutionError,
    UsageError,
    class_of,
)
from graphcrate.model.lock import Lock, encode
from graphcrate.model.lock_proof import LockProof, ProvenSuite
from graphcrate.model.plan import Plan
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.model.report import BuildReport

#: What an image takes on the disk while it is built and tested, by the bytes of its lock's files: those, the layers,
#: and the unpacked tree of the suites (measured: 2.4 times the wheels).
GROWTH = 4.5
UNLOCKED = 20_000_000_000  #: of a candidate without a lock

Build = Callable[[BuildRequest, Context], BuildReport]


def _title(recipe: str, cuda: str, candidate: str, platform: str | None) -> str:
    """Return the title of a row; `platform`: where it is not the default one."""
    return f"{recipe} {cuda} {candidate}" + (f" for {platform}" if platform else "")


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """A candidate of the matrix, with its committed lock."""

    recipe: Recipe
    variant: Variant
    candidate: Candidate
    path: Path  #: of the lock
    lock: Lock | None

    @property
    def platform(self) -> Platform:
        return self.variant.base.runs_on

    @property
    def title(self) -> str:
        return _title(self.recipe.name, self.variant.cuda, self.candidate.name, catalog.typed_platform(self.platform))

    @property
    def proof_path(self) -> Path:
        return catalog.proof_path(self.path)


State = Literal["proved", "proved before", "tested", "unavailable", "failed", "lost"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a row. `proof` of a lock that was proved, now or before; else `error` with its exit code.

    `tested`: an image without a committed lock; `unavailable`: no source of such a one answers; `lost`: the machine
    that had it ended before.
    """

    recipe: str
    cuda: str
    candidate: str
    platform: str = ""  #: where it is not the default one
    state: State
    proof: LockProof | None = None
    error: str = ""
    exit_code: int = 0

    @property
    def title(self) -> str:
        """Recipe, CUDA version and candidate of the row."""
        return _title(self.recipe, self.cuda, self.candidate, self.platform)


@dataclass(frozen=True, kw_only=True)
class MatrixRequest:
    """Rows to build (all if none is named), most bytes of disk to use, and whether to rebuild what is proved."""

    recipe: str = ""
    cuda: str = ""
    candidate: str = ""
    platform: str = ""
    disk: int | None = None
    again: bool = False
    output: Path = Path("dist")
    is_shared: bool = False  #: other machines build into the same folders meanwhile
    sources: SourceOptions = field(default_factory=SourceOptions)  #: of which a row has its own channel


def rows(ctx: Context, request: MatrixRequest, again: catalog.Again | None = None) -> list[MatrixRow]:
    """The candidates that are asked for; those of one torch stand together, as they share their wheels.

    A candidate that takes torch from the user's own folder is left out, and one for another platform than the default
    one unless it has a lock. Raises UsageError where there is no such row,
    with `again`: the command that was typed, for another CUDA version; `matrix` if left out.
    """
    recipes = [catalog.find_recipe(ctx, request.recipe)] if request.recipe else catalog.all_recipes(ctx)
    if request.cuda and request.recipe:
        again = again or (lambda cuda: command("matrix", request.recipe, cuda=cuda))
        catalog.refuse_unknown_cuda(recipes[0], request.cuda, again)
    matching = [
        MatrixRow(recipe=recipe, variant=ported, candidate=candidate, path=path, lock=lock)
        for recipe in recipes
        for variant in recipe.variants
        for candidate in variant.candidates
        if request.cuda in ("", variant.cuda) and request.candidate in ("", candidate.name)
        if candidate.channels[0] is not Channel.LOCAL
        for platform in dict.fromkeys((DEFAULT, *catalog.locked_platforms(ctx, recipe, variant, candidate)))
        if request.platform in ("", platform.name)
        for ported in [on_platform(variant, platform)]
        for path in [catalog.lock_path(ctx, recipe, ported, candidate)]
        for lock in [catalog.read_lock(ctx, recipe, ported, candidate)]
    ]
    if not matching:
        parts = {" of ": request.recipe, " for CUDA ": request.cuda, " for ": request.platform}
        asked = "".join(f"{before}{name}" for before, name in parts.items() if name)
        called = f" that is called {request.candidate}" if request.candidate else ""
        raise UsageError(
            f"there is no candidate{asked}{called}", next_step=f"{command('list', json=True)}    (names all)"
        )
    return sorted(
        matching,
        key=lambda row: (
            row.platform != DEFAULT,
            facts.numbers(row.candidate.torch),
            row.variant.cuda,
            row.recipe.name,
        ),
    )


def _standing(row: MatrixRow, ctx: Context) -> Standing | None:
    """The standing of a row's lock; None where it has none."""
    return judged(row.recipe, row.variant, row.candidate, row.lock, ctx, examples(ctx)) if row.lock else None


def run(
    request: MatrixRequest,
    ctx: Context,
    build: Build = pipeline.build_image,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Prove the rows that are not proved yet, in turn; what fails does not end it. `report` gets each result."""
    to_prove, results = rows(ctx, request), []
    for number, row in enumerate(to_prove):
        result = proved_before(row, request, ctx)
        if result is None:
            ctx.progress.note(f"matrix: {row.title}, {number + 1} of {len(to_prove)}")
            result = prove(row, to_prove[number:], request, ctx, build)
        results.append(result)
        report(result)
    return results


def proved_before(row: MatrixRow, request: MatrixRequest, ctx: Context) -> Result | None:
    """Return the outcome of a row that is proved and not to be proved again."""
    known = None if request.again else _standing(row, ctx)
    if known is not None and known.word in ("proved", "emulated"):
        return _result(row, "proved before", known.proof)
    return None


def lost(row: MatrixRow, why: str) -> Result:
    """Return the outcome of a row that no machine ended."""
    return msgspec.structs.replace(_result(row, "lost"), error=why, exit_code=HostError.exit_code)


def raise_if_failed(results: Sequence[Result]) -> None:
    """Raises BuildError where a row failed; where no other was asked for, the error that its image ended with."""
    failed = [result for result in results if result.state in ("failed", "lost")]
    if failed:
        first = failed[0]
        error = class_of(first.exit_code) if len(results) == 1 else BuildError
        again = command("image", first.recipe, cuda=first.cuda, platform=first.platform or None)
        raise error(
            f"{len(failed)} of {len(results)} images were not proved; first {first.title}: {first.error}",
            cause=f"Its build ended with exit code {first.exit_code}.",
            next_step=f"{again}    shows all of it; the same command again goes on with what is not proved",
        )


def plan_of(row: MatrixRow, lock: Lock, ctx: Context) -> Plan:
    """Return the plan of a row's image."""
    return make_plan(row.recipe, lock, row.candidate, examples=examples(ctx))


def prove(row: MatrixRow, left: Sequence[MatrixRow], request: MatrixRequest, ctx: Context, build: Build) -> Result:
    """Build and test the image of a row; write the proof of its lock.

    An image that is there goes first: it may be of another commit, and a proof names the one that built and tested it.
    """
    start = settings.now()
    its_own = {"channel": row.candidate.channels[0], "locked": row.lock is not None, "parts_only": True}
    asked = BuildRequest(
        name=row.recipe.name,
        cuda=row.variant.cuda,
        platform=row.platform.name,
        sources=msgspec.structs.replace(request.sources, **its_own),
        output=request.output,
        engine=EMBEDDED.name,
    )
    try:
        make_room(left, request, ctx)
        if row.lock is not None:
            plan = plan_of(row, row.lock, ctx)
            remove_tree(request.output / plan.name / plan.tag)
        report = build(asked, ctx)
    except GraphcrateError as error:
        is_out = row.lock is None and isinstance(error, NetworkError | ResolutionError)
        state: State = "unavailable" if is_out else "failed"
        ctx.progress.note(f"matrix: {row.title}: {state}: {error}")
        return msgspec.structs.replace(_result(row, state), error=error.what, exit_code=error.exit_code)
    if row.lock is None:
        return _result(row, "tested")
    proof = _proof(row, report, round(settings.now() - start, 1), ctx)
    write_file(row.proof_path, encode(proof))
    return _result(row, "proved", proof)


def _result(row: MatrixRow, state: State, proof: LockProof | None = None) -> Result:
    recipe, cuda, candidate = row.recipe.name, row.variant.cuda, row.candidate.name
    platform = catalog.typed_platform(row.platform) or ""
    return Result(recipe=recipe, cuda=cuda, candidate=candidate, platform=platform, state=state, proof=proof)


def _proof(row: MatrixRow, report: BuildReport, seconds: float, ctx: Context) -> LockProof:
    audit = report.audit
    assert audit is not None, "every build is audited"
    suites = tuple(
        ProvenSuite(suite=suite.suite, device=suite.device, seconds=suite.seconds)
        for suite in report.suites
        if suite.status == "passed"
    )
    return LockProof(
        recipe=row.recipe.name,
        cuda=row.variant.cuda,
        candidate=row.candidate.name,
        lock_sha256=report.lock_sha256,
        tag=report.tag,
        digest=report.digest,
        bytes=report.bytes,
        seconds=seconds,
        build_key=report.build_key,
        suites=suites,
        binaries=audit.binaries,
        warnings=audit.warn,
        gpus=audit.gpus,
        date=settings.now_utc(),
        commit=checkout.commit(ctx.root, ctx.environment),
    )


def make_room(left: Sequence[MatrixRow], request: MatrixRequest, ctx: Context) -> None:
    """Free what the rows that are left do not need, where the next one would not fit. Raises DiskFullError.

    `request.disk`: how much cache and images may take together; else what the disk has. Nothing is freed where other
    machines use it.
    """
    needed = _needed(left[0], ctx)
    for step in () if request.is_shared else _steps(left, request.output, ctx):
        if _free(request, ctx) >= needed:
            return
        step()
    if (free := _free(request, ctx)) < needed:
        raise DiskFullError(
            f"{left[0].title} takes {words.size(needed)}, and {words.size(max(free, 0))} are free for it",
            next_step=f"{command('matrix', '…', disk='60GB')}    (more room), or GRAPHCRATE_CACHE=/path elsewhere",
        )


def _needed(row: MatrixRow, ctx: Context) -> int:
    """Bytes that a row still takes of the disk, at most."""
    if row.lock is None:
        return UNLOCKED
    files, cache = row.lock.files(extensions.built(row.lock, ctx)).values(), ctx.cache
    absent = sum(file.size for file in files if not cache.file(file.sha256, file.name).is_file())
    compiling = COMPILING if row.lock.compilation else 0
    return absent + int(sum(file.size for file in files) * (GROWTH - 1)) + compiling


def _steps(left: Sequence[MatrixRow], output: Path, ctx: Context) -> Iterator[Callable[[], object]]:
    """Yield steps that free room, the cheapest to undo first. Reports and tests of images stay."""
    yield functools.partial(cleaning.release, ctx.cache, ["rootfs", "squashed"])
    yield functools.partial(_remove_layouts, output)
    yield functools.partial(cleaning.release, ctx.cache, ["blobs"])
    for to_come in (left, left[:1]):
        keep = {sha256 for row in to_come if row.lock for sha256 in row.lock.files()}
        yield functools.partial(cleaning.keep_files, ctx.cache, keep)


def _remove_layouts(output: Path) -> None:
    for layout in output.glob("*/*/oci"):
        remove_tree(layout)


def _free(request: MatrixRequest, ctx: Context) -> int:
    """Bytes that may still be taken."""
    if request.disk is None:
        return ctx.cache.free_bytes()
    taken = sum(cleaning.measure(ctx.cache).values()) + cleaning.bytes_below(request.output)
    return min(request.disk - taken, ctx.cache.free_bytes())
