"""`python -m debroot lock SUITE PACKAGE… > FILE`, `python -m debroot make FILE ROOT`: a root filesystem from a lock."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

from debroot import boxed, web
from debroot.distributions import DEBIAN, SUITES
from debroot.errors import DebrootError
from debroot.install import Hands, Machine, install
from debroot.lists import PackageLists
from debroot.lock import Lock, decode
from debroot.mirrors import Archives, addresses, archives
from debroot.normalise import entries, private_keys, write_tar, written_files
from debroot.reading import inflated
from debroot.release import SignedRelease, SuiteSource, seconds

#: what dpkg's scripts call before they can say that they need it, and what finds packages later
_ALWAYS = ("base-files", "base-passwd", "usr-is-merged")
_LARGEST_RELEASE = 16 << 20  #: bytes
_LOADERS = {"amd64": "lib64", "arm64": "lib"}  #: folder in / of the loader, by dpkg's names
_THREADS = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, or 1 with a sentence on stderr."""
    given = _parser().parse_args(arguments)
    try:
        given.run(given)
    except DebrootError as error:
        sys.stderr.write(f"debroot: {error}\n")
        return 1
    except (OSError, RecursionError) as error:  # the last: a script left thousands of folders in folders
        sys.stderr.write(f"debroot: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("debroot", description="Make a Debian root filesystem from a lock.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    lock = commands.add_parser("lock", help="write a lock of a suite's packages of today to stdout")
    lock.add_argument("suite", choices=list(SUITES))
    lock.add_argument("packages", nargs="+", metavar="package", help="what all of it has to have, such as bash")
    lock.add_argument("--architecture", choices=list(_LOADERS), default="amd64")
    lock.set_defaults(run=_lock)
    make = commands.add_parser("make", help="make the root filesystem of a lock")
    make.add_argument("lock", type=Path)
    make.add_argument("root", type=Path, help="a folder that is not there yet")
    make.add_argument("--tar", type=Path, metavar="FILE", help="write it as a tar, too: the same bytes anywhere")
    make.add_argument("--debs", type=Path, metavar="FOLDER", help="keep the packages there; fetched once")
    make.set_defaults(run=_make)
    return parser


def _servers() -> Archives:
    return archives(os.environ, DEBIAN, SUITES)


def _lock(given: argparse.Namespace) -> None:
    servers, suite = _servers(), given.suite
    main = [SuiteSource(mirror.main, suite) for mirror in servers.listing if mirror.main]
    fixes = [SuiteSource(mirror.security, f"{suite}-security") for mirror in servers.listing if mirror.security]
    updates = [source._replace(suite=f"{suite}-updates") for source in main]
    times, texts = list[str](), list[bytes]()
    for sources in (main, updates, fixes):
        release, text = _list(sources, given.architecture)
        times.append(release.time)
        texts.append(text)
    lists = PackageLists(f"{DEBIAN.title} {suite}", texts[:2], texts[2:])
    always = [name for name in _ALWAYS if any(True for _ in lists.available([name]))]
    packages = lists.resolve([*always, *given.packages], "the command line")
    sys.stdout.write(Lock(suite, given.architecture, max(times), packages).encode())


def _list(sources: Sequence[SuiteSource], architecture: str) -> tuple[SignedRelease, bytes]:
    """The first of these sources that has its list of packages, signed. Raises the error of the last one."""
    failure = DebrootError("no mirror is named", next_step="DEBIAN_MIRROR=http://a-mirror/debian")
    for source in sources:
        try:
            document = web.read(f"{source.url}/InRelease", _LARGEST_RELEASE)
            release = SignedRelease.checked(document, source, time.time(), DEBIAN)
            listed = release.file(f"main/binary-{architecture}/Packages")
            if listed is None:
                raise DebrootError(f"{source.url} has no packages for {architecture}")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "list")
                web.download([listed.address], path, listed.size, listed.sha256)
                packed = BytesIO(path.read_bytes())
            return release, b"".join(inflated(listed.name, listed.packing, packed, listed.size))
        except DebrootError as error:
            failure = error
            sys.stderr.write(f"{error.what}; asking the next mirror\n")
    raise failure


def _make(given: argparse.Namespace) -> None:
    lock = decode(given.lock.read_text("utf-8"))
    if lock.suite not in SUITES or lock.architecture not in _LOADERS:
        raise DebrootError(f"no root filesystem is made of {lock.suite} for {lock.architecture}")
    root: Path = given.root.absolute()
    if os.path.lexists(root):
        raise DebrootError(f"{root} is there already", next_step="name a folder that is not")
    root.parent.mkdir(parents=True, exist_ok=True)
    epoch = int(seconds(lock.listed))
    with tempfile.TemporaryDirectory(prefix=".debroot-", dir=root.parent, ignore_cleanup_errors=True) as folder:
        work, made = Path(folder, "work"), Path(folder, "root")
        work.mkdir()
        debs = _fetched(lock, given.debs or Path(folder, "debs"))
        owners = install(
            debs,
            made,
            work,
            Hands(boxed.run),
            layout=SUITES[lock.suite],
            epoch=epoch,
            machine=Machine(lock.architecture, _LOADERS[lock.architecture]),
        )
        for key in (keys := private_keys(made)):
            sys.stderr.write(f"warning: /{key} is a private key that a package made: each copy would have it\n")
        if given.tar:
            written = written_files(made, lock.suite, DEBIAN)
            tar: Path = given.tar.absolute()
            with tempfile.TemporaryDirectory(prefix=".debroot-", dir=tar.parent) as beside:
                partial = Path(beside, "tar")
                with partial.open("wb") as file:
                    write_tar(entries(made, owners, written, set(keys).__contains__), file, epoch)
                partial.replace(tar)
        made.rename(root)


def _fetched(lock: Lock, folder: Path) -> list[Path]:
    """The lock's packages, fetched where they are not in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    servers = _servers()

    def fetch(number: int) -> Path:
        package = lock.packages[number]
        path = folder / package.file
        if not path.is_file() or not web.is_whole(path, package.size, package.sha256):
            web.download(addresses(package.path, lock.listed, servers), path, package.size, package.sha256)
        return path

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(fetch, range(len(lock.packages))))


if __name__ == "__main__":
    sys.exit(main())
