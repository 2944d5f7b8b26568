"""Run an image's suites inside it, except those that it passed on the same kind of node before."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.engines import slurm_step, table
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.sandbox import gpu
from graphcrate.host.sandbox.emulation import is_native
from graphcrate.host.sandbox.sandbox import Inside
from graphcrate.inputs.emulators import prepare_emulator
from graphcrate.model.errors import SmokeError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.platform import Platform, platform_named
from graphcrate.model.report import Artifact, BuildReport, OwnTests, Pass, SmokeReport, SuiteClaim
from graphcrate.model.trial import TrialOrder, TrialReport
from graphcrate.model.words import printable
from graphcrate.smoke import emulated, memory, own
from graphcrate.smoke import suites as smoke
from graphcrate.smoke.suites import SuiteProgram

REPORT = "trial.json"  #: in an order's folder


def prove(report: BuildReport, order: TrialOrder, ctx: Context, *, below: BuildReport | None = None) -> BuildReport:
    """Return the report with the results of an order: past passes on this kind of node, and new runs of the others.

    It is the same report where all results are past ones and stand in it. `below`: the report of the image that this
    one has all layers of; its results stand before the others, each with the digest that it ran in.
    """
    tests = _tests(order, ctx)
    missing = [test for test in tests if test.past is None]
    proven = below.suites if below else ()
    if not missing and _plain(report.suites) == _plain(
        [*proven, *(result for test in tests for result in test.recalled())]
    ):
        return report
    with contextlib.ExitStack() as stack:
        if missing and below is not None and below.artifact.kind == "layout":
            stack.enter_context(_opened(below.artifact, ctx))  # so that images above it share its files
        results = [*proven, *_results(tests, order, ctx)]
    summary = next((result for result in results if result.status == "failed"), results[0])
    return msgspec.structs.replace(report, smoke=summary, suites=tuple(results))


def has_passed(order: TrialOrder, ctx: Context) -> bool:
    """Return whether the image passed all suites of an order on this kind of node before."""
    suites_alone = msgspec.structs.replace(order, own=OwnTests())
    return all(test.past is not None for test in _tests(suites_alone, ctx))


def _plain(results: Sequence[SmokeReport]) -> list[SmokeReport]:
    return [msgspec.structs.replace(result, remembered="") for result in results]


def run_suites(order: TrialOrder, ctx: Context, say: Callable[[str], None] | None = None) -> TrialReport:
    """Run suites in an artifact with the runner of its kind, one after the other; write the report into their folder.

    A suite with a past pass is not run, and `say` (default: the progress output) gets a line about it, as it gets those
    of the suites. Raises what `smoke.suites.run` raises.
    """
    report = report_of(order, _results(_tests(order, ctx), order, ctx, say))
    write_file(Path(order.folder) / REPORT, encode(report))
    return report


def report_of(order: TrialOrder, results: Sequence[SmokeReport]) -> TrialReport:
    """Make the report of an order from the results of its suites."""
    return TrialReport(
        reference=order.reference,
        runner=order.runner,
        artifact=order.artifact,
        suites=tuple(results),
        layout=order.layout,
        proof=proof_of(order),
    )


def proof_of(order: TrialOrder) -> str:
    """Name what an order proves of an image: the kind of device it asks for, and the versions of its suites."""
    suites = [smoke.version_of(suite, order.packages) for suite in sorted(order.suites)]
    return " ".join([order.device, *suites, *(program.version for program in own.programs(order.own))])


class _Test(NamedTuple):
    """A suite or a user's own test on this kind of node."""

    program: SuiteProgram
    claim: SuiteClaim
    past: Pass | None

    def recalled(self) -> list[SmokeReport]:
        """Give the result of its past pass, with what it ran in; nothing where there is none."""
        if self.past is None:
            return []
        return [msgspec.structs.replace(self.past.report, remembered=self.past.when, image=self.claim.image)]


def _tests(order: TrialOrder, ctx: Context) -> list[_Test]:
    """Return what an order runs, each with its past pass on this kind of node. Raises HostError without a runner."""
    platform = _emulated(order)
    on_gpu = _on_gpu(order)
    runtime = table.runner(order.artifact.engine).runtime(ctx.environment)
    device = gpu.device(ctx.environment, on_gpu=on_gpu)
    here = {
        "image": memory.content(order.artifact.digest),
        "device": emulated.marked(device, platform) if platform else device,
        "driver": gpu.driver_version() if on_gpu else "",
        "runtime": runtime.name,
        "runtime_version": runtime.version,
    }
    tests = []
    suites = [smoke.suite(name, on_gpu=on_gpu, packages=order.packages, nodes=order.nodes) for name in order.suites]
    if platform:
        suites = [emulated.program(platform, order.packages)]
    elif order.starts and (first := next((program.name for program in suites if not program.measures), "")):
        suites.append(smoke.started(first, on_gpu=on_gpu, packages=order.packages))
    for program in (*suites, *own.programs(order.own)):
        apart = smoke.APART if order.starts and not program.is_whole else ""
        claim = SuiteClaim(suite=program.name, version=f"{program.version}{apart}", **here)
        again = order.rerun or program.measures
        tests.append(_Test(program, claim, None if again else memory.recall(Path(order.passes), claim)))
    return tests


def _emulated(order: TrialOrder) -> Platform | None:
    """The platform of an image that an emulator runs here: our own sandbox has one. Raises UsageError for a GPU of it.

    Other runners start what they can, and say what they cannot.
    """
    platform = platform_named(order.platform)
    if order.artifact.kind != "layout" or is_native(platform):
        return None
    if order.device == "cuda":
        raise UsageError(
            f"the image is for {platform.title}, which an emulator runs here, and that has no GPU",
            next_step="--device auto here, or the same command on a machine of that kind",
        )
    return platform


def _on_gpu(order: TrialOrder) -> bool:
    return _emulated(order) is None and smoke.runs_on_gpu(order.device)


def _opened(artifact: Artifact, ctx: Context, platform: Platform | None = None) -> AbstractContextManager[Inside]:
    if platform:
        prepare_emulator(platform, ctx)
    return table.runner(artifact.engine).opened(artifact, cache=ctx.cache, progress=ctx.progress)


def _results(
    tests: Sequence[_Test], order: TrialOrder, ctx: Context, say: Callable[[str], None] | None = None
) -> list[SmokeReport]:
    """Return the result of each test, a past one or a new one."""
    say = say or ctx.progress.note
    results, inside, platform = [], None, _emulated(order)
    with contextlib.ExitStack() as stack:
        for test in tests:
            program, claim, past = test
            if past is not None:
                ran_on = past.claim
                driver = f"driver {ran_on.driver}" if ran_on.driver else ""
                runtime = f"{ran_on.runtime} {ran_on.runtime_version}".strip()
                where = ", ".join(filter(None, (past.when[:10], printable(ran_on.device), driver, printable(runtime))))
                of = "this kind of node before" if ran_on == claim else "a machine that a key you trust vouches for"
                say(f"{claim.suite} passed on {of} ({where}): not run again; --rerun runs it")
                results += test.recalled()
                continue
            inside = inside or stack.enter_context(_opened(order.artifact, ctx, platform))
            with trace.span(f"suite {program.name}"):
                ran = smoke.run(
                    program, inside, Path(order.folder), say=say, on_gpu=_on_gpu(order), starts=order.starts
                )
            result = msgspec.structs.replace(
                ran,
                device=emulated.marked(ran.device, platform) if platform else _device(ran.device, claim.device),
                driver=gpu.driver_version(),
                runtime=claim.runtime,
                runtime_version=claim.runtime_version,
                image=claim.image,
                layout=order.layout,
                **slurm_step.here(),  # in a job of Slurm its id, node and partition
            )
            results.append(result)
            if not program.measures and (trouble := memory.store_result(Path(order.passes), claim, result)):
                say(trouble)
    return results


def _device(model: str, seen: str) -> str:
    """Name the device of a result by what the runner saw ("2 x Tesla V100"): the model that the suite says is one.

    On a CPU, and in a result that names no model, it is what the runner gave: those are no suite's words.
    """
    models = [words.partition(" x ")[2] for words in seen.split(", ")]
    return model if model in ("cpu", "gpu", *models) else seen


def raise_if_failed(
    reference: str,
    suites: Sequence[SmokeReport],
    folder: str,
    again: Callable[[str], str] = "ask for {} too".format,
    with_apt: Callable[[str], str] = "add {} of Debian".format,
) -> None:
    """Raise SmokeError for the first suite that failed. `folder`: of its log.

    `again`, `with_apt`: what to do where one more package, or one of Debian's, is known to mend it.
    """
    for suite in (suite for suite in suites if suite.status == "failed"):
        log = f"less {folder}/smoke-{suite.suite}.log    has every line"
        steps = [
            say(suite.metrics[key]) for key, say in ((own.ASK, again), (own.APT, with_apt)) if key in suite.metrics
        ]
        raise SmokeError(
            f"smoke test {suite.suite} failed in {reference}: {suite.reason}", next_step="; or ".join([*steps, log])
        )
