"""Known vulnerabilities of releases, as an index on loopback tells them."""

import json

import pytest

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.resolve.sources.request_sources import Sources
from tests.made import index_of
from upkeep.security.advisories import Advisories

ADVISORY = {
    "id": "PYSEC-2099-1", "aliases": ["CVE-2099-0001", "GHSA-aaaa-bbbb-cccc"], "fixed_in": ["3.1.4", "2.11.9"],
    "link": "https://advisories.example/PYSEC-2099-1", "details": "words", "summary": None, "withdrawn": None,
}  # fmt: skip


def release(server, name, version, *advisories, **more):
    """The index's JSON of a release."""
    server.put(
        f"/pypi/{name}/{version}/json", json.dumps({"info": {}, "vulnerabilities": [*advisories], **more}).encode()
    )


def has_json(server):
    """The index's JSON of the project that tells whether it has any."""
    server.put("/pypi/pip/json", b'{"info": {}, "vulnerabilities": []}')


@pytest.fixture
def ask(server, cache, no_places):
    """Advisories of a release, by a client that asks for the first time."""

    def run(name, version, **environment):
        sources = Sources(SourceOptions(), cache, {**no_places, **index_of(server), **environment})
        return Advisories(sources).of(name, version)

    return run


def test_advisories_of_a_release_have_ids_fixing_releases_in_order_and_a_link(server, ask):
    release(server, "jinja2", "3.1.2", ADVISORY)
    (found,) = ask("jinja2", "3.1.2").advisories
    assert found.ids == ("PYSEC-2099-1", "CVE-2099-0001", "GHSA-aaaa-bbbb-cccc")
    assert (found.fixed, found.link) == (("2.11.9", "3.1.4"), ADVISORY["link"])


def test_withdrawn_advisories_do_not_count_and_a_release_without_any_has_none(server, ask):
    release(server, "jinja2", "3.1.2", {**ADVISORY, "withdrawn": "2026-01-01T00:00:00Z"})
    assert ask("jinja2", "3.1.2").advisories == ()


def test_release_for_a_cuda_is_judged_as_the_one_that_it_was_built_of(server, ask):
    release(server, "torch", "2.0.1", ADVISORY)
    assert len(ask("torch", "2.0.1+cu118").advisories) == 1


def test_an_answer_counts_for_a_day_and_is_asked_for_again_after_it(server, ask, monkeypatch):
    release(server, "jinja2", "3.1.2")
    now = settings.now()
    for day, count in ((0.0, 1), (0.9, 1), (1.1, 2), (-1.0, 3)):
        monkeypatch.setattr(settings, "now", lambda day=day: now + day * 86_400)
        assert ask("jinja2", "3.1.2").advisories == ()
        assert len(server.asked) == count


def test_index_without_json_of_releases_is_not_known_and_not_none(server, ask):
    answer = ask("jinja2", "3.1.2")
    assert (answer.advisories, answer.silent) == (None, True)
    assert "no advisories" in answer.why


def project(server, name, newest, *advisories, releases=()):
    """The index's JSON of a project, which has the advisories of its newest release."""
    document = {
        "info": {"version": newest},
        "releases": {each: [] for each in releases},
        "vulnerabilities": [*advisories],
    }
    server.put(f"/pypi/{name}/json", json.dumps(document).encode())


def test_mirror_with_json_of_projects_alone_knows_the_newest_release_and_no_other(server, ask):
    project(server, "jinja2", "3.1.6", ADVISORY, releases=("3.1.2", "3.1.6"))
    assert len(ask("jinja2", "3.1.6").advisories) == 1
    assert len(ask("jinja2", "3.1.6.0").advisories) == 1
    older, unheard = ask("jinja2", "3.1.2"), ask("jinja2", "3.1.3")
    assert (older.advisories, older.silent) == (None, True)
    assert "newest release alone" in older.why
    assert (unheard.advisories, unheard.silent) == (None, False)


def test_answer_about_another_release_is_not_known(server, ask):
    release(server, "jinja2", "3.1.2", info={"version": "3.1.6"})
    answer = ask("jinja2", "3.1.2")
    assert (answer.advisories, answer.silent) == (None, True)


def test_project_that_an_index_with_json_lacks_is_not_known_and_nobody_is_silent(server, ask):
    has_json(server)
    answer = ask("companys-own", "1.0")
    assert (answer.advisories, answer.silent) == (None, False)
    assert "no such release" in answer.why


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"null", b'{"vulnerabilities": 1}', b'{"vulnerabilities": [1]}',
        b'{"vulnerabilities": [{"id": 7}]}', b'{"vulnerabilities": [{"aliases": []}]}', b'{"vulnerabilities": [',
        b'{"vulnerabilities": [], "info": 1}', b'{"vulnerabilities": [], "releases": [1]}',
        b'{"vulnerabilities": [], "info": {"version": []}}', b'{"vulnerabilities": "\xff"}',
        b"[" * 100_000, b'{"info": {}}', b'{"vulnerabilities": null}',
        b'{"vulnerabilities": [' + b",".join([b'{"id": "CVE-1"}'] * 501) + b"]}",
    ],
)  # fmt: skip
def test_hostile_or_odd_answer_is_not_known_and_somebody_is_silent(server, ask, body):
    server.put("/pypi/jinja2/3.1.2/json", body)
    answer = ask("jinja2", "3.1.2")
    assert (answer.advisories, answer.silent, bool(answer.why)) == (None, True, True)


def test_huge_answer_is_not_read_to_its_end(server, ask, monkeypatch):
    monkeypatch.setattr("upkeep.security.advisories._MOST_BYTES", 1 << 20)
    server.put("/pypi/jinja2/3.1.2/json", b" " * (1 << 22))
    assert "too large" in ask("jinja2", "3.1.2").why


def test_odd_values_of_an_advisory_are_left_out_and_it_still_counts(server, ask):
    odd = {
        "id": "\x1b[31mred", "aliases": [1, None, "CVE-2099-0001", "x" * 1000], "fixed_in": ["3.1.4", "none", 5, {}],
        "link": "javascript:alert(1)", "withdrawn": None,
    }  # fmt: skip
    release(server, "jinja2", "3.1.2", odd, {"id": "", "aliases": "CVE", "fixed_in": "3", "link": ["x"]})
    first, second = ask("jinja2", "3.1.2").advisories
    assert (first.ids, first.fixed, first.link) == (("CVE-2099-0001",), ("3.1.4",), "")
    assert (second.ids, second.fixed) == (("without an id",), ())


@pytest.mark.parametrize(
    ("name", "version"),
    [("../../simple/x", "1"), ("", "1"), ("a b", "1"), ("x" * 300, "1"), ("x", ""), ("x", "../1"), ("x", "1" * 300)],
)
def test_name_or_version_that_is_none_is_asked_about_nowhere(server, ask, name, version):
    answer = ask(name, version)
    assert (answer.advisories, server.asked) == (None, [])


def test_folder_or_address_without_simple_is_no_index_to_ask(server, ask, tmp_path):
    for address in (tmp_path.as_uri() + "/simple", server.url("/pages")):
        answer = ask("jinja2", "3.1.2", UV_DEFAULT_INDEX=address)
        assert (answer.advisories, answer.silent, server.asked) == (None, True, [])


def test_second_index_is_asked_for_what_the_first_lacks(server, ask):
    release(server, "jinja2", "3.1.2", ADVISORY)
    assert len(ask("jinja2", "3.1.2", UV_INDEX=server.url("/company/simple")).advisories) == 1
    assert [path.split("/")[1] for path in server.paths()] == [*["company"] * 3, "pypi"]
