"""Indexes and folders of wheels that this user has set for uv and pip, by their own variables and files."""

import configparser
import contextlib
import itertools
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphcrate.resolve.sources.source import Source

#: pip's configuration files of the whole machine; later ones win
SYSTEM_FILES = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))


class UserIndexes(msgspec.Struct, frozen=True):
    """Index addresses (maybe with credentials), folders of wheels; `merged`: the best version of all, as in pip."""

    default: str
    extra: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    merged: bool = False
    further: tuple[Source, ...] = ()  #: that a requirements file names: asked first for what it adds


def user_indexes(environment: Mapping[str, str], emitted: str = "") -> UserIndexes:
    """Return the user's own settings, else what uv would use: `emitted` by `uv pip compile --emit-index-url`."""
    pip = _pip_settings(environment)
    default = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL") or pip.get("index-url", "")
    extra = [*environment.get("UV_INDEX", "").split(), *environment.get("UV_EXTRA_INDEX_URL", "").split()]
    if not default:
        words = shlex.split(emitted)
        options = list(itertools.pairwise(words))
        default = next((address for option, address in options if option == "--index-url"), "")
        extra = extra or [address for option, address in options if option == "--extra-index-url"]
    of_pip = [url for url in pip.get("extra-index-url", "").split() if url not in extra]
    # uv allows names before addresses: `internal=https://…`
    addresses = dict.fromkeys(_without_name(url) for url in [*extra, *of_pip])
    return UserIndexes(
        _without_name(default),
        tuple(address for address in addresses if address != default),
        wheel_folders(environment),
        merged=bool(of_pip) or environment.get("UV_INDEX_STRATEGY", "").startswith("unsafe"),
    )


def wheel_folders(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Folders among what uv's and pip's `find-links` name; starts no program."""
    locations = environment.get("UV_FIND_LINKS", "").replace(",", " ").split()
    locations += _pip_settings(environment).get("find-links", "").split()
    folders = [Path(path) for location in locations if "://" not in (path := location.removeprefix("file://"))]
    return tuple(dict.fromkeys(str(folder) for folder in folders if folder.is_dir()))


def _pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """pip's settings: files in the order of pip's documentation, then `PIP_*` variables."""
    chosen = environment.get("PIP_CONFIG_FILE", "")
    files = list(SYSTEM_FILES)
    if home := environment.get("HOME"):
        files += [Path(home, ".pip", "pip.conf")]
        files += [Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config", "pip", "pip.conf")]
    files += [Path(chosen)] if chosen else []
    parser = configparser.RawConfigParser()
    for path in [] if chosen == "/dev/null" else files:
        with contextlib.suppress(configparser.Error, UnicodeDecodeError):
            parser.read(path, encoding="utf-8")
    settings: dict[str, str] = {}
    for section in ("global", "install", "download"):
        settings |= parser[section] if parser.has_section(section) else {}
    for name in ("index-url", "extra-index-url", "find-links"):
        if value := environment.get("PIP_" + name.upper().replace("-", "_")):
            settings[name] = value
    return settings


def _without_name(address: str) -> str:
    name, equals, rest = address.partition("=")
    return rest if equals and "/" not in name else address
