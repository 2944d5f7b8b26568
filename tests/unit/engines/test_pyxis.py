"""A job's settings of pyxis and enroot, and what it leaves of them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.facts import pyxis_log
from graphcrate.engines import pyxis
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.errors import HostError
from graphcrate.model.report import Artifact
from nsbox.box import Bind


def test_pyxis_step_has_container_mounts_and_is_read_only(tmp_path):
    binds = (Bind(tmp_path, "/out", read_only=False),)
    words = pyxis.step("a", Exec(["python", "x.py"], {"OMP_NUM_THREADS": "2"}, binds))
    # else ~/.local of the host shadows the image's packages
    assert {"--container-name=a", "--container-workdir=/", "--no-container-mount-home"} <= set(words)
    assert f"--container-mounts={tmp_path}:/out:rw" in words
    assert not [word for word in words if word.startswith("--container-image")]
    assert "--container-readonly" in words
    assert (words[0], words[-4:]) == ("srun", ["env", "OMP_NUM_THREADS=2", "python", "x.py"])
    plain = pyxis.step("a", Exec(["true"], cwd="/work"), "ns/image:1")
    assert {"--container-image=ns/image:1", "--container-workdir=/work"} <= set(plain)
    assert "env" not in plain


def test_pyxis_step_on_several_nodes_makes_containers_without_a_name():
    words = pyxis.step("a", Exec(["python", "x.py"], nodes=2), "/a.sqsh")
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--container-image=/a.sqsh"} <= set(words)
    assert not [word for word in words if word.startswith("--container-name")]


@pytest.mark.parametrize(
    ("driver", "chosen", "given"), [("mlx5_core", "", "all"), ("mlx5_core", "0", "0"), ("ice", "", ""), ("", "", "")]
)
def test_pyxis_step_on_several_nodes_asks_for_cards_that_are_there(tmp_path, monkeypatch, driver, chosen, given):
    """enroot's hook ends the start on nodes without such a card."""
    if driver:
        (tmp_path / "ibp1s0/device").mkdir(parents=True)
        (tmp_path / "ibp1s0/device/driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")
    monkeypatch.setattr(pyxis, "CARDS", tmp_path)
    called = []
    answer = Completed(0, ())
    monkeypatch.setattr(pyxis.process, "run", lambda words, **more: called.append((words, more)) or answer)
    variables = {"MELLANOX_VISIBLE_DEVICES": chosen} if chosen else {}
    container = pyxis.Container("graphcrate-7", variables, "/a.sqsh")
    for nodes in (2, 1):
        container.run(Exec(["true"], nodes=nodes))
    (several, options), (alone, others) = called
    assert ("--container-image=/a.sqsh" in several, "--container-image=/a.sqsh" in alone) == (True, False)
    assert options["environment"].get("MELLANOX_VISIBLE_DEVICES", "") == given
    assert others["environment"] == variables


JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "PATH": "/usr/bin", "MELLANOX_VISIBLE_DEVICES": "0", "SECRET": "1"}


def test_pyxis_variables_name_gpus_if_there_is_a_driver(tmp_path, monkeypatch):
    def told(has_driver, **given):
        monkeypatch.setattr(pyxis, "DRIVER", tmp_path if has_driver else tmp_path / "nvidiactl")
        variables = pyxis.variables_of({**JOB, **given})
        assert variables["MELLANOX_VISIBLE_DEVICES"] == "0"
        assert variables["SLURMD_NODENAME"] == "n1"  # a site's enroot.conf may go by it
        assert "SECRET" not in variables
        return variables.get("NVIDIA_VISIBLE_DEVICES")

    assert [told(False), told(False, NVIDIA_VISIBLE_DEVICES="none")] == ["void", "none"]
    assert [told(True), told(True, NVIDIA_VISIBLE_DEVICES="void")] == [None, "void"]


class Steps:
    """Stands in for `process`: what each step printed and ended with, and the containers that enroot has."""

    def __init__(self, containers, lines=(), code=0, again=0):
        self.containers, self.lines, self.code, self.called = list(containers), lines, code, []
        self.notes = []
        self.again = again  #: how often what still writes makes a container anew

    def run(self, argv, **_):
        self.called.append(argv)
        return Completed(self.code, tuple(self.lines))

    def output(self, argv, *, environment):
        assert "ENROOT_DATA_PATH" not in environment
        self.called.append(argv)
        if argv[:2] == ["enroot", "list"]:
            return "".join(f"{name}\n" for name in self.containers)
        self.again -= 1
        if self.again < 0:
            self.containers = [name for name in self.containers if name not in argv]
        return ""


class Notes(Progress):
    """Keeps what is told."""

    def __init__(self, told):
        self.note = told.append


@pytest.fixture
def in_job(monkeypatch):
    """A function that opens an image in job 7, with `Steps` in the place of processes."""

    def opened(steps, artifact):
        monkeypatch.setattr(pyxis, "process", steps)
        monkeypatch.setattr(pyxis, "PAUSES", (0, 0))
        monkeypatch.setattr(pyxis, "runtime", lambda _: None)
        monkeypatch.setattr(pyxis.settings, "environment", lambda: {**JOB, "ENROOT_DATA_PATH": "/elsewhere"})
        return pyxis.opened(artifact, cache=None, progress=Notes(steps.notes))

    return opened


@pytest.mark.parametrize("own", ["pyxis_graphcrate-7", "pyxis_7_graphcrate-7"], ids=["global", "job"])
def test_pyxis_job_imports_its_image_once_and_removes_it(in_job, own):
    steps = Steps([own, "pyxis_graphcrate-77", "pyxis_other"])
    artifact = Artifact(engine="pyxis", kind="registry", reference="registry.example.com/a/b:1", digest="x", bytes=0)
    with in_job(steps, artifact) as inside:
        inside.run(Exec(["true"]))
        inside.run(Exec(["true"]))
    steps_with_image = [words for words in steps.called if "--container-image=registry.example.com#a/b:1" in words]
    assert len(steps_with_image) == 1
    assert sum("--container-name=graphcrate-7" in words for words in steps.called) == 3
    assert steps.containers == ["pyxis_graphcrate-77", "pyxis_other"]


def test_pyxis_start_failure_quotes_enroots_error(in_job):
    lines = ["slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli", "srun: error: task 0"]
    steps = Steps(["pyxis_graphcrate-7"], lines, code=1)
    artifact = Artifact(engine="pyxis", kind="sqsh", reference="/a.sqsh", digest="x", bytes=0)
    with pytest.raises(HostError, match=r"does not start /a.sqsh: Command not found: nvidia-container-cli\n"):
        with in_job(steps, artifact):
            pass
    assert steps.containers == []


@pytest.mark.parametrize(
    ("again", "told"),
    [
        (0, ["pyxis_graphcrate-7 is removed"]),
        (2, ["pyxis_graphcrate-7 is removed"]),
        (
            9,
            [
                "pyxis_graphcrate-7 stays on this node: it is still listed "
                "(there: enroot remove --force pyxis_graphcrate-7)"
            ],
        ),
    ],
)
def test_container_of_a_cancelled_job_is_said_to_be_removed_once_it_is_gone(in_job, again, told):
    steps = Steps(["pyxis_graphcrate-7"], again=again)
    artifact = Artifact(engine="pyxis", kind="sqsh", reference="/a.sqsh", digest="x", bytes=0)
    with pytest.raises(KeyboardInterrupt), in_job(steps, artifact):
        raise KeyboardInterrupt
    assert steps.notes == told
    assert bool(steps.containers) == ("stays" in told[0])


#: what srun printed of a step on two nodes with a full disk; pyxis 0.24, enroot 4.1.2, Slurm 22.05.8
FULL = """\
slurmstepd-{node}: error: pyxis: child 28781 failed with error code: 1
slurmstepd-{node}: error: pyxis: failed to create container filesystem for image: ./a.sqsh
slurmstepd-{node}: error: pyxis: printing enroot log file:
slurmstepd-{node}: error: pyxis:     [INFO] Extracting squashfs filesystem...
slurmstepd-{node}: error: pyxis:     Write on output file failed because No space left on device
slurmstepd-{node}: error: pyxis:     FATAL ERROR: writer: failed to write file {folder}/pyxis_10.0/big/a.pyc
slurmstepd-{node}: error: pyxis:     Parallel unsquashfs: Using 2 processors
slurmstepd-{node}: error: pyxis:     39136 inodes (40927 blocks) to write
slurmstepd-{node}: error: pyxis:     \

slurmstepd-{node}: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
slurmstepd-{node}: error: Failed to invoke spank plugin stack
srun: error: {node}: task 0: Exited with exit code 1
"""
TOOLS = """\
slurmstepd-{node}: error: pyxis: container start failed with error code: 1
slurmstepd-{node}: error: pyxis: printing enroot log file:
slurmstepd-{node}: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see https://example.com
slurmstepd-{node}: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1
slurmstepd-{node}: error: pyxis: couldn't start container
"""


def interleaved(*texts):
    """Lines as they come from several nodes at once."""
    return [line for lines in itertools.zip_longest(*(text.splitlines() for text in texts)) for line in lines if line]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (
            [FULL.format(node=node, folder="/var/lib/enroot") for node in ("n2", "n1")],
            "n1, n2: no space left in /var/lib/enroot",
        ),
        (
            [FULL.format(node="n1", folder="/run/a"), FULL.format(node="n2", folder="/run/b")],
            "n1: no space left in /run/a; n2: no space left in /run/b",
        ),
        (
            [TOOLS.format(node="n2"), FULL.format(node="n1", folder="/run/a")],
            "n2: Command not found: nvidia-container-cli, see https://example.com; n1: no space left in /run/a",
        ),
        ([FULL.format(node="n1", folder="/run/a").replace("stepd-n1", "stepd")], "no space left in /run/a"),
        (["slurmstepd-n1: error: pyxis: couldn't join mount namespace: EPERM"], "n1: couldn't join mount namespace"),
    ],
)
def test_start_that_failed_on_several_nodes_names_the_first_cause_of_each(monkeypatch, texts, why):
    monkeypatch.setattr(pyxis, "process", Steps([], interleaved(*texts), code=1))
    inside = pyxis.Container("graphcrate-16", JOB, "/a.sqsh")
    with pytest.raises(HostError) as caught:  # lost, as nothing is known of what was to run
        inside.run(Exec(["true"], nodes=2))
    assert caught.value.what.startswith(f"pyxis does not start /a.sqsh: {why}")
    known = caught.value.cause  # as the doctor says
    assert any(words in known for words in ("a folder that is too small", "no NVIDIA container tools")) == (
        "join" not in why
    )


def test_program_that_failed_on_several_nodes_is_no_failed_start(monkeypatch):
    lines = ["Phase: training", "No space left on device", "srun: error: n1: task 0: Exited with exit code 1"]
    monkeypatch.setattr(pyxis, "process", Steps([], lines, code=1))
    assert pyxis.Container("graphcrate-16", JOB, "/a.sqsh").run(Exec(["true"], nodes=2)).returncode == 1


@given(st.lists(st.from_regex(r"(slurmstepd-n[12]: error: )?(pyxis: )?.{0,40}", fullmatch=True)))
def test_any_lines_of_a_log_give_words_of_one_line(lines):
    assert "\n" not in pyxis_log.why_not_started(lines)


@pytest.mark.parametrize("lost", [True, False])
def test_cancelled_pyxis_step_is_a_host_error(monkeypatch, lost):
    said = "srun: error: Slurm job 16 has expired" if lost else "srun: error: n1: task 0: Segmentation fault"
    monkeypatch.setattr(pyxis, "process", Steps([], ["Phase: training", said], code=1))
    inside = pyxis.Container("graphcrate-16", JOB)
    if lost:
        with pytest.raises(HostError, match="Slurm took the step away: Slurm job 16 has expired"):
            inside.run(Exec(["true"]))
    else:
        assert inside.run(Exec(["true"])).returncode == 1


def test_pyxis_mount_of_a_path_with_spaces_is_refused(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    with pytest.raises(HostError, match="there is a space in its path") as caught:
        pyxis.step("a", Exec(["true"], binds=(Bind(folder, "/out", read_only=False),)))
    assert "TMPDIR=/tmp" in caught.value.next_step
