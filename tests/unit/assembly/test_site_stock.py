"""`cache push|list|pull|verify|prune` as typed: what goes into a site's shared cache, and what is printed of it."""

import functools
import json
from pathlib import Path

import pytest

from graphcrate.assembly import extension_wheels, extensions, site_stock
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs import making
from graphcrate.inputs.shared import entry, site_cache, stock
from graphcrate.inputs.shared.entry import SharedFile
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.lock import decode_lock
from graphcrate.model.words import size
from tests import ROOT
from tests.made import refused
from tests.unit.assembly.test_site_images import Site
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)
from tests.unit.inputs.test_shared_cache import (
    CONTENT,
    KEY,
    SITE,
    WHEEL,
    entry_of,
    keys,  # noqa: F401 (a fixture)
    user,  # noqa: F401 (a fixture)
)


@pytest.fixture
def built(world, keys, tmp_path):  # noqa: F811
    """A user has built an image without a shared cache, and has compiled a wheel."""
    world.built()
    world.place.cache.write(world.place.cache.path("compiled", KEY, WHEEL), CONTENT)
    return world


def typed(world, keys, tmp_path, action, *options, code=0, key=False):  # noqa: F811
    """Type the command; what was printed, as a value, and what was said."""
    named = ("--cache-key", str(keys[0])) if key else ("--cache-trust", str(keys[1]))
    words = ("--cache", str(tmp_path / "site"), *named, "--json", *options)
    ended, out, err = world.typed("cache", action, *words)
    assert ended == code, err
    return json.loads(out) if out else [], err


def test_push_gives_wheels_and_images_that_passed_and_a_second_user_takes_both(built, keys, tmp_path):  # noqa: F811
    lines, _ = typed(built, keys, tmp_path, "push", key=True)
    assert [line["title"] for line in lines] == [WHEEL, "torch:1.0-cpu-py311"]
    assert [line["why"] for line in lines] == ["", ""]
    assert typed(built, keys, tmp_path, "list")[0] == lines
    assert typed(built, keys, tmp_path, "verify")[0] == lines
    built.ran.clear()
    site = Site(built, keys, tmp_path / "site")
    site.typed("second")
    assert site.is_taken
    pulled, _ = typed(built, keys, tmp_path, "pull")
    assert [line["title"] for line in pulled] == [WHEEL]
    assert built.place.cache.path("compiled", KEY, WHEEL).read_bytes() == CONTENT


def test_push_of_an_image_that_failed_its_tests_gives_no_image(built, keys, tmp_path):  # noqa: F811
    (report,) = built.root.glob("dist/torch/*-py311/report.json")
    document = json.loads(report.read_text())
    report.write_text(json.dumps({**document, "smoke": None, "suites": []}))
    assert [line["title"] for line in typed(built, keys, tmp_path, "push", key=True)[0]] == [WHEEL]


def test_verify_ends_with_an_error_where_bytes_changed_and_prune_removes_with_yes_alone(built, keys, tmp_path):  # noqa: F811
    typed(built, keys, tmp_path, "push", key=True)
    (path,) = (tmp_path / "site/entries").glob("compiled-*")
    path.write_text("{}")
    lines, err = typed(built, keys, tmp_path, "verify", code=6)
    assert [line["why"] for line in lines] == ["it is not a signed statement", ""]
    assert "1 of 2 entries are faulty" in err
    shown, err = typed(built, keys, tmp_path, "prune")
    assert "nothing was removed" in err
    assert "--yes" in err
    assert path.exists()
    assert typed(built, keys, tmp_path, "prune", "--yes")[0] == shown
    assert not path.exists()


def test_push_to_a_place_that_fails_is_an_error_and_not_a_line(built, keys, tmp_path):  # noqa: F811
    (tmp_path / "site").write_text("a file")
    _, err = typed(built, keys, tmp_path, "push", key=True, code=5)
    assert "failed, as said above" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list",), "no shared cache is named"),
        (("push", "--cache", "/tmp", "--cache-trust", "{pub}"), "no key was named"),
        (("--cache", "/tmp"), "the rest for a site's cache"),
        (("list", "--free", "blobs"), "the rest for a site's cache"),
        (("list", "--yes"), "--days and --yes are for prune"),
        (("prune", "--share", "0.1"), "--share is for verify"),
        (("prune", "--cache", "/tmp"), "has no key to check it by"),
    ],
)
def test_options_of_another_action_are_refused(world, keys, words, message):  # noqa: F811
    code, _, err = world.typed("cache", *[word.format(pub=keys[1]) for word in words])
    assert code == 2
    assert message in err


LOCK = ROOT / "images/pyg/cu116/compatible.lock.json"


@pytest.fixture
def compiled(user, tmp_path, monkeypatch):  # noqa: F811
    """A user's shared cache with the wheels of a lock, and one of no lock; which of them are made again."""
    place = tmp_path / "shared"
    giver = user("giver", place, signs=True)
    lock = decode_lock(LOCK.read_bytes())
    steps = compile_steps(lock)
    names = [wheelhouse.key(package, step, giver.ctx.cache) for step in steps for package in step.packages]
    for key in (*names, KEY):
        giver.cache.give(giver.make(key=key))
    made = []

    def make_again(lock, step, folder, ctx, content=CONTENT):
        (package,) = step.packages
        made.append(package.name)
        (wheel := folder / "compiled" / wheelhouse.key(package, step, ctx.cache) / WHEEL).parent.mkdir(parents=True)
        wheel.write_bytes(content)
        return [wheel]

    monkeypatch.setattr(extension_wheels, "make_again", make_again)
    second = user("second", place)
    second.made, second.place, second.number, second.compile = made, place, len(names), make_again
    return second


def committed(second):
    (path := second.ctx.root / "images/pyg/cu116/compatible.lock.json").parent.mkdir(parents=True)
    path.write_bytes(LOCK.read_bytes())


@pytest.mark.parametrize(("share", "number"), [(0.01, 1), (0.5, 2), (1.0, 4)])
def test_verify_makes_that_share_of_the_wheels_again_and_names_what_no_lock_makes(compiled, share, number):
    committed(compiled)
    assert site_stock.make_again(compiled.cache, share, Path("none"), compiled.ctx) == number
    assert len({*compiled.made}) == len(compiled.made) == number
    assert compiled.said.lines[0] == "1 wheel of no lock that is here or there: cannot be made again"
    assert compiled.said.lines[1:] == [f"made again, the same bytes: {WHEEL}"] * number


def test_verify_chooses_other_wheels_in_other_runs(compiled):
    committed(compiled)
    for _ in range(50):
        site_stock.make_again(compiled.cache, 0.01, Path("none"), compiled.ctx)
    assert len({*compiled.made}) > 1


def test_wheel_that_is_another_file_names_both_makers_and_is_refused_from_then_on(compiled, monkeypatch):
    committed(compiled)
    monkeypatch.setattr(extension_wheels, "make_again", functools.partial(compiled.compile, content=b"changed"))
    with refused(IntegrityError, "graphcrate 1 on giver wrote", making.this_machine(), "is faulty, or was changed"):
        site_stock.make_again(compiled.cache, 1.0, Path("none"), compiled.ctx)
    (refusal,) = [line for line in stock.listed(compiled.cache) if line.why]
    assert refusal.why == site_cache.OTHER_HERE


def test_locks_of_signed_images_say_how_wheels_are_made_again(compiled):
    for number, name in enumerate(("report.json", "lock.json")):
        file = SharedFile.of(LOCK, name)
        (compiled.place / "blobs/sha256" / file.sha256).write_bytes(LOCK.read_bytes())
        image = entry_of(kind="image", key=f"{number:064}", files=(file,))
        (compiled.place / f"entries/{image.tag}.json").write_bytes(entry.sealed(image, SITE))
    assert site_stock.make_again(compiled.cache, 0.01, Path("none"), compiled.ctx) == 1


def test_wheels_that_cannot_be_made_are_said_and_all_of_them_are_an_error(compiled, monkeypatch):
    committed(compiled)

    def fails(*_):
        raise NetworkError("no mirror has g++")

    monkeypatch.setattr(extension_wheels, "make_again", fails)
    with refused(NetworkError, "no mirror has g++"):
        site_stock.make_again(compiled.cache, 1.0, Path("none"), compiled.ctx)
    assert len([line for line in compiled.said.lines if "cannot be made again here" in line]) == compiled.number


def test_plan_names_what_the_sites_cache_has_in_place_of_its_time(compiled):
    lock = decode_lock(LOCK.read_bytes())
    alone = extensions.time_lines(lock, compiled.ctx)
    offered, rest = extensions.time_lines(lock, compiled.ctx, compiled.cache)
    assert offered.startswith(f"from the site's cache {compiled.place}: torch-scatter, {size(len(CONTENT))}; compiling")
    assert offered.endswith(" took 2 minutes")
    assert "torch-scatter" in alone[0]
    assert "torch-scatter" not in rest
    assert len([line for line in compiled.said.lines if "is another package" in line]) == compiled.number - 1
    extensions.time_lines(lock, compiled.ctx, compiled.cache)
    assert len(compiled.said.lines) == compiled.number - 1, "a build after its plan says it once"
