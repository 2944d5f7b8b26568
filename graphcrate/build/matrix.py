"""Prove the matrix: build, check and test every committed lock, one after another, within a given disk.

What is proved is written beside the lock (`CANDIDATE.proof.json`), so the same command goes on where it stopped.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.build import extensions, pipeline
from graphcrate.build.with_engine import EMBEDDED
from graphcrate.compat import catalog, facts
from graphcrate.compat.planning import make_plan
from graphcrate.compat.programs import examples
from graphcrate.compat.request import BuildRequest
from graphcrate.host import cleaning, process, settings
from graphcrate.host.atomic import write_file
from graphcrate.host.cache import remove_tree
from graphcrate.host.context import Context
from graphcrate.model.errors import UNREADABLE, BuildError, DiskFullError, GraphcrateError
from graphcrate.model.lock import Lock, decode_lock, encode
from graphcrate.model.lock_proof import LockProof, ProvenSuite, decode_proof
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import BuildReport

#: What an image takes on the disk while it is built and tested, by the bytes of its lock's files: those, the layers,
#: and the unpacked tree of the suites (measured: 2.4 times the wheels); and what compiling takes besides.
GROWTH, COMPILING = 4.5, 2_000_000_000

Build = Callable[[BuildRequest, Context], BuildReport]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A committed lock of the matrix."""

    recipe: Recipe
    variant: Variant
    candidate: Candidate
    path: Path
    lock: Lock

    @property
    def title(self) -> str:
        return f"{self.recipe.name} {self.variant.cuda} {self.candidate.name}"

    @property
    def proof_path(self) -> Path:
        return self.path.with_name(self.path.name.replace(".lock.json", ".proof.json"))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a row. `proof` of what was proved, now or before; else `error` with its exit code."""

    recipe: str
    cuda: str
    candidate: str
    state: Literal["proved", "proved before", "failed"]
    proof: LockProof | None = None
    error: str = ""
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which locks (all where none is named), the disk that may be taken in bytes, and whether again what is proved."""

    recipe: str = ""
    cuda: str = ""
    candidate: str = ""
    disk: int | None = None
    again: bool = False
    output: Path = Path("dist")


def rows(ctx: Context, request: Request) -> list[Row]:
    """The committed locks that are asked for; those of one torch stand together, as they share their wheels.

    Raises UsageError for a recipe or a CUDA version that there is not, BuildError where no lock is committed for it.
    """
    recipes = [catalog.find_recipe(ctx, request.recipe)] if request.recipe else catalog.all_recipes(ctx)
    if request.cuda:
        recipes = [one for one in recipes if request.recipe == one.name or one.variant(request.cuda)]
        for recipe in recipes:
            catalog.refuse_unknown_cuda(recipe, request.cuda)
    found = [
        Row(recipe=recipe, variant=variant, candidate=candidate, path=path, lock=decode_lock(path.read_bytes()))
        for recipe in recipes
        for variant in recipe.variants
        for candidate in variant.candidates
        if request.cuda in ("", variant.cuda) and request.candidate in ("", candidate.name)
        if (path := catalog.lock_path(ctx, recipe, variant, candidate)).is_file()
    ]
    if not found:
        asked = " ".join(filter(None, (request.recipe, request.cuda, request.candidate)))
        raise BuildError(f"no lock is committed for {asked}", next_step="./build.py list    (the last column)")
    return sorted(found, key=lambda row: (facts.numbers(row.candidate.torch), row.variant.cuda, row.recipe.name))


def proof_of(row: Row) -> LockProof | None:
    """The proof beside a lock; None where there is none, or it is another lock's."""
    with contextlib.suppress(OSError, *UNREADABLE):
        proof = decode_proof(row.proof_path.read_bytes())
        if proof.lock_sha256 == row.lock.sha256:
            return proof
    return None


def run(
    request: Request,
    ctx: Context,
    build: Build = pipeline.build_image,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Prove the rows that are not proved yet, in turn; what fails does not end it. `report` gets each result."""
    wanted, results = rows(ctx, request), []
    for number, row in enumerate(wanted):
        known = None if request.again else proof_of(row)
        if known is not None and known.build_key == EMBEDDED.key(_plan(row, ctx)):
            result = _result(row, state="proved before", proof=known)
        else:
            ctx.progress.note(f"matrix: {row.title}, {number + 1} of {len(wanted)}")
            result = _prove(row, wanted[number:], request, ctx, build)
        results.append(result)
        report(result)
    return results


def raise_if_failed(results: Sequence[Result]) -> None:
    """Raises BuildError where a row failed."""
    failed = [one for one in results if one.state == "failed"]
    if failed:
        first = failed[0]
        raise BuildError(
            f"{len(failed)} of {len(results)} images were not proved; "
            f"first {first.recipe} {first.cuda} {first.candidate}: {first.error}",
            cause=f"Its build ended with exit code {first.exit_code}.",
            next_step=f"make image STACK={first.recipe} CUDA={first.cuda}    shows all of it; "
            "the same command again goes on with what is not proved",
        )


def _plan(row: Row, ctx: Context) -> Plan:
    return make_plan(row.recipe, row.lock, row.candidate, examples=examples(ctx))


def _prove(row: Row, left: Sequence[Row], request: Request, ctx: Context, build: Build) -> Result:
    """Build and test the image of a row and write its proof."""
    start = settings.now()
    asked = BuildRequest(
        name=row.recipe.name,
        cuda=row.variant.cuda,
        channel=row.candidate.channels[0],
        output=request.output,
        engine=EMBEDDED.name,
        locked=True,
    )
    try:
        make_room(left, request, ctx)
        report = build(asked, ctx)
    except GraphcrateError as error:
        ctx.progress.note(f"matrix: {row.title} failed: {error}")
        return _result(row, state="failed", error=error.what, exit_code=error.exit_code)
    proof = _proof(row, report, round(settings.now() - start, 1), ctx)
    write_file(row.proof_path, encode(proof))
    return _result(row, state="proved", proof=proof)


def _result(row: Row, **fields: object) -> Result:
    return Result(recipe=row.recipe.name, cuda=row.variant.cuda, candidate=row.candidate.name, **fields)  # type: ignore[arg-type]


def _proof(row: Row, report: BuildReport, seconds: float, ctx: Context) -> LockProof:
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
        commit=_commit(ctx),
    )


def _commit(ctx: Context) -> str:
    """The commit of this checkout, with "+" where tracked files differ from it; empty where git does not say."""
    environment = settings.select_for_child(ctx.environment)
    try:
        commit = process.output(["git", "rev-parse", "HEAD"], environment=environment, cwd=ctx.root).strip()
        status = ["git", "status", "--porcelain", "--untracked-files=no"]
        changed = process.output(status, environment=environment, cwd=ctx.root).strip()
    except GraphcrateError:
        return ""
    return commit + ("+" if changed else "")


def make_room(left: Sequence[Row], request: Request, ctx: Context) -> None:
    """Free what the rows that are left do not need, where the next one would not fit. Raises DiskFullError.

    `request.disk`: how much cache and images may take together; else what the disk has.
    """
    row, cache = left[0], ctx.cache
    files = row.lock.files(extensions.built(row.lock, ctx))
    absent = sum(one.size for one in files.values() if not cache.file(one.sha256, one.name).is_file())
    wheels = sum(one.size for one in files.values())
    needed = absent + int(wheels * (GROWTH - 1)) + (COMPILING if row.lock.compilation else 0)
    for step in _steps(left, request.output, ctx):
        if _free(request, ctx) >= needed:
            return
        step()
    if (free := _free(request, ctx)) < needed:
        raise DiskFullError(
            f"{row.title} takes {needed / 1e9:.1f} GB, and {max(free, 0) / 1e9:.1f} GB are free for it",
            next_step="make images DISK=60GB    (more room), or GRAPHCRATE_CACHE=/path of another disk",
        )


def _steps(left: Sequence[Row], output: Path, ctx: Context) -> Iterator[Callable[[], object]]:
    """What frees room, the cheapest to get again first. The reports and tests of images stay."""
    yield functools.partial(cleaning.release, ctx.cache, ["rootfs", "squashed"])
    yield functools.partial(_remove_layouts, output)
    yield functools.partial(cleaning.release, ctx.cache, ["blobs"])
    for to_come in (left, left[:1]):
        keep = {sha256 for row in to_come for sha256 in row.lock.files()}
        yield functools.partial(cleaning.keep_files, ctx.cache, keep)


def _remove_layouts(output: Path) -> None:
    for layout in output.glob("*/*/oci"):
        remove_tree(layout)


def _free(request: Request, ctx: Context) -> int:
    """Bytes that may still be taken."""
    if request.disk is None:
        return ctx.cache.free_bytes()
    taken = sum(cleaning.measure(ctx.cache).values()) + cleaning.bytes_below(request.output)
    return min(request.disk - taken, ctx.cache.free_bytes())
