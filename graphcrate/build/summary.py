"""What a build says of its progress as a whole, and its last lines: tests with figures, image, warnings, commands."""

from collections.abc import Iterator, Sequence

from graphcrate.model.report import BuildReport, SmokeReport
from graphcrate.model.words import listed, size


def step(number: int, what: str) -> str:
    """Word the beginning of a step of a build."""
    return f"step {number} of 4: {what}"


def lines(report: BuildReport, seconds: float) -> Iterator[str]:
    """Four lines at most. `seconds`: what this command took, whatever the image took once."""
    if report.suites:
        yield f"tested  {_tested(report.suites)}"
    yield f"image   {report.image}, {size(report.bytes)}, after {seconds:.0f} s"
    if report.suites and report.cuda != "cpu" and not any(suite.driver for suite in report.suites):
        yield f"mind    no suite of it has run on a GPU yet: ./build.py test {report.image} on a node with one"
    if report.layout:
        yield f"next    ./build.py run {report.image} -- python …; ./build.py convert {report.image} --to sif"


def _tested(suites: Sequence[SmokeReport]) -> str:
    passed = [_with_figures(suite) for suite in suites if suite.status == "passed"]
    devices = dict.fromkeys(suite.device for suite in suites)
    others = [f"{suite.suite} {suite.status}" for suite in suites if suite.status != "passed"]
    return "; ".join([f"{listed(passed)} passed on {listed(devices)}" if passed else "", *others]).strip("; ")


def _with_figures(suite: SmokeReport) -> str:
    accuracy, epochs = suite.metrics.get("test_accuracy"), suite.metrics.get("epochs")
    figures = [f"accuracy {accuracy:.2f}"] if isinstance(accuracy, float) else []
    figures += [f"{epochs} epochs"] if isinstance(epochs, int) else []
    return f"{suite.suite} ({', '.join(figures)})" if figures else suite.suite
