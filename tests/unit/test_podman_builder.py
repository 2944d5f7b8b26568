"""podman's command line as the builder and the runner use it, its answers given by the tests."""

import json

import pytest

from graphcrate.engines import podman as podman_engine
from graphcrate.engines.builders import Order, base, podman
from graphcrate.engines.runners import podman as runner
from graphcrate.host.cache import Cache
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import Bind
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.report import Artifact
from tests.unit.test_embedded_builder import Shown, planned
from tests.unit.test_foundation import make_base, make_layer

MADE, STEP = "ab" * 32, "cd" * 32


class Podman:
    """Stands for the program. `build` is what a build says and its exit code."""

    def __init__(self):
        self.calls, self.version, self.loaded = [], "podman version 4.3.1", False
        self.build = (("STEP 1/1: RUN thing", f"--> {STEP[:11]}"), 0)
        self.containers = []
        self.run_says = [Completed(0, ())]

    def run(self, argv, *, environment=None, on_line=None, timeout=None, **_):
        self.calls.append((list(argv), environment))
        if argv[1] == "--version":
            return Completed(0, (self.version,)) if self.version else Completed(127, ())
        if argv[1] == "load":
            self.loaded = True
        if argv[1] == "build":
            return self._build(argv, on_line)
        return self.run_says.pop(0) if argv[1] == "run" else Completed(0, ())

    def _build(self, argv, on_line):
        lines, code = self.build
        for line in lines:
            on_line(line)
        if code == "interrupt":
            self.containers = [
                *self.containers,
                {"Id": "left", "ImageID": STEP, "Command": ["buildah"]},
                {"Id": "first", "ImageID": MADE, "Command": ["buildah"]},
                {"Id": "somebody's", "ImageID": "12" * 32, "Command": ["buildah"]},
            ]
            raise KeyboardInterrupt
        with open(argv[argv.index("--iidfile") + 1], "w") as stream:  # noqa: PTH123
            stream.write(f"sha256:{MADE}")
        return Completed(code, tuple(lines))

    def output(self, argv, **_):
        self.calls.append((list(argv), None))
        if argv[1:3] == ["image", "inspect"]:
            if argv[3].startswith("graphcrate/base") and not self.loaded:
                raise BuildError("no such image")
            return json.dumps([{"Id": MADE, "Size": 99, "RootFS": {"Layers": ["sha256:other"]}}])
        if argv[1] == "images":
            return json.dumps([{"Id": STEP}] if "dangling=true" in argv else [])
        return json.dumps(self.containers) if argv[1] == "ps" else ""

    def commands(self, word):
        return [argv for argv, _ in self.calls if argv[1] == word]


@pytest.fixture
def program(monkeypatch):
    program = Podman()
    monkeypatch.setattr(podman_engine.process, "run", program.run)
    monkeypatch.setattr(podman_engine.process, "output", program.output)
    return program


@pytest.fixture
def order(tmp_path, program, monkeypatch):
    monkeypatch.setattr(podman.kept.process, "find", lambda program: None)
    monkeypatch.setattr(podman, "dockerfile", lambda plan: "FROM x\n")
    cache = Cache(tmp_path / "cache")
    yield Order(
        plan=planned(),
        folder=tmp_path,
        base=make_base(make_layer(cache, "one")),
        files={},
        arguments={"PACKAGE_INDEX": "https://me:hush@index.example.com/simple"},
        certificates=None,
        cache=cache,
        environment={"PATH": "/usr/bin", "CONTAINERS_CONF": "mine.conf", "OTHER": "x"},
        progress=Shown(),
    )
    cache.close()


def test_a_build_starts_from_the_loaded_base_and_is_named_at_the_end(order, program):
    artifact = podman.build(order)
    (build,) = program.commands("build")
    (environment,) = [environment for argv, environment in program.calls if argv[1] == "build"]
    assert environment["BASE"] == "localhost/" + base.reference(base.layout(order.base, order.cache))
    assert build[build.index("--isolation") + 1] == "chroot"
    assert "hush" not in " ".join(build)
    assert environment["PACKAGE_INDEX"] == "https://me:hush@index.example.com/simple"
    assert environment["CONTAINERS_CONF"] == "mine.conf"
    assert "OTHER" not in environment
    assert "--tag" not in build
    assert ["podman", "tag", MADE, "pkg:1.0"] in program.commands("tag")
    assert ["podman", "tag", STEP, f"graphcrate/steps:pkg-1.0-{STEP[:12]}"] in program.commands("tag")
    assert (artifact.reference, artifact.digest, artifact.bytes) == ("pkg:1.0", f"sha256:{MADE}", 99)


def test_a_users_choice_of_isolation_stands(order, program):
    podman.build(Order(**{**vars(order), "environment": {**order.environment, "BUILDAH_ISOLATION": "oci"}}))
    assert "--isolation" not in program.commands("build")[0]


def test_a_failed_build_says_why_and_has_no_name(order, program):
    program.build = (("STEP 1/1: RUN thing", "words", 'Error: building at STEP "RUN thing": exit status 5'), 5)
    with pytest.raises(BuildError) as caught:
        podman.build(order)
    assert caught.value.what.startswith("podman build of pkg:1.0 failed at step 1/1 RUN thing\n    words")
    assert caught.value.cause == "The command ended with exit code 5."
    assert ["podman", "tag", MADE, "pkg:1.0"] not in program.commands("tag")


def test_an_interrupted_build_leaves_no_container(order, program):
    program.build = (("STEP 1/1: RUN thing", f"--> {STEP[:11]}"), "interrupt")
    with pytest.raises(KeyboardInterrupt):
        podman.build(order)
    assert [argv[-1] for argv in program.commands("rm")] == ["left", "first"]
    assert ["podman", "tag", STEP, f"graphcrate/steps:pkg-1.0-{STEP[:12]}"] in program.commands("tag")


def test_containers_of_other_builds_stay(order, program):
    program.containers = [{"Id": "theirs", "ImageID": STEP, "Command": ["buildah"]}]
    program.build = (("STEP 1/1: RUN thing",), 1)
    with pytest.raises(BuildError):
        podman.build(order)
    assert program.commands("rm") == []


@pytest.mark.parametrize(
    ("reference", "whole"),
    [
        ("debian:bookworm-slim", "docker.io/library/debian:bookworm-slim"),
        ("nvidia/cuda:11.8.0-base", "docker.io/nvidia/cuda:11.8.0-base"),
        ("registry.example.com/a/b:1", "registry.example.com/a/b:1"),
        ("localhost:5000/a", "localhost:5000/a"),
    ],
)
def test_a_base_to_be_pulled_gets_its_registry(order, program, reference, whole):
    assert podman.qualified(reference) == whole


def test_the_check_names_what_is_wrong(program):
    assert podman.check({}) == "podman 4.3.1"
    program.version = "podman version 2.2.1"
    with pytest.raises(HostError, match=r"podman 2\.2\.1 is too old for .*: that needs 3\.0 or later"):
        podman.check({})


def test_a_user_without_subordinate_ids_is_told_how_to_get_them(program, monkeypatch):
    def run(argv, **options):
        if argv[1] == "info":
            return Completed(125, ("Error: cannot set up namespace using newuidmap: no subuid ranges found",))
        return program.run(argv, **options)

    monkeypatch.setattr(podman_engine.process, "run", run)
    with pytest.raises(HostError) as caught:
        podman.check({})
    assert "no subuid ranges" in caught.value.what
    assert caught.value.next_step.startswith("sudo usermod --add-subuids ")


ARTIFACT = Artifact(engine="podman", kind="podman", reference="pkg:1.0", digest=f"sha256:{MADE}", bytes=1)


def test_a_command_runs_in_a_container_of_its_own(order, program, tmp_path):
    program.run_says = [Completed(0, ()), Completed(3, ("said",))]
    with runner.opened(ARTIFACT, cache=order.cache) as inside:
        binds = (Bind(tmp_path, "/out", read_only=False),)
        done = inside.run(["python", "-c", "x"], environment={"A": "b c"}, binds=binds, working_folder="/out")
    assert done == Completed(3, ("said",))
    argv = program.commands("run")[1]
    assert argv[-4:] == ["pkg:1.0", "python", "-c", "x"]
    assert argv[argv.index("--env") + 1] == "A=b c"
    assert argv[argv.index("--volume") + 1] == f"{tmp_path}:/out:rw"
    assert argv[argv.index("--network") + 1] == "none"
    assert "--ulimit" not in argv


def test_limits_that_may_not_be_raised_are_left_as_they_are(order, program):
    refusal = Completed(126, ("Error: runc: error setting rlimit type 7: operation not permitted",))
    program.run_says = [refusal, Completed(0, ()), Completed(0, ())]
    with runner.opened(ARTIFACT, cache=order.cache) as inside:
        inside.run(["true"])
    assert "nofile=1024:1024" in program.commands("run")[2]


def test_a_runtime_that_cannot_start_is_an_error_of_the_machine(order, program):
    program.run_says = [Completed(126, ("Error: crun: cgroups in hybrid mode not supported",))]
    with pytest.raises(HostError, match="cgroups in hybrid mode"), runner.opened(ARTIFACT, cache=order.cache):
        raise AssertionError("it was opened")
