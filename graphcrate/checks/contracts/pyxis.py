"""Requirements of pyxis and enroot in a Slurm job: how an image gets there, and what /etc has to be like."""

import re
from posixpath import basename

from graphcrate.artifacts.formats.runtime_files import SIF_SCRIPT
from graphcrate.checks.contracts.check import absent, check, failed, passed, settings_check, since, unknown, warned
from graphcrate.checks.contracts.paths import entry_words, folders_in_path
from graphcrate.checks.contracts.view import is_file, start_script, text_of
from graphcrate.compat.facts import facts
from graphcrate.compat.facts.facts import is_older
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.model.command import command
from graphcrate.model.contract import CheckVerdict, Host, ImageView, Settings
from graphcrate.model.runtime import AS_THE_USER, BY_ENROOT, BY_NVIDIAS_HOOK
from ocilayout import spec

_OCI_ENROOT, _ZSTD_ENROOT = facts.limit("enroot-oci").since, facts.limit("enroot-zstd").since
_ZSTD_KERNEL, _ZSTD_TOOLS = facts.limit("kernel-zstd").since, facts.limit("tools-zstd").since
_DOCKER_ZSTD = "application/vnd.docker.image.rootfs.diff.tar.zstd"
_SHELLS_WITH_KILL = ("sh", "dash", "bash", "busybox", "ash", "ksh", "zsh", "mksh")
#: a line that gives PATH a value without keeping what it had
_RESET = re.compile(r"""^\s*(?:export\s+)?PATH=(?![^\n]*\$\{?PATH)""", re.MULTILINE)
_CAPABILITIES = {"all", "compute", "compat32", "display", "graphics", "utility", "video"}
_USERS = ("/etc/passwd", "/etc/group")
_STARTS = ("/etc/rc", "/etc/environment")  #: by which enroot starts a squashfs
_ENROOT_VERSION = "--runtime pyxis --runtime-version VERSION    (enroot version on a node)"


def _version(host: Host) -> str:
    """Version of enroot; empty if it is not given."""
    return next((host.versions[name] for name in BY_ENROOT if name in host.versions), "")


@check("a form that pyxis takes", *BY_ENROOT, files=_STARTS)
def importable(view: ImageView, host: Host) -> CheckVerdict:
    """pyxis imports images of registries, and starts a squashfs whose path begins with `.` or `/`; nothing else.
    Source: pyxis 0.24, --container-image; pyxis #127
    """
    if view.form in ("sif", "folder"):
        return failed(f"a {view.form}", "push the image to a registry, or make a squashfs of it")
    if view.form != "squashfs":
        return passed("layers")
    missing = [path for path in _STARTS if not is_file(view, path)]
    if missing:
        fix = "make it with enroot import, which writes both"
        return failed(f"a squashfs without {' and '.join(missing)}, by which enroot starts it", fix)
    return passed("a squashfs with /etc/rc and /etc/environment")


@check("a squashfs that unsquashfs reads", *BY_ENROOT)
def unsquashfs(view: ImageView, host: Host) -> CheckVerdict:
    """enroot unpacks a squashfs by unsquashfs, which reads zstd from squashfs-tools 4.4 (2019) on. No kernel mounts it;
    where pyxis has use_squashfuse=1, squashfuse does, and reads zstd from 0.1.101.
    Source: squashfs-tools 4.4, CHANGES; enroot 3.4.1 and 4.1.2, runtime.sh
    """
    kind = view.compression
    if view.form != "squashfs" or kind != "zstd":
        return passed(kind or "layers: the squashfs is made when the image is imported")
    if host.kernel and is_older(host.kernel, _ZSTD_KERNEL):
        fix = command("convert", "REF", to="sqsh", compression="gzip")
        seen = f"zstd; distributions with Linux {host.kernel} have squashfs-tools that do not read it"
        return warned(seen, f"unsquashfs -version    on a node; before {_ZSTD_TOOLS}: {fix}")
    return passed(f"zstd, which squashfs-tools read from {_ZSTD_TOOLS} on")


@check("a manifest that enroot reads", *BY_ENROOT)
def manifest_type(view: ImageView, host: Host) -> CheckVerdict:
    """enroot takes OCI manifests from 3.4.1 on. Its first question names no OCI type either, which some registries
    (docker-registry 2.8) answer with 404 for an OCI manifest; Docker's schema 2 works everywhere.
    Source: NVIDIA/enroot 3.4.1; seen with enroot 4.1.2 and docker-registry 2.8
    """
    if not view.manifest_type:
        return passed("no manifest: the one that is pushed counts")
    if view.manifest_type == spec.DOCKER_MANIFEST:
        return passed("Docker schema 2")
    if view.manifest_type != spec.MANIFEST:
        return failed(view.manifest_type, "push it again: skopeo copy --format v2s2")
    unsure = unknown(f"OCI, which enroot reads from {_OCI_ENROOT} on", _ENROOT_VERSION)
    return since("OCI", "enroot", _version(host), _OCI_ENROOT, "skopeo copy --format v2s2", unsure)


@check("layers that enroot reads", *BY_ENROOT)
def enroot_layer_types(view: ImageView, host: Host) -> CheckVerdict:
    """enroot decompresses all layers by gzip but those of type tar+zstd, known from 4.0 on. A layer of Docker's
    type tar.zstd is dropped without a word: files are missing.
    Source: NVIDIA/enroot 4.0 and 4.1.2, docker.sh; seen with enroot 4.1.2
    """
    kinds = {layer.media_type for layer in view.layers if layer.media_type}
    if _DOCKER_ZSTD in kinds:
        return failed(f"{_DOCKER_ZSTD}: enroot drops such layers silently", "layers of type tar+gzip")
    if spec.LAYER_ZSTD in kinds:
        fix = "layers of type tar+gzip"
        unsure = warned(f"zstd layers, which enroot before {_ZSTD_ENROOT} cannot read", fix)
        return since("zstd layers", "enroot", _version(host), _ZSTD_ENROOT, fix, unsure)
    if strange := sorted(kinds - set(spec.LAYER_TYPES)):
        return failed(strange[0], "layers of type tar+gzip")
    return passed(", ".join(sorted(kind.rpartition(".")[2] for kind in kinds)) or "no types known")


@check("index entries say their platform", *BY_ENROOT)
def index_platform(view: ImageView, host: Host) -> CheckVerdict:
    """enroot looks for its platform in an index; an entry without one makes the import fail.
    Source: seen with enroot 4.1.2
    """
    if not view.without_platform:
        return passed("all do, or there is no index")
    if view.form == "layout":
        return passed("entries of the folder's own index do not matter: its image is pushed")
    fix = "push the manifest alone, or an index with platforms"
    return failed(f"{view.without_platform} entries of the index have no platform", fix)


@settings_check("PATH survives a login shell", *BY_ENROOT, files=("/etc/profile",), matching=r"/etc/profile\.d/.+\.sh")
def path_login(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """enroot starts a login shell, and the /etc/profile of Debian and Ubuntu gives PATH a new value: what the image put
    in front is gone, and `python` is not found.
    Source: seen with pyxis 0.24 and enroot 4.1.2 on Debian and Ubuntu images
    """
    usual = (*SYSTEM_PATH.split(":"), "/usr/games", "/usr/local/games")  # that some system has by itself
    own = [folder for folder in folders_in_path(settings) if folder not in usual]
    if not own:
        return passed("PATH has the system's folders alone")
    profile = text_of(view, "/etc/profile")
    if "/etc/profile" not in view.files:
        return absent(view, passed("no /etc/profile"))
    if not _RESET.search(profile):
        return passed("/etc/profile keeps PATH")
    scripts = [path for path in view.files if path.startswith("/etc/profile.d/")]
    texts = [profile, *(text_of(view, path) for path in scripts if "/etc/profile.d" in profile)]
    lost = [folder for folder in own if not any(folder in text for text in texts)]
    if not lost:
        return passed(f"/etc/profile.d puts {own[0]} back")
    fix = f"""RUN echo 'export PATH="{":".join(own)}:$PATH"' > /etc/profile.d/image.sh; in a job ENROOT_LOGIN_SHELL=n"""
    return absent(view, failed(f"/etc/profile sets PATH again, and {lost[0]} is lost", fix))


@settings_check("torch gets its rank", *BY_ENROOT)
def pytorch_version(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """Only for images that have PYTORCH_VERSION pyxis sets RANK and LOCAL_RANK, and enroot's hook, where a site has it,
    MASTER_ADDR, MASTER_PORT and WORLD_SIZE; without them init_process_group under srun fails.
    Source: pyxis 0.24, pytorch_setup; enroot 4.1.2, hook 50-slurm-pytorch.sh
    """
    if value := settings.variables.get("PYTORCH_VERSION", ""):
        return passed(f"PYTORCH_VERSION={value}")
    if not view.torch:
        return absent(view, passed("no torch in the image"))
    return warned("PYTORCH_VERSION is not set", f"ENV PYTORCH_VERSION={view.torch.partition('+')[0]}")


@settings_check("GPUs are asked for", *BY_ENROOT)
def visible_devices(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """enroot's hook gives GPUs only to images that set NVIDIA_VISIBLE_DEVICES; without it torch sees none. On a node
    without the NVIDIA container tools the same variable makes the start fail.
    Source: enroot 4.1.2, hook 98-nvidia.sh; enroot #205, #258
    """
    value = settings.variables.get("NVIDIA_VISIBLE_DEVICES", "")
    seen = f"NVIDIA_VISIBLE_DEVICES={value}" if value else "NVIDIA_VISIBLE_DEVICES is not set"
    if view.cuda not in ("", "cpu"):
        if value in ("", "void", "none"):
            return failed(f"{seen}: no GPU", "ENV NVIDIA_VISIBLE_DEVICES=all")
        return passed(seen)
    if value in ("", "void"):
        return passed("not set, and no CUDA was found") if view.cuda else absent(view, passed("not set"))
    fix = "leave it out of an image for the CPU; NVIDIA_VISIBLE_DEVICES=void in the job"
    return warned(f"{seen} without CUDA: fails on nodes without GPUs", fix)


@settings_check("capabilities of the driver", *BY_NVIDIAS_HOOK)
def driver_capabilities(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """The NVIDIA runtime mounts only the libraries of the capabilities that are named: without `compute` there is no
    libcuda. enroot takes `utility` alone where nothing is said, Docker both.
    Source: enroot 4.1.2, hook 98-nvidia.sh; NVIDIA container toolkit on NVIDIA_DRIVER_CAPABILITIES
    """
    value = settings.variables.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if view.cuda == "cpu" or not (view.cuda or value):
        return absent(view, passed("no CUDA in the image"))
    fix = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    if not value:
        return failed("NVIDIA_DRIVER_CAPABILITIES is not set: `utility` alone under enroot", f"ENV {fix}")
    names, seen = set(value.replace(" ", "").split(",")), f"NVIDIA_DRIVER_CAPABILITIES={value}"
    if strange := sorted(names - _CAPABILITIES):
        return warned(f"{seen}: enroot knows no {strange[0]!r} and ends", fix)
    return passed(seen) if names & {"all", "compute"} else failed(f"{seen} has no compute", fix)


@settings_check("InfiniBand, and nodes without it", *BY_ENROOT)
def infiniband(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """A container has the node's own /dev, InfiniBand with it, unless the site sets ENROOT_RESTRICT_DEV. Where
    MELLANOX_VISIBLE_DEVICES is set, enroot's hook gives the devices that it names, and ends the start on nodes without
    any (no /dev/infiniband/rdma_cm): `99-mellanox.sh exited with return code 1`.
    Source: enroot 3.4.1 and 4.1.2, 10-system.fstab, hooks 10-devices.sh and 99-mellanox.sh; seen with enroot 4.1.2
    """
    value = settings.variables.get("MELLANOX_VISIBLE_DEVICES", "")
    if value not in ("", "void", "none"):
        fix = "leave it out of the image; MELLANOX_VISIBLE_DEVICES=void srun …    on nodes without InfiniBand"
        return warned(f"MELLANOX_VISIBLE_DEVICES={value}: fails on nodes without InfiniBand", fix)
    if view.cuda in ("", "cpu"):
        return absent(view, passed("no CUDA in the image"))
    return unknown(
        "whether the site restricts /dev is not known",
        "only if it does (ENROOT_RESTRICT_DEV in enroot.conf), and only on nodes that have /dev/infiniband/rdma_cm: "
        "MELLANOX_VISIBLE_DEVICES=all srun …",
    )


@check("the shell can stop itself", *BY_ENROOT, files=("/bin/sh",), programs=("kill",))
def kill(view: ImageView, host: Host) -> CheckVerdict:
    """pyxis starts a container with `sh -c "kill -STOP $$ ; exit 0"` and joins it while it stands: `kill` has to be in
    the shell, or a program.
    Source: NVIDIA/pyxis 0.24, pyxis_slurmstepd.c
    """
    if path := view.programs.get("kill"):
        return passed(path)
    if shell := view.files.get("/bin/sh"):
        target = basename(shell.link) or "sh"
        if target in _SHELLS_WITH_KILL:
            return passed(f"built into {target}")
    return absent(view, failed("neither a program `kill` nor a shell that has it", "install dash or bash"))


@check("/etc is a folder with users in it", *AS_THE_USER, files=("/etc", *_USERS))
def etc(view: ImageView, host: Host) -> CheckVerdict:
    """enroot and Apptainer write the user's own line into /etc/passwd and /etc/group before the image starts: they have
    to be files in a folder that can be written; a link leads out to the host.
    Source: enroot 4.1.2, hook 10-shadow.sh; Apptainer's user guide on /etc/passwd
    """
    folder = view.files.get("/etc")
    if folder is None:
        return absent(view, failed("there is no /etc", "start from a distribution's base"))
    if folder.kind != "folder" or not folder.mode & 0o200:
        return failed(f"/etc is a {folder.kind} with mode {folder.mode:04o}", "make it a folder of mode 0755")
    missing = [path for path in _USERS if path not in view.files]
    for path in _USERS:
        if path not in missing and view.files[path].kind != "file":
            return failed(f"{path} is a {view.files[path].kind}", "make it a file")
    if missing:
        return absent(view, warned(f"{' and '.join(missing)} not there", "add them, with a line for root"))
    return passed("a folder with passwd and group")


@check("/etc/localtime can be replaced", *BY_ENROOT, files=("/etc/localtime",))
def localtime(view: ImageView, host: Host) -> CheckVerdict:
    """enroot copies the host's /etc/localtime over it: a folder there, or a link to one, makes the start fail.
    Source: enroot 4.1.2, hook 10-localtime.sh
    """
    file = view.files.get("/etc/localtime")
    if file is None:
        return absent(view, passed("not there"))
    if file.real == "folder":
        seen = f"a link to the folder {file.link}" if file.kind == "symlink" else "a folder"
        return failed(seen, "link it to a file, such as /usr/share/zoneinfo/Etc/UTC")
    return passed(f"→ {file.link}" if file.kind == "symlink" else "a file")


@settings_check("no volumes", *BY_ENROOT)
def volumes(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """A VOLUME on a path that the image lacks becomes a folder of mode 0000, which only root can enter.
    Source: seen with enroot 4.1.2
    """
    for path in settings.volumes:
        if path not in view.files:
            return absent(view, failed(f"VOLUME {path}, which the image lacks", "leave VOLUME out, or mkdir it"))
    paths = " ".join(settings.volumes)
    return warned(f"VOLUME {paths}", "leave VOLUME out") if paths else passed("none")


@settings_check("needs no entry point", *BY_ENROOT, files=(SIF_SCRIPT,))
def skipped_entrypoint(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """pyxis skips ENTRYPOINT unless --container-entrypoint is given: what such a script sets up is not there.
    Source: NVIDIA/pyxis 0.24, --container-entrypoint
    """
    words = entry_words(settings, start_script(view))
    if not words or basename(words[0]) in ("tini", "dumb-init", "env", "sh", "bash"):
        return passed("none that sets anything up")
    fix = "put what it does into ENV or /etc/profile.d; srun --container-entrypoint"
    return warned(f"{words[0]} is not run", fix)


@settings_check("values that survive /etc/environment", *BY_ENROOT)
def env_values(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """enroot hands ENV over in /etc/environment: a newline cuts a value, ${X} is filled in from the host, quotes around
    are stripped, names that are no identifiers vanish.
    Source: seen with enroot 4.1.2
    """
    broken, changed = [], []
    for entry in settings.environment:
        name, _, value = entry.partition("=")
        if "\n" in value or "${" in value:
            broken.append(f"{name} has {'a newline' if chr(10) in value else '${…}'}")
        elif not (name.isascii() and name.isidentifier()):
            changed.append(f"{name!r} is not an identifier")
        elif len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            changed.append(f"{name!r} is in quotes")
    if broken:
        return failed(", ".join(broken), "give plain values, or set them in /etc/profile.d")
    if changed:
        return warned(", ".join(changed), "give plain names and values")
    return passed(f"{len(settings.environment)} variables")
