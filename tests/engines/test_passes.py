"""`test` with the small real image: a pass is remembered wherever its folder goes, and podman gets an image once."""

import shutil

import pytest


def test_an_image_is_tested_once_and_its_passes_go_with_it(workplace, built_image, scratch):
    # its build has tested it; other tests may have done so with other runtimes
    assert list((built_image.layout.parent / "passes").glob("torch-*.json"))
    told = workplace.run("test", f"torch:{built_image.report['tag']}").ok()
    assert "torch passed on this kind of node before (" in told.err
    assert "Phase: " not in told.err
    assert told.out.startswith("torch: passed on cpu in ")
    assert told.out.endswith("; not run again, --rerun runs it\n")

    copy = scratch / "copy"
    shutil.copytree(built_image.layout.parent, copy, symlinks=True)
    passes = sorted((copy / "passes").iterdir())
    request = ("test", copy / "oci", "--output", scratch / "out", "--json")
    other = workplace.run(*request).json
    assert other["suites"][0]["remembered"]
    assert other["artifact"]["digest"] == built_image.report["digest"]

    again = workplace.run(*request, "--rerun")
    assert "Phase: training on cpu" in again.err
    (suite,) = again.json["suites"]
    assert (suite["status"], suite["remembered"]) == ("passed", "")
    assert sorted((copy / "passes").iterdir()) == passes


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
