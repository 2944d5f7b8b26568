"""From an advisory on an index to a renewed lock: real uv and real Debian lists, a made-up package."""

import json
import shutil

import pytest

from graphcrate.model.lock import decode_lock
from tests.conftest import ROOT
from tests.engines.test_update import ARCHITECTURES, RECIPE, torch_wheel
from tests.engines.workplace import Workplace, copy_bases, copy_project
from tests.unit.wheel_server import WheelServer, small_wheel

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("uv", "user namespaces")]

ADVISORY = {
    "id": "PYSEC-2099-1", "aliases": ["CVE-2099-0001"], "fixed_in": ["1.1"], "link": "https://advisories.example/1",
    "details": "", "withdrawn": None,
}  # fmt: skip


class Index(WheelServer):
    """A package index with advisories."""

    def publish(self, name, *wheels):
        self.simple(name, dict(wheels), uploaded="2026-11-01T00:00:00Z")

    def know(self, name, version, *advisories):
        self.put(f"/pypi/{name}/{version}/json", json.dumps({"vulnerabilities": advisories}).encode())


@pytest.fixture
def index():
    with Index() as server:
        yield server


@pytest.fixture
def project(index, workplace, built_image, tmp_path):
    """A clone with one recipe more, locked when `leaky` had one release; then it got three, and `tqdm` another one."""
    index.publish("torch", torch_wheel(tmp_path, "2.98.0", "13.0", *ARCHITECTURES))
    index.publish("pip", small_wheel("pip", "25.0"))
    index.publish("tqdm", small_wheel("tqdm", "4.66"))
    index.publish("leaky", small_wheel("leaky", "1.0", requires=["tqdm"]))
    root = tmp_path / "clone"
    copy_project(root)
    for name in ("docs", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "recipes/made.toml").write_text(RECIPE.replace('["tqdm"]', '["tqdm", "leaky"]'))
    environment = {"UV_DEFAULT_INDEX": index.url("/simple"), "PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}
    copy_bases(workplace.cache, tmp_path / "cache")  # the small image has the same
    made = Workplace(root, tmp_path / "cache", environment)
    made.run("lock", "made", "--cuda", "13.0").ok()
    index.publish("tqdm", small_wheel("tqdm", "4.66"), small_wheel("tqdm", "5.0"))
    # 1.1 wants another tqdm than the lock has; 1.3 is the newest
    releases = [("1.0", "tqdm"), ("1.1", "tqdm>=5"), ("1.2", "tqdm"), ("1.3", "tqdm")]
    index.publish("leaky", *(small_wheel("leaky", version, requires=[needs]) for version, needs in releases))
    for name, version in (("torch", "2.98.0"), ("pip", "25.0"), ("tqdm", "4.66"), ("leaky", "1.2")):
        index.know(name, version)
    index.know("leaky", "1.0", ADVISORY)
    return made


def test_package_with_an_advisory_is_alone_renewed_in_the_lock_and_new_in_the_image(project):
    path = project.folder / "images/made/cu130/pypi.lock.json"
    before, text = decode_lock(path.read_bytes()), path.read_bytes()
    image = project.run("image", "made", "--cuda", "13.0", "--no-smoke", "--engine", "embedded", "--json").ok().json
    assert "leaky" in {package["name"] for package in image["packages"]}

    looked = project.run("update", "made", "--security", "--check")
    assert (looked.code, path.read_bytes()) == (20, text), looked.err
    said = project.run("update", "made", "--security").ok().out
    assert "| leaky | 1.0 | 1.2 | PYSEC-2099-1, CVE-2099-0001 | made CUDA 13.0, pypi |" in said, said
    after = decode_lock(path.read_bytes())
    assert {each.name: each.version for each in after.packages} == {
        "leaky": "1.2", "pip": "25.0", "torch": "2.98.0", "tqdm": "4.66",
    }  # fmt: skip
    assert after.base == before.base
    assert project.run("update", "made", "--security", "--check").ok().out.startswith("# Security fixes of ")

    renewed = project.run("image", "made", "--cuda", "13.0", "--no-smoke", "--engine", "embedded", "--json").ok().json
    assert {package["name"]: package["version"] for package in renewed["packages"]}["leaky"] == "1.2"
    offline = project.having(
        UV_DEFAULT_INDEX="http://127.0.0.1:9/simple", DEBIAN_MIRROR="http://127.0.0.1:9/debian", DEBIAN_FALLBACK="none"
    )
    shutil.rmtree(project.cache / "advisories")
    silent = offline.run("update", "made", "--security", "--check")
    assert silent.code == 5, silent.out + silent.err
    assert "whether the locks have known vulnerabilities is not known" in silent.err


def test_package_that_a_fix_needs_moves_with_it_and_one_that_the_recipe_bounds_does_not(project, index):
    """uv itself finds what goes together; torch 2.98 and the recipe's own requirements stay."""
    path, recipe = project.folder / "images/made/cu130/pypi.lock.json", project.folder / "recipes/made.toml"
    index.publish(
        "leaky", small_wheel("leaky", "1.0", requires=["tqdm"]), small_wheel("leaky", "1.1", requires=["tqdm>=5"])
    )
    index.know("leaky", "1.1")
    index.know("tqdm", "5.0")
    said = project.run("update", "made", "--security").ok().out
    assert "| tqdm | 4.66 | 5.0 | it has to move: leaky 1.1 requires tqdm>=5 | made CUDA 13.0, pypi |" in said, said
    versions = {each.name: each.version for each in decode_lock(path.read_bytes()).packages}
    assert versions == {"leaky": "1.1", "pip": "25.0", "torch": "2.98.0", "tqdm": "5.0"}

    recipe.write_text(recipe.read_text().replace('"tqdm", "leaky"', '"tqdm<5", "leaky"'))
    index.publish("leaky", small_wheel("leaky", "1.0", requires=["tqdm"]))
    project.run("lock", "made", "--cuda", "13.0").ok()
    index.publish(
        "leaky", small_wheel("leaky", "1.0", requires=["tqdm"]), small_wheel("leaky", "1.1", requires=["tqdm>=5"])
    )
    before = path.read_bytes()
    refused = project.run("update", "made", "--security").ok().out
    assert "leaky 1.1 goes with no releases of the rest that the stack allows: " in refused, refused
    assert "tqdm<5" in refused, refused
    assert path.read_bytes() == before
