"""A Debian system from .debs, by nothing but Python, the kernel's user namespaces and the dpkg that is in the .debs.

The packages are extracted here, so that dpkg can run. Then that dpkg, inside the tree, installs all of them. It runs
with one number as owner of everything, where calls that change owners succeed and do nothing: so a plain user without
subordinate ids makes the same tree as root does. Who owns what is learned from the packages and from what their
scripts ask for.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from graphcrate.compat.facts import identities, suites
from graphcrate.host.disk import trees
from graphcrate.host.parallel import parallel
from graphcrate.host.sandbox import beneath, rooted
from graphcrate.host.sandbox.emulation import Emulator, is_native
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.bases.archive import REGISTRY_INSTEAD
from graphcrate.inputs.bases.deb import FileOwner, extract, inflate_member
from graphcrate.model.command import IMAGE_AGAIN, LOCK_AGAIN, setting
from graphcrate.model.errors import BuildError, DiskFullError, GraphcrateError, HostError
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.words import with_mark
from nsbox.box import Bind
from nsbox.namespaces import NO_SECCOMP

TIMEOUT = 1800.0
EMULATED_TIMEOUT = 6 * TIMEOUT  #: an emulator takes ten times as long, on a busy machine more
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
_ENVIRONMENT = {
    "PATH": "/tmp/noting:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "SOURCE_DATE_EPOCH": str(LAYER_MTIME),
    "PYTHONHASHSEED": "0",  # the order of constants in bytecode
}


def install(
    debs: Sequence[Path],
    root: Path,
    suite: str,
    advance: Callable[[int], None],
    platform: Platform = DEFAULT,
    emulator: Emulator | None = None,
) -> dict[str, FileOwner]:
    """Make a system of these packages in the new folder `root`. Return the owners of paths that are not root's.

    Call `advance` with bytes of the packages as they are unpacked and set up: half of a package's size for each.
    `emulator`: what runs the packages' programs where this machine is another one than the platform's.
    Raises BuildError where one cannot be installed, HostError where this machine cannot run them, or has no user
    namespaces.
    """
    if emulator is None and not is_native(platform):
        machine = os.uname().machine
        raise HostError(f"a base for {platform.title} cannot be made on {machine}", next_step=REGISTRY_INSTEAD)
    root.mkdir(0o755)
    if suites.base_of(suite).links_usr:
        for name in dict.fromkeys(("bin", "sbin", "lib", platform.loader_folder)):
            rooted.make_folders(root / "usr" / name)
            (root / name).symlink_to(f"usr/{name}")
    owners: dict[str, FileOwner] = {}
    with _packages(debs, root) as (work, inflated, begins):
        for deb, begin in zip(inflated, begins, strict=True):
            owners |= extract(deb, begin, root)
        calls = _run_dpkg(root, work, _script(debs, suite), _counter(debs, advance), emulator)
    for name, text in _FILES.items():
        try:
            rooted.write_text(root, name, text.format(debian=platform.debian))
        except OSError as error:
            raise _no_tree(name, error) from error
    owners |= overridden(root)
    # Packages name their files below /bin and /lib, which are links.
    host_paths = {path: rooted.host_path(root, path) for path in owners}
    real = {path: str(host_path.relative_to(root)) for path, host_path in host_paths.items() if host_path is not None}
    return {real[path]: owner for path, owner in owners.items() if path in real} | asked(calls, root)


def install_more(
    debs: Sequence[Path],
    root: Path,
    advance: Callable[[int], None],
    emulator: Emulator | None = None,
) -> None:
    """Install more packages into a system of `install`, by the dpkg that it has. `advance`, errors: as there.

    Owners are not kept: for a tree that programs run in and that becomes no layer.
    """
    with _packages(debs, root) as (work, _, _):
        _run_dpkg(root, work, _BEGIN + _INSTALL, _counter(debs, advance), emulator)


@contextlib.contextmanager
def _packages(debs: Sequence[Path], root: Path) -> Iterator[tuple[Path, list[Path], list[int]]]:
    """A folder beside `root` for dpkg to work from; the packages in it, inflated; where the files of each begin."""
    with trees.folder_in(root.parent) as work:
        for name in ("debs", "noting", "calls"):
            (work / name).mkdir()
        inflated = [work / "debs" / path.name for path in debs]
        begins = parallel(lambda number, _: inflate_member(debs[number], inflated[number]), range(len(debs)))
        yield work, inflated, begins


def _counter(debs: Sequence[Path], advance: Callable[[int], None]) -> Callable[[str], None]:
    """Return a reader of dpkg's lines: each package is unpacked and set up once, with half of its bytes."""
    half = {path.name.partition("_")[0]: path.stat().st_size // 2 for path in debs}
    steps = {"Unpacking": half, "Setting up": dict(half)}

    def count(line: str) -> None:
        if step := _STEP.match(line):
            advance(steps[step[1]].pop(step[2], 0))

    return count


def _script(debs: Sequence[Path], suite: str) -> str:
    """Return the script that runs in the new tree: dpkg, and what has to be done after it."""
    after = identities.after_install({path.name.partition("_")[0] for path in debs})
    return (
        _BEGIN
        + _FIRST
        + _INSTALL
        + "".join(f"{line}\n" for line in after)
        + (_COMPILE if suites.base_of(suite).compiles_again else "")
    )


def _run_dpkg(root: Path, work: Path, script: str, on_line: Callable[[str], None], emulator: Emulator | None) -> bytes:
    """Install all packages, and return the notes of what scripts called."""
    for name in ("chown", "chgrp"):
        (work / "noting" / name).write_text(_NOTING.replace("NAME", name))
        (work / "noting" / name).chmod(0o755)
    command = Exec(
        ["/bin/sh", "-c", script],
        _ENVIRONMENT,
        [Bind(work / name, f"/tmp/{name}", read_only=name != "calls") for name in ("debs", "noting", "calls")],
        on_line=on_line,
        timeout=TIMEOUT if emulator is None else EMULATED_TIMEOUT,
        step=Step.INSTALL,
        emulator=emulator,
    )
    done = run_in(root, command)
    if done.returncode:
        raise _failure(done.lines, root)
    return beneath.read(work / "calls", "calls") or b""


def _no_tree(name: str, error: OSError) -> BuildError:
    return BuildError(
        f"/{name} of the Debian system cannot be written: {error.strerror}",
        cause="A script of a package left a link or no folder where Debian has one.",
        next_step=f"leave out the package that you added last, from base.packages of the recipe or {setting(apt='…')}",
    )


def _failure(lines: Sequence[str], root: Path) -> GraphcrateError:
    """The error for dpkg's last lines."""
    tail = with_mark(lines[-12:])
    if any("No space left on device" in line or "Disk quota exceeded" in line for line in lines):
        return DiskFullError(
            f"the disk that holds {root} is full, or its quota is used up{tail}",
            next_step=f"free some room, or name another disk: GRAPHCRATE_CACHE=/path {IMAGE_AGAIN}",
        )
    if any(line.startswith(NO_SECCOMP) for line in lines):
        return HostError(
            f"a Debian base cannot be made here: {lines[-1]}",
            cause="The kernel, or the container around this shell, forbids them; without, a user cannot own a system.",
            next_step=f"use an engine that is set up here: {setting(engine='docker')}, podman or apptainer    "
            f"({REGISTRY_INSTEAD})",
        )
    names = re.findall(r"error processing (?:package|archive) (\S+)", "\n".join(lines))
    packages = ", ".join(dict.fromkeys(name.rpartition("/")[2] for name in names)) or "a package"
    return BuildError(
        f"dpkg cannot install {packages}{tail}",
        cause="A script of the package failed, or it contradicts another package.",
        next_step=f"leave it out of base.packages in the recipe, or lock again: {LOCK_AGAIN}",
    )


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
