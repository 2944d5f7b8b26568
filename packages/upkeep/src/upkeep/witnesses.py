"""Witnesses of hashes (`compat/data/witnesses.toml`), out of lock files of others that a maintainer hands over.

Read are uv.lock, poetry.lock, pylock.toml, Pipfile.lock, requirements with hashes, and lists of addresses with hashes
as nixpkgs has them. Some name a hash's file; others have one set for all files of a version, which confirms a file
that is known and names none. Taken are wheels of PyTorch's channel for Linux: their names have a local part.
"""

import base64
import binascii
import json
import re
import tomllib
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import pairs
from graphcrate.compat.facts.witnesses import Witnessed
from graphcrate.host.disk import atomic
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, IntegrityError, UsageError
from graphcrate.model.values import is_sha256
from graphcrate.resolve.sources.target import project_and_version

TABLE = Path("graphcrate", "compat", "data", "witnesses.toml")
LARGEST = 64 << 20  #: bytes of a lock file
_PROJECTS = frozenset({"torch", *pairs.NAMES})
#: an address or name of a wheel, then its hash before the next one: in a list of nixpkgs, or in a requirement
_NAMED = re.compile(r"([^\s\"'/#]+\.whl)\b(?:(?!\.whl\b)[^}]){0,80}?\bsha256[-=:]+([A-Za-z0-9+/=]{43,64})")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)((?:.*\\\n)*.*)$", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Found(msgspec.Struct, frozen=True):
    """A lock's hashes: of files by name, and of a version (project, version) as a set."""

    named: dict[str, str]
    sets: dict[tuple[str, str], frozenset[str]]


def hashes_of(content: bytes) -> Found:
    """Read a lock file of any of these forms; what is no hash of a wheel is passed over."""
    text = content.decode("utf-8", "replace")
    named: list[tuple[str, str]] = []
    sets: list[tuple[str, str, frozenset[str]]] = []
    if (document := _document(text)) is not None:
        for key, value in _tables(document):
            name = str(value.get("url") or value.get("file") or value.get("name") or "")
            given = value.get("hashes")
            hashes = given if isinstance(given, dict) else {}
            named.append((name, str(value.get("hash") or hashes.get("sha256") or "").removeprefix("sha256:")))
            if isinstance(given, list):
                version = str(value.get("version", "")).removeprefix("==")
                sets.append((key, version, frozenset(str(line).removeprefix("sha256:") for line in given)))
    else:
        named += [(name, _hex(value)) for name, value in _NAMED.findall(text)]
        sets += [(name, version, frozenset(_HASH.findall(rest))) for name, version, rest in _PINNED.findall(text)]
    files = {urllib.parse.unquote(name.partition("#")[0].rpartition("/")[2]): sha256 for name, sha256 in named}
    return Found(
        {name: sha256 for name, sha256 in files.items() if _is_wanted(name) and is_sha256(sha256)},
        {(str(canonicalize_name(name)), version): hashes for name, version, hashes in sets if hashes},
    )


def merged(rows: Iterable[Witnessed], stated: Found, witness: str) -> tuple[list[Witnessed], list[str]]:
    """Add a witness to the rows whose hashes it has, and rows that it names; return them, and a line on each change.

    Raises IntegrityError where it has another hash for a file that is known.
    """
    known = {row.name: row for row in rows}
    lines: list[str] = []
    for name, sha256 in stated.named.items():
        row = known.setdefault(name, Witnessed(name=name, sha256=sha256, witnesses=()))
        if row.sha256 != sha256:
            raise IntegrityError(
                f"{witness} has another hash for {name}\n    {sha256}\n    not {row.sha256}, as "
                + " and ".join(row.witnesses),
                cause="One of these locks is wrong, or the file was replaced between them.",
                next_step="find out which it is before either is believed",
            )
    for name, row in known.items():
        project, version = project_and_version(name) or ("", "")
        is_member = row.sha256 in stated.sets.get((project, str(version)), ())
        if (name in stated.named or is_member) and witness not in row.witnesses:
            witnesses = tuple(sorted({*row.witnesses, witness}, key=str.lower))
            known[name] = msgspec.structs.replace(row, witnesses=witnesses)
            lines.append(f"{name}: {len(known[name].owners)} independent")
    return sorted(known.values(), key=lambda row: row.name), lines


def update(paths: Sequence[Path], repository: str, commit: str, folder: Path, root: Path, *, check: bool) -> list[str]:
    """Take what lock files say into the table, unless it is only to be checked; return a line on each change.

    Paths are those of the repository, whose files are below `folder`. Raises UsageError, IntegrityError.
    """
    target = root / TABLE
    before = target.read_text(encoding="utf-8")
    rows = [row for part in codec.convert(tomllib.loads(before), dict[str, list[Witnessed]]).values() for row in part]
    lines: list[str] = []
    for path in paths:
        try:
            with (folder / path).open("rb") as stream:
                content = stream.read(LARGEST + 1)
            witness = f"{repository}:{path.as_posix()}@{commit}"
            codec.convert({"name": "x", "sha256": "0" * 64, "witnesses": [witness]}, Witnessed)
            stated = hashes_of(content[:LARGEST])
        except (OSError, *UNREADABLE) as error:
            raise UsageError(
                f"{path} of {repository} at {commit} is not a witness: {error}",
                cause="A witness is a file below --folder, by its path in a repository OWNER/NAME, at a commit of 40 "
                "digits.",
                next_step="name all three: python -m upkeep witnesses uv.lock --repository OWNER/NAME --commit COMMIT",
            ) from error
        rows, news = merged(rows, stated, witness)
        lines += [f"{path}: {line}" for line in news] or [f"{path}: nothing new"]
    if not check:
        atomic.write_file(target, written(before, rows).encode())
    return lines


def written(before: str, rows: Sequence[Witnessed]) -> str:
    """Return the table's text with these rows, below its comments; those with one owner apart, where none is used."""
    head = "".join(line + "\n" for line in before.splitlines() if line.startswith("#") or not line).rstrip("\n")
    head = re.sub(r"\n{3,}", "\n\n", head)
    proved = [_row("file", row) for row in rows if row.is_proved]
    single = [_row("single", row) for row in rows if not row.is_proved]
    empty = [f"\n{part} = []" for part, of in (("file", proved), ("single", single)) if not of]
    return head + "".join([*empty, "\n", *proved, *single])


def _row(part: str, row: Witnessed) -> str:
    lines = [f"\n[[{part}]]", f"name = {json.dumps(row.name)}", f"sha256 = {json.dumps(row.sha256)}"]
    lines += [f"size = {row.size}"] if row.size is not None else []
    lines += ["witnesses = [", *(f"  {json.dumps(witness)}," for witness in row.witnesses), "]"]
    return "\n".join(lines) + "\n"


def _document(text: str) -> Any:  # noqa: ANN401 (of any form)
    """Return a text as TOML or JSON; None for what is neither."""
    for parse in (json.loads, tomllib.loads):
        try:
            return parse(text)
        except (ValueError, RecursionError):
            continue
    return None


def _tables(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401 (of any form)
    """Yield each table of a document with its key."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            yield key, value
            waiting += [(str(name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(key, inner) for inner in value]


def _hex(text: str) -> str:
    """Return a hash in hex, of one in hex or in base64 (SRI); "" for another."""
    if is_sha256(text):
        return text
    try:
        return base64.b64decode(text, validate=True).hex()
    except binascii.Error:
        return ""


def _is_wanted(name: str) -> bool:
    known = project_and_version(name) if name.endswith(".whl") and "linux" in name else None
    return known is not None and known[0] in _PROJECTS and known[1].local is not None
