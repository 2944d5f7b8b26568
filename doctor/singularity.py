"""Apptainer and Singularity: whether a plain user can start an image with them, and with GPUs."""

import os
import re
from typing import Iterator, Optional, Tuple

from doctor.finding import Finding, fail, listed, note, numbers, ok, warn
from doctor.host import Host
from doctor.machine import kernel_of

#: where packages and `make install` put what belongs to it
PREFIXES = ("/usr", "/usr/local", "/opt/apptainer", "/opt/singularity")
#: kernel from which a plain user may mount FUSE file systems in a namespace of his own
FUSE_KERNEL = "4.18"
#: variables of the host that every container gets over the image's, and that change what Python finds
FORCED = re.compile(r"(?:APPTAINER|SINGULARITY)ENV_(?:PATH|PREPEND_PATH|LD_LIBRARY_PATH|LD_PRELOAD|PYTHON\w+)")
#: switches as variables: as if they had been typed
CLEANING = re.compile(r"(?:APPTAINER|SINGULARITY)_(?:CLEANENV|CONTAINALL)")


def judge_singularity(host: Host) -> Iterator[Finding]:
    """Version, ways to start, `--nv`."""
    program = host.find("apptainer") or host.find("singularity")
    if program is None:
        yield note("singularity", "neither Apptainer nor Singularity is installed")
        return
    done = host.run([program, "--version"])
    told = (done.out if done and done.code == 0 else "").strip()
    if not told:
        why = "it does not even tell its version" + (": " + _last(done.err) if done and done.err.strip() else "")
        yield fail("singularity", program, why, f"{program} --version; a broken installation, or a module to load")
        return
    yield ok("singularity", f"{told}, {program}")
    version = (re.findall(r"\d+(?:\.\d+)+", told) or [""])[0]
    folder, configuration = _configuration(host, "apptainer" in told.lower())
    for finding in _starting(host, program, version, configuration):
        yield finding
    if folder:
        for finding in _gpu_list(host, folder, configuration):
            yield finding
    for finding in _variables(host):
        yield finding


def _variables(host: Host) -> Iterator[Finding]:
    """Yield what a profile or a module has set for every container that is started from here."""
    forced = sorted(name for name in host.environment if FORCED.fullmatch(name))
    if forced:
        seen = listed(f"{name}={host.environment[name]}" for name in forced)
        why = "every container gets these over the image's own, with --cleanenv too"
        yield warn("container-variables", seen, why, "unset " + " ".join(forced))
    cleaning = sorted(name for name, value in host.environment.items() if value and CLEANING.fullmatch(name))
    if cleaning:
        why = "a job's SLURM_…, RANK, MASTER_ADDR and CUDA_VISIBLE_DEVICES stay outside: each process trains by itself"
        yield warn("container-switches", listed(cleaning), why, "unset {}    in jobs".format(" ".join(cleaning)))


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


def _configuration(host: Host, is_apptainer: bool) -> Tuple[str, str]:
    """(folder, text) of apptainer.conf or singularity.conf; empty where it cannot be read."""
    name = "apptainer" if is_apptainer else "singularity"
    for top in ("/etc", "/usr/local/etc", f"/opt/{name}/etc"):
        text = host.read(f"{top}/{name}/{name}.conf")
        if text is not None:
            return f"{top}/{name}", text
    return "", ""


def setting(configuration: str, name: str, default: str) -> str:
    """`name = value` of a configuration; comments do not count."""
    found = re.findall(rf"^[ \t]*{re.escape(name)}[ \t]*=[ \t]*(.*?)[ \t]*$", configuration, re.MULTILINE)
    return str(found[-1]) if found else default


def user_namespaces(host: Host) -> str:
    """Explain why a plain user gets no user namespace; empty where nothing forbids it."""
    for name, forbids in (
        ("kernel/unprivileged_userns_clone", "0"),
        ("user/max_user_namespaces", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        value = (host.read("/proc/sys/" + name) or "").strip()
        if value == forbids:
            return "{}={}".format(name.replace("/", "."), value)
    return "" if host.exists("/proc/self/ns/user") else "this kernel has none"


def starter(host: Host, program: str) -> Optional[str]:
    """The set-uid starter, where there is one; it makes user namespaces and squashfuse unnecessary."""
    for prefix in dict.fromkeys([program.rsplit("/bin/", 1)[0], *PREFIXES]):
        for middle in ("libexec", f"lib/{os.uname().machine}-linux-gnu", "lib", "lib64"):
            for name in ("apptainer", "singularity"):
                path = f"{prefix}/{middle}/{name}/bin/starter-suid"
                if host.is_setuid_root(path):
                    return path
    return None


def _starting(host: Host, program: str, version: str, configuration: str) -> Iterator[Finding]:
    suid = starter(host, program)
    allowed = setting(configuration, "allow setuid", "yes") == "yes"
    if suid and allowed:
        yield ok("start", f"by the set-uid program {suid}")
        return
    if host.uid == 0:
        yield note("start", "you are root, who needs neither set-uid nor user namespaces; other users may")
    forbidden = user_namespaces(host)
    why_not = "`allow setuid = no`" if suid else "it is installed without its set-uid part"
    if forbidden and host.uid:
        why = f"{why_not}, and {forbidden} forbids the user namespaces that it would take instead"
        fix = f"as root: sysctl {_opposite(forbidden)}, or install apptainer-suid"
        yield fail("start", "no way to start a container", why, fix)
        return
    yield ok("start", "by user namespaces" + ("" if not forbidden else f" ({forbidden}: for root alone)"))
    yield from _mounting(host, program, version)


def _opposite(forbidden: str) -> str:
    name, _, value = forbidden.partition("=")
    if name.endswith("max_user_namespaces"):
        return name + "=15000"
    return "{}={}".format(name, "0" if value == "1" else "1") if value else "with a newer kernel"


def _mounting(host: Host, program: str, version: str) -> Iterator[Finding]:
    """Without set-uid a SIF is mounted through FUSE, or unpacked at each start."""
    prefix = program.rsplit("/bin/", 1)[0]
    own = [f"{prefix}/libexec/apptainer/bin/{name}" for name in ("squashfuse_ll", "squashfuse")]
    fuse = (
        next((path for path in own if host.exists(path)), None) or host.find("squashfuse_ll") or host.find("squashfuse")
    )
    old = numbers(kernel_of(host)) < numbers(FUSE_KERNEL)
    unpacked = "the SIF is unpacked into $APPTAINER_TMPDIR at every start: minutes, and its full size"
    if not fuse:
        yield warn(
            "mount",
            "squashfuse is not installed",
            unpacked,
            "as root: apt-get install squashfuse    (dnf on Red Hat's)",
        )
    elif old and host.uid:
        yield warn(
            "mount",
            f"kernel {kernel_of(host)}",
            f"before {FUSE_KERNEL} users cannot mount FUSE: " + unpacked,
            "an installation with set-uid",
        )
    elif not host.exists("/dev/fuse") or not host.may_write("/dev/fuse"):
        yield warn(
            "mount",
            "/dev/fuse is {}".format("closed to you" if host.exists("/dev/fuse") else "missing"),
            unpacked,
            "as root: modprobe fuse; chmod 666 /dev/fuse",
        )
    else:
        yield ok("mount", fuse)
    absent = [name for name in ("fuse2fs", "fuse-overlayfs") if not host.find(name)]
    if absent:
        yield note("overlay", listed(absent) + " not installed", "needed for --overlay and writable images alone")


def _gpu_list(host: Host, folder: str, configuration: str) -> Iterator[Finding]:
    """Yield the list of libraries that `--nv` goes by."""
    path = folder + "/nvliblist.conf"
    text = host.read(path)
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
    if not host.find("ldconfig"):
        yield warn(
            "nv", "ldconfig is not found", "--nv looks the driver's libraries up with it", "export PATH=$PATH:/sbin"
        )
    if setting(configuration, "mount home", "yes") == "no":
        yield note("home", "your home is not there inside (mount home = no)", "", "--bind $HOME")
