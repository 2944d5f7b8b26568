"""All addresses of the site, each with its function, behind its guard: an ASGI application."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from buildsite import api, pages
from buildsite.guard import App, Doors, Guard
from buildsite.images import ImageAnswer
from buildsite.openapi import Address, ErrorAnswer, described
from buildsite.site import Site, site_of
from buildsite.states import JobAnswer, for_user
from buildsite.users import LimitError
from graphcrate.compat.variants.explain import Explanation
from graphcrate.model.errors import GraphcrateError, ResolutionError, UsageError
from graphcrate.remote.questions import DroppedFile, Question

_STATUS = {UsageError: 400, ResolutionError: 409, LimitError: 429}


async def openapi(_: Request) -> Response:
    """This description."""
    return api.as_json(described(ROUTES))


async def show_api(request: Request) -> Response:
    """The same as a page."""
    return pages.show_api(request, described(ROUTES))


ROUTES: Sequence[Address] = (
    Address("GET", "/", pages.ask),
    Address("POST", "/", pages.ask),
    Address("GET", "/jobs/{job}", pages.show_job),
    Address("POST", "/jobs/{job}", pages.change_job),
    Address("GET", "/jobs/{job}/events", api.events),  # below /v1/ a web server's login may not count
    Address("GET", "/images", pages.list_images),
    Address("GET", "/images/{name}/{tag}", pages.show_image),
    Address("POST", "/images/{name}/{tag}/{form}", pages.make_file),
    Address("GET", "/images/{name}/{tag}/{file}", pages.download),
    Address("GET", "/static/{name}", pages.static),
    Address("GET", "/api", show_api),
    Address("GET", "/openapi.json", openapi),
    Address("GET", "/v1/explain", api.explain, answers=Explanation),
    Address("POST", "/v1/files", api.read_file, asks=DroppedFile, answers=JobAnswer),
    Address("POST", "/v1/plans", api.plan, asks=Question, answers=JobAnswer),
    Address("POST", "/v1/builds", api.build, asks=Question, answers=JobAnswer),
    Address("GET", "/v1/builds", api.list_builds),
    Address("GET", "/v1/jobs/{job}", api.job, answers=JobAnswer),
    Address("DELETE", "/v1/jobs/{job}", api.cancel, answers=JobAnswer),
    Address("GET", "/v1/jobs/{job}/events", api.events),
    Address("GET", "/v1/images", api.list_images),
    Address("GET", "/v1/images/{name}/{tag}", api.image, answers=ImageAnswer),
    Address("GET", "/v1/images/{name}/{tag}/{file}", pages.download),
    Address("POST", "/v1/images/{name}/{tag}/{form}", api.make_file, answers=JobAnswer),
    Address("GET", "/v1/openapi.json", openapi),
    Address("GET", "/{language}", pages.ask),
    Address("POST", "/{language}", pages.ask),
)


async def _refused(request: Request, error: Exception) -> Response:
    """An expected error: as JSON for the API, as text for a page."""
    assert isinstance(error, GraphcrateError)
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    error = for_user(error)
    if not request.url.path.startswith("/v1/"):
        return PlainTextResponse(f"{site_of(request).shown(error)}\n", status)
    what, cause, step = map(site_of(request).shown, (error.what, error.cause, error.next_step))
    return api.as_json(ErrorAnswer(what=what, cause=cause, next_step=step, exit_code=error.exit_code), status)


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
