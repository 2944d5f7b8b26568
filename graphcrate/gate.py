"""Which images may be published: only what was audited, keeps its contracts and passed its suites, by digest. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from graphcrate.model.audit import Audit
from graphcrate.model.publish import Evidence, Refusal
from graphcrate.model.report import BuildReport, Pass, SmokeReport

_CPU = "cpu"


def judge(
    report: BuildReport,
    audit: Audit | None,
    passes: Iterable[Pass],
    suites: Sequence[str],
    *,
    allow_cpu_only: bool = False,
) -> Evidence:
    """Judge an image by its reports. `suites`: those that its recipe wants; `passes`: found beside it, of any image.

    A target with a GPU wants a pass on a GPU, of any of the suites: docs/publish.md says why one is enough.
    """
    name = f"{report.name}:{report.tag}"
    passed = tuple(_passed(report, passes))
    refusals = [*_audited(report, audit, name), *_kept(report, name), *_tested(report, passed, suites, name)]
    on_gpu = any(_is_gpu(one) for one in passed)
    without = report.torch_cuda != _CPU and not on_gpu
    if without and not allow_cpu_only:
        refusals.append(
            Refusal(
                what=f"no suite of {name} has passed on a GPU, which it is built for",
                fix=f"./build.py test {name} --runner slurm --partition … --gres gpu:1, or on a GPU node; "
                "or say --allow-cpu-only, which is recorded beside the image",
            )
        )
    return Evidence(suites=passed, refusals=tuple(refusals), cpu_only=without and allow_cpu_only)


def _passed(report: BuildReport, passes: Iterable[Pass]) -> Iterator[SmokeReport]:
    """Passes of this digest: of the build, and those that are remembered, without those that say the same."""
    own = [one for one in (*report.suites, *([report.smoke] if report.smoke else ())) if one.status == "passed"]
    remembered = [one.report for one in passes if one.claim.image == report.artifact.digest]
    seen = set[tuple[str, ...]]()
    for one in (*remembered, *own):
        key = (one.suite, one.device, one.driver, one.runtime, one.runtime_version)
        if key not in seen:
            seen.add(key)
            yield one


def _audited(report: BuildReport, audit: Audit | None, name: str) -> Iterator[Refusal]:
    if audit is None or audit.digest != report.digest:
        yield Refusal(
            what=f"there is no audit of this very image ({report.digest})", fix="make image … again: every build audits"
        )
        return
    for finding in audit.findings:
        if finding.severity == "fail":
            place = " ".join(filter(None, (finding.package, finding.file)))
            yield Refusal(what=f"audit: {place}: {finding.what}", fix=finding.fix or f"./build.py audit {name}")


def _kept(report: BuildReport, name: str) -> Iterator[Refusal]:
    if not report.contracts:
        yield Refusal(what="no contract was checked", fix="make image … again: every build checks them")
    for finding in report.contracts:
        if finding.status == "fail":
            runtimes = ", ".join(finding.runtimes)
            yield Refusal(what=f"contract {finding.check} ({runtimes}): {finding.seen}", fix=finding.fix)


def _tested(report: BuildReport, passed: Sequence[SmokeReport], suites: Sequence[str], name: str) -> Iterator[Refusal]:
    proven = {one.suite for one in passed}
    failed = {one.suite: one.reason for one in report.suites if one.status == "failed"}
    for suite in suites:
        if suite not in proven:
            why = f"failed: {failed[suite]}" if suite in failed else "has not passed in this very image"
            yield Refusal(what=f"the suite {suite} {why}", fix=f"./build.py test {name} --suite {suite}")


def _is_gpu(report: SmokeReport) -> bool:
    return not report.device.startswith(_CPU)
