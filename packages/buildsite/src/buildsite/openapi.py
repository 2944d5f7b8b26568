"""Addresses of the site as rows, and the description of its API that OpenAPI's programs read. Pure."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from graphcrate import __version__

JSON = "application/json"


class Address(NamedTuple):
    """An address of the site. `asks`, `answers`: of the API, what is sent and what comes."""

    method: str
    path: str
    function: Callable[[Request], Awaitable[Response]]
    asks: type | None = None
    answers: type | None = None


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An error, as the command line words it."""

    what: str
    cause: str
    next_step: str
    exit_code: int


def described(rows: Sequence[Address]) -> dict[str, Any]:
    """Describe the addresses below /v1: OpenAPI 3.1, from the rows and their types."""
    rows = [row for row in rows if row.path.startswith("/v1/")]
    kinds = [ErrorAnswer, *dict.fromkeys(kind for row in rows for kind in (row.asks, row.answers) if kind)]
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry: dict[str, Any] = {
            "summary": row.function.__doc__,
            "responses": {
                "200": {"description": "the answer", **_content(row.answers)},
                "4XX": {"description": "refused, and why", **_content(ErrorAnswer)},
            },
        }
        if row.asks:
            entry["requestBody"] = {"required": True, **_content(row.asks)}
        if names := re.findall(r"{(\w+)}", row.path):
            text = {"in": "path", "required": True, "schema": {"type": "string"}}
            entry["parameters"] = [{"name": name, **text} for name in names]
        paths.setdefault(row.path, {})[row.method.lower()] = entry
    info = {"title": "graphcrate, a site", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _content(kind: type | None) -> dict[str, Any]:
    return {"content": {JSON: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}} if kind else {}
