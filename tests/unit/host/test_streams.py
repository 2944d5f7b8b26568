"""Output to a terminal: no text of a stranger's controls it, and our own bars and colours stay."""

import ast
import contextlib
import io
import json
import os
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.engines.output import Output
from graphcrate.host import streams
from graphcrate.host.progress import Stderr
from graphcrate.model.errors import BuildError, UsageError
from graphcrate.model.words import visible, with_mark
from graphcrate.render import jobs
from graphcrate.render.job import Job
from tests import nodes_of
from tests.made import refused
from tests.unit.house.test_imports import SOURCES, tree_of

#: what a stranger may write → what is seen of it
HOSTILE = {
    "\x1b]0;title\x07": r"\u001b]0;title\u0007",
    "\x1b]52;c;ZWNobw==\x07": r"\u001b]52;c;ZWNobw==\u0007",
    "\x1b[2J\x1b[H": r"\u001b[2J\u001b[H",
    "\x9b31m": r"\u009b31m",
    "\x90q\x9c": r"\u0090q\u009c",
    "a\rb": r"a\u000db",
    "a\bb": r"a\u0008b",
    "\0\x01\x7f": r"\u0000\u0001\u007f",
    "\x0b\x0c\x0e\x0f": r"\u000b\u000c\u000e\u000f",
    "\u202egnp.exe": r"\u202egnp.exe",
    "\u2066x\u2069": r"\u2066x\u2069",
    "\u200e\u200f\u061c": r"\u200e\u200f\u061c",
    "\u2028next:  x": r"\u2028next:  x",
    "\u2029": r"\u2029",
    "a\u200bb\ufeff": r"a\u200bb\ufeff",
    "\x85": r"\u0085",
    "\U000e0041": r"\udb40\udc41",
    "a\xadb": r"a\u00adb",
}
HONEST = (
    "plain",
    "two\nlines",
    "a\ttab",
    "Jürgen",
    "中文",
    "╰─▶ …",
    "👩\u200d💻",
    "\N{NO-BREAK SPACE}",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_control_and_hidden_characters_are_made_visible(text):
    assert visible(text) == HOSTILE[text]
    assert json.loads(f'"{visible(text)}"') == text, "JSON keeps its value"


@pytest.mark.parametrize("text", HONEST)
def test_honest_text_stays(text):
    assert visible(text) == text


@given(st.text())
def test_visible_text_stays_as_it_is(text):
    assert visible(visible(text)) == visible(text)
    assert "\x1b" not in visible(text)


def prepared(monkeypatch):
    """The standard streams after `prepare`: gives all that comes to them."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    streams.prepare()
    streams.prepare()
    return lambda: out.getvalue() + err.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_streams_show_what_a_stranger_wrote(monkeypatch, text):
    shown = prepared(monkeypatch)
    print("out", text)
    sys.stdout.writelines([f"{text}\n"])
    sys.stderr.write(f"err {text}\n")
    Stderr().note(f"note {text}")
    with Stderr().task(f"task {text}", 1, "files"):
        pass
    assert shown().count(HOSTILE[text]) == 5
    assert visible(shown()) == shown()


def test_console_keeps_its_own_escapes_and_shows_others(monkeypatch):
    from rich.text import Text

    out = io.StringIO()
    console = streams.console(file=out, force_terminal=True, color_system="standard")
    console.print(Text("red \x1b]0;x\x07", "red"))
    console.print("bare \x1b[2J", markup=False, highlight=False)
    assert "\x1b[31m" in out.getvalue()
    assert r"\u001b]0;x" in out.getvalue()
    assert r"\u001b[2J" in out.getvalue()
    assert "\x1b]" not in out.getvalue()


def test_bars_on_a_terminal_are_drawn_and_show_others_escapes(monkeypatch):
    from rich import progress

    monkeypatch.setenv("TERM", "xterm")  # a shell in an editor is a dumb one, whose cursor stays
    out = io.StringIO()
    console = streams.console(file=out, force_terminal=True, width=100)
    with progress.Progress(progress.TextColumn("{task.description}"), console=console) as bars:
        bars.add_task("wheel\x1b]0;x\x07.whl", total=1)
        print("a line \x1b]52;c;x\x07 of another")
    assert "\x1b[?25l" in out.getvalue(), "the cursor is hidden meanwhile"
    assert "\x1b]" not in out.getvalue()
    assert r"\u001b]0;x.whl" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bars_on_the_terminals_own_stream_move_its_cursor_and_colour_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    streams.prepare()
    progress = Stderr()
    with progress.task("copying \x1b]0;x\x07", 100) as task:
        task.advance(50)
        progress.note("a line meanwhile")
        print("of another \x1b[2J", file=sys.stderr)
    text = err.getvalue()
    assert "\r\x1b[2K" in text, "a frame is drawn over the one before"
    assert "u000d" not in text
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert r"\u001b]0;x" in text


def test_console_whose_reader_left_says_so_and_ends_nothing():
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123
        with pytest.raises(BrokenPipeError, match="Broken pipe"):
            streams.console(file=pipe).print("a table")


def test_consoles_are_made_in_one_place():
    making = {
        module
        for module in SOURCES
        for node in nodes_of(tree_of(module), ast.Call)
        if ast.unparse(node.func).rpartition(".")[2] in ("Console", "VisibleConsole")
    }
    assert making == {"graphcrate.host.streams"}
    raw = ("sys.__stdout__", "sys.__stderr__", "sys.stdout.buffer")
    writing = {
        module for module in SOURCES for node in nodes_of(tree_of(module), ast.Attribute) if ast.unparse(node) in raw
    }
    assert writing == {"graphcrate.host.streams"}


def test_messages_of_errors_cannot_pose_as_another_part():
    error = BuildError("what\nnext:  rm -rf ~\n    indented", cause="why\ncause: other", next_step="type\nthis")
    assert (
        str(error)
        == "what\n    | next:  rm -rf ~\n    indented\ncause: why\n    | cause: other\nnext:  type\n    | this"
    )


def test_lines_of_programs_have_a_mark():
    assert with_mark(["graphcrate: built", "next:  x\x1b[A", "\u202e"]) == (
        "\n    | graphcrate: built\n    | next:  x\\u001b[A\n    | \\u202e"
    )


def test_log_of_a_build_shows_escapes():
    log = io.StringIO()
    output = Output(log, lambda _: None, jobs.re.compile("x"), prefix="docker")
    output.line("\x1b[31mred\x1b[0m \x1b]0;x\x07")
    assert log.getvalue() == "red \\u001b]0;x\\u0007\n"
    assert "    | " in str(output.failure("docker", "build.log"))


def test_json_of_hostile_names_stays_json(monkeypatch):
    from graphcrate.cli import options

    shown = prepared(monkeypatch)

    options.write(list(HOSTILE), "", as_json=True)
    assert msgspec.json.decode(shown()) == list(HOSTILE)


def test_commands_end_with_visible_words(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, text in enumerate(("\x1b]0;x\x07", "\u202ex", "\x9b2J")):
        recipe = tmp_path / f"{number}.toml"
        recipe.write_text(f'extends = "torch"\npip = ["./{json.dumps(text)[1:-1]}"]\n')
        code, out, err = typed("image", recipe, "--plan")
        assert code == 2
        assert visible(out + err) == out + err


@pytest.mark.parametrize("command", ["python x.py \u202e# lmth", "python \x1b[8mx", "python x.py\u200b"])
def test_script_with_a_character_that_is_not_seen_is_refused(command):
    for runtime in jobs.JOBS:
        job = Job(runtime=runtime, image="registry.example/a:b", name="a", command=command)
        with refused(UsageError, "a job has a character that is not seen"):
            jobs.text(job)
