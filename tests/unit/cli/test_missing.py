"""Files that are not there: every command that takes one says so at once, before what else may be wrong."""

import re
from pathlib import Path

import pytest

from graphcrate.model.runtime import JOBS, RUNNERS
from tests.commands import command_line

GONE = "nothing"
#: the note on the CUDA version, which is no complaint
USUAL = (
    "CUDA 11.8: the default where no machine is named, which runs on most; GPU=… (--gpu …) or TARGET=… (--target …) "
    "takes the newest that runs there"
)
#: commands with a missing file, and beside it what is wrong, too
IMAGES = {
    "audit": ["{} --base no"],
    "check": ["{} --target no", "{} --runtime no", "{} --only no"],
    "convert": ["{}", "{} --to delta --over no", "{} --to sqsh --kernel no"],
    "diff": ["{} no.sif", "{}"],
    "inspect": ["{}"],
    "publish": ["{}", "{} --key no.key", "{} --to r.example/x", "{} --cuda no", "{} --to r.example/x --short-tag"],
    "report": ["{} no.sif", "{}"],
    "run": ["{}", "{} --env-file no", "{} -- ls"],
    "test": ["{}", "{} --suite no", "{} --nodes 2", "{} --matrix", *(f"{{}} --runner {name}" for name in RUNNERS)],
    "validate": ["{}"],
    "why": ["{}"],
}  # fmt: skip
OTHERS = [
    ("add x --recipe {}", "no.toml"),
    ("adopt {}", "Dockerfile.no"),
    ("adopt {}", "no/Dockerfile"),
    ("cache push --cache c --cache-key {}", "no.key"),
    ("cache pull --cache c --cache-trust {}", "no.pub"),
    ("explain {} --cuda 99", "no.toml"),
    ("explain --target {}", "no.toml"),
    ("image pyg --cuda 99 --cache-key {}", "no.key"),
    ("image pyg --cuda 99 --cache-trust {}", "no.pub"),
    ("image pyg --cuda 99 --requirements {}", "no.txt"),
    ("image pyg --cuda 99 --with {}", "./no.whl"),
    ("image pyg --cuda 11.8 --wheels {}", "no"),
    ("image {} --cuda 99", "no.toml"),
    ("keys --output {}", "no"),
    ("lock {} --cuda 99", "no.toml"),
    ("matrix --cache-key {}", "no.key"),
    ("matrix --cache-trust {}", "no.pub"),
    ("publish {}", "no.toml"),
    ("publish {} --key no.key --to r.example/x", "no.toml"),
    ("publish {}", "pgy"),
    ("remove x --recipe {}", "no.toml"),
    ("render {} --cuda 99", "no.toml"),
    ("serve --users {}", "no"),
    ("verify r.example/x --key {}", "no.pub"),
    ("verify r.example/x --rebuild --wheels {}", "no"),
]
#: parameters that name no file that has to be there
_WRITTEN = {"output", "link", "save", "print_", "queue", "images", "cache_dir"}
#: files of an image that is there, which is looked at first
_LATER = {("run", "env_file"), ("run", "watch"), ("lock", "wheels"), ("adopt", "context"), ("publish", "key")}


def files_of_commands():
    """(command, parameter) of what names an image, a recipe or a file that has to be there."""
    for verb, one in command_line().items():
        for parameter in one.params:
            is_path = type(parameter.type).__name__ == "TyperPath"
            is_image = parameter.param_type_name == "argument" and parameter.name in ("ref", "refs", "first", "image")
            if (is_path or is_image) and parameter.name not in _WRITTEN:
                yield verb, parameter.name


@pytest.mark.parametrize("name", [f"{GONE}.sif", f"{GONE}.sqsh", f"{GONE}.tar", f"{GONE}:1", f"./{GONE}/image.sif"])
@pytest.mark.parametrize("words", [f"{verb} {words}" for verb, rows in IMAGES.items() for words in rows])
def test_missing_image_is_said_before_all_else_with_a_command(typed, tmp_path, monkeypatch, words, name):
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(*words.format(name).split())
    first, _, last = err.strip().rpartition("\n")
    is_parsed = " needs " not in first  # the parser's own complaint is of the words alone, and names the file, too
    assert (code, out) == (2, "")
    assert is_parsed or ".s" in name or ".tar" in name or ":" in name
    if is_parsed or Path(name).suffix:
        said = f"no file '{name.removeprefix('./')}'" if Path(name).suffix else f"no image '{name}'"
        assert said in first or f"no file {name}" in first, err
    assert last.startswith("next:  "), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("runtime", JOBS)
@pytest.mark.parametrize("ending", ["sif", "sqsh"])
def test_job_of_a_missing_file_says_so_in_each_runtime(typed, tmp_path, monkeypatch, runtime, ending):
    monkeypatch.chdir(tmp_path)
    for words in ((), ("--command", "python a.py")):
        code, out, err = typed("job", f"{GONE}.{ending}", "--runtime", runtime, *words)
        if words and not JOBS[runtime].runs:
            continue  # it says that it takes no command
        assert (
            f"{GONE}.{ending} is not here" in err
            or f"{GONE}.{ending}, which is not here" in err
            or ("There is no such file here" in err)
        ), err
        assert (code == 0) == bool(out), err


@pytest.mark.parametrize(("words", "name"), OTHERS)
def test_other_missing_files_are_said_before_all_else(typed, tmp_path, monkeypatch, words, name):
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(*words.format(name).split())
    assert (bool(code), out) == (True, "")
    said = err.removeprefix(f"{USUAL}\n").partition("\n")[0]
    assert re.search(rf"\bthere is no (file|folder|recipe) '?{re.escape(name)}(?![\w/])", said), err
    assert "No such file" not in err
    assert "\nnext:  " in err
    assert not list(tmp_path.iterdir())


def test_each_command_with_a_file_is_among_the_missing_ones():
    rows = [words.partition("{}")[0].split() for words, _ in OTHERS]
    walked = {row[0] for row in rows} | set(IMAGES) | {"job"}
    options = {(row[0], row[-1]) for row in rows}
    for verb, parameter in set(files_of_commands()) - _LATER:
        (one,) = (each for each in command_line()[verb].params if each.name == parameter)
        assert verb in walked, verb
        assert one.param_type_name == "argument" or (verb, one.opts[0]) in options, (verb, parameter)


def test_nearest_file_of_that_kind_is_named(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyg.sif").touch()
    assert "there is no file 'pgy.sif'; there are pyg.sif\n" in typed("check", "pgy.sif")[2]
    assert "convert needs --to, and there is no file pgy.sif\n" in typed("convert", "pgy.sif")[2]


def test_verify_names_check_for_an_image_that_is_here(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dist/a/1").mkdir(parents=True)
    assert "next:  ./build.py check a:1    for an image here; docker.io/a:1 for one" in typed("verify", "a:1")[2]


#: options whose values have a reader of their own, which refuses these values too
_READ_ALREADY = {"cuda"}


def options_with_a_text():
    """(command, option) of what takes a text or a path, but for choices, whose own error names them."""
    for verb, one in command_line().items():
        for option in one.params:
            kind = type(option.type).__name__
            is_text = (
                option.param_type_name == "option" and not option.is_flag and kind in ("StringParamType", "TyperPath")
            )
            if is_text and option.name not in _READ_ALREADY:
                yield verb, option.opts[0]


@pytest.mark.parametrize(
    ("value", "said"), [("", "is empty"), (" ", "is empty"), (",", "',' names nothing"), (", ;", "', ;' names nothing")]
)
@pytest.mark.parametrize("equals", [True, False])
def test_option_with_separators_alone_is_refused_in_each_command(typed, tmp_path, monkeypatch, value, said, equals):
    monkeypatch.chdir(tmp_path)
    walked = list(options_with_a_text())
    assert {("image", "--apt"), ("run", "--mount"), ("test", "--suite"), ("job", "--command")} < set(walked)
    assert len(walked) > 150, "all options of all commands"
    for verb, option in walked:
        others = [each for each in command_line()[verb].params if each.required and each.opts[0] != option]
        needed = [[each.opts[0], getattr(each.type, "choices", "x")[0]] for each in others]
        words = [word for pair in needed for word in (pair if pair[0].startswith("-") else pair[1:])]
        words += [f"{option}={value}"] if equals else [option, value]
        code, out, err = typed(verb, *words)
        assert (code, out) == (2, ""), (verb, option, err)
        is_read = f"graphcrate: {value!r} is not a platform" in err  # before all values are there
        assert is_read or f"graphcrate: {option} {said}\n" in err, (verb, option, err)
        assert "\nnext:  " in err
    assert not list(tmp_path.iterdir())


def test_option_with_nothing_in_it_is_left_out_of_the_next_step(typed, monkeypatch):
    err = typed("image", "pyg", "--cuda", "11.8", "--apt", ",")[2]
    assert "next:  make image CUDA=11.8, or with 'APT=git graphviz' (--apt 'git graphviz')\n" in err
    monkeypatch.setattr("sys._xoptions", {"typed": "make sif CUDA=11.8 APT=,"})
    err = typed("image", "pyg", "--cuda", "11.8", "--apt", ",")[2]
    assert "next:  make sif CUDA=11.8, or with 'APT=git graphviz' (--apt 'git graphviz')\n" in err


@pytest.mark.parametrize("words", [["--output", "."], ["--output=."], ["--mount", ".:/data"], ["--mount", ".,:/data"]])
def test_folder_that_one_is_in_is_something(typed, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    err = typed("run", *words, "a:1", "--", "tr", ",", " ", "--apt", ",")[2]
    assert "is empty" not in err
    assert "names nothing" not in err


def test_key_without_a_shared_cache_is_refused(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHCRATE_REMOTE_CACHE", raising=False)
    (tmp_path / "a.pub").touch()
    code, _, err = typed("image", "pyg", "--cache-trust", "a.pub")
    assert (code, err.partition("\n")[0]) == (2, "graphcrate: --cache-trust is of a shared cache, and none is named")
    assert "--cache registry.example/team/cache" in err or "CACHE=registry.example/team/cache" in err
