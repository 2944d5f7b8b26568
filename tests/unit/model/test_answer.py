"""Results of a command, as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.model.answer import Answer, AnswerLine, Section, folded

ENTRIES = (
    AnswerLine("fail", "glibc", ("fix: another base", "why: it is too old"), "bold red"),
    AnswerLine("not known", "shell"),
)


def text(answer, width=0):
    return [line for line, _ in answer.lines(width)]


def test_answer_lines_are_in_one_column_with_details_below():
    answer = Answer(
        (Section(ENTRIES), Section(()), Section((AnswerLine("torch", "7.0"),), "GPU code")), ("asked",), ("2",)
    )
    expected = (
        "asked\n\nfail       glibc\n           fix: another base\n           why: it is too old\nnot known  shell"
    )
    assert "\n".join(text(answer)) == f"{expected}\n\nGPU code\ntorch  7.0\n\n2"
    assert ("fail       glibc", "bold red") in answer.lines()
    assert text(Answer((Section(()),), summary=("all is well",))) == ["all is well"]


def test_answer_lines_wrap_in_their_column():
    answer = Answer((Section((AnswerLine("fail", "a b c d e f g h i j k l m n o p q r", ("why: " + "word " * 6,)),)),))
    first, *rest = text(answer, 36)
    assert first == "fail  a b c d e f g h i j k l m n o"
    assert rest == ["      p q r", "      why: word word word word word", "      word"]


@given(
    st.lists(st.builds(AnswerLine, st.text(), st.text(), st.tuples(st.text())), max_size=5), st.sampled_from([0, 80])
)
def test_answer_text_has_no_control_characters(entries, width):
    lines = text(Answer((Section(tuple(entries)),), summary=("\x1b[2J",)), width)
    assert all(character.isprintable() for line in lines for character in line)


def test_lines_of_a_plan_are_folded_below_their_text():
    line = "  to fetch  " + "word " * 20
    assert list(folded(["plan for a:b", line.rstrip(), "    it " + "needs " * 9], 50)) == [
        "plan for a:b",
        "  to fetch  " + "word " * 6 + "word",
        " " * 12 + "word " * 6 + "word",
        " " * 12 + "word " * 5 + "word",
        "    it " + "needs " * 6 + "needs",
        "    needs needs",
    ]
    assert list(folded([line], 0)) == [line]


@pytest.mark.parametrize("width", [20, 40, 60])
def test_text_stays_within_a_narrow_terminal(width):
    row = AnswerLine(
        "CUDA 11.8  torch 2.0.1+cu118, PyG 2.3.1 (compatible)"[: width - 2], "runs natively " * 9, ("note " * 30,)
    )
    plan = folded(
        ["  source compatible: " + "chosen " * 30, "    it " + "needs " * 30, "  base      " + "x " * 90], width
    )
    for line in (*text(Answer((Section((row,)),)), width), *plan):
        assert len(line) <= width, line


def test_word_that_is_too_long_stays_whole():
    path = "/home/" + "x" * 50
    assert path in text(Answer((Section((AnswerLine("cache", f"is in {path}"),)),)), 40)[-1]


@given(st.lists(st.text(alphabet="ab  :,-/")), st.integers(0, 90))
def test_folded_lines_have_the_same_words(lines, width):
    assert " ".join(folded(lines, width)).split() == " ".join(lines).split()
