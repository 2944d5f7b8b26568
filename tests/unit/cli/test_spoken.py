"""Chinese where the locale asks for it: the help, and a line below an error on a terminal."""

import sys

import pytest
from typer.main import get_command

from graphcrate.cli import exit as ending
from graphcrate.cli import spoken
from graphcrate.cli.exit import GROUPS
from graphcrate.cli.main import app
from graphcrate.host import settings
from graphcrate.model import errors
from tests import ROOT

CHINESE = {"LANG": "zh_CN.UTF-8"}


@pytest.mark.parametrize(
    ("environment", "is_chinese"),
    [
        ({}, False),
        (CHINESE, True),
        ({"LANG": "zh"}, True),
        ({"LANG": "zh.UTF-8"}, True),
        ({"LANG": "zhuang"}, False),
        ({"LC_ALL": "C", **CHINESE}, False),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "de_DE"}, True),
    ],
)
def test_first_set_variable_of_the_locale_decides_the_language(environment, is_chinese):
    assert (spoken.asked_for(environment) is not None) is is_chinese


def test_every_command_group_and_exit_code_has_a_chinese_text():
    texts = spoken.chinese()
    assert set(texts.groups) == set(GROUPS)
    assert set(texts.commands) == {name for names in GROUPS.values() for name in names}
    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert {str(code) for code in codes | {0, 130}} == set(texts.codes)


def helps(command):
    """The help of a command's options and arguments, and of those below it, without those that are hidden."""
    own = {one.help for one in command.params if getattr(one, "help", None) and not getattr(one, "hidden", False)}
    return own.union(*(helps(below) for below in getattr(command, "commands", {}).values()))


def test_nearly_each_options_help_has_a_chinese_text_and_few_are_left_over():
    shells = {one.help for one in get_command(app).params if "completion" in one.name}
    english = helps(get_command(app)) - shells
    known = set(spoken.chinese().help)
    for others in (
        english - known,
        known - english,
    ):  # a twentieth may lag behind: [help] of graphcrate/cli/chinese.toml
        assert len(others) <= len(english) // 20, sorted(others)


def test_each_error_row_names_words_of_a_message():
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("graphcrate/**/*.py")]
    sources += [path.read_text(encoding="utf-8") for path in ROOT.glob("packages/*/src/**/*.py")]
    rows = spoken.chinese().error
    assert len(rows) >= 20
    assert [row.part for row in rows if not any(row.part in text for text in sources)] == []


def test_error_on_a_terminal_has_a_chinese_line_below_and_none_in_a_log(monkeypatch, capsys):
    monkeypatch.setattr(settings, "environment", lambda: CHINESE)
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=is_terminal: answer)
        with pytest.raises(SystemExit) as ended, ending.exiting():
            raise errors.DiskFullError("x needs 2.0 GB, and 1.0 GB are free under /", next_step="free some room")
        lines = capsys.readouterr().err.splitlines()
        assert (ended.value.code, lines[0]) == (8, "graphcrate: x needs 2.0 GB, and 1.0 GB are free under /")
        assert [line.startswith("中文:  磁盘空间不够") for line in lines[1:]] == [False, *[True] * is_terminal]


def test_help_in_chinese_keeps_commands_and_options(typed, monkeypatch):
    monkeypatch.setattr(settings, "environment", lambda: CHINESE)
    code, out, _ = typed("--help")
    assert (code, "构建:" in out, "  publish  发布通过了检查和测试的镜像。" in out) == (0, True, True)
    code, out, _ = typed("keys", "--help")
    assert (code, "格式与 cosign 相同。" in out, "--output" in out) == (0, True, True)
    assert "存放 cosign.key 和 cosign.pub 的目录。" in out
