"""One image in every form that real programs make of it is one tree; a changed file is found in each."""

import json

import pytest

from tests.conftest import ROOT
from tests.engines.workplace import Workplace, call

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("mmdebstrap", "skopeo")]

CHANGES = "printf more >> /etc/debian_version && chmod 750 /opt && rm /etc/issue && ln -s debian_version /etc/issue"
CHANGED = [("/etc/debian_version", "content"), ("/etc/issue", "kind"), ("/opt", "mode")]


@pytest.fixture(scope="module")
def diff(ground):
    """`build.py diff`, as a person calls it; returns exit code, what is unexpected, and the result."""

    def run(*arguments, environment=None):
        finished = Workplace(ROOT, ground / "diff-cache", environment or {}).run("diff", *arguments, "--json")
        assert finished.code in (0, 13), finished.err
        result = json.loads(finished.out)
        return finished.code, [(found["path"], found["aspect"]) for found in result["unexpected"]], result

    return run


@pytest.mark.parametrize("form", ["oci", "oci-archive", "docker-archive"])
def test_diff_of_a_layout_and_skopeos_copy_is_empty(diff, debian_base, scratch, form):
    call("skopeo", "copy", "--insecure-policy", f"oci:{debian_base.layout}:bookworm-slim", f"{form}:{scratch}/copy:tag")
    code, unexpected, result = diff(debian_base.layout, f"{form}:{scratch}/copy", "--strict")
    assert (code, unexpected) == (0, [])
    assert result["compared"] == ["owners", "settings"]
    assert result["entries"][0] > 2000


@pytest.mark.engine("docker daemon")
def test_an_image_in_docker_is_identical_and_a_change_is_found(diff, debian_base, docker, scratch):
    environment = {"DOCKER_HOST": docker}
    into = ["docker-daemon:same:1", "--dest-daemon-host", docker]
    call("skopeo", "copy", "--insecure-policy", f"oci:{debian_base.layout}:bookworm-slim", *into)
    code, unexpected, result = diff(debian_base.layout, "docker:same:1", environment=environment)
    assert (code, unexpected, result["allowed"]) == (0, [], [])
    (scratch / "Dockerfile").write_text(f"FROM same:1\nRUN {CHANGES}\n")
    call("docker", "--host", docker, "build", "--tag", "changed:1", scratch)
    code, unexpected, _ = diff(debian_base.layout, "docker:changed:1", environment=environment)
    assert (code, unexpected) == (13, CHANGED)


@pytest.mark.engine("podman", "runc", "root")
def test_diff_of_a_layout_and_its_copy_in_podman_is_empty(diff, debian_base, podman, scratch):
    archive = f"docker-archive:{scratch}/base.tar:docker.io/library/same:1"
    call("skopeo", "copy", "--insecure-policy", f"oci:{debian_base.layout}:bookworm-slim", archive)
    call("podman", "load", "--input", scratch / "base.tar", environment=podman)
    settings = {name: podman[name] for name in ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF")}
    code, unexpected, result = diff(debian_base.layout, "podman:docker.io/library/same:1", environment=settings)
    assert (code, unexpected, result["allowed"]) == (0, [], [])


@pytest.mark.engine("apptainer build")
def test_a_sif_is_equal_but_for_what_apptainer_adds_and_a_change_is_found(diff, debian_base, apptainer, scratch):
    call("apptainer", "build", scratch / "same.sif", f"oci:{debian_base.layout}", environment=apptainer)
    code, unexpected, result = diff(debian_base.layout, scratch / "same.sif")
    assert (code, unexpected) == (0, [])
    assert any("Apptainer's own files" in allowance["reason"] for allowance, _ in result["allowed"])
    assert diff(debian_base.layout, scratch / "same.sif", "--strict")[0] == 13
    definition = f"Bootstrap: oci\nFrom: {debian_base.layout}\n\n%post\n    umask 022\n    {CHANGES}\n"
    (scratch / "changed.def").write_text(definition)
    call("apptainer", "build", "--fakeroot", scratch / "changed.sif", scratch / "changed.def", environment=apptainer)
    code, unexpected, _ = diff(scratch / "changed.sif", scratch / "same.sif")
    assert (code, unexpected) == (13, CHANGED)


@pytest.mark.engine("mksquashfs", "unsquashfs", "root")
def test_diff_of_a_folder_and_its_squashfs_is_empty(diff, debian_base, scratch):
    (scratch / "root").mkdir()
    call("tar", "--directory", scratch / "root", "--numeric-owner", "-xpf", debian_base.tar)
    # lzo -noD: as enroot imports
    for name, *compression in (("root", "zstd"), ("enroot", "lzo", "-noD"), ("lz4", "lz4")):
        file = scratch / f"{name}.sqsh"
        call("mksquashfs", scratch / "root", file, "-no-progress", "-quiet", "-comp", *compression)
    call("unsquashfs", "-no-progress", "-dest", scratch / "unpacked", scratch / "root.sqsh")
    for other in ("root", "root.sqsh", "enroot.sqsh", "lz4.sqsh", "unpacked"):
        code, unexpected, result = diff(debian_base.layout, scratch / other, "--strict")
        assert (code, unexpected) == (0, []), other
        assert result["compared"] == ["owners"]
    (scratch / "root" / "etc" / "debian_version").chmod(0o600)
    code, unexpected, _ = diff(scratch / "root.sqsh", scratch / "root")
    assert (code, unexpected) == (13, [("/etc/debian_version", "mode")])
