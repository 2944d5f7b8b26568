"""Apptainer, SingularityCE and Singularity: which of them is here, what it can do, what its words mean."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.host import process, settings
from graphcrate.model.errors import DiskFullError, GraphcrateError, HostError

NAMES = ("apptainer", "singularity")
ELSEWHERE = "or use another engine: --engine docker, --engine embedded"
#: what the engine needs of the environment besides what all children get: its settings and logins to registries
_VARIABLES = ("CONFIGDIR", "DOCKER_USERNAME", "DOCKER_PASSWORD", "KEYSDIR", "CONFIG_FILE", "MKSQUASHFS_ARGS")
#: "apptainer version 1.4.5-1.el9", "singularity-ce version 4.1.5+ds4", "singularity version 3.5.3-1.el7", "2.6.1-dist"
_VERSION = re.compile(
    r"(?:(apptainer|singularity(?:-ce|-?pro)?) version )?v?(\d+)\.(\d+)(?:\.(\d+))?\S*", re.IGNORECASE
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LACKS_CAPABILITY = "Requesting capability set"
OLDEST_SINGULARITY = (3, 5, 3)
PROCESS, LAST_CAPABILITY = Path("/proc/self/status"), Path("/proc/sys/kernel/cap_last_cap")


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that answers. `name` as it calls itself, `version` as a tuple, `text` as it says ("1.4.5-1.el9")."""

    program: str
    name: str
    version: tuple[int, ...]
    text: str

    @property
    def builds_stages(self) -> bool:
        """Whether it builds a definition in stages; before 3.5.3 a copy between them followed links."""
        return self._since((0,), singularity=OLDEST_SINGULARITY)

    @property
    def takes_literal_values(self) -> bool:
        """Whether it has variables that no shell evaluates (`--no-eval`)."""
        return self._since((1, 1), singularity=(3, 10))

    def _since(self, apptainer: tuple[int, ...], singularity: tuple[int, ...]) -> bool:
        """By CHANGELOG.md of github.com/apptainer/apptainer and github.com/sylabs/singularity."""
        return self.version >= (apptainer if self.name == "apptainer" else singularity)

    def environment(self, given: Mapping[str, str], inside: Mapping[str, str], **own: str) -> dict[str, str]:
        """What the engine gets: `given` as far as children get it, `inside` for the programs in the image.

        `own` are its settings, in small letters and without their prefix (`tmpdir`).
        """
        prefix = "APPTAINER" if self.name == "apptainer" else "SINGULARITY"
        chosen = settings.select_for_child(given, tuple(f"{prefix}_{name}" for name in _VARIABLES))
        chosen |= {f"{prefix}_{name.upper()}": value for name, value in own.items()}
        return chosen | {f"{prefix}ENV_{name}": value for name, value in inside.items()}


def parse_version(said: str) -> tuple[str, tuple[int, ...], str] | None:
    """Name, version and the version's text of what `--version` says; None if it is none of these programs."""
    found = _VERSION.fullmatch(said.strip())
    if found is None:
        return None
    numbers = tuple(int(number or 0) for number in found.groups()[1:])
    name = (found[1] or "singularity").lower()
    return name, numbers, said.strip().split()[-1]


def find(environment: Mapping[str, str]) -> Engine:
    """The engine in this environment's PATH, Apptainer before Singularity. Raises HostError when there is none."""
    variables = settings.select_for_child(environment)
    complaints = []
    for name in NAMES:
        program = shutil.which(name, path=variables["PATH"])
        if program is None:
            continue
        told = process.run([program, "--version"], environment=variables, timeout=60)
        said = [line for line in told.lines if parse_version(line)]
        if not told.returncode and said and (found := parse_version(said[-1])):
            return Engine(program=program, name=found[0], version=found[1], text=found[2])
        complaints.append(f"{program} --version ends with code {told.returncode}: {' '.join(told.lines[-3:])}")
    if complaints:
        raise HostError(complaints[0], cause="It is broken, or another program of that name.", next_step=ELSEWHERE)
    raise HostError(
        "neither apptainer nor singularity is installed",
        cause="Neither was found in PATH or in the system's folders.",
        next_step=f"module load apptainer    (on a cluster; else https://apptainer.org/docs/admin/main/), {ELSEWHERE}",
    )


def is_root() -> bool:
    """Whether this process is root."""
    return os.geteuid() == 0


def root_is_limited() -> bool:
    """Whether root lacks any of the kernel's capabilities here; False where the kernel does not say.

    The engine insists on all of them when root runs a step of a build, and stops without.
    """
    try:
        status, last = PROCESS.read_text(), LAST_CAPABILITY.read_text().strip()
    except OSError:
        return False
    permitted = re.search(r"^CapPrm:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return permitted is not None and last.isdigit() and int(permitted[1], 16) != (2 << int(last)) - 1


def last_word(lines: Sequence[str]) -> str:
    """The engine's own message in these lines: the last FATAL or ERROR, else the last line."""
    texts = [_COLOUR.sub("", line).strip() for line in lines]
    spoken = [text for text in texts if re.match(r"(FATAL|ERROR)\s*:", text)]
    text = (spoken or [text for text in texts if text] or [""])[-1]
    return re.sub(r"^(FATAL|ERROR)\s*:\s*", "", text)


def explain(engine: Engine, lines: Sequence[str], log: Path | None = None) -> GraphcrateError | None:
    """The error for a machine that this engine cannot work on, by what it said; None if it says nothing of the kind."""
    text = _COLOUR.sub("", "\n".join(lines))
    message = last_word(lines)
    where = f" ({log} has the whole output)" if log else ""
    for pattern, what, next_step in _TROUBLES:
        if found := re.search(pattern, text):
            user = settings.environment().get("USER") or ("root" if is_root() else "$USER")
            words = {"engine": engine.name, "user": user, "found": found[found.lastindex or 0]}
            return HostError(
                what.format(**words), cause=f"{engine.name} says: {message}{where}", next_step=next_step.format(**words)
            )
    if re.search(r"no space left on device|disk quota exceeded", text, re.IGNORECASE):
        return DiskFullError(
            f"{engine.name} ran out of room on the disk",
            cause=f"It says: {message}{where}",
            next_step="free some room, or put the cache on another disk: GRAPHCRATE_CACHE=/path make image …",
        )
    return None


#: what the engines say on machines that lack something, what that means, what to type
_TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"no mapping entry found|--fakeroot requires either being in",
        "{engine} cannot build as {user}: the user has no range of subordinate ids in /etc/subuid and /etc/subgid",
        "usermod --add-subuids 200000-265535 --add-subgids 200000-265535 {user}    (as root)",
    ),
    (
        r"(newuidmap|newgidmap).*(?:not found|no such file|not permitted)",
        "{engine} cannot map user ids: newuidmap is missing or lacks its rights",
        "apt-get install uidmap    (as root)",
    ),
    (
        r"Failed to (?:create|enter in)(?: fakeroot)? user namespace|nprivileged user namespaces may not be enabled|"
        r"no user namespace available|requires.* unprivileged user namespaces|User namespace required but not",
        "{engine} cannot create user namespaces on this machine",
        "sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1 "
        "kernel.apparmor_restrict_unprivileged_userns=0    (as root; the kernel has some of them)",
    ),
    (r"mksquashfs.*not found", "mksquashfs is not installed", "apt-get install squashfs-tools    (as root)"),
    (
        r"(?:squashfuse|squashfuse_ll).*not found",
        "{engine} cannot mount the image: squashfuse is not installed",
        "apt-get install squashfuse    (as root)",
    ),
    (
        r"/dev/fuse: (?:[Pp]ermission denied|[Nn]o such|[Oo]peration not permitted)|fuse: device not found",
        "{engine} cannot mount the image: this user may not use /dev/fuse",
        "modprobe fuse && chmod 666 /dev/fuse    (as root)",
    ),
    (
        r"failed to mount (\S+) to /root",
        "{engine} needs the user's home folder, and {found} does not exist",
        "install -d -o {user} {found}    (as root)",
    ),
    (
        LACKS_CAPABILITY,
        "{engine} asks for capabilities that root lacks here (a container without --privileged?)",
        "set `root default capabilities = file` in apptainer.conf, or work as a plain user, " + ELSEWHERE,
    ),
)
