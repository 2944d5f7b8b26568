"""Sources that may be taken for additions to a stack."""

from types import SimpleNamespace

import pytest

from graphcrate.model.errors import ResolutionError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.additions.sdists import Sdists
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.source import Link
from tests import made
from tests.made import refused


def release(name, sha256):
    link = Link(name=name, url=f"https://index.example/{name}", sha256=sha256)
    return Offer("demo", "1.0", Channel.PYPI, link)


def test_source_whose_hash_no_page_states_is_not_offered():
    """Another file could stand in its place when it is fetched."""
    stated, silent = release("demo-1.0.tar.gz", "0" * 64), release("demo-1.0.zip", "")
    wheel = release("demo-1.0-py3-none-any.whl", "1" * 64)
    of = SimpleNamespace(_conflicts=SimpleNamespace(releases=lambda name: [stated, silent, wheel]))
    assert Sdists._sources_of(of, "demo") == [stated]


@pytest.mark.parametrize(
    ("name", "channel", "python", "is_refused"),
    [
        ("minkowskiengine", "pypi", "3.11", True),
        ("minkowskiengine", "pypi", "3.9", False),
        ("minkowskiengine", "local", "3.11", False),  # the user's own folder may have it mended
        ("other", "pypi", "3.11", False),
    ],
)
def test_release_that_the_images_python_cannot_import_is_refused_but_for_ones_own(name, channel, python, is_refused):
    of = SimpleNamespace(_target=SimpleNamespace(python=python))
    package = made.sdist(name, channel=channel)
    if is_refused:
        with refused(ResolutionError, f"and the image has {python}"):
            Sdists._refuse_other_python(of, package)
    else:
        Sdists._refuse_other_python(of, package)
