"""A short name is an image that passed all its tests: not the newest attempt, nor one with additions."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.artifacts import names
from graphcrate.cli import options
from graphcrate.compat.plan import planning
from graphcrate.compat.requirements import own_packages
from graphcrate.engines.embedded import run as running
from graphcrate.host.process import Completed
from graphcrate.model.lock import Added
from graphcrate.model.plan import Slim
from graphcrate.model.recipe import Additions
from tests.unit import small_layouts
from tests.unit.assembly.test_build import LOCK, RECIPE
from tests.unit.assembly.test_what_ran import mine  # noqa: F401 (a fixture)
from tests.unit.house.test_wiring import BROKEN, BUILD, FAILED, world  # noqa: F401 (a fixture)

LATER = small_layouts.CREATED + 1


def links(world):  # noqa: F811
    """Every link below dist, by its name."""
    found = [path for path in (world.root / "dist").glob("*/*") if path.is_symlink()]
    assert all(path.exists() for path in found), "dist has no dangling link"
    return {f"{path.parent.name}:{path.name}": os.readlink(path) for path in found}  # noqa: PTH115


def paths(world):  # noqa: F811
    """All paths below dist, of links what they say and when they were written."""
    found = sorted((world.root / "dist").rglob("*"))
    return {path: path.is_symlink() and (path.readlink(), path.lstat().st_mtime_ns) for path in found}


def test_failed_image_gets_no_short_name_and_a_failed_rebuild_loses_it(world):  # noqa: F811
    good = world.built()
    assert links(world)["torch:cpu"] == good.name
    # The same tag again, of other bytes: what had the name is gone, and nothing that passed is left.
    world.lock(created=LATER)
    world.completed = Completed(0, (FAILED,))
    assert world.typed(*BUILD)[0] == 10
    assert "torch:cpu" not in links(world)
    code, out, err = world.typed("inspect", "torch:cpu")
    assert (code, out) == (2, ""), err
    assert (
        f"no image of the name torch:cpu has passed its tests; the newest, torch:{good.name}, failed its tests" in err
    )
    assert world.typed("inspect", f"torch:{good.name}")[0] == 0, "it goes by its whole name"


def test_short_name_is_linked_after_the_last_test(world):  # noqa: F811
    seen = []

    def run_in(rootfs, command):
        seen.append(links(world))
        return world.run_in(rootfs, command)

    world.patch.setattr(running, "run_in", run_in)
    tag = world.built().name
    assert seen == [{}]
    assert links(world)["torch:cpu"] == tag


@pytest.mark.parametrize("options", [("--no-smoke",), ()], ids=["not tested", "broken libraries"])
def test_untested_or_broken_image_gets_no_short_name(world, options):  # noqa: F811
    if not options:
        world.lock(library=BROKEN)
    assert world.typed(*BUILD, *options)[0] == (0 if options else 15)
    assert "torch:cpu" not in links(world)
    assert world.typed("run", "torch:cpu", "--", "true")[0] == 2


def test_image_with_additions_has_a_short_name_of_its_own(mine):  # noqa: F811
    mine.world.built()
    before = links(mine.world)
    image = mine.image(packages={"more": {"more/__init__.py": b"1\n"}})
    assert links(mine.world) == before | {"mine:cpu": image.folder.name}
    code, _, err = mine.typed("inspect", "mine")
    assert (code, f"mine is {image.name}, the newest here that passed its tests" in err) == (0, True), err


@pytest.mark.parametrize(
    ("made", "short"),
    [
        ({}, "cu118"),
        ({"additions": Additions(packages=("einops", "wandb==0.1"))}, "cu118-einops-wandb"),
        ({"additions": Additions(apt=("git",))}, "cu118-git"),
        ({"additions": Additions(flavour="jupyter")}, "cu118-jupyter"),
        ({"additions": Additions(packages=("einops",), name="mine")}, "cu118"),
        ({"devel": True}, "cu118-devel"),
        ({"slim": Slim(capabilities=("7.0",), ptx=False, everything=False)}, "cu118-sm70-slim"),
    ],
)
def test_short_name_has_the_additions_and_no_channel(made, short):
    candidate = RECIPE.variant("11.8").candidates[1]
    assert candidate.suffix
    packages = tuple(map(own_packages.name_of, made.get("additions", Additions()).packages))
    lock = msgspec.structs.replace(LOCK, added=Added(packages=packages))
    assert planning.short_name(planning.make_plan(RECIPE, lock, candidate, examples={}, **made), candidate) == short


def test_short_name_of_a_removed_image_is_the_newest_passed_image_and_no_look_writes_a_link(world):  # noqa: F811
    newest = world.built()
    older = newest.with_name("0.9-cpu-py311")
    shutil.copytree(newest, older)
    report = json.loads((older / "report.json").read_bytes())
    report |= {"tag": older.name, "layout": str(older / "oci")}
    report["artifact"]["reference"] = report["layout"]
    (older / "report.json").write_text(json.dumps(report))
    os.utime(older / "report.json", (1, 1))
    assert links(world)["torch:cpu"] == newest.name
    shutil.rmtree(newest)
    before = paths(world)
    code, _, err = world.typed("inspect", "torch:cpu")
    assert (code, f"torch:cpu is torch:{older.name}, the newest of its kind here that passed its tests" in err) == (
        0,
        True,
    )
    assert paths(world) == before, "a look at a name changes nothing"
    names.tidy(older.parent)
    assert links(world) == {"torch:cpu": older.name}, "links to nowhere are gone"
    shutil.rmtree(older / "oci")
    names.tidy(older.parent)
    assert links(world) == {}, "what is left of an image is none"
    (older.parent / "cpu").symlink_to(older.name)
    shutil.rmtree(older)
    before = paths(world)
    assert world.typed("inspect", "torch:cpu")[0] == 2
    assert paths(world) == before
    names.tidy(older.parent)
    assert links(world) == {}
    assert world.typed("inspect", "torch:cpu")[0] == 2


@pytest.mark.parametrize(
    "command",
    [
        ("inspect", "torch:cpu"),
        ("run", "torch:cpu", "--", "true"),
        ("convert", "torch:cpu", "--to", "oci-archive"),
        ("check", "torch:cpu"),
        ("test", "torch:cpu"),
        ("report", "torch:cpu"),
        ("diff", "torch:cpu", "torch"),
    ],
    ids=lambda command: command[0],
)
def test_command_given_a_short_name_prints_its_image_once(world, command):  # noqa: F811
    tag = world.built().name
    _, out, err = world.typed(*command)
    assert err.count(f"torch:cpu is torch:{tag}") == 1, err
    assert "torch:cpu" not in out


def test_publish_of_a_short_name_prints_its_image_once(world):  # noqa: F811
    tag = world.built().name
    code, out, err = world.typed("publish", "torch:cpu", "--to", f"{world.registry.host}/team", "--allow-cpu-only")
    assert (code, f":{tag}@" in out, err.count(f"torch:cpu is torch:{tag}")) == (0, True, 1), err


def test_existing_folder_is_not_replaced_by_a_short_name(world):  # noqa: F811
    (world.root / "dist/torch/cpu").mkdir(parents=True)
    world.built()
    assert "torch:cpu" not in links(world)


def test_report_without_a_short_name_gets_it_at_the_next_build(world):  # noqa: F811
    folder = world.built()
    report = json.loads((folder / "report.json").read_bytes())
    del report["short"]
    (folder / "report.json").write_text(json.dumps(report))
    (folder.parent / "cpu").unlink()
    assert world.built() == folder
    assert links(world)["torch:cpu"] == folder.name
    assert json.loads((folder / "report.json").read_bytes())["short"] == "cpu"


def test_full_name_returns_paths_and_registry_references_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ref in ("docker:pyg", "a/b:1", "registry.example/team/pyg:1", "../x", "", ":", "pyg:a:b", "@sha256:0"):
        assert names.full_name(ref, tmp_path, SimpleNamespace) == ref


def test_short_name_of_a_half_replaced_image_is_refused(world):  # noqa: F811
    """Its layout is the new one, and its report still the old."""
    good = world.built()
    other = small_layouts.layout(world.root / "other")
    shutil.rmtree(good / "oci")
    other.path.rename(good / "oci")
    code, out, err = world.typed("inspect", "torch:cpu")
    assert (code, out, f"the newest, torch:{good.name}, is not whole" in err) == (2, "", True), err


@pytest.fixture
def elsewhere(world, monkeypatch):  # noqa: F811
    """A built image, and another working folder."""
    tag = world.built().name
    project = world.root / "my project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setattr(options, "users_config", options.Config)
    return tag


@pytest.mark.parametrize("name", ["torch", "torch:cpu", "torch:{tag}"])
def test_image_of_the_clone_is_found_from_any_folder(world, elsewhere, name):  # noqa: F811
    code, _, err = world.typed("run", name.format(tag=elsewhere), "--", "true")
    assert code == 0, err
    assert world.ran[-1].binds[0].source == world.root / "my project"
    assert world.typed("inspect", name.format(tag=elsewhere))[0] == 0
    assert world.typed("run", name.format(tag=elsewhere), "--output", "here", "--", "true")[0] == 2, "it was typed"


@pytest.mark.parametrize("name", ["torch", "torch:cpu", "torch:{tag}"])
@pytest.mark.parametrize("place", ["GRAPHCRATE_IMAGES", "images"])
def test_image_of_a_site_is_found_where_it_was_copied_to(world, elsewhere, monkeypatch, name, place):  # noqa: F811
    site = world.root / "site images"
    (world.root / "dist").rename(site)
    if place == "images":
        monkeypatch.setattr(options, "users_config", lambda: options.Config(images=(str(site),)))
    else:
        world.place.environment[place] = f"{world.root}/none:{site}"
    code, _, err = world.typed("run", name.format(tag=elsewhere), "--", "true")
    assert code == 0, err
    assert world.typed("job", name.format(tag=elsewhere), "--runtime", "docker", "--command", "true")[0] == 0


def test_image_of_the_folder_goes_before_those_of_other_places(world, elsewhere):  # noqa: F811
    shutil.copytree(world.root / "dist", "dist", symlinks=True)
    assert options.place_of(f"torch:{elsewhere}", Path("dist")) == Path("dist")
    shutil.rmtree("dist")
    assert options.place_of(f"torch:{elsewhere}", Path("dist")) == world.root / "dist"


def test_folder_of_images_that_has_two_paths_is_one_place(world, elsewhere):  # noqa: F811
    assert options.places_of_images() == (Path("dist"), world.root / "dist")
    Path("dist").symlink_to(world.root / "dist")
    assert options.places_of_images() == (Path("dist"),)
    code, out, err = world.typed("images")
    assert (code, out.count(elsewhere)) == (0, 1), err


@pytest.mark.parametrize("name", ["", ":", "..", "..:cpu", "torch:..", "torch:.", "a/b:cpu", "/:x"])
def test_name_that_leads_elsewhere_is_in_no_place(world, name):  # noqa: F811
    world.built()
    assert not names.has(name, world.root / "dist")
