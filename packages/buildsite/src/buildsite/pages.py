"""The pages of the site, as HTML: each works by whole pages, without a script."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from buildsite import images
from buildsite.guard import APART
from buildsite.queue import SiteJob
from buildsite.site import ORAS, PACKAGE, Site, fields_of, image_of, job_of, site_of, user_of
from graphcrate.compat.proofs import proof_of
from graphcrate.host import settings
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import RUNTIMES
from graphcrate.pages.html import page_words
from graphcrate.pages.report import NAME
from graphcrate.remote import questions
from graphcrate.remote.questions import FORMS, Question

_SHOWN = 50  #: jobs on a page
_ACTION = "do"  #: the field of a form that says which of its buttons was pressed


def _language(request: Request) -> str:
    asked = request.path_params.get("language") or request.query_params.get("language", "")
    return asked if asked in page_words(PACKAGE)["language"] else "en"


def _home(language: str) -> str:
    return "/" if language == "en" else f"/{language}"


def _link(home: str, **fields: str) -> str:
    """The page that asks a question."""
    return f"{home}?{urlencode({name: value for name, value in fields.items() if value})}"


def _to_job(job: SiteJob, language: str) -> Response:
    """Go to the page of a job."""
    return RedirectResponse(f"/jobs/{job.id}" + (f"?language={language}" if language != "en" else ""), 303)


def _job_values(site: Site, job: SiteJob, language: str) -> dict[str, Any]:
    """Return what the template of a job takes."""
    reading = site.reading(job)
    again = _link(_home(language), **reading.question.fields) if reading else ""
    return {"job": job, "output": site.output(job), "reading": reading, "again": again}


async def ask(request: Request) -> Response:
    """The page with the form; with the answer where something was asked, and its plan where a form was sent."""
    site, language = site_of(request), _language(request)
    if request.path_params.get("language", language) != language:
        raise HTTPException(404, "there is no such page")
    question, verdict, error, job = Question(), None, None, None
    try:
        if fields := await fields_of(request):
            builds = fields.pop(_ACTION, "") == "build"
            question, is_sent = questions.of_form(fields), request.method == "POST"
            if question.is_read_first and is_sent:
                job = site.put(site.work.read(question, user_of(request), settings.now()))
            elif not question.is_read_first:
                verdict = await site.asked(question)
                if verdict.request and is_sent:
                    job = site.ask("build" if builds else "plan", question, verdict, user_of(request))
            if job and builds:
                return _to_job(job, language)
    except UsageError as unread:
        error = unread
    stack = question.stack if question.stack in site.recipes else Question().stack
    home = _home(language)
    values: dict[str, Any] = {
        "question": question, "verdict": verdict, "error": error, "job": None,
        "stacks": list(site.recipes), "cudas": [variant.cuda for variant in site.recipes[stack].variants],
        "runtimes": {name: row.title for name, row in RUNTIMES.items()}, "map": site.maps[stack],
        "link": lambda recipe, cuda, model: _link(home, stack=recipe, cuda=cuda, gpu=model.lower()),
    }  # fmt: skip
    return site.page(
        "ask.html", language, user_of(request), **values | (_job_values(site, job, language) if job else {})
    )


async def show_job(request: Request) -> Response:
    """The page of a job."""
    site, language = site_of(request), _language(request)
    return site.page("job.html", language, user_of(request), **_job_values(site, job_of(request), language))


async def change_job(request: Request) -> Response:
    """Cancel a job, or build what it planned, or what failed once more."""
    site, job, language = site_of(request), job_of(request), _language(request)
    if (await fields_of(request)).get(_ACTION) == "cancel":
        site.queue.cancel(job, user_of(request))
    elif job.kind in ("plan", "build"):
        job = site.ask("build", job.question, await site.asked(job.question), user_of(request))
    elif job.image and (image := images.shown(site.dist, *job.image.split("/"))):
        form = next((form for form in FORMS if f"--to={form}" in job.commands[0]), ORAS)
        job = site.file_job(image, form, user_of(request))
    return _to_job(job, language)


async def list_images(request: Request) -> Response:
    """The page of all images, and of one's own builds."""
    site, user = site_of(request), user_of(request)
    return site.page(
        "images.html", _language(request), user, images=await site.images(), jobs=site.builds(user)[:_SHOWN]
    )


async def show_image(request: Request) -> Response:
    """The page of an image: what it is, how it runs, its files."""
    site, image = site_of(request), image_of(request)
    proof = await asyncio.to_thread(proof_of, image.report, site.ctx)
    files = image.files()
    missing = [form for form in FORMS if form not in {file.form for file in files}] if image.has_layout else []
    pull = site.pull(image)
    values: dict[str, Any] = {"image": image, "files": files, "missing": missing, "proof": proof}
    values["oras"] = ORAS if site.work.registry and image.has_layout and not pull else ""
    titles = {form: RUNTIMES[name].title for form, name in FORMS.items()}
    tabs = image.tabs(str(request.base_url).rstrip("/"), pull)
    return site.page("image.html", _language(request), user_of(request), **values, tabs=tabs, titles=titles)


async def make_file(request: Request) -> Response:
    """Queue a file of an image."""
    await fields_of(request)
    job = site_of(request).file_job(image_of(request), request.path_params["form"], user_of(request))
    return _to_job(job, _language(request))


def show_api(request: Request, described: Mapping[str, Any]) -> Response:
    """The page of the API, of its description as OpenAPI has it."""
    site, address = site_of(request), str(request.base_url).rstrip("/")
    return site.page("api.html", _language(request), user_of(request), described=described, address=address)


async def download(request: Request) -> Response:
    """A file of an image, or a range of it; a report stands in a page that reaches nothing of the site."""
    image = image_of(request)
    path = image.file(request.path_params["file"])
    if path is None:
        raise HTTPException(404, "there is no such file")
    image.use()
    if path.name == NAME:
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": APART})
    return FileResponse(path, filename=path.name, media_type="application/octet-stream")


async def static(request: Request) -> Response:
    """Style and script: three files, whose address changes with what they have."""
    kind, text = site_of(request).static.get(request.path_params["name"], ("", ""))
    if not kind:
        raise HTTPException(404, "there is no such file")
    return Response(text, media_type=kind, headers={"cache-control": "public, max-age=86400"})
