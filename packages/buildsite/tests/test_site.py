"""The site answers what the command line does, and nothing of a stranger's gets further than its readers."""

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
import re
import time
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildsite import images, server, states
from buildsite.app import ROUTES, application
from buildsite.guard import LARGEST_BODY, UNIX, Doors, Proxy
from buildsite.queue import JobQueue
from buildsite.site import Site
from buildsite.users import Users
from buildsite.work import SiteWork
from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.compat.adopt import written
from graphcrate.compat.requirements import own_typed
from graphcrate.compat.variants import catalog
from graphcrate.host.arguments import Argv
from graphcrate.host.context import Context
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.remote import questions
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
    made = Site(ctx, SiteWork(program=Argv(["build.py"]), dist=tmp_path / "dist"), queue, Users())
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
        return asyncio.run(exchanged(app, *sent(method, path, body, **headers)))

    def sent(method, path, body, **headers):
        where, _, query = path.partition("?")
        kind = "application/json" if path.startswith("/v1/") else "application/x-www-form-urlencoded"
        sent = {"host": HOST, "content-length": str(len(body)), "content-type": kind, **headers}
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items() if value]
        scope = {
            "type": "http", "method": method, "path": where, "raw_path": where.encode(), "query_string": query.encode(),
            "headers": pairs, "scheme": "http", "http_version": "1.1", "root_path": "", "server": ("127.0.0.1", 8080),
            "client": peer, "asgi": {"version": "3.0"},
        }  # fmt: skip
        return scope, body

    async def together(*paths):
        return await asyncio.gather(*(exchanged(app, *sent("GET", path, b"")) for path in paths))

    asked.together = lambda *paths: asyncio.run(together(*paths))
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


def test_pages_ask_nothing_of_the_api_where_a_web_server_s_login_may_not_count(call, site):
    scripts = [text for kind, text in site.static.values() if kind == "text/javascript"]
    assert scripts
    assert not [text for text in scripts if "/v1/" in text]
    pages = [path for row in ROUTES if row.method == "GET" and "{" not in (path := row.path) and "/v1/" not in path]
    assert {"/", "/images", "/api"} <= set(pages)
    for path in ("/", "/zh", *pages):
        status, _, text = call("GET", path)
        assert (status, re.findall(r"(?:href|action|src)=\"/v1/", text)) == (200, [])


def test_page_of_the_api_has_its_addresses_and_a_line_of_curl(call):
    text = call("GET", "/api")[2]
    assert [row.path for row in ROUTES if row.path.startswith("/v1/") and row.path not in text] == []
    assert f"http://{HOST}/v1/plans" in text
    assert call("GET", "/openapi.json")[2] == call("GET", "/v1/openapi.json")[2]


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


FAILURES = {
    2: "graphcrate: {folder}/requirements.txt:1: no package\ncause: it has two words\nnext:  fix line 1\n",
    7: "graphcrate: newuidmap is not installed\nnext:  apt-get install uidmap\n",
    5: "graphcrate: no candidate is available\n    pypi: refused\ncause: It is far.\nnext:  --mirror sjtu\n",
}


@pytest.mark.parametrize(
    ("code", "what", "cause", "step"),
    [
        (2, "requirements.txt:1: no package", "it has two words", "fix line 1"),
        (7, "newuidmap is not installed", "", "ask whoever runs this site"),
        (5, "no candidate is available\n    pypi: refused", "It is far.", "ask whoever runs this site"),
    ],
)
def test_error_is_said_with_the_dropped_file_s_name_and_without_what_is_for_the_machine(
    call, site, code, what, cause, step
):
    def fail(words, folder, name):
        (folder / "log").write_text(f"reading {folder}/requirements.txt\n" + FAILURES[code].format(folder=folder))
        return Child(code)

    site.queue._start = fail
    name = json.loads(call("POST", "/v1/plans", json.dumps({"text": "dgl"}).encode())[2])["id"]
    site.queue.look()
    site.queue.look()
    told = json.loads(call("GET", f"/v1/jobs/{name}")[2])
    error = site.output(site.queue.get(name)).error
    assert (error.what, error.cause, error.next_step) == (what, cause, step)
    assert (told["lines"], told["log"]) == (f"graphcrate: {error}", "reading requirements.txt\n")
    page = call("GET", f"/jobs/{name}")[2]
    assert [word for word in (what, cause, step) if word not in page] == []
    assert [word for word in (str(site.dist), ".serve", "apt-get", "mirror") if word in page + str(told)] == []


BUILT = {"stack": "torch", "cuda": "cpu"}


@pytest.mark.parametrize(
    ("runtime", "on", "commands"),
    [
        ("", (), ["nice image"]),
        ("singularity", (), ["nice image", "nice convert --to=sif"]),
        ("pyxis", (), ["nice image", "nice convert --to=sqsh"]),
        ("docker", (), ["nice image", "nice convert --to=docker"]),
        ("pai", (), ["nice image"]),
        ("pyxis", ("--on=slurm", "--partition=dgx2"), ["image --on=slurm", "convert --to=sqsh --on=slurm"]),
    ],
)
def test_build_makes_the_image_and_the_file_of_its_runtime(call, site, runtime, on, commands):
    site.work = dataclasses.replace(site.work, on=on)
    status, _, text = call("POST", "/v1/builds", json.dumps({**BUILT, "runtime": runtime}).encode())
    (job,) = site.queue.all("build")
    shown = ("nice", "image", "convert", "--to=sif", "--to=sqsh", "--to=docker", "--on=slurm")
    assert [" ".join(word for word in words if word in shown) for words in job.commands] == commands
    assert all("--walled" in words for words in job.commands[:1])
    assert (status, json.loads(text)["state"], job.user) == (202, "waiting", "")


def test_equal_requests_are_one_build_however_the_machine_was_described(call, site):
    asked = [{"gpu": "v100", "driver": "450.80.02"}, {"gpu": SMI}, {"gpu": "V100 ", "driver": "450.80.02"}]
    ids = {json.loads(call("POST", "/v1/builds", json.dumps(each).encode())[2])["id"] for each in asked}
    other = json.loads(call("POST", "/v1/builds", json.dumps({**asked[0], "text": "dgl\n"}).encode())[2])["id"]
    assert (len(ids), other in ids, len(site.queue.all("build"))) == (1, False, 2)


def test_build_of_what_does_not_run_is_refused(call, site):
    asked = {"gpu": "v100", "driver": "450.80.02", "cuda": "12.1"}
    status, _, text = call("POST", "/v1/builds", json.dumps(asked).encode())
    assert (status, "needs driver 525.60.13" in text, site.queue.all("build")) == (400, True, [])
    assert "needs driver 525.60.13" in call("POST", "/", form(**asked, do="build"))[2]


def test_button_builds_and_leads_to_the_page_of_the_build(call, site, started):
    status, headers, _ = call("POST", "/zh", form(**BUILT, do="build"))
    (job,) = site.queue.all("build")
    assert (status, headers["location"]) == (303, f"/jobs/{job.id}?language=zh")
    page = call("GET", f"/jobs/{job.id}?language=zh")[2]
    assert ('value="cancel"' in page, "取消" in page, 'role="status"' in page) == (True, True, True)
    assert call("POST", f"/jobs/{job.id}", form(do="cancel"))[0] == 303
    site.queue.look()
    page = call("GET", f"/jobs/{job.id}")[2]
    assert ('value="build"' in page, 'value="cancel"' in page, started) == (True, False, [])
    assert site.queue.get(job.id).state == "cancelled"
    call("POST", f"/jobs/{job.id}", form(do="build"))
    assert site.queue.get(job.id).state == "waiting"


def test_plan_is_built_by_its_button(call, site):
    name = json.loads(call("POST", "/v1/plans", json.dumps(BUILT).encode())[2])["id"]
    site.queue.look()
    site.queue.look()
    assert 'value="build"' in call("GET", f"/jobs/{name}")[2]
    assert call("POST", f"/jobs/{name}", form(do="build"))[0] == 303
    assert [job.question.cuda for job in site.queue.all("build")] == ["cpu"]


def test_delete_cancels_a_job(call, site):
    name = json.loads(call("POST", "/v1/builds", json.dumps(BUILT).encode())[2])["id"]
    assert json.loads(call("DELETE", f"/v1/jobs/{name}")[2])["state"] == "cancelled"
    assert [told["state"] for told in json.loads(call("GET", "/v1/builds")[2])] == ["cancelled"]
    assert call("DELETE", "/v1/jobs/none")[0] == 404


@pytest.mark.parametrize(
    ("line", "done", "total", "unit"),
    [
        ("making 3 layers: 212 of 221 MB, 7 MB/s, 1 s left", 212, 221, "MB"),
        ("fetching 4 files: 30 of 20 files", 20, 20, "files"),
        ("audit: 940 programs and libraries", 0, 0, ""),
        ("", 0, 0, ""),
    ],
)
def test_progress_is_what_the_last_line_says(site, line, done, total, unit):
    queued = site.work.read(questions.Question(file="Dockerfile", text="FROM x"), "", 1.0)
    running = msgspec.structs.replace(queued, state="running")
    far = states.progress(running, f"step 2 of 4: write 6 layers\n  detail\n{line}\n", 0)
    assert (far.done, far.total, far.unit, far.step) == (done, total, unit, "step 2 of 4: write 6 layers")


DOCKERFILE = "FROM pytorch/pytorch:2.0.1-cuda11.7\nRUN pip install rdkit 'ase >= 3' ./mine\nENV A=b\n"


def test_dockerfile_is_read_by_a_child_and_becomes_a_question(call, site, started):
    dropped = json.dumps({"name": "Dockerfile", "text": DOCKERFILE}).encode()
    name = json.loads(call("POST", "/v1/files", dropped)[2])["id"]
    site.queue.look()
    assert started == [("build.py", "adopt", "--output=read.toml", "--json", "./Dockerfile")]
    folder = site.queue.folder(site.queue.get(name))
    assert (folder / "Dockerfile").read_text() == DOCKERFILE
    adopted = written.adopt(DOCKERFILE, folder / "Dockerfile", folder, catalog.all_recipes(site.ctx), {})
    (folder / "read.toml").write_text(adopted.recipe)
    (folder / "result").write_bytes(encode(adopted))
    site.queue.look()
    result = json.loads(call("GET", f"/v1/jobs/{name}")[2])["result"]
    assert result["question"] == {"stack": "torch", "cuda": "11.7", "packages": "rdkit ase>=3"}
    assert result["left"] == ["env"]
    page = call("POST", "/", form(file="Dockerfile", text=DOCKERFILE))[2]
    assert "/?stack=torch&amp;cuda=11.7&amp;packages=rdkit+ase%3E%3D3" in page
    assert "left to you, because" in page


def test_python_code_is_read_by_init(call, site, started):
    name = json.loads(call("POST", "/v1/files", b'{"name": "train.py", "text": "import rdkit"}')[2])["id"]
    site.queue.look()
    assert started == [("build.py", "init")]
    folder = site.queue.folder(site.queue.get(name))
    (folder / f"{name}.toml").write_text('extends = "pyg"\npip = ["rdkit", "-x", "git+https://host/x"]\n')
    (folder / "result").write_text(f"../../{name}.toml\n")
    site.queue.look()
    result = json.loads(call("GET", f"/v1/jobs/{name}")[2])["result"]
    assert result["question"] == {"stack": "pyg", "packages": "rdkit"}
    assert result["left"] == ["-x", "git+https://host/x"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("requirements.txt", "dgl"), ("../Dockerfile", "FROM x"), ("x.exe", "x"), ("a.sh", "x" * 200_001), ("b.py", "\0")],
)
def test_file_that_is_not_to_be_read_is_refused(call, site, name, text):
    assert call("POST", "/v1/files", json.dumps({"name": name, "text": text}).encode())[0] == 400
    assert site.queue.waiting() == 0


def test_dockerfile_is_not_planned_before_it_is_read(call, site):
    status, _, text = call("POST", "/v1/plans", json.dumps({"file": "Dockerfile", "text": "FROM x"}).encode())
    assert (status, "/v1/files" in text, site.queue.waiting()) == (400, True, 0)


@pytest.mark.parametrize(
    "asked",
    [
        *({"stack": stack} for stack in ("../../etc/passwd", "./mine.toml", "-x", "")),
        *({name: f"{value}\n"} for name, value in {"stack": "pyg", "cuda": "11.8", "runtime": "docker"}.items()),
        *({name: "450\n"} for name in ("driver", "packages", "apt")),
        *({"file": f"{name}\n"} for name in ("requirements.txt", "Dockerfile", "train.py", "README")),
        {"file": "graphcrate.toml", "text": 'mirror = "http://host/"'},  # defaults of the program
        *({"file": name} for name in ("../x.txt", "a/b.txt", ".hidden", "x.json", "x.toml[y]")),
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
    for path in ("/", "/v1/plans"):
        assert call("POST", path, b"x" * (LARGEST_BODY + 1), **{"content-length": ""})[0] == 413
    assert call("GET", f"/?{'x' * 9000}")[0] == 414
    assert call("PUT", "/")[0] == 405


@pytest.fixture
def image(tmp_path):
    """An image of a few bytes with a SIF, a report's page, and other files."""
    folder = tmp_path / "dist/torch/1.0"
    report = small_layouts.report(small_layouts.layout(folder, [file("a", b"a")]))
    (folder / "report.json").write_bytes(encode(report))
    convert(
        ConvertRequest(ref=str(folder / "oci"), to="sif", output=folder / "torch.sif"),
        Context(root=ROOT, environment={}, quiet=True),
    )
    (folder / "other.sif").write_bytes(b"0123456789")
    (folder / "report.html").write_text("<p>report")
    (folder / "secret.txt").write_text("secret")
    (folder / "link.sif").symlink_to(folder / "secret.txt")
    (tmp_path / "dist/torch/cu118").symlink_to("1.0")
    (tmp_path / "dist/torch/out").symlink_to(tmp_path)
    (tmp_path / "report.json").write_bytes(encode(report))
    return report


def test_image_has_a_page_and_its_file_comes_in_ranges(call, image, site):
    assert "/images/torch/1.0" in call("GET", "/images")[2]
    for tag in ("1.0", "cu118"):
        page = call("GET", f"/images/torch/{tag}")[2]
        assert (image.digest in page, "torch.sif" in page, "link.sif" in page) == (True, True, False)
        assert ("other.sif" in page, "torch.sqsh" in page) == (False, False)
    assert [told["digest"] for told in json.loads(call("GET", "/v1/images")[2])] == [image.digest]
    status, headers, text = call("GET", "/images/torch/1.0/torch.sif", range="bytes=32-34")
    size = (site.dist / "torch/1.0/torch.sif").stat().st_size
    assert (status, headers["content-range"], text) == (206, f"bytes 32-34/{size}", "SIF")
    assert "attachment" in headers["content-disposition"]


def test_file_of_an_image_is_made_once_for_the_bytes_that_it_has(call, image, site):
    page = call("GET", "/images/torch/1.0")[2]
    assert re.findall(r'action="/images/torch/1.0/(\w+)"', page) == ["docker", "sqsh"]
    names = {json.loads(call("POST", f"/v1/images/torch/{tag}/sqsh")[2])["id"] for tag in ("1.0", "cu118", "1.0")}
    (job,) = site.queue.all("file")
    assert (names, job.image, job.commands[0][-1]) == ({job.id}, "torch/1.0", str(site.dist / "torch/1.0/oci"))
    assert call("POST", "/images/torch/1.0/sqsh", form())[1]["location"] == f"/jobs/{job.id}"
    assert call("POST", "/images/torch/1.0/rootfs", form())[0] == 404
    assert call("POST", "/images/torch/1.0/sqsh", b"")[0] == 403


def test_sif_goes_into_the_registry_where_one_is_set(call, image, site):
    assert "/oras" not in call("GET", "/images/torch/1.0")[2]
    assert call("POST", "/v1/images/torch/1.0/oras", b"")[0] == 404
    site.work = dataclasses.replace(site.work, registry="oras://host/team")
    assert 'action="/images/torch/1.0/oras"' in call("GET", "/images/torch/1.0")[2]
    name = json.loads(call("POST", "/v1/images/torch/cu118/oras")[2])["id"]
    site.queue.look()
    job = site.queue.get(name)
    assert {"publish", "--to=oras://host/team", str(site.dist / "torch/1.0/oci")} < set(job.commands[0])
    pull = "apptainer pull torch.sif oras://host/team/torch:1.0"
    (site.queue.folder(job) / "result").write_text(json.dumps({"lines": {"apptainer": pull}}))
    site.queue.look()
    assert json.loads(call("GET", "/v1/images/torch/1.0")[2])["commands"]["apptainer"].splitlines()[0] == pull
    assert "/images/torch/1.0/oras" not in call("GET", "/images/torch/1.0")[2]


def test_commands_of_an_image_fetch_the_file_that_is_there(call, image):
    told = json.loads(call("GET", "/v1/images/torch/1.0")[2])
    assert [file["name"] for file in told["files"]] == ["torch.sif"]
    fetch, start = told["commands"]["apptainer"].splitlines()
    assert fetch == f"curl --remote-name --continue-at - http://{HOST}/images/torch/1.0/torch.sif"
    assert start == "singularity run --nv torch.sif python train.py"
    assert "convert" in told["commands"]["pyxis"]


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
    with pytest.raises(UsageError, match=r"^packages: .* is not taken: only names of packages are"):
        own_typed.given([package], walled=True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("--index-url https://u:secret@host/simple\ndgl\n", "--index-url is not taken"),
        ("-f ./wheels\n", "-f is not taken"),
        ("-r /etc/passwd\n", "/etc/passwd is not taken"),
        ("-r ../x.txt", "../x.txt is not taken"),
        ("-r other.txt", "there is no file other.txt"),
        ("-e .\n", "'.' is not taken"),
        ("../x\n", "'../x' is not taken"),
        ("x @ git+https://u:secret@host/x\n", "git+https://host/x is not taken"),
        ("x @ https://u:secret@host/x.whl\n", "https://host/x.whl is not taken"),
        ("https://u:secret@host/x-1.0-py3-none-any.whl\n", "https://host/x-1.0-py3-none-any.whl is not taken"),
        ("two words\n", "'two words' is not a package"),
    ],
)
def test_walled_requirements_are_names_alone_and_a_refusal_speaks_of_that_file_only(text, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    (tmp_path / "setup.py").write_text("")
    with pytest.raises(UsageError) as refused:
        own_typed.given([], [path.relative_to(tmp_path)], walled=True)
    said = str(refused.value)
    assert said.startswith(f"requirements.txt:1: {error}")
    # who asks has neither this folder nor a shell here
    assert not [word for word in (str(tmp_path), "secret", "--trust-paths", "ls ", "./mypkg") if word in said]
    path.write_text("dgl\nase>=3\n")
    assert own_typed.given(["rdkit"], [path], walled=True).packages == ("rdkit", "dgl", "ase>=3")


def test_file_of_an_image_is_told_with_its_hash_as_it_is_now(call, image, tmp_path):
    path = tmp_path / "dist/torch/1.0/torch.sif"
    for _ in range(2):
        (told,) = json.loads(call("GET", "/v1/images/torch/1.0")[2])["files"]
        assert told["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        path.write_bytes(path.read_bytes() + b"0")


def test_file_that_many_ask_about_at_once_is_hashed_once(call, image, monkeypatch):
    hashed, digest = [], images.hashlib.file_digest

    def slowly(file, kind):
        hashed.append(file.name)
        time.sleep(0.1)
        return digest(file, kind)

    images._hashed.cache_clear()
    monkeypatch.setattr(images.hashlib, "file_digest", slowly)
    assert {status for status, _, _ in call.together(*["/v1/images/torch/1.0"] * 8)} == {200}
    assert len(hashed) == 1


def test_addresses_on_pages_have_the_scheme_that_the_proxy_says(site, image):
    doors = Doors(server.names(8080), Users(), Proxy(UNIX, "X-Remote-User", is_only_way=False))
    for asked, scheme in (
        (caller(site, doors, peer=None), "https"),
        (caller(site, Doors(server.names(8080), Users())), "http"),
    ):
        text = asked("GET", "/images/torch/1.0", x_remote_user="ada", x_forwarded_proto="https")[2]
        assert re.findall(r"(\w+)://127.0.0.1:8080/images/torch/1.0/torch.sif", text) == [scheme]
