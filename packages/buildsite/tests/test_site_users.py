"""Users of a site: each sees, cancels and pays for their own jobs; finished images are for all."""

import json
import os

import pytest
from test_site import Child, caller, form

from buildsite import api, images, server
from buildsite.guard import UNIX, Doors, Proxy
from buildsite.queue import JobQueue
from buildsite.site import Site
from buildsite.users import Users
from buildsite.work import SiteWork
from graphcrate.host import settings
from graphcrate.host.arguments import Argv
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError
from graphcrate.model.lock import encode
from tests import ROOT
from tests.unit import small_layouts
from tests.unit.tars import file

BUILD = json.dumps({"gpu": "v100", "packages": "ase"}).encode()


class Builds:
    """Child processes that build an image of a few bytes for each command, or fail with a code."""

    def __init__(self, dist):
        self.dist, self.words, self.code, self.made = dist, [], 0, 0
        self.convert = 0  #: how a conversion ends

    def __call__(self, words, folder, name):
        self.words.append(words)
        (folder / "log").write_text("working\n")
        (folder / name).write_text("{}")
        if "image" in words and "--plan" not in words and not self.code:
            self.made += 1
            target = self.dist / f"pyg/{self.made}.0"
            report = small_layouts.report(
                small_layouts.layout(target, [file("a", os.urandom(1000))], tag=target.name), name="pyg"
            )
            (target / "report.json").write_bytes(encode(report))
            (folder / name).write_bytes(encode(report))
        return Child(self.convert if "convert" in words else self.code)


@pytest.fixture
def builds(tmp_path):
    return Builds(tmp_path / "dist")


@pytest.fixture
def site(tmp_path, builds):
    path = tmp_path / "users.toml"
    path.touch(0o600)
    path.write_text('[limits]\nqueue = 2\nminutes = 7\n[user.eve]\ndisk = "0"\n')
    ctx = Context(root=ROOT, environment={}, quiet=True)
    queue = JobQueue(tmp_path / "dist/.serve", builds, lambda _: None)
    made = Site(ctx, SiteWork(program=Argv(["build.py"]), dist=tmp_path / "dist"), queue, Users(path))
    made.secret = b"secret"
    return made


@pytest.fixture
def by(site):
    """Ask as a user, by the proxy."""
    doors = Doors(server.names(8080), site.users, Proxy(UNIX, "X-Remote-User", is_only_way=False))
    ask = caller(site, doors, peer=None)
    return lambda user, *rest, **headers: ask(*rest, x_remote_user=user, **headers)


def built(by, site, user, body=BUILD):
    job = json.loads(by(user, "POST", "/v1/builds", body)[2])
    for _ in range(4):
        site.queue.look()
    return json.loads(by(user, "GET", f"/v1/jobs/{job['id']}")[2])


def test_job_is_seen_and_cancelled_by_who_asked_for_it_alone(by, site):
    name = json.loads(by("ada", "POST", "/v1/builds", BUILD)[2])["id"]
    for method, path, body in (
        ("GET", f"/v1/jobs/{name}", b""),
        ("GET", f"/v1/jobs/{name}/events", b""),
        ("GET", f"/jobs/{name}/events", b""),
        ("GET", f"/jobs/{name}", b""),
        ("DELETE", f"/v1/jobs/{name}", b""),
        ("POST", f"/jobs/{name}", form("eve", do="cancel")),
    ):
        assert by("eve", method, path, body)[0] == 404, path
    assert name not in by("eve", "GET", "/images")[2] + by("eve", "GET", "/v1/builds")[2]
    assert name in by("ada", "GET", "/images")[2]
    assert site.queue.get(name).state == "waiting"
    assert by("ada", "DELETE", f"/v1/jobs/{name}")[0] == 200
    assert site.queue.get(name).state == "cancelled"


def test_finished_image_is_for_all(by, site):
    image = built(by, site, "ada")["image"]
    assert by("eve", "GET", f"/images/{image}")[0] == 200
    assert image in by("eve", "GET", "/images")[2]


def test_form_of_another_users_page_is_refused(by):
    for sent in (form("eve", gpu="v100"), form("", gpu="v100"), b"gpu=v100", b"form_token=%ff&gpu=v100"):
        assert by("ada", "POST", "/", sent)[0] == 403
    assert by("ada", "POST", "/", form("ada", gpu="v100"))[0] == 200
    token = form("ada").decode().partition("=")[2]
    assert token in by("ada", "GET", "/")[2]


def test_user_with_a_full_queue_gets_the_reason(by):
    answers = [
        by("ada", "POST", "/v1/plans", json.dumps({"gpu": "v100", "packages": package}).encode())
        for package in ("ase", "dgl", "rdkit")
    ]
    assert [status for status, _, _ in answers] == [202, 202, 429]
    assert "2 of your plans and builds wait or run" in json.loads(answers[2][2])["what"]


def test_build_may_take_the_minutes_of_its_user(by, site):
    name = json.loads(by("ada", "POST", "/v1/builds", BUILD)[2])["id"]
    assert site.queue.get(name).minutes == 7


def test_failed_build_has_the_exit_code_of_the_command(by, site, builds):
    builds.code = 4
    job = built(by, site, "ada")
    assert (job["state"], job["exit_code"]) == ("failed", 4)


def test_image_that_was_removed_is_built_again(by, site, builds):
    first = built(by, site, "ada")
    assert built(by, site, "ada")["image"] == first["image"] == "pyg/1.0"
    (site.dist / "pyg/1.0").rename(site.dist.parent / "gone")
    assert built(by, site, "ada")["image"] == "pyg/2.0"


def test_images_used_least_go_where_a_user_has_too_much(by, site, builds, tmp_path):
    path = tmp_path / "users.toml"
    for number, package in enumerate(("ase", "dgl", "rdkit"), 1):
        built(by, site, "ada", json.dumps({"gpu": "v100", "packages": package}).encode())
        later = settings.now() - 1000 + number
        os.utime(site.dist / f"pyg/{number}.0/report.json", (later, later))
    (site.dist / "pyg/1.0/.used").touch()
    assert not any("rm" in words for words in builds.words)
    path.write_text('[user.ada]\ndisk = "0"\n')
    site.users.refresh()
    built(by, site, "ada", json.dumps({"gpu": "v100", "packages": "wandb"}).encode())
    (words,) = (words for words in builds.words if "rm" in words)
    assert words[:4] == ("build.py", "images", "rm", f"--output={site.dist}")
    assert [word for word in words if word.startswith("pyg:")] == ["pyg:2.0", "pyg:3.0", "pyg:1.0"]


@pytest.mark.parametrize("end", ["fails", "is cancelled", "is forgotten"])
def test_image_whose_build_ended_otherwise_counts_for_its_user(by, site, builds, monkeypatch, end):
    builds.convert = None if end == "is cancelled" else 1
    job = built(by, site, "eve", json.dumps({"gpu": "v100", "runtime": "singularity"}).encode())
    if end == "is cancelled":
        assert by("eve", "DELETE", f"/v1/jobs/{job['id']}")[0] == 200
        site.queue._running[job["id"]].code = -15
    if end == "is forgotten":
        monkeypatch.setattr("buildsite.queue.KEPT", 0)
    for package in ("ase", "rdkit"):
        built(by, site, "eve", json.dumps({"packages": package}).encode())
    removed = [word for words in builds.words if "rm" in words for word in words if word.startswith("pyg:")]
    assert "pyg:1.0" in removed


def test_files_of_images_may_take_the_minutes_of_a_user(by, site):
    image = built(by, site, "ada")["image"]
    name = json.loads(by("ada", "POST", f"/v1/images/{image}/sif")[2])["id"]
    assert site.queue.get(name).minutes == 7


def test_answers_have_no_folder_of_the_site_and_no_control_characters(by, site):
    job = built(by, site, "ada")
    for text in (
        by("ada", "GET", f"/v1/jobs/{job['id']}")[2],
        by("eve", "GET", "/v1/images")[2],
        by("eve", "GET", f"/v1/images/{job['image']}")[2],
    ):
        assert (str(site.dist) in text, '"dist/pyg/1.0/oci"' in text) == (False, True)

    def full(words, folder, name):
        raise HostError(f"{site.dist}/x\x9b2J is full")

    site.queue._start = full
    failed = built(by, site, "ada", json.dumps({"packages": "dgl"}).encode())
    assert failed["note"] == "dist/x\\u009b2J is full"


def test_list_of_builds_reads_no_log_of_one_that_is_over(by, site, monkeypatch):
    job = built(by, site, "ada")
    monkeypatch.setattr(site.queue, "log", lambda *_: pytest.fail("a log is read"))
    assert [row["id"] for row in json.loads(by("ada", "GET", "/v1/builds")[2])] == [job["id"]]


def test_report_is_read_once_until_its_file_changes(by, site, monkeypatch):
    read, real = [], images.read_report
    monkeypatch.setattr(images, "read_report", lambda path: (read.append(path), real(path))[1])
    image = built(by, site, "ada")["image"]
    for _ in range(3):
        assert image in by("eve", "GET", "/images")[2]
    assert len(read) == 1
    path = site.dist / image / "report.json"
    path.write_bytes(path.read_bytes() + b"\n")
    assert image in by("eve", "GET", "/images")[2]
    assert len(read) == 2
    path.unlink()
    assert image not in by("eve", "GET", "/images")[2]


def test_user_follows_so_many_jobs_at_once_and_others_follow_theirs(by, site):
    names = {user: json.loads(by(user, "POST", "/v1/builds", BUILD)[2])["id"] for user in ("ada", "eve")}
    site.streams.update({"ada": 20})
    assert by("ada", "GET", f"/v1/jobs/{names['ada']}/events")[0] == 503
    site.queue.cancel(site.queue.get(names["eve"]))
    assert by("eve", "GET", f"/v1/jobs/{names['eve']}/events")[0] == 200
    assert site.streams == {"ada": 20}


def test_progress_ends_for_a_user_who_cancelled_what_another_goes_on_with(by, site, monkeypatch):
    name = json.loads(by("ada", "POST", "/v1/builds", BUILD)[2])["id"]
    by("eve", "POST", "/v1/builds", BUILD)

    users = ["ada", "eve"]

    async def cancelled(_):
        site.queue.cancel(site.queue.get(name), users.pop(0))

    monkeypatch.setattr(api.asyncio, "sleep", cancelled)
    assert "event: over" not in by("ada", "GET", f"/v1/jobs/{name}/events")[2]
    assert site.queue.get(name).state == "waiting"


def test_progress_of_a_quiet_build_says_something_long_before_a_web_server_ends_it(by, site, builds, monkeypatch):
    """nginx waits 60 s for the next byte of an answer."""
    builds.code = None
    name = json.loads(by("ada", "POST", "/v1/builds", BUILD)[2])["id"]
    site.queue.look()
    waits = []

    async def quiet(seconds):
        waits.append(seconds)
        if len(waits) == 5:
            site.queue.cancel(site.queue.get(name))

    monkeypatch.setattr(api.asyncio, "sleep", quiet)
    *looks, _ = by("ada", "GET", f"/jobs/{name}/events")[2].split("event: over")[0].split(":\n\n")
    assert (len(looks), max(waits) < 30) == (5, True)


def test_form_of_a_page_that_was_open_before_a_restart_is_taken(site):
    again = [Site(site.ctx, site.work, site.queue, site.users).form_token("ada") for _ in range(2)]
    assert again[0] == again[1]
    path = site.queue.root / "secret"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("no hex")
    assert Site(site.ctx, site.work, site.queue, site.users).form_token("ada") != again[0]
    assert JobQueue(site.queue.root, lambda *_: None, lambda _: None).all("build") == []
    assert path.exists()


def test_image_of_two_users_or_that_was_there_before_stays(by, site, builds):
    built(by, site, "ada")
    built(by, site, "eve")  # who may have nothing
    assert not any("rm" in words for words in builds.words)
    earlier = settings.now() - 1000
    built(by, site, "eve", json.dumps({"packages": "dgl"}).encode())
    os.utime(site.dist / "pyg/2.0/oci/index.json", (earlier, earlier))
    built(by, site, "eve", json.dumps({"packages": "rdkit"}).encode())
    assert not any("rm" in words for words in builds.words)
    built(by, site, "eve", json.dumps({"packages": "wandb"}).encode())
    assert [word for words in builds.words if "rm" in words for word in words[-2:] if ":" in word] == ["pyg:3.0"]
