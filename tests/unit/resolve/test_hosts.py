"""Hosts that a build asks, tried one by one: which are reached, which are needed, and what a plan says of those out."""

import json

import pytest

from graphcrate.host import context as contexts
from graphcrate.inputs.bases.mirrors import DebianMirror
from graphcrate.resolve.sources import hosts
from graphcrate.resolve.sources.hosts import HostRow, Tried
from tests.made import index_of
from tests.unit import small_index
from tests.unit.resolve_world import NOWHERE
from tests.unit.wheel_server import Fault, small_wheel

INDEX = hosts.ROWS[0]


def row(*places, needed=False):
    return HostRow("x", f"files of {len(places)}", "another", lambda _: places, needed)


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/there", 200, ""),
        ("/absent", 404, ""),
        ("/there", 405, ""),
        ("/there", 403, "HTTP 403 (127.0.0.1)"),
        ("/there", 451, "HTTP 451 (127.0.0.1)"),
        ("/there", 503, "HTTP 503 (127.0.0.1)"),
    ],
)
def test_host_is_reached_unless_it_refuses(world, path, status, why):
    world.server.put("/there", b"")
    world.server.faults[path] = [Fault(status=status)] * 9 if status not in (200, 404) else []
    (tried,) = hosts.tried(world.context(small_index.recipe()).sources, [row(world.server.url(path))])
    assert (tried.why, tried.reached) == (why, not why)


def test_closed_port_is_named_with_the_reason_and_what_works_without_it(world):
    (tried,) = hosts.tried(world.context(small_index.recipe()).sources, [row(NOWHERE)])
    assert tried.lines()[1:] == ["      why: connection refused (127.0.0.1)", "      without it: another"]


def test_package_index_that_shows_a_login_page_is_not_reached(world):
    del world.server.pages["/simple/numpy/"]
    world.server.put("/simple/numpy/", b"<html><form>Name and password</form></html>")
    (tried,) = hosts.tried(world.context(small_index.recipe()).sources, [INDEX])
    assert (tried.needed, tried.why) == (True, "the answer is another page (127.0.0.1)")


@pytest.mark.parametrize(("whys", "lost"), [(("", "refused"), []), (("refused", "refused"), ["base"])])
def test_one_of_several_needed_hosts_is_enough(whys, lost):
    tried = [Tried(host="x", gives="base", without="", needed=True, why=why) for why in whys]
    assert hosts.lacking([*tried, Tried(host="y", gives="more", without="", needed=False, why="refused")]) == lost


@pytest.mark.parametrize(
    ("words", "host"),
    [
        ("pytorch channel: name does not resolve (download.pytorch.org)", "download.pytorch.org"),
        (
            "download.pytorch.org lists torch.whl, which download-r2.pytorch.org does not give (HTTP 403)",
            "download-r2.pytorch.org",
        ),
        ("pytorch channel: download.pytorch.org has no torch 2.0.1", ""),
    ],
)
def test_plan_names_the_host_that_was_not_reached_and_not_one_that_answers(words, host):
    line = hosts.blocked([words])
    assert line.startswith(f"not reached: {host} (") if host else not line
    assert not line or ("; without it: " in line and "doctor --network tries all hosts" in line)


@pytest.mark.parametrize("is_there", [True, False])
def test_doctor_ends_with_code_5_where_a_needed_host_is_not_reached(
    typed, channels, mirrors, context, monkeypatch, is_there
):
    if is_there:
        channels.simple("numpy", dict([small_wheel("numpy", "1.0")]))
    else:
        channels.faults["/simple/numpy/"] = [Fault(status=403)] * 9
    channels.put(f"/debian/dists/{hosts.SUITE}/InRelease", b"")
    debian = type("Servers", (), {"mirrors": [DebianMirror(channels.url("/debian"))]})
    monkeypatch.setattr(hosts.mirrors, "archives", lambda *_, **__: debian)
    monkeypatch.setattr(hosts, "ROWS", (INDEX, next(row for row in hosts.ROWS if row.gives == "the base, compilers")))
    monkeypatch.setattr(hosts.tried, "__defaults__", (hosts.ROWS,))
    environment = {**context.environment, **index_of(channels)}
    there = contexts.Context(root=context.root, environment=environment)
    monkeypatch.setattr(contexts.Context, "here", classmethod(lambda kind: there))
    code, out, said = typed("doctor", "--network", "--json")
    assert code == (0 if is_there else 5)
    answer = json.loads(out)
    assert [one["reached"] for one in answer["hosts"]] == [is_there, True]
    assert answer["lacking"] == ([] if is_there else [INDEX.gives])
    assert ("no host was reached for: most packages" in said) is not is_there
    there.cache.close()


def test_doctor_refuses_the_network_with_an_error_to_explain(typed):
    assert typed("doctor", "--network", "--explain=x")[0] == 2
