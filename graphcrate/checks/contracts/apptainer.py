"""Apptainer's and Singularity's requirements of an image, and how they change it."""

from graphcrate.checks.contracts.check import absent, check, is_root, passed, settings_check, since, unknown, warned
from graphcrate.checks.contracts.paths import is_below
from graphcrate.compat.facts import facts
from graphcrate.model.command import command
from graphcrate.model.contract import CheckVerdict, Host, ImageView, Settings
from graphcrate.model.runtime import AS_THE_USER

_GZIP = f"{command('convert', 'NAME:TAG', to='sif', kernel='3.10')}    makes it with gzip"
_ZSTD_KERNEL = facts.limit("kernel-zstd").since
_BOUND = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


@check("a squashfs that the kernel mounts", "apptainer")
def squashfs(view: ImageView, host: Host) -> CheckVerdict:
    """Linux mounts zstd squashfs from 4.14 on, el7's kernel neither xz nor lzo; squashfuse, by which Apptainer mounts
    without its set-uid part, reads zstd from 0.1.101.
    Source: Linux 4.14, fs/squashfs/Kconfig; Singularity on CentOS 7 (kernel 3.10)
    """
    kind = view.compression
    if kind in ("", "gzip"):
        made = "layers: the squashfs is made when the image is converted"
        return passed("gzip, which every kernel mounts" if kind else made)
    unsure = unknown(f"{kind}: needs Linux {_ZSTD_KERNEL}", "--kernel VERSION")
    return since(
        kind,
        "Linux",
        host.kernel,
        _ZSTD_KERNEL,
        _GZIP,
        unsure,
    )


@settings_check("does not depend on USER", *AS_THE_USER)
def user(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """The image runs as the user who starts it, not as USER, and files belong to others: what only that USER may
    read or write is closed.
    Source: Apptainer's user guide on OCI images; seen with pyxis 0.24 and enroot 4.1.2
    """
    if is_root(settings.user):
        return passed("root, as most images")
    return warned(f"USER {settings.user} is ignored", "chmod -R a+rX what is installed, and leave USER out")


@settings_check("no HOME of its own", *AS_THE_USER)
def home(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """Homes are the host's. Under pyxis the image's variable wins: HOME=/root for a user who is not root; enroot makes
    the folder, and ends where it cannot enter it.
    Source: enroot 4.1.2; seen with pyxis 0.24
    """
    value = settings.variables.get("HOME", "")
    return warned(f"HOME={value}", "leave it out of ENV") if value else passed("not set")


@settings_check("working folder that is there", *AS_THE_USER)
def working_folder(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """pyxis enters WORKDIR; in a folder that is hidden, or that the image lacks, the job starts elsewhere or not at
    all. Apptainer starts where the user is.
    Source: seen with pyxis 0.24; Apptainer's user guide on the working directory
    """
    path = settings.working_folder
    if path in ("", "/"):
        return passed("none")
    if is_below(path, "/root", "/home", "/tmp"):
        return warned(f"WORKDIR {path} is hidden by the host's own", "WORKDIR /workspace, or none")
    if (file := view.files.get(path)) and file.real == "folder":
        return passed(f"WORKDIR {path}")
    return absent(view, warned(f"WORKDIR {path} is not a folder of the image", "RUN mkdir it"))


@check("names and addresses can be bound", *AS_THE_USER, files=_BOUND)
def etc_binds(view: ImageView, host: Host) -> CheckVerdict:
    """/etc/hosts, /etc/hostname and /etc/resolv.conf are mounted from the host. Where one is a link out of /etc
    (systemd-resolved makes such), there is nothing to mount on, and names are not found.
    Source: enroot 4.1.2, 20-config.fstab; Apptainer's user guide on system-defined bind paths
    """
    links = [
        f"{path} → {file.link}"
        for path in _BOUND
        if (file := view.files.get(path)) and file.kind == "symlink" and file.real != "file"
    ]
    if links:
        return warned(", ".join(links), "replace the link by an empty file")
    return absent(view, passed("files, or not there"))
