"""The web server of docs/serve.md, as it stands there but for PAM, before a real site: users, and who is refused."""

import base64
import contextlib
import html
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from getpass import getuser

import pytest

from graphcrate.model.lock import encode
from tests.conftest import ROOT, program
from tests.engines.daemons import free_ports
from tests.engines.workplace import call, holder, until
from tests.unit import small_layouts
from tests.unit.authority import make_authority
from tests.unit.tars import file

pytestmark = [pytest.mark.slow, pytest.mark.engine("nginx")]

PAGE = ROOT / "docs" / "serve.md"
PASSWORDS = {"ada": "one", "eve": "two"}
LARGE = bytes(4 << 20)  #: seconds at a megabyte each, and more than buffers hold
DOCKERFILE = json.dumps({"name": "Dockerfile", "text": "FROM x\nRUN pip install rdkit\n"}).encode()


def server_block(folder, port, more=""):
    """The page's block, with a file of passwords in place of PAM and with this machine's paths; `more`: lines in it."""
    (block,) = re.findall(r"^```\n(server \{.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for there, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("server_name site.example", f"{more}server_name localhost"),
        ("/etc/ssl/certs/site.pem", folder / "server.pem"),
        ("/etc/ssl/private/site.key", folder / "server.key"),
        ('auth_pam "site"', 'auth_basic "site"'),
        ("auth_pam_service_name graphcrate", f"auth_basic_user_file {folder}/passwords"),
        ("/run/graphcrate/", f"{folder}/"),
    ):
        assert there in block
        block = block.replace(there, str(here))
    return block


class Login:
    """A site behind nginx."""

    def __init__(self, folder, more=""):
        self.folder = folder
        (port,) = free_ports(1)
        self.address = f"https://localhost:{port}"
        self.context = ssl.create_default_context(cafile=make_authority(folder).bundle)
        (folder / "passwords").write_text("".join(f"{name}:{{PLAIN}}{word}\n" for name, word in PASSWORDS.items()))
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off; pid {folder}/pid; error_log stderr; {f'user {getuser()};' if os.geteuid() == 0 else ''}"
            f"events {{}}\nhttp {{ access_log off; {temporary}\n{server_block(folder, port, more)}}}\n"
        )
        site = (
            sys.executable,
            ROOT / "build.py",
            "serve",
            "--output",
            folder / "dist",
            "--users",
            folder / "users.toml",
        )
        self.token = call(*site, "--new-token", "ada").strip()
        where = (f"--listen=unix:{folder}/site.sock", "--trust-proxy=unix", f"--host=localhost:{port}")
        web = (program("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr")
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.processes = [
                subprocess.Popen(list(map(str, words)), cwd=folder, stdout=log, stderr=log)
                for words in ((*site, *where), web)
            ]
        until(lambda: (folder / "site.sock").exists() and self.status("/", "ada") == 200, 60, self.processes[0])

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait(60)

    def ask(self, path, user="", data=None, **headers):
        """The answer of a request, with the password of a user."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if user:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{PASSWORDS[user]}'.encode()).decode()}"
        asked = urllib.request.Request(self.address + path, data, headers)
        with urllib.request.urlopen(asked, context=self.context, timeout=60) as answer:
            return answer.read().decode()

    def status(self, *asked, **headers):
        try:
            self.ask(*asked, **headers)
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            return 0
        return 200

    def bearer(self):
        return {"Authorization": f"Bearer {self.token}"}


@pytest.fixture
def site(scratch):
    made = Login(scratch)
    yield made
    made.end()


def test_login_of_the_web_server_is_the_user_and_no_header_of_a_stranger_is(site):
    assert [site.status("/"), site.status("/images", X_Remote_User="ada")] == [401, 401]
    assert site.status("/", Authorization="Basic YWRhOndyb25n") == 401, "ada:wrong"
    assert site.status("/v1/builds", X_Remote_User="ada") == 401
    assert site.status("/v1/builds", "ada") == 401, "below /v1/ a token alone counts"
    assert site.status("/v1/builds", **site.bearer()) == 200
    assert site.status("/", **site.bearer()) == 401, "elsewhere the login alone does"
    page = site.ask("/", "eve", X_Remote_User="ada")
    links = set(re.findall(r'(?:href|src)="(/[^"]*)"', page + site.ask("/api", "eve")))
    assert {"/api", "/openapi.json", "/images"} <= links
    assert [link for link in sorted(links) if site.status(html.unescape(link), "eve") != 200] == []
    sent = {"form_token": re.search(r'name="form_token" value="(\w+)"', page)[1], "gpu": "v100"}
    sent |= {"cuda": "12.1", "driver": "450.80.02"}
    data = urllib.parse.urlencode(sent).encode()
    assert site.status("/", "ada", data, Origin=site.address) == 403, "the form of eve's page"
    assert site.status("/", "eve", data, Origin="https://evil.example") == 403
    assert "CUDA 12 needs driver" in site.ask("/", "eve", data, Origin=site.address, X_Remote_User="ada")
    # the answer may be here before its line is
    until(lambda: re.search(r"^\S+ unix eve POST / 200$", site.log.read_text(), re.MULTILINE), 60, site.processes[0])


def test_job_of_a_token_is_followed_through_the_web_server_by_its_user_alone(site):
    kind = {"Content-Type": "application/json", **site.bearer()}
    job = json.loads(site.ask("/v1/files", "", DOCKERFILE, **kind))["id"]
    assert 'event: over\ndata: "done"' in site.ask(f"/v1/jobs/{job}/events", **site.bearer())
    assert json.loads(site.ask(f"/v1/jobs/{job}", **site.bearer()))["result"]["question"]["packages"] == "rdkit"
    assert [site.status(f"/jobs/{job}", user) for user in PASSWORDS] == [200, 404]
    assert 'event: over\ndata: "done"' in site.ask(f"/jobs/{job}/events", "ada"), "as its page's script asks"
    assert site.status(f"/jobs/{job}/events", "eve") == 404
    assert f'href="{site.address}' not in site.ask(f"/jobs/{job}", "ada"), "its links are its own paths"
    large = b"x" * (600 << 10)
    assert site.status("/v1/files", "", large, **kind) == 413


def test_silent_job_and_slow_download_outlive_the_time_that_the_web_server_waits(scratch):
    """It waits for a second, and not for a minute; a job that is stopped says nothing for some."""
    image = scratch / "dist/torch/1.0"
    report = small_layouts.report(small_layouts.layout(image, [file("a", b"a")]))
    (image / "report.json").write_bytes(encode(report))
    (image / "report.html").write_bytes(LARGE)
    made = Login(scratch, "".join(f"{name} 1s; " for name in ("proxy_read_timeout", "proxy_send_timeout")))
    try:
        kind = {"Content-Type": "application/json", **made.bearer()}
        job = json.loads(made.ask("/v1/plans", "", json.dumps({"stack": "torch", "cuda": "cpu"}).encode(), **kind))[
            "id"
        ]
        until(lambda: holder(scratch / "dist/.serve" / job / "lock"), 60)
        child = holder(scratch / "dist/.serve" / job / "lock")
        os.killpg(child, signal.SIGSTOP)
        words = ("curl", "--silent", "--no-buffer", "--insecure", "--user", "ada:one", "--limit-rate", "1M")
        wait = [
            subprocess.Popen([*words, made.address + path], stdout=subprocess.PIPE)
            for path in (f"/jobs/{job}/events", "/images/torch/1.0/report.html")
        ]
        assert wait[1].communicate()[0] == LARGE
        os.killpg(child, signal.SIGCONT)
        events = wait[0].communicate()[0].decode()
        assert re.findall(r"event: over\ndata: \"(?:done|failed)\"", events)
    finally:
        made.end()


def test_connections_without_a_request_or_a_login_do_not_fill_a_site(site, scratch):
    """More than a site has, by its socket: silent ones, half a request, requests of a stranger who reads no answer."""
    stranger = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    starts = [b"", b"GET / HTTP/1.1\r\nHost: local", stranger * 4000]
    with contextlib.ExitStack() as stack:
        for number in range(420):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.connect(str(scratch / "site.sock"))
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.send(starts[number % len(starts)])
        assert [site.status("/", "ada") for _ in range(5)] == [200] * 5
