"""The pages and the API of `serve`: addresses, and what each answers. `ROUTES` has all, and the API's description."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.explain import Explanation
from graphcrate.compat.variants.support import support
from graphcrate.host import settings
from graphcrate.host.arguments import Argv
from graphcrate.host.context import Context
from graphcrate.model.command import CHECKOUT_PROGRAM
from graphcrate.model.errors import GraphcrateError, ResolutionError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.words import visible
from graphcrate.pages.html import page_words, render_page
from graphcrate.pages.report import NAME, run_tabs
from graphcrate.serve import images, questions
from graphcrate.serve.answers import SiteVerdict, judge
from graphcrate.serve.guard import APART, App, Doors, Guard
from graphcrate.serve.openapi import JSON, Address, ErrorAnswer, described
from graphcrate.serve.questions import Question
from graphcrate.serve.queue import JobQueue, SiteJob
from graphcrate.serve.users import LimitError, Users

_PACKAGE = "graphcrate.serve"
_FIELDS = 30  #: of a form at most
_STREAMS = 100  #: of progress at once
_LOOK_SECONDS = 0.3
_MINUTES = 5.0  #: of a plan
_STATUS = {UsageError: 400, ResolutionError: 409, LimitError: 429}


class JobOutput(NamedTuple):
    """Output of a job: its result as lines, the command that makes the same at a shell, and its log."""

    result: str
    command: str
    log: str


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the API tells it. `result`: what `--json` prints; `lines`: what is printed without it."""

    id: str
    kind: str
    state: str
    question: Question
    created: float
    begun: float
    ended: float
    note: str
    command: str
    lines: str
    log: str
    result: msgspec.Raw


class Site:
    """All that pages are made of."""

    def __init__(self, ctx: Context, dist: Path, queue: JobQueue, program: Argv, users: Users) -> None:
        self.ctx, self.dist, self.queue, self.program, self.users = ctx, dist, queue, program, users
        self.secret = secrets.token_bytes(32)  #: of forms
        self.recipes = {recipe.name: recipe for recipe in catalog.all_recipes(ctx)}
        self.maps = {name: support(recipe) for name, recipe in self.recipes.items()}
        self.static = {
            "style.css": ("text/css", _static("style.css") + _static("site.css")),
            "page.js": ("text/javascript", _static("page.js")),
            "site.js": ("text/javascript", _static("site.js")),
        }
        self.version = hashlib.sha256("".join(text for _, text in self.static.values()).encode()).hexdigest()[:12]
        self.streams = 0

    def page(self, template: str, language: str, **values: object) -> Response:
        """Fill a template of ours."""
        words = page_words(_PACKAGE)
        spoken = {word: texts[language] for word, texts in words.items()}
        home = "/" if language == "en" else f"/{language}"
        known: dict[str, object] = {"t": spoken, "language": language, "languages": words["language"], "home": home}
        known |= {"static": self.version, "shown": self.shown}
        text = render_page(template, known | values, _PACKAGE)
        return Response(text, media_type="text/html")

    def form_token(self, user: str) -> str:
        """Return what a form of a user's page sends back: no other site's page has it."""
        return hmac.digest(self.secret, user.encode(), "sha256").hex()

    def plan(self, question: Question, verdict: SiteVerdict, user: str) -> SiteJob:
        """Queue the plan of what was asked for."""
        assert verdict.request is not None
        words = questions.image_words(self.program, verdict.request, "--plan", "--json", f"--output={self.dist}")
        name = f"p{question.key()}"
        job = SiteJob(
            id=name, kind="plan", question=question, commands=(tuple(words),), user=user, created=settings.now(),
            minutes=_MINUTES,
        )  # fmt: skip
        return self.queue.ask(job, self.users.allowed(user).queue)

    def output(self, job: SiteJob) -> JobOutput:
        """Return what a job says."""
        log = self.shown(self.queue.log(job)[0].decode("utf-8", "replace"))
        command = self.shown(job.question.request(_gpus(job)).command())
        marks = {"plan": "plan for "} if job.state == "done" else {}
        mark = marks.get(job.kind, "graphcrate: " if job.state == "failed" else "")
        at = max(log.find(mark), log.rfind(f"\n{mark}") + 1) if mark else -1
        return JobOutput(log[at:].strip(), command, log[:at]) if at >= 0 else JobOutput("", command, log)

    def shown(self, text: object) -> str:
        """Return a text with commands as users type them elsewhere, and without control characters."""
        written = str(text).replace(str(self.ctx.root / "build.py"), CHECKOUT_PROGRAM)
        return visible(written.replace(f" --output {self.dist}", "").replace(" --walled", ""))


def _static(name: str) -> str:
    return render_page(name, {}, _PACKAGE)


def _gpus(job: SiteJob) -> str:
    """Return the GPUs of a job, as its command has them."""
    words = (word for word in job.commands[0] if word.startswith("--gpu="))
    return next(words, "").removeprefix("--gpu=")


def _language(request: Request) -> str:
    asked = request.path_params.get("language") or request.query_params.get("language", "")
    return asked if asked in page_words(_PACKAGE)["language"] else "en"


def _link(home: str, recipe: str, cuda: str, model: str) -> str:
    """The page that asks about a cell of the map."""
    return f"{home}?{urlencode({'stack': recipe, 'cuda': cuda, 'gpu': model.lower()})}"


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def _job(request: Request) -> SiteJob:
    job = _site(request).queue.get(request.path_params["job"])
    if job is None or not job.is_of(_user(request)):
        raise HTTPException(404, "there is no such job of yours")
    return job


def _json(value: Any, status: int = 200) -> Response:  # noqa: ANN401 (what msgspec encodes)
    return Response(encode(value), status, media_type=JSON)


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a form, or of the address. Raises UsageError.

    A form has the token of its page.
    """
    text = request.url.query if request.method != "POST" else (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError as error:
        raise UsageError(f"the form cannot be read: {error}", next_step="send it from the page") from error
    fields = {name: value.replace("\r\n", "\n") for name, value in pairs if name != "language"}
    token = fields.pop("form_token", "").encode("utf-8", "replace")
    if request.method == "POST" and not hmac.compare_digest(token, _site(request).form_token(_user(request)).encode()):
        raise HTTPException(403, "this form is of another session: load its page again")
    return fields


async def ask(request: Request) -> Response:
    """The page with the form; with the answer where something was asked, and its plan where a form was sent."""
    site, language = _site(request), _language(request)
    if request.path_params.get("language", language) != language:
        raise HTTPException(404, "there is no such page")
    question, verdict, error, job = Question(), None, None, None
    try:
        if fields := await _fields(request):
            question = questions.of_form(fields)
            verdict = await asyncio.to_thread(judge, question, site.ctx)
            if verdict.request and request.method == "POST":
                job = site.plan(question, verdict, _user(request))
    except UsageError as unread:
        error = unread
    stack = question.stack if question.stack in site.recipes else Question().stack
    home = "/" if language == "en" else f"/{language}"
    values: dict[str, Any] = {
        "question": question, "verdict": verdict, "error": error, "job": job, "output": job and site.output(job),
        "stacks": list(site.recipes), "cudas": [variant.cuda for variant in site.recipes[stack].variants],
        "runtimes": {name: row.title for name, row in RUNTIMES.items()},
        "form_token": site.form_token(_user(request)), "map": site.maps[stack],
        "link": lambda *cell: _link(home, *cell),
    }  # fmt: skip
    return site.page("ask.html", language, **values)


def _user(request: Request) -> str:
    return str(request.scope.get("user", ""))


async def show_job(request: Request) -> Response:
    """The page of a plan or a build."""
    site, job = _site(request), _job(request)
    return site.page("job.html", _language(request), job=job, output=site.output(job))


async def list_images(request: Request) -> Response:
    """The page of all images, and of one's own builds."""
    site = _site(request)
    listed = await asyncio.to_thread(lambda: list(images.every(site.dist)))
    jobs = [job for job in site.queue.all("build") if job.is_of(_user(request))]
    return site.page("images.html", _language(request), images=listed, jobs=jobs[:50])


def _image(request: Request) -> images.ShownImage:
    """Return the image of an address."""
    image = images.shown(_site(request).dist, request.path_params["name"], request.path_params["tag"])
    if image is None:
        raise HTTPException(404, "there is no such image")
    return image


async def show_image(request: Request) -> Response:
    """The page of an image: what it is, how it runs, its files."""
    image = _image(request)
    report = image.report
    tabs = run_tabs(f"{report.name}:{report.tag}", f"{report.name}:{report.tag}", has_gpus=report.cuda != "cpu")
    language = _language(request)
    return _site(request).page("image.html", language, image=image, files=image.files(), tabs=tabs)


async def download(request: Request) -> Response:
    """A file of an image, or a range of it; a report stands in a page that reaches nothing of the site."""
    path = _image(request).file(request.path_params["file"])
    if path is None:
        raise HTTPException(404, "there is no such file")
    if path.name == NAME:
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": APART})
    return FileResponse(path, filename=path.name, media_type="application/octet-stream")


async def images_told(request: Request) -> Response:
    """The reports of all images, what `inspect --json` prints of each, the newest first."""
    listed = await asyncio.to_thread(lambda: list(images.every(_site(request).dist)))
    return _json([image.report for image in listed])


async def static(request: Request) -> Response:
    """Style and script: three files, whose address changes with what they have."""
    kind, text = _site(request).static.get(request.path_params["name"], ("", ""))
    if not kind:
        raise HTTPException(404, "there is no such file")
    return Response(text, media_type=kind, headers={"cache-control": "public, max-age=86400"})


async def explain(request: Request) -> Response:
    """The answer of `explain --json`; 409 with the reason where nothing runs."""
    question = questions.of_form(await _fields(request))
    verdict = await asyncio.to_thread(judge, question, _site(request).ctx)
    if verdict.refusal:
        raise verdict.refusal
    return _json(verdict.explanation)


async def plan(request: Request) -> Response:
    """Queue a plan, what `image --plan --json` prints; the same question within ten minutes is the same plan."""
    site = _site(request)
    question = questions.read(await request.body())
    verdict = await asyncio.to_thread(judge, question, site.ctx)
    if verdict.refusal:
        raise verdict.refusal
    return _json(_told(site, site.plan(question, verdict, _user(request))), 202)


async def job(request: Request) -> Response:
    """A plan or a build: its state, its log, and its result once it has one."""
    return _json(_told(_site(request), _job(request)))


def _told(site: Site, job: SiteJob) -> JobAnswer:
    output, names = site.output(job), set(SiteJob.__struct_fields__) & set(JobAnswer.__struct_fields__)
    result = site.queue.result(job) if job.state == "done" else b""
    return JobAnswer(
        **{name: getattr(job, name) for name in names}, command=output.command, lines=output.result, log=output.log,
        result=msgspec.Raw(result.strip() or b"null"),
    )  # fmt: skip


async def events(request: Request) -> Response:
    """Server-sent events: `log` with further lines (JSON text), `over` with the state at the end."""
    site, job = _site(request), _job(request)
    if site.streams >= _STREAMS:
        raise HTTPException(503, "too many look at once")
    last = request.headers.get("last-event-id", "0")
    at = int(last) if last.isdecimal() and len(last) < 12 else 0
    return StreamingResponse(_events(site, job.id, at), media_type="text/event-stream")


async def _events(site: Site, name: str, at: int) -> AsyncIterator[str]:
    site.streams += 1
    try:
        while job := site.queue.get(name):
            data, at = site.queue.log(job, at)
            if data:
                yield f"id: {at}\nevent: log\ndata: {json.dumps(site.shown(data.decode('utf-8', 'replace')))}\n\n"
            if job.is_over:
                yield f"event: over\ndata: {json.dumps(job.state)}\n\n"
                return
            yield ":\n\n"  # whoever went away is noticed
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        site.streams -= 1


async def openapi(_: Request) -> Response:
    """This description."""
    return _json(described(ROUTES))


ROUTES: Sequence[Address] = (
    Address("GET", "/", ask),
    Address("POST", "/", ask),
    Address("GET", "/jobs/{job}", show_job),
    Address("GET", "/images", list_images),
    Address("GET", "/images/{name}/{tag}", show_image),
    Address("GET", "/images/{name}/{tag}/{file}", download),
    Address("GET", "/static/{name}", static),
    Address("GET", "/v1/explain", explain, answers=Explanation),
    Address("POST", "/v1/plans", plan, asks=Question, answers=JobAnswer),
    Address("GET", "/v1/jobs/{job}", job, answers=JobAnswer),
    Address("GET", "/v1/jobs/{job}/events", events),
    Address("GET", "/v1/images", images_told),
    Address("GET", "/v1/openapi.json", openapi),
    Address("GET", "/{language}", ask),
    Address("POST", "/{language}", ask),
)


async def _refused(request: Request, error: Exception) -> Response:
    """An expected error: as JSON for the API, as text for a page."""
    assert isinstance(error, GraphcrateError)
    status = _STATUS.get(type(error), 500)
    if not request.url.path.startswith("/v1/"):
        return PlainTextResponse(f"{error}\n", status)
    what, cause, step = map(_site(request).shown, (error.what, error.cause, error.next_step))
    return _json(ErrorAnswer(what=what, cause=cause, next_step=step, exit_code=error.exit_code), status)


def application(site: Site, doors: Doors, log: Callable[[str], None]) -> App:
    """Make the ASGI application, behind its guard. Its life is that of the queue's work."""

    @contextlib.asynccontextmanager
    async def working(_: Starlette) -> AsyncIterator[None]:
        work = asyncio.create_task(site.queue.work(site.ctx.progress.warn))
        try:
            yield
        finally:
            work.cancel()

    routes = [Route(row.path, row.function, methods=[row.method]) for row in ROUTES]
    failures: Mapping[Any, Any] = {GraphcrateError: _refused}
    app = Starlette(routes=routes, lifespan=working, exception_handlers=failures)
    app.router.redirect_slashes = False
    app.state.site = site
    return Guard(app, doors, log)
