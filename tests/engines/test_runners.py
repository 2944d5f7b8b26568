"""The suites of the small real image through podman, from its layout and from an archive."""

import dataclasses

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.engine("podman", "runc", "root")]


@pytest.fixture
def place(workplace, podman):
    own = {name: value for name, value in podman.items() if name.startswith("CONTAINERS_")}
    return dataclasses.replace(workplace, environment={**workplace.environment, **own})


def test_podman_gets_a_layout_once(place, built_image, scratch):
    request = ("test", built_image.layout, "--runner", "podman", "--output", scratch, "--json")
    finished = place.run(*request)
    told = finished.json
    (suite,) = told["suites"]
    assert (suite["status"], suite["runtime"], told["layout"]) == ("passed", "podman", built_image.report["digest"])
    assert suite["runtime_version"]
    again = place.run(*request)
    assert again.json["artifact"]["digest"] == told["artifact"]["digest"]
    assert "writing" not in again.err  # nothing was converted: the image is there


def test_podman_loads_an_archive(place, built_image, scratch):
    archive = scratch / "image.tar"
    assert place.run("convert", built_image.layout, "--to", "docker", "--output", archive).code == 0
    finished = place.run("test", archive, "--runner", "podman", "--suite", "torch", "--output", scratch)
    assert finished.code == 0, finished.err
    assert finished.out.startswith("torch: passed on cpu")
