"""Crates of sources in Rust: into the cache by the hash that Cargo.lock has, from crates.io or a mirror of it."""

import re
import urllib.parse
from collections.abc import Callable, Iterator, Sequence

from graphcrate.compat.facts.crates import Crate
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.net import HttpError
from graphcrate.host.parallel import Advance, parallel
from graphcrate.model.command import AGAIN
from graphcrate.model.errors import GraphcrateError, IntegrityError, NetworkError, UsageError
from graphcrate.model.limits import CRATE_FILE
from graphcrate.model.lock import LockedCrate, LockedFile
from graphcrate.resolve.sources.failures import source_name
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.search import FEW
from graphcrate.resolve.sources.wheel_mirrors import MIRRORS, asks_public_mirrors, mirror_of
from patienthttp.retry import TRIES

THREADS = 6
MIRROR = "CRATES_MIRROR"
CRATES_IO = "https://static.crates.io/crates/{crate}/{crate}-{version}.crate"
#: of ByteDance, which has nothing but crates
RSPROXY = "https://rsproxy.cn/api/v1/crates"
PUBLIC = (*(mirror.crates for mirror in MIRRORS.values() if mirror.crates), RSPROXY)
_MARK = re.compile(r"\{(crate|version|prefix|lowerprefix|sha256-checksum)\}")
_ABSENT = 404


def lock_crates(crates: Sequence[Crate], sources: Sources, title: str) -> tuple[LockedCrate, ...]:
    """Bring all of them into the cache, side by side, since no list states their sizes. Raises as `fetch_crate`.

    `title`: what is compiled with them.
    """
    if absent := sum(not sources.cache.file(crate.sha256, crate.file).is_file() for crate in crates):
        sources.note(f"fetching {absent} crates of {title}")
    return tuple(parallel(lambda crate, advance: _lock(crate, sources, title, advance), crates, threads=THREADS))


def _lock(crate: Crate, sources: Sources, title: str, advance: Advance) -> LockedCrate:
    cache = sources.cache
    path = cache.file(crate.sha256, crate.file)
    if not (path.is_file() and sha256_of(path) == crate.sha256):
        with cache.guard(), cache.folder() as folder:
            arriving = folder / "file"

            def get(url: str, tries: int) -> None:
                arriving.unlink(missing_ok=True)
                sources.client.download(
                    url,
                    arriving,
                    size=None,
                    sha256=crate.sha256,
                    most=CRATE_FILE,
                    advance=lambda _: advance(0),
                    tries=tries,
                )

            fetch_crate(crate, sources, get, title)
            cache.adopt(arriving, path)
    file = LockedFile(name=crate.file, size=path.stat().st_size, sha256=crate.sha256)
    return LockedCrate(name=crate.name, version=crate.version, file=file)


def fetch_crate(
    crate: Crate, sources: Sources, get: Callable[[str, int], None], title: str = "a source in Rust"
) -> None:
    """Have `get` fetch a crate, which gets an address and how often to try, from the first server that has its bytes.

    Raises NetworkError where none does, IntegrityError where all give others, UsageError for an invalid mirror.
    """
    known, failures, errors = sources.failures, list[str](), list[GraphcrateError]()
    for template, is_public in _templates(sources):
        url = address(template, crate)
        server = source_name(url)
        if error := known.knocked(sources.client, url) if is_public else known.silent.get(server):
            failures.append(error.what)
            continue
        try:
            get(url, FEW if is_public else TRIES)
            return
        except (NetworkError, IntegrityError) as failed:
            errors.append(failed)
            failures.append(failed.what)
            known.remember(server, failed)
    raise _nowhere(crate, title, failures, errors)


def _nowhere(crate: Crate, title: str, failures: Sequence[str], errors: Sequence[GraphcrateError]) -> GraphcrateError:
    tried = "".join(f"\n    {failure}" for failure in dict.fromkeys(failures))
    what = f"no server gives the crate {crate.name} {crate.version}, with which {title} is compiled{tried}"
    next_step = f"{MIRROR}={RSPROXY} {AGAIN}    (or another mirror: what its config.json has as dl)"
    if errors and all(isinstance(error, IntegrityError) for error in errors):
        cause = f"Cargo.lock of the source says sha256 {crate.sha256}, and what came has another one."
        return IntegrityError(what, cause=cause, next_step=next_step)
    cause = "No network, or a firewall before crates.io, which has what Rust is made of."
    if any(isinstance(error, HttpError) and error.failure.status == _ABSENT for error in errors):
        cause = "Cargo.lock of the source names a crate that crates.io never had, or has no more."
    return NetworkError(what, cause=cause, next_step=next_step)


def _templates(sources: Sources) -> Iterator[tuple[str, bool]]:
    """The places to look, in order, each with whether it is a public mirror of ours. Raises UsageError."""
    named = sources.environment.get(MIRROR, "").split()
    for template in named:
        parts = urllib.parse.urlsplit(template)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(
                f"{MIRROR} is {template!r}, not the address of a server",
                cause="It says where crates of Rust are, as dl does in config.json of one of cargo's registries.",
                next_step=f"{MIRROR}={RSPROXY} {AGAIN}",
            )
    first = [template for template in (*named, mirror_of(sources.request).crates, CRATES_IO) if template]
    yield from ((template, False) for template in dict.fromkeys(first))
    if asks_public_mirrors(sources.environment):
        yield from ((template, True) for template in PUBLIC if template not in first)


def address(template: str, crate: Crate) -> str:
    """A crate's address by "dl" of a registry's config.json: with markers, or ended by `/{crate}/{version}/download`.

    See "Index Configuration" in the Cargo book.
    """
    if not _MARK.search(template):
        template = f"{template.rstrip('/')}/{{crate}}/{{version}}/download"
    prefix = _prefix(crate.name)
    values = {"crate": crate.name, "version": crate.version, "prefix": prefix, "lowerprefix": prefix.lower()}
    values["sha256-checksum"] = crate.sha256
    return _MARK.sub(lambda mark: urllib.parse.quote(values[mark[1]]), template)


def _prefix(name: str) -> str:
    """The folder of a crate in a registry: "py/o3" of pyo3."""
    if len(name) > 3:
        return f"{name[:2]}/{name[2:4]}"
    return f"3/{name[0]}" if len(name) == 3 else str(len(name))
