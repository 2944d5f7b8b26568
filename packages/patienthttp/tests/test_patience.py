"""Servers that let us wait: told after a while, given up by their bytes, however they come."""

import contextlib
import http.client
import socket
import threading

import pytest

from patienthttp import patience
from patienthttp.client import Client
from patienthttp.errors import HttpError, NoAnswer
from patienthttp.patience import NOTED_SECONDS, RATE_SECONDS, SILENT_SECONDS, WORTH, Meter, Patience, TooSlowError
from patienthttp.retry import MOST, STALLED_TRIES, Retry


class Clock:
    """Time that passes only while a caller waits for the server, or is told to."""

    def __init__(self):
        self.now, self.timeout = 1000.0, 0.0

    def __call__(self):
        return self.now

    def moves(self, *steps):
        """A server that gives (bytes, after so many seconds) one after the other, then nothing."""
        left = list(steps)

        def move():
            size, seconds = left[0] if left else (0, 1e9)
            if seconds > self.timeout:
                self.now += self.timeout
                if left:
                    left[0] = size, seconds - self.timeout
                raise TimeoutError
            self.now += seconds
            left.pop(0)
            return size

        return move

    def set(self, seconds):
        self.timeout = seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def asking(clock, lines):
    known = Patience(lines.append, clock)
    return lambda silent=SILENT_SECONDS, total=None: known.asking("index.example", silent, total)


def test_silent_server_is_reported_every_10_s_and_given_up_after_30(clock, lines, asking):
    with asking(), pytest.raises(TooSlowError, match="nothing for 30 s"):
        Meter().wait(clock.moves(), clock.set)
    assert lines == ["waiting for index.example since 10 s", "waiting for index.example since 20 s"]
    assert clock.now == pytest.approx(1000 + SILENT_SECONDS)


def test_ten_waiting_connections_to_a_host_print_one_line(clock, lines, asking):
    with asking():
        meters = [Meter() for _ in range(10)]
        for meter in meters:
            meter._count(NOTED_SECONDS, 0)
    assert len(lines) == 1


def test_server_below_1_kb_per_s_is_given_up(clock, asking):
    for rate, is_slow in ((1, True), (900, True), (1100, False)):
        with asking():
            meter, move = Meter(), clock.moves(*[(rate, 1.0)] * 300)
            with pytest.raises(TooSlowError, match="less than 1 kB/s") if is_slow else contextlib.nullcontext():
                for _ in range(200):
                    meter.wait(move, clock.set)


def test_slow_server_is_reported_before_it_is_given_up(clock, lines, asking):
    with asking():
        meter, move = Meter(), clock.moves(*[(1, 1.0)] * 25)
        for _ in range(25):
            meter.wait(move, clock.set)
    assert lines == [f"waiting for index.example: less than 1 kB/s for {seconds} s" for seconds in (10, 20)]


def test_time_to_first_byte_does_not_count_as_speed(clock, asking):
    with asking():
        meter, move = Meter(), clock.moves((10, SILENT_SECONDS - 1), *[(50_000, 1.0)] * 60)
        for _ in range(61):
            meter.wait(move, clock.set)


def test_slow_local_disk_does_not_count_as_a_slow_server(clock, asking):
    with asking():
        meter, move = Meter(), clock.moves(*[(2000, 1.0)] * 100)
        for _ in range(100):
            meter.wait(move, clock.set)
            clock.now += 3600


def test_small_answer_beyond_its_total_time_is_given_up(clock, asking):
    with asking(total=100.0):
        meter, move = Meter(), clock.moves(*[(5000, 1.0)] * 1000)
        for _ in range(99):
            meter.wait(move, clock.set)
        with pytest.raises(TooSlowError, match="not finished after 100 s"):
            meter.wait(move, clock.set)


def test_registry_answer_after_upload_may_start_late_and_not_stall(clock, asking):
    with asking(silent=patience.ANSWER_SECONDS):
        meter, move = Meter(), clock.moves((1, 100.0))
        meter.wait(move, clock.set)
        meter.answered()
        with pytest.raises(TooSlowError, match="nothing for 30 s"):
            meter.wait(move, clock.set)


class Rude(contextlib.AbstractContextManager):
    """A server that does with each connection what `deed` says."""

    def __init__(self, deed):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.deed, self.taken, self.open = deed, [], True
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):
            while self.open:
                connection, _ = self.listening.accept()
                self.taken.append(connection)
                threading.Thread(target=self.act, args=(connection,), daemon=True).start()

    def act(self, connection):
        with contextlib.suppress(OSError):
            self.deed(self, connection)

    def __exit__(self, *_):
        self.open = False
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for connection in self.taken:
            connection.close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}/page"


def says(text, *, drip=b""):
    """Sends this, then `drip` again and again."""

    def deed(server, connection):
        connection.recv(1 << 16)
        connection.sendall(text)
        while drip and server.open:
            connection.sendall(drip)
            server.thread.join(0.01)

    return deed


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n"
#: what a server does, and what is said of it
RUDE = {
    "takes the connection and says nothing": (says(b""), "nothing for"),
    "stops in its headers": (says(HEAD), "nothing for"),
    "drips headers": (says(HEAD, drip=b"x"), "less than"),
    "stops in the page": (says(HEAD + b"\r\n<html>"), "nothing for"),
    "drips the page": (says(HEAD + b"\r\n", drip=b"x"), "less than"),
    "drips chunks": (says(HEAD[:17] + b"Transfer-Encoding: chunked\r\n\r\n", drip=b"1\r\nx\r\n"), "less than"),
}


@pytest.fixture
def hasty(monkeypatch):
    """The same limits, a hundredth as long, and a thousand times as fast."""
    for name, value in {"SILENT_SECONDS": 0.3, "NOTED_SECONDS": 0.1, "RATE_SECONDS": 0.3, "LEAST_RATE": 1e6}.items():
        monkeypatch.setattr(patience, name, value)


def asked(client, folder):
    """Ways to ask: a page of some size, and a file."""
    part, none = folder / "part", lambda _: None
    return {
        "page": lambda url: client.request("GET", url),
        "download": lambda url: client.download(url, part, size=1_000_000, sha256=None, advance=none),
    }


@pytest.mark.parametrize("deed", RUDE)
@pytest.mark.parametrize("way", ["page", "download"])
def test_misbehaving_server_is_given_up_after_few_tries(tmp_path, hasty, lines, deed, way):
    does, said = RUDE[deed]
    client = Client({}, sleep=lambda _: None, note=lines.append)
    with Rude(does) as server, pytest.raises(HttpError) as caught:
        asked(client, tmp_path)[way](server.url)
    assert caught.value.failure.kind is NoAnswer.STALLED
    assert said in caught.value.what
    assert "127.0.0.1" in caught.value.what
    assert len(server.taken) == 1 + STALLED_TRIES
    if said == "nothing for":
        assert lines[0].startswith("waiting for 127.0.0.1 since")


#: headers that have no end: given up in time, or at once where they come fast
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
ENDLESS = {
    "drips headers, fast enough for a file": (HEAD, b"X: y\r\n" * 400, NoAnswer.STALLED, "headers are not there"),
    "goes on and on": (b"", GO_ON * 40, NoAnswer.STALLED, "headers are not there"),
    "goes on and on at once": (
        b"",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 9_000,
        NoAnswer.TOO_LARGE,
        "its headers have no end",
    ),
    "a line without an end": (HEAD, b"x" * 100_000, NoAnswer.TOO_LARGE, "its headers have no end"),
    "more than a hundred headers": (HEAD, b"X: y\r\n" * 150, NoAnswer.TOO_LARGE, "its headers have no end"),
}


@pytest.mark.parametrize("deed", ENDLESS)
@pytest.mark.parametrize("way", ["page", "download"])
def test_headers_without_an_end_are_given_up(tmp_path, hasty, monkeypatch, lines, deed, way):
    text, drip, reason, said = ENDLESS[deed]
    monkeypatch.setattr(patience, "LEAST_RATE", 1.0)
    monkeypatch.setattr(patience, "HEAD_SECONDS", 0.5 if reason is NoAnswer.STALLED else 30.0)
    if reason is NoAnswer.STALLED:
        monkeypatch.setattr(patience, "HEAD_BYTES", 1 << 30)
        monkeypatch.setattr(http.client, "_MAXHEADERS", 1 << 30)
    client = Client({}, sleep=lambda _: None, note=lines.append)
    with Rude(says(text, drip=drip)) as server, pytest.raises(HttpError) as caught:
        asked(client, tmp_path)[way](server.url)
    assert (caught.value.failure.kind, said in caught.value.what) == (reason, True)
    assert len(server.taken) == (1 + STALLED_TRIES if reason is NoAnswer.STALLED else 1)


def test_upload_to_a_registry_that_reads_nothing_is_given_up(hasty, lines):
    client, headers = Client({}, sleep=lambda _: None, note=lines.append), {"Content-Length": str(64 << 20)}

    def pieces():
        return (bytes(1 << 20) for _ in range(64))

    with Rude(lambda server, _: server.thread.join(30)) as server, pytest.raises(HttpError) as caught:
        client.retry().call(lambda: client.send("PUT", server.url, headers=headers, body=pieces))
    assert caught.value.failure.kind is NoAnswer.STALLED
    assert len(server.taken) == 1 + STALLED_TRIES
    assert lines


def stalled(gained, position):
    def attempt():
        position[0] += gained
        raise HttpError.of(NoAnswer.STALLED, "https://a.example/")

    return attempt


def test_retries_end_unless_each_gains_a_large_part():
    for gained, tries in ((0, 1 + STALLED_TRIES), (WORTH - 1, 1 + STALLED_TRIES), (WORTH, MOST + 1)):
        position, pauses = [0], []
        with pytest.raises(HttpError):
            Retry(pauses.append, seconds=1e9).call(stalled(gained, position), lambda at=position: at[0])
        assert len(pauses) == tries - 1


def test_timeout_constants_are_in_order():
    assert NOTED_SECONDS < SILENT_SECONDS <= RATE_SECONDS < patience.ANSWER_SECONDS < patience.ANSWER_TOTAL
