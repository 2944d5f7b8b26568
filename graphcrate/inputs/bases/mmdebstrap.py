"""mmdebstrap: from a folder of .debs to the tar of a root file system, as root or in a user namespace."""

import contextlib
import hashlib
import os
import platform
import pwd
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from graphcrate.host import process, settings
from graphcrate.host.atomic import locked
from graphcrate.inputs.bases.apt import ARCHITECTURE, REGISTRY_INSTEAD
from graphcrate.model.errors import HostError
from graphcrate.model.lock import DebianBase
from graphcrate.model.plan import LAYER_MTIME

#: Folders that are links into /usr; from trixie on a package brings them.
MERGE_USR = 'cd "$1" && for name in bin sbin lib lib64; do mkdir -p "usr/$name" && ln -s "usr/$name" "$name"; done'
MERGED_HERE = ("bullseye", "bookworm")
#: Python 3.9 writes sets into bytecode in the order of hashes, and Debian's scripts compile with -E, deaf to the seed.
#: So what they made is made once more.
COMPILED_HERE = ("bullseye",)
COMPILE = """\
import pathlib, py_compile, sys
end = f".{sys.implementation.cache_tag}.pyc"
for made in sorted(pathlib.Path("/usr/lib").rglob(f"__pycache__/*{end}")):
    source = made.parent.parent / f"{made.name.removesuffix(end)}.py"
    py_compile.compile(str(source), str(made), doraise=True)
"""
#: The fields of each .deb, as a Packages file has them; its size and hash are added here.
FIELDS = 'for deb; do dpkg-deb -f "$deb" && printf "Filename: ./%s\\n\\n" "$deb" || exit 1; done'
PREFIX = "graphcrate-base-"
MEMORY_FOLDER = Path("/dev/shm")
MEMORY_NEEDED = 2_000_000_000  #: bytes that must be free for the work to lie in memory
ROOM_NEEDED = 600_000_000  #: bytes on its file system
TIMEOUT = 1800.0


def check_host() -> None:
    """Raises HostError, with what to type, when mmdebstrap cannot work here."""
    if platform.machine() != "x86_64":
        raise HostError(f"a base for x86-64 cannot be made on {platform.machine()}", next_step=REGISTRY_INSTEAD)
    if process.find("mmdebstrap") is None:
        raise HostError(
            "mmdebstrap is not installed",
            cause="It makes the Debian system under the wheels.",
            next_step=f"apt-get install mmdebstrap    ({REGISTRY_INSTEAD})",
        )
    if os.geteuid() == 0:
        return
    if process.find("newuidmap") is None:
        raise HostError(
            "newuidmap is not installed",
            cause="A plain user needs it to make a Debian system with several owners of files.",
            next_step=f"apt-get install uidmap    ({REGISTRY_INSTEAD})",
        )
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    for kind in ("subuid", "subgid"):
        path = Path("/etc", kind)
        if not has_range(path.read_text() if path.is_file() else "", user, uid) and not _range_elsewhere(kind, user):
            raise HostError(
                f"{user} has no range of subordinate ids in {path}",
                cause="A plain user needs one to make a Debian system with several owners of files.",
                next_step=f"as root: echo {user}:100000:65536 | tee -a /etc/subuid /etc/subgid    ({REGISTRY_INSTEAD})",
            )


def _range_elsewhere(kind: str, user: str) -> bool:
    """Whether a directory service gives a range (nsswitch.conf(5), `subid`)."""
    if process.find("getsubids") is None:
        return False
    return process.run(["getsubids", *(["-g"] if kind == "subgid" else []), user], timeout=60).returncode == 0


def has_range(text: str, user: str, uid: int) -> bool:
    """Whether /etc/subuid or /etc/subgid gives this user enough numbers (subuid(5): `name-or-uid:first:count`)."""
    for line in text.splitlines():
        owner, _, rest = line.strip().partition(":")
        count = rest.partition(":")[2]
        if owner in (user, str(uid)) and count.isdigit() and int(count) >= 65536:
            return True
    return False


def install(
    lock: DebianBase,
    debs: Sequence[Path],
    tar: Path,
    room: Path,
    environment: Mapping[str, str],
    note: Callable[[str], None],
) -> None:
    """Write the tar of a system with these packages, whose hashes the caller has checked.

    Works in memory where there is plenty, else under `room` (root) or in the temporary folder (plain user: the
    cache may lie in a home folder that other numbers of the user namespace cannot enter). Raises BuildError.
    """
    variables = settings.select_for_child(environment) | {
        "SOURCE_DATE_EPOCH": str(LAYER_MTIME),
        "PYTHONHASHSEED": "0",  # the order of constants in bytecode
    }
    with _scratch(room, variables) as scratch:
        repository = scratch / "debs"
        repository.mkdir(mode=0o755)
        for deb in debs:
            shutil.copyfile(deb, repository / deb.name)
        _write_index(repository, variables)
        for path in (scratch, *scratch.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        argv = command(lock, repository, tar)
        done = process.run(
            # the umask goes into the modes of what maintainers' scripts make
            ["sh", "-c", 'umask 022 && exec "$@"', "sh", *_guard(variables), *argv],
            environment=variables | {"TMPDIR": str(scratch)},
            on_line=lambda line: _tell(line, note),
            timeout=TIMEOUT,
        )
    if done.returncode:
        raise process.failure(argv[:3], done.returncode, done.lines)


def _guard(environment: Mapping[str, str]) -> list[str]:
    """What makes mmdebstrap clean up and end when this process is killed, and keeps its mounts to itself.

    As root it mounts /dev and /sys into its folder, in the mount namespace that it finds itself in.
    """
    ends_with_us = ["setpriv", "--pdeathsig", "TERM", "--"]
    own_mounts = ["unshare", "--mount", "--"]
    if os.geteuid() == 0 and process.run([*own_mounts, "true"], environment=environment).returncode == 0:
        return [*ends_with_us, *own_mounts]
    return ends_with_us


def command(lock: DebianBase, repository: Path, tar: Path) -> list[str]:
    """mmdebstrap's command line. The repository is trusted because every file in it was checked."""
    mode = "root" if os.geteuid() == 0 else "unshare"
    argv = ["mmdebstrap", f"--mode={mode}", "--variant=apt", "--format=tar", f"--architectures={ARCHITECTURE}"]
    argv += [f"--include={','.join(package.name for package in lock.packages)}"]
    argv += ["--dpkgopt=force-unsafe-io"]  # a system that is thrown away when the machine fails need not be synced
    argv += ["--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Languages none"]
    if lock.suite in MERGED_HERE:
        argv += [f"--setup-hook={MERGE_USR}"]
    if lock.suite in COMPILED_HERE:
        fixed = f"env -i PYTHONHASHSEED=0 SOURCE_DATE_EPOCH={LAYER_MTIME} LC_ALL=C.UTF-8"
        argv += [f'--customize-hook=chroot "$1" {fixed} /usr/bin/python3 -S -c {shlex.quote(COMPILE)}']
    return [*argv, "", str(tar), f"deb [trusted=yes] copy://{repository} ./"]


def _write_index(repository: Path, environment: Mapping[str, str]) -> None:
    """Write `Packages`, apt's list of a folder of .debs."""
    names = sorted(path.name for path in repository.iterdir())
    fields = process.output(["sh", "-c", FIELDS, "sh", *names], environment=environment, cwd=repository, timeout=300)
    stanzas = [stanza for stanza in fields.split("\n\n") if stanza.strip()]
    with (repository / "Packages").open("w", encoding="utf-8") as index:
        for name, stanza in zip(names, stanzas, strict=True):
            data = (repository / name).read_bytes()
            index.write(f"{stanza.strip()}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n")


def _tell(line: str, note: Callable[[str], None]) -> None:
    kind, _, text = line.partition(": ")
    if kind == "I" and text.startswith(("extracting", "installing", "creating")):
        note(f"base: {text.rstrip('.')}")


@contextlib.contextmanager
def _scratch(room: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """A folder for the work, removed at the end; what a killed run left is removed first."""
    plain = os.geteuid() != 0
    parent = _parent(Path(environment.get("TMPDIR", tempfile.gettempdir())) if plain else room)
    for old in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), locked(old):
            _remove(old, environment)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with locked(folder):
            yield folder
    finally:
        _remove(folder, environment)


def _parent(otherwise: Path) -> Path:
    """/dev/shm where there is memory to spare: dpkg syncs so often that a busy disk takes four times as long."""
    try:
        status = os.statvfs(MEMORY_FOLDER)
        free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return otherwise
    usable = os.access(MEMORY_FOLDER, os.W_OK) and not status.f_flag & os.ST_NOEXEC
    plenty = int(free.split()[1]) * 1024 >= MEMORY_NEEDED and status.f_bavail * status.f_frsize >= ROOM_NEEDED
    return MEMORY_FOLDER if usable and plenty else otherwise


def _remove(folder: Path, environment: Mapping[str, str]) -> None:
    """Also where files in it belong to a plain user's subordinate numbers, which only a user namespace can remove.

    Never where something is mounted in it, which would be the machine's own /dev.
    """
    if f" {folder}/" in Path("/proc/self/mountinfo").read_text():
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and os.geteuid() != 0:
        process.run(["mmdebstrap", "--unshare-helper", "rm", "-rf", "--", str(folder)], environment=environment)
        shutil.rmtree(folder, ignore_errors=True)
