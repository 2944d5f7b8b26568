"""Options shared by commands, their defaults (in graphcrate.toml here, config.toml at home), printing."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from graphcrate.cli import retyped
from graphcrate.host import settings, streams
from graphcrate.host.context import Context
from graphcrate.model import platform as platforms
from graphcrate.model import toml, words
from graphcrate.model.command import ETC, Command, command
from graphcrate.model.errors import GraphcrateError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.platform import DEFAULT, SUPPORTED, asked_for
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.words import either, listed

_LABEL = re.compile(r"cu(\d+)(\d)")  #: as PyTorch's index has it
_DIGITS = re.compile(r"[1-9]\d\d")  #: the same without its letters
_PATCH = re.compile(r"(\d+\.\d+)\.\d+")
_PROJECTS = Path("graphcrate.toml")  #: defaults of a project, in its folder


def cuda_version(text: str | None) -> str | None:
    """ "11.8" of what people write: 11.8.0, cu118, v11.8, 11,8. Raises UsageError for an empty one."""
    if text is None:
        return None
    version = text.strip().lower()
    if not version:
        raise UsageError(
            "--cuda is empty",
            cause="Most likely a variable of the shell that is not set.",
            next_step=f"{command(ETC, cuda='11.8')}, or leave it out",
        )
    version = re.sub(r"^(?:cuda)?[ -]?v?(?=\d+[.,]\d)", "", version)
    version = re.sub(r"^(\d+),(\d)", r"\1.\2", version)
    if label := _LABEL.fullmatch(version):
        return f"{label[1]}.{label[2]}"
    if _DIGITS.fullmatch(version):
        return f"{version[:2]}.{version[2]}"
    return _PATCH.sub(r"\1", version) if _PATCH.fullmatch(version) else version


def platform_name(text: str) -> str:
    """ "linux/arm64" of arm64, aarch64 or itself; nothing of nothing. Raises UsageError for an unknown one."""
    if not text.strip():
        return ""
    platform = asked_for(text)
    if platform is None:
        known = [row.name for row in SUPPORTED]
        raise UsageError(
            f"{text!r} is not a platform of images, which are made for {' and '.join(known)}",
            next_step=f"{command(ETC, platform=known[-1])}, or leave it out, for {DEFAULT.name}",
        )
    return platform.name


def platform_of(name: str) -> platforms.Platform | None:
    """The platform that `platform_name` gave; None where none was asked for."""
    return platforms.platform_named(name) if name else None


def gpu_list(gpus: list[str] | None) -> str:
    """Return GPUs that were named, once or several times, as one list; empty for none."""
    return ",".join(gpus or ())


def bytes_of(text: str) -> int | None:
    """A number of bytes as people write it (40GB, 500M, powers of ten); None of nothing. Raises UsageError."""
    if not text:
        return None
    try:
        return words.bytes_of(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a number of bytes", next_step=command(ETC, disk="40GB")) from error


Cuda = Annotated[
    str | None,
    typer.Option(
        callback=cuda_version, help='CUDA version or "cpu"; else the newest that the named machine runs, or 11.8.'
    ),
]
Platform = Annotated[
    str,
    typer.Option(callback=platform_name, help=f"What the image runs on: {' or '.join(row.name for row in SUPPORTED)}."),
]
AnyPlatform = Annotated[
    str,
    typer.Option(
        "--platform",
        callback=platform_name,
        help=f"The image for {either(row.name for row in SUPPORTED)}, of a tag for both; this machine's if left out.",
    ),
]
#: use `joined` on it
Gpus = Annotated[list[str] | None, typer.Option(help="GPU models, such as v100 or v100,a100; again for more.")]
Target = Annotated[
    str, typer.Option(help="A machine of targets/, such as dgx2, or a file like those: GPUs, driver, kernel, runtimes.")
]
Driver = Annotated[
    str, typer.Option(help="NVIDIA driver, such as 450.80.02, or the CUDA version that nvidia-smi shows.")
]
Runtime = Annotated[list[str] | None, typer.Option(help=f"{either(RUNTIMES)}; again for more.")]
RuntimeVersion = Annotated[str, typer.Option(help="Version of the one runtime; of pyxis that of enroot.")]
Kernel = Annotated[str, typer.Option(help="Kernel of the machine, such as 3.10.")]
Glibc = Annotated[str, typer.Option(help="glibc of the machine, such as 2.35.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="Where suites run; auto: a GPU where there is one.")
]
#: for what is mounted as a file: a SIF, a squashfs
MountKernel = Annotated[
    str | None,
    typer.Option(
        help="Kernel of the machine that mounts a sif: gzip before 4.14; zstd from then on, or where unknown."
    ),
]
Compression = Annotated[Literal["gzip", "zstd"] | None, typer.Option(help="Of sif, sqsh and delta; zstd if left out.")]
PlainHttp = Annotated[
    bool, typer.Option("--plain-http", help="The registry has no TLS; only in a network that you trust.")
]
TrustPaths = Annotated[
    bool,
    typer.Option(
        "--trust-paths",
        help="The recipe's file may name what is outside of its folder, and build without the sandbox where there is "
        "none: for one that you have read.",
    ),
]
SharedCache = Annotated[
    list[str] | None,
    typer.Option(
        "--cache", help="A site's shared cache of what was built: a registry's repository, a folder, a web server."
    ),
]
CacheTrust = Annotated[
    list[Path] | None,
    typer.Option(help="A public key (cosign.pub): its entries are taken; again for more."),
]
CacheKey = Annotated[
    Path | None,
    typer.Option(help="Give what is made here to it, signed with this private key."),
]
DIST = Path("dist")  #: below the folder where a command is typed, unless --output says another
Output = Annotated[Path, typer.Option(help="Folder of images.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say warnings alone, and the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Say also what is the same for each machine and build.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def of_shared(places: list[str] | None, trust: list[Path] | None, key: Path | None, share: str = "") -> dict[str, Any]:
    """Return the fields of `SourceOptions` for a shared cache. Raises UsageError for a key that is missing or idle."""
    typed = {"--cache-trust": trust, "--cache-key": key, "--cache-check": share}
    for path in (*(trust or ()), *([key] if key else ())):
        if not path.exists():
            raise UsageError(f"there is no file {path}", next_step=f"{command('keys')}    makes a pair of keys")
    idle = next((option for option, value in typed.items() if value), "")
    if idle and not places and not here().environment.get(_VARIABLES["remote_cache"]):
        step = command(ETC, cache="registry.example/team/cache")
        raise UsageError(f"{idle} is of a shared cache, and none is named", next_step=step)
    return {"cache": tuple(places or ()), "cache_trust": tuple(trust or ()), "cache_key": key, "cache_check": share}


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults of options, by their names. What the command line or a variable says goes before them."""

    mirror: str = ""
    target: str = ""  #: of `image`, where it names neither a GPU nor a driver
    to: str = ""  #: of `publish`
    cache: str = ""  #: a folder, as GRAPHCRATE_CACHE
    remote_cache: tuple[str, ...] = ()  #: places of a site's shared cache, as `image --cache`
    cache_trust: tuple[str, ...] = ()  #: paths of public keys
    cache_key: str = ""  #: the path of a private key
    cache_check: str = ""
    mounts: tuple[str, ...] = ()  #: of every `run`, as its --mount
    images: tuple[str, ...] = ()  #: more folders of images, as GRAPHCRATE_IMAGES
    bases: tuple[str, ...] = ()  #: folders of SIFs that deltas go over, as GRAPHCRATE_BASES


#: that a project's own file may not have: it may be a stranger's, and would give away folders of this user, or
#: choose whose programs are taken into their images
_USERS_OWN = ("mounts", "images", "bases", "remote_cache", "cache_trust", "cache_key", "cache_check")
#: variables that stand for a field; where they are set, they go before it
_VARIABLES = {
    "cache": "GRAPHCRATE_CACHE",
    "remote_cache": "GRAPHCRATE_REMOTE_CACHE",
    "cache_trust": "GRAPHCRATE_CACHE_TRUST",
    "cache_key": "GRAPHCRATE_CACHE_KEY",
    "cache_check": "GRAPHCRATE_CACHE_CHECK",
    "bases": "GRAPHCRATE_BASES",
}


@functools.cache
def config() -> Config:
    """Read both files, the folder's over the user's. Raises RecipeError that names file, line and field."""
    return _read(_files())


@functools.cache
def users_config() -> Config:
    """Read the user's file alone. Raises RecipeError."""
    return _read(path for path in _files() if path != _PROJECTS)


def _read(paths: Iterable[Path]) -> Config:
    values: dict[str, Any] = {}
    for path in paths:
        if path.is_file():
            fields = Config.__struct_fields__
            value = toml.load(path, Config, lambda _: (), f"its fields are {listed(fields)}")
            given = {name: field for name, field in msgspec.structs.asdict(value).items() if field}
            if path == _PROJECTS and (own := next((name for name in _USERS_OWN if name in given), "")):
                raise UsageError(
                    f"{path} has {own}, which a project's own file cannot have",
                    cause="It may be a stranger's, and would choose folders of yours, or whose builds you take.",
                    next_step="put it into ~/.config/graphcrate/config.toml",
                )
            values |= given
    return Config(**values)


def here(
    *, plain_http: bool = False, quiet: bool = False, without_security: bool = False, verbose: bool = False
) -> Context:
    """The context of a command, with the configured cache.

    `plain_http`: its registries have no TLS; `quiet`: it says warnings alone, `verbose`: all of a plan;
    `without_security`: it locks suites without a list of security updates.
    """
    context = Context.here()
    fields = [(variable, getattr(config(), name)) for name, variable in _VARIABLES.items()]
    chosen = {
        name: value if isinstance(value, str) else (":" if name == "GRAPHCRATE_BASES" else " ").join(value)
        for name, value in fields
        if value
    }
    environment = {**chosen, **context.environment}
    if plain_http:
        environment[settings.PLAIN_HTTP] = settings.ANY
    of_messages: dict[str, Any] = {"quiet": quiet, "verbose": verbose, "shown": retyped.whole}
    return Context(root=context.root, environment=environment, without_security=without_security, **of_messages)


def tidy(ctx: Context) -> None:
    """Keep the cache within its limit, after a command that may have written to it."""
    if "cache" in vars(ctx):  # it was opened
        from graphcrate.host.disk.cleaning import keep_within

        keep_within(ctx.cache, ctx.progress)


def named(ref: str, output: Path, platform: str = "", *, quiet: bool = False) -> str:
    """Return an image's whole name and say which image a short name means. Raises UsageError.

    `platform`: that was asked for.
    """
    from graphcrate.artifacts.names import full_name

    ctx, asked = here(quiet=quiet), platform_of(platform)
    place = place_of(ref, output, platform)
    name = full_name(ref, place, ctx.progress.note, asked)
    if place == output:
        return name
    from graphcrate.artifacts.locate import check_given_digest

    if "@" in name:
        check_given_digest(name, place)
    return str(place / name.partition("@")[0].replace(":", "/"))


def present(ref: str, output: Path, platform: str = "", *, quiet: bool = False) -> str:
    """Return an image's whole name, as `named`. Raises UsageError for a missing one, before other options are read."""
    from graphcrate.artifacts.locate import locate

    name = named(ref, output, platform, quiet=quiet)
    locate(name, output)
    return name


def place_of(ref: str, output: Path, platform: str = "") -> Path:
    """Return the folder of images that has this one: `output`; where that is not typed, the first place that has it."""
    from graphcrate.artifacts.names import has

    if output != DIST or Path(ref).exists():
        return output
    asked = platform_of(platform)
    return next((place for place in places_of_images() if has(ref, place, asked)), output)


def request_of_image(typed: Sequence[str]) -> Command | None:
    """Return the command for the image that the words of another one name, as its report has it; None without one."""
    from graphcrate.artifacts.locate import find_image
    from graphcrate.artifacts.names import full_name
    from graphcrate.compat.variants.request import BuildRequest

    for word in typed[1 : typed.index("--") if "--" in typed else None]:
        with contextlib.suppress(GraphcrateError, OSError):
            place = place_of(word, DIST)
            report = find_image(full_name(word, place), place)[1]
            return BuildRequest.again(report.asked).command() if report.asked else None
    return None


def places_of_images() -> tuple[Path, ...]:
    """Return the folders of images: of this folder, of GRAPHCRATE_IMAGES, of the user's configuration, of the clone."""
    ctx = here()
    named = ctx.environment.get("GRAPHCRATE_IMAGES", "").split(":")
    others = [Path(text).expanduser().absolute() for text in (*named, *users_config().images) if text]
    clone = [ctx.root / DIST] if ctx.is_checkout else []
    once: dict[str, Path] = {}
    for folder in (DIST, *others, *clone):
        once.setdefault(os.path.realpath(folder), folder)
    return tuple(once.values())


def _files() -> Iterator[Path]:
    environment = settings.environment()
    home = settings.home(environment)
    if folder := environment.get("XDG_CONFIG_HOME") or (home and home / ".config"):
        yield Path(folder, "graphcrate", "config.toml")
    yield _PROJECTS


def write(value: Any, text: str, *, as_json: bool) -> None:  # noqa: ANN401 (what msgspec encodes)
    """Print a command's result: one JSON value, or text. What it says on stderr afterwards comes after it."""
    if as_json:
        streams.write_utf8()
    sys.stdout.write(encode(value).decode() if as_json else retyped.whole(text))
    sys.stdout.flush()
