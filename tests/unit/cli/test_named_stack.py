"""NAME or FILE means the same for every command: a stack, or a recipe of the user's own, which names its stack."""

import json

import pytest

from graphcrate.assembly import pipeline
from graphcrate.cli import requests
from graphcrate.cli.options import Config
from tests.unit.assembly.test_what_ran import mine  # noqa: F401 (a fixture)
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)

OWN = 'extends = "torch"\ncuda = "cpu"\nenv = { MINE = "1" }\n'


@pytest.fixture
def own(mine):  # noqa: F811
    """The world with a recipe of the user's own."""
    (mine.world.root / "mine.toml").write_text(OWN)
    return mine.world


def shelf(world, name, *options):  # noqa: F811
    return world.typed("publish", name, "--to", "./shelf", "--allow-cpu-only", "--as", "oci-archive", *options)


@pytest.mark.parametrize("name", ["mine.toml", "./mine.toml"])
def test_publish_of_a_recipe_file_builds_it_first(own, name):
    code, out, err = shelf(own, name)
    assert (code, out.startswith("shelf/mine-")) == (0, True), err
    assert [path.name for path in (own.root / "dist/mine").glob("*/lock.json")], "it was built"


def test_publish_plan_of_a_file_prints_what_is_built_first(own):
    code, out, err = shelf(own, "mine.toml", "--plan")
    assert (code, out.startswith("plan for mine:")) == (0, True), err
    assert not (own.root / "dist").exists()
    code, out, err = shelf(own, "other.toml", "--plan")
    assert (code, out, "other.toml" in err) == (3, "", True), err


def test_publish_of_a_stack_ignores_a_folder_of_that_name(world):  # noqa: F811
    (world.root / "torch").mkdir()
    code, out, err = shelf(world, "torch", "--cuda", "cpu")
    assert (code, out.startswith("shelf/torch-1.0-cpu")) == (0, True), err
    assert "torch is the recipe of that name; ./torch means the folder" in err
    code, _, err = shelf(world, "./torch")
    assert (code, "plan for" in err) == (2, False), "a path is an image"


@pytest.mark.parametrize("command", ["image", "lock", "publish", "render"])
def test_every_command_takes_the_configured_mirror_and_the_file_s_stack(own, monkeypatch, command):
    asked = []

    def stop(request, *_):
        asked.append(request)
        raise KeyboardInterrupt

    monkeypatch.setattr(requests, "config", lambda: Config(mirror="tuna"))
    for name in ("build_image", "write_lock", "render_own"):
        monkeypatch.setattr(pipeline, name, stop)
    arguments = ("--to", "./shelf", "--allow-cpu-only") if command == "publish" else ()
    own.typed(command, "mine.toml", *arguments)
    (request,) = asked
    assert (request.name, request.cuda, str(request.recipe)) == ("torch", "cpu", "mine.toml")
    assert (request.sources.mirror, request.verb) == ("tuna", command)


def test_explain_of_a_file_is_of_its_stack_and_names_the_command_that_builds_it(own):
    code, out, err = own.typed("explain", "mine.toml")
    assert (code, "chosen, runs on the CPU: make image RECIPE=mine.toml CUDA=cpu" in out) == (0, True), out + err
    rows = json.loads(own.typed("explain", "mine.toml", "--json")[1])
    assert (rows["asked"], rows["rows"][0]["recipe"]) == ("cpu", "torch")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('# of mine\n\nextends = "torhc"\n', "mine.toml:3: extends: there is no recipe 'torhc'; the nearest is torch"),
        ('extends = "torch"\n\ncuda = "9.9"\n', "mine.toml:3: cuda: recipe torch has no variant for CUDA '9.9'; "),
    ],
)
@pytest.mark.parametrize(
    "words", [("image",), ("image", "--plan", "--gpu", "v100"), ("lock",), ("render",), ("explain",), ("publish",), ()]
)
def test_stack_or_cuda_of_a_file_that_is_not_there_names_file_and_line(own, words, text, said):
    (own.root / "mine.toml").write_text(text)
    more = ("--to", "./shelf", "--allow-cpu-only") if words == ("publish",) else ()
    typed = (words[0], "mine.toml", *words[1:], *more) if words else ("run", "--", "ls")
    code, out, err = own.typed(*typed)
    assert (code, out, said in err) == (3, "", True), err


def test_cuda_that_was_typed_is_not_looked_for_in_the_file(own):
    code, _, err = own.typed("image", "mine.toml", "--cuda", "9.9")
    assert (code, "graphcrate: recipe torch has no variant for CUDA '9.9'" in err) == (2, True), err


MOUNTS = 'mounts = ["{}:/data:ro"]\n'


def test_run_without_an_image_builds_that_of_the_folders_recipe_with_its_mounts(own):
    folder = own.root / "mine"
    (folder / "data").mkdir(parents=True)
    own.patch.chdir(folder)
    assert "there is no recipe here" in own.typed("run", "--", "python", "train.py")[2]
    (folder / "mine.toml").write_text(OWN + MOUNTS.format("data"))
    for words in (("--", "python", "train.py", "--data", "/data"), ("--env", "A=1", "--", "ls"), ()):
        code, out, said = own.typed("run", *words)
        assert (code, out) == (0, ""), said
        assert own.ran[-1].argv == (list(words[words.index("--") + 1 :]) if words else ("/bin/bash",))
        assert [(bind.source, bind.target, bind.read_only) for bind in own.ran[-1].binds] == [
            (folder, "/work", False),
            (folder / "data", "/data", True),
        ]
    (folder / "other.toml").write_text(OWN + MOUNTS.format("data"))
    assert "there are several recipes here" in own.typed("run", "--", "ls")[2]


@pytest.mark.parametrize("source", ["..", "~", "/", "link", "data/../.."])
def test_strangers_recipe_mounts_nothing_out_of_its_folder(own, source):
    folder = own.root / "mine"
    (folder / "data").mkdir(parents=True)
    (folder / "link").symlink_to(own.root)
    own.patch.chdir(folder)
    (folder / "mine.toml").write_text(OWN + MOUNTS.format(source))
    code, _, said = own.typed("run", "--", "ls")
    assert (code, "of mounts is not in the recipe's folder" in said, own.ran) == (2, True, [])
    code, _, said = own.typed("run", "--trust-paths", "--", "ls")
    assert (code, own.ran[-1].binds[1].target) == (0, "/data"), said
