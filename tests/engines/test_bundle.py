"""The small image goes to a place without a network in one file, and is built again there."""

import dataclasses
import json
import os
import shutil
import subprocess

import pytest

from graphcrate.destinations import bundle
from graphcrate.host.workplace import Workplace as Host
from tests.engines.workplace import Workplace, copy_project

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("mmdebstrap", "unshare", "root")]


@pytest.fixture(scope="module")
def bundled(workplace, built_image, ground):
    """A bundle of the small image."""
    environment = {**os.environ, "GRAPHCRATE_CACHE": str(workplace.cache)}
    host = Host(root=workplace.folder, environment=environment)
    written = bundle.write(built_image.layout.parent, ground / "small.bundle", host)
    host.cache.close()
    return ground / "small.bundle", written


@pytest.fixture(scope="module")
def island(bundled, ground):
    """A clone with an empty cache and without the image's lock or wheels, no network, and what `import` said."""
    # pip's own folders of wheels are not to be found there either
    environment = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "WHEELS": ""}
    place = Workplace(
        copy_project(ground / "island" / "copy"),
        ground / "island" / "cache",
        environment=environment,
        prefix=("unshare", "--net"),
    )
    yield place, place.run("import", bundled[0])
    shutil.rmtree(ground / "island")


def without_folder(request):
    """The same request on a machine that lacks the folder of wheels."""
    arguments = list(request)
    if "--wheels" in arguments:
        at = arguments.index("--wheels")
        del arguments[at : at + 2]
    return arguments


def test_it_is_the_image_with_all_its_files(bundled, built_image):
    _, written = bundled
    lock = json.loads((built_image.layout.parent / "lock.json").read_text())
    assert written.digest == built_image.report["digest"]
    assert written.files >= len(lock["packages"]) + len(lock["base"]["packages"])
    assert written.size > built_image.report["bytes"] + sum(one["file"]["size"] for one in lock["packages"])


def test_the_image_is_there_after_import_and_passes_what_it_passed(island, built_image):
    place, taken = island
    assert taken.code == 0, taken.err
    assert taken.out == built_image.finished.out
    name, _, tag = taken.out.partition("@")[0].partition(":")
    folder = place.folder / "dist" / name / tag
    assert place.run("validate", folder / "oci").code == 0
    assert sorted(path.name for path in (folder / "passes").iterdir()) == sorted(
        path.name for path in (built_image.layout.parent / "passes").iterdir()
    )
    assert place.leftovers() == []


def test_a_second_time_does_nothing_and_says_so(island, bundled):
    place, _ = island
    again = place.run("import", bundled[0])
    assert again.code == 0, again.err
    assert "nothing was done" in again.err
    assert place.run("import", bundled[0], "--json").json["unchanged"] is True


def test_it_is_unchanged_to_the_next_build(island, built_image):
    place, _ = island
    again = place.run("image", *without_folder(built_image.request), "--no-smoke", "--json").json
    assert again["digest"] == built_image.report["digest"]
    assert again["seconds"] == json.loads((built_image.layout.parent / "report.json").read_text())["seconds"]


def test_it_is_built_again_without_a_network_and_is_the_same(island, built_image):
    place, _ = island
    report = place.run(
        "image", *without_folder(built_image.request), "--no-smoke", "--json", "--output", place.folder / "anew"
    ).json
    assert report["digest"] == built_image.report["digest"]
    assert place.run("validate", place.folder / "anew" / report["name"] / report["tag"] / "oci").code == 0


def test_it_runs_there(island, built_image):
    place, taken = island
    reference = taken.out.partition("@")[0]
    ran = place.run("run", reference, "--", "python", "-c", "import torch; print(torch.__version__)")
    assert (ran.code, ran.out.strip()) == (0, built_image.report["torch"]), ran.err


def test_a_disk_that_fills_up_leaves_nothing(bundled, scratch, island):
    """Of a small file system of its own: what `import` was writing goes, and so does the name of the image."""
    (scratch / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", scratch / "disk"], check=True)
    place = dataclasses.replace(island[0], cache=scratch / "disk" / "cache")
    done = place.run("import", bundled[0], "--output", scratch / "disk" / "dist")
    assert done.code == 8, done.err
    assert not list((scratch / "disk").glob("dist/*/*/oci"))
