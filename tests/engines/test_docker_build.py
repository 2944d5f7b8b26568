"""The builders and runners of Docker (both of its builders) and podman with the real engines, on a tiny base."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphcrate.engines import oci
from graphcrate.host.disk.cache import Cache
from graphcrate.host.engines import oci_engine
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.errors import BuildError, HostError
from nsbox.box import Bind
from tests.conftest import ROOT, program
from tests.engines import tiny
from tests.engines.daemons import shared_docker, shared_podman
from tests.engines.workplace import running, until
from tests.unit.smoke.test_gate import report

pytestmark = pytest.mark.slow

UUID = "/proc/sys/kernel/random/uuid"
GOOD = f"""ARG BASE=nothing
FROM ${{BASE}} AS build
RUN cat {UUID} > /tmp/word
FROM ${{BASE}}
COPY --from=build /tmp/word /opt/word
ENV WORD="two words"
LABEL made.by="a test"
CMD ["cat", "/opt/word"]
"""
BAD = f"""ARG BASE=nothing
FROM ${{BASE}}
RUN cat {UUID} > /opt/word && cat /opt/word
RUN seq 100 && echo gone wrong && exit 3
RUN seq 7
"""
SLEEP = "54321"
SLOW = f"ARG BASE=nothing\nFROM ${{BASE}}\nRUN cat {UUID} > /opt/word\nRUN sleep {SLEEP}\n"


@dataclass(frozen=True)
class Site:
    """An engine with what the tests ask of it."""

    name: str
    engine: oci.StoreEngine
    environment: dict
    command: tuple
    cache: Cache

    def call(self, *arguments):
        """stdout of the engine's own command."""
        command = [*self.command, *map(str, arguments)]
        return subprocess.check_output(command, env=self.environment, stdin=subprocess.DEVNULL)

    def inspect(self, reference):
        return json.loads(self.call("image", "inspect", reference))[0]

    def has(self, reference):
        asked = [*self.command, "image", "inspect", reference]
        return not subprocess.run(asked, env=self.environment, capture_output=True, check=False).returncode

    def has_built(self, artifact):
        return self.engine.exists(report(artifact=artifact), Path(), self.environment)

    def leftovers(self):
        """Containers of any kind. Images without a name are the engine's cache of finished steps."""
        every = ["--external"] if self.name == "podman" else []
        return self.call("ps", "--all", "--quiet", *every).split()

    def order(self, folder, **changes):
        return tiny.order(folder, self.cache, changes.pop("environment", self.environment), **changes)


# Alone: what other modules have in these engines would be taken for leftovers.
@pytest.fixture(scope="module", name="docker")
def docker_alone(shared):
    with shared.turn("docker", alone=True):
        yield shared_docker(shared)


@pytest.fixture(scope="module", name="podman")
def podman_alone(shared):
    with shared.turn("podman", alone=True):
        yield shared_podman(shared)


@pytest.fixture(
    params=[
        pytest.param("classic", marks=pytest.mark.engine("docker daemon")),
        pytest.param("buildkit", marks=pytest.mark.engine("docker daemon")),
        pytest.param("podman", marks=pytest.mark.engine("podman", "runc", "root")),
    ]
)
def site(request, cache, monkeypatch, shared):
    engine = "podman" if request.param == "podman" else "docker"
    given = request.getfixturevalue(engine)
    environment = given if engine == "podman" else {**os.environ, "DOCKER_HOST": given}
    monkeypatch.setattr(oci.settings, "environment", lambda: environment)
    if request.param == "classic":
        monkeypatch.setattr(oci_engine, "_has_buildkit", lambda *_: False)
    elif request.param == "buildkit" and not oci_engine.find("docker", environment).buildkit:
        pytest.skip("the docker command here has no BuildKit")
    return Site(request.param, oci.StoreEngine(engine), environment, (program(engine),), cache)


@pytest.fixture
def write(site, monkeypatch):
    """Let the builder render this text; afterwards nothing of the test is left in the engine."""
    if site.name == "buildkit":
        site.call("builder", "prune", "--all", "--force")
    yield lambda text: monkeypatch.setattr(oci, "dockerfile", lambda *_, **__: text)
    for name in site.call("images", "--format", "{{.Repository}}:{{.Tag}}", "graphcrate-test").decode().split():
        site.call("rmi", name)
    site.call("image", "prune", "--force")
    assert site.leftovers() == []


@pytest.fixture
def built(site, write, tmp_path):
    write(GOOD)
    order = site.order(tmp_path)
    return site.engine.build(order).artifact, order


def word(site, reference="graphcrate-test:1.0"):
    run = ["run", "--rm", "--network", "none"]
    return site.call(*run, reference, "cat", "/opt/word").decode().strip()


def test_an_image_is_built_named_and_nothing_else_is_left(site, built):
    artifact, order = built
    assert (artifact.reference, artifact.kind) == ("graphcrate-test:1.0", artifact.engine)
    told = site.inspect(artifact.reference)
    assert artifact.digest.removeprefix("sha256:") == told["Id"].removeprefix("sha256:")
    assert artifact.bytes == told["Size"] > 1_000_000
    config = told["Config"]
    assert config["Labels"]["made.by"] == "a test"
    assert config["Cmd"] == ["cat", "/opt/word"]
    assert {"WORD=two words", "PATH=/usr/bin:/bin"} <= set(config["Env"])
    assert len(word(site)) == 36
    assert site.leftovers() == []
    assert f"cat {UUID}" in Path(artifact.log).read_text()
    assert any("RUN cat" in note for note in order.progress.notes)
    assert site.has_built(artifact)


def test_a_second_build_takes_the_steps_of_the_first_and_a_changed_image_its_place(site, write, built, tmp_path):
    first = word(site)
    assert site.engine.build(site.order(tmp_path)).artifact.digest
    assert word(site) == first
    write(GOOD.replace("two words", "three words"))
    artifact = site.engine.build(site.order(tmp_path)).artifact
    assert artifact.digest != built[0].digest
    assert not site.has_built(built[0])
    assert not site.has(built[0].digest.removeprefix("sha256:"))
    assert site.leftovers() == []


def test_a_step_that_fails_is_shown_with_its_last_lines(site, write, tmp_path):
    write(BAD)
    with pytest.raises(BuildError) as caught:
        site.engine.build(site.order(tmp_path))
    what, lines = caught.value.what.splitlines()[0], caught.value.what.splitlines()[1:]
    assert "graphcrate-test:1.0 failed at step" in what
    assert "RUN seq 100" in what
    assert any(line.endswith("gone wrong") for line in lines)
    assert any(line.endswith("99") for line in lines)
    assert len(lines) == 20
    assert "3" in caught.value.cause
    log = tmp_path / "build.log"
    assert str(log) in caught.value.next_step
    said = log.read_text()
    assert "gone wrong" in said
    assert not site.has("graphcrate-test:1.0")
    assert site.leftovers() == []
    write(BAD.replace("exit 3", "echo mended"))  # what came before is there for the next try
    site.engine.build(site.order(tmp_path))
    assert word(site) in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_build_leaves_no_process(site, write, tmp_path, number):
    if (site.name, number) == ("podman", signal.SIGKILL):
        # no connection tells podman: it ends when it next says something, so there is nothing to wait for here
        number = signal.SIGTERM
    command = [sys.executable, "-m", "tests.engines.tiny", site.name, tmp_path, tmp_path / "cache", SLOW]
    with subprocess.Popen(command, cwd=ROOT, env=site.environment, stdout=subprocess.PIPE, encoding="utf-8") as started:
        try:
            until(lambda: running("sleep", SLEEP), process=started)
            started.send_signal(number)
            said, _ = started.communicate(timeout=60)
        finally:
            started.kill()
    until(lambda: not running("sleep", SLEEP))
    until(lambda: not site.call("ps", "--all", "--quiet"))
    assert not site.has("graphcrate-test:1.0")
    if number != signal.SIGKILL:
        assert said.endswith("interrupted\n"), said
        assert site.leftovers() == []
    write(SLOW.replace(f"sleep {SLEEP}", "sleep 0"))
    site.engine.build(site.order(tmp_path))
    assert site.leftovers() == []


def test_proxies_certificates_and_arguments_do_not_stay(site, write, tmp_path):
    (tmp_path / "authorities.pem").write_text("-----BEGIN hushed-authority-----\n")
    write("""ARG BASE=nothing
FROM ${BASE} AS build
ARG MIRROR
COPY Dockerfile ca.crt* /context/
RUN cat /context/ca.crt && echo "$http_proxy $HTTP_PROXY $https_proxy $MIRROR" > /tmp/seen && cat /tmp/seen
RUN ls /tmp/seen && echo word > /opt/word
FROM ${BASE}
COPY --from=build /opt /opt
""")
    hidden = {"http_proxy": "http://me:hushed-1@203.0.113.1:8", "HTTPS_PROXY": "http://me:hushed-2@203.0.113.1:8"}
    order = site.order(
        tmp_path,
        environment={**site.environment, **hidden},
        arguments={"MIRROR": "https://you:hushed-3@203.0.113.2/simple"},
        certificates=tmp_path / "authorities.pem",
    )
    artifact = site.engine.build(order).artifact
    log = Path(artifact.log).read_text()
    assert "BEGIN hushed-authority" in log
    seen = "http://***@203.0.113.1:8 http://***@203.0.113.1:8 http://***@203.0.113.1:8 https://***@203.0.113.2/simple"
    assert seen in log
    history = site.call("history", "--no-trunc", artifact.reference)
    image = site.call("save", artifact.reference)
    shown = "\n".join([log.replace("hushed-authority", ""), *order.progress.notes]).encode()
    for told in (history, image, json.dumps(site.inspect(artifact.reference)).encode(), shown):
        assert b"hushed" not in told


def test_command_in_an_image_has_environment_binds_folder_and_exit_code(site, built, tmp_path):
    artifact, order = built
    (tmp_path / "bound").mkdir()
    (tmp_path / "bound" / "given").write_text("given\n")
    heard = []
    with site.engine.opened(artifact, cache=order.cache, progress=order.progress) as inside:
        script = 'echo "$WORD $EXTRA" && cat given && echo made > made && ls /sys/class/net; exit 7'
        binds = (Bind(tmp_path / "bound", "/bound", read_only=False),)
        command = Exec(["sh", "-c", script], {"EXTRA": "more words"}, binds, cwd="/bound", on_line=heard.append)
        done = inside.run(command)
        assert done.returncode == 7
        assert sorted(done.lines) == sorted(heard) == ["given", "lo", "two words more words"]
        assert (tmp_path / "bound" / "made").read_text() == "made\n"
        mounts = inside.run(Exec(["cat", "/proc/mounts"])).lines
        (shared,) = [line for line in mounts if line.split()[1] == "/dev/shm"]
        assert "size=2097152k" in shared
        with pytest.raises(BuildError, match="did not finish within 1 s"):
            inside.run(Exec(["sleep", SLEEP], timeout=1))
        # nothing of it changes the image
        assert inside.run(Exec(["sh", "-c", "echo changed > /opt/word"])).returncode == 0
        assert inside.run(Exec(["cat", "/opt/word"])).lines != ("changed",)
        assert inside.run(Exec(["sh", "-c", "echo > /bound/file"], binds=(Bind(tmp_path, "/bound"),))).returncode != 0
    assert not running("sleep", SLEEP)
    assert site.leftovers() == []
    site.call("rmi", artifact.reference)
    assert not site.has_built(artifact)
    with pytest.raises(HostError, match=r"has no image graphcrate-test:1\.0"):
        with site.engine.opened(artifact, cache=order.cache, progress=order.progress):
            raise AssertionError("it was opened")
