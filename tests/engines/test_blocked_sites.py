"""Whole images, by real programs, of sites that reach a part of PyTorch's hosts; and how often each host is asked.

The pages and wheels are those of tests/unit/real_pages.py; the base is Debian's, which the small image has, too.
"""

import pytest

from graphcrate.model.recipe import CHANNELS, Channel
from tests.engines.workplace import second_place
from tests.made import index_of
from tests.unit import real_pages
from tests.unit.assembly.test_blocked_sites import COMPATIBLE, RECIPE
from tests.unit.real_pages import TORCH, Stand
from tests.unit.small_index import CP311
from tests.unit.wheel_server import WheelServer, small_wheel

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("user namespaces")]

BUILD = ("image", "torch", "--cuda", "11.8", "--no-smoke", "--json")
#: what a site reaches → options, blocked servers, the candidate that it gets, the most requests of each server
SITES = {
    "everything": ((), (), "pytorch", {"index": 2, "files": 4, "mirror": 0}),
    "a mirror": (("--mirror",), ("index", "files"), "pytorch", {"index": 0, "files": 0, "mirror": 6}),
    "pages and no files": ((), ("files",), "compatible", {"index": 2, "files": 2, "mirror": 0}),
    "the package index": ((), ("index", "files"), "compatible", {"index": 1, "files": 0, "mirror": 0}),
}


@pytest.fixture(scope="module")
def stand():
    """PyTorch's two hosts, a mirror, and a package index that has torch for another CUDA version."""
    with WheelServer() as index, WheelServer() as files, WheelServer() as mirror, WheelServer() as packages:
        made = Stand(index, files)
        made.mirror, made.packages = mirror, packages
        made.put_files(files)
        made.put_files(mirror, "/mirror/cu118", metadata=False)
        mirror.bodies["/mirror/cu118/torch/"] = real_pages.pytorch_page(
            [*real_pages.OTHERS, TORCH], mirror.url("/mirror/cu118/")
        )
        made.new_form()
        for wheel in (COMPATIBLE, small_wheel("filelock", "3.0"), small_wheel("numpy", "1.26.4", tag=CP311)):
            packages.simple(wheel[0].partition("-")[0], dict([wheel]))
        yield made


@pytest.fixture
def site(stand, workplace, built_image, scratch):
    """A project whose channel of PyTorch is the stand; its cache has the base alone."""
    place = second_place(workplace, scratch, base=True, environment=index_of(stand.packages))
    (place.folder / "recipes" / "torch.toml").write_text(RECIPE)
    rows, root = place.folder / "graphcrate" / "model" / "recipe.py", CHANNELS[Channel.PYTORCH].root
    assert rows.read_text().count(f'"{root}"') == 1
    rows.write_text(rows.read_text().replace(root, stand.index.url("/whl")))
    (place.folder / "graphcrate" / "compat" / "data" / "witnesses.toml").write_text("file = []\n")  # of real wheels
    return place


@pytest.mark.parametrize("reached", SITES)
def test_each_site_gets_a_whole_image_with_few_requests(site, stand, reached):
    options, blocked, candidate, most = SITES[reached]
    servers = {"index": stand.index, "files": stand.files, "mirror": stand.mirror}
    for name, server in servers.items():
        server.asked.clear()
        server.faults.clear()
        if name in blocked:
            stand.block(server)
    given = (*options, stand.mirror.url("/mirror")) if options else ()
    made = site.run(*BUILD, *given).ok()
    assert made.json["candidate"] == candidate, made.err
    assert "torch" in {package["name"] for package in made.json["packages"]}
    site.run("inspect", site.layout(made.json)).ok()
    asked = {name: [(one.method, one.path) for one in server.asked] for name, server in servers.items()}
    assert {name: len(all_of) for name, all_of in asked.items() if len(all_of) > most[name]} == {}, asked
