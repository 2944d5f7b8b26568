"""What the Docker runner asks of the daemon for a command, its answers given by the tests."""

from pathlib import Path

import docker.errors
import pytest

from graphcrate.engines.runners import docker as runner
from graphcrate.host.docker_engine import Engine
from graphcrate.host.gpu import HostGpu
from graphcrate.host.sandbox import Bind
from graphcrate.model.errors import BuildError, HostError


class Api:
    """Stands for the SDK. `chunks` is what the container says."""

    def __init__(self, *chunks, refusal=""):
        self.chunks, self.refusal, self.done = chunks, refusal, []

    def create_host_config(self, **options):
        return options

    def create_container(self, image, **options):
        self.image, self.options = image, options
        return {"Id": "container"}

    def start(self, container):
        self.done.append("start")
        if self.refusal:
            raise docker.errors.APIError("500", explanation=self.refusal)

    def logs(self, container, **_):
        yield from self.chunks

    def wait(self, container, timeout=None):
        return {"StatusCode": 137 if "kill" in self.done else 3}

    def kill(self, container):
        self.done.append("kill")

    def remove_container(self, container, force, v):
        self.done.append("remove")


def inside(api, version=(1, 41)):
    engine = Engine(api=api, endpoint="unix:///x", version="1.2.3", api_version=version)
    return runner.Inside(engine, "pkg:1.0")


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(runner.gpu, "detect", lambda: HostGpu(devices=("/dev/nvidia0",)))


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(runner.gpu, "detect", HostGpu)


def test_a_container_gets_what_the_command_needs_and_goes(tmp_path):
    api = Api(b"one\ntw", b"o\r", b"\xffthree")
    heard = []
    binds = (Bind(tmp_path, "/out", read_only=False), Bind(tmp_path, "/in"))
    done = inside(api).run(
        ["python", "-c", "x"], environment={"A": "b"}, binds=binds, working_folder="/out", on_line=heard.append
    )
    assert (done.returncode, done.lines) == (3, ("one", "two", "\ufffdthree"))
    assert heard == list(done.lines)
    assert api.options["entrypoint"] == ["python"], "the image's own is not used"
    assert api.options["command"] == ["-c", "x"]
    assert (api.options["environment"], api.options["working_dir"]) == ({"A": "b"}, "/out")
    host = api.options["host_config"]
    assert host["network_mode"] == "none"
    assert host["shm_size"] >= 1 << 30
    assert [(mount["Target"], mount["ReadOnly"]) for mount in host["mounts"]] == [("/out", False), ("/in", True)]
    assert {Path(mount["Source"]) for mount in host["mounts"]} == {tmp_path}
    assert api.done == ["start", "remove"]


def test_a_gpu_is_asked_for_where_there_is_one(with_gpu):
    api = Api()
    inside(api).run(["x"], gpu=True, network=True)
    (request,) = api.options["host_config"]["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])
    assert "network_mode" not in api.options["host_config"]
    inside(api).run(["x"])
    assert "device_requests" not in api.options["host_config"]


def test_no_gpu_is_asked_for_where_there_is_none(without_gpu):
    api = Api()
    inside(api).run(["x"], gpu=True)
    assert "device_requests" not in api.options["host_config"]


def test_a_daemon_too_old_for_gpus_is_refused_by_name(with_gpu):
    with pytest.raises(
        HostError, match=r"Docker Engine 1\.2\.3 is too old for containers with GPUs: that needs 19\.03"
    ):
        inside(Api(), (1, 39)).run(["x"], gpu=True)


def test_a_daemon_without_nvidias_toolkit_is_told_how_to_get_it(with_gpu):
    api = Api(refusal='could not select device driver "" with capabilities: [[gpu]]')
    with pytest.raises(HostError) as caught:
        inside(api).run(["x"], gpu=True)
    assert "could not select device driver" in caught.value.what
    assert caught.value.next_step.startswith("sudo nvidia-ctk runtime configure")
    assert api.done == ["start", "remove"]


def test_a_command_that_takes_too_long_is_killed_and_removed():
    api = Api()

    def until_killed(container, **_):
        while "kill" not in api.done:
            yield b""
        yield b"last words\n"

    api.logs = until_killed
    heard = []
    with pytest.raises(BuildError, match=r"x in pkg:1\.0 did not finish within 0 s"):
        inside(api).run(["x"], timeout=0.01, on_line=heard.append)
    assert heard == ["last words"]
    assert api.done == ["start", "kill", "remove"]


def test_an_interrupt_removes_the_container():
    api = Api(b"line\n")

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inside(api).run(["x"], on_line=interrupt, timeout=600)
    assert api.done == ["start", "remove"]


def test_a_daemon_that_dies_meanwhile_is_an_error_of_the_machine():
    api = Api()

    def dies(container, **_):
        yield b"line\n"
        raise docker.errors.DockerException("gone")

    api.logs = dies
    with pytest.raises(HostError, match="the connection to the Docker daemon broke: gone"):
        inside(api).run(["x"])
    assert api.done == ["start", "remove"]
