"""Which Docker daemon is meant, and what is said of one that cannot be used."""

import hashlib
import json
import socket

import pytest

from graphcrate.host import docker_engine
from graphcrate.model.errors import HostError
from tests.unit.docker_daemon import DockerDaemon

OWN = f"unix://{docker_engine.SOCKET}"


def refused(environment):
    with pytest.raises(HostError) as caught, docker_engine.connected(environment):
        raise AssertionError("it is connected")
    return caught.value


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(docker_engine.process, "find", lambda program: f"/usr/bin/{program}")


@pytest.fixture
def systemd(monkeypatch):
    monkeypatch.setattr(docker_engine, "start_command", lambda where: "sudo systemctl start docker")


@pytest.mark.parametrize("left", [False, True], ids=["none", "the socket of a dead one"])
def test_a_daemon_that_is_not_running_is_started_by_name(tmp_path, installed, systemd, left):
    if left:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "docker.sock"))
    error = refused({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})
    assert error.what == "the Docker daemon is not running"
    assert error.next_step.startswith("sudo systemctl start docker ")
    assert "--engine embedded" in error.next_step


def test_a_machine_without_docker(tmp_path, monkeypatch):
    monkeypatch.setattr(docker_engine.process, "find", lambda program: None)
    error = refused({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})
    assert error.what == "Docker is not installed"
    assert error.next_step.startswith("sudo apt-get install docker.io")


def test_a_user_outside_the_group(installed):
    error = docker_engine.explain(OWN, PermissionError(13, "Permission denied"), {"USER": "ada"})
    assert "may not be used by this user" in error.what
    assert error.next_step.startswith("sudo usermod -aG docker ada ")


def test_a_daemon_elsewhere_that_does_not_answer():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    error = refused({"DOCKER_HOST": address})
    assert error.what.startswith(f"no Docker daemon answers at {address}: ")
    assert "refused" in error.what.lower()


def test_something_else_that_answers():
    with DockerDaemon() as daemon:
        daemon.version = daemon.api = "nonsense"
        error = refused(daemon.environment)
    assert error.what.startswith("no Docker daemon answers at tcp://127.0.0.1:")


def test_the_address_is_the_docker_commands_own(tmp_path, monkeypatch):
    assert docker_engine.endpoint({"DOCKER_HOST": "tcp://a:1"}) == "tcp://a:1"
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"lab").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": "lab", "Endpoints": {"docker": {"Host": "unix:///lab.sock"}}}))
    (tmp_path / "config.json").write_text('{"currentContext": "lab"}')
    assert docker_engine.endpoint({"DOCKER_CONFIG": str(tmp_path)}) == "unix:///lab.sock"
    assert docker_engine.endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "default"}) == OWN
    (tmp_path / "config.json").write_text("[broken")
    assert docker_engine.endpoint({"DOCKER_CONFIG": str(tmp_path)}) == OWN
    assert docker_engine.endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "lab"}) == "unix:///lab.sock"
    # a user's own, where the machine has none
    monkeypatch.setattr(docker_engine, "SOCKET", str(tmp_path / "none"))
    (tmp_path / "docker.sock").touch()
    assert docker_engine.endpoint({"XDG_RUNTIME_DIR": str(tmp_path)}) == f"unix://{tmp_path}/docker.sock"
    assert docker_engine.endpoint({}) == f"unix://{tmp_path}/none"
