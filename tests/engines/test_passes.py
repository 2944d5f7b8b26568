"""A pass of the small real image is remembered, wherever its folder goes, until it is asked for again."""

import shutil


def test_an_image_is_tested_once_and_its_passes_go_with_it(workplace, built_image, scratch):
    reference = f"torch:{built_image.report['tag']}"
    # its build has tested it; other tests may have done so with other runtimes
    assert list((built_image.layout.parent / "passes").glob("torch-*.json"))

    told = workplace.run("test", reference)
    assert told.code == 0, told.err
    assert "torch passed on this kind of node before (" in told.err
    assert "Phase: " not in told.err
    assert told.out.startswith("torch: passed on cpu in ")
    assert told.out.endswith("; not run again, --rerun runs it\n")

    copy = scratch / "copy"
    shutil.copytree(built_image.layout.parent, copy, symlinks=True)
    passes = sorted((copy / "passes").iterdir())
    other = workplace.run("test", copy / "oci", "--output", scratch / "out", "--json").json
    assert other["suites"][0]["remembered"]
    assert other["artifact"]["digest"] == built_image.report["digest"]

    again = workplace.run("test", copy / "oci", "--output", scratch / "out", "--rerun", "--json")
    assert "Phase: training on cpu" in again.err
    (suite,) = again.json["suites"]
    assert (suite["status"], suite["remembered"]) == ("passed", "")
    assert sorted((copy / "passes").iterdir()) == passes

    for path in passes:
        path.write_text("{")  # as a full disk leaves it
    assert (
        workplace.run("test", copy / "oci", "--output", scratch / "out", "--json").json["suites"][0]["remembered"] == ""
    )
