"""Apptainer and Singularity: whether a plain user can start an image with them, and with GPUs."""

import re
from typing import Iterator, Optional, Tuple

from doctor.finding import Finding, fail, listed, note, numbers, ok, warn
from doctor.machine import kernel_of
from doctor.place import Place

#: where packages and `make install` put what belongs to it
PREFIXES = ("/usr", "/usr/local", "/opt/apptainer", "/opt/singularity")
#: kernel from which a plain user may mount FUSE file systems in a namespace of his own
FUSE_KERNEL = "4.18"
#: variables of the host that every container gets over the image's, and that change what Python finds
FORCED = re.compile(r"(?:APPTAINER|SINGULARITY)ENV_(?:PATH|PREPEND_PATH|LD_LIBRARY_PATH|LD_PRELOAD|PYTHON\w+)")
#: switches as variables: as if they had been typed
CLEANING = re.compile(r"(?:APPTAINER|SINGULARITY)_(?:CLEANENV|CONTAINALL)")


def judge_singularity(place: Place) -> Iterator[Finding]:
    """Version, ways to start, `--nv`."""
    program = place.find("apptainer") or place.find("singularity")
    if program is None:
        yield note("singularity", "neither Apptainer nor Singularity is installed")
        return
    done = place.run([program, "--version"])
    told = (done.out if done and done.code == 0 else "").strip()
    if not told:
        why = "it does not even tell its version" + (": " + _last(done.err) if done and done.err.strip() else "")
        yield fail("singularity", program, why, f"{program} --version; a broken installation, or a module to load")
        return
    yield ok("singularity", f"{told}, {program}")
    version = (re.findall(r"\d+(?:\.\d+)+", told) or [""])[0]
    folder, configuration = _configuration(place, "apptainer" in told.lower())
    for finding in _starting(place, program, version, configuration):
        yield finding
    if folder:
        for finding in _gpu_list(place, folder, configuration):
            yield finding
    for finding in _variables(place):
        yield finding


def _variables(place: Place) -> Iterator[Finding]:
    """What a profile or a module has set for every container that is started from here."""
    forced = sorted(name for name in place.environment if FORCED.fullmatch(name))
    if forced:
        seen = listed(f"{name}={place.environment[name]}" for name in forced)
        why = "every container gets these over the image's own, with --cleanenv too"
        yield warn("container-variables", seen, why, "unset " + " ".join(forced))
    cleaning = sorted(name for name, value in place.environment.items() if value and CLEANING.fullmatch(name))
    if cleaning:
        why = "a job's SLURM_…, RANK, MASTER_ADDR and CUDA_VISIBLE_DEVICES stay outside: each process trains by itself"
        yield warn("container-switches", listed(cleaning), why, "unset {}    in jobs".format(" ".join(cleaning)))


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


def _configuration(place: Place, is_apptainer: bool) -> Tuple[str, str]:
    """(folder, text) of apptainer.conf or singularity.conf; empty where it cannot be read."""
    name = "apptainer" if is_apptainer else "singularity"
    for top in ("/etc", "/usr/local/etc", f"/opt/{name}/etc"):
        text = place.read(f"{top}/{name}/{name}.conf")
        if text is not None:
            return f"{top}/{name}", text
    return "", ""


def setting(configuration: str, name: str, default: str) -> str:
    """`name = value` of a configuration; comments do not count."""
    found = re.findall(rf"^[ \t]*{re.escape(name)}[ \t]*=[ \t]*(.*?)[ \t]*$", configuration, re.MULTILINE)
    return str(found[-1]) if found else default


def user_namespaces(place: Place) -> str:
    """Why a plain user gets no user namespace; empty where nothing speaks against it."""
    for name, forbids in (
        ("kernel/unprivileged_userns_clone", "0"),
        ("user/max_user_namespaces", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        value = (place.read("/proc/sys/" + name) or "").strip()
        if value == forbids:
            return "{}={}".format(name.replace("/", "."), value)
    return "" if place.exists("/proc/self/ns/user") else "this kernel has none"


def starter(place: Place, program: str) -> Optional[str]:
    """The set-uid starter, where there is one; it makes user namespaces and squashfuse unnecessary."""
    for prefix in dict.fromkeys([program.rsplit("/bin/", 1)[0], *PREFIXES]):
        for middle in ("libexec", "lib/x86_64-linux-gnu", "lib", "lib64"):
            for name in ("apptainer", "singularity"):
                path = f"{prefix}/{middle}/{name}/bin/starter-suid"
                if place.is_setuid_root(path):
                    return path
    return None


def _starting(place: Place, program: str, version: str, configuration: str) -> Iterator[Finding]:
    suid = starter(place, program)
    allowed = setting(configuration, "allow setuid", "yes") == "yes"
    if suid and allowed:
        yield ok("start", f"by the set-uid program {suid}")
        return
    if place.uid == 0:
        yield note("start", "you are root, who needs neither set-uid nor user namespaces; other users may")
    forbidden = user_namespaces(place)
    why_not = "`allow setuid = no`" if suid else "it is installed without its set-uid part"
    if forbidden and place.uid:
        why = f"{why_not}, and {forbidden} forbids the user namespaces that it would take instead"
        fix = f"as root: sysctl {_opposite(forbidden)}, or install apptainer-suid"
        yield fail("start", "no way to start a container", why, fix)
        return
    yield ok("start", "by user namespaces" + ("" if not forbidden else f" ({forbidden}: for root alone)"))
    yield from _mounting(place, program, version)


def _opposite(forbidden: str) -> str:
    name, _, value = forbidden.partition("=")
    if name.endswith("max_user_namespaces"):
        return name + "=15000"
    return "{}={}".format(name, "0" if value == "1" else "1") if value else "with a newer kernel"


def _mounting(place: Place, program: str, version: str) -> Iterator[Finding]:
    """Without set-uid a SIF is mounted through FUSE, or unpacked at each start."""
    prefix = program.rsplit("/bin/", 1)[0]
    own = [f"{prefix}/libexec/apptainer/bin/{name}" for name in ("squashfuse_ll", "squashfuse")]
    fuse = (
        next((path for path in own if place.exists(path)), None)
        or place.find("squashfuse_ll")
        or place.find("squashfuse")
    )
    old = numbers(kernel_of(place)) < numbers(FUSE_KERNEL)
    unpacked = "the SIF is unpacked into $APPTAINER_TMPDIR at every start: minutes, and its full size"
    if not fuse:
        yield warn(
            "mount",
            "squashfuse is not installed",
            unpacked,
            "as root: apt-get install squashfuse    (dnf on Red Hat's)",
        )
    elif old and place.uid:
        yield warn(
            "mount",
            f"kernel {kernel_of(place)}",
            f"before {FUSE_KERNEL} users cannot mount FUSE: " + unpacked,
            "an installation with set-uid",
        )
    elif not place.exists("/dev/fuse") or not place.may_write("/dev/fuse"):
        yield warn(
            "mount",
            "/dev/fuse is {}".format("closed to you" if place.exists("/dev/fuse") else "missing"),
            unpacked,
            "as root: modprobe fuse; chmod 666 /dev/fuse",
        )
    else:
        yield ok("mount", fuse)
    absent = [name for name in ("fuse2fs", "fuse-overlayfs") if not place.find(name)]
    if absent:
        yield note("overlay", listed(absent) + " not installed", "needed for --overlay and writable images alone")


def _gpu_list(place: Place, folder: str, configuration: str) -> Iterator[Finding]:
    """What `--nv` goes by."""
    path = folder + "/nvliblist.conf"
    text = place.read(path)
    if text is None:
        why = "without it --nv finds no driver library: `Could not find any nv files on this host`"
        yield fail("nv", path + " is missing", why, "reinstall Apptainer")
    elif not re.search(r"^libcuda\.so\s*$", text, re.MULTILINE):
        yield fail(
            "nv",
            path + " does not name libcuda.so",
            "--nv then brings no CUDA in",
            "put the line libcuda.so into it, as root",
        )
    elif setting(configuration, "always use nv", "no") == "yes":
        yield ok("nv", "always on (always use nv = yes)")
    if not place.find("ldconfig"):
        yield warn(
            "nv", "ldconfig is not found", "--nv looks the driver's libraries up with it", "export PATH=$PATH:/sbin"
        )
    if setting(configuration, "mount home", "yes") == "no":
        yield note("home", "your home is not there inside (mount home = no)", "", "--bind $HOME")


def judge_identities(place: Place) -> Iterator[Finding]:
    """Subordinate ids and user namespaces: for building, podman and graphcrate's own sandbox."""
    forbidden = user_namespaces(place)
    if forbidden and place.uid:
        why = "graphcrate's own builds and `./build.py run`, enroot and rootless podman need them"
        yield warn("user-namespaces", "forbidden: " + forbidden, why, "as root: sysctl " + _opposite(forbidden))
    elif not forbidden:
        yield ok("user-namespaces", "allowed")
    if place.uid:
        user = place.user()
        lacking = [name for name in ("/etc/subuid", "/etc/subgid") if not _has_range(place.read(name), user, place.uid)]
        if lacking:
            why = "`apptainer build --fakeroot`, rootless podman and images from Debian packages want ranges there"
            fix = "as root: usermod --add-subuids 200000-265535 --add-subgids 200000-265535 " + user
            yield note("subordinate-ids", "{} is not in {}".format(user or place.uid, " and ".join(lacking)), why, fix)
        else:
            yield ok("subordinate-ids", f"{user} has ranges")


def _has_range(text: Optional[str], user: str, uid: int) -> bool:
    rows = [line.split(":") for line in (text or "").splitlines() if not line.startswith("#")]
    wanted: Tuple[str, str] = (user, str(uid))
    return any(len(row) == 3 and row[0] in wanted and row[2].strip().isdigit() and int(row[2]) > 0 for row in rows)
