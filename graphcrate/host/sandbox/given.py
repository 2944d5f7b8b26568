"""The folder that a program of an image gets: refused where it is the kernel's, said where it holds more than work."""

from collections.abc import Collection, Mapping
from pathlib import Path

from graphcrate.model.errors import HostError
from nsbox import namespaces

_PASSWD = Path("/etc/passwd")
FIRST_USER = 1000  #: numbers below are the system's own (login.defs(5), UID_MIN)
NOBODY = 65534
_NARROWER = "to give it one folder alone: cd FOLDER, then the same command"
_NARROWER_MOUNT = "to give it one folder alone: --mount FOLDER:TARGET"


def refuse_interfaces(folder: Path, *, mounted: bool = False) -> None:
    """Raises HostError for a folder of the kernel's own, in which files are settings, processes and devices.

    `mounted`: it is one of --mount, not the folder in which the command was typed.
    """
    try:
        points = namespaces.mount_points()
    except OSError:  # no /proc: no sandbox either
        return
    if kind := interface_at(str(folder.resolve()), points):
        raise HostError(
            f"{folder} cannot be given to a program of an image",
            cause=f"It is the kernel's own ({kind}): its files are settings, processes and devices of this machine.",
            next_step="leave its --mount out"
            if mounted
            else "start from a folder with files of yours: cd ~/project, then the same command",
        )


def interface_at(path: str, points: Mapping[str, str]) -> str:
    """Name the kernel's interface that a path of the host is in, by its mount points; empty for users' files.

    A folder that a user made in /dev/shm is theirs.
    """
    above = [point for point in points if namespaces.is_below(path, point)]
    kind = points[max(above, key=len)] if above else ""
    if kind in namespaces.INTERFACES:
        return kind
    is_device = namespaces.is_below(path, "/dev") and (path == "/dev/shm" or not namespaces.is_below(path, "/dev/shm"))
    return "devices" if is_device else ""


def exposure(
    folder: Path, home: Path | None, homes: Collection[Path], *, mounted: bool = False, read_only: bool = False
) -> str:
    """A line on what a program that gets this folder can read and change besides work; empty for other folders.

    `home`: this user's; `homes`: those of the machine's users; `mounted`: as for `refuse_interfaces`.
    """
    own = [path for path in (home, Path("/root")) if path is not None]
    others = {path for path in homes if path not in own}
    if folder == Path("/"):
        what = "every file of this machine that you can"
    elif folder in own:
        what = f"all of the home folder {folder}, keys and passwords in it too (.ssh, .config, .netrc)"
    elif any(namespaces.is_below(str(path), str(folder)) for path in (*own, *others)):
        what = f"what you can in {folder}, where home folders lie: keys, passwords and start-up files in them too"
    else:
        return ""
    does = "read" if read_only else "read and change"
    return f"the image's program can {does} {what}; {_NARROWER_MOUNT if mounted else _NARROWER}"


def home_folders() -> frozenset[Path]:
    """The homes of people in this machine's own list of users: asking a directory for all of its users takes long."""
    try:
        rows = [line.split(":") for line in _PASSWD.read_text(errors="replace").splitlines()]
    except OSError:
        return frozenset()
    people = (row for row in rows if len(row) > 5 and row[2].isdecimal() and FIRST_USER <= int(row[2]) != NOBODY)
    return frozenset(Path(row[5]) for row in people if row[5].startswith("/") and row[5].strip("/"))
