"""Refusals of the system, with a cause and a next step whose command finds what it names."""

import errno
import os
import shlex

import pytest

from graphcrate.host.disk.os_errors import explained, limit_in

#: whatever a command of the system may end with on a path, that says what is wrong
NUMBERS = {
    *(errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EROFS),
    *(errno.EIO, errno.ESTALE, errno.EXDEV, errno.ENOLCK, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
}


def refused(number, path=None):
    return explained(OSError(number, os.strerror(number), *([str(path)] if path else [])))


@pytest.mark.parametrize("number", sorted(NUMBERS), ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("path", ["there", "there/is/not", "file/below", "odd name/x", "a\x1b[2J/x", "n" * 300])
def test_os_error_has_a_cause_and_a_command_on_an_existing_path(tmp_path, number, path):
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "odd name").mkdir()
    error = refused(number, tmp_path / path)
    assert error.cause
    command = shlex.split(error.next_step.partition("    ")[0])
    named = [word.removesuffix(".old") for word in command if str(tmp_path) in word]
    assert [word for word in named if not os.path.lexists(word)] == []
    assert not named or named[0].startswith(str(tmp_path / path.partition("/")[0])[: len(named[0])])


def test_erofs_next_step_names_an_existing_folder(tmp_path):
    """findmnt -T says nothing of a path that is not there, as of a file that was to be made."""
    assert f"findmnt -T {tmp_path} " in refused(errno.EROFS, tmp_path / "new" / "file").next_step
    assert refused(errno.EROFS).next_step.startswith("findmnt ")


def test_emfile_next_step_raises_the_limit_to_its_hard_limit():
    """`ulimit -n 1024` lowers a limit of 4096, for good."""
    error = refused(errno.EMFILE)
    assert error.next_step.startswith('ulimit -n "$(ulimit -Hn)"')
    assert limit_in(["OSError: [Errno 24] Too many open files"]) == (error.cause, error.next_step)
    assert limit_in(["nothing of the kind"]) == ("", "")


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.EEXIST])
def test_os_error_without_a_path_is_unexplained(number):
    assert refused(number) is None
