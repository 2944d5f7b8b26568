"""docs/cache.md, typed as it is written: a first user compiles a package and builds an image, others do neither."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines.conftest import as_user, remove_later
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
    yield made
    for user in made:
        remove_later(user.folder.parent)


def test_what_a_first_user_compiles_a_second_one_gets_by_its_signature(users):
    first, second = users
    ((keys, fill, take),) = blocks(PAGE, "A site's shared cache")
    first.type(keys)
    filled = first.typed(fill, HERE)
    assert "compiling annoy" in filled.stderr
    assert "to the shared cache" in filled.stderr
    (second.folder / "cosign.pub").write_bytes((first.folder / "cosign.pub").read_bytes())
    taken = second.typed(take, HERE)
    (said,) = [line for line in taken.stderr.splitlines() if line.startswith("from a shared cache, signed by a key")]
    assert said.endswith("added packages, compiled"), "the layer with its wheel"
    assert "compiling annoy" not in taken.stderr
    assert layers(second) == layers(first)
    for action in ("push --cache-key cosign.key", "list", "verify"):
        assert "annoy-" in first.type(f"./build.py cache {action} --cache /shared/cache --cache-trust cosign.pub")
    again = second.typed("./build.py cache verify --share 1 --cache /shared/cache --cache-trust cosign.pub")
    assert "made again, the same bytes: annoy-" in again.stderr
    compiled = Path(second.environment["GRAPHCRATE_CACHE"], "compiled")
    shutil.rmtree(compiled, ignore_errors=True)
    assert "annoy-" in second.type("./build.py cache pull --cache /shared/cache --cache-trust cosign.pub")
    assert list(compiled.glob("*/annoy-*.whl"))
    assert first.type("./build.py cache prune --cache /shared/cache --cache-trust cosign.pub") == "", "all of it counts"


@pytest.mark.engine("docker-registry", "root", "setpriv", "useradd", "make")
def test_a_plain_user_of_another_machine_has_the_image_of_a_registry_with_its_tests(
    users, workplace, registry, plain_user, scratch
):
    """Of another home, umask and Python; their cache has no layer, and the locked files alone (which are not read)."""
    first, _ = users
    if not (first.folder / "cosign.key").exists():
        first.type("./build.py keys")
    given = first.typed(f"{HERE[1].removesuffix(' WITH=annoy')} CACHE={registry}/cache CACHE_KEY=cosign.key")
    assert f"to the shared cache {registry}/cache: torch:" in given.stderr
    place = second_place(workplace, scratch / "second")
    (place.folder / "cosign.pub").write_bytes((first.folder / "cosign.pub").read_bytes())
    for path in (scratch / "second", *(scratch / "second").rglob("*")):
        if path.is_dir() or not path.is_relative_to(place.cache):  # downloads are hard links
            os.chown(path, plain_user.pw_uid, plain_user.pw_gid, follow_symlinks=False)
    words = f"make image {settings(small_stack())} CACHE={registry}/cache CACHE_TRUST=cosign.pub"
    user = " ".join(as_user(plain_user, "env", f"HOME={scratch}/second", f"GRAPHCRATE_CACHE={place.cache}"))
    taken = Typist(place.folder).typed(f"{user} PATH=/usr/bin:/bin bash -c {shlex.quote(f'umask 077; {words}')}")
    assert taken.stdout.partition("@")[2] == given.stdout.partition("@")[2]
    assert f"from    the shared cache {registry}/cache: torch:" in taken.stderr.splitlines()[-1]
    assert "step 1 of 4" not in taken.stderr
    assert not (place.cache / "compiled").exists()
    shutil.rmtree(place.cache / "files")
    more = words.replace(" CACHE=", " WITH=iniconfig CACHE=")
    Typist(place.folder).typed(f"{user} PATH=/usr/bin:/bin bash -c {shlex.quote(more)}")
    fetched = {path.name for path in place.cache.glob("files/*/*")}
    assert [name for name in fetched if name.startswith("iniconfig-")]
    assert [name for name in fetched if name.startswith("torch-") or name.endswith(".deb")] == [], "layers came"


def layers(user):
    """Titles and digests of the layers of a user's one image with the package.

    (Each has a lock of their own, with its time, which is in the configuration.)
    """
    report = min(user.folder.glob("dist/torch/*annoy/report.json"))
    return [(layer["title"], layer["digest"]) for layer in json.loads(report.read_text())["layers"]]
