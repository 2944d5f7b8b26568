"""The command line of upkeep: what it shares with graphcrate's, and what each of them refuses."""

import pytest

from graphcrate.cli.main import app as product
from upkeep import __main__ as program
from upkeep.cli import app


@pytest.fixture
def call(monkeypatch, capsys):
    """Type a command of `python -m upkeep`: (exit code, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["upkeep", *words])
        with pytest.raises(SystemExit) as ended:
            program.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_help_names_all_commands(call):
    code, out, _ = call("--help")
    listed = out.partition("Commands:")[2].split("\n")
    assert (code, [line.split()[0] for line in listed if line]) == (
        0,
        ["update", "catalog", "gpus", "witnesses", "lock"],
    ), out


def test_lock_without_check_is_graphcrates(call):
    code, _, err = call("lock", "pyg")
    assert (code, "next:  ./build.py lock pyg --check, or ./build.py lock pyg" in err) == (2, True), err


def test_update_with_a_size_that_is_none_is_refused_before_anything_is_asked(call):
    code, _, err = call("update", "--prove", "--disk", "much")
    assert (code, "'much' is not a number of bytes" in err) == (2, True), err


def test_product_has_no_command_of_upkeeps_but_its_own_lock():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names & {command.name or command.callback.__name__ for command in product.registered_commands} == {"lock"}
