"""The tests that take the most of the processor: `pytest -p tests.processor`, or make test-engines, ends with a table.

What a test started counts once it was waited for; what daemons do for it does not.
"""

import os

import pytest

ROWS, LEAST = 50, 5.0  #: of the table; seconds
SEEN = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note what this phase took; workers hand a report's attributes to the one that prints."""
    report = yield
    now = _processor()
    report.processor, item.config.stash[SEEN] = now - item.config.stash[SEEN], now
    return report


def _processor():
    """Seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_configure(config):
    config.stash[SEEN] = _processor()


def pytest_terminal_summary(terminalreporter):
    """Print the table, as pytest does for durations."""
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "processor")]
    most = sorted(reports, key=lambda each: -each.processor)[:ROWS]
    terminalreporter.write_sep("=", f"most processor seconds, of {sum(each.processor for each in reports):.0f}")
    for each in most:
        if each.processor >= LEAST:
            terminalreporter.write_line(f"{each.processor:.2f}s {each.when:<8} {each.nodeid}")
