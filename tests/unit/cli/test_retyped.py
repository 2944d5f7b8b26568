"""Next steps as whole commands: what was typed, with one setting added or in place of its own, as it was typed."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphcrate.cli import retyped
from graphcrate.cli.exit import exiting
from graphcrate.cli.retyped import TYPED, Typed
from graphcrate.model import command as commands
from graphcrate.model.command import (
    AGAIN,
    ETC,
    IMAGE_AGAIN,
    LOCK_AGAIN,
    OPTIONS,
    SETTINGS,
    Command,
    Setting,
    command,
    without,
)
from graphcrate.model.errors import UsageError
from graphcrate.model.options import ROWS
from tests.commands import command_line, objections
from tests.unit import small_layouts, tars
from tests.unit.house.test_next_steps import made_by_code
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)

IMAGE = "image pyg --cuda 11.8 --channel x --gpu v100 --apt git"


@pytest.fixture
def asked(monkeypatch):
    """Says what was typed: the words that the program got, and what make or a login node says of them."""

    def say(words, by=None):
        options = {} if by is None else {TYPED: by}
        monkeypatch.setattr(sys, "_xoptions", options)
        monkeypatch.setattr(sys, "argv", ["build.py", *shlex.split(words)])

    return say


@pytest.mark.parametrize(
    ("step", "whole"),
    [
        (command("image", ETC, channel="pytorch"), "make image CUDA=11.8 GPU=v100 CHANNEL=pytorch APT=git"),
        (command("image", ETC, slim="yes"), "make image CUDA=11.8 GPU=v100 CHANNEL=x SLIM=yes APT=git"),
        (command("image", ETC, apt="git vim"), "make image CUDA=11.8 GPU=v100 CHANNEL=x 'APT=git vim'"),
        (command("image", ETC, locked=True), "make image CUDA=11.8 GPU=v100 CHANNEL=x APT=git LOCKED=yes"),
        (command("image", ETC, platform="linux/arm64"), "make image CUDA=11.8 ARCH=arm64 GPU=v100 CHANNEL=x APT=git"),
        (command("image", ETC, output="FOLDER"), f"./build.py {IMAGE} --output FOLDER"),  # make has no such setting
        (IMAGE_AGAIN, "make image CUDA=11.8 GPU=v100 CHANNEL=x APT=git"),
        (AGAIN, "make image CUDA=11.8 GPU=v100 CHANNEL=x APT=git"),
        (LOCK_AGAIN, "./build.py lock pyg --cuda 11.8 --channel x"),
        (command("publish", ETC, allow_cpu_only=True), "make publish CUDA=11.8 GPU=v100 ALLOW_CPU_ONLY=yes"),
        (without("channel"), "make image CUDA=11.8 GPU=v100 APT=git"),
        (command("matrix", ETC, disk="60GB"), "./build.py matrix … --disk 60GB"),  # not what was typed
    ],
)
def test_step_after_make_image_is_what_was_typed_with_its_setting(asked, step, whole):
    asked(IMAGE, "make image CUDA=11.8 CHANNEL=x GPU=v100 APT=git")
    assert retyped.whole(f"first {step}, or {step}    (why)") == f"first {whole}, or {whole}    (why)"


@pytest.mark.parametrize(
    ("words", "by", "step", "whole"),
    [
        ("image pyg --cuda 11.8 --engine embedded --pack zstd", "make sif CUDA=11.8 KERNEL=3.10", AGAIN,
         "make sif CUDA=11.8 KERNEL=3.10"),
        ("image pyg --engine embedded", "make sif", command("image", ETC, gpu="v100"), "make sif GPU=v100"),
        ("image glt --cuda 12.1", "make image", AGAIN, "make image STACK=glt CUDA=12.1"),  # both of the environment
        ("image mine.toml --trust-paths", "make image FROM=Dockerfile TRUST_PATHS=yes", AGAIN,
         "make image RECIPE=mine.toml TRUST_PATHS=yes"),
        ("adopt Dockerfile", "make image FROM=Dockerfile PLAN=yes", command("image", "mine.toml"),
         "make image RECIPE=mine.toml PLAN=yes"),
        ("publish pyg --cuda 11.8 --plan --to r/x", "make publish TO=r/x CUDA=11.8",
         command("publish", ETC, allow_cpu_only=True), "make publish CUDA=11.8 TO=r/x ALLOW_CPU_ONLY=yes"),
        ("publish pyg:1 --to r/x", "make publish TO=r/x CUDA=11.8", command("image", ETC, gpu="v100"),
         "make publish CUDA=11.8 GPU=v100 TO=r/x"),
        ("matrix --on slurm", "make images ON=slurm", command("matrix", ETC, disk="60GB"),
         "make images ON=slurm DISK=60GB"),
        ("matrix --on slurm", "make images ON=slurm", AGAIN, "make images ON=slurm"),
        ("lock pyg --cuda 11.8", "make lock CUDA=11.8", command("image", ETC, extensions="wheels"),
         "make lock CUDA=11.8 EXTENSIONS=wheels"),
        ("lock pyg --cuda 11.8", "make lock CUDA=11.8", command("image", ETC, gpu="v100"),
         "make image CUDA=11.8 GPU=v100"),
        ("image pyg --with 'a b'", "make image 'WITH=a b'", command("image", ETC, with_="c"),
         "make image 'WITH=a b c'"),
        ("image pyg --with \"it's\"", "make image 'WITH=it'\"'\"'s'", AGAIN, "make image 'WITH=it'\"'\"'s'"),
        ("image pyg", "./build.py image pyg --gpu v100 --on slurm", command("image", ETC, gpu="a100"),
         "make image GPU=a100 ON=slurm"),  # on a node, of what was typed where it was ordered
        ("image pyg --cuda 11.8", "", AGAIN, "make …"),  # nobody typed it
    ],
)  # fmt: skip
def test_step_after_other_goals_is_made_of_goal_and_settings(asked, words, by, step, whole):
    asked(words, by)
    assert retyped.whole(f"{step}") == whole


@pytest.mark.parametrize(
    ("words", "step", "whole"),
    [
        ("image pyg --gpu=v100 -q --json", command("image", ETC, gpu="a100"),
         "image pyg --gpu a100 --quiet --json"),
        ("image pyg --with a", command("image", ETC, with_="b"), "image pyg --with a --with b"),
        ("image pyg --with a", command("image", ETC, with_="a"), "image pyg --with a"),
        ("image pyg --gpu v100 --gpu p100", command("image", ETC, gpu="a100"), "image pyg --gpu a100"),
        ("run pyg:1 --nodes 2 -- python -c '1 2'", AGAIN, "run pyg:1 --nodes 2 -- python -c '1 2'"),
        ("run pyg:1 -- ls", command(ETC, plain_http=True), "run pyg:1 --plain-http -- ls"),
        ("test a b --runner slurm", command(ETC, matrix=True), "test a b --runner slurm --matrix"),
        ("test pyg:1 --runner=pyxis", command("test", ETC, runner="slurm", partition="NAME"),
         "test pyg:1 --runner slurm --partition NAME"),
        ("adopt D --build-arg x", command("adopt", ETC, build_arg="TORCH=…"), "adopt D --build-arg TORCH=…"),
        ("run pyg:1", command("convert", ETC, to="sif"), "convert … --to sif"),
        ("image pyg --locked --gpu v100", without("locked"), "image pyg --gpu v100"),
        ("image pyg --wheels=/x --gpu v100", without("wheels"), "image pyg --gpu v100"),
        ("convert pyg:1 --compression zstd --to sif", without("compression"), "convert pyg:1 --to sif"),
        ("convert pyg:1 --compression=zstd --to sif", without("compression"), "convert pyg:1 --to sif"),
        ("convert pyg:1 --to sif", without("compression"), "convert pyg:1 --to sif"),
        ("run pyg:1", command("image", ETC, gpu="v100"), "image … --gpu v100"),
        ("publish pyg:1 --to x", command("publish", ETC, allow_cpu_only=True), "publish pyg:1 --to x --allow-cpu-only"),
        ("explain pyg --gpu v100,a100", command("image", ETC, gpu="v100"), "image pyg --gpu v100"),
        ("explain --gpu v100,a100", command("image", ETC, gpu="v100"), "image pyg --gpu v100"),
        ("lock pyg --cuda 12.6", command("image", ETC, extensions="wheels"),
         "lock pyg --cuda 12.6 --extensions wheels"),
        ("image pyg --mirror https://me:secret@host/x", AGAIN, "image pyg --mirror https://…@host/x"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["./build.py", "/home/me/graph crate/build.py", "graphcrate"])
def test_step_after_a_program_has_its_path_and_options(asked, monkeypatch, path, words, step, whole):
    monkeypatch.setattr(commands, "INSTALLED", path == "graphcrate")
    monkeypatch.setattr(commands, "TYPED_PATH", commands.typed_path(path))
    asked(words)
    program = path if path == "graphcrate" else shlex.quote(path)
    assert retyped.whole(f"{step}") == f"{program} {whole}"
    assert retyped.whole(f"{step}; or else") == f"{program} {whole}; or else"


@pytest.mark.parametrize(
    ("program", "whole"),
    [
        ("/x/tools/upstream_suites.py", "make …"),
        ("/x/pytest/__main__.py", "make …"),
        ("/usr/bin/graphcrate", "make image CUDA=cpu"),
        ("/x/graphcrate/__main__.py", "make image CUDA=cpu"),
    ],
)
def test_words_of_another_program_are_no_command_of_ours(monkeypatch, program, whole):
    monkeypatch.setattr(sys, "_xoptions", {})
    monkeypatch.setattr(sys, "argv", [program, "image", "pyg", "--cuda", "cpu"])
    assert retyped.whole(f"{AGAIN}") == whole


@given(
    name=st.sampled_from([row.name for row in ROWS if "image" in row.make and not row.flag and row.name != "platform"]),
    value=st.text(st.characters(codec="utf-8", exclude_characters=f"{ETC}\0"), min_size=1).filter(str.strip),
    by_path=st.booleans(),
)
@example(name="cuda", value=".", by_path=False)
@example(name="with", value="./mine.", by_path=True)
@example(name="output", value="a,", by_path=True)
def test_any_value_of_a_setting_comes_out_of_the_whole_command_as_it_went_in(name, value, by_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "_xoptions", {TYPED: "./build.py image pyg --cuda 11.8 --gpu v100"})
        patch.setattr(commands, "TYPED_PATH", "./build.py" if by_path else "")
        patch.setattr(retyped, "redacted", str)
        step = Command("image", (ETC,), (Setting(name, value),))
        words = shlex.split(retyped.whole(f"{step}    (why)").removesuffix("    (why)"))
    assert (words[0] == "make") == (not by_path)
    assert (value if by_path else Setting(name, value).by_make()) in words


def test_error_of_a_command_line_ends_with_the_whole_command(typed):
    code, _, err = typed("image", "pyg", "--cuda", "11.8", "--gpu", "v100", "--channel", "x")
    assert code == 2
    assert "next:  make image CUDA=11.8 GPU=v100 CHANNEL=pytorch    (or make image CUDA=11.8 GPU=v100)\n" in err


def test_text_without_a_command_and_cause_of_an_error_stay_as_they_are(asked, capsys):
    asked(IMAGE, "make image")
    assert (
        retyped.whole("make sure … of it; cmake image …; make image …x")
        == "make sure … of it; cmake image …; make image …x"
    )
    with pytest.raises(SystemExit), exiting():
        raise UsageError("what", cause="make image … of a stranger", next_step=IMAGE_AGAIN)
    assert "cause: make image … of a stranger\nnext:  make image CUDA=11.8 " in capsys.readouterr().err


#: goal of make → words that the program gets, and settings that none of its options is
ASKING = {
    "image": ("image pyg --cuda 99", ""),
    "sif": ("image pyg --cuda 99 --engine embedded --pack 3.10", " KERNEL=3.10"),
    "publish": ("image pyg --cuda 99 --engine embedded", " TO=r.example/x KEY=cosign.key"),
    "lock": ("lock pyg --cuda 99", ""),
    "test-upstream": ("image pyg --cuda 99 --output /x", " SUITE=scatter"),
}


@pytest.mark.parametrize("goal", ASKING)
def test_error_of_a_goal_of_make_ends_with_that_goal_and_all_its_settings(typed, monkeypatch, goal):
    words, more = ASKING[goal]
    monkeypatch.setattr(sys, "_xoptions", {TYPED: f"make {goal} CUDA=99{more}"})
    code, _, err = typed(*words.split())
    assert code == 2
    assert f"next:  make {goal} CUDA=13.2{more}    (" in err


@pytest.mark.parametrize(
    ("words", "by", "whole"),
    [
        ("image pyg --cuda 11.8 --on slurm --time soon", None, "make image CUDA=11.8 ON=slurm TIME=08:00:00"),
        ("image pyg --on slurm --time 2h", "make sif ON=slurm TIME=2h", "make sif ON=slurm TIME=02:00:00"),
        ("matrix --on slurm --time soon", "make images ON=slurm TIME=soon", "make images ON=slurm TIME=08:00:00"),
        ("convert a:1 --to sif --on slurm --time=1d", None, "./build.py convert a:1 --to sif --on slurm --time 1-0"),
        ("job a.sif --runtime singularity --command x --time soon", None,
         "./build.py job a.sif --runtime singularity --command x --time 08:00:00"),
        ("test ./a --runner slurm --partition x --time 9hours --matrix", None,
         "./build.py test ./a --runner slurm --partition x --time 09:00:00 --matrix"),
    ],
)  # fmt: skip
def test_bad_time_limit_is_typed_again_whole_before_a_job_is_sent(typed, tmp_path, monkeypatch, words, by, whole):
    monkeypatch.chdir(tmp_path)
    small_layouts.layout(tmp_path / "a", [tars.file("x", b"x")])
    monkeypatch.setattr(sys, "_xoptions", {} if by is None else {TYPED: by})
    code, out, err = typed(*words.split())
    assert (code, out) == (2, "")
    assert "is not a time limit of Slurm's" in err
    assert f"next:  {whole}\n" in err


def test_each_goal_of_make_that_asks_for_a_stack_keeps_its_name_in_next_steps():
    text = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    asking = r"^([a-z-]+): .*\n(?:\t.*\n)*?\t.*\$\((?:stack|requested|request)\)"
    goals = re.findall(asking, text, re.MULTILINE)
    assert set(goals) == set(ASKING)


@pytest.mark.parametrize(
    ("words", "by", "step", "whole"),
    [
        ("image pyg --cuda 99 --engine embedded --pack 3.10", "make sif CUDA=99 KERNEL=3.10",
         command("image", "pyg", cuda="13.2", engine="embedded", pack="gzip"), "make sif CUDA=13.2 KERNEL=3.10"),
        ("image pyg --cuda 13.0 --target dgx2 --engine embedded --plan", "make sif CUDA=13.0 TARGET=dgx2 PLAN=yes",
         command("image", "pyg", cuda="11.8", target="dgx2"), "make sif CUDA=11.8 TARGET=dgx2 PLAN=yes"),
        ("image glt --engine embedded --pack zstd", "make sif STACK=glt OVER=glt.sif",
         command("image", "pyg", cuda="12.6"), "make sif STACK=pyg CUDA=12.6 OVER=glt.sif"),
        ("image mine.toml --engine embedded --cuda 99", "make sif RECIPE=mine.toml CUDA=99",
         command("image", "mine.toml", cuda="11.8"), "make sif RECIPE=mine.toml CUDA=11.8"),
        ("image pyg --engine embedded --with 'a b' --apt git", "make sif 'WITH=a b' APT=git",
         command("image", "pyg", with_=["b"]), "make sif WITH=b"),
        ("image pyg --engine embedded --with a --cuda 11.8", "make sif CUDA=11.8 WITH=a",
         "make image WITH=…", "make sif CUDA=11.8 'WITH=a …'"),  # no whole request
        ("publish pyg --cuda 99 --plan --to r/x", "make publish CUDA=99 WITH=a TO=r/x KEY=k",
         command("publish", "pyg", cuda="13.2"), "make publish CUDA=13.2 WITH=a TO=r/x KEY=k"),
        ("publish pyg:1 --to r/x", "make publish CUDA=11.8 TO=r/x",
         command("image", "pyg", cuda="11.8", channel="pytorch"), "make publish CUDA=11.8 CHANNEL=pytorch TO=r/x"),
        ("image pyg --cuda 99 --on slurm", "make image CUDA=99 ON=slurm",
         command("image", "pyg", cuda="13.2"), "make image CUDA=13.2 ON=slurm"),
        ("image pyg --cuda 99", "make -C '/a b' sif CUDA=99", command("image", "pyg", cuda="13.2"),
         "make -C '/a b' sif CUDA=13.2"),
        ("image pyg --cuda 99", "make -C /a image CUDA=99", command("image", ETC, gpu="v100"),
         "make -C /a image CUDA=99 GPU=v100"),
        ("matrix --queue q", "make images ON=slurm", AGAIN, "make images ON=slurm"),  # a job of its array
        ("lock pyg --cuda 99", "make lock CUDA=99", command("image", "pyg", cuda="13.2"), "make image CUDA=13.2"),
        ("image pyg --cuda 11.8 --engine embedded", "make sif CUDA=11.8",
         command("publish", "pyg", cuda="11.8"), "make publish CUDA=11.8"),  # another command
        ("image pyg --cuda 99 --on slurm", None, command("image", "pyg", cuda="13.2"), "make image CUDA=13.2 ON=slurm"),
        ("run pyg:1", None, command("image", "pyg", cuda="13.2"), "make image CUDA=13.2"),
        ("inspect base.sif", "make sif CUDA=11.8 WITH=a KERNEL=3.10 OVER=base.sif",  # of which there is no file
         command("image", "pyg", cuda="11.8"), "make sif CUDA=11.8 KERNEL=3.10"),
        ("inspect base.sif", "make sif TARGET=dgx2 APT=git OVER=base.sif",
         command("image", "pyg", cuda="11.8"), "make sif TARGET=dgx2"),
        ("inspect base.sif", "make sif RECIPE=mine.toml OVER=base.sif",
         command("image", "pyg", cuda="11.8"), "make sif CUDA=11.8"),
    ],
)  # fmt: skip
def test_step_with_a_whole_request_keeps_what_no_request_has(asked, words, by, step, whole):
    asked(words, by)
    assert retyped.whole(f"{step}    (why)") == f"{whole}    (why)"


ALL_TYPED = [
    ("image pyg --cuda 11.8", "make image CUDA=11.8"),
    ("image pyg --cuda 11.8", "make sif CUDA=11.8"),
    ("image pyg --cuda 11.8", "make publish CUDA=11.8 TO=r.example/x"),
    ("image pyg --cuda 11.8", None),
    ("lock pyg --cuda 11.8", "make lock CUDA=11.8"),
]
#: of commands that no request of a stack is: they are filled where they were typed themselves
ALONE = {"matrix", "test", "inspect", "convert", "run", "adopt"}


def steps():
    """Commands of the code that are filled, by their places."""
    all_of_them = {where: value for where, value in made_by_code().items() if isinstance(value, Command)}
    return {where: one for where, one in all_of_them.items() if one.arguments == (ETC,) or one.verb == ETC}


def is_whole(step, text):
    """Return whether a step's text has no ellipsis for what was typed, each setting with a value, none without."""
    left = re.search(rf"(?<![=\w]){ETC}", re.sub(rf" --[a-z-]+ {ETC}", "", text))
    for each in step.settings:
        name = f"--{each.name}" if "build.py" in text else f"{each.name.upper().replace('-', '_')}="
        left = left or ((each.value or name) in text) != (each.value != "")
    return not left


def test_no_step_of_the_code_keeps_what_was_typed_before_as_an_ellipsis(asked):
    """A value that only a person knows may be left, as `NAME=…` or `--name …`."""
    found = {}
    for where, step in steps().items():
        for words, by in ALL_TYPED if step.verb not in ALONE else [(f"{step.verb} NAME", None)]:
            asked(words, by)
            found[where, words, by] = is_whole(step, whole := retyped.whole(str(step))) or whole
    assert len(found) > 80
    assert {asking: whole for asking, whole in found.items() if whole is not True} == {}


def test_each_option_of_a_build_is_read_as_the_parser_takes_it():
    flags = {option for verb in OPTIONS for one in command_line()[verb].params if getattr(one, "is_flag", False)
             for option in (*one.opts, *one.secondary_opts)}  # fmt: skip
    rows = {row.name for row in ROWS if row.flag}
    assert {f"--{name}" for name in retyped._FLAGS} <= flags | {"--allow-emulated", "--allow-cpu-only"}
    assert {f"--{row.name}" for row in ROWS} & flags == {f"--{name}" for name in rows}
    several = {
        option for one in command_line()["image"].params if getattr(one, "multiple", False) for option in one.opts
    }
    assert {f"--{row.name}" for row in ROWS if row.adds} <= several


def test_goals_of_make_take_the_settings_that_are_said_to_reach_their_commands():
    assert set(retyped._GOALS["publish"]["image"]) < set(SETTINGS["publish"])
    text = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    for goal in retyped._GOALS:
        assert re.search(rf"^{goal}: ", text, re.MULTILINE), goal


def test_whole_commands_are_taken_by_their_programs(asked):
    for words, by in ALL_TYPED:
        asked(words, by)
        for step in steps().values():
            retyped.whole(str(step))
            request = Typed.here().request
            assert objections(request) == []


def test_steps_for_an_image_that_is_there_are_made_of_its_reports_request(world):  # noqa: F811
    name = f"torch:{world.built().name}"
    printed = "an image for CUDA: make image STACK=torch GPU=v100"
    for ref in ("torch", name):  # by a short name too
        code, out, err = world.typed("check", ref, "--gpu", "v100", "--only", "runtimes")
        assert (code != 0, printed in out) == (True, True), (out, err)
    assert "make image … GPU=v100" in world.typed("check", name, "--gpu", "v100", "--only", "runtimes", "--json")[1]
