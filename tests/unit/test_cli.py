"""The command line: results on stdout, messages on stderr, distinct exit codes."""

import errno
import json
import re
import runpy
import shutil
from pathlib import Path

import pytest
import typer

from graphcrate.build import pipeline
from graphcrate.cli import exit as cli_exit
from graphcrate.cli import main
from graphcrate.compat import recipes
from graphcrate.compat.catalog import nearest_cuda
from tests import ROOT
from tests.unit import small_layouts
from tests.unit.tars import folder

COMMANDS = typer.main.get_command(main.app).commands


@pytest.fixture
def project(context):
    """A copy of the recipes with a cache of its own, and no way to the network."""
    shutil.copytree(ROOT / "recipes", context.root / "recipes")
    return context.root


@pytest.fixture
def call(project, typed):
    return typed


def test_an_unknown_cuda_is_answered_with_the_nearest(call):
    code, out, err = call("image", "pyg", "--cuda", "11.9")
    assert (code, out) == (2, "")
    assert "'11.9'" in err
    assert "11.8" in err
    assert "make image STACK=pyg CUDA=11.8" in err


@pytest.mark.parametrize(("word", "ours"), [("build", "image"), ("exec", "run"), ("push", "publish")])
def test_a_command_of_other_programs_is_answered_with_ours(call, word, ours):
    code, _, err = call(word, "pyg")
    assert (code, f"./build.py {ours}" in err) == (2, True)


@pytest.mark.parametrize("version", ["11.9.0", "cu119", " 11.9 "])
def test_a_cuda_version_as_people_write_it(call, version):
    assert "'11.9'" in call("image", "pyg", "--cuda", version)[2]


@pytest.mark.parametrize("option", ["--cuda", "--gpu"])
@pytest.mark.parametrize("command", ["image", "explain"])
def test_an_option_that_is_empty_is_refused(call, command, option):
    code, _, err = call(command, "pyg", option, "")
    assert (code, f"{option} is empty" in err) == (2, True)


def test_gpus_that_are_named_again_add_up(call):
    _, out, _ = call("explain", "torch", "--gpu", "v100", "--gpu", "h100")
    assert "V100 (sm_70), H100 (sm_90)" in out


def test_options_of_a_build_are_refused_for_an_image_that_is_built(call, tmp_path):
    code, _, err = call("publish", "pyg:there", "--to", str(tmp_path), "--gpu", "v100")
    assert (code, "--gpu and --target are for a recipe" in err) == (2, True)


def test_an_unknown_recipe_is_answered_with_the_nearest(call):
    code, _, err = call("image", "pig")
    assert code == 2
    assert "pyg" in err


def test_an_unknown_gpu_is_answered_with_the_nearest(call):
    code, _, err = call("image", "pyg", "--gpu", "v10")
    assert code == 2
    assert "V100" in err


def test_a_gpu_that_no_torch_of_the_variant_serves_names_the_variant_that_does(call):
    code, _, err = call("image", "pyg", "--cuda", "13.0", "--gpu", "v100")
    assert code == 2
    assert "sm_70" in err
    assert "make image CUDA=12.8 GPU=v100" in err


def test_a_malformed_recipe_has_its_own_exit_code_and_line(call, project):
    path = project / "recipes" / "pyg.toml"
    path.write_text(path.read_text().replace('python = "3.11"', "python = 3.11", 1))
    code, _, err = call("image", "pyg")
    assert code == 3
    assert "pyg.toml:34: variant[1].python" in err


def test_a_reference_to_nothing(call):
    code, _, err = call("inspect", "pyg:none", "--output", "nowhere")
    assert code == 2
    assert "make image CUDA=11.8" in err


def test_a_wrong_option_is_usage(call):
    code, _, _ = call("image", "pyg", "--colour", "blue")
    assert code == 2


def test_list_as_json_has_a_line_per_variant_and_candidate(call):
    code, out, _ = call("list", "--json")
    rows = json.loads(out)
    assert code == 0
    assert len([row for row in rows if row["recipe"] == "pyg"]) == 11
    compatible = {(row["recipe"], row["cuda"]): row for row in rows if row["candidate"] == "compatible"}
    assert sorted(compatible) == [
        ("glt", "11.6"), ("pyg", "11.6"), ("pyg", "11.8"), ("torch", "11.6"), ("torch", "11.8")
    ]  # fmt: skip
    assert {row["torch_cuda"] for row in compatible.values()} == {"11.7"}
    assert all("built for CUDA 11.7" in row["meaning"] for row in compatible.values())
    assert not any("H100" in row["gpus"] for row in compatible.values())


def test_list_has_a_line_for_each_variant_in_80_columns(call):
    code, out, _ = call("list")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 1 + sum(len(recipes.load(path).variants) for path in (ROOT / "recipes").glob("*.toml"))
    assert max(map(len, lines)) <= 80
    pyg = ["pyg", "11.8", "2.0.1+cu118", "2.3.1", "3.11", "sm_60", "to", "sm_90", "450.80.02", "no"]
    assert pyg in [line.split() for line in lines]


def test_list_draws_which_gpus_run_which_cuda(call):
    code, out, _ = call("list", "--gpus")
    assert code == 0
    pyg = out.partition("\npyg ")[2].partition("\n\n")[0].splitlines()
    marks = dict(zip(pyg[0].split(), next(line for line in pyg if line.startswith("V100")).split()[3:], strict=True))
    assert marks == {"13.0": "·", "12.8": "●", "12.6": "●", "12.1": "●", "11.8": "●", "11.7": "●", "11.6": "●"}
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert "usage" in out.lower()


def test_help_names_every_command_once_in_its_group_with_a_whole_sentence(call):
    code, out, _ = call("--help")
    assert code == 0
    grouped = [name for names in cli_exit.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(name for name, command in COMMANDS.items() if not command.hidden)
    lines = [line for line in out.partition("Build:")[2].splitlines() if line.startswith("  ")]
    assert len(lines) == len(grouped)
    assert not [line for line in lines if line.endswith("...")]


@pytest.mark.parametrize(
    ("asked", "nearest"), [("11.9", "11.8"), ("12.2", "12.1"), ("14", "13.0"), ("10.2", "11.6"), ("cpus", "cpu")]
)
def test_nearest_cuda(asked, nearest):
    known = ["11.6", "11.7", "11.8", "12.1", "12.6", "12.8", "13.0", "cpu"]
    assert nearest_cuda(asked, known)[0] == nearest


def ending_with(monkeypatch, error):
    def build(*arguments):
        raise error

    monkeypatch.setattr(pipeline, "build_image", build)


def test_an_interrupt_ends_with_130(call, monkeypatch):
    ending_with(monkeypatch, KeyboardInterrupt())
    said = "graphcrate: interrupted; the same command goes on where this one stopped\n"
    assert call("image", "pyg") == (130, "", said)


def test_a_reader_that_goes_away_ends_with_141(call, monkeypatch):
    ending_with(monkeypatch, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert call("image", "pyg") == (141, "", "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "our/a b.tar"), 7, "our/a b.tar: Permission denied"),
        (PermissionError(errno.EACCES, "Permission denied", "our/a b.tar"), 7, "next:  ls -ld 'our/a b.tar'"),
        (FileExistsError(errno.EEXIST, "File exists", Path("a.sif")), 7, "a file where a folder has to be"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"), 7, "next:  ls -la a "),
        (OSError(errno.ENOSPC, "No space left on device"), 8, "No space left on device"),
        (OSError(errno.EIO, "Input/output error"), 7, "A disk fails"),
        (OSError(errno.ELOOP, "Too many levels of symbolic links", b"a\x1b[2J"), 7, "a\\x1b[2J: Too many levels"),
    ],
)
def test_what_the_system_refuses_is_told_in_words(call, monkeypatch, error, code, said):
    ending_with(monkeypatch, error)
    ended, out, err = call("image", "pyg")
    assert (ended, out) == (code, "")
    assert said in err
    assert "next:  " in err


@pytest.mark.parametrize("error", [OSError("no number"), OSError(errno.EBADF, "Bad file descriptor")])
def test_a_fault_of_our_own_is_not_explained_away(call, monkeypatch, error):
    ending_with(monkeypatch, error)
    with pytest.raises(OSError, match=str(error.args[-1])):
        call("image", "pyg")


def test_a_file_where_a_folder_has_to_be_is_told(call, tmp_path):
    small_layouts.layout(tmp_path, [folder("./")])
    (tmp_path / "there.sif").touch()
    ended, _, err = call("convert", tmp_path, "--to", "oci-archive", "--output", tmp_path / "there.sif" / "x.tar")
    assert ended == 7
    assert f"{tmp_path}/there.sif" in err
    assert "next:  " in err


def test_every_command_that_a_text_names_is_there():
    texts = [path for folder in ("graphcrate", "docs", "examples") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in texts if path.suffix in (".py", ".md", ".toml") or "templates" in path.parts]
    named = {
        (word, path.name)
        for path in [*texts, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
        for word in re.findall(r"build\.py (\w[\w-]*)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert {(word, name) for word, name in named if word not in typer.main.get_command(main.app).commands} == set()


def test_worker_processes_import_the_script_without_running_it(monkeypatch):
    monkeypatch.setattr("sys.argv", ["build.py", "doctor", "--help"])
    runpy.run_path(str(ROOT / "build.py"), run_name="__mp_main__")  # SystemExit where it ran
