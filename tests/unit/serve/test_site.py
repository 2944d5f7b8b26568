"""The site answers what the command line does, and nothing of a stranger's gets further than its readers."""

import asyncio
import contextlib
import hmac
import json
import re
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.requirements import own
from graphcrate.host.arguments import Argv
from graphcrate.host.context import Context
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.serve import questions, server
from graphcrate.serve.guard import LARGEST_BODY, Doors
from graphcrate.serve.queue import JobQueue
from graphcrate.serve.site import ROUTES, Site, application
from graphcrate.serve.users import Users
from tests import ROOT
from tests.unit import small_layouts
from tests.unit.tars import file

HOST = "127.0.0.1:8080"


class Child:
    """A child process that a test ends."""

    def __init__(self, code=None):
        self.code, self.ended = code, []

    def poll(self):
        return self.code

    def end(self, *, insist=False):
        self.ended.append(insist)


@pytest.fixture
def started():
    """Command lines that were started."""
    return []


@pytest.fixture
def site(tmp_path, started):
    def start(words, folder, name):
        started.append(words)
        (folder / "log").write_text("resolving\nplan for pyg:1.0\n  base  Debian\n")
        (folder / name).write_text('{"name": "pyg"}')
        return Child(0)

    ctx = Context(root=ROOT, environment={}, quiet=True)
    queue = JobQueue(tmp_path / "dist/.serve", start, lambda _: None)
    made = Site(ctx, tmp_path / "dist", queue, Argv(["build.py"]), Users())
    made.secret = b"secret"
    return made


@pytest.fixture
def call(site):
    """Ask the site, without a socket."""
    return caller(site, Doors(server.names(8080), site.users))


def caller(site, doors, logged=lambda _: None, peer=("127.0.0.1", 1)):
    """Return what asks the site, as from an address, without a socket."""
    app = application(site, doors, logged)

    def asked(method, path, body=b"", **headers):
        where, _, query = path.partition("?")
        kind = "application/json" if path.startswith("/v1/") else "application/x-www-form-urlencoded"
        sent = {"host": HOST, "content-length": str(len(body)), "content-type": kind, **headers}
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items() if value]
        scope = {
            "type": "http", "method": method, "path": where, "raw_path": where.encode(), "query_string": query.encode(),
            "headers": pairs, "scheme": "http", "http_version": "1.1", "root_path": "", "server": ("127.0.0.1", 8080),
            "client": peer, "asgi": {"version": "3.0"},
        }  # fmt: skip
        return asyncio.run(exchanged(app, scope, body))

    return asked


async def exchanged(app, scope, body):
    came = [{"type": "http.request", "body": body, "more_body": False}]
    sent = []

    async def receive():
        return came.pop() if came else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]).decode()


def form(user="", **fields):
    token = hmac.digest(b"secret", user.encode(), "sha256").hex()
    return urlencode({"form_token": token, **fields}).encode()


def test_page_has_form_and_map_in_both_languages(call):
    for path, title in (("/", "Which image runs"), ("/zh", "您的 GPU")):
        status, headers, text = call("GET", path)
        assert (status, title in text, 'name="gpu"' in text, 'class="heat"' in text) == (200, True, True, True)
        assert "unsafe" not in headers["content-security-policy"]
        assert not re.search(r"<(script|style)>|\son\w+=|https?://(?!127)", text)


def test_first_view_has_at_most_100_kb(call):
    links = re.findall(r'(?:src|href)="(/static/[^"]*)"', call("GET", "/")[2])
    assert len(links) == 3
    assert sum(len(call("GET", path)[2]) for path in ("/", *links)) < 100_000


def test_old_driver_gets_a_reason_and_a_command_that_runs_there(call, started):
    _, _, text = call("POST", "/", form(gpu="v100", driver="450.80.02", cuda="12.1"))
    assert "CUDA 12 needs driver 525.60.13 or newer, and this is 450.80.02" in text
    assert "image pyg --cuda 11.8 --gpu v100 --driver 450.80.02" in text or "CUDA=11.8 GPU=v100" in text
    status, _, text = call("GET", "/v1/explain?gpu=v100&driver=450.80.02&cuda=12.1")
    assert (status, json.loads(text)["exit_code"]) == (400, 2)
    assert started == []


def test_explain_has_what_its_json_has(call):
    status, _, text = call("GET", "/v1/explain?gpu=v100&driver=450.80.02")
    chosen = [row["cuda"] for row in json.loads(text)["rows"] if row["chosen"]]
    assert (status, chosen) == (200, ["11.8"])


SMI = """| NVIDIA-SMI 450.80.02    Driver Version: 450.80.02    CUDA Version: 11.0     |
|   0  Tesla V100-SXM2...  On   | 00000000:00:1E.0 Off |                    0 |
"""


def test_output_of_nvidia_smi_names_gpu_and_driver(call):
    _, _, text = call("POST", "/", form(gpu=SMI.replace("\n", "\r\n")))
    assert "pyg on V100 (sm_70), driver 450.80.02" in text


def test_question_is_planned_by_the_command_line_once(call, site, started):
    asked = json.dumps({"gpu": "v100", "packages": "rdkit ase", "text": "dgl\n"}).encode()
    names = {json.loads(call("POST", "/v1/plans", asked)[2])["id"] for _ in range(3)}
    site.queue.look()
    site.queue.look()
    (name,) = names
    (words,) = started
    assert words == (
        "build.py", "image", "--gpu=v100", "--with=rdkit ase", "--requirements=requirements.txt", "--walled", "--plan",
        "--json", f"--output={site.dist}", "pyg",
    )  # fmt: skip
    told = json.loads(call("GET", f"/v1/jobs/{name}")[2])
    assert (told["state"], told["result"], told["log"]) == ("done", {"name": "pyg"}, "resolving\n")
    assert told["lines"].startswith("plan for pyg:1.0")
    assert "plan for pyg:1.0" in call("GET", f"/jobs/{name}")[2]
    events = call("GET", f"/v1/jobs/{name}/events")[2]
    assert [line for line in events.splitlines() if line.startswith("event")] == ["event: log", "event: over"]


@pytest.mark.parametrize(
    "asked",
    [
        *({"stack": stack} for stack in ("../../etc/passwd", "./mine.toml", "-x", "")),
        *({"file": name} for name in ("../x.txt", "a/b.txt", ".hidden", "json.py", "x.toml[y]")),
        *({"gpu": "v100\x1b[2J"}, {"packages": "a\nb"}, {"packages": "x" * 3000}, {"unknown": "1"}),
        *({"target": "/etc/x.toml"}, {"slim": "perhaps"}, {"cuda": "11.8; rm"}, {"gpu": 1}),
    ],
)
def test_question_out_of_form_is_refused(call, started, asked):
    status, _, text = call("POST", "/v1/plans", json.dumps(asked).encode())
    assert (status, json.loads(text)["exit_code"], started) == (400, 2, [])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_question_or_a_usage_error(data):
    with contextlib.suppress(UsageError):
        questions.read(data)


def test_markup_in_a_question_is_escaped(call):
    bad = "<script>alert(1)</script>"
    for fields in ({"gpu": bad}, {"packages": bad, "gpu": "v100"}, {"driver": bad}, {"stack": bad}, {"text": bad}):
        assert bad not in call("POST", "/", form(**fields))[2]
        assert bad not in call("GET", f"/?{urlencode(fields)}")[2]


def test_get_plans_nothing(call, site, started):
    call("GET", "/?gpu=v100&packages=rdkit")
    site.queue.look()
    assert (started, site.queue.waiting()) == ([], 0)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:8080.evil.example", ""])
def test_host_of_another_name_is_refused(call, host):
    assert call("GET", "/", host=host)[0] == 421


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}]
)
def test_form_from_another_site_is_refused(call, headers):
    assert call("POST", "/", form(gpu="v100"), **headers)[0] == 403
    assert call("POST", "/", form(gpu="v100"), origin=f"http://{HOST}", sec_fetch_site="same-origin")[0] == 200


def test_large_request_and_unknown_method_are_refused(call):
    assert call("POST", "/", b"x" * (LARGEST_BODY + 1))[0] == 413
    assert call("POST", "/", b"x" * (LARGEST_BODY + 1), content_length="1")[0] == 413
    assert call("GET", f"/?{'x' * 9000}")[0] == 414
    assert call("PUT", "/")[0] == 405


@pytest.fixture
def image(tmp_path):
    """An image of a few bytes with a SIF, a report's page, and other files."""
    folder = tmp_path / "dist/torch/1.0"
    report = small_layouts.report(small_layouts.layout(folder, [file("a", b"a")]))
    (folder / "report.json").write_bytes(encode(report))
    (folder / "torch.sif").write_bytes(b"0123456789")
    (folder / "report.html").write_text("<p>report")
    (folder / "secret.txt").write_text("secret")
    (folder / "link.sif").symlink_to(folder / "secret.txt")
    (tmp_path / "dist/torch/cu118").symlink_to("1.0")
    (tmp_path / "dist/torch/out").symlink_to(tmp_path)
    (tmp_path / "report.json").write_bytes(encode(report))
    return report


def test_image_has_a_page_and_its_file_comes_in_ranges(call, image):
    assert "/images/torch/1.0" in call("GET", "/images")[2]
    for tag in ("1.0", "cu118"):
        page = call("GET", f"/images/torch/{tag}")[2]
        assert (image.digest in page, "torch.sif" in page, "link.sif" in page) == (True, True, False)
    assert [told["digest"] for told in json.loads(call("GET", "/v1/images")[2])] == [image.digest]
    status, headers, text = call("GET", "/images/torch/1.0/torch.sif", range="bytes=2-4")
    assert (status, headers["content-range"], text) == (206, "bytes 2-4/10", "234")
    assert "attachment" in headers["content-disposition"]


def test_report_of_an_image_reaches_nothing_of_the_site(call, image):
    _, headers, text = call("GET", f"/images/{image.name}/1.0/report.html")
    assert text == "<p>report"
    assert headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")


@pytest.mark.parametrize(
    "path",
    [
        *("/images/torch/1.0/secret.txt", "/images/torch/1.0/report.json", "/images/torch/1.0/link.sif"),
        *("/images/torch/1.0/..", "/images/../1.0", "/images/torch/..", "/images/.serve/1.0", "/images/torch/out"),
        *("/images/torch/1.0/", "/images/torch", "/images/torch/1.0/oci", "/static/../site.py", "/static/", "/fr"),
        *("/v1/jobs/..", "/jobs/x", "/images/torch/1.0/\0.sif"),
    ],
)
def test_nothing_else_is_there(call, image, path):
    status, _, text = call("GET", path)
    assert (status, image.digest in text) == (404, False)


def test_api_is_described_with_all_its_addresses(call):
    described = json.loads(call("GET", "/v1/openapi.json")[2])
    assert set(described["paths"]) == {row.path for row in ROUTES if row.path.startswith("/v1/")}
    assert {"Question", "JobAnswer", "Explanation", "ErrorAnswer"} <= set(described["components"]["schemas"])


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:80", "192.0.2.1:8080", "site.example:8080", ":99999", "x"])
def test_only_loopback_is_listened_at(tmp_path, listen):
    with pytest.raises(UsageError):
        server.serve(server.Entrance(listen=listen), tmp_path, Context(root=ROOT, environment={}), print, print)


@pytest.mark.parametrize("package", ["./mypkg", "/etc", "git+https://host/x@0123456789012345678901234567890123456789"])
def test_walled_packages_are_names_alone(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg/setup.py").write_text("")
    with pytest.raises(UsageError):
        own.given([package], walled=True)


@pytest.mark.parametrize(
    "text", ["--index-url https://host/simple\ndgl\n", "-r /etc/passwd\n", "-e .\n", "-r ../x.txt"]
)
def test_walled_requirements_name_no_file_and_no_index(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    (tmp_path / "setup.py").write_text("")
    with pytest.raises(UsageError):
        own.given([], [path], walled=True)
    path.write_text("dgl\nase>=3\n")
    assert own.given(["rdkit"], [path], walled=True).packages == ("rdkit", "dgl", "ase>=3")
