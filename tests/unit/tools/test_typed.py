"""Parts shared by lists of tried packages: commands, and commands that a message names."""

import pytest

from tools import source_packages, wanted_packages
from tools.typed import Message, Typed, advised


def said(next_step, **typed):
    return Message(typed=Typed(with_="demo", **typed), exit_code=9, what="no", next_step=next_step)


def test_both_lists_have_one_kind_of_typed_words_and_messages():
    for name in ("Typed", "Message", "advised"):
        assert getattr(source_packages, name) is getattr(wanted_packages, name)


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("make image … BUILD_APT=swig", {}, {"build_apt": "swig"}),
        ("make image … 'BUILD_APT=swig make'", {"build_apt": "make"}, {"build_apt": "make swig"}),
        ("make image … APT=libcairo2", {"build_apt": "x"}, {"build_apt": "x", "apt": "libcairo2"}),
        ("make image … APT=libgl1", {"apt": "git"}, {"apt": "git libgl1"}),
        ("make image WITH=demo 'APT=a b' 'BUILD_APT=c d'", {"apt": "a"}, {"apt": "a b", "build_apt": "c d"}),
        ("graphcrate image torch --with demo --build-apt 'c d'", {}, {"build_apt": "c d"}),
        ("make image … BUILD_APT=PACKAGE    (apt-file search x says which)", {"build_apt": "m"}, "the same"),
        ("make image CUDA=12.6 WITH=demo", {}, {"cuda": "12.6"}),
        ("make image CUDA=11.8 GPU=v100 WITH=demo BUILD_APT=c", {"gpu": "v100"}, {"gpu": "v100", "build_apt": "c"}),
        ("bring a wheel (WITH=./demo-….whl)", {}, {}),
        ("make image CUDA=11.7 WITH=demo; or a source of it: WITH=./demo", {}, {"cuda": "11.7"}),
        ("make image STACK=glt CUDA=11.7 WITH=demo", {}, {"stack": "glt", "cuda": "11.7"}),  # MinkowskiEngine's
        ("make image STACK=torch CUDA=cpu WITH=demo", {}, {"cuda": "cpu"}),
    ],
)
def test_options_that_a_message_names_are_typed_beside_what_was(step, before, after):
    assert advised(said(step, **before), "torch") == Typed(with_="demo", **(before if after == "the same" else after))


def test_typed_words_are_shown_as_make_and_given_as_the_command_line_has_them():
    typed = Typed(cuda="cpu", with_="a b", build_apt="swig")
    assert typed.shown() == 'WITH="a b" BUILD_APT=swig'
    assert typed.words() == ["--cuda", "cpu", "--with", "a b", "--build-apt", "swig"]
    compiled = Typed(gpu="v100", with_="a")
    assert compiled.shown() == "GPU=v100 WITH=a"
    assert Typed(stack="glt", cuda="11.7", with_="a").shown() == "STACK=glt CUDA=11.7 WITH=a"
    assert compiled.words() == ["--cuda", "11.8", "--gpu", "v100", "--with", "a"]
