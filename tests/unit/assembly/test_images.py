"""The command `images`: what is in all places, and the removal of what is named or replaced."""

import json
import os
import shutil
from pathlib import Path

import pytest

from graphcrate.cli import options
from graphcrate.engines.embedded import unpacked_images
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)


@pytest.fixture
def place(world, monkeypatch):  # noqa: F811
    """The world, with an image that was run and an older one of its kind; their tags."""
    monkeypatch.setattr(options, "users_config", options.Config)
    newest = world.built()
    older = newest.with_name("0.9-cpu-py311")
    shutil.copytree(newest, older)
    report = json.loads((older / "report.json").read_bytes()) | {"tag": older.name, "layout": str(older / "oci")}
    report["artifact"]["reference"] = report["layout"]
    (older / "report.json").write_text(json.dumps(report))
    (older / "torch.sif").write_bytes(b"1" * 5000)
    os.utime(older / "report.json", (1, 1))
    assert world.typed("run", f"torch:{newest.name}", "--", "true")[0] == 0
    world.newest, world.older = newest.name, older.name
    return world


def listed(world):  # noqa: F811
    code, out, err = world.typed("images", "--json")
    assert code == 0, err
    return {image["name"]: image for image in json.loads(out)}


def test_images_of_all_places_are_listed_with_sizes_names_and_last_run(place):
    found = listed(place)
    newest, older = found[f"torch:{place.newest}"], found[f"torch:{place.older}"]
    assert "torch:cpu" in newest["names"]
    assert "names" not in older or older["names"] == []
    assert (newest["alone"], newest["shared"] > 0) == (0, True), "the older one has the same layers"
    assert (newest["used"] > 0, newest["unpacked"] > 0, older["made"]) == (True, True, 1)
    code, out, _ = place.typed("images")
    assert (code, out.count(f"torch:{place.older}"), "torch:cpu" in out) == (0, 1, True)
    os.chdir(place.root / "wheels")
    assert {Path(image["place"]) for image in listed(place).values()} == {place.root / "dist"}, "the clone's"


def test_rm_removes_the_folder_and_the_tree_and_says_what_went(place):
    code, out, err = place.typed("images", "rm", f"torch:{place.newest}")
    assert (code, out.startswith(f"torch:{place.newest}  ")) == (0, True), err
    assert sorted(path.name for path in (place.root / "dist/torch").iterdir()) == [place.older, "cpu"]
    assert (place.root / "dist/torch/cpu").readlink() == Path(place.older), "the short name is the other's"
    assert list((place.root / "cache" / unpacked_images.FOLDER).glob("*")) == []
    assert place.typed("images", "rm", f"torch:{place.older}")[1].count("torch.sif") == 1
    assert listed(place) == {}
    assert "there is no image in dist" in place.typed("images")[2]
    assert not (place.root / "dist/torch").exists()


@pytest.mark.parametrize("name", ["torch:cpu", "torch", "..", "torch:../..", "/etc", "none:1"])
def test_rm_takes_whole_names_alone(place, name):
    def there():
        working = place.root / "cache" / "tmp"  # of each run, until it is collected
        return sorted(path for path in place.root.rglob("*") if not path.is_relative_to(working))

    before = there()
    code, _, err = place.typed("images", "rm", name)
    assert (code, "is not the whole name of an image here" in err) == (2, True)
    assert name != "torch:cpu" or f"images rm torch:{place.newest}" in err
    assert there() == before


def test_prune_shows_what_is_replaced_and_removes_it_only_with_yes(place):
    code, out, err = place.typed("images", "prune")
    assert (code, out.splitlines()[0].startswith(f"torch:{place.older}  ")) == (0, True), err
    assert "nothing was removed" in err
    assert len(listed(place)) == 2
    assert place.typed("images", "prune", "--yes")[1] == out
    assert listed(place).keys() == {f"torch:{place.newest}"}
    code, out, err = place.typed("images", "prune")
    assert (code, out, "there is nothing to remove" in err) == (0, "", True)


def test_prune_has_the_tree_of_an_image_that_is_gone_but_none_in_use(place):
    shutil.rmtree(place.root / "dist")
    (tree,) = (place.root / "cache" / unpacked_images.FOLDER).iterdir()
    assert listed(place)[""]["digest"] == f"sha256:{tree.name}"
    with unpacked_images.in_use(tree):
        code, out, err = place.typed("images", "prune", "--yes")
        assert (code, out, "a command runs in it" in err, tree.is_dir()) == (0, "", True, True)
    assert place.typed("images", "prune", "--yes")[1].startswith(f"sha256:{tree.name}  ")
    assert not tree.exists()


def test_rm_prune_and_their_words_do_not_mix(place):
    for words in (("rm",), ("prune", "torch:1"), ("--yes",), ("list", "torch:1"), ("rm", "torch:1", "--yes")):
        assert place.typed("images", *words)[0] == 2, words
