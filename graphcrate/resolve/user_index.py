"""Which package index this user has chosen: uv's and pip's variables and files, read as those programs read them.

graphcrate names no index of its own. Where nothing is set, uv is asked for its default.
"""

import configparser
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

#: pip's configuration files of the whole machine; later ones win
SYSTEM_FILES = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
SECTIONS = ("global", "install", "download")


class UserIndexes(msgspec.Struct, frozen=True):
    """Index addresses (maybe with credentials) and folders of wheels.

    `merged`: the best version of all indexes counts, as pip has it; else the first index that knows a package.
    """

    default: str
    extra: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    merged: bool = False


def user_indexes(
    environment: Mapping[str, str],
    ask_uv: Callable[[], str],
    system_files: Sequence[Path] = SYSTEM_FILES,
) -> UserIndexes:
    """What the user has set. `ask_uv` returns the output of `uv pip compile --emit-index-url` and may not be called."""
    pip = _pip_settings(environment, system_files)
    default = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL") or pip.get("index-url", "")
    extra = [*environment.get("UV_INDEX", "").split(), *environment.get("UV_EXTRA_INDEX_URL", "").split()]
    if not default:
        default, asked = parse_emitted(ask_uv())
        extra = extra or list(asked)
    of_pip = [url for url in pip.get("extra-index-url", "").split() if url not in extra]
    # uv allows names before addresses: `internal=https://…`
    addresses = dict.fromkeys(_without_name(url) for url in [*extra, *of_pip])
    return UserIndexes(
        _without_name(default),
        tuple(address for address in addresses if address != default),
        wheel_folders(environment, system_files),
        merged=bool(of_pip) or environment.get("UV_INDEX_STRATEGY", "").startswith("unsafe"),
    )


def wheel_folders(environment: Mapping[str, str], system_files: Sequence[Path] = SYSTEM_FILES) -> tuple[str, ...]:
    """Folders among what uv's and pip's `find-links` name; starts no program."""
    places = environment.get("UV_FIND_LINKS", "").replace(",", " ").split()
    places += _pip_settings(environment, system_files).get("find-links", "").split()
    folders = [Path(place.removeprefix("file://")) for place in places if "://" not in place.removeprefix("file://")]
    return tuple(dict.fromkeys(str(folder) for folder in folders if folder.is_dir()))


def parse_emitted(text: str) -> tuple[str, tuple[str, ...]]:
    """(default index, further ones) of uv's `--index-url` and `--extra-index-url` lines."""
    found: dict[str, list[str]] = {"--index-url": [], "--extra-index-url": []}
    for line in text.splitlines():
        option, _, address = line.strip().partition(" ")
        if option in found:
            found[option] += shlex.split(address)[:1]
    return (found["--index-url"] or [""])[0], tuple(found["--extra-index-url"])


def _pip_settings(environment: Mapping[str, str], system_files: Sequence[Path]) -> dict[str, str]:
    """pip's settings: files in the order of pip's documentation, then `PIP_*` variables."""
    chosen = environment.get("PIP_CONFIG_FILE", "")
    settings: dict[str, str] = {}
    for path in [] if chosen == "/dev/null" else [*system_files, *_user_files(environment, chosen)]:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        for section in SECTIONS:
            if parser.has_section(section):
                settings |= dict(parser.items(section))
    for name in ("index-url", "extra-index-url", "find-links"):
        if value := environment.get("PIP_" + name.upper().replace("-", "_")):
            settings[name] = value
    return settings


def _user_files(environment: Mapping[str, str], chosen: str) -> list[Path]:
    files = []
    if home := environment.get("HOME"):
        settings = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
        files += [Path(home, ".pip", "pip.conf"), Path(settings, "pip", "pip.conf")]
    return [*files, Path(chosen)] if chosen else files


def _without_name(address: str) -> str:
    name, equals, rest = address.partition("=")
    return rest if equals and "/" not in name else address
