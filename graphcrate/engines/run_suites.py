"""Run an image's suites inside it, except those that it passed on the same kind of node before."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.engines import backend
from graphcrate.engines.slurm import submit
from graphcrate.host import gpu
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.errors import SmokeError
from graphcrate.model.lock import encode
from graphcrate.model.report import BuildReport, Claim, Pass, SmokeReport
from graphcrate.model.trial import Order, TrialReport
from graphcrate.smoke import suites as smoke
from graphcrate.smoke.memory import Memory, content
from graphcrate.smoke.own import OwnTest, run_own

REPORT = "trial.json"  #: in an order's folder
#: by the kind of a build's artifact: how a command is run in it
_LOOKS = {
    "layout": "./build.py run {image} --",
    "docker": "docker run --rm {reference}",
    "podman": "podman run --rm {reference}",
    "sif": "{engine} exec {reference}",
}


def prove(
    report: BuildReport,
    order: Order,
    ctx: Context,
    *,
    own: Sequence[OwnTest] = (),
    below: BuildReport | None = None,
) -> BuildReport:
    """Return the report with the results of an order: past passes on this kind of node, and new runs of the others.

    It is the same report where all results are past ones and stand in it. `own`: tests beside the order's suites.
    `below`: the report of the image that this one has all layers of; its results stand before the others.
    """
    claims, known = _recall(order, ctx, own)
    proven = below.suites if below else ()
    plain = _plain([*proven, *(found.report for found in known.values())])
    if len(known) == len(claims) and plain == _plain(report.suites):
        return report
    results = [*proven, *_results(order, ctx, claims, known, own=own, below=below)]
    summary = next((result for result in results if result.status == "failed"), results[0])
    return msgspec.structs.replace(report, smoke=summary, suites=tuple(results))


def _plain(results: Sequence[SmokeReport]) -> list[SmokeReport]:
    return [msgspec.structs.replace(result, remembered="") for result in results]


def run_suites(order: Order, ctx: Context, say: Callable[[str], None] | None = None) -> TrialReport:
    """Run suites in an artifact with the runner of its kind, one after the other; write the report into their folder.

    A suite with a past pass is not run, and `say` (default: the progress output) gets a line about it, as it gets those
    of the suites. Raises what `smoke.run_suite` raises.
    """
    report = report_of(order, _results(order, ctx, *_recall(order, ctx), say=say))
    write_file(Path(order.folder) / REPORT, encode(report))
    return report


def report_of(order: Order, results: Sequence[SmokeReport]) -> TrialReport:
    """Make the report of an order from the results of its suites."""
    return TrialReport(
        reference=order.reference,
        runner=order.runner,
        artifact=order.artifact,
        suites=tuple(results),
        layout=order.layout,
        proof=proof_of(order),
    )


def proof_of(order: Order) -> str:
    """Name what an order proves of an image: the kind of device it asks for, and the versions of its suites."""
    return " ".join([order.device, *(smoke.version_of(suite, order.packages) for suite in sorted(order.suites))])


def _recall(order: Order, ctx: Context, own: Sequence[OwnTest] = ()) -> tuple[Mapping[str, Claim], Mapping[str, Pass]]:
    """Return the claim of each suite on this machine, and the past passes. Raises HostError without a runner."""
    on_gpu = smoke.runs_on_gpu(order.device)
    runtime, version = backend.runner(order.artifact.kind).runtime(ctx.environment)
    device = gpu.device(ctx.environment, on_gpu=on_gpu)
    driver = gpu.driver_version() if on_gpu else ""
    versions = {suite: smoke.version_of(suite, order.packages) for suite in order.suites}
    claims = {
        suite: Claim(
            image=content(order.artifact.digest),
            suite=suite,
            version=version_of_suite,
            device=device,
            driver=driver,
            runtime=runtime,
            runtime_version=version,
        )
        for suite, version_of_suite in (versions | {test.name: test.version for test in own}).items()
    }
    memory = _memory(order)
    return claims, {name: known for name, claim in claims.items() if (known := memory.recall(claim))}


def _memory(order: Order) -> Memory:
    return Memory(Path(order.passes), order.rerun)


def _results(
    order: Order,
    ctx: Context,
    claims: Mapping[str, Claim],
    known: Mapping[str, Pass],
    *,
    own: Sequence[OwnTest] = (),
    below: BuildReport | None = None,
    say: Callable[[str], None] | None = None,
) -> list[SmokeReport]:
    """Return the result of each suite, a past one or a new one."""
    say = say or ctx.progress.note
    results = {name: msgspec.structs.replace(past.report, remembered=past.when) for name, past in known.items()}
    for past in known.values():
        claim = past.claim
        driver = f", driver {claim.driver}" if claim.driver else ""
        where = f"{past.when[:10]}, {claim.device}{driver}, {f'{claim.runtime} {claim.runtime_version}'.strip()}"
        say(f"{claim.suite} passed on this kind of node before ({where}): not run again; --rerun runs it")
    if len(results) == len(claims):
        return [results[name] for name in claims]
    runner = backend.runner(order.artifact.kind)
    opened = functools.partial(runner.opened, cache=ctx.cache, progress=ctx.progress)
    tests = {test.name: test for test in own}
    with contextlib.ExitStack() as stack:
        if below is not None and below.artifact.kind == "layout":
            stack.enter_context(opened(below.artifact))  # so that what lies above it shares its files
        inside = stack.enter_context(opened(order.artifact))
        for name, claim in claims.items():
            if name in results:
                continue
            folder = Path(order.folder)
            if name in tests:
                ran = run_own(tests[name], inside, folder, say=say, on_gpu=smoke.runs_on_gpu(order.device))
            else:
                ran = smoke.run_suite(name, inside, folder, say=say, device=order.device, packages=order.packages)
            results[name] = msgspec.structs.replace(
                ran,
                driver=gpu.driver_version(),
                runtime=claim.runtime,
                runtime_version=claim.runtime_version,
                **submit.here(),  # in a job of Slurm its id, node and partition
            )
            if trouble := _memory(order).settle(claim, results[name]):
                say(trouble)
    return [results[name] for name in claims]


def look_inside(report: BuildReport) -> str:
    """Return the command that lists the packages of a build's image."""
    artifact = report.artifact
    words = _LOOKS[artifact.kind].format(image=report.image, engine=artifact.engine, reference=artifact.reference)
    return f"{words} pip list"


def raise_if_failed(reference: str, suites: Sequence[SmokeReport], next_step: str = "") -> None:
    """Raise SmokeError for the first suite that failed."""
    for suite in (suite for suite in suites if suite.status == "failed"):
        raise SmokeError(f"smoke test {suite.suite} failed in {reference}: {suite.reason}", next_step=next_step)
