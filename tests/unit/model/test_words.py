"""Numbers of things in messages."""

import pytest

from graphcrate.model.words import number_of


@pytest.mark.parametrize(("count", "text"), [(0, "0 wheels"), (1, "1 wheel"), (2, "2 wheels")])
def test_number_of_things_has_the_plural_that_fits(count, text):
    assert number_of(count, "wheel") == text
