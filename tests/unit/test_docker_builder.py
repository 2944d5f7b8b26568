"""The Docker builder against a daemon of our own on loopback: what it asks, what it makes of every answer."""

import io
import json
import tarfile

import pytest

from graphcrate.engines.builders import Order, docker
from graphcrate.engines.builders import base as foundation
from graphcrate.host.cache import Cache
from graphcrate.model.errors import BuildError, HostError
from tests.unit.docker_daemon import DockerDaemon
from tests.unit.test_embedded_builder import Shown, planned
from tests.unit.test_foundation import make_base, make_layer

MADE = "sha256:" + "ab" * 32
STEP = "sha256:" + "cd" * 32
OLD = "sha256:" + "ef" * 32
GOOD = [
    {"stream": "Step 1/2 : FROM base"},
    {"stream": "\n"},
    {"stream": f" ---> {STEP[7:19]}\n"},
    {"stream": "Step 2/2 : RUN thing\n"},
    {"stream": " ---> Running in 0123456789ab\n"},
    {"stream": "half a "},
    {"stream": "line\n"},
    {"aux": {"ID": MADE}},
    {"stream": f"Successfully built {MADE[7:19]}\n"},
]
FAILED = [
    *GOOD[:5],
    {"stream": "the last words\n"},
    {"error": "The command '/bin/sh -c thing' returned a non-zero code: 4", "errorDetail": {"code": 4}},
]


def image(digest, layers=()):
    return {"Id": digest, "Size": 12345, "RootFS": {"Layers": list(layers)}}


@pytest.fixture
def cache(tmp_path):
    cache = Cache(tmp_path / "cache")
    yield cache
    cache.close()


@pytest.fixture
def daemon():
    with DockerDaemon(events=GOOD, images={"-made": image(MADE), "-step": image(STEP)}) as daemon:
        yield daemon


@pytest.fixture
def order(tmp_path, cache, daemon, monkeypatch):
    monkeypatch.setattr(docker.settings, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(docker, "dockerfile", lambda plan, form: f"FROM base {form.cache_mounts}\n")
    return Order(
        plan=planned(),
        folder=tmp_path,
        base=make_base(make_layer(cache, "one")),
        files={},
        arguments={"PACKAGE_INDEX": "https://me:hush@index.example.com/simple"},
        certificates=None,
        cache=cache,
        environment={**daemon.environment, "http_proxy": "http://proxy.example.com:3128", "no_proxy": "127.0.0.1"},
        progress=Shown(),
    )


def changed(order, **values):
    return Order(**{**vars(order), **values})


def test_the_classic_builder_is_asked_for_the_whole_plan(order, daemon):
    artifact = docker.build(order)
    arguments = json.loads(daemon.query["buildargs"])
    base = foundation.reference(foundation.layout(order.base, order.cache))
    assert arguments == {
        "BASE": base,
        "PACKAGE_INDEX": "https://me:hush@index.example.com/simple",
        "http_proxy": "http://proxy.example.com:3128",
        "HTTP_PROXY": "http://proxy.example.com:3128",
        "no_proxy": "127.0.0.1",
        "NO_PROXY": "127.0.0.1",
    }
    assert daemon.context["Dockerfile"] == b"FROM base False\n"
    assert daemon.query["forcerm"] == "True"
    assert "t" not in daemon.query, "an image gets its name when it is whole"
    assert "networkmode" not in daemon.query
    assert (artifact.reference, artifact.digest, artifact.bytes) == ("pkg:1.0", MADE, 12345)
    assert daemon.images["pkg:1.0"]["Id"] == MADE
    assert (order.folder / "build.log").read_text().splitlines()[-2:] == [
        "half a line",
        f"Successfully built {MADE[7:19]}",
    ]
    assert "docker 2/2 RUN thing" in order.progress.tasks


def test_the_base_is_loaded_once(order, daemon):
    docker.build(order)
    name = foundation.reference(foundation.layout(order.base, order.cache))
    with tarfile.open(fileobj=io.BytesIO(daemon.loaded)) as archive:
        assert json.load(archive.extractfile("manifest.json"))[0]["RepoTags"] == [name]
    daemon.loaded = b""
    daemon.images[name] = image(OLD, [layer.diff_id for layer in order.base.layers])
    docker.build(order)
    assert daemon.loaded == b""
    daemon.images[name] = image(OLD, ["sha256:another"])
    docker.build(order)
    assert daemon.loaded


def test_without_a_base_the_text_says_what_to_pull(order, daemon):
    docker.build(changed(order, base=None))
    assert "BASE" not in json.loads(daemon.query["buildargs"])
    assert daemon.loaded == b""


def test_a_proxy_on_loopback_is_reached_through_the_hosts_network(order, daemon):
    environment = {**order.environment, "http_proxy": "http://localhost:3128"}
    docker.build(changed(order, environment=environment))
    assert daemon.query["networkmode"] == "host"


def test_what_the_build_left_gets_a_name_and_older_ones_go(order, daemon):
    daemon.images["graphcrate/steps:pkg-1.0-efefefefefef"] = image(OLD)
    daemon.images["graphcrate/steps:other-1.0-efefefefefef"] = image(OLD)
    docker.build(order)
    names = {name for name in daemon.images if name.startswith("graphcrate/steps")}
    assert names == {"graphcrate/steps:pkg-1.0-cdcdcdcdcdcd", "graphcrate/steps:other-1.0-efefefefefef"}


def test_a_failure_has_the_step_its_words_and_the_log(order, daemon):
    daemon.events = FAILED
    daemon.images["graphcrate/steps:pkg-1.0-efefefefefef"] = image(OLD)
    with pytest.raises(BuildError) as caught:
        docker.build(order)
    assert caught.value.what == "docker build of pkg:1.0 failed at step 2/2 RUN thing\n    the last words"
    assert caught.value.cause == "The command ended with exit code 4."
    assert str(order.folder / "build.log") in caught.value.next_step
    assert "pkg:1.0" not in daemon.images
    assert daemon.images["graphcrate/steps:pkg-1.0-cdcdcdcdcdcd"]["Id"] == STEP, "kept for the next try"
    assert "graphcrate/steps:pkg-1.0-efefefefefef" in daemon.images, "so are those of earlier tries"
    assert ("POST", "/containers/0123456789ab/wait") in daemon.asked


def test_a_refused_text_is_a_build_error(order, daemon):
    daemon.refusal = (400, "dockerfile parse error line 3: unknown instruction: RUNN")
    with pytest.raises(BuildError, match="unknown instruction: RUNN"):
        docker.build(order)


def test_a_daemon_that_dies_is_an_error_of_the_machine(order, daemon):
    daemon.dies = True
    with pytest.raises(HostError, match="the connection to the Docker daemon broke") as caught:
        docker.build(order)
    assert "finished steps are kept" in caught.value.next_step
    assert "pkg:1.0" not in daemon.images


def test_no_password_reaches_log_or_eyes(order, daemon):
    daemon.events = [{"stream": "Step 1/1 : RUN curl https://me:hush@index.example.com/simple\n"}, *GOOD[-2:]]
    docker.build(order)
    assert "hush" not in (order.folder / "build.log").read_text() + str(order.progress.tasks)


@pytest.mark.parametrize(("api", "version"), [("1.26", "17.03.2"), ("1.22", "1.10.3")])
def test_a_daemon_that_is_too_old_is_refused_by_name(order, daemon, api, version):
    daemon.api, daemon.version = api, version
    for refused in (lambda: docker.check(order.environment), lambda: docker.build(order)):
        with pytest.raises(HostError, match=rf"Docker Engine {version} is too old for .*: that needs [0-9.]+ or later"):
            refused()
    assert not daemon.query


def test_the_check_tells_version_and_builder(order):
    assert docker.check(order.environment) == "Docker Engine 20.10.24 (classic builder)"


@pytest.mark.parametrize(
    ("said", "buildx", "chosen"),
    [
        ("Docker version 20.10.24+dfsg1, build 297e128", 1, True),
        ("Docker version 28.2.2, build e6534b4", 1, False),
        ("Docker version 28.2.2, build e6534b4", 0, True),
        ("podman version 4.3.1", 0, False),
    ],
)
def test_a_client_is_taken_for_buildkit_only_if_it_has_it(order, tmp_path, monkeypatch, said, buildx, chosen):
    client = tmp_path / "bin" / "docker"
    client.parent.mkdir()
    client.touch(mode=0o755)

    def run(argv, **_):
        assert argv[0] == str(client)
        return docker.process.Completed(0, (said,)) if argv[1] == "--version" else docker.process.Completed(buildx, ())

    monkeypatch.setattr(docker.process, "run", run)
    environment = {**order.environment, "PATH": f"/nonexistent:{client.parent}"}
    with docker.docker_engine.connected(environment) as engine:
        assert docker.buildkit_client(engine, environment) == (str(client) if chosen else "")


def test_an_old_daemon_builds_without_buildkit(order, daemon, monkeypatch):
    daemon.api = "1.40"
    monkeypatch.setattr(docker, "_has_buildkit", lambda *_: True)
    with docker.docker_engine.connected(order.environment) as engine:
        assert docker.buildkit_client(engine, {"PATH": "/usr/bin"}) == ""


def test_buildkit_gets_its_arguments_through_the_environment(order, daemon, monkeypatch):
    seen = {}

    def run(argv, *, environment, on_line):
        seen.update(argv=argv, environment=environment)
        on_line("#5 [2/2] RUN thing")
        ids = argv[argv.index("--iidfile") + 1]
        with open(ids, "w") as stream:  # noqa: PTH123
            stream.write(MADE)
        return docker.process.Completed(0, ())

    monkeypatch.setattr(docker, "buildkit_client", lambda *_: "/usr/bin/docker")
    monkeypatch.setattr(docker.process, "find", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(docker.process, "run", run)
    environment = {**order.environment, "BUILDX_BUILDER": "elsewhere"}
    assert docker.build(changed(order, environment=environment)).digest == MADE
    assert "hush" not in " ".join(seen["argv"])
    assert seen["argv"][:4] == ["setpriv", "--pdeathsig", "TERM", "--"]
    assert seen["argv"][4:9] == ["/usr/bin/docker", "--host", order.environment["DOCKER_HOST"], "build", "--progress"]
    assert seen["environment"]["PACKAGE_INDEX"] == "https://me:hush@index.example.com/simple"
    assert seen["environment"]["DOCKER_BUILDKIT"] == "1"
    assert seen["environment"]["BUILDX_BUILDER"] == "default"
    assert not daemon.query
