"""Numbers of things in messages."""

import pytest

from graphcrate.model.words import number_of


@pytest.mark.parametrize(
    ("count", "names", "text"),
    [
        (0, ("wheel",), "0 wheels"),
        (1, ("wheel",), "1 wheel"),
        (2, ("wheel",), "2 wheels"),
        (1, ("library", "libraries"), "1 library"),
        (3, ("library", "libraries"), "3 libraries"),
    ],
)
def test_number_of_things_has_the_plural_that_fits(count, names, text):
    assert number_of(count, *names) == text
