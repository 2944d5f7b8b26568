"""enroot, pyxis and Slurm: what a job with `--container-image` will meet."""

import posixpath
import re
from typing import Dict, Iterator, List

from doctor.finding import Finding, fail, listed, note, numbers, ok, size, warn
from doctor.host import Host
from doctor.machine import SMALL_DISK, kind_of, mounts_of

FOLDER = "/etc/enroot"
#: as enroot 4.1.2 has them where its configuration says nothing
FOLDERS = {
    "ENROOT_RUNTIME_PATH": "${XDG_RUNTIME_DIR}/enroot",
    "ENROOT_CACHE_PATH": "${XDG_CACHE_HOME}/enroot",
    "ENROOT_DATA_PATH": "${XDG_DATA_HOME}/enroot",
    "ENROOT_TEMP_PATH": "/tmp",
}
OCI_VERSION = "3.4.1"
ZSTD_TOOLS = "4.4"


def judge_enroot(host: Host, has_gpu: bool) -> Iterator[Finding]:
    """Version, hooks, folders, credentials."""
    program = host.find("enroot")
    if program is None:
        yield note("enroot", "not installed here", "with Slurm it may be on the compute nodes alone")
        return
    done = host.run([program, "version"])
    version = done.out.strip() if done and done.code == 0 else ""
    if version and numbers(version) < numbers(OCI_VERSION):
        why = f"it does not read OCI manifests (from {OCI_VERSION} on)"
        yield warn(
            "enroot", version, why, "skopeo copy --format v2s2 …    or a .sqsh: ./build.py convert REF --to sqsh"
        )
    elif version:
        yield ok("enroot", version)
    else:
        yield fail("enroot", program + " does not tell its version", "a broken installation", "enroot version")
    for finding in _unsquashfs(host):
        yield finding
    hooks = host.names(FOLDER + "/hooks.d")
    for finding in _hooks(host, hooks, has_gpu, program):
        yield finding
    for finding in _folders(host):
        yield finding
    for finding in _credentials(host):
        yield finding


def _unsquashfs(host: Host) -> Iterator[Finding]:
    """enroot unpacks by it."""
    program = host.find("unsquashfs")
    done = host.run([program, "-version"]) if program else None
    found = re.search(r"unsquashfs version (\d+\.\d+)", done.out + done.err) if done else None
    if found is None:
        why = "enroot unpacks images by it: `Command not found: unsquashfs`"
        yield warn("unsquashfs", "unsquashfs does not answer", why, "as root: install squashfs-tools")
    elif numbers(found.group(1)) < numbers(ZSTD_TOOLS):
        why = "it reads no zstd squashfs (from " + ZSTD_TOOLS + " on), which convert writes"
        fix = "./build.py convert REF --to sqsh --compression gzip; or newer squashfs-tools"
        yield warn("unsquashfs", "unsquashfs " + found.group(1), why, fix)
    else:
        yield ok("unsquashfs", "unsquashfs " + found.group(1))


def _hook(host: Host, program: str, name: str) -> str:
    """Return the path of a hook that enroot brings and does not enable: beside its program, under any prefix."""
    programs = [program, host.real(program)]
    prefixes = [posixpath.dirname(posixpath.dirname(each)) for each in programs]
    for prefix in [*prefixes, "/usr", "/usr/local"]:
        folder = posixpath.join(prefix, "share/enroot/hooks.d")
        if name in host.names(folder):
            return folder + "/" + name
    return ""


def _hooks(host: Host, hooks: List[str], has_gpu: bool, program: str) -> Iterator[Finding]:
    if not any(name.startswith("98-nvidia") for name in hooks):
        fix = f"as root: install NVIDIA's hook 98-nvidia.sh into {FOLDER}/hooks.d (package enroot+caps, or enroot)"
        told = fail if has_gpu else warn
        yield told("hook-nvidia", f"98-nvidia.sh is not in {FOLDER}/hooks.d", "containers get no GPU", fix)
    elif not has_gpu and _settings(host).get("NVIDIA_VISIBLE_DEVICES") == "void":
        yield ok("hook-nvidia", f"98-nvidia.sh, which {FOLDER}/enroot.conf tells to leave GPUs")
    elif not host.find("nvidia-container-cli"):
        why = "images with NVIDIA_VISIBLE_DEVICES=all do not start: `Command not found: nvidia-container-cli`"
        fix = (
            "NVIDIA_VISIBLE_DEVICES=void srun …, or `NVIDIA_VISIBLE_DEVICES void` in "
            + FOLDER
            + "/enroot.conf of nodes "
            "without GPUs; else install libnvidia-container-tools"
        )
        told = fail if has_gpu else warn
        yield told("hook-nvidia", "98-nvidia.sh without nvidia-container-cli", why, fix)
    else:
        yield ok("hook-nvidia", "98-nvidia.sh and nvidia-container-cli")
    if not any(name.startswith("50-slurm-pytorch") for name in hooks):
        why = "pyxis sets RANK and LOCAL_RANK alone, and nothing WORLD_SIZE, MASTER_ADDR and MASTER_PORT for torch"
        there = _hook(host, program, "50-slurm-pytorch.sh")
        # enroot's sources have it in conf/hooks/extra
        get = f"cp {there}" if there else "find / -name 50-slurm-pytorch.sh 2>/dev/null    and cp it to"
        fix = f"as root: {get} {FOLDER}/hooks.d/; or export them in the job"
        yield note("hook-pytorch", f"50-slurm-pytorch.sh is not in {FOLDER}/hooks.d", why, fix)
    else:
        yield ok("hook-pytorch", "50-slurm-pytorch.sh")


def _settings(host: Host) -> Dict[str, str]:
    """ENROOT_… and what hooks go by as configured: files in order, then the environment for what they leave open."""
    found: Dict[str, str] = {}
    files = [FOLDER + "/enroot.conf"]
    files += [
        FOLDER + "/enroot.conf.d/" + name for name in host.names(FOLDER + "/enroot.conf.d") if name.endswith(".conf")
    ]
    for name in files:
        for key, value in re.findall(
            r"^[ \t]*((?:ENROOT|NVIDIA|MELLANOX)_\w+)[ \t=]+(.*?)[ \t]*$", host.read(name) or "", re.MULTILINE
        ):
            found[key] = value.strip("\"'")
    for key in FOLDERS:
        if key not in found and host.environment.get(key):
            found[key] = host.environment[key]
    return found


def _expanded(host: Host, text: str) -> str:
    """With variables as a shell has them; empty where one is not known."""
    home = host.home()
    known = {
        "XDG_RUNTIME_DIR": f"/run/user/{host.uid}",
        "XDG_CACHE_HOME": home + "/.cache",
        "XDG_DATA_HOME": home + "/.local/share",
        "HOME": home,
        "USER": host.user(),
        "UID": str(host.uid),
        "EUID": str(host.uid),
        **{name: value for name, value in host.environment.items() if value},
    }
    text = re.sub(r"\$\(id -u\)", str(host.uid), text)
    text = re.sub(r"\$\((?:id -un|whoami)\)", host.user(), text)

    def fill(found: "re.Match[str]") -> str:
        name = found.group(1) or found.group(3)
        return known.get(name, found.group(2) or "$" + name)

    text = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)", fill, text)
    return "" if "$" in text or "`" in text else text


def _folders(host: Host) -> Iterator[Finding]:
    settings, mounts = {**FOLDERS, **_settings(host)}, mounts_of(host)
    told: List[str] = []
    for name in FOLDERS:
        folder = _expanded(host, settings[name])
        room = host.room(folder) if folder else None
        if room is None:
            yield note("enroot-folders", f"{name} is {settings[name]}, which the doctor cannot follow")
            continue
        kind = kind_of(mounts, folder)
        seen = "{}={}: {} free{}".format(name, folder, size(room.free), ", " + kind if kind else "")
        told.append(seen)
        if room.free < SMALL_DISK and name != "ENROOT_RUNTIME_PATH":
            why = "the image is unpacked there, in full: `No space left on device`, after minutes"
            if kind == "tmpfs":
                why += "; it is memory, and counts as the job's"
            fix = f"{name} in {FOLDER}/enroot.conf on a large disk; or start a .sqsh: --container-image=./pyg.sqsh"
            yield warn("enroot-folders", seen, why, fix)
        elif kind in ("nfs", "nfs4", "lustre", "gpfs", "beegfs") and name == "ENROOT_DATA_PATH":
            why = "unpacked images of many small files: slow there, and overlayfs refuses some of them"
            yield warn("enroot-folders", seen, why, f"{name} on a disk of the node")
    if told:
        yield ok("enroot-folders", "; ".join(told))


def _credentials(host: Host) -> Iterator[Finding]:
    """Two entries for one registry end in 401. Passwords are not shown."""
    folder = host.environment.get("ENROOT_CONFIG_PATH") or host.home() + "/.config/enroot"
    for path in (folder + "/.credentials", host.home() + "/.netrc"):
        machines = re.findall(r"^\s*machine\s+(\S+)", host.read(path) or "", re.MULTILINE)
        twice = sorted({name for name in machines if machines.count(name) > 1})
        if twice:
            why = "enroot takes one of them: 401, or the wrong account (enroot #187, pyxis #40)"
            yield warn("credentials", f"{path} has {listed(twice)} twice", why, "keep one entry for each machine")


# Slurm


def judge_slurm(host: Host, has_gpu: bool) -> Iterator[Finding]:
    """Yield whether Slurm answers, has pyxis and GPUs, and what this job has of them."""
    srun = host.find("srun")
    if srun is None:
        yield note("slurm", "not installed here")
        return
    version = host.run([srun, "--version"])
    told = version.out.strip() if version and version.code == 0 else ""
    if not told:
        seen = "srun does not start: " + _line(version.err if version else "")
        yield warn("slurm", seen, "jobs cannot be submitted from here", "echo $SLURM_CONF; module load slurm")
        return
    sinfo = host.find("sinfo")
    answer = host.run([sinfo, "-h", "-o", "%P|%G|%a"]) if sinfo else None
    if answer is None or answer.code is None or answer.code:
        why = "slurmctld does not answer: " + (_line(answer.err) if answer and answer.code else "no word within 2 s")
        yield warn("slurm", told, why, "scontrol ping; another login node")
    else:
        rows = [line.split("|") for line in answer.out.splitlines() if line.count("|") == 2]
        with_gpus = sorted({row[0].rstrip("*") for row in rows if "gpu" in row[1]})
        seen = "{}, partitions with GPUs: {}".format(told, listed(with_gpus) or "none")
        yield ok("slurm", seen)
    for finding in _pyxis(host, srun):
        yield finding
    for finding in _job(host, has_gpu):
        yield finding


def _line(text: str) -> str:
    return (text.strip().splitlines() or ["no word"])[-1][:200]


def _pyxis(host: Host, srun: str) -> Iterator[Finding]:
    configured = {
        path: settings.split()
        for folder in ("/etc/slurm", "/etc/slurm-llnl", "/opt/slurm/etc")
        for path in (
            f"{folder}/plugstack.conf",
            *(f"{folder}/plugstack.conf.d/{name}" for name in host.names(folder + "/plugstack.conf.d")),
        )
        for settings in re.findall(r"^[^#\n]*spank_pyxis\.so(.*)$", host.read(path) or "", re.MULTILINE)
    }
    done = host.run([srun, "--help"])
    if done and "--container-image" in done.out + done.err:
        settings = [setting for each in configured.values() for setting in each]
        yield ok("pyxis", "srun has --container-image" + (": " + listed(settings) if settings else ""))
        if any(re.match(r"use_squashfuse=(1|true|yes|y)$", setting) for setting in settings):
            if not host.find("squashfuse"):
                why = "use_squashfuse is set, and steps with a .sqsh end with `Command not found: squashfuse`"
                yield fail("pyxis-squashfuse", "squashfuse is not there", why, "as root: apt-get install squashfuse")
        elif configured:
            why = "a .sqsh is unpacked for each step, which takes 14 to 30 s where mounting it takes 4"
            fix = f"as root: use_squashfuse=1 behind spank_pyxis.so in {next(iter(configured))} (pyxis 0.22)"
            yield note("pyxis-squashfuse", "use_squashfuse is not set", why, fix)
    elif configured:
        why = "spank_pyxis.so is named there, and srun has no --container-image: it was built for another Slurm"
        fix = "the administrator builds pyxis for this Slurm; srun --help | grep container"
        yield fail("pyxis", next(iter(configured)), why, fix)
    else:
        why = "srun has no --container-image; Apptainer in a job does the same"
        yield note("pyxis", "not installed", why, "./build.py job REF --runtime singularity …")


def _job(host: Host, has_gpu: bool) -> Iterator[Finding]:
    variables = host.environment
    job = variables.get("SLURM_JOB_ID")
    if not job:
        return
    given = variables.get("SLURM_JOB_GPUS") or variables.get("SLURM_STEP_GPUS") or variables.get("SLURM_GPUS_ON_NODE")
    cores = variables.get("SLURM_CPUS_PER_TASK") or variables.get("SLURM_CPUS_ON_NODE") or "?"
    if has_gpu and not given:
        why = "the node has GPUs, and the job asked for none"
        yield warn("job", f"job {job} with {cores} cores", why, "srun --gres=gpu:1 …")
    else:
        yield ok("job", "job {} with {} cores, GPUs: {}".format(job, cores, given or "none"))
