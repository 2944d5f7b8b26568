"""Makes the project's own environment: `.venv` with pinned, hashed requirements and the libraries of packages/.

Words on the command line: `run` (what graphcrate needs), `serve` (a web server too), `dev` (both, linters, tests).
Each leaves a stamp in `.venv`, so that a second `make` does not start this program. All messages go to stderr.
Only the standard library: this runs before anything is installed. Exit codes: docs/settings.md.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

NETWORK, HASHES, HOST, DISK, BUILD = 5, 6, 7, 8, 9  #: exit codes, as in graphcrate/model/errors.py
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
#: in a bundle (docs/publish.md): what the requirements pin, for a site without a network
WHEELS = ROOT / "tools" / "wheels"
UNFINISHED = VENV / "unfinished"  #: exists while requirements are being installed
#: in `.venv`: where the libraries of packages/ are, relative to itself, so that worktrees that share it find their own
PACKAGES = "graphcrate-packages.pth"
REQUIREMENTS = {
    "run": ROOT / "requirements.txt",
    "serve": ROOT / "requirements-serve.txt",
    "dev": ROOT / "requirements-dev.txt",
}
HOLDS = {
    "run": (),
    "serve": ("run",),
    "dev": ("run", "serve"),
}  #: kinds whose requirements others have at the same versions
EXACTLY = ("--quiet", "--no-deps", "--require-hashes", "--requirement")
#: pip's settings about where files come from, and uv's variables for them
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
#: pip's settings that do not change what is installed from where
UV_IGNORES = {"cache-dir", "default-timeout", "disable-pip-version-check", "no-input", "retries", "timeout", "user"}
#: what words of pip, uv and apt mean: exit code, what happened, what to do before the command is called again
CAUSES = {
    "do not match the hashes": (
        HASHES,
        "a file is not the one that the requirements name",
        "set another PIP_INDEX_URL",
    ),
    "no space left|enough free space": (DISK, "the disk is full", "free some room"),
    "connection|resol|could not connect|failed to fetch|no matching dist|ssl|timed out|proxy": (
        NETWORK,
        "the network or the index fails",
        "check the network and apt's sources; behind a mirror, a proxy or with certificates of your own, "
        "set PIP_INDEX_URL, https_proxy, PIP_CERT; without any network, bring a bundle: "
        "docs/publish.md#to-a-site-without-a-network",
    ),
}


class StopError(Exception):
    """Ends the run with an exit code: what happened, what to do next."""

    def __init__(self, code: int, what: str, following: str) -> None:
        super().__init__(what)
        self.code, self.what, self.following = code, what, following


def main(words: Sequence[str]) -> int:
    if unknown := [word for word in words if word not in REQUIREMENTS]:
        say(f"unknown word {unknown[0]!r}; there are {', '.join(REQUIREMENTS)}")
        return 2
    # Set by environment modules on clusters: pip would take what lies there for installed.
    for variable in ("PYTHONPATH", "PYTHONHOME"):
        os.environ.pop(variable, None)

    def prepare() -> None:
        for word in words or ["run"]:
            prepare_venv(word)

    return finished(prepare)


def finished(work: Callable[[], object]) -> int:
    """The exit code of this work, one preparation of this folder at a time."""
    try:
        with alone():
            work()
    except StopError as stop:
        say(f"{stop.what}\nnext:  {stop.following}")
        return stop.code
    except KeyboardInterrupt:
        say("interrupted; the same command starts again where it has to")
        return 130
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        say(f"{error}\nnext:  {'free some room' if full else f'check who may write to {ROOT}'}, then run it again")
        return DISK if full else HOST
    return 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Lock the folder, where it can be written and its file system has locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stream = stack.enter_context((ROOT / "requirements.txt").open("r+"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another run prepares this folder; waiting for it")
                fcntl.flock(stream, fcntl.LOCK_EX)
        yield


# --- .venv ------------------------------------------------------------------------------------------------------------


def prepare_venv(kind: str) -> None:
    """Install the requirements of this kind into `.venv`, unless its stamp says that it has them."""
    stamp = VENV / f"ready-{kind}"
    fresh = not usable()
    if not fresh and stamp.is_file() and stamp.read_text() == checksum(kind):
        add_packages()
        stamp.touch()
        return
    takes = "from tools/wheels" if WHEELS.is_dir() else "less than a minute on a usual connection"
    say(f"installing what {REQUIREMENTS[kind].name} pins into .venv (once, {takes})")
    try:
        if fresh:
            shutil.rmtree(VENV, ignore_errors=True)
            VENV.mkdir()
        UNFINISHED.touch()
        if fresh and (made := quiet([sys.executable, "-m", "venv", "--without-pip", str(VENV)])).returncode:
            raise no_venv(made.stderr)
        install(REQUIREMENTS[kind])
        UNFINISHED.unlink()
    except BaseException:
        if fresh:
            shutil.rmtree(VENV, ignore_errors=True)  # half an environment is worse than none
        else:
            UNFINISHED.unlink(missing_ok=True)  # pip puts back what it could not replace
        raise
    add_packages()
    for ready in (kind, *HOLDS[kind]):
        (VENV / f"ready-{ready}").write_text(checksum(ready))


def add_packages() -> None:
    """Let the environment import the libraries of packages/ as if they were installed in it."""
    up = "../" * 4  # from .venv/lib/python3.11/site-packages
    lines = "".join(f"{up}{folder.relative_to(ROOT)}\n" for folder in sorted(ROOT.glob("packages/*/src")))
    for site in VENV.glob("lib/python*/site-packages"):
        path = site / PACKAGES
        if not path.is_file() or path.read_text() != lines:
            path.write_text(lines)


def checksum(kind: str) -> str:
    """A stamp's content."""
    return hashlib.sha256(REQUIREMENTS[kind].read_bytes()).hexdigest() + "\n"


def usable() -> bool:
    """Return whether `.venv` is whole and the interpreter that made it still runs."""
    found = [str(PYTHON), "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('pip'))"]
    return PYTHON.exists() and not UNFINISHED.exists() and not quiet(found).returncode


def no_venv(detail: str) -> StopError:
    return StopError(
        HOST,
        f"{sys.executable} cannot make a virtual environment with pip: {detail.strip() or 'no reason given'}",
        f"sudo apt-get install python3.{sys.version_info[1]}-venv    (Debian, Ubuntu), "
        "or name another Python: PYTHON=/path/to/python3 make …",
    )


def installer() -> list[str]:
    """A command that installs into `.venv`: its pip, this Python's pip, Python's own copy, uv, or Debian's copy."""
    own = [str(PYTHON), "-m", "pip", "install"]
    if not quiet([str(PYTHON), "-c", "import pip"]).returncode:
        return own
    if "--python " in quiet([sys.executable, "-m", "pip", "--help"]).stdout:  # pip 22.3 and newer
        return [sys.executable, "-m", "pip", "--python", str(PYTHON), "install"]
    for wheel in WHEELS.glob("pip-*.whl"):  # a program too
        return [str(PYTHON), str(wheel / "pip"), "install"]
    bundled = [str(PYTHON), "-m", "ensurepip"]  # Debian has it in a package of its own
    if not quiet(bundled).returncode:
        return own
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", str(PYTHON)]
    if has_apt_as_root():
        apt_install([f"python3.{sys.version_info[1]}-venv"])
        if not quiet(bundled).returncode:
            return own
    raise no_venv("it has no ensurepip, and neither pip (22.3 or newer) nor uv is here to stand in")


def install(requirements: Path) -> None:
    """Install exactly these files: by uv, which takes a quarter of pip's time, else by pip, whose errors say more.

    pip reads its own configuration: index, proxy, certificates, folders of wheels. Raises StopError.
    """
    # A person's PIP_USER or PIP_TARGET is meant for other installations.
    environment = {key: value for key, value in os.environ.items() if key not in ("PIP_TARGET", "PIP_PREFIX")}
    environment.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    pip = installer()
    if WHEELS.is_dir():
        install_carried(pip, requirements, environment)
        return
    settings = uv_settings(quiet([*pip[:-1], "config", "list"], environment).stdout)
    if settings is None or not install_by_uv(pip, requirements, {**environment, **settings}):
        result = quiet([*pip, *EXACTLY, str(requirements)], environment)
        if result.returncode:
            raise failure("pip", result.stderr + result.stdout, "the same command")


def install_carried(pip: Sequence[str], requirements: Path, environment: dict[str, str]) -> None:
    """Install from the wheels that a bundle has. Raises StopError, for a Python that they are not for too."""
    result = quiet([*pip, "--no-index", "--find-links", str(WHEELS), *EXACTLY, str(requirements)], environment)
    if "No matching distribution" in result.stderr:
        pythons = sorted(
            {match[1] for path in WHEELS.iterdir() if (match := re.search(r"-cp3(\d+)-cp3", path.name))}, key=int
        )
        raise StopError(
            HOST,
            f"tools/wheels has nothing for Python 3.{sys.version_info[1]} on {os.uname().machine}",
            f"PYTHON=/path/to/python3 with another one: 3.{', 3.'.join(pythons)}",
        )
    if result.returncode:
        raise failure("pip", result.stderr + result.stdout, "the same command")


def install_by_uv(pip: Sequence[str], requirements: Path, environment: dict[str, str]) -> bool:
    """Return whether the uv that the requirements pin, installed by pip, has installed them all."""
    pinned = re.search(r"^uv==(?:.*\\\n)*.*$", requirements.read_text(), re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as only_uv:
        only_uv.write(pinned[0] if pinned else "")
        only_uv.flush()
        if not pinned or quiet([*pip, *EXACTLY, only_uv.name], environment).returncode:
            return False
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON), "--no-config", "--no-cache"]
    # From whichever index has it, as pip does: hashes say which files.
    uv += ["--index-strategy", "unsafe-best-match"]
    return not quiet([*uv, *EXACTLY, str(requirements)], environment).returncode


def uv_settings(listed: str) -> dict[str, str] | None:
    """uv's variables for what `pip config list` prints; None where it has a setting that uv has none for."""
    variables = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2]
        if name in UV_VARIABLES:
            words = value.strip("'").replace("\\n", " ").split()
            variables[UV_VARIABLES[name]] = ("," if name == "find-links" else " ").join(words)
        elif name not in UV_IGNORES:
            return None
    return variables


# --- the operating system ---------------------------------------------------------------------------------------------


def has_apt_as_root() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: Sequence[str]) -> None:
    """Install Debian packages and say so. Raises StopError."""
    if not packages:
        return
    apt = ["apt-get", "-y", "-o", "DPkg::Lock::Timeout=120"]
    command = [*apt, "install", "--no-install-recommends", *packages]
    say(f"as root, installing: {' '.join(command)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if not any(Path("/var/lib/apt/lists").glob("*Packages*")):
        quiet([*apt, "update"], environment)
    if quiet(command, environment).returncode:  # the lists may be older than the archive
        updated = quiet([*apt, "update"], environment)
        result = quiet(command, environment)
        if result.returncode:
            raise failure("apt-get", updated.stderr + result.stderr, " ".join(command))


# --- programs and their errors ----------------------------------------------------------------------------------------


def failure(program: str, text: str, command: str) -> StopError:
    """The error that a program's last lines mean; `command` is what to call again."""
    lines = text.strip().splitlines()
    errors = [line for line in lines if "ERROR" in line or line.startswith("E:")]
    retries = [line for line in lines if "Retrying" in line][-1:]
    tail = "".join(f"\n    {line}" for line in (retries + errors or lines)[-8:])
    for words, (code, meaning, advice) in CAUSES.items():
        if re.search(words, text, re.IGNORECASE):
            return StopError(code, f"{program}: {meaning}{tail}", f"{advice}; then: {command}")
    code = BUILD if program == "pip" else HOST
    return StopError(code, f"{program} failed{tail}", f"call it again: {command}; if it stays, report these lines")


def quiet(
    command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it prints."""
    return subprocess.run(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
        errors="replace", check=False,
    )  # fmt: skip


def say(message: str) -> None:
    sys.stderr.write(f"prepare: {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
