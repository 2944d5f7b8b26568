"""`image --at`: a site builds what was asked for, and this program shows what a build here would show.

    request ──▶ question ──▶ POST /v1/builds ──▶ GET /v1/jobs/… until it is over ──▶ report, the image's page, its file

The site is a stranger: what it says is shown with control characters by number, and its words reach no path.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec

from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk import private
from graphcrate.host.disk.atomic import claim
from graphcrate.host.disk.os_errors import explaining
from graphcrate.host.net import Client, HttpError
from graphcrate.model import codec, errors
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import (
    UNREADABLE,
    GraphcrateError,
    HostError,
    IntegrityError,
    UsageError,
    class_of,
)
from graphcrate.model.report import BuildReport
from graphcrate.model.words import either, visible
from graphcrate.remote import questions
from graphcrate.remote.questions import Question

TOKEN, TOKEN_FILE = "GRAPHCRATE_SITE_TOKEN", "GRAPHCRATE_SITE_TOKEN_FILE"
_LOOK_SECONDS = 1.0
_LARGEST_ANSWER = 64 << 20  #: bytes; a report of a large image has one MB
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: runtimes by the end of the file that they open: the site makes it with the build
_OPENERS = {f".{form}": questions.FORMS[form] for form in ("sif", "sqsh")}
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
#: of a log: what to type next at the site
_NEXT = re.compile(r"^next    .*\n?", re.MULTILINE)


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the site, as far as it is needed here."""

    id: str
    state: str
    note: str = ""
    image: str = ""
    lines: str = ""
    log: str = ""
    exit_code: int = 0
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal of the site."""

    what: str
    cause: str = ""
    next_step: str = ""
    exit_code: int = 2


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an image of the site."""

    name: str
    address: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class _Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the site."""

    files: tuple[_File, ...]


class SiteResult(NamedTuple):
    """The result of a job: what `--json` prints, what is printed without it, and the image's page."""

    value: bytes
    lines: str
    page: str


def question_of(request: BuildRequest, fetch: Path | None) -> Question:
    """Return what a site is asked for a request. Raises UsageError for what cannot be sent, by its name."""
    if request.recipe:
        raise _unsendable(str(request.recipe), "a recipe's file", f"name a stack, with {setting(with_='…').both()}")
    fields = {"stack": request.name}
    for each in request.command().settings:
        if each.name == "requirements" and "text" not in fields:
            path = Path(each.value or "")
            fields |= {"file": path.name, "text": path.read_text(encoding="utf-8", errors="replace")}
        elif each.name == "requirements":
            raise _unsendable(each.value or "", "a second file of requirements", "put all into one file")
        elif each.name == "target":
            raise _unsendable(
                "--target",
                "a machine of this machine's list",
                f"{setting(gpu='v100').both()} and {setting(driver='450.80.02').both()}, of that machine",
            )
        elif field := questions.OPTIONS.get(each.name):
            fields[field] = each.value or ""
        else:
            raise _unsendable(f"--{each.name}", "of the machine that builds", "leave it out")
    if fetch:
        if fetch.suffix not in _OPENERS:
            raise UsageError(
                f"{fetch} is not a name of a {either(_OPENERS)} file", next_step=command("image", ETC, save="image.sif")
            )
        fields["runtime"] = _OPENERS[fetch.suffix]
    return questions.of_form(fields)


def _unsendable(name: str, what: str, step: str) -> UsageError:
    return UsageError(f"{name} cannot be sent to a site", cause=f"It is {what}.", next_step=step)


class RemoteSite:
    """A site by its address, as one user."""

    def __init__(self, address: str, ctx: Context, pause: Callable[[float], None] = settings.wait) -> None:
        """Raises UsageError for an invalid address, or one over which a token can be read; HostError for its file."""
        self.address, self._ctx, self._pause = _checked(address), ctx, pause
        self._client = Client(ctx.environment, note=ctx.progress.note)
        self._headers = {"Accept": "application/json"}
        if token := _token(ctx.environment):
            if not self.address.startswith("https:") and urlsplit(address).hostname not in _LOOPBACK:
                raise UsageError(
                    f"{self.address} has no TLS, and whoever is on the line could read your token",
                    next_step=command("image", ETC, at=self.address.replace("http:", "https:")),
                )
            self._headers["Authorization"] = f"Bearer {token}"

    def made(self, kind: str, question: Question, show: Callable[[str], None]) -> SiteResult:
        """Have something made ("plans", "builds"); `show` gets its log. Raises the error with which it ended there."""
        job = self._ask("POST", f"/v1/{kind}", _Job, msgspec.json.encode(question))
        if not re.fullmatch("[a-z0-9]{1,64}", job.id):
            raise self._odd("the name of a job")
        self._ctx.progress.note(f"at the site: {self.address}/jobs/{job.id}")
        for text in _fresh(self._looks(job)):
            if own := _NEXT.sub("", visible(text)):
                show(own)
        job = self._last
        if job.state != "done":
            raise _failure(job, self.address)
        page = f"{self.address}/images/{job.image}" if _IMAGE.fullmatch(job.image) else ""
        value = visible(bytes(job.result).decode("utf-8", "replace"))
        return SiteResult(value.encode(), visible(job.lines), page)

    def report(self, result: SiteResult) -> BuildReport:
        """Read the result of a build. Raises IntegrityError."""
        try:
            return codec.decode(result.value, BuildReport)
        except UNREADABLE as error:
            raise self._odd("a report") from error

    def _looks(self, job: _Job) -> Iterator[str]:
        """Yield a job's log as it stands, again and again until it is over."""
        while True:
            self._last = job
            yield job.log
            if job.state in ("done", "failed", "cancelled"):
                return
            self._pause(_LOOK_SECONDS)
            job = self._ask("GET", f"/v1/jobs/{job.id}", _Job)

    def fetch(self, page: str, target: Path) -> None:
        """Fetch an image's file of the form of `target`, whose hash is checked. Raises NetworkError, IntegrityError."""
        image = page.removeprefix(f"{self.address}/images/")
        there = self._ask("GET", f"/v1/images/{image}", _Image).files
        file = next((file for file in there if file.name.endswith(target.suffix)), None)
        own = f"/images/{image}/{file.name}" if file and _NAME.fullmatch(file.name) else ""
        if file is None or file.address != own or not re.fullmatch("[0-9a-f]{64}", file.sha256):
            raise self._odd(f"a {target.suffix} file of {visible(image)}")
        part = target.with_name(f".{target.name}.{file.sha256[:12]}.part")  # goes on after an interrupt
        task_of = self._ctx.progress.task(f"fetching {target.name}", file.bytes)
        with explaining(target), self._at_this_site(), task_of as task:
            self._client.download(
                f"{self.address}/v1{file.address}", part, size=file.bytes, sha256=file.sha256, headers=self._headers,
                advance=task.advance,
            )  # fmt: skip
            if not claim(part, target):
                raise _exists(target)
            with contextlib.suppress(FileNotFoundError):
                part.unlink()

    def _ask(self, method: str, path: str, kind: type[codec.Value], body: bytes | None = None) -> codec.Value:
        sent = self._headers | ({"Content-Type": "application/json"} if body else {})
        accepted = (200, 202, 400, 401, 403, 404, 409, 413, 415, 421, 429, 500, 503)
        with self._at_this_site():
            answer = self._client.request(
                method, self.address + path, headers=sent, body=body, accept=accepted, limit=_LARGEST_ANSWER
            )
        try:
            if answer.status in (200, 202):
                return codec.decode(answer.body, kind)
            error = codec.decode(answer.body, _Error)
        except UNREADABLE as unread:
            text = visible(answer.body[:300].decode("utf-8", "replace")).strip()
            if answer.status == 401:
                raise UsageError(
                    f"{self.address} asks who you are",
                    cause=text,
                    next_step=f"export {TOKEN}=…    (whoever runs the site gives you one)",
                ) from unread
            if answer.status in (200, 202):
                raise self._odd("an answer") from unread
            raise HostError(
                f"{self.address} answers {answer.status}: {text}", next_step=f"curl {self.address}/v1/openapi.json"
            ) from unread
        words = [visible(text) for text in (error.what, error.cause, error.next_step)]
        raise class_of(error.exit_code)(words[0], cause=words[1], next_step=words[2])

    @contextlib.contextmanager
    def _at_this_site(self) -> Iterator[None]:
        """Leave mirrors and channels out of next steps: they do not apply to a site."""
        try:
            yield
        except HttpError as error:
            error.next_step = error.failure.next_step
            raise
        except IntegrityError as error:
            error.next_step = f"the same command again; if it stays so, tell whoever runs {self.address}"
            raise

    def _odd(self, what: str) -> GraphcrateError:
        return IntegrityError(
            f"{self.address} does not give {what} that can be read",
            cause="It is not a site of graphcrate, or one of another version.",
            next_step=f"curl {self.address}/v1/openapi.json",
        )


def check_absent(target: Path) -> None:
    """Raises UsageError where a file stands that would have to be replaced: asked before a long work."""
    if os.path.lexists(target):
        raise _exists(target)


def _exists(target: Path) -> UsageError:
    return UsageError(f"{target} exists", next_step="move it away, or name another file")


def _checked(address: str) -> str:
    """Return an address without a slash at its end. Raises UsageError."""
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or "@" in parts.netloc or parts.query or parts.fragment or visible(address) != address:
        raise UsageError(
            f"{visible(address)!r} is not the address of a site",
            next_step=command("image", ETC, at="https://site.example/"),
        )
    return address.rstrip("/")


def _token(environment: Mapping[str, str]) -> str:
    """Return this user's token, or an empty text, as for a site of this machine. Raises UsageError."""
    token = environment.get(TOKEN, "")
    if not token and (path := environment.get(TOKEN_FILE)):
        token = private.read(Path(path), "a token")
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token has characters that none has", next_step=f"export {TOKEN}=…")
    return token


def _fresh(logs: Iterator[str]) -> Iterator[str]:
    """Yield what is new in each of the logs, of which long ones are without their beginning."""
    last = ""
    for log in logs:
        at = len(last) if log.startswith(last) else log.rfind(last[-400:]) + len(last[-400:])
        if fresh := log[at:]:
            yield fresh
        last = log


def _failure(job: _Job, address: str) -> GraphcrateError:
    """Return the error with which a job ended, in its own words."""
    text = visible(job.lines or job.note or job.state).strip().removeprefix("graphcrate: ")
    error = errors.read(text, job.exit_code)
    if error.of_machine:
        error.next_step = f"tell whoever runs {address}: {address}/jobs/{job.id}"
    error.next_step = error.next_step or f"look at {address}/jobs/{job.id}"
    return error
