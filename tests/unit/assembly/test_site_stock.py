"""`cache push|list|pull|verify|prune` as typed: what goes into a site's shared cache, and what is printed of it."""

import json

import pytest

from tests.unit.assembly.test_site_images import Site
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)
from tests.unit.inputs.test_shared_cache import CONTENT, KEY, WHEEL, keys  # noqa: F401 (fixtures)


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
        (("prune", "--cache", "/tmp"), "has no key to check it by"),
    ],
)
def test_options_of_another_action_are_refused(world, keys, words, message):  # noqa: F811
    code, _, err = world.typed("cache", *[word.format(pub=keys[1]) for word in words])
    assert code == 2
    assert message in err
