"""A next step is a question where it is a command that a page can ask, and else its own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildsite.steps import advice
from graphcrate.remote.questions import Question

ASKED = Question(stack="pyg", cuda="12.1", gpu="v100", file="requirements.txt", text="torch==1.2.3\n")


@pytest.mark.parametrize(
    ("step", "changes", "text"),
    [
        (
            "./build.py image pyg --cuda 12.1 --with torch --requirements requirements.txt    takes the stack's in its "
            "place; ./build.py list has other versions",
            {"packages": "torch"},
            "takes the stack's in its place",
        ),
        ("make image CUDA=11.8 GPU=v100", {"cuda": "11.8"}, ""),
        ("make image … APT=libgl1    (packages of Debian)", {"apt": "libgl1"}, "(packages of Debian)"),
        ("make image STACK=torch CUDA=12.1", {"stack": "torch"}, ""),
        ("graphcrate image torch --cuda 11.8", {"stack": "torch", "cuda": "11.8"}, ""),
        ("./build.py image … --gpu a100    (others: ./build.py list)", {"gpu": "a100"}, "(others: ./build.py list)"),
        ("make image CUDA=11.8 'WITH=rdkit ase'", {"cuda": "11.8", "packages": "rdkit ase"}, ""),
    ],
)
def test_command_that_a_page_can_ask_is_its_question(step, changes, text):
    told = advice(step, ASKED)
    assert (told.changes, told.text) == (changes, text)
    assert {name: getattr(told.question, name) for name in changes} == changes
    assert (told.question.file, told.question.text) == (ASKED.file, ASKED.text)


@pytest.mark.parametrize(
    "step",
    [
        "",
        "fix line 2",
        "driver >= 450.80.02",
        "lightning, 'dgl==2.1'",
        "give the package's name and version: 'dgl==2.1'",
        "./build.py list",
        "make image CUDA=…",
        "make image MIRROR=sjtu",
        "./build.py image ./mine.toml",
        "./build.py image pyg --cuda 12.1",
        "sudo image pyg --cuda 11.8",
        "make image CUDA=11.8; rm -rf it's",
    ],
)
def test_what_a_page_cannot_ask_stays_as_it_is(step):
    told = advice(step, ASKED)
    if told.question:
        assert set(told.changes) == {"cuda"}
    else:
        assert (told.text, told.changes) == (step, {})


@given(st.text(max_size=80), st.sampled_from(["", "make image ", "./build.py image ", "./build.py image pyg --cuda "]))
def test_any_text_is_a_question_or_itself(text, begin):
    told = advice(begin + text, ASKED)
    assert (told.question is None) == (told.changes == {})
    assert told.question or told.text == begin + text
