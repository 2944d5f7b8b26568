"""Additions of the command line."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from graphcrate.compat.facts import build_environment
from graphcrate.compat.requirements.own_packages import FLAVOURS, below, merge_additions
from graphcrate.compat.requirements.package_text import read_packages, read_requirements
from graphcrate.compat.requirements.within import Within
from graphcrate.model.command import Setting, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions

#: of Debian packages
DEBIAN_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_USUAL = setting(with_="lightning wandb")
#: what stands between packages where no space does; not in brackets, nor before a bound
_LISTED = re.compile(r"[，、；]|,(?=\s*[A-Za-z,]|\s*$)(?![^\[\]]*\])")  # noqa: RUF001 (commas of a Chinese keyboard)


def given(
    packages: Sequence[str],
    requirements: Sequence[Path] = (),
    apt: Sequence[str] = (),
    flavour: str = "",
    build_apt: Sequence[str] = (),
    build_env: Sequence[str] = (),
    *,
    walled: bool = False,
) -> Additions:
    """Read additions from the command line: each of `packages` one or several, separated by spaces.

    `walled`: they are a stranger's; only names are taken, and no file outside of this folder is read.
    Raises UsageError.
    """
    within = Within(Path.cwd().resolve(), names_alone=True) if walled else None
    where = "packages" if walled else "--with"
    additions = read_packages([word for text in packages for word in _words(text)], Path.cwd(), where, within)
    words = additions
    for path in requirements:
        if within:
            within.check(path, f"{path} is not")
        additions = merge_additions(additions, below(words, read_requirements(path, within), str(path), alone=True))
    return msgspec.structs.replace(
        additions,
        apt=_debian(apt, setting(apt="git graphviz")),
        build_apt=_debian(build_apt, setting(build_apt="swig libsuitesparse-dev")),
        build_environment=build_environment.read(build_env),
        flavour=flavour if flavour in FLAVOURS else "",
    )


def _debian(texts: Sequence[str], usual: Setting) -> tuple[str, ...]:
    """Names of Debian packages as they were typed. Raises UsageError, which shows what is `usual`."""
    listed = [text.replace(",", " ").split() for text in texts]
    if not all(listed):
        raise _of_none(f"--{usual.name}", usual)
    names = tuple(name for words in listed for name in words)
    for name in names:
        if not DEBIAN_NAME.fullmatch(name):
            raise UsageError(f"--{usual.name}: {name!r} is not a name of a Debian package", next_step=usual.both())
    return names


def _of_none(typed: str, usual: Setting) -> UsageError:
    """Return the error for an option with separators alone; `usual` shows what it takes."""
    return UsageError(f"{typed} names no package", next_step=f"name them: {usual.both()}")


def _words(text: str) -> Iterable[str]:
    """One requirement, which may have spaces in it, or several packages separated by spaces."""
    try:
        Requirement(text)
    except InvalidRequirement:
        if "/" not in text and _LISTED.search(text):
            spaced = " ".join(_LISTED.sub(" ", text).split())
            if not spaced:
                raise _of_none(f"--with {text!r}", _USUAL) from None
            raise UsageError(
                f"--with {text!r}: packages are separated by spaces", next_step=f"write {setting(with_=spaced)}"
            ) from None
        try:
            return shlex.split(text)
        except ValueError as error:
            raise UsageError(
                f"--with {text!r} cannot be read: {error}",
                next_step=f"close the quotation: {_USUAL.both()}",
            ) from error
    return [text]
