"""What preparing asks of the operating system: programs run quietly, Debian's packages, and how a run stops.

Only the standard library: this runs before anything is installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NETWORK, HASHES, HOST, DISK, BUILD = 5, 6, 7, 8, 9  #: exit codes, as in graphcrate/errors.py
#: Debian's archive keys; Ubuntu has them in a package of their own
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: what apt writes when the network is at fault
APT_NETWORK_SIGNS = ("could not resolve", "temporary failure", "could not connect", "connection", "failed to fetch")


class StopError(Exception):
    """Ends the run with an exit code: what happened, what to do next."""

    def __init__(self, code: int, what: str, following: str) -> None:
        super().__init__(what)
        self.code, self.what, self.following = code, what, following


def say(message: str) -> None:
    """A line for eyes."""
    sys.stderr.write(f"prepare: {message}\n")
    sys.stderr.flush()


def quiet(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and keep what it says."""
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def find(program: str) -> str | None:
    """Where a program lies. A plain user's PATH often lacks the system's folders."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")


def packages_of(programs: dict[str, str]) -> list[str]:
    """Debian's packages of those programs that are missing, and Debian's keys where Ubuntu lacks them."""
    missing = [package for program, package in programs.items() if not find(program)]
    if "mmdebstrap" in programs and shutil.which("apt-get") and not KEYRING.exists():
        missing.append("debian-archive-keyring")
    return missing


def has_apt_as_root() -> bool:
    """Whether Debian packages may be installed."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: Sequence[str]) -> None:
    """Install Debian packages and say so. Raises StopError."""
    if not packages:
        return
    command = ["apt-get", "-y", "-o", "DPkg::Lock::Timeout=120", "install", "--no-install-recommends", *packages]
    say(f"as root, installing: {' '.join(command)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if not any(Path("/var/lib/apt/lists").glob("*Packages*")):
        quiet(["apt-get", "update"], environment)
    result = quiet(command, environment)
    if result.returncode:  # the lists may be older than the archive
        updated = quiet(["apt-get", "-o", "DPkg::Lock::Timeout=120", "update"], environment)
        result = quiet(command, environment)
        if result.returncode:
            raise apt_failed(updated.stderr + result.stderr, " ".join(command))


def apt_failed(text: str, command: str) -> StopError:
    """What apt's last lines mean."""
    lines = text.strip().splitlines()
    tail = "\n".join(f"    {line}" for line in ([line for line in lines if line.startswith("E:")] or lines)[-8:])
    low = text.lower()
    if "no space left" in low or "enough free space" in low:
        return StopError(DISK, f"the disk is full\n{tail}", f"free some room, then: {command}")
    if any(sign in low for sign in APT_NETWORK_SIGNS):
        return StopError(
            NETWORK,
            f"Debian's archive cannot be reached\n{tail}",
            f"check the network, a proxy, apt's sources; then: {command}",
        )
    return StopError(HOST, f"apt-get failed\n{tail}", f"check apt's sources, then: {command}")
