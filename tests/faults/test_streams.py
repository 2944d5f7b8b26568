"""Programs as started by a shell, a service or a batch system: closed streams, limits, options of Python."""

import dataclasses

from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import DiskFullError
from tests.faults import project
from tests.faults.rows import Ended, row, rows

SAME = "exit code 0; the same digest"


def begun(place, script):
    """The same place, where a shell runs this before each command."""
    return dataclasses.replace(place, prefix=("sh", "-c", script, "sh"))


@rows(
    "Host",
    "`image`, from an empty cache",
    {
        "in": ("stdin is closed", "<&-"),
        "out": ("stdout is closed", ">&-"),
        "err": ("stderr is closed", "2>&-"),
        "all": ("all three are closed, as some services do it", "<&- >&- 2>&-"),
        "full": ("no room behind stderr", "2>/dev/full"),
    },
)
def test_streams(origin, cold, case):
    done = begun(cold, f'exec "$@" {case}').run(*project.IMAGE)
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert ("torch:" in done.out) == (">&-" not in case.replace("2>&-", ""))
    return Ended(SAME, project.goes_on(cold, origin.digest))


@row("Host", "a limit of file sizes", "`image`, from an empty cache, after `ulimit -f`")
def test_file_sizes(origin, cold):
    said = project.failed(cold, begun(cold, 'ulimit -f 2000; exec "$@"').run(*project.IMAGE), DiskFullError.exit_code)
    assert "ulimit -f unlimited" in said
    return Ended("exit code 8, which names the limit and FAT32's", project.goes_on(cold, origin.digest))


@row("Host", "Python without docstrings", "`image` with `-OO`, from an empty cache")
def test_without_docstrings(origin, cold):
    program = (cold.program[0], "-OO", *cold.program[1:])
    done = dataclasses.replace(cold, program=program).run(*project.IMAGE, "--json")
    assert project.report(cold, done)["digest"] == origin.digest
    remove_tree(cold.folder / "dist")
    return Ended(SAME, project.goes_on(cold, origin.digest))
