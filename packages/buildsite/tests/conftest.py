"""Fixtures of graphcrate's unit tests, which these take too, and of all tests of the site."""

import pytest

from graphcrate.compat.variants.support import support
from tests.conftest import no_further_channels, no_witnesses
from tests.unit.conftest import one_day

__all__ = ["no_further_channels", "no_witnesses", "one_day"]


@pytest.fixture(scope="session", autouse=True)
def gpus_judged_once():
    """Judge a recipe on all GPUs once, not for each site that a test makes."""
    known = []

    def once(recipe):
        found = next((made for asked, made in known if asked == recipe), None)
        if found is None:
            known.append((recipe, found := support(recipe)))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("buildsite.site.support", once)
        yield
