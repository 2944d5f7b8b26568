"""Connections that keep the site waiting: which goes first, and that each goes in the end, over real sockets."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from buildsite import connections
from buildsite.connections import Connection, Waiting, longest
from graphcrate.host import net

GOING = threading.Event()
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("waiting", "goes"),
    [
        ([], None),
        ([("a", 5)], 0),
        ([("a", 5), ("a", 3), ("a", 4)], 1),
        ([("a", 1), ("b", 5), ("b", 3)], 2),
        ([("a", 2), ("b", 1)], 1),
    ],
)
def test_longest_of_the_address_with_most_goes(waiting, goes):
    assert longest([Waiting(*each) for each in waiting]) == goes


@given(st.lists(st.floats(0, 100), min_size=3))
def test_stranger_of_one_address_never_ends_the_connection_of_another(times):
    waiting = [Waiting("stranger", since) for since in times[1:]] + [Waiting("user", times[0])]
    assert longest(waiting) != len(waiting) - 1


async def page(scope, receive, send):
    """Answer once the whole request is there; /large with more than any buffer takes, /slow on a sign."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        while scope["path"] == "/slow" and not GOING.is_set():
            await asyncio.sleep(0.01)
        await PlainTextResponse("x" * (50 << 20) if scope["path"] == "/large" else "hello")(scope, receive, send)


@pytest.fixture
def dial(monkeypatch):
    """Start a server of four connections with these times; what connects to it."""
    monkeypatch.setattr(connections, "MOST", 4)
    with contextlib.ExitStack() as stack:

        def started(**seconds):
            for name, value in seconds.items():
                monkeypatch.setattr(connections, name, value)
            listener = stack.enter_context(net.listening("127.0.0.1", 0))
            config = uvicorn.Config(
                page, http=Connection, lifespan="off", log_config=None, limit_concurrency=5, timeout_keep_alive=1000
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=[[listener]])
            thread.start()
            stack.callback(thread.join)
            stack.callback(setattr, server, "force_exit", True)
            stack.callback(setattr, server, "should_exit", True)
            return lambda: stack.enter_context(socket.create_connection(listener.getsockname(), timeout=30))

        yield started


def is_ended(caller):
    """Return whether the server ends it, with an answer before or not."""
    with contextlib.suppress(ConnectionError):
        while caller.recv(1 << 20):
            pass
    return True


def answer(caller, request=REQUEST):
    caller.sendall(request)
    text = caller.recv(4096)
    while text and b"hello" not in text and b"Unavailable" not in text:
        text += caller.recv(4096)
    return text.split()[1]


@pytest.mark.parametrize(
    "start", [b"", b"GET / HT", REQUEST[:-2], REQUEST + b"GET", b"POST / HTTP/1.1\r\nHost: x\r\n"],
    ids=["nothing", "a line's begin", "half a head", "a second one's begin", "no end"],
)  # fmt: skip
def test_head_that_does_not_arrive_ends_its_connection(dial, start):
    caller = dial(REQUEST_SECONDS=0.1)()
    caller.sendall(start)
    assert is_ended(caller)


def test_head_that_arrives_a_byte_at_a_time_has_one_time_for_all(dial):
    caller = dial(REQUEST_SECONDS=0.2)()

    def trickle():
        for _ in range(1000):
            caller.sendall(b"x")
            time.sleep(0.02)

    with pytest.raises(ConnectionError):
        trickle()


def test_answer_that_nobody_takes_ends_its_connection(dial):
    caller = dial(TAKING_SECONDS=0.1)()
    caller.sendall(REQUEST.replace(b"/", b"/large", 1))
    time.sleep(1)
    sizes = iter(lambda: len(caller.recv(1 << 20)), 0)
    with contextlib.suppress(ConnectionError):
        assert sum(sizes) < 50 << 20


def test_silent_connections_make_room_and_the_longest_goes_first(dial):
    connect = dial(REQUEST_SECONDS=1000)
    silent = [connect() for _ in range(4)]
    assert [answer(connect()) for _ in range(3)] == [b"200"] * 3
    assert is_ended(silent[0])
    assert answer(connect()) == b"200"


def test_requests_that_are_worked_on_stay_and_one_too_many_is_told(dial):
    connect = dial(REQUEST_SECONDS=0.2)
    worked_on = [connect() for _ in range(4)]
    for caller in worked_on:
        caller.sendall(REQUEST.replace(b"/", b"/slow", 1))
    time.sleep(0.5)
    assert answer(connect()) == b"503"
    GOING.set()
    assert [caller.recv(4096).split()[1] for caller in worked_on] == [b"200"] * 4
