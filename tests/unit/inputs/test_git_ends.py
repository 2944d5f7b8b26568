"""Ends of git that fetched nothing, and the error that each becomes: a case for each row of the table."""

import pytest

from graphcrate.compat.failures import ends
from graphcrate.compat.failures.ends import ProgramFailure
from graphcrate.inputs.commits import GitSource
from graphcrate.model.errors import DiskFullError, NetworkError
from tests.unit.gitmaker import Git

URL = "https://me:secret@git.example/team/repo"
SHOWN = "https://git.example/team/repo"
NO_ACCESS = f"fatal: unable to access '{SHOWN}/': "
NOT_READ = "fatal: Could not read from remote repository."
#: in the words of git and ssh, in the order of the table: type of error, words of it
GIT_ENDS = {
    "disk full": ("fatal: write error: No space left on device", DiskFullError, "git has no room", "GRAPHCRATE_CACHE="),
    "quota": ("fatal: write error: Disk quota exceeded", DiskFullError, "git has no room", "quota -s"),
    "proxy": (f"{NO_ACCESS}CONNECT tunnel failed, response 403", NetworkError, "the proxy does not let", "http.proxy"),
    "name server": (
        f"ssh: Could not resolve hostname git.example: Temporary failure in name resolution\n{NOT_READ}",
        *(NetworkError, "name server does not answer", "getent hosts git.example"),
    ),
    "name": (
        f"{NO_ACCESS}Could not resolve host: git.example",
        *(NetworkError, "name does not resolve", "misspelt", "getent hosts git.example"),
    ),
    "certificate": (
        f"{NO_ACCESS}server certificate verification failed. CAfile: none CRLfile: none",
        *(NetworkError, "certificate is not trusted", "http.sslCAInfo"),
    ),
    "no TLS": (
        f"{NO_ACCESS}gnutls_handshake() failed: An unexpected TLS packet was received.",
        *(NetworkError, "no secure connection", "https or http"),
    ),
    "closed port": (
        f"ssh: connect to host git.example port 22: Connection refused\n{NOT_READ}",
        *(NetworkError, "connection refused", "is down", "the port in the address"),
    ),
    "no route": (
        f"ssh: connect to host git.example port 22: No route to host\n{NOT_READ}",
        *(NetworkError, "network is unreachable", "no route"),
    ),
    "no answer": (
        f"{NO_ACCESS}Failed to connect to git.example port 443 after 130 s: Connection timed out",
        *(NetworkError, "no answer", "firewall"),
    ),
    "no connection": (
        f"{NO_ACCESS}Failed to connect to git.example port 443 after 0 ms: Couldn't connect to server",
        *(NetworkError, "no connection", "https_proxy"),
    ),
    "unknown host": (
        f"Host key verification failed.\n{NOT_READ}",
        *(NetworkError, "key is not known", f"git clone {SHOWN} ", "WITH=./NAME"),
    ),
    "login": (
        "fatal: could not read Username for 'https://git.example': terminal prompts disabled",
        *(NetworkError, "needs a login", f"git clone {SHOWN} "),
    ),
    "refused": (f"{NO_ACCESS}The requested URL returned error: 403", NetworkError, "HTTP 403", "bars this user"),
    "overloaded": (f"{NO_ACCESS}The requested URL returned error: 503", NetworkError, "HTTP 503", "wait a little"),
    "no commit": (
        f"fatal: remote error: upload-pack: not our ref {'0' * 40}",
        *(NetworkError, "has no such commit", f"git ls-remote {SHOWN} "),
    ),
    "no repository": (f"fatal: repository '{SHOWN}/' not found", NetworkError, "no such repository", "git clone"),
    "cut": ("fatal: early EOF\nfatal: fetch-pack: invalid index-pack output", NetworkError, "cut", "run the same"),
    "anything else": ("fatal: something new", NetworkError, "No network", f"git clone {SHOWN} "),
}


@pytest.mark.parametrize("name", GIT_ENDS)
def test_end_of_git_without_a_fetch_has_its_own_error_cause_and_next_step(name, monkeypatch, tmp_path):
    said, error, *words = GIT_ENDS[name]
    Git(monkeypatch, said)
    with pytest.raises(error) as caught:
        GitSource(URL, {}).commit("main", tmp_path)
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert said.splitlines()[-1] in text
    assert "secret" not in text
    assert caught.value.next_step
    rows = [end for end in ends.ends() if end.program != "uv"]
    failure = ProgramFailure(program="git", exit_code=128, lines=(said,), address=URL)
    assert next(ends.fitting(failure))[0] is rows[[*GIT_ENDS].index(name)]


def test_each_row_of_the_ends_of_git_has_its_words_here():
    assert len([end for end in ends.ends() if end.program != "uv"]) == len(GIT_ENDS)


def test_braces_and_quotes_of_an_address_are_printed_as_they_are(monkeypatch, tmp_path):
    Git(monkeypatch, "fatal: something new")
    with pytest.raises(NetworkError) as caught:
        GitSource("https://git.example/{folder}/{make image}/$(id)", {}).commit("main", tmp_path)
    assert caught.value.what.startswith("git cannot fetch https://git.example/{folder}/{make image}/$(id)")
    assert caught.value.next_step.startswith("git clone 'https://git.example/{folder}/{make image}/$(id)' ")
