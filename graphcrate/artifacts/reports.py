"""The report beside an image of ours, read as what anybody may have written."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from graphcrate.host.disk import documents
from graphcrate.model.command import IMAGE_AGAIN
from graphcrate.model.errors import RecipeError
from graphcrate.model.report import BuildReport, UpstreamResults

UPSTREAM = "upstream.json"  #: beside a report


def read_report(path: Path, say: Callable[[str], None] = lambda _: None) -> BuildReport | None:
    """Read a build's report; None where there is none, and for one that is damaged or odd, of which `say` is told.

    The layout is the one beside it, wherever its folder was moved to; a report of another's layout is odd.
    """
    try:
        report = documents.read(path, BuildReport, "the report of an image", IMAGE_AGAIN)
    except RecipeError as error:
        say(f"a report is left aside: {error.what}")
        return None
    if report is None or not report.layout:
        return report
    if report.artifact.kind != "layout" or Path(report.layout).parts[-2:] != (report.tag, "oci"):
        say(f"a report is left aside: {documents.shown(path)}: it is about {report.layout}, not the image beside it")
        return None
    layout = str(path.parent / "oci")
    artifact = msgspec.structs.replace(report.artifact, reference=layout)
    return msgspec.structs.replace(report, layout=layout, artifact=artifact)


def read_upstream(folder: Path, report: BuildReport) -> UpstreamResults | None:
    """Read what upstream's tests found of an image in its folder; None where it is of another image, or damaged."""
    try:
        results = documents.read(folder / UPSTREAM, UpstreamResults, "results of upstream's tests", IMAGE_AGAIN)
    except RecipeError:
        return None
    return results if results and results.digest == report.digest else None
