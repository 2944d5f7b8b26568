"""The SBOM of an image, made once for all tests that publish it."""

import copy

import msgspec
import pytest

from graphcrate.publish import bill

MADE = {}  #: what was asked for → the SBOM, or the parts of a lock


@pytest.fixture(scope="module", autouse=True)
def bills_made_once():
    """Make each bill once, not each time that a test publishes the image: it takes longer than all the rest."""
    sbom, parts = bill.sbom, bill.parts

    def sbom_once(*arguments, **options):
        key = ("sbom", msgspec.json.encode((arguments, options), order="sorted"))
        if key not in MADE:
            MADE[key] = sbom(*arguments, **options)
        return copy.deepcopy(MADE[key])

    def parts_once(lock, *, devel=False, **of_the_image):
        if of_the_image:  # for an SBOM, which adds what the image has to them
            return parts(lock, devel=devel, **of_the_image)
        key = ("parts", msgspec.json.encode((lock, devel), order="sorted"))
        if key not in MADE:
            MADE[key] = parts(lock, devel=devel)
        return MADE[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bill, "sbom", sbom_once)
        patch.setattr(bill, "parts", parts_once)
        yield
