"""Addresses of git repositories: read from a text of anybody's, and written again from their parts.

git takes a word that begins with a dash for an option, some of which start programs, and addresses such as
`ext::COMMAND` for programs. Nothing of a text reaches git, ssh or a shell as it was written: what is not a scheme, a
user, a host, a port or a path as these have them is refused.
"""

import re
from typing import NamedTuple

#: transports that run no program of an address's choice, as `GIT_ALLOW_PROTOCOL` names them
SCHEMES = ("https", "ssh", "git", "file")
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\]"
#: another character by its number, but for control characters: %24
_ENCODED = r"%(?![01]|7[Ff])[0-9A-Fa-f]{2}"
_USER = rf"[A-Za-z0-9_](?:[\w.+~-]|{_ENCODED})*"
_PASSWORD = rf"(?:[\w.+~=,-]|{_ENCODED})*"
#: letters of any language; no space, quote, glob or other character that a shell has a meaning for
_PATH = rf"(?:[\w.~/+@=,:-]|{_ENCODED})*"
_ADDRESS = re.compile(
    rf"(?P<scheme>{'|'.join(SCHEMES)})://"
    rf"(?:(?P<user>{_USER})(?::(?P<password>{_PASSWORD}))?@)?"
    rf"(?P<host>{_HOST})?(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/{_PATH})?"
)
_BY_SSH = re.compile(rf"(?P<user>{_USER})@(?P<host>{_HOST}):(?P<path>(?!-|//){_PATH})")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[\w./+=,%-]|@(?!\{))*")
_WITHOUT_HOST = ("", "localhost")
_FORMS = "git takes https://HOST/PATH, ssh://USER@HOST/PATH, git://HOST/PATH, file:///PATH and USER@HOST:PATH here"


#: folders of a path below a repository: no `..`, none that git keeps, and nothing for a shell
_FOLDER = re.compile(r"(?!-)[\w.~+@-]+")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_BEHIND = "what is behind its # is none of egg=NAME and subdirectory=FOLDER"


class GitAddress(NamedTuple):
    """A git address: a repository, and a branch, tag or commit of it; empty: where its HEAD points."""

    url: str
    revision: str = ""
    subdirectory: str = ""  #: the project's folder in the repository; empty: the repository itself
    egg: str = ""  #: the name that the project has to have

    @property
    def written(self) -> str:
        """The whole address, as `read` takes it."""
        revision = f"@{self.revision}" if self.revision else ""
        named = {"egg": self.egg, "subdirectory": self.subdirectory}
        fragment = "&".join(f"{key}={value}" for key, value in named.items() if value)
        return self.url + revision + (f"#{fragment}" if fragment else "")

    @property
    def folder(self) -> str:
        """The path of a repository on this machine; empty for one of a server."""
        return self.url.removeprefix("file://") if self.url.startswith("file://") else ""


def read(text: str) -> GitAddress:
    """Return the parts of `URL@REVISION#egg=NAME&subdirectory=FOLDER`, of which all but the first may be absent.

    As pip has it, an `@` before the path is a user's, and the last one of the path a revision's. Raises ValueError
    with what is wrong, as a clause.
    """
    place, _, fragment = text.partition("#")
    before, path, revision = _divided(place)
    if not revision and place.endswith("@"):
        raise ValueError("it ends with an @, and names no commit")
    url, named = repository(before + path), _named(fragment)
    folder, egg = _subdirectory(named.get("subdirectory", "")), named.get("egg", "")
    if "[" in egg:
        raise ValueError("extras of a repository are not read: name what they need beside it")
    if egg and not _NAME.fullmatch(egg):
        raise ValueError("its egg= is not the name of a package")
    return GitAddress(url, checked_revision(revision) if revision else "", folder, egg)


def repository(text: str) -> str:
    """Return an address without a revision, written again from its parts. Raises ValueError, as `read` does."""
    if by_ssh := _BY_SSH.fullmatch(text):
        if not by_ssh["path"].strip("/"):
            raise ValueError("it has no path of a repository")
        return f"{by_ssh['user']}@{by_ssh['host']}:{by_ssh['path']}"
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(_fault(text))
    scheme, host, path = match["scheme"], match["host"] or "", match["path"] or ""
    if scheme == "file":
        if match["user"] or match["port"] or host not in _WITHOUT_HOST:
            raise ValueError("a file: address names no host, user or port: file:///PATH")
        if not path.strip("/"):
            raise ValueError("it has no path of a repository")
        return f"file://{path}"
    if not host:
        raise ValueError("it names no host")
    if not path.strip("/"):
        raise ValueError("it has no path of a repository")
    if match["password"] is not None and scheme != "https":
        raise ValueError("a password goes with https alone")
    if match["user"] and scheme == "git":
        raise ValueError("git: knows no users")
    password = "" if match["password"] is None else f":{match['password']}"
    user = f"{match['user']}{password}@" if match["user"] else ""
    port = f":{int(match['port'])}" if match["port"] else ""
    return f"{scheme}://{user}{host}{port}{path}"


def checked_revision(text: str) -> str:
    """Return the name of a branch, tag or commit. Raises ValueError for what git's own rules of names exclude."""
    if not _REVISION.fullmatch(text) or ".." in text or "//" in text or text.endswith((".lock", "/", ".")):
        raise ValueError(f"{text[:80]!r} is not a name of a branch, tag or commit")
    return text


def relative(base: str, text: str) -> str:
    """Return the address that `./PATH` or `../PATH` means in the repository at `base`, as git reads .gitmodules.

    Raises ValueError for what leads above the server's root.
    """
    root = re.match(r"[a-z]+://[^/]*|[^/:]*:", base)
    start = root[0] if root else ""
    parts = [part for part in base.removeprefix(start).split("/") if part]
    rest = text
    while rest.startswith(("./", "../")):
        if rest.startswith("../"):
            if not parts:
                raise ValueError(f"{text[:80]!r} leads above the root of the server")
            parts.pop()
        rest = rest.partition("/")[2]
    slash = "/" if "://" in start or base.removeprefix(start).startswith("/") else ""
    return repository(f"{start}{slash}{'/'.join([*parts, rest])}")


def _named(fragment: str) -> dict[str, str]:
    """Read what pip takes behind the `#` of a git address. Raises ValueError."""
    pairs = [part.partition("=") for part in fragment.split("&")] if fragment else []
    named = {key: value for key, _, value in pairs}
    if len(named) < len(pairs) or not all(named.values()) or named.keys() - {"egg", "subdirectory"}:
        raise ValueError(_BEHIND)
    return named


def _subdirectory(text: str) -> str:
    """Return a folder of a repository, without `.` and empty parts. Raises ValueError for one that leads out of it."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    is_git = any(part.lower().rstrip(". ") == ".git" for part in parts)
    if text.startswith("/") or is_git or not all(part != ".." and _FOLDER.fullmatch(part) for part in parts):
        raise ValueError("its subdirectory= is not a folder below the repository")
    return "/".join(parts)


def _divided(place: str) -> tuple[str, str, str]:
    """Divide an address into what stands before the path, the path, and the revision."""
    scheme, separator, rest = place.partition("://")
    if separator:
        host, slash, path = rest.partition("/")
        before = f"{scheme}://{host}{slash}"
    else:  # USER@HOST:PATH
        host, colon, path = place.partition(":")
        before = f"{host}{colon}"
    address, at, revision = path.rpartition("@")
    return (before, address, revision) if at else (before, path, "")


def _fault(text: str) -> str:
    """Explain why an address is invalid, as a clause that repeats nothing of it but its scheme."""
    if not text.isprintable():
        return "it has a control character or another that is not printed"
    scheme, separator, _ = text.partition("://")
    if separator and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) and scheme not in SCHEMES:
        return f"{scheme}: is not among what is fetched: {_FORMS}"
    return f"it is not written as an address: {_FORMS}, without spaces, quotes and what a shell has a meaning for"
