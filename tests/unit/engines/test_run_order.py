"""Orders of `run`: variables by a table, folders that were asked for, no word that is another program's option."""

import os
from pathlib import Path

import pytest

from graphcrate.engines import oci, run_order
from graphcrate.engines.run_order import CACHE, CACHES, RunRequest, carry_out, foreign, make_order, pass_on, read_mount
from graphcrate.host.context import Context
from graphcrate.host.engines.apptainer_client import ApptainerClient
from graphcrate.host.engines.oci_engine import OciClient
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import attach, gpu
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.errors import HostError, UsageError
from nsbox import namespaces
from nsbox.box import Bind
from tests.made import refused

SHELL = Exec(("bash",))


@pytest.fixture
def ordered(tmp_path, monkeypatch, capsys):
    """Makes an order in a folder: the order, and what is said."""
    monkeypatch.chdir(tmp_path)

    def make(image=SHELL, environment=None, **request):
        ctx = Context(root=tmp_path, environment={"HOME": "/home/me", **(environment or {})})
        order = make_order(RunRequest(**request), ctx, image, gpu=True)
        return order, capsys.readouterr().err

    return make


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("NVIDIA_TF32_OVERRIDE", "0"),
        ("OMP_NUM_THREADS", "4"),
        ("NCCL_DEBUG", "INFO"),
        ("SLURM_SUBMIT_DIR", "/home/me/x"),
        ("PMI_RANK", "0"),
        ("LOCAL_RANK", "3"),
        ("MASTER_ADDR", "node1"),
        ("WANDB_MODE", "offline"),
        ("HF_TOKEN", "x"),
        ("HF_HOME", "/work/cache"),
    ],
)
def test_variable_of_the_table_passes_without_a_word(ordered, name, value):
    order, said = ordered(environment={name: value})
    assert (order.environment, said) == ({name: value}, "")


def test_other_variables_that_programs_read_are_named_once_and_do_not_pass(ordered):
    environment = {"TORCH_HOME": "/x", "DATA_DIR": "/y", "LS_COLORS": "z", "EDITOR": "vi"}
    order, said = ordered(environment=environment)
    assert order.environment == {}
    assert "not passed: DATA_DIR and TORCH_HOME; --env DATA_DIR" in said
    assert said.count("\n") == 1
    order, said = ordered(environment=environment, env=["DATA_DIR", "TORCH_HOME=/t"])
    assert (order.environment, said) == ({"DATA_DIR": "/y", "TORCH_HOME": "/t"}, "")


@pytest.mark.parametrize(
    "line", ['os.environ["LAMBDA"]', "os.getenv('LAMBDA', 1)", "#!/bin/sh\necho $LAMBDA", "${LAMBDA:-1}"]
)
def test_variable_that_the_programs_file_names_is_named(ordered, tmp_path, line):
    (tmp_path / "train.py").write_text(f"{line}\nLAMBDA = 'HOME'")
    environment = {"LAMBDA": "2", "HOME": "/h", "OTHER": "1", "ETA": "3"}
    (tmp_path / "other.txt").write_text("$OTHER")
    order, said = ordered(environment=environment, program=("python", "train.py"))
    assert order.environment == {}
    assert said.split("not passed: ")[1].startswith("LAMBDA; --env LAMBDA    passes it")
    (tmp_path / "config.py").write_text("'ETA'")
    assert "not passed: ETA and LAMBDA;" in ordered(environment=environment, program=("python", "train.py"))[1]
    assert ordered(environment=environment, program=("python", "train.py"), env=["LAMBDA", "ETA"])[1] == ""
    assert ordered(environment=environment, program=("python", "none.py"))[1] == ""


class Programs:
    """An image in which each run ends with the next of these codes, after its own change of the file."""

    def __init__(self, *steps):
        self.steps, self.orders = list(steps), []

    def run(self, order):
        self.orders.append(order)
        code, change = self.steps.pop(0)
        change()
        return Completed(code, ())


def test_program_runs_again_on_each_change_until_it_is_interrupted(tmp_path, capsys):
    code = tmp_path / "train.py"
    code.write_text("1")
    request = RunRequest(watched=[code])
    image = Programs((1, lambda: code.write_text("22")), (-15, lambda: code.write_text("333")), (-2, lambda: None))
    ctx = Context(root=tmp_path, environment={})
    assert carry_out(image, SHELL, request, ctx) == 130
    assert len(image.orders) == 3
    assert not image.orders[0].ends()
    assert capsys.readouterr().err.count("train.py has changed: running it again") == 2
    image = Programs((3, lambda: None))
    assert carry_out(image, SHELL, RunRequest(), ctx) == 3
    assert image.orders == [SHELL]


def test_path_that_the_image_lacks_is_named_with_its_mount(ordered, tmp_path):
    order, said = ordered(environment={"HF_HOME": "/data/hf"})
    assert (order.environment, "not passed: HF_HOME: the image has no /data/hf; --mount /data/hf" in said) == ({}, True)
    order, said = ordered(environment={"HF_HOME": "/data/hf"}, mounts=[f"{tmp_path}:/data"])
    assert (order.environment, said) == ({"HF_HOME": "/data/hf"}, "")


def test_every_row_has_patterns_that_a_name_can_match():
    for row in run_order.PASSED:
        for pattern in row.patterns:
            assert pass_on({pattern.replace("*", "X"): "1"}, ())[0], pattern


@pytest.mark.parametrize(
    ("text", "said"), [("1A=x", "names no variable"), ("A B=x", "names no variable"), ("", "no var"), ("NO", "not set")]
)
def test_what_names_no_variable_is_refused(ordered, text, said):
    with refused(UsageError, said):
        ordered(env=[text])


def test_env_file_gives_its_lines_and_env_goes_over_it(ordered, tmp_path):
    (tmp_path / ".env").write_text("# data\nA=1=2\n\nB = x\n".replace("B = ", "B="))
    order, _ = ordered(env_files=[tmp_path / ".env"], env=["B=y"])
    assert order.environment == {"A": "1=2", "B": "y"}


def test_env_file_takes_no_variable_of_the_host(ordered, tmp_path):
    (tmp_path / ".env").write_text("AWS_SECRET_ACCESS_KEY\n")
    with refused(UsageError, ".env:1", "has no value"):
        ordered(env_files=[tmp_path / ".env"], environment={"AWS_SECRET_ACCESS_KEY": "x"})
    with refused(UsageError, f"there is no file {tmp_path}/none", f"ls {tmp_path} "):
        ordered(env_files=[tmp_path / "none"])


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("/a:/data", Bind(Path("/a"), "/data", read_only=False)),
        ("/a:/data:ro", Bind(Path("/a"), "/data")),
        ("/a//:/data//x/:rw", Bind(Path("/a"), "/data/x", read_only=False)),
        ("/a", Bind(Path("/a"), "/a", read_only=False)),
        ("/a:ro", Bind(Path("/a"), "/a")),
    ],
)
def test_mount_is_read(text, bind):
    assert read_mount(text) == bind


def test_relative_source_is_of_the_working_folder():
    assert read_mount("data:/data").source == Path.cwd() / "data"
    assert read_mount("~/x:/data").source == Path("~/x").expanduser()


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "/a:b", "/a:/b:/c", "/a:/b:ro:rw", ":/b", "/a:/b/../etc", "/a:/b\n", "/a:/", "/a://"),
        *("/a:/proc", "/a:/proc/x", "/a:/sys", "/a:/dev/shm"),
    ],
)
def test_invalid_mount_is_refused(text):
    with pytest.raises(UsageError):
        read_mount(text)


def test_mounts_are_looked_at_like_the_working_folder(ordered, tmp_path, monkeypatch):
    monkeypatch.setattr(namespaces, "mount_points", lambda: {"/": "ext4", str(tmp_path / "k"): "debugfs"})
    (tmp_path / "k").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "k")
    for source in ("k", "link"):
        with refused(HostError, "debugfs", "leave its --mount out"):
            ordered(mounts=[f"{source}:/data"])
    assert "can read every file of this machine" in ordered(mounts=["/:/host:ro"])[1]
    assert "can read and change all of the home folder /home/me" in ordered(mounts=["/home/me:/me"])[1]


def test_typed_mount_goes_before_the_configured_one_of_its_target(ordered, tmp_path):
    order, _ = ordered(configured=["/usr:/data:ro", "/opt:/opt:ro"], mounts=[f"{tmp_path}:/data"])
    work, *rest = order.binds
    assert work == Bind(tmp_path, "/work", read_only=False)
    assert rest == [Bind(Path("/opt"), "/opt"), Bind(tmp_path, "/data", read_only=False)]
    with refused(UsageError, "two folders are to be /data"):
        ordered(mounts=["/usr:/data", "/opt:/data"])


def test_mount_at_work_takes_the_place_of_the_working_folder(ordered, tmp_path):
    assert ordered(mounts=["/usr:/work:ro"])[0].binds == (Bind(Path("/usr"), "/work"),)


def test_cache_folder_is_made_and_its_variables_lead_there(ordered, tmp_path):
    order, _ = ordered(cache=tmp_path / "new" / "cache", env=["TORCH_HOME=/t"], environment={"HF_HOME": "/x"})
    assert order.binds[1] == Bind(tmp_path / "new" / "cache", CACHE, read_only=False)
    assert (tmp_path / "new" / "cache").is_dir()
    assert order.environment["HF_HOME"] == "/cache/huggingface"
    assert order.environment["TORCH_HOME"] == "/t"
    assert order.environment.keys() == CACHES.keys()


def test_program_and_folder_are_the_images_own_where_none_is_named(ordered):
    image = Exec(("python", "serve.py"), cwd="/srv")
    order, _ = ordered(image)
    assert (order.argv, order.cwd) == (image.argv, "/srv")
    order, _ = ordered(image, program=("ls",))
    assert (order.argv, order.cwd) == (("ls",), "/work")
    assert ordered(image, workdir="/data")[0].cwd == "/data"
    with refused(UsageError, "does not begin with /"):
        ordered(workdir="src")


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("-v", "--mount"),
        ("-B", "--mount"),
        ("--gpus=all", "CUDA_VISIBLE_DEVICES"),
        ("--nv", "every GPU"),
        ("-it", "so"),
    ],
)
def test_option_of_another_program_has_one_of_ours(option, instead):
    assert instead in foreign(option)
    assert foreign("--nobody-has-this") == ""


@pytest.fixture
def started(monkeypatch):
    """Command lines that got the terminal, with their environment."""
    found = []
    monkeypatch.setattr(attach, "run", lambda argv, *, environment, ends=None: found.append((argv, environment)) or 7)
    monkeypatch.setattr(attach, "has_terminal", lambda: True)
    monkeypatch.setattr(gpu, "detect", gpu.HostGpu)
    return found


GIVEN = Exec(
    ("python", "--env", "x"), {"WANDB_API_KEY": "secret", "DOCKER_HOST": "tcp://x"}, attached=True, network=True
)


def test_docker_gets_the_terminal_and_no_password_in_its_words(started, tmp_path):
    client = OciClient(
        name="docker", command=("docker",), environment={"PATH": "/p"}, version="1", build_options=(), gpu_options=()
    )
    assert oci.EngineImage(client, "pyg:1").run(GIVEN).returncode == 7
    ((words, environment),) = started
    assert words[-4:] == ["pyg:1", "python", "--env", "x"], "the program's own words stay its own"
    assert [words[at + 1] for at, word in enumerate(words[:-4]) if word == "--env"] == [
        "WANDB_API_KEY",
        "DOCKER_HOST=tcp://x",
    ]
    assert {"--interactive", "--tty", "host"} <= set(words)
    assert environment == {"PATH": "/p", "WANDB_API_KEY": "secret"}, "what a user names is not the engine's"


def test_apptainer_gets_the_terminal_with_its_environment(started, tmp_path):
    (tmp_path / "a.sif").touch()
    client = ApptainerClient(program="apptainer", name="apptainer", version=(1, 4, 5), text="1.4.5")
    done = client.execute(tmp_path / "a.sif", GIVEN, ("--contain",), environment={"APPTAINERENV_A": "1"})
    assert done.returncode == 7
    ((words, environment),) = started
    assert words[-4:] == [str(tmp_path / "a.sif"), "python", "--env", "x"]
    assert environment == {"APPTAINERENV_A": "1"}
    assert os.fspath(tmp_path / "a.sif") in words


def test_code_as_a_word_of_a_program_is_no_file(tmp_path, monkeypatch):
    """Longer than a name may be, and with what no name has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os\nos.environ['SEED']\n")
    assert run_order.named_in_code(["python", "-c", "print(1)\n" * 500, "a\0b"]) == set()
    assert "SEED" in run_order.named_in_code(["python", "train.py"])
