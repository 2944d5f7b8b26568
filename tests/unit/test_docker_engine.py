"""Which Docker daemon is meant, and what is said of one that cannot be used."""

import hashlib
import json
import socket

import pytest

from graphcrate.engines import oci
from graphcrate.host import docker_engine
from graphcrate.model.errors import HostError
from tests.unit.docker_daemon import DockerDaemon


@pytest.mark.parametrize(
    ("kind", "installed", "what", "step"),
    [
        ("none", True, "the Docker daemon is not running", "sudo systemctl start docker"),
        ("a dead one's socket", True, "the Docker daemon is not running", "sudo systemctl start docker"),
        ("none", False, "Docker is not installed", "sudo apt-get install docker.io"),
        ("elsewhere", True, "no Docker daemon answers at tcp://127.0.0.1:", "docker info"),
        ("something else", True, "no Docker daemon answers at tcp://127.0.0.1:", "docker info"),
    ],
)
def test_a_daemon_that_cannot_be_used_is_told_with_what_to_type(tmp_path, monkeypatch, kind, installed, what, step):
    monkeypatch.setattr(docker_engine.process, "find", lambda program: f"/usr/bin/{program}" if installed else None)
    address = f"unix://{tmp_path}/docker.sock"
    if kind == "a dead one's socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "docker.sock"))
    with socket.socket() as free, DockerDaemon(version="nonsense", api="nonsense") as daemon:
        if kind == "elsewhere":
            free.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        environment = daemon.environment if kind == "something else" else {"DOCKER_HOST": address}
        with pytest.raises(HostError) as caught, docker_engine.connected(environment):
            raise AssertionError("it is connected")
    assert caught.value.what.startswith(what)
    assert caught.value.next_step.startswith(step)
    error = docker_engine.explain(PermissionError(13, "Permission denied"), {"USER": "ada", "DOCKER_HOST": address})
    assert "may not be used by this user" in error.what
    assert error.next_step.startswith("sudo usermod -aG docker ada ")


def test_another_engine_is_named_where_one_can_be_chosen_and_by_its_option(typed, monkeypatch):
    monkeypatch.setattr(docker_engine.process, "find", lambda _: "/usr/bin/docker")
    monkeypatch.setattr(docker_engine, "endpoint", lambda _: "unix:///nowhere/docker.sock")
    code, _, err = typed("diff", "docker:foo", "docker:bar")
    assert (code, "--engine" in err, "--runner" in err) == (7, False, False), err
    engine = oci.StoreEngine("docker")
    for ask, option in ((engine.check, "--engine podman or --engine embedded"), (engine.runtime, "--runner embedded")):
        with pytest.raises(HostError, match=option):
            ask({})


def test_the_address_is_the_docker_commands_own(tmp_path, monkeypatch):
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"lab").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": "lab", "Metadata": {}, "Endpoints": {"docker": {"Host": "unix:///lab.sock"}}}))
    (tmp_path / "config.json").write_text('{"currentContext": "lab"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(docker_engine, "SOCKET", f"unix://{tmp_path / 'none'}")
    assert docker_engine.endpoint({"DOCKER_HOST": "tcp://a:1"}) == "tcp://a:1"
    assert docker_engine.endpoint({}) == "unix:///lab.sock"
    monkeypatch.setattr(docker_engine.ContextAPI.DEFAULT_CONTEXT, "endpoints", {})
    # a user's own, where the machine has none
    (tmp_path / "docker.sock").touch()
    default = {"DOCKER_CONTEXT": "default"}
    assert docker_engine.endpoint({"XDG_RUNTIME_DIR": str(tmp_path), **default}) == f"unix://{tmp_path}/docker.sock"
    assert docker_engine.endpoint(default) == f"unix://{tmp_path}/none"
