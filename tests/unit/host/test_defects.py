"""The last line of defence: any error ends in a sentence, with an exit code, and no traceback on the terminal."""

import io
import re
import tempfile

import pytest

from graphcrate import __version__
from graphcrate.cli import start
from graphcrate.host import defects, streams
from graphcrate.model import errors


@pytest.fixture
def fails(context, monkeypatch, tmp_path, typed):
    """Types a command within which this error is raised, by no class of ours: (exit code, stderr, written files)."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(defects.TRACEBACK, raising=False)

    def run(error, *command):
        def broken(*_):
            if callable(error):
                return error()
            raise error

        monkeypatch.setattr("graphcrate.compat.variants.catalog.all_recipes", broken)
        code, out, err = typed(*(command or ("list",)))
        assert out == ""
        return code, err, [path.read_text() for path in tmp_path.glob("graphcrate-defect-*")]

    return run


def endless():
    return endless()


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("by nothing"), AttributeError("'NoneType'"), RuntimeError("x"), OSError("odd"), endless]
)
def test_defect_prints_three_lines_ends_with_19_and_writes_a_report(fails, error):
    code, err, (written,) = fails(error)
    assert code == errors.DefectError.exit_code == defects.DEFECT
    assert err.startswith("graphcrate: a defect of graphcrate: ")
    assert "Traceback" not in err
    assert len(err.splitlines()) == 3
    assert re.search(r"next:  less \S+graphcrate-defect-\S+\.txt ", err)
    for said in ("Traceback (most recent call last)", __version__, "typed: build.py list", "Python 3"):
        assert said in written
    assert re.search(r"commit ([0-9a-f]{40}|unknown)", written)


def test_defect_traceback_is_shown_on_request_or_without_a_report_file(fails, monkeypatch, tmp_path):
    monkeypatch.setenv(defects.TRACEBACK, "1")
    _, err, written = fails(ZeroDivisionError("by nothing"))
    assert ("Traceback" in err, len(written)) == (True, 1)
    monkeypatch.delenv(defects.TRACEBACK)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    code, err, written = fails(ZeroDivisionError("by nothing"))
    assert (code, "Traceback" in err, len(written)) == (19, True, 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "too little memory"),
        (RuntimeError("can't start new thread"), "no further thread"),
        (ModuleNotFoundError("No module named 'msgspec'", name="msgspec"), "msgspec, which this program needs"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "Resource temporarily unavailable"),
    ],
)
def test_missing_machine_resource_is_a_host_error(fails, error, said):
    code, err, written = fails(error)
    assert (code, said in err, written) == (errors.HostError.exit_code, True, []), err
    assert "cause: " in err
    assert "next: " in err


def test_import_error_of_our_module_is_a_defect(fails):
    assert fails(ImportError("cannot import name 'x'", name="graphcrate.host"))[0] == 19


def test_interrupt_during_imports_ends_with_the_interrupt_code(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("graphcrate.cli.main.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "hidden", "kept"),
    [
        ("git+https://me:hunter2@host.example/x", "hunter2", "host.example/x"),
        ("https://host.example/a?X-Signature=hunter2&b=1#c", "hunter2", "host.example/a"),
        ("WANDB_API_KEY=hunter2 python", "hunter2", "python"),
        ("--password hunter2 --to x", "hunter2", "--to x"),
        ("{'Authorization': 'Basic hunter2'}", "hunter2", "Authorization"),
        ("HF_TOKEN: hunter2", "hunter2", "HF_TOKEN"),
        ("image pyg --cuda 11.8", "hunter2", "image pyg --cuda 11.8"),
    ],
)
def test_redacted_report_hides_secrets(text, hidden, kept):
    told = defects.redacted(text)
    assert (hidden in told, kept in told) == (False, True), told


def test_defect_report_hides_secrets_of_the_command(fails):
    _, err, (written,) = fails(ValueError("https://me:hunter2@host.example/x"), "list", "--json")
    assert "hunter2" not in err + written


def test_stderr_on_a_full_disk_loses_lines_and_a_closed_pipe_is_an_error():
    text = io.TextIOWrapper(io.BufferedWriter(streams._Forgiving("/dev/full", "w")), line_buffering=True)
    text.write("lost\n" * 10_000)
    text.close()


def test_commit_is_read_from_clones_worktrees_and_packed_refs(tmp_path):
    def commit_of(files, root="."):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return defects._commit(tmp_path / root)

    one, two = "1" * 40, "2" * 40
    assert commit_of({}) == ""
    assert commit_of({".git/HEAD": f"{one}\n"}) == one
    assert commit_of({".git/HEAD": "ref: refs/heads/a\n", ".git/packed-refs": f"# x\n{two} refs/heads/a\n"}) == two
    assert commit_of({".git/refs/heads/a": f"{one}\n"}) == one
    worktree = {"w/.git": f"gitdir: {tmp_path}/.git/worktrees/w\n", ".git/worktrees/w/HEAD": "ref: refs/heads/b\n"}
    worktree |= {".git/worktrees/w/commondir": "../..\n", ".git/refs/heads/b": f"{two}\n"}
    assert commit_of(worktree, "w") == two
