"""The command line with streams that are closed or full: as exit code and result have it, without a traceback."""

import functools
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@functools.cache
def ended(command, redirections=""):
    """(exit code, what can be read of stdout and stderr) of a command with these redirections of the shell."""
    script = f'"$0" -E -s -m graphcrate {command} {redirections}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", ">&- 2>/dev/full"])
def test_closed_streams_change_neither_exit_code_nor_result(redirections):
    code, out, err = ended("list --json", redirections)
    assert (code, err) == (0, "")
    assert out == ("" if ">&-" in redirections.replace("2>&-", "") else ended("list --json")[1])


@pytest.mark.parametrize("redirections", [">&-", "2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_an_error_keeps_its_exit_code_whatever_stream_is_gone(redirections):
    code, _, err = ended("run nothing:1 -- true", redirections)
    assert (code, "Traceback" in err) == (2, False)


def test_a_result_that_there_is_no_room_for_is_an_error():
    code, _, err = ended("list", ">/dev/full")
    assert (code, "No space left on device" in err, "Traceback" in err) == (8, True, False)


@pytest.mark.parametrize("command", ["list", "check --help", "explain pyg"])
def test_python_without_docstrings_does_the_same(command):
    """-OO, or PYTHONOPTIMIZE=2 of an environment: reasons and sources of checks are docstrings."""
    script = ["sh", "-c", f'"$0" -OO -E -s -m graphcrate {command}', sys.executable]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
