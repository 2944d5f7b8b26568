"""A Debian system from .debs, by nothing but Python, the kernel's user namespaces and the dpkg that is in the .debs.

The packages are extracted here, so that dpkg can run. Then that dpkg, inside the tree, installs all of them. It runs
with one number as owner of everything, where calls that change owners succeed and do nothing: so a plain user without
subordinate ids makes the same tree as root does. Who owns what is learned from the packages and from what their
scripts ask for.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from debroot import rooted, trees
from debroot.deb import FileOwner, Members, extract, inflate_member
from debroot.distributions import Layout
from debroot.errors import DpkgError, LinkInTheWayError
from debroot.reading import Inflate, inflated, tar_members

#: What maintainers' scripts call in place of these programs: it notes the arguments first.
_NOTING = """#!/bin/sh
{ printf '%s\\0' NAME "$PWD" "$@"; printf '\\0\\0'; } >> /tmp/calls/calls
exec /bin/NAME "$@"
"""
_BEGIN = """set -e
trap 'rm -f /usr/sbin/policy-rc.d' EXIT
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
cd /tmp/debs
"""
#: what has to be configured before any other package's scripts run
_FIRST = "dpkg --force-depends --force-unsafe-io --install base-passwd_*.deb base-files_*.deb\n"
_INSTALL = """dpkg --force-depends --force-unsafe-io --unpack *.deb
dpkg --force-unsafe-io --configure --pending
"""
#: what makes bytecode once more that a suite's scripts do not make alike
_COMPILE = """/usr/bin/python3 -S - << 'end'
import pathlib, py_compile, sys
end = f".{sys.implementation.cache_tag}.pyc"
for made in sorted(pathlib.Path("/usr/lib").rglob(f"__pycache__/*{end}")):
    source = made.parent.parent / f"{made.name.removesuffix(end)}.py"
    py_compile.compile(str(source), str(made), doraise=True)
end
"""
_ID = re.compile(r"^([^:\n]*):[^:\n]*:(\d+)", re.MULTILINE)  #: of /etc/passwd and /etc/group: names and numbers
_STEP = re.compile(r"(Unpacking|Setting up) ([^ :]+)")
#: Files that no package brings and Debian's own bootstrap programs make.
_FILES = {
    "etc/fstab": "# UNCONFIGURED FSTAB FOR BASE SYSTEM\n",
    "var/lib/apt/extended_states": "",
    "var/lib/dpkg/arch": "{debian}\n",
}
ENVIRONMENT = {
    "PATH": "/tmp/noting:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "PYTHONHASHSEED": "0",  # the order of constants in bytecode
}


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run in a tree that it may change, as root inside.

    Calls that change owners have to succeed and do nothing there. `binds`: folder of this machine, path inside, and
    whether it is read-only. `on_line` hears each line of its output.
    """

    root: Path
    argv: Sequence[str]
    environment: Mapping[str, str]
    binds: Sequence[tuple[Path, str, bool]]
    on_line: Callable[[str], None]


class Ended(NamedTuple):
    """The exit code of a program, and the last lines of its output."""

    returncode: int
    lines: Sequence[str]


class Hands(NamedTuple):
    """The work that is handed in: to run programs in a tree, and to read hostile files with limits."""

    run: Callable[[Program], Ended]
    inflate: Inflate = inflated
    members: Members = tar_members


class Machine(NamedTuple):
    """The processor of a system: dpkg's name of it, and the folder in / of its loader."""

    debian: str = "amd64"
    loader_folder: str = "lib64"


def install(
    debs: Sequence[Path],
    root: Path,
    work: Path,
    hands: Hands,
    *,
    layout: Layout,
    epoch: int,
    machine: Machine = Machine(),  # noqa: B008 (a value)
    after: Sequence[str] = (),
    advance: Callable[[int], None] = lambda _: None,
    on_extracted: Callable[[Path], None] = lambda _: None,
) -> dict[str, FileOwner]:
    """Make a system of these packages in the new folder `root`. Return the owners of paths that are not root's.

    `work`: an empty folder on the same disk, to be removed afterwards. `epoch`: the time that scripts take for now
    (SOURCE_DATE_EPOCH). `after`: lines of shell that run when all is installed. `advance` gets bytes of the packages
    as they are unpacked and set up: half of a package's size for each. `on_extracted` gets `root` when all files of the
    packages are there, and none is set up.
    Raises DpkgError, NotAPackageError, LinkInTheWayError, TooDeepError, and what `hands` raise.
    """
    root.mkdir(0o755)
    if layout.links_usr:
        for name in dict.fromkeys(("bin", "sbin", "lib", machine.loader_folder)):
            rooted.make_folders(root / "usr" / name)
            (root / name).symlink_to(f"usr/{name}")
    owners: dict[str, FileOwner] = {}
    inflated_debs = _laid_out(debs, work, hands)
    for deb, begin in inflated_debs:
        owners |= extract(deb, begin, root, members=hands.members)
    on_extracted(root)
    calls = _run_dpkg(root, work, _script(after, layout), _counter(debs, advance), hands, epoch)
    for name, text in _FILES.items():
        try:
            rooted.write_text(root, name, text.format(debian=machine.debian))
        except OSError as error:
            raise LinkInTheWayError(
                f"/{name} of the Debian system cannot be written: {error.strerror}",
                cause="A script of a package left a link or no folder where Debian has one.",
                next_step="leave out the package that you added last",
            ) from error
    owners |= overridden(root)
    # Packages name their files below /bin and /lib, which are links.
    host_paths = {path: rooted.host_path(root, path) for path in owners}
    real = {path: str(host_path.relative_to(root)) for path, host_path in host_paths.items() if host_path is not None}
    return {real[path]: owner for path, owner in owners.items() if path in real} | asked(calls, root)


def install_more(
    debs: Sequence[Path],
    root: Path,
    work: Path,
    hands: Hands,
    *,
    epoch: int,
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Install more packages into a system of `install`, by the dpkg that it has. Arguments and errors: as there.

    Owners are not kept: for a tree that programs run in and that is not packed.
    """
    _laid_out(debs, work, hands)
    _run_dpkg(root, work, _BEGIN + _INSTALL, _counter(debs, advance), hands, epoch)


def _laid_out(debs: Sequence[Path], work: Path, hands: Hands) -> list[tuple[Path, int]]:
    """Make of `work` what dpkg works from. Return the packages in it, inflated, and where the files of each begin."""
    for name in ("debs", "noting", "calls"):
        (work / name).mkdir()
    targets = [work / "debs" / path.name for path in debs]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        begins = pool.map(lambda deb, target: inflate_member(deb, target, hands.inflate), debs, targets)
        return list(zip(targets, begins, strict=True))


def _counter(debs: Sequence[Path], advance: Callable[[int], None]) -> Callable[[str], None]:
    """Return a reader of dpkg's lines: each package is unpacked and set up once, with half of its bytes."""
    half = {path.name.partition("_")[0]: path.stat().st_size // 2 for path in debs}
    steps = {"Unpacking": half, "Setting up": dict(half)}

    def count(line: str) -> None:
        if step := _STEP.match(line):
            advance(steps[step[1]].pop(step[2], 0))

    return count


def _script(after: Sequence[str], layout: Layout) -> str:
    """Return the script that runs in the new tree: dpkg, and what has to be done after it."""
    lines = "".join(f"{line}\n" for line in after)
    return _BEGIN + _FIRST + _INSTALL + lines + (_COMPILE if layout.compiles_again else "")


def _run_dpkg(root: Path, work: Path, script: str, on_line: Callable[[str], None], hands: Hands, epoch: int) -> bytes:
    """Install all packages, and return the notes of what scripts called."""
    for name in ("chown", "chgrp"):
        (work / "noting" / name).write_text(_NOTING.replace("NAME", name))
        (work / "noting" / name).chmod(0o755)
    ended = hands.run(
        Program(
            root=root,
            argv=["/bin/sh", "-c", script],
            environment={**ENVIRONMENT, "SOURCE_DATE_EPOCH": str(epoch)},
            binds=[(work / name, f"/tmp/{name}", name != "calls") for name in ("debs", "noting", "calls")],
            on_line=on_line,
        )
    )
    if ended.returncode:
        names = re.findall(r"error processing (?:package|archive) (\S+)", "\n".join(ended.lines))
        raise DpkgError(list(dict.fromkeys(name.rpartition("/")[2] for name in names)), ended.lines)
    return rooted.read_bytes(work / "calls", "calls") or b""


def overridden(root: Path) -> dict[str, FileOwner]:
    """The owners that dpkg's overrides give to paths: lines `user group mode path`, where `#7` is a number."""
    users, groups = _numbers(root)
    owners: dict[str, FileOwner] = {}
    for line in _text(root, "var/lib/dpkg/statoverride").splitlines():
        user, group, _, path = (line.split(" ", 3) + [""] * 3)[:4]
        uid, gid = users.get(user, user.lstrip("#")), groups.get(group, group.lstrip("#"))
        below_no_link = rooted.host_path(root, path) == root / path.lstrip("/")
        if below_no_link and uid.isdecimal() and gid.isdecimal():
            owners[path.lstrip("/")] = FileOwner(int(uid), int(gid))
    return owners


def _numbers(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Users and groups of the tree, with their numbers."""
    users, groups = (dict(_ID.findall(_text(root, f"etc/{name}"))) for name in ("passwd", "group"))
    return users, groups


def _text(root: Path, path: str) -> str:
    return (rooted.read_bytes(root, path) or b"").decode("utf-8", "surrogateescape")


def asked(calls: bytes, root: Path) -> dict[str, FileOwner]:
    """The owners that scripts asked chown and chgrp for, by path: of `calls`, as `_NOTING` writes them."""
    users, groups = _numbers(root)
    owners: dict[str, FileOwner] = {}
    for call in filter(None, calls.split(b"\0\0\0")):
        program, folder, *arguments = call.decode("utf-8", "surrogateescape").split("\0")
        recursive = any(re.fullmatch(r"--recursive|-[^-]*R.*", argument) for argument in arguments)
        spec, *paths = [argument for argument in arguments if not argument.startswith("-")] or [""]
        user, _, group = spec.replace(".", ":", 1).partition(":") if program == "chown" else ("", "", spec)
        for path in paths:
            if (target := rooted.host_path(root, str(Path(folder, path)))) is None:
                continue
            below = trees.entries(target) if recursive and not target.is_symlink() else ()
            for name in (str(inside.relative_to(root)) for inside in (target, *below)):
                old = owners.get(name, FileOwner(0, 0))
                uid, gid = users.get(user, user), groups.get(group, group)
                owners[name] = FileOwner(int(uid) if uid.isdigit() else old.uid, int(gid) if gid.isdigit() else old.gid)
    return owners
