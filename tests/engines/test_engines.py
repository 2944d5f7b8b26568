"""Programs that people have read the image: skopeo and umoci, and PyTorch runs from it in podman and Docker.

And the engines themselves work here as tests of builds need them: with a network, with root's rights inside.
"""

import json
import os

import pytest

from tests.engines.workplace import call

IMPORT_TORCH = ["python", "-c", "import torch; print('torch', torch.__version__, float(torch.ones(3, 3).sum()))"]

pytestmark = [pytest.mark.build, pytest.mark.network, pytest.mark.engine("mmdebstrap")]


def expected(built):
    return f"torch {built.report['torch']} 9.0"


@pytest.mark.engine("skopeo")
def test_skopeo_sees_the_digest_and_the_labels(built_image):
    seen = json.loads(call("skopeo", "inspect", f"oci:{built_image.reference}"))
    assert seen["Digest"] == built_image.report["digest"]
    assert len(seen["Layers"]) == len(built_image.report["layers"])
    assert seen["Architecture"] == "amd64"
    assert any(variable.startswith("PATH=/opt/venv/bin:") for variable in seen["Env"])
    assert not any(variable.startswith("LD_LIBRARY_PATH=") for variable in seen["Env"])


@pytest.mark.engine("skopeo")
def test_skopeo_copies_it_without_changing_the_digest(built_image, scratch):
    # skopeo checks each blob's digest while it copies
    call("skopeo", "copy", "--insecure-policy", f"oci:{built_image.reference}", f"oci:{scratch}/copy:tag")
    copied = json.loads(call("skopeo", "inspect", f"oci:{scratch}/copy:tag"))
    assert copied["Digest"] == built_image.report["digest"]


@pytest.mark.engine("umoci", "unshare", "root")
def test_umoci_unpacks_a_root_file_system_that_imports_torch(built_image, scratch):
    call("umoci", "unpack", "--image", built_image.reference, scratch / "bundle")
    config = json.loads((scratch / "bundle" / "config.json").read_text())
    environment = dict(variable.split("=", 1) for variable in config["process"]["env"])
    enter = 'cd "$0" && mount --rbind /dev dev && mount -t proc proc proc && exec /usr/sbin/chroot . "$@"'
    inside = ["unshare", "--mount", "/bin/sh", "-c", enter, scratch / "bundle" / "rootfs", "/usr/bin/env"]
    assert expected(built_image) in call(*inside, *IMPORT_TORCH, environment=environment)


@pytest.mark.engine("podman", "runc", "root")
def test_podman_runs_it(built_image, podman):
    run = ["podman", "run", "--rm", "--network", "none"]
    output = call(*run, f"oci:{built_image.reference}", *IMPORT_TORCH, environment=podman)
    assert expected(built_image) in output


@pytest.mark.engine("docker daemon", "skopeo")
def test_docker_runs_it(built_image, docker):
    name = f"{built_image.report['name']}:{built_image.report['tag']}"
    source, target = f"oci:{built_image.reference}", f"docker-daemon:{name}"
    call("skopeo", "copy", "--insecure-policy", "--dest-daemon-host", docker, source, target)
    output = call("docker", "--host", docker, "run", "--rm", "--network", "none", name, *IMPORT_TORCH)
    assert expected(built_image) in output
    assert json.loads(call("docker", "--host", docker, "image", "inspect", name))[0]["Config"]["Volumes"] is None


FILE = """
FROM debian:bookworm-slim
RUN apt-get -qq update && apt-get -qq -y install --no-install-recommends ca-certificates
RUN chown 12:34 /opt && stat -c %u:%g /opt
"""


@pytest.mark.engine("docker daemon")
@pytest.mark.parametrize("buildkit", ["0", "1"])
def test_docker_builds_with_a_network(docker, docker_base, scratch, buildkit):
    (scratch / "Dockerfile").write_text(FILE)
    environment = {**os.environ, "DOCKER_BUILDKIT": buildkit}
    name = f"built:{buildkit}"
    call("docker", "--host", docker, "build", "--no-cache", "--tag", name, scratch, environment=environment)
    owner = ["run", "--rm", name, "sh", "-c", "stat -c %u:%g /opt; ls /etc/ssl/certs/ca-certificates.crt"]
    assert call("docker", "--host", docker, *owner) == "12:34\n/etc/ssl/certs/ca-certificates.crt\n"
    assert docker_base == "debian:bookworm-slim"


@pytest.mark.engine("podman", "runc", "root")
def test_podman_builds_with_a_network(podman, debian_base, scratch):
    (scratch / "Dockerfile").write_text(FILE)
    archive = f"docker-archive:{scratch}/base.tar:docker.io/library/debian:bookworm-slim"
    call("skopeo", "copy", "--insecure-policy", f"oci:{debian_base.layout}:bookworm-slim", archive)
    call("podman", "load", "--input", scratch / "base.tar", environment=podman)
    call("podman", "build", "--tag", "built", scratch, environment=podman)
    assert call("podman", "run", "--rm", "built", "stat", "-c", "%u:%g", "/opt", environment=podman) == "12:34\n"


DEFINITION = """
Bootstrap: oci
From: {layout}

%post
    apt-get -qq update && apt-get -qq -y install --no-install-recommends ca-certificates
    chown 12:34 /opt

%test
    test "$(stat -c %u:%g /opt)" = 12:34

%runscript
    exec "$@"
"""


@pytest.mark.engine("apptainer build")
def test_apptainer_builds_with_a_network_and_runs_it(apptainer, debian_base, scratch):
    (scratch / "small.def").write_text(DEFINITION.format(layout=debian_base.layout))
    call("apptainer", "build", "--fakeroot", scratch / "small.sif", scratch / "small.def", environment=apptainer)
    script = "stat -c %u:%g /opt; ls /etc/ssl/certs/ca-certificates.crt"
    seen = call("singularity", "run", scratch / "small.sif", "sh", "-c", script, environment=apptainer)
    assert seen == "12:34\n/etc/ssl/certs/ca-certificates.crt\n"
