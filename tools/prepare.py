"""Makes the project's own environment: `.venv` with pinned, hashed requirements, and the system's tools.

Words on the command line, any of them: `run` (what graphcrate needs), `dev` (that, the linters and the tests),
`system` (programs of the operating system), `engines` (what `make test-engines` tries images with).
The first three leave a stamp in `.venv` that the Makefile compares with requirements*.txt, so that a second call of
make does not even start this program. Everything said goes to stderr.
Only the standard library: this runs before anything is installed. Exit codes are graphcrate's own (see README.md).
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from engines import prepare_apptainer, prepare_cosign
from machine import (
    BUILD,
    DISK,
    HASHES,
    HOST,
    NETWORK,
    StopError,
    apt_install,
    has_apt_as_root,
    packages_of,
    quiet,
    say,
)

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UNFINISHED = VENV / "unfinished"  #: there from the venv's first moment until its requirements are in
REQUIREMENTS = {"run": "requirements.txt", "dev": "requirements-dev.txt"}

# program → Debian's package
NEEDED = {"mmdebstrap": "mmdebstrap", "newuidmap": "uidmap"}  #: for bases made of Debian's packages, without root too
USEFUL = {"mksquashfs": "squashfs-tools"}  #: installed where that is possible, not asked for
ENGINES = {
    "skopeo": "skopeo",
    "umoci": "umoci",
    "podman": "podman",
    "runc": "runc",
    "dockerd": "docker.io",
    "iptables": "iptables",
    "slirp4netns": "slirp4netns",  # the network of the tests' own Docker
    "docker-registry": "docker-registry",
    # the two hosts that a program connects to
    "sshd": "openssh-server",
    "ssh-keyscan": "openssh-client",
    "tmux": "tmux",
    "ip": "iproute2",
    "ps": "procps",
    "sbatch": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "munged": "munge",
    # what Apptainer calls; the last one makes programs start that do not fit this system
    "mksquashfs": "squashfs-tools",
    "squashfuse": "squashfuse",
    "fuse-overlayfs": "fuse-overlayfs",
    "newuidmap": "uidmap",
    "patchelf": "patchelf",
}
WORDS = ("run", "dev", "system", "engines")


def main(words: Sequence[str]) -> int:
    for word in words:
        if word not in WORDS:
            say(f"unknown word {word!r}; there are {', '.join(WORDS)}")
            return 2
    # Left by environment modules on clusters; pip would take what lies there for installed.
    for variable in ("PYTHONPATH", "PYTHONHOME"):
        os.environ.pop(variable, None)
    jobs = {"run": lambda: prepare_venv("run"), "dev": lambda: prepare_venv("dev"), "system": prepare_system}
    jobs["engines"] = prepare_engines
    try:
        with alone():
            for word in words or ["run"]:
                jobs[word]()
    except StopError as stop:
        say(f"{stop.what}\nnext:  {stop.following}")
        return stop.code
    except KeyboardInterrupt:
        say("interrupted; the same command starts again where it has to")
        return 130
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        say(f"{error}\nnext:  {'free some room' if full else 'check who may write to ' + str(ROOT)}, then run it again")
        return DISK if full else HOST
    return 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One preparation of this folder at a time; a second one waits here."""
    try:
        stream = (ROOT / "requirements.txt").open("r+")
    except OSError:  # read-only checkout: nothing can be written, so there is nothing to guard
        yield
        return
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run prepares this folder; waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield


# --- .venv ---------------------------------------------------------------------------------------------------------


def prepare_venv(kind: str) -> None:
    """`.venv` with the requirements of this kind; nothing to do if it has them already."""
    requirements = ROOT / REQUIREMENTS[kind]
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest() + "\n"
    stamp = VENV / f"ready-{kind}"
    if usable() and stamp.is_file() and stamp.read_text() == wanted:
        stamp.touch()
        return
    say(f"installing what {requirements.name} pins into .venv (once, less than a minute on a usual connection)")
    fresh = not usable()
    try:
        if fresh:
            create()
        UNFINISHED.touch()
        install(requirements)
        UNFINISHED.unlink()
    except BaseException:
        if fresh:
            shutil.rmtree(VENV, ignore_errors=True)  # half an environment is worse than none
        else:
            UNFINISHED.unlink(missing_ok=True)  # pip puts back what it could not replace
        raise
    stamp.write_text(wanted)
    if kind == "dev":
        # It holds what `run` needs at the same versions.
        text = (ROOT / REQUIREMENTS["run"]).read_bytes()
        (VENV / "ready-run").write_text(hashlib.sha256(text).hexdigest() + "\n")


def usable() -> bool:
    """Whether `.venv` is whole and its interpreter still the one that it was made with."""
    if UNFINISHED.exists() or not PYTHON.exists():
        return False
    return (
        quiet(
            [str(PYTHON), "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('pip'))"]
        ).returncode
        == 0
    )


def create() -> None:
    """A fresh `.venv`, still empty."""
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    UNFINISHED.touch()
    result = quiet([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    if result.returncode:
        raise no_venv(result.stderr)


def installer() -> list[str]:
    """A command that installs into `.venv`: the nearest pip, else Python's own copy of pip, else uv, else Debian's."""
    if not quiet([str(PYTHON), "-c", "import pip"]).returncode:
        return [str(PYTHON), "-m", "pip", "install"]
    if "--python " in quiet([sys.executable, "-m", "pip", "--help"]).stdout:  # pip 22.3 and newer
        return [sys.executable, "-m", "pip", "--python", str(PYTHON), "install"]
    bundled = quiet([str(PYTHON), "-m", "ensurepip"])  # Debian keeps it in a package of its own
    if bundled.returncode and (uv := shutil.which("uv")):
        return [uv, "pip", "install", "--python", str(PYTHON)]
    if bundled.returncode and has_apt_as_root():
        apt_install([f"python3.{sys.version_info[1]}-venv"])
        bundled = quiet([str(PYTHON), "-m", "ensurepip"])
    if bundled.returncode:
        raise no_venv("it has no ensurepip, and neither pip (22.3 or newer) nor uv is here to stand in")
    return [str(PYTHON), "-m", "pip", "install"]


def no_venv(detail: str) -> StopError:
    return StopError(
        HOST,
        f"{sys.executable} cannot make a virtual environment with pip: {detail.strip() or 'no reason given'}",
        f"sudo apt-get install python3.{sys.version_info[1]}-venv    (Debian, Ubuntu), "
        "or name another Python: PYTHON=/path/to/python3 make …",
    )


def install(requirements: Path) -> None:
    """Install exactly these files: by uv, which takes a quarter of pip's time, else by pip, which tells what is wrong.

    pip reads its own configuration: index, proxy, certificates, folders of wheels. Raises StopError.
    """
    # A person's PIP_USER or PIP_TARGET is meant for other installations.
    environment = {key: value for key, value in os.environ.items() if key not in ("PIP_TARGET", "PIP_PREFIX")}
    environment.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    pip = installer()
    settings = uv_settings(quiet([*pip[:-1], "config", "list"], environment).stdout)
    if settings is not None and install_by_uv(pip, requirements, {**environment, **settings}):
        return
    result = quiet([*pip, *EXACTLY, str(requirements)], environment)
    if result.returncode:
        raise pip_failed(result.stderr + result.stdout)


def install_by_uv(pip: Sequence[str], requirements: Path, environment: dict[str, str]) -> bool:
    """Whether the uv that the requirements pin, installed by pip, has installed them all."""
    pinned = re.search(r"^uv==(?:.*\\\n)*.*$", requirements.read_text(), re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as alone:
        alone.write(pinned[0] if pinned else "")
        alone.flush()
        if not pinned or quiet([*pip, *EXACTLY, alone.name], environment).returncode:
            return False
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON), "--no-config", "--no-cache"]
    return not quiet([*uv, *EXACTLY, str(requirements)], environment).returncode


EXACTLY = ("--quiet", "--no-deps", "--require-hashes", "--requirement")
#: pip's settings about where files come from, and uv's variables for them
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
#: pip's settings that do not matter to what is installed from where
UV_IGNORES = {"cache-dir", "default-timeout", "disable-pip-version-check", "no-input", "retries", "timeout", "user"}


def uv_settings(listed: str) -> dict[str, str] | None:
    """uv's variables for what `pip config list` prints; None where it has a setting that uv has none for."""
    found = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2]
        if name in UV_VARIABLES:
            words = value.strip("'").replace("\\n", " ").split()
            found[UV_VARIABLES[name]] = ("," if name == "find-links" else " ").join(words)
        elif name not in UV_IGNORES:
            return None
    return found


#: what pip writes when the network is at fault
NETWORK_SIGNS = ("newconnectionerror", "name resolution", "no matching distribution", "ssl", "timed out", "proxy")


def pip_failed(text: str) -> StopError:
    """What pip's last lines mean."""
    lines = text.strip().splitlines()
    tries = [line for line in lines if "Retrying" in line][-1:]
    errors = [line for line in lines if "ERROR" in line]
    tail = "\n".join(f"    {line}" for line in tries + errors or lines[-8:])
    low = text.lower()
    if "do not match the hashes" in low:
        what = "a file is not the one that requirements.txt names"
        return StopError(HASHES, f"{what}\n{tail}", "try another index: PIP_INDEX_URL=…")
    if "no space left" in low:
        return StopError(DISK, f"the disk is full\n{tail}", "free some room and run the same command again")
    if any(sign in low for sign in NETWORK_SIGNS):
        return StopError(
            NETWORK,
            f"the package index cannot be reached or lacks what is needed\n{tail}",
            "check the network; behind a mirror, a proxy or with certificates of your own, "
            "set PIP_INDEX_URL, https_proxy, PIP_CERT",
        )
    return StopError(BUILD, f"pip failed\n{tail}", "run the same command again; if it stays, report these lines")


# --- the operating system ------------------------------------------------------------------------------------------


def prepare_system() -> None:
    """Install missing programs as root on Debian and Ubuntu; elsewhere say how, and leave it to the job to need them.

    A base from a registry or a warm cache needs none of them, so a person without root is not stopped here.
    """
    if has_apt_as_root():
        apt_install(packages_of({**NEEDED, **USEFUL}))
    missing = packages_of(NEEDED)
    if not missing:
        (VENV / "ready-system").touch()
    elif shutil.which("apt-get"):
        say(
            f"not installed: {', '.join(missing)}; a base made of Debian's packages will need it:\n"
            f"next:  sudo apt-get install --no-install-recommends {' '.join(missing)}"
        )
    else:
        say(
            f"not installed: {', '.join(missing)}; a base made of Debian's packages will need it:\n"
            "next:  install it with the package manager of this machine, or build on Debian or Ubuntu"
        )


def prepare_engines() -> None:
    """Install the programs that tests try images with, where that is possible; tests skip what is missing."""
    if has_apt_as_root():
        apt_install(packages_of(ENGINES))
        apt_install(packages_of({"docker": "docker-cli"}))  # a package of its own from Debian 13 on
        prepare_apptainer()
        prepare_cosign()
    elif missing := packages_of(ENGINES):
        say(f"not installed: {', '.join(missing)}; their tests are skipped\nnext:  sudo tools/prepare engines")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
