"""Errors of projectfiles in graphcrate's words: what an image has to do with them, and what to type."""

import contextlib
from collections.abc import Iterator

from graphcrate.model.command import command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.words import printable
from projectfiles.errors import ProjectFileError


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Make a UsageError of an error of projectfiles."""
    try:
        yield
    except ProjectFileError as error:
        what = _WHATS.get(error.kind, "{error.what}").format(error=error, why=printable(error.text[:300]))
        raise UsageError(what, cause=error.cause, next_step=_next_step(error)) from error


#: kinds that say more of images
_WHATS = {
    "addresses": "{error.what}, and an image has no conda",
    "subdirectory": "{error.what}, which an image does not take",
    "machines": "{error.file} is for no image: {why}",
}


def _next_step(error: ProjectFileError) -> str:
    """Return a command of graphcrate's where there is one, else the library's words."""
    file, folder = error.file.rpartition("/")[2], setting(with_="./folder")
    if error.kind == "dynamic" or (error.kind == "needs" and file == "pyproject.toml"):
        return f"give the project itself, which is built then: {folder}"
    if error.kind == "subdirectory":
        return f"clone it, and give that folder: {folder}"
    if error.kind == "format" and file.startswith("Pipfile"):
        return f"{error.next_step}    (and give that file)"
    if error.kind == "format":
        return f"for a project give its folder: {folder}    (or pip freeze > requirements.txt)"
    if error.kind == "machines":
        return f"{command('list')}    has the Pythons of images; lock it for one of them, on Linux"
    if error.kind != "extra":
        return error.next_step
    if file == "pixi.toml":
        return f"{setting(requirements=file)}    (without it)"
    if file.startswith("pylock."):
        return f"{setting(requirements=error.file)}    (without it)"
    return f"{setting(requirements=f'{file}[{error.text}]')}, or leave it out"
