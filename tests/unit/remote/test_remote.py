"""`image --at`: what cannot be sent is refused by name, the site's words are a stranger's, its error ends this one."""

import hashlib
import json

import msgspec
import pytest

from graphcrate.cli import requests
from graphcrate.cli.remote import sent
from graphcrate.compat.variants.request import SourceOptions, SuiteOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.context import Context
from graphcrate.host.net import HttpError
from graphcrate.model.errors import GraphcrateError, IntegrityError, UsageError
from graphcrate.remote import client
from graphcrate.remote.client import RemoteSite, question_of
from graphcrate.remote.questions import Question
from patienthttp.client import Response
from patienthttp.errors import FetchFailure, NoAnswer
from tests import ROOT

SITE = "https://site.example"


def request(name="pyg", cuda="11.8", walled=False, mirror=None, **fields):
    """Return a request as `image --at` makes it."""
    sources = SourceOptions(walled=True, mirror=mirror, **fields.pop("sources", {}))
    made = {name: fields.pop(name) for name in ("slim", "suites", "engine", "packs", "output") if name in fields}
    asked = requests.build_request("image", name, cuda, sources=sources, **fields)
    return sent(msgspec.structs.replace(asked, **made), mirror, walled)


def test_request_is_the_question_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environment.yml").write_text("dependencies:\n- ase\n")
    typed = request(
        machine=MachineRequest(gpu="v100,a100", driver="450.80.02"), packages=["rdkit ase"], apt=["git", "tmux"],
        requirements=[tmp_path / "environment.yml"], flavour="jupyter", slim="yes",
    )  # fmt: skip
    assert question_of(typed, tmp_path / "pyg.sif") == Question(
        stack="pyg", cuda="11.8", gpu="v100,a100", driver="450.80.02", runtime="apptainer", packages="rdkit ase",
        apt="git tmux", file="environment.yml", text="dependencies:\n- ase\n", flavour="jupyter", slim="yes",
    )  # fmt: skip
    assert question_of(request(), None) == Question(cuda="11.8")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"sources": {"pyg_lib": "./clone"}}, "--pyg-lib"),
        ({"sources": {"cache": ("/shared/cache",)}}, "--cache"),
        ({"sources": {"toolkit": "pypi"}}, "--toolkit"),
        ({"sources": {"channel": "local"}}, "--channel"),
        ({"sources": {"locked": True}}, "--locked"),
        ({"mirror": "sjtu"}, "--mirror"),
        ({"walled": True}, "--walled"),
        ({"platform": "linux/arm64"}, "--platform"),
        ({"machine": MachineRequest(target="dgx2")}, "--target"),
        ({"suites": SuiteOptions(run=False)}, "--no-smoke"),
        ({"engine": "docker"}, "--engine"),
        ({"packages": ["ase"], "build_apt": ["swig"]}, "--build-apt"),
        ({"trust_paths": True, "sources": {}}, "--"),
    ],
)
def test_option_that_a_site_does_not_take_is_refused_by_name(fields, name):
    with pytest.raises(UsageError, match=name):
        question_of(request(**fields), None)


@pytest.mark.parametrize("package", ["./mine", "mine.whl", "git+https://h/x@0123456789012345678901234567890123456789"])
def test_package_that_is_a_path_is_refused_by_name(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/setup.py").write_text("")
    (tmp_path / "mine.whl").write_text("")
    with pytest.raises(UsageError, match=r"mine|git\+https"):
        request(packages=[package])


def test_own_recipe_second_file_and_other_forms_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('extends = "pyg"\ncuda = "11.8"\npip = ["ase"]\n')
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("ase\n")
    with pytest.raises(UsageError, match=r"mine\.toml cannot be sent"):
        question_of(request("mine.toml", None), None)
    with pytest.raises(UsageError, match=r"b\.txt cannot be sent"):
        question_of(request(requirements=[tmp_path / "a.txt", tmp_path / "b.txt"]), None)
    with pytest.raises(UsageError, match=r"image\.tar"):
        question_of(request(), tmp_path / "image.tar")


class Wire:
    """Answers of a site, in order; the last one again and again."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def request(self, method, url, *, headers, body, accept, limit):
        self.asked.append((method, url, dict(headers), body))
        status, value = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Response(status, {}, value if isinstance(value, bytes) else json.dumps(value).encode(), url)

    def download(self, url, part, *, size, sha256, headers, advance):
        self.asked.append(("GET", url, dict(headers), None))
        part.write_bytes(self.file)


@pytest.fixture
def site():
    made = RemoteSite(f"{SITE}/", Context(root=ROOT, environment={client.TOKEN: "secret"}), lambda _: None)

    def answering(*answers):
        made._client = Wire(*answers)
        return made

    return answering


def job(state, log="", **fields):
    return 200, {"id": "b12", "state": state, "log": log, **fields}


def test_log_is_shown_once_as_it_grows_and_the_result_is_returned(site):
    last = job("done", "one\ntwo\nthree\n", lines="", image="pyg/1.0", result={"name": "pyg"})
    asked, shown = site(job("waiting"), job("running", "one\n"), job("running", "one\ntwo\x1b[2J\n"), last), []
    result = asked.made("builds", Question(cuda="11.8"), shown.append)
    assert "".join(shown).startswith("one\ntwo\\u001b[2J\n")
    assert (result.page, json.loads(result.value)) == (f"{SITE}/images/pyg/1.0", {"name": "pyg"})
    method, url, headers, body = asked._client.asked[0]
    assert (method, url, json.loads(body)) == ("POST", f"{SITE}/v1/builds", {"cuda": "11.8"})
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer secret", "application/json")
    assert [row[:2] for row in asked._client.asked[1:]] == [("GET", f"{SITE}/v1/jobs/b12")] * 3


def test_long_log_whose_beginning_was_cut_is_shown_once(site):
    lines = [f"line {number}\n" for number in range(200)]
    logs = ["".join(lines[max(0, end - 100) : end]) for end in range(0, 201, 20)]
    shown = []
    site(*(job("running", log) for log in logs), job("done", logs[-1])).made("plans", Question(), shown.append)
    assert "".join(shown) == "".join(lines)


@pytest.mark.parametrize(
    ("code", "name", "step"),
    [
        (4, "ResolutionError", "make image"),
        (9, "BuildError", "make image"),
        (7, "HostError", f"tell whoever runs {SITE}: {SITE}/jobs/b12"),
    ],
)
def test_failed_job_ends_with_its_own_code_and_words(site, code, name, step):
    lines = "graphcrate: no wheel\n of it\ncause: it is gone\nnext:  make image"
    with pytest.raises(GraphcrateError) as caught:
        site(job("failed", "log\n", lines=lines, exit_code=code)).made("builds", Question(), print)
    error = caught.value
    assert (error.exit_code, type(error).__name__, error.what) == (code, name, "no wheel\n of it")
    assert (error.cause, error.next_step) == ("it is gone", step)


@pytest.mark.parametrize(("state", "note"), [("cancelled", "it was cancelled"), ("failed", "its process was killed")])
def test_job_that_was_ended_is_an_error_that_says_why(site, state, note):
    with pytest.raises(GraphcrateError, match=note) as caught:
        site(job(state, note=note)).made("builds", Question(), print)
    assert caught.value.exit_code == 9


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        ((401, b"who are you?\n"), 2, "GRAPHCRATE_SITE_TOKEN"),
        ((403, b"another site sent this\x1b[2J\n"), 7, r"answers 403: another site sent this\\u001b"),
        ((429, {"what": "4 wait", "cause": "", "next_step": "wait", "exit_code": 7}), 7, "4 wait"),
        ((409, {"what": "no driver", "exit_code": 4}), 4, "no driver"),
        ((400, {"what": "no field", "exit_code": 77}), 9, "no field"),
        ((200, b"<html>"), 6, "that can be read"),
        ((200, {"id": "../../x", "state": "running"}), 6, "that can be read"),
        ((200, b"[" * 100_000), 6, "that can be read"),
    ],
)
def test_answer_that_is_no_job_is_an_error_with_its_exit_code(site, answer, code, text):
    with pytest.raises(GraphcrateError, match=text) as caught:
        site(answer).made("builds", Question(), print)
    assert caught.value.exit_code == code


def image(**fields):
    file = {"name": "pyg.sif", "address": "/images/pyg/1.0/pyg.sif", "bytes": 3, "sha256": "a" * 64, **fields}
    return 200, {"files": [file]}


def test_file_of_the_image_is_fetched_whole_or_not_at_all(site, tmp_path):
    asked = site(image())
    asked._client.file = b"sif"
    asked.fetch(f"{SITE}/images/pyg/1.0", tmp_path / "mine.sif")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"mine.sif": b"sif"}
    assert [row[1] for row in asked._client.asked] == [f"{SITE}/v1/images/pyg/1.0", f"{SITE}/v1/images/pyg/1.0/pyg.sif"]
    with pytest.raises(UsageError, match="exists"):
        asked.fetch(f"{SITE}/images/pyg/1.0", tmp_path / "mine.sif")
    with pytest.raises(UsageError, match="exists"):
        client.check_absent(tmp_path / "mine.sif")


@pytest.mark.parametrize(
    "fields",
    [
        *({"address": address} for address in ("https://evil.example/x.sif", "//evil.example/x", "/images/x y", "/v1")),
        *({"address": f"/images/{path}"} for path in ("pyg/1.0/../../x.sif", "pyg/1.0/\u00e9.sif", "else/1.0/pyg.sif")),
        {"name": "\u00e9.sif", "address": "/images/pyg/1.0/\u00e9.sif"},
        {"name": "../x.sif", "address": "/images/pyg/1.0/../x.sif"},
        {"bytes": -1},
        *({"sha256": digest} for digest in ("", "A" * 64, hashlib.sha256().hexdigest()[:-1])),
        {"name": "pyg.sqsh"},
    ],
)
def test_file_from_elsewhere_or_without_a_hash_is_not_fetched(site, tmp_path, fields):
    with pytest.raises(IntegrityError):
        site(image(**fields)).fetch(f"{SITE}/images/pyg/1.0", tmp_path / "mine.sif")
    assert list(tmp_path.iterdir()) == []


def test_failure_of_a_site_names_no_mirror(site, tmp_path):
    refused = FetchFailure.of(NoAnswer.REFUSED, SITE)
    other = IntegrityError("other bytes", next_step="MIRROR=sjtu")
    asked = site(image())
    for error, step in ((HttpError.because(refused), refused.next_step), (other, "whoever runs https://site.example")):
        asked._client.download = raising(error)
        with pytest.raises(GraphcrateError) as caught:
            asked.fetch(f"{SITE}/images/pyg/1.0", tmp_path / "mine.sif")
        assert (step in caught.value.next_step, "irror" in caught.value.next_step.lower()) == (True, False)
    asked._client.request = raising(HttpError.because(refused))
    with pytest.raises(HttpError) as caught:
        asked.made("plans", Question(), print)
    assert caught.value.next_step == refused.next_step


def raising(error):
    def failing(*_, **__):
        raise error

    return failing


def test_result_speaks_to_no_terminal_and_is_a_report_or_an_error(site):
    answer = site((200, b'{"id": "b1", "state": "done", "result": {"name": "\xc2\x9b2J\xe2\x80\xae"}}'))
    result = answer.made("builds", Question(), print)
    assert result.value == b'{"name": "\\u009b2J\\u202e"}'
    with pytest.raises(IntegrityError, match="a report"):
        answer.report(result)


def test_next_step_of_the_site_s_own_shell_is_not_shown(site):
    shown = []
    log = "built\nnext    ./build.py run pyg:1.0; ./build.py convert pyg:1.0\n"
    site(job("running", log), job("done", f"{log}saved\n")).made("builds", Question(), shown.append)
    assert "".join(shown) == "built\nsaved\n"


@pytest.mark.parametrize(
    "address",
    [
        *("site.example", "ftp://site.example", "https://", "https://ada:pw@site.example", "https://site.example/?a=b"),
        *("https://site.example/#x", "https://[", "https://site.example:99999", "https://site.example/\x1b[2J", ""),
    ],
)
def test_address_of_no_site_is_refused(address):
    with pytest.raises(UsageError):
        RemoteSite(address, Context(root=ROOT, environment={}))


def test_token_is_not_sent_without_tls_but_to_this_machine(tmp_path):
    ctx = Context(root=ROOT, environment={client.TOKEN: "secret"})
    with pytest.raises(UsageError, match="no TLS"):
        RemoteSite("http://site.example/", ctx)
    assert "Authorization" in RemoteSite("http://127.0.0.1:8080", ctx)._headers
    assert "Authorization" not in RemoteSite("http://site.example", Context(root=ROOT, environment={}))._headers


def test_token_is_read_from_a_file_of_its_owner_alone(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("secret\n")
    ctx = Context(root=ROOT, environment={client.TOKEN_FILE: str(path)})
    assert RemoteSite(SITE, ctx)._headers["Authorization"] == "Bearer secret"
    path.chmod(0o644)
    with pytest.raises(GraphcrateError, match="read or written by others"):
        RemoteSite(SITE, ctx)
    path.chmod(0o600)
    path.write_text("two\nlines")
    with pytest.raises(UsageError, match="the token"):
        RemoteSite(SITE, ctx)
