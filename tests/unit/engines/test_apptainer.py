"""Apptainer's builder and runner as far as no engine is needed: versions, commands by spython, what messages mean."""

import hashlib
import io
import json
import subprocess
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from graphcrate.engines import apptainer
from graphcrate.engines.backend import BuildOrder
from graphcrate.engines.output import Output
from graphcrate.host.engines import apptainer_client
from graphcrate.host.process import Completed
from graphcrate.host.sandbox.gpu import HostGpu
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.errors import BuildError, DiskFullError, HostError
from graphcrate.model.report import Artifact
from nsbox.box import Bind
from tests.made import refused
from tests.unit.conftest import Recorder
from tests.unit.engines.test_embedded_builder import planned
from tests.unit.smoke.test_gate import report

ENGINE = apptainer.ApptainerEngine("apptainer")


def engine(said="apptainer version 1.4.5"):
    return apptainer_client.parse_version("/usr/bin/it", said)


@pytest.mark.parametrize(
    ("said", "expected", "stages", "literal"),
    [
        ("apptainer version 1.4.5", ("apptainer", (1, 4, 5), "1.4.5"), True, True),
        ("apptainer version 1.1.0-1.el8", ("apptainer", (1, 1, 0), "1.1.0-1.el8"), True, True),
        ("apptainer version 1.0.3", ("apptainer", (1, 0, 3), "1.0.3"), True, False),
        ("singularity-ce version 4.1.5+ds4-1", ("singularity-ce", (4, 1, 5), "4.1.5+ds4-1"), True, True),
        ("SingularityPRO version 3.9-5.el8", ("singularitypro", (3, 9, 0), "3.9-5.el8"), True, False),
        ("singularity version 3.5.3-1.el7", ("singularity", (3, 5, 3), "3.5.3-1.el7"), True, False),
        ("singularity version 3.5.2", ("singularity", (3, 5, 2), "3.5.2"), False, False),
        ("2.6.1-dist", ("singularity", (2, 6, 1), "2.6.1-dist"), False, False),
    ],
)
def test_apptainer_version_gives_its_capabilities(said, expected, stages, literal):
    known = engine(said)
    assert (known.name, known.version, known.text) == expected
    assert (known.builds_stages, known.takes_literal_values) == (stages, literal)
    assert [engine(other) for other in ("usage: singularity [a game]", "")] == [None, None]


def answers(monkeypatch, returncode, *lines):
    asked = []
    answer = Completed(returncode, lines)
    monkeypatch.setattr("graphcrate.host.process.run", lambda argv, **more: asked.append((argv, more)) or answer)
    return asked


def test_apptainer_is_found_before_singularity_and_old_ones_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("graphcrate.host.settings.SYSTEM_FOLDERS", ())
    path = {"PATH": str(tmp_path)}
    with refused(HostError, "neither apptainer nor singularity is installed", "module load apptainer"):
        ENGINE.check(path)
    (tmp_path / "singularity").touch(mode=0o755)
    answers(monkeypatch, 1, "Endgame: Singularity (a game)")
    with refused(HostError, "singularity --version ends with code 1: Endgame"):
        ENGINE.check(path)
    answers(monkeypatch, 0, "singularity version 3.5.2")
    with refused(HostError, "singularity 3.5.2 is too old for", "needs 3.5.3 or later"):
        ENGINE.check(path)
    (tmp_path / "apptainer").touch(mode=0o755)
    asked = answers(monkeypatch, 0, "WARNING: something", "apptainer version 1.4.5")
    assert ENGINE.check(path) == "apptainer 1.4.5"
    assert asked[0][0] == [str(tmp_path / "apptainer"), "--version"]


@pytest.mark.parametrize(("said", "is_told"), [("apptainer version 1.5.0", True), ("apptainer version 1.5.1", False)])
def test_release_of_apptainer_that_leaves_sifs_unfinished_is_warned_of(tmp_path, cache, monkeypatch, said, is_told):
    progress = Recorder()
    monkeypatch.setattr(apptainer, "_found", lambda *_: engine(said))
    answers(monkeypatch, 0)
    (tmp_path / "a.sif").touch()
    image = Artifact(engine="apptainer", kind="sif", reference=str(tmp_path / "a.sif"), digest="", bytes=0)
    with ENGINE.opened(image, cache=cache, progress=progress):
        pass
    assert progress.lines == ["Apptainer 1.5.0 keeps a SIF that mksquashfs left unfinished; 1.5.1 does not"] * is_told


def test_apptainer_command_gets_a_clean_environment_and_binds(tmp_path, cache, monkeypatch):
    asked = answers(monkeypatch, 0)
    for name in ("SECRET", "APPTAINERENV_STRAY", "APPTAINER_DOCKER_USERNAME", "SINGULARITY_DOCKER_USERNAME"):
        monkeypatch.setenv(name, "x")
    for known in (engine(), engine("singularity version 3.8.7")):
        image = apptainer.ApptainerImage(known, Path("/a.sif"), cache, [], apptainer.NO_NETWORK)
        binds = [Bind(tmp_path, "/out", read_only=False), Bind(tmp_path, "/in")]
        image.run(Exec(["python", "x.py"], {"OMP_NUM_THREADS": "2"}, binds, cwd="/work"))
    (argv, environment), (_, older) = ((words, options["environment"]) for words, options in asked)
    assert {"--cleanenv", "--contain", "--pid", "--net"} <= set(argv)
    assert argv[argv.index("--pwd") + 1] == "/work"
    assert argv[-3:] == ["/a.sif", "python", "x.py"]
    bound = [argv[place + 1] for place, word in enumerate(argv) if word == "--bind"]
    assert bound == [f"{tmp_path.resolve()}:/out:rw", f"{tmp_path.resolve()}:/in:ro"]
    assert (environment["APPTAINERENV_OMP_NUM_THREADS"], older["SINGULARITYENV_OMP_NUM_THREADS"]) == ("2", "2")
    assert (environment["APPTAINER_DOCKER_USERNAME"], older["SINGULARITY_DOCKER_USERNAME"]) == ("x", "x")
    assert "SINGULARITY_CACHEDIR" in older
    assert not {"SECRET", "APPTAINERENV_STRAY"} & set(environment)
    (tmp_path / "a,b").mkdir()
    for name, message in (("no", "does not exist"), ("a,b", "cannot be bound")):
        with refused(HostError, message):
            image.run(Exec(["true"], binds=[Bind(tmp_path / name, "/x")]))


@pytest.mark.parametrize("has_rdma", [True, False])
def test_apptainer_on_several_nodes_is_a_step_with_their_network_and_devices(tmp_path, cache, monkeypatch, has_rdma):
    asked = answers(monkeypatch, 0)
    monkeypatch.setattr(apptainer, "RDMA", tmp_path if has_rdma else tmp_path / "infiniband")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SECRET", "x")
    image = apptainer.ApptainerImage(engine(), Path("/a.sif"), cache, ["--userns"], apptainer.NO_NETWORK)
    image.run(Exec(["python", "x.py"], {"NCCL_IB_HCA": "mlx5"}, network=True, nodes=2))
    ((argv, options),) = asked
    assert argv[:4] == ["srun", "--quiet", "--unbuffered", "--ntasks=2"]
    assert argv[6:9] == ["/usr/bin/it", "--silent", "--nocolor"]
    assert {"--contain", "--userns", "--pwd"} <= set(argv)
    assert not {"--cleanenv", "--net"} & set(argv)
    assert ([argv[place + 1] for place, word in enumerate(argv) if word == "--bind"] == [str(tmp_path)]) is has_rdma
    environment = options["environment"]
    assert (environment["SLURM_JOB_ID"], environment["APPTAINERENV_NCCL_IB_HCA"]) == ("7", "mlx5")
    assert "SECRET" not in environment


def test_apptainer_step_that_slurm_took_away_is_a_host_error(cache, monkeypatch):
    answers(monkeypatch, 1, "srun: error: Node failure on n1")
    image = apptainer.ApptainerImage(engine(), Path("/a.sif"), cache, [], [])
    with refused(HostError, "Slurm took the step away: Node failure on n1"):
        image.run(Exec(["true"], nodes=2))


def test_apptainer_that_starts_no_image_on_a_node_is_no_failed_suite(cache, monkeypatch):
    fatal = "FATAL:   while extracting /a.sif: root filesystem extraction failed: no space left on device"
    answers(monkeypatch, 1, fatal, "srun: error: n2: task 1: Exited with exit code 255")
    image = apptainer.ApptainerImage(engine(), Path("/a.sif"), cache, [], [])
    with refused(DiskFullError, "ran out of room"):
        image.run(Exec(["true"], nodes=2))


def test_sif_exists_if_its_size_matches_the_report(tmp_path):
    artifact = Artifact(engine="apptainer", kind="sif", reference=str(tmp_path / "x.sif"), digest="", bytes=5)
    built = report(artifact=artifact)
    assert not ENGINE.exists(built, tmp_path, {})
    for content in (b"12345", b"1234"):
        (tmp_path / "x.sif").write_bytes(content)
        assert ENGINE.exists(built, tmp_path, {}) is (content == b"12345")


#: as the engines say it: Apptainer 1.4.5, SingularityCE 3.11, Singularity 3.5.3
@pytest.mark.parametrize(
    ("line", "what", "next_step"),
    [
        (
            "FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid",
            "subordinate ids",
            "usermod --add-subuids",
        ),
        ("FATAL:   while searching for mksquashfs: not found", "mksquashfs is not installed", "squashfs-tools"),
        ("ERROR  : Failed to create user namespace: Operation not permitted", "user namespaces", "sysctl -w"),
        ("INFO:    Unprivileged user namespaces may not be enabled", "user namespaces", "sysctl -w"),
        ('FATAL:   exec: "squashfuse": executable file not found in $PATH', "squashfuse", "apt-get install squashfuse"),
        ("fusermount: failed to open /dev/fuse: Permission denied", "/dev/fuse", "modprobe fuse"),
        ("FATAL:   failed to mount /home/ada to /root: no such file or directory", "/home/ada", "install -d"),
        ("FATAL:   While x: No space left on device", "room on the disk", "GRAPHCRATE_CACHE="),
        ("FATAL:   Disk quota exceeded", "room on the disk", "GRAPHCRATE_CACHE="),
        ("\x1b[91mERROR  : Requesting capability set 0x1 while permitted\x1b[0m", "capabilities", "root default"),
    ],
)
def test_apptainer_machine_error_has_a_next_step(line, what, next_step):
    error = apptainer.explain(engine(), ["INFO:    Starting build...", line, ""], Path("/out/build.log"))
    assert isinstance(error, DiskFullError if "disk" in what else HostError)
    assert (what in error.what, next_step in error.next_step, "/out/build.log" in error.cause) == (True, True, True)
    assert "{" not in str(error)


def test_failing_post_section_is_no_machine_error():
    said = ["+ false", "FATAL:   While performing build: while running %post section: exit status 1"]
    assert apptainer.explain(engine(), said) is None
    assert apptainer.last_word(said).startswith("While performing build")
    assert apptainer.last_word(["a", "b", " "]) == "b"


def test_apptainer_build_steps_are_noted_and_a_failure_names_the_last():
    log, notes = io.StringIO(), []
    output = Output(log, notes.append, apptainer.STEPS, prefix="it")
    said = ["INFO:    Starting build...", "INFO:    Running post scriptlet", "+ umask 022", "+ PIP=1 pip"]
    said += ["+ apt-get  update", "words", "INFO:    To see mksquashfs output with progress bar enabled, run with -v"]
    for line in (*said, "\x1b[31mFATAL:   While performing build: exit status 100\x1b[0m"):
        output.line(line)
    assert notes == ["it Starting build...", "it Running post scriptlet", "it apt-get update"]
    assert ("+ umask 022\n" in log.getvalue(), "\x1b" in log.getvalue()) == (True, False)
    error = output.failure("build of x:1", Path("/out/build.log"))
    assert error.what.startswith("build of x:1 failed at step apt-get update\n")
    assert "\n    | words\n" in error.what
    assert error.cause == "While performing build: exit status 100"


def test_folder_of_subordinate_ids_is_removed_in_a_user_namespace(tmp_path, monkeypatch):
    folder = tmp_path / "build"
    folder.mkdir()
    monkeypatch.setattr(apptainer, "remove_tree", Mock(side_effect=PermissionError(1, "not permitted")))
    asked = answers(monkeypatch, 1)
    with refused(HostError, "cannot be removed", f"rm -rf {folder}"):
        apptainer.clear(folder)
    ((words, _),) = asked
    assert (words[:2], words[-1]) == (["unshare", "--map-root-user"], str(folder))


def test_apptainer_build_with_an_unpullable_base_names_it_and_leaves_nothing(tmp_path, cache, monkeypatch):
    asked = []

    def run(argv, *, environment, cwd, on_line):
        asked.append((argv, environment, (cwd / "pkg.def").read_text()))
        Path(argv[-2]).write_text("half")
        failure = "conveyor failed to get: no" if "--fakeroot" in argv else apptainer.LACKS_CAPABILITY
        said = ("INFO:    Running post scriptlet", "+ true", f"FATAL:   While performing build: {failure}")
        for line in said:
            on_line(line)
        return Completed(1, said)

    text = "Bootstrap: docker\nFrom: a:1\nStage: build\n\n%post\n    true\n"
    monkeypatch.setattr(apptainer_client, "find", lambda environment: engine())
    monkeypatch.setattr(apptainer, "definition", lambda plan: text)
    monkeypatch.setattr(apptainer, "is_root", lambda: True)
    monkeypatch.setattr("graphcrate.host.process.run", run)
    order = BuildOrder(
        plan=planned(), folder=tmp_path, base=None, files={}, arguments={"MIRROR": "m"}, cache=cache,
        environment={"PATH": "/bin", "http_proxy": "http://p:1"}, progress=Recorder(),
    )  # fmt: skip
    pull = "apptainer pull docker://a:1 "
    with refused(BuildError, "apptainer build of pkg:1.0 failed: the base image a:1 is not", pull):
        ENGINE.build(order)
    (first, *_), (argv, environment, written) = asked
    assert (first[1:3], argv[1:4]) == (["build", "--force"], ["build", "--force", "--fakeroot"])
    assert (environment["APPTAINERENV_MIRROR"], environment["http_proxy"], written) == ("m", "http://p:1", text)
    assert "apptainer Running post scriptlet" in order.progress.lines
    assert not list(tmp_path.glob("*.sif*"))
    assert not (cache.root / "apptainer" / "build").exists()


# spython


@pytest.fixture
def no_process(monkeypatch):
    """Nothing is started but by `host.process`, which the test plays. (spython would catch an error.)"""
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **_: started.append(arguments))
    yield
    assert started == []


def test_spython_writes_the_commands_and_host_process_runs_them(no_process, tmp_path, monkeypatch):
    asked = answers(monkeypatch, 3, "the last line")
    monkeypatch.setattr("graphcrate.host.sandbox.gpu.detect", lambda: HostGpu(devices=("/dev/nvidia0",)))
    heard, environment, client = [], {"PATH": "/bin"}, engine()
    built = client.build(
        "a.def", tmp_path / "a.sif", ["--fakeroot"], environment=environment, cwd=tmp_path, on_line=heard.append
    )
    command = Exec(["python", "-c", "x y"], binds=[Bind(tmp_path, "/in")], gpu=True, timeout=5, on_line=heard.append)
    ran = client.execute(tmp_path / "a.sif", command, ["--pid"], environment=environment)
    assert built == ran == Completed(3, ("the last line",))
    (build, of_build), (execute, of_execute) = asked
    assert build == ["/usr/bin/it", "build", "--force", "--fakeroot", f"{tmp_path}/a.sif", "a.def"]
    bind = f"{tmp_path.resolve()}:/in:ro"
    options = ["--silent", "--nocolor", "exec", "--nv", "--bind", bind, "--pid", f"{tmp_path}/a.sif"]
    assert execute == ["/usr/bin/it", *options, "python", "-c", "x y"]
    assert of_build == {"environment": environment, "cwd": tmp_path, "on_line": heard.append}
    assert of_execute == {"environment": environment, "on_line": heard.append, "timeout": 5}


def inspected(monkeypatch, text):
    """Play what `inspect` prints, or how it fails."""
    asked = []

    def output(argv, *, timeout):
        asked.append((argv, timeout))
        if isinstance(text, Exception):
            raise text
        return text

    monkeypatch.setattr("graphcrate.host.process.output", output)
    return asked


@pytest.mark.parametrize("labels", [{"a.b": "c d"}, '{"a.b": "c d"}'])  # Singularity before 3 has them as a text
def test_apptainer_labels_are_read_from_inspect(no_process, monkeypatch, labels):
    asked = inspected(monkeypatch, json.dumps({"data": {"attributes": {"labels": labels}}, "type": "container"}))
    assert engine().labels(Path("/a.sif")) == {"a.b": "c d"}
    ((argv, timeout),) = asked
    assert (argv[:2], "--json" in argv, argv[-1], timeout) == (["/usr/bin/it", "inspect"], True, "/a.sif", 60)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"data": {"attributes": {"labels": 1}}}'])
def test_unreadable_output_of_inspect_is_an_error(no_process, monkeypatch, text):
    inspected(monkeypatch, text)
    with refused(BuildError, "apptainer inspect prints no labels of /a.sif", "/usr/bin/it inspect --json /a.sif "):
        engine().labels(Path("/a.sif"))


TITLE, VERSION = apptainer.IDENTITY[:2]


@pytest.fixture
def labelled(tmp_path, cache, monkeypatch):
    """An order for an image with labels, whose build writes a file and succeeds."""
    plan = planned()
    config = msgspec.structs.replace(plan.config, labels={TITLE: "pkg", VERSION: "1.0", "other": "x"})
    steps = tuple(config if step is plan.config else step for step in plan.steps)

    def run(argv, *, environment, cwd, on_line):
        Path(argv[-2]).write_bytes(b"a SIF")
        return Completed(0, ())

    monkeypatch.setattr(apptainer_client, "find", lambda environment: engine())
    monkeypatch.setattr(apptainer, "definition", lambda plan: "text")
    monkeypatch.setattr("graphcrate.host.process.run", run)
    return BuildOrder(
        plan=msgspec.structs.replace(plan, steps=steps), folder=tmp_path, base=None, files={}, cache=cache,
        environment={"PATH": "/bin"}, progress=Recorder(),
    )  # fmt: skip


def with_labels(monkeypatch, labels):
    inspected(monkeypatch, json.dumps({"data": {"attributes": {"labels": labels}}}))


def test_built_image_with_the_plans_labels_is_kept(labelled, monkeypatch):
    with_labels(monkeypatch, {TITLE: "pkg", VERSION: "1.0", "org.label-schema.build-arch": "amd64"})
    artifact, layers = ENGINE.build(labelled)
    assert (Path(artifact.reference).read_bytes(), artifact.bytes, layers) == (b"a SIF", 5, ())
    assert artifact.digest == f"sha256:{hashlib.sha256(b'a SIF').hexdigest()}"
    assert labelled.progress.lines == []


@pytest.mark.parametrize(("labels", "what"), [({TITLE: "pkg", VERSION: "0.9"}, "'0.9'"), ({TITLE: "pkg"}, "None")])
def test_built_image_with_other_labels_is_refused(labelled, monkeypatch, labels, what):
    with_labels(monkeypatch, labels)
    with refused(BuildError, "apptainer built another image than pkg:1.0", f"{VERSION} is {what}"):
        ENGINE.build(labelled)
    assert not list(labelled.folder.glob("*.sif*"))


def test_built_image_that_cannot_be_inspected_is_kept_with_a_note(labelled, monkeypatch):
    inspected(monkeypatch, BuildError("it inspect failed (exit code 255)\n    FATAL: no"))
    assert Path(ENGINE.build(labelled).artifact.reference).read_bytes() == b"a SIF"
    assert labelled.progress.lines == ["the labels of the image are not compared: it inspect failed (exit code 255)"]


@pytest.mark.parametrize(
    ("text", "what", "next_step"),
    [
        (BuildError("image format not recognized"), "it is damaged", "./build.py convert NAME:TAG --to sif"),
        ('{"data": {"attributes": {"labels": {}}}}', "cannot run", "/usr/bin/it exec "),
    ],
)
def test_image_that_does_not_start_is_damaged_where_inspect_fails(tmp_path, cache, monkeypatch, text, what, next_step):
    (tmp_path / "a.sif").write_bytes(b"junk")
    artifact = Artifact(engine="apptainer", kind="sif", reference=str(tmp_path / "a.sif"), digest="", bytes=4)
    monkeypatch.setattr(apptainer_client, "find", lambda environment: engine())
    answers(monkeypatch, 255, "FATAL:   could not open image")
    inspected(monkeypatch, text)
    with refused(HostError, what, "could not open image", next_step):
        with ENGINE.opened(artifact, cache=cache, progress=Recorder()):
            raise AssertionError("it was opened")


@pytest.mark.parametrize(("ask", "option"), [(ENGINE.check, "engine"), (ENGINE.runtime, "runner")])
def test_missing_engine_names_another_by_the_option_that_chooses_it(tmp_path, monkeypatch, ask, option):
    monkeypatch.setattr("graphcrate.host.settings.SYSTEM_FOLDERS", ())
    with refused(
        HostError, "neither apptainer nor singularity", f"or another: --{option} docker or --{option} embedded"
    ):
        ask({"PATH": str(tmp_path)})
