"""Name the container around us, and what of the host leaks into it."""

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Tuple

from doctor.finding import Finding, fail, listed, note, ok, warn
from doctor.host import Host
from doctor.machine import mounts_of

OURS = "/opt/graphcrate/examples"
IMAGE_PYTHON = "/opt/venv/bin/python"
#: of containers whose kind is not the name of an engine
NAMES = {"image": "an image of graphcrate", "graphcrate": "graphcrate's own sandbox", "kubernetes": "Kubernetes (PAI)"}
#: libraries that, found first in LD_LIBRARY_PATH, take the place of those that torch was built with
RIVALS = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn\w*|nccl|cusparse|cusolver|cufft|curand|nvrtc|nvJitLink|stdc\+\+|gomp"
    r"|mkl_\w+|torch\w*|c10\w*"
    r"|python3[.\w]*|c|m|pthread)\.so"
)
#: modules of the standard library that torch and PyG import, and that people name their files after
STANDARD = ("random", "types", "typing", "copy", "json", "logging", "queue", "statistics", "profile", "inspect")
#: folders that runtimes put the driver's libraries into: those belong there
RUNTIMES_OWN = ("/.singularity.d/libs", "/usr/local/nvidia/lib", "/usr/local/nvidia/lib64", "/.graphcrate/nvidia/lib")
#: reads what Python would see, without importing anything of the user's
PROBE = """
import json, site, sys
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2], "prefix": sys.prefix, "executable": sys.executable, "path": sys.path,
    "user": site.getusersitepackages(), "user_on": bool(site.ENABLE_USER_SITE)}))
"""


class Interpreter(NamedTuple):
    """The Python that users' programs get: where it looks for packages."""

    version: str = ""
    prefix: str = ""
    executable: str = ""
    path: Tuple[str, ...] = ()
    user: str = ""  #: ~/.local/lib/python3.X/site-packages
    user_on: bool = False


def container_of(host: Host) -> str:
    """`apptainer`, `docker`, `podman`, `enroot`, `kubernetes`, `graphcrate` (our sandbox), `image`; empty outside."""
    variables = host.environment
    if host.exists("/.singularity.d") or "APPTAINER_CONTAINER" in variables or "SINGULARITY_CONTAINER" in variables:
        return "apptainer"
    if host.exists("/run/.containerenv"):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in variables or host.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if host.exists("/.dockerenv"):
        return "docker"
    if host.exists("/etc/rc") and host.exists("/etc/environment") and _enroot_root(host):
        return "enroot"
    if host.exists(OURS):
        return "graphcrate" if host.name() == "graphcrate" else "image"
    return ""


def _enroot_root(host: Host) -> bool:
    """enroot writes these two files at import, and its containers have no /etc/fstab of a machine with disks."""
    return any(
        point.startswith("/etc/") or kind in ("fuse.squashfuse", "fuse.squashfuse_ll", "overlay", "fuse.fuse-overlayfs")
        for point, kind in mounts_of(host)
    )


def judge_container(host: Host, container: str, python: Interpreter) -> Iterator[Finding]:
    """Yield what leaks in. Outside a container, what would leak into one."""
    variables = host.environment
    if container:
        yield ok("container", f"in a container: {NAMES.get(container, container)}")
    for finding in (
        *_user_site(host, python),
        *_python_path(host, python, container),
        *_working_folder(host, python),
        *_library_path(host),
        *_preload(host),
    ):
        yield finding
    if variables.get("PYTHONHOME"):
        seen, why = (
            "PYTHONHOME=" + variables["PYTHONHOME"],
            "Python then looks for its own library there, and not in the image",
        )
        yield fail("python-home", seen, why, "unset PYTHONHOME; singularity exec --cleanenv …")
    conda = [name for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if variables.get(name)]
    if container and conda:
        seen = listed(f"{name}={variables[name]}" for name in conda)
        why = (
            "an environment of the host is switched on: some tools (pip, cmake, nvcc) follow it into the "
            "host's packages"
        )
        yield warn("conda", seen, why, "conda deactivate    before; or singularity exec --cleanenv …")
    if container and host.exists(IMAGE_PYTHON):
        for finding in _which_python(host, container):
            yield finding


def _which_python(host: Host, container: str) -> Iterator[Finding]:
    found = host.find("python") or ""
    if found.startswith("/opt/venv/"):
        yield ok("python", found)
        return
    why = "PATH has something before the image's /opt/venv/bin: packages of the image are not found"
    if container == "enroot":
        why = "a login shell has set PATH again: packages of the image are not found"
    fix = "export PATH=/opt/venv/bin:$PATH    (or name /opt/venv/bin/python)"
    yield fail("python", "`python` is {}".format(found or "not found"), why, fix)


def names_in(host: Host, folder: str) -> Dict[str, str]:
    """Packages of a folder: name as imported → version where a distribution says so, else nothing."""
    found: Dict[str, str] = {}
    for entry in host.names(folder):
        info = re.match(r"([A-Za-z0-9_.]+?)-(\d[^-]*)(?:-.*)?\.(?:dist-info|egg-info)$", entry)
        if info:
            found[info.group(1).lower().replace("-", "_")] = info.group(2)
        elif re.match(r"[A-Za-z_]\w*$", entry) and entry not in ("__pycache__", "bin", "tests", "test", "examples"):
            found.setdefault(entry.lower(), "")
        elif re.match(r"[A-Za-z_]\w*\.(py|so|[\w-]+\.so)$", entry):
            found.setdefault(entry.split(".")[0].lower(), "")
    return found


def _own_packages(host: Host, python: Interpreter) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for folder in python.path:
        if folder.startswith(python.prefix) and folder.endswith(("site-packages", "dist-packages")):
            found.update(names_in(host, folder))
    return found


def _user_site(host: Host, python: Interpreter) -> Iterator[Finding]:
    if not python.user:
        return
    theirs = names_in(host, python.user)
    if not theirs:
        return
    seen = f"{python.user} has {len(theirs)} packages"
    if not python.user_on or python.user not in python.path:
        yield ok("user-site", seen + ", which Python leaves alone")
        return
    both = sorted(set(theirs) & set(_own_packages(host, python)))
    fix = "export PYTHONNOUSERSITE=1    (or python -s); singularity exec --no-home …"
    why = "Python takes what is there before its own packages: other versions than you think, `undefined symbol`"
    if both:
        versions = (f"{name} {theirs[name]}".strip() for name in both)
        yield fail("user-site", f"{python.user} shadows {listed(versions)}", why, fix)
    else:
        yield warn("user-site", seen + ": " + listed(sorted(theirs)), why, fix)


def _python_path(host: Host, python: Interpreter, container: str) -> Iterator[Finding]:
    value = host.environment.get("PYTHONPATH", "")
    if not value:
        return
    own = _own_packages(host, python)
    shadowed: List[str] = []
    for folder in value.split(os.pathsep):
        shadowed += [name for name in names_in(host, folder) if name in own and name not in shadowed]
    fix = "unset PYTHONPATH; singularity exec --cleanenv …; pyxis passes the host's on"
    if shadowed:
        why = "Python takes these before its own packages: `undefined symbol`, wrong versions"
        yield fail("python-path", f"PYTHONPATH={value} shadows {listed(sorted(shadowed))}", why, fix)
    elif container:
        yield warn("python-path", "PYTHONPATH=" + value, "what is there comes before the image's packages", fix)
    else:
        yield note(
            "python-path",
            "PYTHONPATH=" + value,
            "it goes into containers too",
            "unset PYTHONPATH    before starting one",
        )


def _working_folder(host: Host, python: Interpreter) -> Iterator[Finding]:
    """Python looks in the program's folder before all else, and that is mostly the working folder."""
    folder = host.working_folder()
    if not folder or folder in python.path:
        return
    shadowed = sorted(set(names_in(host, folder)) & {*_own_packages(host, python), *STANDARD})
    if shadowed:
        why = "programs that lie there, and `python -c`, import these instead of the packages of that name"
        yield warn("working-folder", f"{folder} has {listed(shadowed)}", why, "rename them, or work in another folder")


def _library_path(host: Host) -> Iterator[Finding]:
    folders = [folder for folder in host.environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    rivals: Dict[str, List[str]] = {}
    stubs = [folder for folder in folders if folder.rstrip("/").endswith("/stubs")]
    for folder in folders:
        if folder.rstrip("/") in RUNTIMES_OWN:
            continue
        names = [name.split(".so")[0] for name in host.names(folder) if RIVALS.match(name)]
        if names:
            rivals[folder] = sorted(set(names))
    fix = "unset LD_LIBRARY_PATH; module unload cuda; singularity exec --cleanenv …"
    if stubs:
        why = "its libcuda is for linking alone: cuInit answers 34"
        yield fail("library-path", f"LD_LIBRARY_PATH has {stubs[0]}", why, fix)
    for folder, names in rivals.items():
        why = (
            "these are loaded before those that torch brings: `undefined symbol`, `GLIBC… not found`, cuDNN mismatches"
        )
        yield warn("library-path", f"LD_LIBRARY_PATH has {folder} with {listed(names)}", why, fix)
    if folders and not rivals and not stubs:
        yield note(
            "library-path", "LD_LIBRARY_PATH={}".format(":".join(folders)), "nothing in it rivals torch's libraries"
        )


def _preload(host: Host) -> Iterator[Finding]:
    names = [name for name in re.split(r"[ :]+", host.environment.get("LD_PRELOAD", "")) if name]
    absent = [name for name in names if "/" in name and not host.exists(name)]
    if absent:
        why = "the host's LD_PRELOAD names what is not here: every program says `cannot be preloaded`"
        yield warn("preload", "LD_PRELOAD has " + listed(absent), why, "unset LD_PRELOAD")
    elif names:
        yield note(
            "preload", "LD_PRELOAD=" + listed(names), "it is loaded into every program, before torch's libraries"
        )
