"""The guard as a table: who asks, from where, with what; the answer, and the user that the pages see."""

import asyncio
import base64
import contextlib
import hashlib
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from buildsite import guard, server
from buildsite.guard import UNIX, Doors, Guard, Proxy
from buildsite.users import Users
from graphcrate.host import net
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import alone
from graphcrate.model.errors import HostError, UsageError
from tests import ROOT

HOST, TOKEN = "site.example", "graphcrate_ada-s-token"
LOCAL, ELSEWHERE, WEB_SERVER = ("127.0.0.1", 5), ("192.0.2.7", 5), ("192.0.2.1", 5)
BEARER = ("authorization", f"Bearer {TOKEN}")
OPEN, TOKENS, BEHIND_FILE, BOTH, BEHIND_OTHER = "open", "tokens", "behind a file", "both", "behind another machine"


def basic(text):
    return "authorization", f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.touch(0o600)
    path.write_text(f'[user.ada]\ntoken = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"\n')
    return Users(path)


@pytest.fixture(scope="module")
def doors(users):
    by_file = Proxy(UNIX, "X-Remote-User", is_only_way=False)
    return {
        OPEN: Doors({HOST}, Users()),
        TOKENS: Doors({HOST}, users),
        BEHIND_FILE: Doors({HOST}, Users(), by_file),
        BOTH: Doors({HOST}, users, by_file),
        BEHIND_OTHER: Doors({HOST}, Users(), Proxy(WEB_SERVER[0], "X-Remote-User", is_only_way=True)),
    }


async def page(scope, receive, send):
    """Say which user asks, after the body came."""
    while (await receive()).get("more_body"):
        pass
    await PlainTextResponse(f"hello {scope['user']}")(scope, receive, send)


def asked(doors, *headers, app=page, peer=LOCAL, method="GET", path="/", body=b"", host=HOST, query=b""):
    """Return status, text and headers of the answer, and what was logged."""
    pairs = [(name.encode(), value.encode()) for name, value in (("host", host), *headers)]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query,
        "headers": pairs, "client": peer, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    came, sent, lines = [{"type": "http.request", "body": body, "more_body": False}], [], []

    async def receive():
        return came.pop() if came else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(app, doors, lines.append)(scope, receive, send))
    text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
    return sent[0]["status"], text, dict(sent[0]["headers"]), lines


ADA, EVE = ("x-remote-user", "ada"), ("x-remote-user", "eve")
#: doors, headers, where it comes from; the answer; whose it is
ROWS = [
    (OPEN, [], LOCAL, 200, ""),
    (OPEN, [ADA], LOCAL, 200, ""),
    (OPEN, [BEARER], LOCAL, 200, ""),
    (TOKENS, [], LOCAL, 401, ""),
    (TOKENS, [ADA], LOCAL, 401, ""),
    (TOKENS, [BEARER], LOCAL, 200, "ada"),
    (TOKENS, [("authorization", f"bearer  {TOKEN} ")], LOCAL, 200, "ada"),
    (TOKENS, [basic(f"ada:{TOKEN}")], LOCAL, 200, "ada"),
    (TOKENS, [basic(f":{TOKEN}")], LOCAL, 200, "ada"),
    (TOKENS, [basic(TOKEN)], LOCAL, 401, ""),
    (TOKENS, [basic("ada:wrong")], LOCAL, 401, ""),
    (TOKENS, [BEARER, BEARER], LOCAL, 401, ""),
    (TOKENS, [("authorization", TOKEN)], LOCAL, 401, ""),
    (TOKENS, [("authorization", f"Bearer {TOKEN}x")], LOCAL, 401, ""),
    (TOKENS, [("authorization", f"Bearer {hashlib.sha256(TOKEN.encode()).hexdigest()}")], LOCAL, 401, ""),
    (TOKENS, [("authorization", "Bearer ")], LOCAL, 401, ""),
    (TOKENS, [("authorization", "Basic %%%")], LOCAL, 401, ""),
    (TOKENS, [("authorization", "Basic /////w==")], LOCAL, 401, ""),
    (TOKENS, [("authorization", f"Basic {'QUFB' * 10_000}")], LOCAL, 401, ""),
    (TOKENS, [("authorization", f"Bearer {TOKEN * 500}")], LOCAL, 401, ""),
    (BEHIND_FILE, [], None, 401, ""),
    (BEHIND_FILE, [EVE], None, 200, "eve"),
    (BEHIND_FILE, [EVE], LOCAL, 403, ""),
    (BEHIND_FILE, [ADA, EVE], None, 403, ""),
    (BEHIND_FILE, [("x-remote-user", "")], None, 403, ""),
    (BEHIND_FILE, [("x-remote-user", "a b")], None, 403, ""),
    (BEHIND_FILE, [("x-remote-user", "ada\n")], None, 403, ""),
    (BEHIND_FILE, [("x-remote-user", "../ada")], None, 403, ""),
    (BEHIND_FILE, [("x-remote-user", "x" * 65)], None, 403, ""),
    (BEHIND_FILE, [BEARER], None, 401, ""),
    (BOTH, [BEARER], None, 200, "ada"),
    (BOTH, [EVE], None, 200, "eve"),
    (BOTH, [EVE, BEARER], None, 200, "eve"),
    (BOTH, [EVE, BEARER], LOCAL, 403, ""),
    (BEHIND_OTHER, [EVE], WEB_SERVER, 200, "eve"),
    (BEHIND_OTHER, [], WEB_SERVER, 401, ""),
    (BEHIND_OTHER, [EVE], ELSEWHERE, 403, ""),
    (BEHIND_OTHER, [], ELSEWHERE, 403, ""),
    (BEHIND_OTHER, [EVE], LOCAL, 403, ""),
]


@pytest.mark.parametrize(("kind", "headers", "peer", "status", "user"), ROWS)
def test_request_gets_this_answer_and_user(doors, kind, headers, peer, status, user):
    got, text, answered, lines = asked(doors[kind], *headers, peer=peer)
    assert (got, text.strip() == f"hello {user}".strip()) == (status, status == 200)
    assert (b"www-authenticate" in answered) == (status == 401 and kind in (TOKENS, BOTH))
    assert len(lines) == (status != 200)
    assert TOKEN not in f"{lines}{text}"


JSON = ("content-type", "application/json")
FORM = ("content-type", "application/x-www-form-urlencoded")
#: method, path, headers; the answer
CHANGES = [
    ("POST", "/", [FORM], 200),
    ("POST", "/v1/plans", [JSON], 200),
    ("POST", "/v1/plans", [("content-type", "application/json; charset=utf-8")], 200),
    ("POST", "/v1/plans", [FORM], 415),
    ("POST", "/v1/plans", [("content-type", "text/plain")], 415),
    ("POST", "/v1/plans", [("content-length", "2")], 415),
    ("POST", "/v1/plans", [("transfer-encoding", "chunked")], 415),
    ("POST", "/v1/images/pyg/1.0/sif", [], 200),
    ("POST", "/v1/images/pyg/1.0/sif", [("origin", "https://evil.example")], 403),
    ("DELETE", "/v1/jobs/p1", [], 200),
    ("DELETE", "/v1/jobs/p1", [("sec-fetch-site", "cross-site")], 403),
    ("DELETE", "/v1/jobs/p1", [("sec-fetch-site", "same-site")], 403),
    ("POST", "/", [("sec-fetch-site", "same-origin"), ("origin", f"https://{HOST}")], 200),
    ("POST", "/", [("sec-fetch-site", "none")], 200),
    ("POST", "/", [("origin", "https://evil.example")], 403),
    ("POST", "/", [("origin", f"https://{HOST}.evil.example")], 403),
    ("POST", "/", [("origin", f"https://{HOST}@evil.example")], 403),
    ("POST", "/", [("origin", "null")], 403),
    ("POST", "/", [("origin", "")], 403),
    ("POST", "/", [("origin", "http://[")], 403),
    ("POST", "/", [("origin", f"https://{HOST}"), ("sec-fetch-site", "cross-site")], 403),
    ("PUT", "/", [], 405),
    ("TRACE", "/", [], 405),
    ("OPTIONS", "/", [], 405),
    ("HEAD", "/", [], 200),
    ("GET", f"/{'x' * 8000}", [], 414),
    ("GET", "/", [("content-length", "-1")], 413),
    ("GET", "/", [("content-length", "1" * 5000)], 413),
    ("GET", "/", [("content-length", "²")], 413),
    ("POST", "/", [("content-length", str(guard.LARGEST_BODY + 1))], 413),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), CHANGES)
def test_request_that_changes_something_gets_this_answer(doors, method, path, headers, status):
    got, _, answered, lines = asked(doors[OPEN], *headers, method=method, path=path)
    assert got == status
    assert len(lines) == (status != 200 or method in ("POST", "DELETE"))
    assert {name.encode() for name in guard._HEADERS} <= set(answered)


@pytest.mark.parametrize("host", ["evil.example", "site.example:80", "site.example.", "", "site.example, evil.example"])
def test_another_host_is_refused_before_it_is_asked_who_it_is(doors, host):
    assert asked(doors[TOKENS], host=host)[0] == 421
    assert asked(doors[TOKENS], ("host", host))[0] == 421


def test_body_without_an_announced_length_is_cut(doors):
    assert asked(doors[OPEN], FORM, method="POST", body=b"x" * (guard.LARGEST_BODY + 1))[0] == 413


def test_body_that_does_not_arrive_is_not_waited_for(doors, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.01)

    async def waiting(scope, receive, send):
        async def never():
            return await asyncio.Event().wait()

        await receive()
        await guard._limited(never)()

    assert asked(doors[OPEN], FORM, app=waiting, method="POST")[0] == 408


def test_body_that_arrives_a_byte_at_a_time_has_one_time_for_all(doors, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)

    async def trickling(scope, receive, send):
        async def byte():
            await asyncio.sleep(0.01)
            return {"type": "http.request", "body": b"x", "more_body": True}

        limited = guard._limited(byte)
        for _ in range(1000):
            await limited()

    assert asked(doors[OPEN], FORM, app=trickling, method="POST")[0] == 408


def test_user_has_so_many_requests_at_once_and_others_have_theirs(doors):
    async def crowd():
        going, statuses = asyncio.Event(), []

        async def waiting(scope, receive, send):
            await going.wait()
            await page(scope, receive, send)

        async def send(message):
            statuses.extend([message["status"]] if "status" in message else [])

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def one(user):
            headers = [(b"host", HOST.encode()), (b"x-remote-user", user)]
            scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
            await guarded(scope, receive, send)

        guarded = Guard(waiting, doors[BEHIND_FILE], lambda _: None)
        asked = [asyncio.create_task(one(user)) for user in [*[b"ada"] * (guard.MOST_EACH + 1), b"eve"]]
        await asyncio.sleep(0)
        assert statuses == [429]
        going.set()
        await asyncio.gather(*asked)
        await one(b"ada")
        assert statuses == [429, *[200] * (guard.MOST_EACH + 2)]
        assert not guarded._requests

    asyncio.run(crowd())


def test_log_line_names_the_user_and_stays_one_line(doors):
    _, _, _, (line,) = asked(doors[TOKENS], BEARER, JSON, method="POST", path="/v1/x\n2026 - eve\x1b[2J")
    assert line.endswith(r"127.0.0.1 ada POST /v1/x\n2026 - eve\x1b[2J 200")
    _, _, _, (line,) = asked(doors[BEHIND_FILE], peer=None)
    assert line.endswith("unix - GET / 401")


def test_broken_list_of_users_lets_nobody_in(tmp_path):
    path = tmp_path / "users.toml"
    path.touch(0o600)
    doors = Doors({HOST}, Users(path), Proxy(UNIX, "X-Remote-User", is_only_way=False))
    assert asked(doors, EVE, peer=None)[0] == 200
    path.write_text("[user\n")
    assert [asked(doors, EVE, peer=None)[0] for _ in range(2)] == [503, 503]


@given(st.lists(st.tuples(st.sampled_from(["authorization", "x-remote-user", "origin", "host"]), st.text(max_size=60))))
def test_no_header_of_a_stranger_is_a_user(users, headers):
    for each in (Doors({HOST}, users), Doors({HOST}, users, Proxy(UNIX, "X-Remote-User", is_only_way=False))):
        assert asked(each, *headers)[0] in (401, 403, 421)


#: as it is typed; whom it lets in, or a word of the refusal
TYPED = [
    ({}, None),
    ({"listen": "[::1]:80"}, None),
    ({"listen": "unix:/run/s", "hosts": [HOST]}, None),
    ({"listen": "unix:/run/s", "hosts": [HOST], "proxy": "unix"}, Proxy(UNIX, "X-Remote-User", is_only_way=False)),
    ({"listen": "192.0.2.9:80", "proxy": "192.0.2.1"}, Proxy("192.0.2.1", "X-Remote-User", is_only_way=True)),
    ({"listen": "0.0.0.0:80", "proxy": "192.0.2.1", "header": "X-U"}, Proxy("192.0.2.1", "X-U", is_only_way=True)),
    ({"listen": "192.0.2.9:80"}, "can be reached from other machines"),
    ({"listen": "0.0.0.0:80"}, "can be reached from other machines"),
    ({"listen": "unix:/run/s"}, "has no name"),
    ({"proxy": "127.0.0.1"}, "cannot be told from others"),
    ({"listen": "0.0.0.0:80", "proxy": "127.0.0.1"}, "cannot be told from others"),
    ({"listen": "0.0.0.0:80", "proxy": "::1"}, "cannot be told from others"),
    ({"proxy": "unix"}, "cannot be told from others"),
    ({"listen": "unix:/run/s", "hosts": [HOST], "proxy": "192.0.2.1"}, "cannot be told from others"),
    ({"listen": "0.0.0.0:80", "proxy": "site.example"}, "not an address of a machine"),
    ({"listen": "0.0.0.0:80", "proxy": "192.0.2.1", "header": "X_U:"}, "not a header's name"),
]


@pytest.mark.parametrize(("typed", "result"), TYPED)
def test_who_may_come_is_taken_or_refused_as_it_was_typed(typed, result):
    entrance = server.Entrance(**typed)
    if isinstance(result, str):
        with pytest.raises(UsageError, match=result):
            server.proxy_of(entrance)
    else:
        assert server.proxy_of(entrance) == result


def test_second_site_in_a_folder_is_refused(tmp_path):
    (tmp_path / server.FOLDER).mkdir()
    path = tmp_path / server.FOLDER / "server"
    with alone(path) as is_first, pytest.raises(HostError, match="another site uses"):
        server.serve(server.Entrance(), tmp_path, Context(root=ROOT, environment={}), print, print)
    with alone(path) as is_first_again:
        assert (is_first, is_first_again) == (True, True)


def test_socket_that_a_header_is_trusted_on_is_of_its_owner_and_group_and_replaced_only_where_nobody_answers(tmp_path):
    path = tmp_path / "site.sock"
    with contextlib.closing(net.listening_file(path)):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660
        with pytest.raises(HostError, match="is not a socket to listen at"):
            net.listening_file(path)
    with contextlib.closing(net.listening_file(path)):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:80", "192.0.2.1:8080", "site.example:8080", ":99999", "x"])
def test_only_loopback_is_listened_at(tmp_path, listen):
    with pytest.raises(UsageError):
        server.serve(server.Entrance(listen=listen), tmp_path, Context(root=ROOT, environment={}), print, print)
