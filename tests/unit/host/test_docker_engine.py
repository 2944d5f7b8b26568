"""Finding the Docker daemon, and the message on one that cannot be used."""

import hashlib
import json
import socket

import pytest

from graphcrate.engines import oci
from graphcrate.host.engines import docker_engine
from graphcrate.model.errors import HostError
from tests.unit.docker_daemon import DockerDaemon


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with Docker and systemd, whose own daemon's socket would be in a folder of the test."""
    own = f"unix://{tmp_path}/docker.sock"
    monkeypatch.setattr(docker_engine, "SOCKET", own)
    monkeypatch.setattr(docker_engine, "SYSTEM_SOCKETS", (own,))
    monkeypatch.setattr(docker_engine, "SYSTEMD", tmp_path)
    monkeypatch.setattr(docker_engine, "INIT_SCRIPT", tmp_path / "init")
    monkeypatch.setattr(docker_engine.process, "find", lambda program: f"/usr/bin/{program}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))  # which the SDK reads contexts from
    return {"DOCKER_HOST": own}


def refusal(environment):
    with pytest.raises(HostError) as caught, docker_engine.connected(environment):
        raise AssertionError("it is connected")
    return caught.value


@pytest.mark.parametrize("socket_is_there", [False, True])
def test_stopped_daemon_is_started_by_systemd(machine, tmp_path, socket_is_there):
    if socket_is_there:  # as a killed daemon leaves it
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "docker.sock"))
    error = refusal(machine)
    assert (error.what, error.next_step) == ("the Docker daemon is not running", "sudo systemctl start docker")


def test_missing_docker_is_installed_then_started(machine, monkeypatch):
    monkeypatch.setattr(docker_engine.process, "find", lambda program: None)
    error = refusal(machine)
    assert error.what == "Docker is not installed"
    assert error.next_step == "sudo apt-get install docker.io    (then `sudo systemctl start docker`)"


@pytest.mark.parametrize(
    ("where", "systemd", "init_script", "command"),
    [
        ("unix:///var/run/docker.sock", True, True, "sudo systemctl start docker"),
        ("unix:///run/docker.sock", True, True, "sudo systemctl start docker"),
        ("unix:///var/run/docker.sock", False, True, "sudo service docker start"),  # WSL, containers
        ("unix:///var/run/docker.sock", False, False, "sudo dockerd &"),
        ("unix:///run/user/1000/docker.sock", True, True, "systemctl --user start docker"),
        ("unix:///run/user/1000/docker.sock", False, True, "dockerd-rootless.sh &"),
        ("unix:///mine/docker.sock", True, True, "systemctl --user start docker"),  # XDG_RUNTIME_DIR
        ("unix:///home/ada/.docker/desktop/docker.sock", True, False, "systemctl --user start docker-desktop"),
        ("unix:///tmp/forwarded.sock", True, True, "unset DOCKER_HOST"),
    ],
)
def test_start_command_is_of_the_daemon_behind_the_socket(tmp_path, monkeypatch, where, systemd, init_script, command):
    monkeypatch.setattr(docker_engine, "SYSTEMD", tmp_path if systemd else tmp_path / "no")
    monkeypatch.setattr(docker_engine, "INIT_SCRIPT", tmp_path if init_script else tmp_path / "no")
    monkeypatch.setattr(docker_engine.process, "find", lambda program: f"/usr/bin/{program}")
    environment = {"DOCKER_HOST": where, "XDG_RUNTIME_DIR": "/mine"}
    error = docker_engine.explain(FileNotFoundError(2, "No such file or directory"), environment)
    assert (error.what, error.cause) == ("the Docker daemon is not running", f"Nothing answers at {where}.")
    assert error.next_step.partition("    ")[0] == command


@pytest.mark.parametrize("answer", ["nothing listens", "no version"])
def test_silent_remote_daemon_names_the_variable_to_unset(machine, answer):
    with socket.socket() as free, DockerDaemon(version="nonsense", api="nonsense") as daemon:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        where = address if answer == "nothing listens" else daemon.environment["DOCKER_HOST"]
        error = refusal({"DOCKER_HOST": where})
    assert error.what.startswith(f"no Docker daemon answers at {where}: ")
    assert error.cause == "DOCKER_HOST names it."
    assert error.next_step.startswith(f"docker --host {where} info ")
    assert "`unset DOCKER_HOST`" in error.next_step


@pytest.mark.parametrize(
    ("variables", "origin", "command"),
    [
        ({"DOCKER_CONTEXT": "lab"}, "DOCKER_CONTEXT", "unset DOCKER_CONTEXT"),
        ({}, "Docker's context", "docker context use default"),
    ],
)
def test_silent_daemon_of_a_context_names_what_leaves_it(monkeypatch, variables, origin, command):
    monkeypatch.setattr(docker_engine, "endpoint", lambda _: "ssh://lab.example")
    error = docker_engine.explain(ConnectionError("refused"), variables)
    assert (error.cause, f"`{command}`" in error.next_step) == (f"{origin} names it.", True)


def test_forbidden_socket_of_the_system_needs_the_group(machine):
    error = docker_engine.explain(PermissionError(13, "Permission denied"), {"USER": "ada", **machine})
    assert "may not be used by this user" in error.what
    assert error.next_step.startswith("sudo usermod -aG docker ada ")


def test_forbidden_socket_of_another_user_is_left_alone(machine):
    environment = {"USER": "ada", "DOCKER_HOST": "unix:///run/user/1000/docker.sock"}
    error = docker_engine.explain(PermissionError(13, "Permission denied"), environment)
    assert (error.cause, error.next_step.partition("    ")[0]) == (
        "DOCKER_HOST names it, and the socket is another user's.", "unset DOCKER_HOST",
    )  # fmt: skip


def test_docker_error_names_another_engine_by_the_option_of_its_command(typed, monkeypatch):
    monkeypatch.setattr(docker_engine.process, "find", lambda _: "/usr/bin/docker")
    monkeypatch.setattr(docker_engine, "endpoint", lambda _: "unix:///nowhere/docker.sock")
    code, _, err = typed("diff", "docker:foo", "docker:bar")
    assert (code, "--engine" in err, "--runner" in err) == (7, False, False), err
    engine = oci.StoreEngine("docker")
    for ask, option in ((engine.check, "--engine podman or --engine embedded"), (engine.runtime, "--runner embedded")):
        with pytest.raises(HostError, match=option):
            ask({})


def test_docker_endpoint_is_that_of_the_current_context(tmp_path, monkeypatch):
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
