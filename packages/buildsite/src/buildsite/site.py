"""The site: what pages and the API are made of, and what both read of a request."""

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
from collections import Counter
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from buildsite import images, quota, states
from buildsite.answers import SiteVerdict, judge
from buildsite.queue import JobQueue, Kind, SiteJob
from buildsite.reading import Reading, reading
from buildsite.states import JobAnswer, JobOutput, JobProgress
from buildsite.steps import advice
from buildsite.users import Users
from buildsite.work import SiteWork
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.support import support
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk import private
from graphcrate.host.disk.atomic import writing
from graphcrate.model.command import CHECKOUT_PROGRAM
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.model.words import visible
from graphcrate.pages.html import page_words, render_page
from graphcrate.remote.questions import FORMS, Question

PACKAGE = "buildsite"
ORAS = "oras"  #: in place of a form of file
_MAKING: tuple[Kind, ...] = ("build", "file")  #: jobs that make an image or a file of it
_LONG: tuple[Kind, ...] = (*_MAKING, "send")  #: jobs that a user's minutes are of
_SECRET = "secret"  #: a file beside the jobs
_SECRET_BYTES = 32
_FIELDS = 30  #: of a form at most
_LAST_LINES = 32 << 10  #: bytes of a log's end


class Site:
    """All that pages are made of."""

    def __init__(self, ctx: Context, work: SiteWork, queue: JobQueue, users: Users) -> None:
        self.ctx, self.work, self.dist, self.queue, self.users = ctx, work, work.dist, queue, users
        self.secret = _secret(queue.root / _SECRET)  #: of forms
        self.recipes = {recipe.name: recipe for recipe in catalog.all_recipes(ctx)}
        self.maps = {name: support(recipe) for name, recipe in self.recipes.items()}
        self.static = {
            "style.css": ("text/css", _static("style.css") + _static("site.css")),
            "page.js": ("text/javascript", _static("page.js")),
            "site.js": ("text/javascript", _static("site.js")),
        }
        self.version = hashlib.sha256("".join(text for _, text in self.static.values()).encode()).hexdigest()[:12]
        self.streams = Counter[str]()  #: of progress, of each user
        self.hashing = asyncio.Lock()  #: of files: what many ask for is read once, and other requests have threads left
        queue.after, queue.keeps = self.tidy, self.has_image

    def page(self, template: str, language: str, user: str, **values: object) -> Response:
        """Fill a template of ours."""
        words = page_words(PACKAGE)
        spoken = {word: texts[language] for word, texts in words.items()}
        home = "/" if language == "en" else f"/{language}"
        known: dict[str, object] = {"t": spoken, "language": language, "languages": words["language"], "home": home}
        known |= {"static": self.version, "shown": self.shown, "form_token": self.form_token(user)}
        known["advice"] = lambda error, question: advice(self.shown(error.next_step), question)
        text = render_page(template, known | values, PACKAGE)
        return Response(text, media_type="text/html")

    def form_token(self, user: str) -> str:
        """Return what a form of a user's page sends back: no other site's page has it."""
        return hmac.digest(self.secret, user.encode(), "sha256").hex()

    async def asked(self, question: Question) -> SiteVerdict:
        """Judge a question. Raises UsageError for one whose file is to be read first."""
        if question.is_read_first:
            raise UsageError(
                f"{question.file_name} has to be read first",
                cause="What it installs becomes packages of a question.",
                next_step="send it to /v1/files, then what that answers to /v1/plans",
            )
        return await asyncio.to_thread(judge, question, self.ctx)

    def ask(self, kind: Literal["plan", "build"], question: Question, verdict: SiteVerdict, user: str) -> SiteJob:
        """Queue what was asked for. Raises its refusal."""
        if verdict.refusal:
            raise verdict.refusal
        assert verdict.request is not None
        make = self.work.plan if kind == "plan" else self.work.build
        return self.put(make(question, verdict.request, user, settings.now()))

    def put(self, job: SiteJob) -> SiteJob:
        """Queue a job, within the limits of its user; one whose image is gone since is done again."""
        allowed = self.users.allowed(job.user)
        known = self.queue.get(job.id)
        if known and known.state == "done" and known.kind in _MAKING:
            if image := self.image(known):
                image.use()
            else:
                self.queue.forget(known)
        if job.kind in _LONG:
            job = msgspec.structs.replace(job, minutes=min(job.minutes, allowed.minutes))
        return self.queue.ask(job, allowed.queue)

    def tidy(self, job: SiteJob) -> None:
        """After a job: have images removed of whom has more than they may; the one that it made stays."""
        if job.kind not in _MAKING or not (own := self.made(job)):
            return
        # a build that was ended while a file of its image was made has made the image
        makers = [each for each in self.queue.all(*_MAKING) if each.kind == "build" or each.state == "done"]
        made = [(name, each) for each in makers if (name := self.made(each))]
        for user in (job.user, *job.others):
            most = self.users.allowed(user).disk
            if most is not None and (names := quota.surplus(made, self.dist, user, most, own)):
                self.queue.ask(self.work.clean(names, settings.now()))

    def file_job(self, image: images.ShownImage, form: str, user: str) -> SiteJob:
        """Queue a file of an image, or `oras`: its SIF into the registry."""
        now, known = settings.now(), next((known for known in FORMS if known == form), None)
        if known:
            return self.put(self.work.file(image, known, user, now))
        if form == ORAS and self.work.registry:
            return self.put(self.work.send(image, user, now))
        raise HTTPException(404, "there is no such form")

    def pull(self, image: images.ShownImage) -> str:
        """Return the line that fetches the SIF of an image from the registry; empty where it is not there."""
        job = self.queue.get(self.work.send(image, "", 0).id) if self.work.registry else None
        return states.pull_line(self.queue.result(job)) if job and job.state == "done" else ""

    def made(self, job: SiteJob) -> str:
        """Return the name of the image that a job made, or made a file of, or an empty text."""
        return states.made_image(job, self.queue.result(job) if job.kind == "build" else b"")

    def image(self, job: SiteJob) -> images.ShownImage | None:
        """Return the image of a job, where that is there."""
        return images.shown(self.dist, *self.made(job).partition("/")[::2])

    async def images(self) -> list[images.ShownImage]:
        """List all images, the newest first."""
        return await asyncio.to_thread(lambda: list(images.every(self.dist)))

    def builds(self, user: str) -> list[SiteJob]:
        """List a user's builds and files of images, the newest first."""
        return [job for job in self.queue.all(*_LONG) if job.is_of(user)]

    def has_image(self, job: SiteJob) -> bool:
        """Return whether a job says who had an image built that is there."""
        return job.kind == "build" and self.image(job) is not None

    def output(self, job: SiteJob, *, brief: bool = False) -> JobOutput:
        """Return what a job says; `brief`: of one that is over, without its log."""
        data = b"" if brief and job.is_over else self.queue.log(job)[0]
        whole = self.shown(data.decode("utf-8", "replace"), job)
        log, lines = states.result_lines(job, whole)
        error = states.failure(job, lines)
        return JobOutput(
            result=states.error_lines(error) if error else lines,
            command=self.shown("\n".join(job.shown)),
            log=log,
            progress=states.progress(job, whole, self.queue.ahead(job)),
            image=self.made(job),
            error=error,
        )

    def progress(self, job: SiteJob) -> JobProgress:
        """Return how far a job is, by the end of its log alone: those who follow it ask some times a second."""
        text = self.queue.log(job, most=_LAST_LINES)[0].decode("utf-8", "replace")
        return states.progress(job, self.shown(text, job), self.queue.ahead(job))

    def answer(self, job: SiteJob, *, brief: bool = False) -> JobAnswer:
        """Tell a job to a program; `brief`: without its log and its result."""
        output = self.output(job, brief=brief)
        result = self.queue.result(job) if job.state == "done" and not brief else b""
        names = set(SiteJob.__struct_fields__) & set(JobAnswer.__struct_fields__) - {"image", "note"}
        given = {name: getattr(job, name) for name in names}
        if read := self.reading(job):
            result = encode(read)
        printed = self.shown(result.decode("utf-8", "replace"), job).strip()
        return JobAnswer(
            **given,
            note=self.shown(job.note, job),
            progress=output.progress,
            command=output.command,
            image=output.image,
            lines=output.result,
            log="" if brief else output.log,
            result=msgspec.Raw(printed.encode() or b"null"),
        )

    def reading(self, job: SiteJob) -> Reading | None:
        """Return what was read out of a file; None of another job, and before it has succeeded."""
        if (job.kind, job.state) != ("read", "done"):
            return None
        return reading(self.queue.folder(job), self.queue.result(job))

    def shown(self, text: object, job: SiteJob | None = None) -> str:
        """Return a text with commands as users type them elsewhere, and without control characters.

        `job`: whose it is: the file that its user dropped has its own name.
        """
        written = str(text)
        if job:
            written = written.replace(f"{self.queue.folder(job)}/", "").replace(str(self.queue.folder(job)), ".")
        written = written.replace(str(self.ctx.root / "build.py"), CHECKOUT_PROGRAM)
        written = re.sub(
            rf"{re.escape(str(self.dist))}(?![\w.-])", "dist", written.replace(f" --output {self.dist}", "")
        )
        return visible(written.replace(" --walled", ""))


def _secret(path: Path) -> bytes:
    """Return the secret of a file, which is made if absent: a page that is open outlives a restart."""
    with contextlib.suppress(UsageError, ValueError):
        if len(kept := bytes.fromhex(private.read(path, "the secret of forms"))) == _SECRET_BYTES:
            return kept
    secret = secrets.token_bytes(_SECRET_BYTES)
    with writing(path, mode=0o600) as part:
        part.touch(0o600)
        part.write_text(secret.hex(), encoding="ascii")
    return secret


def _static(name: str) -> str:
    return render_page(name, {}, PACKAGE)


def site_of(request: Request) -> Site:
    """Return the site that a request is to."""
    site: Site = request.app.state.site
    return site


def user_of(request: Request) -> str:
    """Return who asks; empty where only this machine can."""
    return str(request.scope.get("user", ""))


def job_of(request: Request) -> SiteJob:
    """Return the job of an address."""
    job = site_of(request).queue.get(request.path_params["job"])
    if job is None or not job.is_of(user_of(request)):
        raise HTTPException(404, "there is no such job of yours")
    return job


def image_of(request: Request) -> images.ShownImage:
    """Return the image of an address."""
    image = images.shown(site_of(request).dist, request.path_params["name"], request.path_params["tag"])
    if image is None:
        raise HTTPException(404, "there is no such image")
    return image


async def fields_of(request: Request) -> dict[str, str]:
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
    if request.method == "POST":
        own = site_of(request).form_token(user_of(request))
        if not hmac.compare_digest(token, own.encode()):
            raise HTTPException(403, "this form is of another session: load its page again")
    return fields
