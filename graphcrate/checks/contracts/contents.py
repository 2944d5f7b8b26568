"""Contracts about what is in the image and where: folders that runtimes hide, sizes, libraries that do not belong."""

import datetime

from graphcrate.artifacts.tree.binaries import RELEASES
from graphcrate.checks.contracts.check import absent, check, failed, passed, settings_check, unknown, warned
from graphcrate.checks.contracts.paths import folders_in_path, is_below
from graphcrate.checks.contracts.view import distribution
from graphcrate.compat.facts import gpu_table, suites
from graphcrate.model.command import command
from graphcrate.model.contract import CheckVerdict, Host, ImageView, Settings
from graphcrate.model.platform import SUPPORTED, supported
from graphcrate.model.runtime import AS_THE_USER, RUNTIMES
from graphcrate.model.words import number_of

_LARGE = 10 * 10**9  #: bytes; takes minutes to import, and does not fit into many a node's /tmp
_HOMES = ("/root", "/home", "/tmp")
_MOUNTED = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/home", "/root")
_ON_A_LAYER = 1 << 20  #: a library of fewer bytes is a stub or a link


_PLATFORMS = " or ".join(row.name for row in SUPPORTED)


@settings_check(f"made for {_PLATFORMS}", *RUNTIMES)
def platform(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """The hosts are of that kind; anything else ends in `exec format error`.
    Source: OCI image specification 1.1, configuration
    """
    if not settings.platform:
        return unknown("the artifact does not say")
    if supported(settings.platform).name == settings.platform:
        for gpu in host.gpus:
            other = gpu_table.host_platform(gpu)
            if other and other.name != settings.platform:
                seen = f"{settings.platform}, and machines with {gpu} are {other.name}"
                return failed(seen, f"take the image for {other.name}")
        return passed(settings.platform)
    return failed(settings.platform, f"build it for {_PLATFORMS} (docker build --platform)")


@check("layers that unpack alike everywhere", *RUNTIMES)
def layers(view: ImageView, host: Host) -> CheckVerdict:
    """Layers that are cut short, or that put files below a link of a lower layer, fail in one engine and lose files in
    another.
    Source: OCI image specification 1.1, layer changesets
    """
    if view.broken:
        return failed(view.broken, "build the image again, or squash its layers")
    if view.unread:
        return unknown(view.unread[0])
    return passed(number_of(len(view.layers), "layer") if view.layers else "no layers")


@check("base with security updates", *RUNTIMES, files=RELEASES)
def security_updates(view: ImageView, host: Host) -> CheckVerdict:
    """Once Debian's support of a release has ended, holes that are found in its C library, its OpenSSL or its Python
    stay open in each container. Which day it is counts: the verdict on the same image changes.
    Source: distro-info-data, debian.csv; wiki.debian.org/LTS
    """
    release = distribution(view)
    system = suites.distributions().get(release.get("ID", ""))
    if system is None:
        name = release.get("PRETTY_NAME") or release.get("ID", "")
        seen = f"{name}: its support is not known here" if name else "no distribution named in /etc/os-release"
        return unknown(seen) if release else absent(view, unknown(seen))
    name = release.get("VERSION_CODENAME") or suites.of_release(release.get("VERSION_ID", ""), system.name)
    standing = suites.standing(name, host.today) if host.today else None
    if host.today is None or standing is None:
        return unknown(f"{system.title} {name or release.get('VERSION_ID', '')}: its support on this day is not known")
    seen = f"{system.title} {name}: {suites.described(name, host.today)}"
    if standing.state == "unreleased":
        return unknown(seen)
    return passed(seen) if standing.has_updates else warned(seen, _newer_base(view, host.today))


def _newer_base(view: ImageView, today: datetime.date) -> str:
    """Name a base to build on instead; for an image of ours the command that names a variant of its stack."""
    labels = view.settings.labels if view.settings else {}
    recipe, cuda = labels.get("graphcrate.recipe", ""), labels.get("graphcrate.cuda", "")
    if recipe and cuda:
        return f"{command('image', recipe, cuda=cuda, plan=True)}    names a variant on a newer base"
    newer = (f"{suites.titled(name)} (updates until {suites.last_day(name)})" for name in suites.updated(today))
    return f"build it on {' or '.join(newer)}"


@check("nothing in folders that are hidden", *AS_THE_USER)
def hidden(view: ImageView, host: Host) -> CheckVerdict:
    """Apptainer binds the host's home and /tmp, enroot covers /tmp and /run with an empty file system: what the image
    has in /root, /home or /tmp is gone when it runs, or closed to users who are not root.
    Source: Apptainer's user guide on bind paths; enroot 4.1.2, 10-system.fstab
    """
    fix = "install into /opt or /usr/local"
    for path in view.packages:
        if is_below(path, *_HOMES):
            return failed(f"Python packages in {path}", fix)
    for path in folders_in_path(view.settings) if view.settings else ():
        if is_below(path, *_HOMES):
            return failed(f"PATH names {path}", fix)
    if view.hidden:
        folder, below = next(iter(view.hidden.items()))
        seen = f"{number_of(below.files, 'file')} in {folder}, such as {below.example}"
        return warned(seen, f"remove what is left over there, or {fix}")
    return absent(view, passed("nothing but new homes' own files"))


@check("folders to mount on", "apptainer", files=_MOUNTED)
def mount_points(view: ImageView, host: Host) -> CheckVerdict:
    """Apptainer mounts the host's /proc, /sys, /dev, /tmp and home there; a file or a link in such a place makes the
    start fail, or leads elsewhere.
    Source: Apptainer's user guide on system-defined bind paths
    """
    wrong = [path for path in _MOUNTED if (file := view.files.get(path)) and file.real != "folder"]
    if wrong:
        return failed(f"{', '.join(wrong)}: no folder", "make it a folder")
    missing = [path for path in _MOUNTED[:4] if path not in view.files]
    if missing and view.form in ("sif", "squashfs"):
        fix = "mkdir them where the image is built"
        return absent(view, warned(f"{', '.join(missing)}: not there; only a host with overlay or underlay helps", fix))
    return absent(view, passed("folders, or made when a SIF is"))


@check("no devices of a machine", *RUNTIMES)
def devices(view: ImageView, host: Host) -> CheckVerdict:
    """Every runtime mounts a /dev of its own, so no image needs a disk or the machine's memory. Where root unpacks one
    that has them, any user who may open them controls the machine: `convert --to rootfs` leaves them out.
    Source: Linux, Documentation/admin-guide/devices.txt; mknod(2)
    """
    if view.devices:
        more = f" and {len(view.devices) - 1} more" if len(view.devices) > 1 else ""
        return warned(f"{view.devices[0]}{more}", "remove them where the image is built; do not unpack it as root")
    return absent(view, passed("none"))


@check("no libraries of the driver", *RUNTIMES, matching=r".*/(?:libcuda|libnvidia-ml)\.so[.\d]*")
def own_driver(view: ImageView, host: Host) -> CheckVerdict:
    """The NVIDIA runtime puts the host's libcuda and libnvidia-ml into the container. Where the image has its own, they
    clash: `file exists` at the start, or `Driver/library version mismatch`.
    Source: NVIDIA/nvidia-docker #825; nvidia-container-toolkit #289
    """
    libraries = [
        path
        for path, file in view.files.items()
        if file.kind == "file" and not any(part in path for part in ("/compat/", "/stubs/"))
    ]
    if libraries:
        fix = "remove the driver's packages (libnvidia-*, nvidia-driver) from the image"
        return failed(f"{libraries[0]}{f' and {len(libraries) - 1} more' if len(libraries) > 1 else ''}", fix)
    return absent(view, passed("none"))


@check("CUDA's libraries once", *RUNTIMES, matching=r".*/libcublasLt\.so[.\d]*")
def cuda_once(view: ImageView, host: Host) -> CheckVerdict:
    """Wheels of torch bring cuBLAS and cuDNN with them; a CUDA base image has them too: gigabytes that nothing uses,
    and a chance to load the wrong ones.
    Source: replicate/cog #972; GLT's IGBH Dockerfile
    """
    paths = sorted(path for path, file in view.files.items() if file.kind == "file" and file.size > _ON_A_LAYER)
    wheels = [path for path in paths if "-packages/" in path]
    others = [path for path in paths if "-packages/" not in path]
    wheels = wheels or [name for name in view.distributions if name.startswith("nvidia-cublas")]
    if wheels and others:
        return warned(f"{others[0]} and {wheels[0]}", "start from a base without CUDA (runtime or devel)")
    return absent(view, passed(paths[0] if paths else "no cuBLAS"))


@check("size", *RUNTIMES)
def size(view: ImageView, host: Host) -> CheckVerdict:
    """Docker and enroot unpack the image on every node, enroot often in memory (/run, /tmp): tens of gigabytes end in
    `No space left on device`, or in minutes of waiting.
    Source: pyxis #24, #53; enroot #83; replicate/cog #972
    """
    if not view.unpacked or view.unread:
        packed = sum(layer.size for layer in view.layers)
        seen = f"{packed / 1e9:.1f} GB compressed" if packed else "unknown"
        return unknown(f"{seen}; not all layers were read")
    seen = f"{view.unpacked / 1e9:.1f} GB of files"
    if view.unpacked > _LARGE:
        return warned(
            seen, f"leave out compilers, caches and second copies; {command('inspect', '…')} shows who owns what"
        )
    return passed(seen)
