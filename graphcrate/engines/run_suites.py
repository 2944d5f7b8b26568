"""Run an image's suites inside it, except those that it passed on the same kind of node before.

Their results become part of its report.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.engines.runners import RUNNERS
from graphcrate.engines.slurm import submit
from graphcrate.host import gpu
from graphcrate.host.context import Context
from graphcrate.host.sandbox import Inside
from graphcrate.model.errors import SmokeError
from graphcrate.model.report import Artifact, BuildReport, Claim, SmokeReport
from graphcrate.model.trial import Device
from graphcrate.smoke import suites as smoke
from graphcrate.smoke.memory import Memory, content
from graphcrate.smoke.own import OwnTest, run_own

#: by the kind of a build's artifact: how a command is run in it
_LOOKS = {
    "layout": "./build.py run {image} --",
    "docker": "docker run --rm {reference}",
    "podman": "podman run --rm {reference}",
    "sif": "{engine} exec {reference}",
}


def prove(
    report: BuildReport,
    suites: Sequence[str],
    folder: Path,
    ctx: Context,
    device: Device,
    memory: Memory,
    *,
    own: Sequence[OwnTest] = (),
    below: BuildReport | None = None,
) -> BuildReport:
    """Return the report with the results of these suites: past passes on this kind of node, and new runs of the others.

    It is the same report where all results are past ones and stand in it. `folder`: the image's. `own`: tests beside
    the suites. `below`: the report of the image that this one has all layers of; its results stand before the others.
    """
    packages = [package.name for package in report.packages]
    own_tests = {one.name: one for one in own}
    trial = _Trial(report.artifact, folder, ctx, device, packages, ctx.progress.note, own_tests, below)
    proven = below.suites if below else ()
    claims = _claims(trial, [*suites, *trial.own])
    known = [found.report for claim in claims.values() if (found := memory.recall(claim))]
    plain = [msgspec.structs.replace(result, remembered="") for result in (*proven, *known)]
    reported = [msgspec.structs.replace(result, remembered="") for result in report.suites]
    if len(known) == len(claims) and plain == reported:
        return report
    results = [*proven, *_results(trial, claims, memory)]
    summary = next((result for result in results if result.status == "failed"), results[0])
    return msgspec.structs.replace(report, smoke=summary, suites=tuple(results))


def run_suites(
    artifact: Artifact,
    suites: Sequence[str],
    folder: Path,
    ctx: Context,
    device: Device,
    packages: Collection[str] = (),
    say: Callable[[str], None] | None = None,
    *,
    memory: Memory,
) -> list[SmokeReport]:
    """Run suites in an artifact with the runner of its kind, one after the other; each report says on what it ran.

    A suite with a past pass is not run, and `say` gets a line about it. Logs go into `folder`, lines to `say` (default:
    the progress output). Raises what `smoke.run_suite` raises.
    """
    trial = _Trial(artifact, folder, ctx, device, packages, say or ctx.progress.note)
    return _results(trial, _claims(trial, suites), memory)


class _Trial(NamedTuple):
    artifact: Artifact
    folder: Path
    ctx: Context
    device: Device
    packages: Collection[str]
    say: Callable[[str], None]
    own: Mapping[str, OwnTest] = {}
    below: BuildReport | None = None


def _claims(trial: _Trial, suites: Sequence[str]) -> dict[str, Claim]:
    """Return the claim of each suite on this machine. Raises HostError where the runner does not answer."""
    on_gpu = smoke.runs_on_gpu(trial.device)
    runtime, version = RUNNERS[trial.artifact.kind]().runtime(trial.ctx.environment)
    device = gpu.device(trial.ctx.environment, on_gpu=on_gpu)
    driver = gpu.driver_version() if on_gpu else ""
    return {
        suite: Claim(
            image=content(trial.artifact.digest),
            suite=suite,
            version=trial.own[suite].version if suite in trial.own else smoke.version_of(suite, trial.packages),
            device=device,
            driver=driver,
            runtime=runtime,
            runtime_version=version,
        )
        for suite in suites
    }


def _results(trial: _Trial, claims: Mapping[str, Claim], memory: Memory) -> list[SmokeReport]:
    """Return the result of each suite, a past one or a new one."""
    passes = {name: known for name, claim in claims.items() if (known := memory.recall(claim))}
    results = {name: msgspec.structs.replace(known.report, remembered=known.when) for name, known in passes.items()}
    for claim, known in ((known.claim, known) for known in passes.values()):
        driver = f", driver {claim.driver}" if claim.driver else ""
        runtime = f"{claim.runtime} {claim.runtime_version}".strip()
        where = f"{known.when[:10]}, {claim.device}{driver}, {runtime}"
        trial.say(f"{claim.suite} passed on this kind of node before ({where}): not run again; --rerun runs it")
    if missing := [name for name in claims if name not in results]:
        runner = RUNNERS[trial.artifact.kind]()
        opened = functools.partial(runner.opened, cache=trial.ctx.cache, progress=trial.ctx.progress)
        with contextlib.ExitStack() as stack:
            if trial.below is not None and trial.below.artifact.kind == "layout":
                stack.enter_context(opened(trial.below.artifact))  # so that what lies above it shares its files
            inside = stack.enter_context(opened(trial.artifact))
            for name in missing:
                ran = _run(trial, name, inside)
                claim = claims[name]
                results[name] = msgspec.structs.replace(
                    ran,
                    driver=gpu.driver_version(),
                    runtime=claim.runtime,
                    runtime_version=claim.runtime_version,
                    **submit.here(),  # in a job of Slurm its id, node and partition
                )
                if trouble := memory.settle(claim, results[name]):
                    trial.say(trouble)
    return [results[name] for name in claims]


def _run(trial: _Trial, name: str, inside: Inside) -> SmokeReport:
    if name in trial.own:
        on_gpu = smoke.runs_on_gpu(trial.device)
        return run_own(trial.own[name], inside, trial.folder, say=trial.say, on_gpu=on_gpu)
    return smoke.run_suite(name, inside, trial.folder, say=trial.say, device=trial.device, packages=trial.packages)


def raise_if_failed(report: BuildReport, folder: Path) -> None:
    """Raise SmokeError for the first suite of the report that failed."""
    artifact = report.artifact
    words = _LOOKS[artifact.kind].format(image=report.image, engine=artifact.engine, reference=artifact.reference)
    for failed in (result for result in report.suites if result.status == "failed"):
        raise SmokeError(
            f"smoke test {failed.suite} failed in {report.name}:{report.tag}: {failed.reason}",
            next_step=f"{words} pip list    looks inside; {folder / 'report.json'} has the details",
        )
