"""The site of `serve` in a real browser and by HTTP: asked, planned, built, downloaded, run; killed and cancelled."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.conftest import program
from tests.engines.test_pages import faults_of_axe, metrics
from tests.engines.workplace import call, holder, is_running, second_place, small_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.engine("user namespaces")]

KILLS = int(os.environ.get("KILLS", "4"))  #: of the server or its build, at random moments
CUDA = dict(zip(small_stack()[1::2], small_stack()[2::2], strict=True))["--cuda"]
USERS = ("ada", "eve")
SMALL = {"stack": "torch", "cuda": CUDA}
DOCKERFILE = "FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime\nRUN pip install rdkit\nENV A=b\n"


class SiteProcess:
    """A site over a folder of its own; it is started again by `start`."""

    def __init__(self, place, *options, token=""):
        self.place, self.options, self.address, self.process = place, options, "", None
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def start(self):
        self.process = self.place.start("serve", "--listen", "127.0.0.1:0", "--output", "dist", *self.options)
        self.address = self.process.stdout.readline().strip().rstrip("/")
        assert self.address.startswith("http://127.0.0.1:"), self.process.stderr.read()
        return self

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def ask(self, method, path, value=None, **headers):
        data = None if value is None else json.dumps(value).encode()
        headers = {"content-type": "application/json", **self.headers, **headers}
        with urllib.request.urlopen(
            urllib.request.Request(self.address + path, data, headers, method=method), timeout=30
        ) as answer:
            return answer.read()

    def json(self, method, path, value=None):
        return json.loads(self.ask(method, path, value))

    def ended(self, job, seconds=900):
        """The job, once it has ended."""
        until(lambda: self.json("GET", f"/v1/jobs/{job}")["state"] not in ("waiting", "running"), seconds)
        return self.json("GET", f"/v1/jobs/{job}")

    def child(self, job):
        """The process of a job, or None."""
        return holder(self.place.folder / "dist" / ".serve" / job / "lock")


@pytest.fixture
def place(workplace, built_image, scratch):
    """A copy of the project with the downloads of the small image, and nothing built."""
    made = second_place(workplace, scratch, base=True)
    (made.folder / ".venv").symlink_to(sys.prefix)  # build.py takes it for prepared
    return made


@pytest.fixture
def site(place):
    with running(SiteProcess(place)) as made:
        yield made


@contextlib.contextmanager
def running(made):
    """Start a site, and end it with the builds of its user."""
    made.start()
    try:
        yield made
    finally:
        for job in made.json("GET", "/v1/builds"):
            made.ask("DELETE", f"/v1/jobs/{job['id']}")
        until(lambda: not any(made.child(job["id"]) for job in made.json("GET", "/v1/builds")))
        made.kill()


def find(page, selector):
    return page.find_elements(By.CSS_SELECTOR, selector)


def text(page, selector):
    """The text of elements, at one moment: a script may replace them."""
    words = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join(' ')"
    return page.execute_script(words, selector)


def value(page, name):
    """The value of a field, at one moment: another page may be on its way. None where there is none."""
    return page.execute_script("return document.querySelector(`[name=${arguments[0]}]`)?.value", name)


def fill(page, **fields):
    for name, given in fields.items():
        (field,) = find(page, f"[name={name}]")
        if field.tag_name == "select":
            options = [option.get_attribute("value") for option in Select(field).options]
            Select(field).select_by_index(options.index(given))
        else:
            field.clear()
            field.send_keys(given)


def sizes(page):
    """Bytes of the page and of all that it asked for."""
    return page.execute_script(
        "return performance.getEntries().filter((one) => 'encodedBodySize' in one)"
        ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
    )


@pytest.mark.network
@pytest.mark.engine("chromium", "chromedriver", "apptainer build")
def test_second_user_is_refused_then_sees_a_plan_builds_downloads_and_runs_the_image(
    place, browser, apptainer, scratch
):
    ada, eve = (place.run("serve", "--users", "users.toml", "--new-token", name).ok().out.strip() for name in USERS)
    with running(SiteProcess(place, "--users", "users.toml", token=eve)) as site:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            site.ask("GET", "/", authorization="")
        file, job = build_in_browser(site, browser, eve)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            site.ask("GET", job, authorization=f"Bearer {ada}")
        sif, login = scratch / "small.sif", ("--silent", "--user", f"ada:{ada}", "--output", scratch / "small.sif")
        call("curl", *login, "--range", "0-999", file)
        assert sif.stat().st_size == 1000
        call("curl", *login, "--continue-at", "-", file)
    said = call("apptainer", "--silent", "exec", sif, "python", "-c", "import torch; print(torch.ones(2).sum())",
                environment=apptainer)  # fmt: skip
    assert said == "tensor(2.)\n"


def build_in_browser(site, browser, token):
    """Ask, build and look at the image, as one who logs in by name and token; the address of its SIF, and the job."""
    browser.get(site.address.replace("http://", f"http://eve:{token}@"))  # as typed into the browser's dialog
    browser.get(site.address)
    assert 0 < sizes(browser) <= 100_000
    fill(browser, gpu="v100", driver="450.80.02", packages="rdkit", cuda="12.1")
    find(browser, "[name=packages]")[0].send_keys(Keys.ENTER)
    until(lambda: "needs driver 525.60.13" in text(browser, "#answer"))
    assert browser.switch_to.active_element.get_attribute("id") == "answer"
    find(browser, "#answer form button")[0].send_keys(Keys.ENTER)  # "CUDA: 11.8", which runs there
    until(lambda: value(browser, "cuda") == "11.8")
    until(lambda: "plan for pyg:" in text(browser, "#job"), 300)
    assert "rdkit" in text(browser, "#job pre")

    fill(browser, gpu="", driver="", packages="", stack="torch", cuda=CUDA, runtime="apptainer")
    find(browser, "[name=packages]")[0].send_keys(Keys.ENTER)
    until(lambda: f"torch, {'CPU' if CUDA == 'cpu' else CUDA}" in text(browser, "#answer h2"))
    find(browser, "#answer [name=do][value=build]")[0].send_keys(Keys.ENTER)
    until(lambda: "/jobs/b" in browser.current_url)
    job = urllib.parse.urlsplit(browser.current_url).path
    until(lambda: "step" in text(browser, "[data-line]") or find(browser, "#job a[href^='/images/']"))
    until(lambda: find(browser, "#job a[href^='/images/']"), 900)
    find(browser, "#job a[href^='/images/']")[0].click()
    until(lambda: find(browser, "main li a"))
    file = find(browser, "main li a")[0].get_attribute("href")
    assert browser.get_log("browser") == []
    return file, job


def give(place, built):
    """Put an image into a site's folder; its name as addresses have it."""
    image = place.folder / "dist" / built.report["name"] / built.report["tag"]
    image.parent.mkdir(parents=True)
    subprocess.run(["cp", "-al", built.layout.parent, image], check=True)
    return f"{image.parent.name}/{image.name}"


@pytest.mark.engine("chromium", "chromedriver")
def test_pages_of_the_site_have_no_faults_of_axe(site, browser, place, built_image):
    image = give(place, built_image)
    read = site.json("POST", "/v1/files", {"name": "Dockerfile", "text": DOCKERFILE})["id"]
    site.ended(read)
    waits = site.json("POST", "/v1/builds", SMALL)["id"]
    site.ask("DELETE", f"/v1/jobs/{waits}")
    paths = ["/", "/zh", "/?gpu=v100&driver=450.80.02", "/?gpu=v100&driver=450.80.02&cuda=12.1", "/images", "/api"]
    paths += [f"/jobs/{read}", f"/jobs/{waits}", f"/images/{image}"]
    for width in (390, 1600):
        metrics(browser, width, mobile=width == 390)
        for path in paths:
            assert faults_of_axe(browser, site.address + path) == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, path


@pytest.mark.engine("chromium", "chromedriver")
def test_dropped_dockerfile_becomes_packages_of_the_form(site, browser):
    browser.get(site.address)
    find(browser, "details summary")[0].click()
    fill(browser, file="Dockerfile")
    browser.execute_script("document.querySelector('[name=text]').value = arguments[0]", DOCKERFILE)
    find(browser, "[name=packages]")[0].send_keys(Keys.ENTER)
    until(lambda: find(browser, "#job a[href*='packages=rdkit']"))
    assert "env" in text(browser, "#job")
    find(browser, "#job a[href*='packages=rdkit']")[0].click()
    until(lambda: value(browser, "packages") == "rdkit")


def image_is_whole_or_absent(site):
    """Every image and file that the site shows is downloaded whole."""
    for report in site.json("GET", "/v1/images"):
        image = site.json("GET", f"/v1/images/{report['name']}/{report['tag']}")
        site.place.run("inspect", Path("dist") / report["name"] / report["tag"] / "oci").ok()
        for file in image["files"]:
            assert len(site.ask("HEAD", file["address"])) == 0
            call("unsquashfs", "-offset", str(offset(site, file)), "-lls", site.place.folder / file_of(file))


def file_of(file):
    return Path("dist") / file["address"].removeprefix("/images/")


def offset(site, file):
    from sifsquash import sif

    return sif.root_offset(site.place.folder / file_of(file))


@pytest.mark.engine("unsquashfs")
def test_kills_lose_no_finished_image_and_show_no_half_one(site):
    chance = random.Random(20261129)
    asked = {**SMALL, "runtime": "apptainer"}
    job = site.json("POST", "/v1/builds", asked)["id"]
    for number in range(KILLS):
        time.sleep(chance.uniform(0, 12))
        child = site.child(job)
        if number % 2 and child:
            os.kill(child, signal.SIGKILL)
        else:
            site.kill()
            site.start()
        image_is_whole_or_absent(site)
        assert site.json("POST", "/v1/builds", asked)["id"] == job  # one that was killed too often is asked for again
    done = site.ended(job)
    while done["state"] == "failed" and "killed" in done["note"]:
        site.json("POST", "/v1/builds", asked)
        done = site.ended(job)
    assert (done["state"], done["note"]) == ("done", "")
    (report,) = site.json("GET", "/v1/images")
    assert done["image"] == f"{report['name']}/{report['tag']}"
    assert [file["form"] for file in site.json("GET", f"/v1/images/{done['image']}")["files"]] == ["sif"]
    image_is_whole_or_absent(site)
    site.kill()
    site.start()
    assert site.json("GET", f"/v1/jobs/{job}")["state"] == "done"


def descendants(number):
    """Ids of a process and of all that it started, and they."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    left, seen = [number], []
    while left:
        seen.append(left.pop())
        left += children.get(seen[-1], [])
    return seen


def test_cancel_ends_all_processes_of_a_build(site):
    job = site.json("POST", "/v1/builds", SMALL)["id"]
    until(lambda: site.child(job) and len(descendants(site.child(job))) > 2, 300)
    started = descendants(site.child(job))
    assert site.json("DELETE", f"/v1/jobs/{job}")["state"] == "cancelled"
    until(lambda: not any(is_running(number) for number in started), 60)
    assert site.json("GET", "/v1/images") == []
    assert site.place.leftovers() == []


@pytest.mark.engine("docker-registry", "apptainer build")
def test_sif_goes_into_the_registry_and_apptainer_pulls_it_by_the_line_that_is_told(
    place, registry, built_image, apptainer, scratch
):
    image = give(place, built_image)
    there = SiteProcess(place, "--to", f"oras://{registry}/site").start()
    try:
        done = there.ended(there.json("POST", f"/v1/images/{image}/oras")["id"])
        assert (done["state"], done["note"]) == ("done", ""), done["log"]
        pull, start = there.json("GET", f"/v1/images/{image}")["commands"]["apptainer"].splitlines()
        name, address = pull.removeprefix("apptainer pull ").split()
        assert (name in start.split(), address.startswith(f"oras://{registry}/site/")) == (True, True)
        call("apptainer", "--silent", "pull", "--no-https", scratch / name, address, environment=apptainer)
        words = ("python", "-c", "import torch; print(torch.ones(1))")
        assert call("apptainer", "--silent", "exec", scratch / name, *words, environment=apptainer) == "tensor([1.])\n"
    finally:
        there.kill()


@pytest.mark.engine("slurm")
def test_builds_are_done_by_jobs_of_slurm_and_cancelled_with_them(place, slurm):
    there = SiteProcess(place.having(**slurm.environment), "--on", "slurm", "--partition", "a100").start()
    try:
        job = there.json("POST", "/v1/builds", {**SMALL, "runtime": "pyxis"})["id"]
        until(slurm.jobs)
        there.kill()
        there.start()
        done = there.ended(job)
        assert (done["state"], done["note"]) == ("done", ""), done["log"]
        assert ": queued" in done["log"]
        (file,) = there.json("GET", f"/v1/images/{done['image']}")["files"]
        assert file["form"] == "sqsh"
        job = there.json("POST", f"/v1/images/{done['image']}/sif")["id"]
        until(slurm.jobs)
        there.ask("DELETE", f"/v1/jobs/{job}")
        until(lambda: not slurm.jobs())
    finally:
        there.kill()


def test_file_of_an_image_is_refused_to_a_stranger_s_page(site):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        site.ask("POST", "/v1/builds", SMALL, origin="http://evil.example")
    assert site.json("GET", "/v1/builds") == []
    assert program("curl")
