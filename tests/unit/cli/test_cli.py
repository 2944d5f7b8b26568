"""The command line: results on stdout, messages on stderr, distinct exit codes; lists, and what `job` prints."""

import errno
import io
import json
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

from graphcrate.artifacts import locate
from graphcrate.assembly import pipeline
from graphcrate.cli import exit as cli_exit
from graphcrate.cli import main, node, options, tables
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError, UsageError
from tests import ROOT
from tests.made import KNOWN, OF_ONE_DAY, RECIPES, refused
from tests.unit import small_layouts, tars

NEWEST = ["13.0", "12.8", "12.6", "12.1", "11.8", "11.7", "11.6"]
COMMANDS = typer.main.get_command(main.app).commands


@pytest.fixture
def call(context, typed):
    """Types commands with recipes of one day and a cache of its own, and no way to the network."""
    shutil.copytree(OF_ONE_DAY, context.root / "recipes")
    return typed


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("image pyg --cuda 11.9", ("'11.9'", "make image CUDA=11.8")),
        ("image pyg --cuda cu119", ("'11.9'",)),
        ("image pyg --cuda ' 11.9 '", ("'11.9'",)),
        ("image pyg --cuda ''", ("--cuda is empty",)),
        ("explain pyg --gpu ''", ("--gpu is empty",)),
        ("image pig", ("pyg",)),
        ("image pyg --colour blue", ("image has no option --colour", "next:  ./build.py image --help")),
        ("image pyg --cud 11.8", ("image has no option --cud: did you mean --cuda?",)),
        (
            "image torch --python 3.10",
            ("image has no option --python", "cause: Python and torch", "next:  ./build.py list"),
        ),
        ("image", ("image needs NAME\ncause: NAME: Recipe, such as pyg", "next:  make image CUDA=11.8")),
        ("test", ("test needs REF\ncause: REF: ", "next:  ./build.py test --help")),
        ("image pyg --cuda", ("option '--cuda' requires an argument", "next:  ./build.py image --help")),
        ("--colour image pyg", ("graphcrate has no option --colour", "next:  ./build.py --help")),
        ("imag pyg", ("no such command 'imag'", "next:  ./build.py --help")),
        ("convert pyg:x --to floppy", ("floppy", "next:  ./build.py")),
        ("build pyg", ("./build.py image",)),
        ("inspect pyg:none --output nowhere", ("make image CUDA=11.8",)),
        ("publish docker:pyg:there --to . --gpu v100", ("--gpu and --target are for a recipe",)),
        ("publish docker:pyg:there --to . --as tar", ("'tar' is not one of",)),
        ("publish docker:pyg:there", ("there is no destination", "./build.py publish docker:pyg:there --to")),
        ("verify pyg:there", ("names no registry", "docker.io/pyg:there for one of Docker Hub")),
        ("keys --output nowhere", ("mkdir -p nowhere",)),
        ("job pyg:1 --runtime nomad", ("docker, ", "pai-dlc, pai-dsw")),
        ("job a.sif --runtime module", ("not a whole path", "./build.py job /FOLDER/a.sif --runtime module")),
        ("job /a.sif --runtime module --gpus 2", ("no --gpus", "leave --gpus out")),
        ("job a.io/b:1 --runtime pai-dsw --command true", ("no --command",)),
        ("test docker:a:1 docker:b:1", ("--matrix",)),
        ("test docker:a:1 --runner slurm", ("--partition is missing",)),
        ("test docker:a:1 --matrix", ("--partition is missing",)),
        ("test docker:a:1 --partition a100", ("--runner slurm",)),
        ("test docker:a:1 --nodes 2 --runner docker", ("--nodes needs --runner slurm", "torchrun")),
        ("test docker:a:1 --runner slurm --partition a100,dgx2", ("--matrix",)),
        ("test docker:a:1 --runner docker --matrix --partition a100", ("the runner is docker",)),
        ("test a:1", ("there is no image 'a:1'",)),
        ("check docker:a:1 --runtime lxc", ("docker, apptainer, pyxis, pai",)),
        ("check docker:a:1 --shm -1", ("--shm 64m",)),
        ("check docker:a:1 --gpu v10", ("V100",)),
        ("check docker:a:1 --only programs", ("choose from: bytes, runtimes, binaries",)),
    ],
)
def test_invalid_command_line_ends_with_2_and_a_command(call, command, said):
    code, out, err = call(*shlex.split(command))
    assert (code, out) == (2, ""), err
    assert [word for word in said if word not in err] == [], err


def test_json_output_is_utf_8_and_text_is_escaped_in_an_ascii_locale(monkeypatch):
    def printed(*, as_json):
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        monkeypatch.setattr(main, "app", lambda: options.write({"a": "…"}, "a …\n", as_json=as_json))
        main.main()
        return sys.stdout.buffer.getvalue()

    assert json.loads(printed(as_json=True)) == {"a": "…"}
    assert printed(as_json=False) == b"a ?\n"


def test_repeated_gpu_options_add_up(call):
    _, out, _ = call("explain", "torch", "--gpu", "v100", "--gpu", "h100")
    assert "V100 (sm_70), H100 (sm_90)" in out


def test_list_as_json_has_a_line_per_variant_and_candidate(call):
    code, out, _ = call("list", "--json")
    rows = json.loads(out)
    assert (code, len([row for row in rows if row["recipe"] == "pyg"])) == (0, 11)
    compatible = [row for row in rows if row["candidate"] == "compatible"]
    variants = ["glt 11.6", "pyg 11.6", "pyg 11.8", "torch 11.6", "torch 11.8"]
    assert sorted(f"{row['recipe']} {row['cuda']}" for row in compatible) == variants
    assert {row["torch_cuda"] for row in compatible} == {"11.7"}
    assert all("built for CUDA 11.7" in row["meaning"] and "H100" not in row["gpus"] for row in compatible)


def test_list_has_a_line_for_each_variant_in_80_columns(call):
    code, out, _ = call("list")
    lines = [line for line in out.splitlines() if not line.startswith("†")]  # its note may be longer
    assert (code, len(lines)) == (0, 2 + sum(len(recipe.variants) for recipe in KNOWN.values()))
    assert max(map(len, lines)) <= 80
    pyg = "pyg 11.8 2.0.1+cu118 2.3.1 3.11 sm_70 to sm_90 * 450.80.02 no"
    assert pyg in [" ".join(line.split()) for line in lines]
    assert "sm_60 and sm_61 too, when built for it: GPU=" in lines[-1]


def test_list_draws_which_gpus_run_which_cuda(call):
    code, out, _ = call("list", "--gpus")
    pyg = out.partition("\npyg ")[2].partition("\n\n")[0].splitlines()
    marks = {line.split()[0]: line.partition(")")[2].split() for line in pyg}
    assert dict(zip(pyg[0].split(), marks["V100,"], strict=True)) == {"13.0": "·", **dict.fromkeys(NEWEST[1:], "●")}
    assert marks["P100"] == ["·", "·", *["○"] * 5]
    assert "○ runs when built for it: GPU=" in out
    assert (code, max(map(len, out.splitlines())) <= 120) == (0, True)


def test_help_names_every_command_once_in_its_group_with_a_whole_sentence(call):
    code, out, _ = call("--help")
    assert code == 0
    grouped = [name for names in cli_exit.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(name for name, command in COMMANDS.items() if not command.hidden)
    listed, _, epilog = out.partition("Build:")[2].rpartition("\n\n")
    lines = [line for line in listed.splitlines() if line.startswith("  ")]
    assert (len(lines), epilog.split()[-3:]) == (len(grouped), ["./build.py", "update", "--help"])
    assert not [line for line in lines if line.endswith("...")]
    for name in COMMANDS:
        code, out, _ = call(name, "--help")
        assert (code, "usage" in out.lower()) == (0, True), name


@pytest.mark.parametrize(
    "text", ["11.8", "11.8.0", "cu118", "118", " 11.8", "v11.8", "11,8", "cuda11.8", "CUDA 11.8", "cuda-11.8"]
)
def test_cuda_version_reads_common_spellings(text):
    assert options.cuda_version(text) == "11.8"


def test_gpu_in_the_place_of_a_recipe_gets_the_list_with_commas(call):
    code, _, err = call("explain", "--gpu", "v100", "a100")
    assert (code, "there is no recipe 'a100'" in err, "--gpu v100,a100" in err) == (2, True, True), err
    assert "GPU=v100 (--gpu v100)    (several" in call("explain", "v100")[2]


def test_nearest_cuda_of_a_major_version_gives_the_newest():
    known = ["11.6", "11.7", "11.8", "12.1", "12.8", "cpu"]
    assert [catalog.nearest_cuda(major, known) for major in ("11", "12")] == [["11.8", "11.7"], ["12.8", "12.1"]]


@pytest.mark.parametrize(
    ("typo", "suggested"), [("--yes", ""), ("--wheel", "--wheels"), ("--requirement", "--requirements")]
)
def test_mistyped_option_suggests_a_similar_one(call, typo, suggested):
    code, _, err = call("image", "pyg", typo)
    assert (code, "--wheels" in err or "--requirements" in err, suggested in err) == (2, bool(suggested), True), err


def test_nearest_cuda_of_an_unknown_version_is_the_next_lower_or_oldest():
    nearest = {"11.9": "11.8", "12.2": "12.1", "14": "13.0", "10.2": "11.6", "cpus": "cpu"}
    assert {asked: catalog.nearest_cuda(asked, [*reversed(NEWEST), "cpu"])[0] for asked in nearest} == nearest


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "graphcrate: interrupted; the same command goes on where this one stopped\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (PermissionError(errno.EACCES, "Permission denied", "our/a b.tar"), 7, "next:  ls -ld . "),
        (FileExistsError(errno.EEXIST, "File exists", Path("a.sif")), 7, "a file where a folder has to be"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"), 7, "next:  ls -la . "),
        (OSError(errno.ENOSPC, "No space left on device"), 8, "No space left on device"),
        (OSError(errno.EIO, "Input/output error"), 7, "A disk fails"),
        (OSError(errno.EFBIG, "File too large"), 8, "ulimit -f unlimited"),
        (OSError(errno.EMFILE, "Too many open files"), 7, 'ulimit -n "$(ulimit -Hn)"'),
        (OSError(errno.EROFS, "Read-only file system", "/mnt/x"), 7, "findmnt -T /mnt "),
        (OSError(errno.ENOENT, "No such file", "/nowhere/x/y"), 7, "ls -la / "),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), 7, "ulimit -u"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 7, "free -h"),
        (OSError(errno.ELOOP, "Too many levels of symbolic links", b"a\x1b[2J"), 7, "a\\x1b[2J: Too many levels"),
    ],
)
def test_interrupted_or_failing_command_has_its_exit_code(call, monkeypatch, error, code, said):
    monkeypatch.setattr(pipeline, "build_image", Mock(side_effect=error))
    ended, out, err = call("image", "pyg")
    assert (ended, out) == (code, "")
    assert said in err
    assert (code > 100) == ("next:  " not in err)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("pyg --on slurm --cuda 11.8", "pyg --cuda 11.8"),
        ("--on=slurm pyg --partition=a --time 3 -q", "pyg -q"),
        ("pyg --on slurm --with a --with b --plan", "pyg --with a --with b --plan"),
    ],
)
def test_node_gets_the_words_without_those_of_its_job(call, monkeypatch, words, kept):
    asked = []
    monkeypatch.setattr(node.NodeCommand, "carry_out", lambda *given: asked.append(given[2]))
    call("image", *words.split())
    assert asked == [("image", *kept.split())]


@pytest.mark.parametrize("error", [OSError("no number"), OSError(errno.EBADF, "Bad file descriptor")])
def test_internal_error_ends_with_19_as_a_defect(call, monkeypatch, tmp_path, error):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "build_image", Mock(side_effect=error))
    ended, out, err = call("image", "pyg")
    assert (ended, out, "a defect of graphcrate" in err) == (19, "", True)
    assert str(error.args[-1]) in err


def test_commands_named_in_texts_exist():
    texts = [path for folder in ("graphcrate", "docs", "examples") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in texts if path.suffix in (".py", ".md", ".toml") or "templates" in path.parts]
    texts += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")]
    named = [
        (word, path.name) for path in texts for word in re.findall(r"build\.py (\w[\w-]*)", path.read_text("utf-8"))
    ]
    assert len(set(named)) > 20
    assert [(word, name) for word, name in named if word not in (*COMMANDS, "update", "catalog")] == []


@pytest.mark.parametrize("words", [("update", "pyg", "--check"), ("lock", "--check"), ("update",), ("catalog",)])
def test_upkeeps_commands_are_refused_where_it_is_not_with_the_command_of_a_clone(monkeypatch, capsys, words):
    monkeypatch.setattr("sys.argv", ["graphcrate", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = capsys.readouterr().err
    assert (ended.value.code, f"next:  ./build.py {' '.join(words)}    (in a clone" in said) == (2, True), said


@pytest.mark.parametrize(
    ("words", "is_upkeeps"),
    [
        ("update --check", True),
        ("catalog", True),
        ("lock pyg --check", True),
        ("lock pyg", False),
        ("check lock", False),
    ],
)
def test_build_py_hands_upkeeps_commands_over(monkeypatch, words, is_upkeeps):
    called = []
    monkeypatch.setattr("sys.argv", ["build.py", *words.split()])
    monkeypatch.setattr("sys.prefix", str(ROOT / ".venv"))
    monkeypatch.setattr("upkeep.__main__.main", lambda: called.append(True))
    monkeypatch.setattr("graphcrate.cli.start.main", lambda: called.append(False))
    runpy.run_path(str(ROOT / "build.py"), run_name="__main__")
    assert called == [is_upkeeps]


def test_worker_processes_import_the_script_without_running_it(monkeypatch):
    monkeypatch.setattr("sys.argv", ["build.py", "doctor", "--help"])
    runpy.run_path(str(ROOT / "build.py"), run_name="__mp_main__")  # SystemExit where it ran


@pytest.fixture
def outside(tmp_path, monkeypatch, typed):
    """Types commands in an empty folder, with the targets that come with the package."""
    monkeypatch.chdir(tmp_path)
    return typed


#: the tutorial, and the job that it submits
WRITTEN = [("dna.md", "dna.sbatch"), ("dgx2.md", "dgx2_torch.sbatch")]
WRITTEN += [("multi-node.md", f"multi_node_{name}.sbatch") for name in ("singularity", "pyxis")]


@pytest.mark.parametrize("runtime", ["pyxis", "podman-hpc"])
def test_job_on_many_nodes_has_a_task_per_gpu_unless_no_per_gpu(outside, runtime):
    request = ("job", "registry.example.com/team/pyg:1", "--runtime", runtime, "--nodes", "2", "--gpus", "4")
    assert "--ntasks-per-node=4" in outside(*request)[1]
    assert "--ntasks-per-node=4" not in outside(*request, "--no-per-gpu")[1]


def test_job_in_a_partition_that_its_target_lacks_names_those_that_it_has(outside):
    job = ("job", "/a.sif", "--runtime", "singularity", "--command", "x", "--target", "dgx2", "--partition")
    assert "dgx2 has no partition gpuu; it has dgx2" in outside(*job, "gpuu")[2]
    assert "has no partition" not in outside(*job, "dgx2")[2]


def test_job_takes_an_image_in_enroots_form_and_as_docker_writes_it(outside):
    forms = ("registry.example.com#team/pyg:1", "docker://registry.example.com/team/pyg:1")
    plain = outside("job", "registry.example.com/team/pyg:1", "--runtime", "pyxis", "--command", "python a.py")
    assert [outside("job", form, "--runtime", "pyxis", "--command", "python a.py") for form in forms] == [plain] * 2


@pytest.mark.parametrize(("page", "name"), WRITTEN)
def test_example_job_equals_the_output_of_its_tutorial_command(outside, page, name, tmp_path):
    text = (ROOT / "docs" / "tutorials" / page).read_text(encoding="utf-8")
    assert f"sbatch {name}\n" in text
    (command,) = re.findall(rf"^\./build\.py (job .*) > {name}$", text, re.MULTILINE)
    (tmp_path / shlex.split(command)[1]).touch()
    assert outside(*shlex.split(command))[1] == (ROOT / "examples" / "slurm" / name).read_text(encoding="utf-8")


def test_refused_variant_gives_its_reason_and_is_not_buildable():
    ctx, glt = Context(root=ROOT, environment={}), [RECIPES["glt"]]
    with refused(ResolutionError, "CUDA", "make image STACK=glt CUDA="):
        catalog.find_variant(ctx, "glt", "cpu")
    assert [entry["cuda"] for entry in tables.described(ctx, glt)] == ["11.6", "11.6", "11.7", "12.1"]
    assert any("not available: " in line for line in tables.variants(ctx, glt))


def test_find_image_by_name_and_digest_refuses_another_digest(tmp_path):
    layout = small_layouts.layout(tmp_path / "pyg/1.0", [tars.file("a")])
    named = f"pyg:1.0@{layout.digest}"
    for ref in ("pyg:1.0", named, str(layout.path)):
        assert locate.find_image(ref, tmp_path)[0].digest == layout.digest
    with refused(UsageError, f"pyg:1.0 is {layout.digest} now, and sha256:00", f" {named}"):
        locate.find_image(f"pyg:1.0@sha256:{'0' * 64}", tmp_path)


def test_find_image_of_a_squashfs_names_its_kind(tmp_path):
    file = tmp_path / "made.sqsh"
    file.write_bytes(b"hsqs" + bytes(92))
    with refused(UsageError, "made.sqsh is a squashfs, and this takes an OCI layout", "./build.py images"):
        locate.find_image(str(file), tmp_path)
