"""The API of the site: what the command line prints with `--json`, by HTTP."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from buildsite.openapi import JSON
from buildsite.site import Site, fields_of, image_of, job_of, site_of, user_of
from graphcrate.compat.proofs import proof_of
from graphcrate.host import settings
from graphcrate.model.lock import encode
from graphcrate.remote import questions

_STREAMS, _STREAMS_EACH = 100, 20  #: of progress at once, of all and of a user
_LOOK_SECONDS = 0.3


def as_json(value: Any, status: int = 200) -> Response:  # noqa: ANN401 (what msgspec encodes)
    """Answer with a value."""
    return Response(encode(value), status, media_type=JSON)


def _shown(site: Site, value: Any) -> Response:  # noqa: ANN401 (what msgspec encodes)
    """Answer with a value without folders of this machine."""
    return Response(site.shown(encode(value).decode()), media_type=JSON)


async def explain(request: Request) -> Response:
    """The answer of `explain --json`; 409 with the reason where nothing runs."""
    verdict = await site_of(request).asked(questions.of_form(await fields_of(request)))
    if verdict.refusal:
        raise verdict.refusal
    return as_json(verdict.explanation)


async def read_file(request: Request) -> Response:
    """Read packages out of a Dockerfile, a definition, a script, Python code; the result has the question of them."""
    site = site_of(request)
    job = site.work.read(questions.of_file(await request.body()), user_of(request), settings.now())
    return as_json(site.answer(site.put(job)), 202)


async def plan(request: Request) -> Response:
    """Queue a plan, what `image --plan --json` prints; the same question within ten minutes is the same plan."""
    site, question = site_of(request), questions.read(await request.body())
    job = site.ask("plan", question, await site.asked(question), user_of(request))
    return as_json(site.answer(job), 202)


async def build(request: Request) -> Response:
    """Queue a build, what `image --json` prints, and the file that its runtime opens; equal requests are one build."""
    site, question = site_of(request), questions.read(await request.body())
    job = site.ask("build", question, await site.asked(question), user_of(request))
    return as_json(site.answer(job), 202)


async def job(request: Request) -> Response:
    """A job: its state, its log, and its result once it has one."""
    return as_json(site_of(request).answer(job_of(request)))


async def cancel(request: Request) -> Response:
    """Cancel a job that waits or runs, with all that it started; one that has ended stays as it is."""
    site, asked = site_of(request), job_of(request)
    site.queue.cancel(asked, user_of(request))
    return as_json(site.answer(site.queue.get(asked.id) or asked))


async def events(request: Request) -> Response:
    """Server-sent events: `log` with further lines (JSON text), `progress` with how far it is, `over` at the end."""
    site, asked, user = site_of(request), job_of(request), user_of(request)
    if site.streams.total() >= _STREAMS or (user and site.streams[user] >= _STREAMS_EACH):
        raise HTTPException(503, "too many look at once")
    last = request.headers.get("last-event-id", "0")
    at = int(last) if last.isdecimal() and len(last) < 12 else 0
    return StreamingResponse(_events(site, asked.id, user, at), media_type="text/event-stream")


async def _events(site: Site, name: str, user: str, at: int) -> AsyncIterator[str]:
    site.streams[user] += 1
    before = ""
    try:
        while (asked := site.queue.get(name)) and asked.is_of(user):
            data, at = site.queue.log(asked, at)
            if data:
                lines = site.shown(data.decode("utf-8", "replace"), asked)
                yield f"id: {at}\nevent: log\ndata: {json.dumps(lines)}\n\n"
            if asked.is_over:
                yield f"event: over\ndata: {json.dumps(asked.state)}\n\n"
                return
            if data or not before or asked.state == "waiting":
                now = json.dumps(msgspec.to_builtins(site.progress(asked)))
                if now != before:
                    yield f"event: progress\ndata: {now}\n\n"
                before = now
            yield ":\n\n"  # whoever went away is noticed
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        site.streams -= Counter((user,))  # no names are kept


async def list_builds(request: Request) -> Response:
    """One's own builds and files of images, the newest first, without their logs and results."""
    site = site_of(request)
    return as_json([site.answer(job, brief=True) for job in site.builds(user_of(request))])


async def list_images(request: Request) -> Response:
    """The reports of all images, what `inspect --json` prints of each, the newest first."""
    site = site_of(request)
    return _shown(site, [image.report for image in await site.images()])


async def image(request: Request) -> Response:
    """An image: its report, its files to download, and the commands that start it."""
    site, shown = site_of(request), image_of(request)
    proof = await asyncio.to_thread(proof_of, shown.report, site.ctx)
    tabs = shown.tabs(str(request.base_url).rstrip("/"), site.pull(shown))
    async with site.hashing:
        return _shown(site, await asyncio.to_thread(shown.answer, tabs, proof.dated if proof else ""))


async def make_file(request: Request) -> Response:
    """Queue a file of an image: sif, sqsh, docker, as `convert` makes it; oras: its SIF into the site's registry."""
    site = site_of(request)
    made = site.file_job(image_of(request), request.path_params["form"], user_of(request))
    return as_json(site.answer(made), 202)
