"""An image is proven: its suites run inside it, whatever built it, and their results become part of its report."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate import smoke
from graphcrate.errors import SmokeError
from graphcrate.host.workplace import Workplace
from graphcrate.model.report import BuildReport, SmokeReport


def prove(
    report: BuildReport, suites: Sequence[str], folder: Path, place: Workplace, device: Literal["auto", "cpu", "cuda"]
) -> BuildReport:
    """The report with the results of these suites, run in the image one after the other. `folder`: the image's."""
    packages = [package.name for package in report.packages]
    say = place.progress.note
    with _opened(place, folder, report) as inside:
        results = [smoke.run_suite(name, inside, folder, say=say, device=device, packages=packages) for name in suites]
    return msgspec.structs.replace(report, smoke=_summary(results), suites=tuple(results))


def _summary(results: Sequence[SmokeReport]) -> SmokeReport:
    """The first that failed, else the first."""
    return next((result for result in results if result.status == "failed"), results[0])


def raise_if_failed(report: BuildReport, folder: Path) -> None:
    """Raises SmokeError for the first suite of the report that failed."""
    for failed in (result for result in report.suites if result.status == "failed"):
        raise SmokeError(
            f"smoke test {failed.suite} failed in {report.name}:{report.tag}: {failed.reason}",
            next_step=f"{_look_inside(report)}    looks inside; {folder / 'report.json'} has the details",
        )


def _look_inside(report: BuildReport) -> str:
    artifact = report.artifact
    if artifact.kind == "layout":
        return f"./build.py run {report.name}:{report.tag} -- pip list"
    if artifact.kind == "sif":
        return f"{artifact.engine} exec {artifact.reference} pip list"
    return f"{artifact.engine} run --rm {artifact.reference} pip list"


def _opened(place: Workplace, folder: Path, report: BuildReport) -> AbstractContextManager[smoke.Inside]:
    """The image, to run commands in."""
    if report.artifact.kind != "layout":
        from graphcrate import engines

        return engines.opened(report.artifact, place)
    from graphcrate.oci.layout import read_layout
    from graphcrate.runners import embedded

    return embedded.opened(read_layout(folder / "oci"), cache=place.cache, progress=place.progress)
