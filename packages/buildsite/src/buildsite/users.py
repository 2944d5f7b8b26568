"""Users of a site: a file with their tokens and limits. Only hashes of tokens are in it.

[limits]                # of each user without some of their own
queue = 4               # plans and builds that wait or run
minutes = 120           # that a build, or a file of an image, may take
disk = "200GB"          # of images that they had built; those used least go

[user.ada]
token = "9f86d0…"       # sha256 of the token, which `serve --new-token ada` prints
queue = 8
"""

import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from graphcrate.host.disk import private
from graphcrate.host.disk.atomic import writing
from graphcrate.model import toml, words
from graphcrate.model.errors import HostError, RecipeError, UsageError

_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$"
_FIELDS = "its tables are [limits] and [user.NAME], with queue, minutes, disk, and token of a user"
_BYTES = 32  #: of a token: too many to guess, so a plain hash of it tells nothing
_PREFIX = "graphcrate_"  #: by which programs that look for secrets know one
LONGEST_TOKEN = 200

UserName = Annotated[str, msgspec.Meta(pattern=_NAME)]


class UserLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of a user; None: as `[limits]` has it, and where that has none, as `DEFAULTS`."""

    queue: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    minutes: Annotated[float, msgspec.Meta(gt=0, le=10_000)] | None = None
    disk: str | None = None


class UserRow(UserLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user: how they are known, and limits of their own."""

    token: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""


class UserList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    limits: UserLimits = UserLimits()
    user: Mapping[UserName, UserRow] = {}


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a user as they hold. `disk`: bytes; None: as many as there are."""

    queue: int = 100
    minutes: float = 720.0
    disk: int | None = None


DEFAULTS = Allowed()  #: of a site without a list


class LimitError(HostError, of_machine=False):
    """A user's queue is full."""


class Users:
    """The list as it stands in its file now; without a file there are no tokens."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises UsageError, RecipeError and HostError for a file that cannot be taken."""
        self._path, self._read, self._list = path, (0, 0), UserList()
        self.refresh()

    @property
    def has_tokens(self) -> bool:
        """Return whether there is a list."""
        return self._path is not None

    def refresh(self) -> None:
        """Read the file where it has changed. Raises as at the start; until it is mended it lets no one in."""
        if self._path is None:
            return
        state = _state(self._path)
        if state != self._read:
            self._list = UserList()
            self._list = _parsed(private.read(self._path, "a list of users"), str(self._path))
            self._read = state

    def of_token(self, token: str) -> str:
        """Return the user of a token; empty for an unknown one. Takes as long for each."""
        digest = hashlib.sha256(token[: LONGEST_TOKEN + 1].encode("utf-8", "replace")).hexdigest()
        user = ""
        for name, row in self._list.user.items():
            if hmac.compare_digest(row.token or "-", digest):
                user = name
        return user

    def allowed(self, name: str) -> Allowed:
        """Return a user's limits."""
        rows = (self._list.user.get(name, UserRow()), self._list.limits)
        given = {
            field: next((value for row in rows if (value := getattr(row, field)) is not None), getattr(DEFAULTS, field))
            for field in UserLimits.__struct_fields__
        }
        disk = given.pop("disk")
        return Allowed(**given, disk=words.bytes_of(disk) if disk else None)


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, -1
    return status.st_ino, status.st_mtime_ns


def _parsed(text: str, name: str) -> UserList:
    return toml.parse(text, name, UserList, _contradictions, _FIELDS)


def _contradictions(users: UserList) -> Iterator[tuple[str, str]]:
    rows = {"limits": users.limits, **{f"user.{name}": row for name, row in users.user.items()}}
    for path, row in rows.items():
        try:
            words.bytes_of(row.disk or "0")
        except ValueError:
            yield f"{path}.disk", f'{row.disk!r} is not a number of bytes, such as "200GB"'
    hashes = [row.token for row in users.user.values() if row.token]
    for name, row in users.user.items():
        if hashes.count(row.token) > 1:
            yield f"user.{name}.token", "another user has the same"


def is_name(text: str) -> bool:
    """Return whether a text may be a user's name."""
    return re.fullmatch(_NAME, text) is not None and "\n" not in text


def new_token(path: Path, name: str) -> str:
    """Give a user a new token, which replaces an older one, and return it; the file keeps its hash. Made if absent.

    Raises UsageError, RecipeError and HostError.
    """
    if not is_name(name):
        raise UsageError(
            f"{name!r} is not a name of a user",
            cause="It has letters, digits and _ . @ + -, at most 64.",
            next_step="--new-token ada",
        )
    text = private.read(path, "a list of users") if path.exists() else ""
    users = _parsed(text, str(path))
    token = _PREFIX + secrets.token_urlsafe(_BYTES)
    entry = f'token = "{hashlib.sha256(token.encode()).hexdigest()}"'
    header = f"[user.{name}]" if re.fullmatch(r"[\w-]+", name) else f'[user."{name}"]'
    row = users.user.get(name)
    if row is None:
        changed = "\n".join(part for part in (text.rstrip("\n"), f"{header}\n{entry}") if part) + "\n"
    elif row.token:
        changed = text.replace(row.token, entry[-65:-1])
    else:
        changed = text.replace(header, f"{header}\n{entry}", 1)
    if not _has(changed, name, entry[-65:-1]):
        raise UsageError(
            f"{path}: the row of {name} cannot be changed here", next_step=f"give it a table of its own: {header}"
        )
    with writing(path, mode=0o600) as part:
        part.touch(0o600)
        part.write_text(changed, encoding="utf-8")
    return token


def _has(text: str, name: str, digest: str) -> bool:
    with contextlib.suppress(RecipeError):
        row = _parsed(text, "").user.get(name)
        return row is not None and row.token == digest
    return False
