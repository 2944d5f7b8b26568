"""Docker, podman and NVIDIA's container tools."""

import json
from typing import Any, Dict, Iterator, Optional

from doctor.finding import Finding, fail, listed, note, numbers, ok, warn
from doctor.place import Place

GPUS_VERSION, CLONE3_VERSION = "19.03", "20.10.10"
QUESTION = b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n"


def judge_docker(place: Place, has_gpu: bool) -> Iterator[Finding]:
    """Whether the daemon answers you, and gives GPUs."""
    address = place.environment.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    path = address[len("unix://") :] if address.startswith("unix://") else ""
    if place.find("docker") is None and not (path and place.exists(path)):
        yield note("docker", "not installed")
    elif not path:
        yield note("docker", f"DOCKER_HOST={address}: on another machine, which the doctor does not ask")
    elif not place.exists(path):
        yield warn(
            "docker",
            f"installed, and no daemon: {path} is missing",
            "docker says `Cannot connect to the Docker daemon`",
            "as root: systemctl start docker",
        )
    else:
        for finding in _daemon(place, path, has_gpu):
            yield finding
    for finding in _podman(place, has_gpu):
        yield finding
    for finding in _tools(place, has_gpu):
        yield finding


def _daemon(place: Place, path: str, has_gpu: bool) -> Iterator[Finding]:
    try:
        told = _docker_says(place.ask_socket(path, QUESTION))
    except PermissionError:
        why = "the socket belongs to root and the group docker"
        yield warn(
            "docker", path + " is closed to you", why, "as root: usermod -aG docker $USER, then log in anew; or podman"
        )
        return
    except OSError as error:
        yield warn("docker", f"{path}: {error}", "the daemon does not answer", "as root: systemctl restart docker")
        return
    if told is None:
        yield warn("docker", path + " answers in no known way", "it may be no Docker daemon", "docker info")
        return
    version = str(told.get("ServerVersion", ""))
    runtimes = sorted(told.get("Runtimes") or {})
    yield ok("docker", f"{version}, runtimes: {listed(runtimes)}")
    if version and numbers(version) < numbers(GPUS_VERSION):
        yield warn(
            "docker-version",
            version,
            f"--gpus needs {GPUS_VERSION}",
            "docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all …",
        )
    elif version and numbers(version) < numbers(CLONE3_VERSION):
        why = "its seccomp filter does not know clone3: images with glibc 2.34 or newer say `can't start new thread`"
        yield warn(
            "docker-version",
            version,
            why,
            "docker run --security-opt seccomp=unconfined …; or an image on Debian bullseye",
        )
    if (
        has_gpu
        and "nvidia" not in runtimes
        and not (place.exists("/etc/cdi") or place.find("nvidia-container-runtime-hook"))
    ):
        why = '`could not select device driver "" with capabilities: [[gpu]]`'
        fix = (
            "as root: apt-get install nvidia-container-toolkit; nvidia-ctk runtime configure; systemctl restart docker"
        )
        yield fail("docker-gpu", "Docker has no NVIDIA runtime", why, fix)


def _docker_says(raw: bytes) -> Optional[Dict[str, Any]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    try:
        told = json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        return None
    return told if isinstance(told, dict) and b" 200 " in head.split(b"\r\n")[0] else None


def _podman(place: Place, has_gpu: bool) -> Iterator[Finding]:
    program = place.find("podman")
    if program is None:
        return
    done = place.run([program, "--version"])
    yield ok("podman", done.out.strip() if done and done.code == 0 else program)
    specifications = [name for folder in ("/etc/cdi", "/var/run/cdi") for name in place.names(folder)]
    if has_gpu and not any("nvidia" in name for name in specifications):
        fix = "as root: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        yield warn(
            "podman-gpu", "/etc/cdi has no nvidia.yaml", "podman run --device nvidia.com/gpu=all finds no GPU", fix
        )


def _tools(place: Place, has_gpu: bool) -> Iterator[Finding]:
    program = place.find("nvidia-container-cli")
    if program is None:
        if has_gpu:
            why = "Docker's --gpus and enroot's hook bring the driver in with it; Apptainer's --nv does without"
            yield note(
                "container-cli",
                "nvidia-container-cli is not installed",
                why,
                "as root: apt-get install libnvidia-container-tools",
            )
        return
    done = place.run([program, "--version"])
    if done is None or done.code != 0:
        seen = "{}: {}".format(program, ((done.err if done else "").strip().splitlines() or ["does not start"])[-1])
        yield fail("container-cli", seen, "containers get no GPU by it", "reinstall libnvidia-container")
    else:
        yield ok("container-cli", (done.out.strip().splitlines() or [program])[0])
