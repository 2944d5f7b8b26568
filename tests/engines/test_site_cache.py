"""docs/cache.md, typed as it is written: a first user compiles a package, a second one in another home does not."""

import json

import pytest

from tests.conftest import ROOT
from tests.engines.typist import MAKE, Typist, blocks, settings
from tests.engines.workplace import second_place, small_stack

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("user namespaces")]

PAGE = ROOT / "docs" / "cache.md"
HERE = ("make image CUDA=11.8", f"{MAKE} image {settings(small_stack())} WITH=annoy")


@pytest.fixture(scope="module")
def users(workplace, built_image, own):
    """Two users: each has a clone, a home and a cache, and the first one's key and folder are the site's."""
    made = []
    for number in (1, 2):
        home = own / f"site-cache-{number}"
        place = second_place(workplace, home, base=True)
        variables = {"GRAPHCRATE_CACHE": str(place.cache), "HOME": str(home), "COSIGN_PASSWORD": "x"}
        made.append(Typist(place.folder, variables, [("/shared/cache", str(own / "shared"))]))
    return made


def test_what_a_first_user_compiles_a_second_one_gets_by_its_signature(users):
    first, second = users
    ((keys, fill, take),) = blocks(PAGE, "A site's shared cache")
    first.type(keys)
    filled = first.typed(fill, HERE)
    assert "compiling annoy" in filled.stderr
    assert "to the shared cache" in filled.stderr
    (second.folder / "cosign.pub").write_bytes((first.folder / "cosign.pub").read_bytes())
    taken = second.typed(take, HERE)
    assert "from a shared cache, signed by a key that you trust: annoy" in taken.stderr
    assert "compiling annoy" not in taken.stderr
    assert layers(second) == layers(first)


def layers(user):
    """Titles and digests of the layers of a user's one image with the package.

    (Each has a lock of their own, with its time, which is in the configuration.)
    """
    report = min(user.folder.glob("dist/torch/*annoy/report.json"))
    return [(layer["title"], layer["digest"]) for layer in json.loads(report.read_text())["layers"]]
