"""Docker's and podman's command lines as builder and runner use them; the commands' answers are given by the tests."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import msgspec
import pytest

from graphcrate.assembly import with_engine
from graphcrate.compat.plan import planning
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.engines import context, oci
from graphcrate.engines.backend import BuildOrder
from graphcrate.engines.output import Output
from graphcrate.host.engines import oci_engine
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox.gpu import HostGpu
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.inputs.bases import mirrors
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import decode_lock
from graphcrate.model.report import Artifact
from graphcrate.resolve.stack import base as resolve_base
from nsbox.box import Bind
from tests import ROOT
from tests.made import RECIPES, place, refused
from tests.unit import tars
from tests.unit.docker_daemon import DockerDaemon
from tests.unit.engines.test_build_context import make_layer
from tests.unit.engines.test_embedded_builder import BASE, planned
from tests.unit.smoke.test_gate import report

MADE, STEP, OLD = "ab" * 32, "cd" * 32, "ef" * 32


class Program:
    """Stands for both commands. `build` is what a build says and its exit code; `images`: name → id."""

    def __init__(self, name):
        self.name, self.calls, self.images, self.loaded = name, [], {}, b""
        self.version = {"docker": "Docker version 20.10.24+dfsg1, build 297e128", "podman": "podman version 4.3.1"}[
            name
        ]
        self.build, self.codes, self.containers, self.tags = (("STEP 1/1: RUN thing",), 0), {}, [], []
        self.run_says, self.guarded, self.keeps = [], [], True

    def words(self, argv):
        """The command and what follows: without what ends it with us, and without Docker's address."""
        argv = [str(word) for word in argv]
        argv = argv[argv.index("--") + 1 :] if argv[0] == "setpriv" else argv
        return [Path(argv[0]).name, *(argv[3:] if argv[1] == "--host" else argv[1:])]

    def run(self, argv, *, environment=None, on_line=None, timeout=None):
        words = self.words(argv)
        self.calls.append((words, environment))
        if argv[0] == "setpriv":
            self.guarded.append(words[1])
        match words[1]:
            case "--version":
                return Completed(0, (self.version,))
            case "load":
                self.loaded = Path(words[words.index("--input") + 1]).read_bytes()
            case "build":
                return self._build(words, on_line)
            case "run":
                answer = self.run_says.pop(0) if self.run_says else Completed(0, ())
                if isinstance(answer, BaseException):
                    raise answer
                for line in answer.lines if on_line else ():
                    on_line(f"{line} within {timeout}")
                return answer
        return Completed(self.codes.get(words[1], 0), (f"Error: {words[1]}: no subuid ranges found",))

    def _build(self, words, on_line):
        lines, code = self.build
        self.text = Path(words[-1], "Dockerfile").read_text()
        for line in lines:
            on_line(line)
        if code == "interrupt":
            started = {"left": STEP, "first": MADE, "somebody's": "12" * 32, "before": STEP}
            self.containers = [{"Id": one, "ImageID": image, "Command": ["buildah"]} for one, image in started.items()]
            raise KeyboardInterrupt
        if not code and self.keeps:
            self.images[words[words.index("--tag") + 1]] = MADE
        return Completed(code, tuple(lines))

    def output(self, argv, **_):
        words = self.words(argv)
        self.calls.append((words, None))
        if words[1] == "ps":
            return json.dumps(self.containers)
        name = words[3]
        known = self.images.get(name) or name.removeprefix("sha256:")
        if name not in self.images and known not in {MADE, OLD}:
            raise BuildError("no such image")
        layers = ["sha256:other"] if known == MADE else []
        return json.dumps([{"Id": known, "Size": 99, "RootFS": {"Layers": layers}, "RepoTags": self.tags}])

    def commands(self, word):
        return [words for words, _ in self.calls if words[1] == word]


@pytest.fixture(params=["docker", "podman"])
def name(request):
    return request.param


@pytest.fixture
def program(name, monkeypatch):
    program = Program(name)
    for function in ("run", "output"):
        monkeypatch.setattr(oci_engine.process, function, getattr(program, function))
    return program


@pytest.fixture
def daemon():
    with DockerDaemon() as daemon:
        yield daemon


@pytest.fixture
def environment(tmp_path, daemon, monkeypatch):
    """An environment for the engines: a `docker` in PATH, a daemon, variables that are and are not for them."""
    monkeypatch.setattr(oci_engine.settings, "SYSTEM_FOLDERS", ())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").touch(mode=0o755)
    path = f"/nonexistent:{tmp_path / 'bin'}"
    return {**daemon.environment, "PATH": path, "CONTAINERS_CONF": "mine.conf", "DOCKER_CONFIG": "/c", "OTHER": "x"}


@pytest.fixture
def order(tmp_path, program, environment, cache, progress, monkeypatch):
    monkeypatch.setattr(oci, "ends_with_us", lambda: ("setpriv", "--pdeathsig", "TERM", "--"))
    monkeypatch.setattr(oci, "dockerfile", lambda plan, *, cache_mounts: f"FROM base {cache_mounts}\n")
    return BuildOrder(
        plan=planned(),
        folder=tmp_path,
        base=msgspec.structs.replace(BASE, layers=(make_layer(cache, tmp_path, "one"),)),
        files={},
        arguments={"PACKAGE_INDEX": "https://me:hush@index.example.com/simple"},
        cache=cache,
        environment={**environment, "http_proxy": "http://proxy.example.com:3128"},
        progress=progress,
    )


# --- which engine ---------------------------------------------------------------------------------------------------

OLD_DOCKER, NEW_DOCKER = "Docker version 20.10.24+dfsg1, build 297e128", "Docker version 28.2.2, build e6534b4"


@pytest.mark.parametrize("name", ["docker"])
@pytest.mark.parametrize(
    ("said", "buildx", "api", "described"),
    [
        (OLD_DOCKER, 1, "1.41", "BuildKit"),
        (NEW_DOCKER, 1, "1.41", "classic builder"),
        (NEW_DOCKER, 0, "1.41", "BuildKit"),
        (NEW_DOCKER, 0, "1.40", "classic builder"),
    ],
)
def test_docker_uses_buildkit_if_client_and_daemon_have_it(environment, daemon, program, said, buildx, api, described):
    program.version, program.codes, daemon.api = said, {"buildx": buildx}, api
    assert oci.StoreEngine("docker").check(environment) == f"Docker Engine 20.10.24 ({described})"
    found = oci_engine.find("docker", {**environment, "BUILDX_BUILDER": "elsewhere"})
    assert found.environment.items() >= {
        ("DOCKER_BUILDKIT", "1" if described == "BuildKit" else "0"),
        ("BUILDX_BUILDER", "default"),
        ("BUILDX_NO_DEFAULT_ATTESTATIONS", "1"),  # they would make an index of the image
    }
    assert found.build_options == (("--progress", "plain") if described == "BuildKit" else ("--force-rm",))
    assert found.command[1:] == ("--host", environment["DOCKER_HOST"])


@pytest.mark.parametrize(
    ("name", "api", "engine", "said", "words"),
    [
        ("docker", "1.26", "17.03.2", OLD_DOCKER, "17.03.2 is too old, that needs 17.05 or later"),
        ("docker", "1.41", "20.10.24", "podman version 4.3.1", "the docker command is not installed"),  # podman-docker
        ("podman", "", "", "podman version 2.2.1", "podman 2.2.1 is too old, that needs 3.0 or later"),
        ("podman", "", "", "podman version 4.3.1", "sudo usermod --add-subuids "),
    ],
)
def test_engine_that_cannot_build_is_a_host_error(environment, daemon, program, name, api, engine, said, words):
    daemon.api, daemon.version, program.version, program.codes = api, engine, said, {"info": 125}
    with refused(HostError, *words.split(", ")):
        oci_engine.find(name, environment)


# --- building -------------------------------------------------------------------------------------------------------


def test_engine_build_starts_from_the_loaded_base(order, program, name):
    artifact, _ = oci.StoreEngine(name).build(order)
    ((words, environment),) = [call for call in program.calls if call[0][1] == "build"]
    base = context.base_name(context.base_layout(order.base, order.cache))
    assert environment["BASE"] == (f"localhost/{base}" if name == "podman" else base)
    assert environment["PACKAGE_INDEX"] == "https://me:hush@index.example.com/simple"
    assert environment["HTTP_PROXY"] == "http://proxy.example.com:3128"
    assert {"BASE", "PACKAGE_INDEX", "HTTP_PROXY", "http_proxy"} <= set(words)
    assert "hush" not in " ".join(words)
    assert program.guarded == ["build"], "it ends with us"
    assert "OTHER" not in environment
    assert "--network" not in words
    assert words[2:4] == ["--tag", "pkg:1.0"]
    assert program.text == f"FROM base {name == 'docker'}\n", "with cache mounts for BuildKit"
    assert set({"podman": ("--isolation", "chroot"), "docker": ("--progress", "plain")}[name]) <= set(words)
    assert (artifact.engine, artifact.kind, artifact.reference) == (name, name, "pkg:1.0")
    assert (artifact.digest, artifact.bytes) == (f"sha256:{MADE}", 99)
    with tarfile.open(fileobj=io.BytesIO(program.loaded)) as archive:
        (entry,) = json.load(archive.extractfile("manifest.json"))
        assert entry["RepoTags"] == [base]
        assert len(entry["Layers"]) == len(order.base.layers)


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        ("codes", {"load": 1}, "cannot load graphcrate/base:.*no subuid"),
        ("keeps", False, "built pkg:1.0 and does not have"),
    ],
)
def test_engine_without_the_built_image_is_a_build_error(order, program, name, attribute, value, says):
    setattr(program, attribute, value)
    with pytest.raises(BuildError, match=says):
        oci.StoreEngine(name).build(order)


def test_base_in_the_engine_is_not_loaded_again(order, program, name, monkeypatch):
    base = context.base_name(context.base_layout(order.base, order.cache))
    inspected = {"Id": f"sha256:{OLD}", "RootFS": {"Layers": [layer.diff_id for layer in order.base.layers]}}
    engine = oci_engine.find(name, order.environment)
    monkeypatch.setattr(oci_engine.OciClient, "inspect", lambda self, image: inspected if image == base else None)
    assert oci.load_base(order, engine, order.folder).endswith(base)
    assert program.loaded == b""
    inspected["RootFS"]["Layers"] = ["sha256:another"]
    oci.load_base(order, engine, order.folder)
    assert program.loaded


@pytest.mark.parametrize("made", [True, False])
def test_base_of_a_lock_is_loaded_into_the_engine(
    program, name, environment, cache, progress, tmp_path, monkeypatch, made
):
    """Its layers are loaded byte for byte, under the name that the text starts from; it is said where none is made."""
    asked, layer = [], make_layer(cache, tmp_path, "one")

    def prepare(ctx, base):
        asked.append(base)
        if not made:
            raise HostError("user namespaces are off")
        return msgspec.structs.replace(BASE, layers=(layer,))

    monkeypatch.setattr(resolve_base, "prepare_base", prepare)
    monkeypatch.setattr(mirrors, "own_mirror", lambda *_, **__: None)
    monkeypatch.setattr(oci, "ends_with_us", lambda: ())
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    plan = planning.make_plan(RECIPES["pyg"], lock, RECIPES["pyg"].variant("11.8").candidates[1], examples={})
    at = place(cache, environment, progress)
    with_engine.build(oci.StoreEngine(name), plan, lock, SourceOptions(), tmp_path / "out", at)
    assert asked == [lock.base]
    ((words, variables),) = [call for call in program.calls if call[0][1] == "build"]
    given = variables["BASE"] if "BASE" in words else ""
    assert "\nFROM ${BASE}" in program.text
    assert any("Debian's packages of today" in line for line in progress.lines) is not made
    if not made:
        assert (program.loaded, given) == (b"", "docker.io/library/debian:bookworm-slim" if name == "podman" else "")
        return
    with tarfile.open(fileobj=io.BytesIO(program.loaded)) as archive:
        (entry,) = json.load(archive.extractfile("manifest.json"))
        loaded = [tars.sha256(gzip.decompress(archive.extractfile(path).read())) for path in entry["Layers"]]
    assert loaded == [layer.diff_id]
    assert [given.removeprefix("localhost/")] == entry["RepoTags"]


@pytest.mark.parametrize("tags", [[], ["other:1"]], ids=["nameless", "named"])
def test_previous_image_is_removed_unless_it_has_another_tag(order, program, name, tags):
    program.images["pkg:1.0"], program.tags = OLD, tags
    oci.StoreEngine(name).build(order)
    assert program.commands("rmi") == ([] if tags else [[name, "rmi", OLD]])
    program.calls.clear()
    oci.StoreEngine(name).build(order)
    assert program.commands("rmi") == [], "the same image again"


@pytest.mark.parametrize(
    ("line", "step", "image"),
    [
        ("STEP 1/1: RUN  thing", "1/1 RUN thing", ""),
        ("Step 1/9 : FROM no/image:1 AS x", "1/9 FROM no/image:1 AS x", "no/image:1"),
        ("[1/2] STEP 1/9: FROM no/image:1", "1/9 FROM no/image:1", "no/image:1"),
        (" > [internal] load metadata for no/image:1:", "internal load metadata for no/image:1", "no/image:1"),
    ],
)
def test_failed_engine_build_shows_its_last_lines_without_passwords(order, program, name, line, step, image):
    lines = (line, *map(str, range(30)), "\x1b[31mfrom https://me:hush@index.example.com/\x1b[0m", "Error: exit 5", "")
    program.build = (lines, 5)
    with pytest.raises(BuildError) as caught:
        oci.StoreEngine(name).build(order)
    error, log = caught.value, (order.folder / "build.log").read_text()
    assert error.what.startswith(f"{name} build of pkg:1.0 failed at step {step}\n    | 12\n")
    assert error.what.endswith("\n    | 29\n    | from https://***@index.example.com/\n    | Error: exit 5")
    assert error.cause == (f"The base image {image} is not available: exit 5" if image else "exit 5")
    assert error.next_step.startswith(f"{name} pull {image} " if image else "less ")
    assert error.next_step.endswith(f"less {order.folder / 'build.log'}    has the whole output")
    assert "pkg:1.0" not in program.images
    assert "hush" not in f"{log}{error}{order.progress.__dict__}"


def test_interrupted_podman_build_removes_its_containers(order, program, name):
    program.build = (("STEP 1/1: RUN thing", f"--> {STEP[:11]}", f"--> {MADE[:11]}", *["word"] * 500), "interrupt")
    program.containers = [{"Id": "before", "ImageID": STEP, "Command": ["buildah"]}]
    with pytest.raises(KeyboardInterrupt):
        oci.StoreEngine(name).build(order)
    # Docker's daemon removes them by itself
    assert [words[-1] for words in program.commands("rm")] == (["left", "first"] if name == "podman" else [])


def test_engine_build_options_follow_the_order(order, program, name):
    def words(**changes):
        program.calls.clear()
        oci.StoreEngine(name).build(BuildOrder(**{**vars(order), **changes}))
        ((words, variables),) = [call for call in program.calls if call[0][1] == "build"]
        return [*words, variables.get("BASE")]

    # the text says what to pull, and podman needs a registry's name
    assert words(base=None)[-1] == ("docker.io/library/debian:bookworm-slim" if name == "podman" else None)
    assert program.loaded == b""
    assert "--network" in words(environment={**order.environment, "http_proxy": "http://localhost:3128"})
    assert "--isolation" not in words(environment={**order.environment, "BUILDAH_ISOLATION": "oci"})


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (["Step 1/2 : FROM base", " ---> 0123456789ab", "Step 2/2 : RUN  a  b"], ["1/2 FROM base", "2/2 RUN a b"]),
        ([f"Step 1/1 : RUN {'x' * 500}"], [f"1/1 RUN {'x' * 101}…"]),
        (["[1/2] STEP 3/9: COPY a b", "STEP 4/9: RUN x"], ["3/9 COPY a b", "4/9 RUN x"]),
        (["#1 [internal] load build definition", "#5 [build 2/4] RUN x", "#5 0.1 word", "#5 [build 2/4] RUN x"],
         ["build 2/4 RUN x"]),
        (["#5 [2/4] RUN x", "#6 [3/4] RUN y", "#5 ERROR: no", " > [2/4] RUN x:", "ERROR: no"],
         ["2/4 RUN x", "3/4 RUN y"]),
    ],
)  # fmt: skip
def test_engine_build_steps_are_noted_once(lines, steps):
    notes = []
    output = Output(io.StringIO(), notes.append, oci.STEPS, prefix="it")
    for line in lines:
        output.line(line)
    assert notes == [f"it {step}" for step in steps]
    if "ERROR: no" in lines:
        assert output.step == "2/4 RUN x"


# --- running --------------------------------------------------------------------------------------------------------


def artifact(name):
    return Artifact(engine=name, kind=name, reference="pkg:1.0", digest=f"sha256:{MADE}", bytes=1)


@pytest.fixture
def opened(program, environment, name, monkeypatch, tmp_path):
    """A function that opens the image `pkg:1.0`."""
    monkeypatch.setattr(oci.settings, "environment", lambda: environment)
    monkeypatch.setattr(oci.gpu, "detect", HostGpu)
    program.images["pkg:1.0"] = MADE
    return lambda: oci.StoreEngine(name).opened(artifact(name), cache=None, progress=Progress())


def test_engine_runs_a_command_in_a_new_container(opened, program, tmp_path):
    colons, comma, lines = tmp_path / "a:b", tmp_path / "a,b", []
    colons.mkdir()
    comma.mkdir()
    program.run_says = [Completed(0, ()), Completed(3, ("said",))]
    with opened() as inside:
        binds = (Bind(tmp_path, "/out", read_only=False), Bind(colons, "/in"))
        command = Exec(["python", "-c", "x"], {"A": "b c"}, binds, cwd="/out", timeout=5, on_line=lines.append)
        assert inside.run(command) == Completed(3, ("said",))
        for wrong, message in ((tmp_path / "no", "does not exist"), (comma, "a,b cannot be bound into an image")):
            with pytest.raises(HostError, match=message):
                inside.run(Exec(["x"], binds=[Bind(wrong, "/x")]))
    words = program.commands("run")[1]
    assert words[-4:] == ["pkg:1.0", "python", "-c", "x"]
    assert words[words.index("--entrypoint") + 1] == "", "the image's own is not used"
    assert words[words.index("--env") + 1] == "A=b c"
    assert words[words.index("--workdir") + 1] == "/out"
    assert [words[at + 1] for at, word in enumerate(words) if word == "--mount"] == [
        f"type=bind,source={tmp_path},target=/out",
        f"type=bind,source={colons},target=/in,readonly",
    ]
    assert words[words.index("--network") + 1] == "none"
    assert {"--rm", "2g"} <= set(words)
    assert "--ulimit" not in words
    assert lines == ["said within 5"]


@pytest.mark.parametrize(
    ("name", "option", "code", "words", "fix"),
    [
        ("docker", "--gpus", 125, 'docker: Error: could not select device driver "".', "runtime configure"),
        ("podman", "nvidia.com/gpu=all", 126, "Error: unresolvable CDI devices nvidia.com/gpu=all", "cdi generate"),
    ],
)
def test_engine_run_passes_gpus_if_there_are_any(opened, program, monkeypatch, option, code, words, fix):
    with opened() as inside:
        inside.run(Exec(["x"], gpu=True))
        monkeypatch.setattr(oci.gpu, "detect", lambda: HostGpu(devices=("/dev/nvidia0",)))
        inside.run(Exec(["x"], gpu=True, network=True))
        inside.run(Exec(["x"]))
        assert [option in words for words in program.commands("run")] == [False, False, True, False]
        assert "--network" not in program.commands("run")[2]
        program.run_says = [Completed(code, (words,))]
        with pytest.raises(HostError, match="cannot start a container") as caught:
            inside.run(Exec(["x"], gpu=True))
        assert caught.value.next_step.startswith(f"sudo nvidia-ctk {fix} ")
        for code in (125, 126):
            program.run_says = [Completed(code, ("the program's own",))]
            assert inside.run(Exec(["x"])).returncode == code


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BuildError("x did not finish within 1 s")])
def test_interrupted_or_late_container_is_killed_and_removed(opened, program, error):
    # limits that may not be raised are left as they are
    program.run_says = [Completed(126, ("Error: runc: error setting rlimit type 7: operation not permitted",))]
    with opened() as inside:
        program.run_says = [error]
        with pytest.raises(type(error)):
            inside.run(Exec(["x"], timeout=1))
    assert ["nofile=1024:1024" in words for words in program.commands("run")] == [False, True, True]
    container = program.commands("run")[2][4]
    assert [words[1:] for words, _ in program.calls[-2:]] == [["kill", container], ["rm", "--force", container]]


def test_container_that_does_not_start_is_a_host_error(opened, program, name):
    program.run_says = [Completed(126, ("Error: crun: cgroups in hybrid mode not supported",))]
    for words in ("cgroups in hybrid mode", rf"{name} has no image pkg:1\.0"):
        with pytest.raises(HostError, match=words), opened():
            raise AssertionError("it was opened")
        program.images.clear()


def test_image_exists_while_its_tag_has_its_id(program, environment, name):
    known = oci.StoreEngine(name)
    assert known.runtime(environment) == (name, {"docker": "20.10.24", "podman": "4.3.1"}[name])
    for images, exists in (({"pkg:1.0": MADE}, True), ({"pkg:1.0": OLD}, False), ({}, False)):
        program.images = images
        assert known.exists(report(artifact=artifact(name)), Path(), environment) is exists
