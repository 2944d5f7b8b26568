"""`test` with the small real image and podman, which gets it once."""

import pytest


@pytest.mark.slow
@pytest.mark.engine("podman", "runc", "root")
def test_podman_gets_a_layout_once_and_loads_an_archive(workplace, built_image, podman, scratch):
    place = workplace.having(**{name: podman[name] for name in podman if name.startswith("CONTAINERS_")})
    request = ("test", built_image.layout, "--runner", "podman", "--output", scratch, "--json")
    told = place.run(*request).json
    (suite,) = told["suites"]
    assert (suite["status"], suite["runtime"], told["layout"]) == ("passed", "podman", built_image.report["digest"])
    assert suite["runtime_version"]
    again = place.run(*request)
    assert again.json["artifact"]["digest"] == told["artifact"]["digest"]
    assert "writing" not in again.err  # nothing was converted: the image is there

    archive = scratch / "image.tar"
    assert place.run("convert", built_image.layout, "--to", "docker", "--output", archive).code == 0
    loaded = place.run("test", archive, "--runner", "podman", "--suite", "torch", "--output", scratch)
    assert (loaded.code, loaded.out[:20]) == (0, "torch: passed on cpu"), loaded.err
