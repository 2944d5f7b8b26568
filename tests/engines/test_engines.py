"""Programs that people have read the image: skopeo and umoci, and PyTorch runs from it in podman and Docker."""

import json
import subprocess
import time

import pytest

from tests.conftest import program

IMPORT_TORCH = ["python", "-c", "import torch; print('torch', torch.__version__, float(torch.ones(3, 3).sum()))"]

pytestmark = [pytest.mark.build, pytest.mark.network, pytest.mark.engine("mmdebstrap")]


def call(*command, environment=None, timeout=900):
    """stdout of a program that has to succeed."""
    done = subprocess.run(
        [program(command[0]), *map(str, command[1:])],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


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
def test_podman_runs_it(built_image, scratch):
    podman = ["podman", "--root", scratch / "storage", "--runroot", scratch / "run", "--cgroup-manager", "cgroupfs"]
    podman += ["--runtime", "runc", "--events-backend", "file"]
    # the limits: a machine without CAP_SYS_RESOURCE cannot raise them to podman's own
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none"]
    output = call(*podman, "run", "--rm", *limits, f"oci:{built_image.reference}", *IMPORT_TORCH)
    assert expected(built_image) in output


@pytest.mark.engine("dockerd", "docker", "skopeo", "root")
def test_docker_runs_it(built_image, docker):
    name = f"{built_image.report['name']}:{built_image.report['tag']}"
    source, target = f"oci:{built_image.reference}", f"docker-daemon:{name}"
    call("skopeo", "copy", "--insecure-policy", "--dest-daemon-host", docker, source, target)
    output = call("docker", "--host", docker, "run", "--rm", "--network", "none", name, *IMPORT_TORCH)
    assert expected(built_image) in output
    assert json.loads(call("docker", "--host", docker, "image", "inspect", name))[0]["Config"]["Volumes"] is None


@pytest.fixture
def docker(scratch):
    """Address of a Docker daemon of our own, which touches neither the machine's network nor its Docker."""
    socket, log = scratch / "socket", scratch / "log"
    command = [program("dockerd"), "--host", f"unix://{socket}", "--pidfile", scratch / "pid"]
    command += ["--data-root", scratch / "root", "--exec-root", scratch / "exec"]
    command += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
    with log.open("w") as stream:
        daemon = subprocess.Popen(command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while not socket.exists():
                assert daemon.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.2)
            yield f"unix://{socket}"
        finally:
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
