"""The machine, seen through one door: files below a root, variables, programs with a time limit.

Tests put in a machine of their own.
"""

import contextlib
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

LIMIT = 2.0  #: seconds that a program on the host may take
#: where programs of administrators lie, which a plain user's PATH lacks
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")


class Done(NamedTuple):
    """The end of a program. `code` is None where it took too long; negative is the signal that ended it."""

    code: Optional[int]
    out: str
    err: str


class Room(NamedTuple):
    """Bytes of a file system."""

    total: int
    free: int


class Host:
    """This machine. `root` is where its files are; nothing is ever written."""

    def __init__(self, root: str = "/", environment: Optional[Mapping[str, str]] = None) -> None:
        self.root = root
        self.environment: Dict[str, str] = dict(os.environ if environment is None else environment)
        self.uid = os.getuid()
        self.python = sys.executable or "python3"

    def path(self, name: str) -> Path:
        return Path(self.root + "/" + name.lstrip("/"))

    def read(self, name: str) -> Optional[str]:
        """A file's text; None where it is not there or closed."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> List[str]:
        """List a folder, sorted; nothing where it is not there or closed."""
        try:
            return sorted(os.listdir(str(self.path(folder))))  # noqa: PTH208
        except (OSError, ValueError):
            return []

    def exists(self, name: str) -> bool:
        try:
            self.path(name).stat()
        except (OSError, ValueError):
            return False
        return True

    def may_write(self, name: str) -> bool:
        """Also for device nodes: may be opened to read and write."""
        return os.access(str(self.path(name)), os.R_OK | os.W_OK)

    def open_error(self, name: str) -> str:
        """Explain why a device cannot be opened to read and write; empty where it can. Nothing is read or written."""
        try:
            descriptor = os.open(str(self.path(name)), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return os.strerror(error.errno or 0)
        os.close(descriptor)
        return ""

    def is_setuid_root(self, name: str) -> bool:
        try:
            status = self.path(name).stat()
        except OSError:
            return False
        return bool(status.st_mode & stat.S_ISUID) and status.st_uid == 0

    def room(self, name: str) -> Optional[Room]:
        """Of the file system that a path is on, or would be on."""
        path = self.path(name)
        for folder in (path, *path.parents):
            try:
                status = os.statvfs(str(folder))
            except OSError:
                continue
            return Room(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
        return None

    def user(self) -> str:
        try:
            return str(pwd.getpwuid(self.uid).pw_name)
        except KeyError:
            return self.environment.get("USER", "")

    def home(self) -> str:
        return self.environment.get("HOME", "") or "/"

    def working_folder(self) -> str:
        """The working folder; empty where that is gone."""
        try:
            return os.getcwd()  # noqa: PTH109
        except OSError:
            return ""

    def find(self, program: str) -> Optional[str]:
        """The path of a program."""
        path = ":".join([self.environment.get("PATH", ""), *SYSTEM_FOLDERS])
        return shutil.which(program, path=path)

    def real(self, name: str) -> str:
        """A path with its links followed."""
        return os.path.realpath(name)

    def run(self, argv: Sequence[str], limit: float = LIMIT, stdin: str = "") -> Optional[Done]:
        """Run a program in the user's environment, in no folder of theirs; None where it cannot be started."""
        environment = {**self.environment, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError):
            return None
        try:
            out, err = process.communicate(stdin.encode(), timeout=limit)
            code: Optional[int] = process.returncode
        except subprocess.TimeoutExpired:
            end_group(process)
            out, err, code = b"", b"", None
        return Done(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def name(self) -> str:
        return socket.gethostname()


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a program and what it started; it leads a session of its own."""
    try:
        os.killpg(process.pid, 9)
    except OSError:
        process.kill()
    # what holds the pipes open beyond that (a process in the kernel's hands) is not waited for
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)
