"""Values as an input method for Chinese writes them."""
# ruff: noqa: RUF001

import pytest

from graphcrate.cli.characters import check_characters
from graphcrate.model.errors import UsageError
from tests.made import refused


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (["explain", "--cuda", "１１.８"], "CUDA=11.8"),
        (["explain", "--driver=450．36．06"], "DRIVER=450.36.06"),
        (["image", "pyg", "--gpu", "Ａ１００，v100"], "GPU=A100,v100"),
        (["image", "--gpu", "a100、v100"], "GPU=a100,v100"),
        (["image", "pyg", "--with", "\u201ceinops\u201d"], "WITH=einops"),
        (["image", "--apt", "git\u3000vim"], "'APT=git vim'"),
    ],
)
def test_full_width_value_is_refused_with_what_was_meant(words, step):
    with refused(UsageError, "full-width characters or curly quotes", step):
        check_characters(words)


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--gpu", "昇腾910B"],
        ["image", "--mirror", "清华"],
        ["convert", "a:1", "--output", "图（一）.sif"],
        ["job", "a.sif", "--name", "训练１"],
        ["run", "pyg:1", "--", "python", "a.py", "--cuda", "１"],
        ["explain", "--cuda"],
        [],
    ],
)
def test_words_that_are_paths_names_or_another_programs_pass(words):
    check_characters(words)
