"""An image with additions: what is built and tested beside it, and what is said meanwhile."""

import shutil

import msgspec
import pytest

from graphcrate.assembly import making
from graphcrate.engines.embedded import layers
from tests.unit.assembly.test_what_ran import in_image, mine  # noqa: F401 (a fixture)
from tests.unit.elfmaker import make_elf
from tests.unit.house.test_wiring import BROKEN, world  # noqa: F401 (a fixture)

MORE = {"more": {"more/__init__.py": b"1\n"}}


@pytest.fixture
def from_source(mine):  # noqa: F811
    """The addition is a pure sdist: its wheel is as a back-end would make it."""
    world, made = mine.world, {}  # noqa: F811
    wheel = world.wheel

    def as_sdist(name, files):
        package = wheel(name, files)
        if name == "torch":
            return package
        file = msgspec.structs.replace(package.file, name=f"{name}-1.0.tar.gz")
        cache = world.place.cache
        made[file.sha256] = cache.file(file.sha256, package.file.name)
        shutil.copyfile(made[file.sha256], cache.file(file.sha256, file.name))
        return msgspec.structs.replace(package, file=file)

    world.patch.setattr(type(world), "wheel", lambda self, *arguments: as_sdist(*arguments))
    world.patch.setattr(layers.wheel_build, "build_wheel", lambda package, *_: made[package.file.sha256])
    return mine


def plans(said):
    return [line.removeprefix("plan for ") for line in said.splitlines() if line.startswith("plan for ")]


def images(mine):  # noqa: F811
    return {path.parent.parent.name for path in (mine.world.root / "dist").glob("*/*/report.json")}


def test_own_image_from_source_is_tested_without_a_stack_image(from_source):
    built = from_source.image(packages=MORE)
    assert plans(built.said) == [built.name]
    assert images(from_source) == {"mine"}
    assert in_image(from_source, built.digest)
    assert [suite["image"] for suite in built.report["suites"]] == [built.digest] * 2


def test_own_image_from_source_uses_passes_of_an_existing_stack(from_source):
    from_source.world.built()
    from_source.ran.clear()
    built = from_source.image(packages=MORE)
    assert plans(built.said) == [built.name]
    assert not in_image(from_source, built.digest)
    assert [suite["image"] == built.digest for suite in built.report["suites"]] == [False, True]


def test_own_image_builds_the_stack_first_with_one_line(mine):  # noqa: F811
    built = mine.image(packages=MORE)
    assert plans(built.said) == [built.name]
    lines = built.said.splitlines()
    (first,) = [line for line in lines if line.startswith("first the stack itself, torch:1.0-cpu-py311: ")]
    assert (
        lines.index(f"plan for {built.name}")
        < lines.index(first)
        < lines.index("step 1 of 4: download files, make the base")
    )
    again = mine.image(packages=MORE)
    assert [line[:6] for line in again.said.splitlines()] == ["tested", "below ", "image ", "next  "]


def test_own_image_build_reads_each_report_once(mine, monkeypatch):  # noqa: F811
    looked, read = [], making.read_report

    def look(path, warn):
        looked.append(path.parent.parent.name)
        return read(path, warn)

    monkeypatch.setattr(making, "read_report", look)
    for _ in range(2):  # a new build, and one where nothing changed
        mine.image(packages=MORE)
        assert sorted(looked) == ["mine", "torch"]
        looked.clear()


def test_own_image_with_no_smoke_builds_no_stack(mine):  # noqa: F811
    (mine.world.root / "mine.toml").write_text('extends = "torch"\ncuda = "cpu"\n')
    assert mine.typed("image", "./mine.toml", "--no-smoke")[0] == 0
    assert images(mine) == {"mine"}


@pytest.fixture
def other(mine):  # noqa: F811
    """An image of mine.toml, and the path of another recipe of that name, in another folder."""
    (mine.world.root / "mine.toml").write_text('extends = "torch"\ncuda = "cpu"\nenv = { OURS = "1" }\n')
    assert mine.typed("image", "./mine.toml", "--no-smoke")[0] == 0
    path = mine.world.root / "other" / "mine.toml"
    path.parent.mkdir()
    path.write_text('extends = "torch"\ncuda = "cpu"\nenv = { THEIRS = "1" }\n')
    return path


def test_recipe_of_a_taken_name_is_refused_until_it_names_its_image(mine, other):  # noqa: F811
    before = sorted((mine.world.root / "dist/mine").rglob("*"))
    for plan in (["--plan"], []):
        code, _, said = mine.typed("image", str(other), "--no-smoke", *plan)
        assert (code, f"images called mine are here, of {mine.world.root}/mine.toml" in said) == (2, True), said
        assert f'name = "mine-2" in {other}' in said
    assert sorted((mine.world.root / "dist/mine").rglob("*")) == before
    other.write_text('name = "theirs"\n' + other.read_text())
    assert mine.typed("image", str(other), "--no-smoke")[0] == 0
    assert images(mine) == {"mine", "theirs"}
    assert mine.typed("image", "./mine.toml", "--no-smoke")[0] == 0, "the first one's name is its own still"


def test_recipe_that_was_moved_keeps_its_name(mine, other):  # noqa: F811
    (mine.world.root / "mine.toml").rename(other)
    assert mine.typed("image", str(other), "--no-smoke")[0] == 0


def test_recipe_of_a_stacks_name_does_not_take_the_stacks_images(mine):  # noqa: F811
    mine.world.built()
    path = mine.world.root / "other" / "torch.toml"
    path.parent.mkdir()
    path.write_text('extends = "torch"\ncuda = "cpu"\nenv = { THEIRS = "1" }\n')
    code, _, said = mine.typed("image", str(path), "--no-smoke")
    assert (code, "images called torch are here, of the stack torch" in said) == (2, True), said


def test_owner_of_a_name_goes_with_its_last_image(mine, other):  # noqa: F811
    (image,) = (path for path in (mine.world.root / "dist/mine").glob("*/report.json") if not path.parent.is_symlink())
    assert mine.typed("images", "rm", f"mine:{image.parent.name}")[0] == 0
    assert not (mine.world.root / "dist/mine").exists()
    assert mine.typed("image", str(other), "--no-smoke")[0] == 0


def test_broken_image_ends_with_15_and_all_findings_and_runs_no_suite(world):  # noqa: F811
    world.lock(library=BROKEN, other={"other/b.so": make_elf(**BROKEN)})
    for _ in range(2):
        code, out, err = world.typed("image", "torch", "--cuda", "cpu")
        assert (code, out, world.ran) == (15, "", []), err
        last = err.rpartition("graphcrate: ")[2]
        assert "cannot work as a whole: see other and torch" in last
        assert [last.count(f"  {name}: ") for name in ("other other/b.so", "torch torch/lib/a.so")] == [1, 1], last
        assert err.count("b.so") == last.count("b.so"), "nothing is said twice"
        assert all("; fix: " in line for line in last.splitlines()[1:3])


def test_broken_image_with_keep_going_runs_its_suites(world):  # noqa: F811
    world.lock(library=BROKEN)
    code, _, err = world.typed("image", "torch", "--cuda", "cpu", "--keep-going")
    assert (code, len(world.ran)) == (15, 1), err
    assert not list((world.root / "dist/torch").glob("cpu")), "and it does not get the name"


@pytest.mark.parametrize(
    ("pack", "compression"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("3.10", "gzip"),
        ("5.14", "zstd"),
        ("auto", "zstd"),
        ("auto --target old", "gzip"),
        ("zstd --target old", "zstd"),
    ],
)
def test_image_that_is_packed_for_a_sif_has_its_layers_of_wheels_in_the_cache(world, pack, compression):  # noqa: F811
    world.lock(other={"other/b.py": b"1"})
    (world.root / "targets").mkdir()
    (world.root / "targets/old.toml").write_text('kernel = "3.10"\n')
    assert world.typed("image", "torch", "--cuda", "cpu", "--pack", *pack.split())[0] == 0
    packed = [path.name for path in (world.root / "cache/squashed").iterdir()]
    assert packed
    assert all(f"-{compression}" in name for name in packed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pack", "lz4"), "'lz4' is not a kernel's version"),
        (("--pack", "gzip", "--engine", "docker"), "does not apply"),
    ],
)
def test_pack_that_cannot_be_is_refused(world, options, said):  # noqa: F811
    code, _, err = world.typed("image", "torch", "--cuda", "cpu", *options)
    assert code == 2
    assert said in err


def test_quiet_build_prints_warnings_and_result_only(world):  # noqa: F811
    loud = ("image", "torch", "--cuda", "cpu")
    code, out, err = world.typed(*loud, "-q")
    assert (code, out.count("\n")) == (0, 1)
    assert [line.split()[0] for line in err.splitlines()] == ["contracts:", "warn", "warn"], err
    assert world.typed(*loud, "--quiet") == (0, out, "")
    code, same, err = world.typed(*loud)
    assert (code, same, [line[:6] for line in err.splitlines()]) == (0, out, ["tested", "image ", "next  "])


def test_new_build_prints_no_line_twice(world):  # noqa: F811
    lines = world.typed("image", "torch", "--cuda", "cpu")[2].splitlines()
    assert len(set(lines)) == len(lines)
    assert not [line for line in lines if line.startswith(("reading ", "looking "))]
