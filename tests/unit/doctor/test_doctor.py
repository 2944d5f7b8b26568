"""The doctor's findings on a machine: each area on machines that are made up, each cause apart from the others."""

import json
import os

import pytest

from doctor import __main__ as command
from doctor import machine
from doctor import survey as surveys
from doctor.container import Interpreter, container_of, judge_container
from doctor.driver import Gpu, Nvidia, judge_driver, look_at_driver
from doctor.enroot import judge_enroot, judge_slurm
from doctor.facts import VARIANTS
from doctor.finding import numbers, ok, size, warn
from doctor.host import Done, Room
from doctor.machine import judge_machine, judge_network, judge_storage, kind_of
from doctor.page import page_lines
from doctor.singularity import judge_singularity
from doctor.stack import import_finding, judge_imports, judge_torch_gpu, judge_versions
from doctor.survey import cannot_work, survey
from tests.unit.made_up_host import GIB, MadeUp, by_id


def of(judge, *more):
    return lambda host: judge(host, *more)


def gpu_in(container):
    return lambda host: judge_driver(host, look_at_driver(host), container)


gpu = gpu_in("")

# The driver

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 19 19:17:35 UTC 2023\nGCC version: 12\n"
DEVICES = {"/dev/nvidia0": "", "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}
V100 = ["Tesla V100-SXM3-32GB", 32 * GIB, 7, 0, 0, 1]
B200, THOR = ["NVIDIA B200", 180 * GIB, 10, 0, 0, 1], ["NVIDIA Thor", 128 * GIB, 11, 0, 0, 0]
K40, K80 = ["Tesla K40m", 12 * GIB, 3, 5, 0, 1], ["Tesla K80", 12 * GIB, 3, 7, 0, 1]
NEWEST = {cuda: torch for cuda, torch, _ in VARIANTS}  #: CUDA → the newest torch of a stack
NEWER_TORCH = "./build.py lock mine.toml"
NO_LIBCUDA = {"libcuda": json.dumps({"loaded": False, "error": "libcuda.so.1: cannot open shared object file"})}
BUS = {"/sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n"}


def card(driver, expected, container="", devices=DEVICES, python=None, environment=(), closed=(), **libcuda):
    """A machine with GPUs. `libcuda`: what it answers in place of the usual; `python`: instead of all that."""
    said = {"loaded": True, "error": "", "library": f"libcuda.so.{driver}", "code": 0, "cuda": 12020, "gpus": [V100]}
    fields = {
        "files": {"/proc/driver/nvidia/version": VERSION.format(driver), **devices},
        "python": python or {"libcuda": json.dumps({**said, "seconds": 0.1, **libcuda})},
    }
    return gpu_in(container), {**fields, "environment": environment, "closed": closed}, expected


CUINIT = {802: "SYSTEM_NOT_READY | fabricmanager", 803: "SYSTEM_DRIVER_MISMATCH | reboot", 4711: "error 4711 | cuda.h"}
ENDINGS = {
    "no answer within 30 s": Done(None, "", ""),
    "ended by signal 11": Done(-11, "", ""),
    "ended by MemoryError": Done(1, "", "Traceback\nMemoryError\n"),
    "ended by no answer": Done(0, "[]\n", ""),
}
DEVICES_SHOWN, CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
COMPUTE = f"{CAPABILITIES}=compute,utility"
#: container, its environment, why there is no GPU and what to do
NO_GPU = (
    ("enroot", {}, f"{DEVICES_SHOWN} is not set | {DEVICES_SHOWN}=all"),
    ("enroot", {DEVICES_SHOWN: "all"}, f"the job asked for none | {DEVICES_SHOWN}=all"),
    ("docker", {DEVICES_SHOWN: "void"}, f"{DEVICES_SHOWN}=void | --gpus all"),
    ("docker", {}, f"{DEVICES_SHOWN} is not set | --gpus all"),
    ("docker", {DEVICES_SHOWN: "all"}, "was started without GPUs | --gpus all"),
    ("apptainer", {}, "was started without GPUs | --nv"),
    ("podman", {}, "was started without GPUs | cdi"),
)
GPUS = [
    (gpu, {"python": NO_LIBCUDA}, {"*": "note", "gpu": "note"}),
    (gpu, {"files": BUS, "python": NO_LIBCUDA}, {"driver": "fail | modprobe nvidia"}),
    card(
        "450.80.02",
        {
            "*": "ok note",
            "driver": "| 450.80.02; the newest CUDA it knows is 11.0",
            "variants": "| CUDA 11.6, 11.7, 11.8 run",
            "variants-out": "| 12.1, 12.6, 12.8 needs driver 525.60.13 to R580",
            "gpus": "| 16 x Tesla V100-SXM3-32GB (sm_70, 32 GiB)",
        },
        cuda=11000,
        gpus=[V100] * 16,
    ),
    card("595.45.04", {"variants": "| CUDA 11.6, 11.7, 11.8, 12.1, 12.6, 12.8 run"}),
    card("595.45.04", {"variants-out": f"| 13.0 torch {NEWEST['13.0']} has no code for sm_70"}),
    card("418.39", {"variants": "fail | driver 418.39 is older than all of them need | driver to 450.80.02 to R580"}),
    card("418.39", {"variants": "fail | driver to 525.60.13 or newer"}, gpus=[B200]),
    *[
        card(driver, {"gpu-code": f"fail | code for sm_110 | no driver | {NEWER_TORCH}"}, gpus=[THOR])
        for driver in ("580.65.06", "418.39")
    ],
    card("595.45.04", {"gpu-code": "fail | code for sm_35 | no driver | take a GPU from sm_37 to sm_120"}, gpus=[K40]),
    card("595.45.04", {"gpu-code": f"fail | code for sm_35, sm_110 | {NEWER_TORCH}"}, gpus=[K40, THOR]),
    card("595.45.04", {"gpu-code": "fail | sm_37, sm_100 | none for all | CUDA_VISIBLE_DEVICES=0"}, gpus=[K80, B200]),
    card("535.54.03", {"libcuda": "fail | reboot"}, library="/usr/lib/libcuda.so.550.54.14"),
    *[card("535.54.03", {"libcuda": f"fail | {words}"}, code=code, gpus=[]) for code, words in CUINIT.items()],
    *[card("535.54.03", {"libcuda": f"fail | {words}"}, python={"libcuda": done}) for words, done in ENDINGS.items()],
    card("535.54.03", {"devices": "| /dev/nvidia0 closed to you"}, closed=["/dev/nvidia0"]),
    card("535.54.03", {"devices": "| nvidia-uvm is missing"}, devices={"/dev/nvidia0": ""}, code=999, gpus=[]),
    card("535.54.03", {"devices": "| srun --gres"}, devices={}, python=NO_LIBCUDA),
    card("595.45.04", {"devices": "| (V100) or older: R580 is their last"}, devices=BUS, python=NO_LIBCUDA),
    *[
        card("535.54.03", {"devices": f"fail | {told}"}, container, devices={}, python=NO_LIBCUDA, environment=shown)
        for container, shown, told in NO_GPU
    ],
    *[
        card("535.54.03", {"libcuda": f"fail | {why} | {COMPUTE}"}, "enroot", python=NO_LIBCUDA, environment=named)
        for named, why in (({CAPABILITIES: "utility"}, "is utility"), ({CAPABILITIES: ""}, "utility` alone"))
    ],
    card("535.54.03", {"persistence": "| persistence"}, seconds=9.0),
    card("535.54.03", {"mode": "fail"}, gpus=[[*V100[:4], 2, 0]]),
    card("535.54.03", {"mode": "note"}, gpus=[[*V100[:4], 3, 0]]),
]

# torch

ONE_GPU = (Gpu("V100", "7.0", 32 * GIB),)
THERE = Nvidia(driver="535.54.03", devices=("/dev/nvidia0",), loaded=True, code=0, cuda="12.2", gpus=ONE_GPU)
BLIND = {"name": "cuda", "available": False, "error": "RuntimeError: no", "count": 0, "archs": ["sm_70"], "gpus": []}
WORKS = {"available": True, "error": "", "count": 1, "gpus": [["V100", [7, 0]]]}
FOR_CUDA, FOR_CPU = {"version": "2.3.1", "cuda": "12.1"}, {"version": "2.13.0+cpu", "cuda": None}


def torch(told, cuda=(), torch=FOR_CUDA, nvidia=THERE, **variables):
    cuda = {**BLIND, **dict(cuda)}
    return of(judge_torch_gpu, cuda, torch, nvidia, "apptainer"), {"environment": variables}, {"torch-gpu": told}


def versions(installed, **expected):
    """`installed`: "torch==2.3.1 …"."""
    named = dict(one.split("==") for one in installed.split())
    return of(judge_versions, named), {}, {name.replace("_", "-"): told for name, told in expected.items()}


def imported(told, **answer):
    finding = import_finding("torch_scatter", {"name": "torch_scatter", **answer}, FOR_CUDA)
    return (lambda host: [finding]), {}, {"import": f"fail | {told}"}


SYMBOL = "_ZN5torch3jit17parseSchemaOrNameERKSs"
STATED = {"environment": {"PYTORCH_VERSION": "2.0.1+cu118"}}
SAID = '@doctor {"name": "torch", "error": "", "version": "2.3.1", "cuda": null}\n'
IMPORTS = of(judge_imports, {"torch": "2.3.1"}, Nvidia(), "")
STACKS = [
    torch("fail | a build for the CPU | make image CUDA=", torch=FOR_CPU),
    torch("fail | no /dev/nvidia0 | --nv", nvidia=THERE._replace(devices=())),
    torch("fail | CUDA_VISIBLE_DEVICES='' hides | unset CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES=""),
    torch("fail | libcuda is not there | --nv", nvidia=THERE._replace(loaded=False, code=None)),
    torch("fail | too old for CUDA 12.1, which needs 525.6 | 11.8", nvidia=THERE._replace(driver="470.82.01")),
    torch("fail | cuInit answers 802 | nvidia-smi", nvidia=THERE._replace(code=802)),
    torch("fail | for sm_60, sm_75, and not for sm_70 | make image CUDA=12.8", {"archs": ["sm_60", "sm_75"]}),
    torch("fail | RuntimeError: odd | --explain", {"error": "RuntimeError: odd"}),
    torch("ok | torch 2.3.1 works on 1 GPU(s): V100", WORKS),
    torch("fail | RuntimeError: no | --explain", {"archs": ["sm_50", "compute_60"]}),  # PTX serves a newer GPU
    torch("note", nvidia=Nvidia()),
    torch("ok", torch=FOR_CPU, nvidia=Nvidia()),
    versions("torch==2.0.1+cu118 torch_scatter==2.1.2+pt20cu118", extension_version=None),
    versions("torch==2.0.1+cu118 torch_scatter==2.1.2+pt21cu118", extension_version="fail"),
    versions("torch==2.10.0 torch_scatter==2.1.2+pt210cu128", extension_version=None),
    versions("torch==2.10.0 torch_scatter==2.1.2+pt21cu128", extension_version="fail"),
    versions("torch==2.3.1 graphlearn_torch==0.2.4 torch_sparse==0.6.18", glt="ok"),
    versions("torch==1.13.1 graphlearn_torch==0.2.4 torch_sparse==0.6.18", glt="fail | graphlearn-torch==0.2.2"),
    versions("torch==2.3.1 graphlearn_torch==0.2.4", glt="fail"),
    versions("torch==2.3.1 graphlearn_torch==9.9", glt=None),
    (of(judge_versions, {"torch": "2.3.1"}), STATED, {"pytorch-version": "warn"}),
    (of(judge_versions, {"torch": "2.0.1"}), STATED, {"pytorch-version": None}),
    imported("torch_scatter crashes (SIGSEGV) | does not fit", signal="SIGSEGV"),
    imported(
        "torch::jit::parseSchemaOrName(std::string const&) | another version or C++ ABI than torch 2.3.1",
        error=f"OSError: /x/_version.so: undefined symbol: {SYMBOL}",
    ),
    imported("cudaLaunch | the CUDA runtime", error="OSError: x.so: undefined symbol: cudaLaunchKernelExC"),
    imported("libcudart | another CUDA", error="OSError: libcudart.so.11.0: cannot open shared object file"),
    imported("GLIBC | newer system", error="OSError: version `GLIBC_2.29' not found (required by /x/a.so)"),
    imported("pyg-lib | goes on", error="", heard=["importing 'pyg-lib'. Disabling its usage."]),
    imported("No module | not installed", error="ImportError: No module named 'x'"),
    imported("odd | --explain", error="ValueError: odd"),
    (IMPORTS, {"python": {"@doctor": Done(-9, SAID, "")}}, {"import": "| importing ended by signal 9 | after torch"}),
    (IMPORTS, {"python": {"@doctor": Done(None, "", "")}}, {"import": "| time limit"}),
    (IMPORTS, {"python": {"@doctor": None}}, {"import": "| cannot be started"}),
]

# The machine, its disks and networks

MEMINFO = {"/proc/meminfo": "MemTotal:       131072000 kB\nMemFree:  1000 kB\nMemAvailable:   120000000 kB\n"}
AVX2 = {"/proc/cpuinfo": "processor : 0\nflags\t\t: fpu sse avx avx2\n"}
RELEASE = {"/etc/os-release": 'NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'}
OLD = {"/proc/sys/kernel/osrelease": "3.10.0-1160.el7.x86_64\n", "/proc/cpuinfo": "flags : fpu sse avx\n"}
LINUX = "Linux 12 (bookworm), kernel 5.15.0"
CGROUP, TWO = "/sys/fs/cgroup{}/memory.max", f"{2 * GIB}\n"
LIMITED = {"memory": "warn | 2 GiB by the cgroup's limit, of 125 GiB | --mem"}
TMPFS = {"/proc/self/mounts": "tmpfs /tmp tmpfs rw 0 0\n"}
SMALL = {"/tmp": Room(64 << 20, 64 << 20)}
FULL = {"/tmp": Room(GIB, 5 << 20), "/home": Room(GIB * 20, GIB)}


def computer(expected, **files):
    return judge_machine, {"files": {**MEMINFO, **AVX2, **files}}, expected


def disks(expected, container="", **fields):
    return of(judge_storage, container), fields, expected


def shared_memory(total, free, told):
    return disks({"shm": told}, "docker", rooms={"/dev/shm": Room(total, free)})


MACHINES = [
    computer({"*": "ok note", "system": f"| {LINUX}", "memory": "| 125 GiB, 114 GiB free"}, **RELEASE),
    computer({"kernel": "| gzip alone", "avx2": "| Illegal instruction"}, **OLD),
    computer(LIMITED, **{"/proc/self/cgroup": "0::/a/b\n", CGROUP.format("/a/b"): "max\n", CGROUP.format("/a"): TWO}),
    computer(LIMITED, **{"/proc/self/cgroup": "0::/\n", CGROUP.format(""): TWO}),
    shared_memory(64 << 20, 64 << 20, "fail | --shm-size"),
    shared_memory(GIB, 10 << 20, "fail | --shm-size"),
    shared_memory(GIB, 500 << 20, "warn | --shm-size"),
    shared_memory(8 * GIB, 8 * GIB, "ok"),
    disks({"shm": "| as root: chmod 1777 /dev/shm"}, closed=["/dev/shm"]),
    disks({"shm": "fail"}, files={"/dev/shm/": None}),
    disks(
        {"tmp": "warn", "home": "| APPTAINER_TMPDIR", "tmpdir": "| TMPDIR=/gone is not there"},
        rooms=FULL,
        environment={"TMPDIR": "/gone"},
    ),
    disks({"tmp": "| --workdir"}, "apptainer", files=TMPFS, rooms=SMALL),
    disks({"tmp": "| du -sh"}, "docker", files=TMPFS, rooms=SMALL),
    disks({"home": "warn"}, closed=["/home/alice"]),
    (judge_network, {"files": {"/sys/class/net/lo/": ""}}, {"network": "| --container-unshare=net"}),
    (judge_network, {"files": {"/sys/class/net/lo/": "", "/sys/class/net/eth0/": ""}}, {"network": None}),
]

# What leaks into a container

SITE = "/opt/venv/lib/python3.11/site-packages"
USER = "/home/alice/.local/lib/python3.11/site-packages"
OPEN = Interpreter("3.11", "/opt/venv", "/opt/venv/bin/python", ("/usr/lib/python3.11", USER, SITE), USER, True)
SHUT = OPEN._replace(path=("/usr/lib/python3.11", SITE), user_on=False)
IMAGE = (f"{SITE}/torch-2.3.1.dist-info/", f"{SITE}/torch/", f"{SITE}/numpy-1.26.4.dist-info/")
LEAK = (f"{USER}/torch/", f"{USER}/torch-1.13.1.dist-info/", f"{USER}/black/")
SW = "/sw/cuda/lib64"
TOOLKIT = tuple(f"{SW}/{name}" for name in ("libcublas.so.12", "libnvJitLink.so.12", "libfoo.so"))
LIBS = "/.singularity.d/libs"
MODULES = tuple(f"/home/alice/{name}.py" for name in ("torch", "random", "train"))


def leak(name, told, *files, python=SHUT, container="apptainer", programs=None, **variables):
    fields = {"files": dict.fromkeys((*IMAGE, *files), ""), "environment": variables, "programs": programs}
    return of(judge_container, container, python), fields, {name: told}


LEAKS = [
    leak("user-site", f"fail | {USER} shadows torch 1.13.1", *LEAK, python=OPEN),
    leak("user-site", "ok | which Python leaves alone", *LEAK),
    leak("user-site", "warn | black", f"{USER}/black/", python=OPEN),
    leak("user-site", None, python=OPEN),
    leak("python-path", "fail | /no:/sw shadows numpy", "/sw/numpy/", PYTHONPATH="/no:/sw"),
    leak("python-path", "warn | /sw", "/sw/mine.py", PYTHONPATH="/sw"),
    leak("python-path", "note | /sw", container="", PYTHONPATH="/sw"),
    leak("python-home", "fail | /sw", PYTHONHOME="/sw"),
    leak("library-path", f"warn | {SW} with libcublas, libnvJitLink", *TOOLKIT, LD_LIBRARY_PATH=SW),
    leak("library-path", f"note | {LIBS}", f"{LIBS}/libcuda.so.1", LD_LIBRARY_PATH=LIBS),
    leak("library-path", "fail | stubs", LD_LIBRARY_PATH=f"{SW}/stubs"),
    leak("preload", "warn | has /gone/libx.so", LD_PRELOAD="/gone/libx.so libc.so.6"),
    leak("conda", "warn | CONDA_PREFIX=/conda", CONDA_PREFIX="/conda"),
    leak("conda", None, container="", CONDA_PREFIX="/conda"),
    leak("working-folder", "warn | /home/alice has random, torch", *MODULES),
    leak("working-folder", None, MODULES[-1]),
    leak("python", "fail | /usr/bin/python | login", OPEN.executable, container="enroot", programs={"python": ""}),
]

# Apptainer

SUID = "/usr/libexec/apptainer/bin/starter-suid"
CONFIGURATION, NVLIBLIST = "/etc/apptainer/apptainer.conf", "/etc/apptainer/nvliblist.conf"
LIBRARIES = {NVLIBLIST: "# libraries\nlibcuda.so\nlibnvidia-ml.so\n", CONFIGURATION: "allow setuid = yes\n"}
NO_SETUID = "# allow setuid = yes\nallow setuid = no\n"
PROGRAMS = {"apptainer": "apptainer version 1.3.4-1.el8\n", "ldconfig": "", "fuse2fs": "", "fuse-overlayfs": ""}
FUSE, SQUASHFUSE = {"/dev/fuse": ""}, {"squashfuse": ""}
NO_NAMESPACES = {
    "/proc/sys/user/max_user_namespaces": ("0\n", "user.max_user_namespaces=15000"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0\n", "kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": ("1\n", "restrict_unprivileged_userns=0"),
}
NONE = {"/proc/sys/user/max_user_namespaces": "0\n"}
BROKEN = {"singularity": Done(127, "", "error while loading shared libraries: libseccomp.so.2\n")}
IGNORED = {"APPTAINERENV_OMP_NUM_THREADS": "4", "APPTAINER_CLEANENV": "", "APPTAINER_CACHEDIR": "/x"}
#: variable → the finding that tells of it
VARIABLES = dict.fromkeys(("SINGULARITYENV_PREPEND_PATH", "APPTAINERENV_PYTHONNOUSERSITE"), "container-variables")
VARIABLES |= dict.fromkeys(("APPTAINER_CLEANENV", "SINGULARITY_CONTAINALL"), "container-switches")


def apptainer(expected, files=(), programs=(), environment=(), **more):
    fields = {"files": {**LIBRARIES, **dict(files)}, "programs": {**PROGRAMS, **dict(programs)}}
    return judge_singularity, {**fields, "environment": environment, **more}, expected


APPTAINERS = [
    (judge_singularity, {}, {"singularity": "note"}),
    apptainer({"*": "ok", "singularity": "| version 1.3.4-1.el8, /usr/bin/", "start": f"| {SUID}"}, setuid=[SUID]),
    *[apptainer({"start": f"fail | {fix}"}, {path: text}) for path, (text, fix) in NO_NAMESPACES.items()],
    apptainer({"start": "| `allow setuid = no`"}, {**NONE, CONFIGURATION: NO_SETUID}, setuid=[SUID]),
    apptainer({"start": "note"}, NONE, uid=0),
    apptainer({"mount": "ok"}, FUSE, SQUASHFUSE),
    apptainer({"mount": "| apt-get install squashfuse"}, FUSE),
    apptainer({"mount": "| missing"}, {}, SQUASHFUSE),
    apptainer({"mount": "| closed"}, FUSE, SQUASHFUSE, closed=["/dev/fuse"]),
    apptainer({"mount": "warn"}, {**FUSE, "/proc/sys/kernel/osrelease": "3.10.0-1160.el7\n"}, SQUASHFUSE),
    *[apptainer({found: f"warn | unset {name}"}, environment={name: "1"}) for name, found in VARIABLES.items()],
    apptainer(dict.fromkeys(VARIABLES.values()), environment=IGNORED),
    apptainer({"nv": "fail"}, {NVLIBLIST: "# libcuda.so\nlibnvidia-ml.so\n"}),
    apptainer(
        {"nv": f"| {NVLIBLIST} is missing", "home": "note"}, {NVLIBLIST: None, CONFIGURATION: "mount home = no\n"}
    ),
    (judge_singularity, {"programs": BROKEN}, {"singularity": "| libseccomp"}),
]

# enroot, pyxis, Slurm

HOOKS = {"/etc/enroot/hooks.d/98-nvidia.sh": "", "/etc/enroot/hooks.d/50-slurm-pytorch.sh": ""}
CONF = "/etc/enroot/enroot.conf"
VOID = {**HOOKS, CONF: "NVIDIA_VISIBLE_DEVICES void\n"}
FOLDERS = 'ENROOT_DATA_PATH   /run/enroot/$(id -u)/${USER}\nENROOT_CACHE_PATH "${HOME}/cache"\n# ENROOT_TEMP_PATH /x\n'
MEMORY = {**HOOKS, CONF: FOLDERS, "/proc/self/mounts": "tmpfs /run tmpfs rw 0 0\n"}
LOGINS = "machine nvcr.io login $oauthtoken password hunter2\nmachine nvcr.io login me password hunter3\n"
UNSQUASHFS = "unsquashfs version 4.5.1 (2022/03/17)\n"
PLUGSTACK = "# spank_pyxis.so old=1\nrequired /usr/lib/spank_pyxis.so {}\n"
SINFO = "debug*|(null)|up\ndgx2|gpu:16|up\n"
JOB = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "6"}


def enroot(expected, files=HOOKS, *, has_gpu=True, rooms=None, **programs):
    usual = {"enroot": "4.1.2\n", "nvidia-container-cli": "cli-version: 1.17.0\n", "unsquashfs": UNSQUASHFS}
    said = {name: out for name, out in {**usual, **programs}.items() if out is not None}
    return of(judge_enroot, has_gpu), {"files": files, "programs": said, "rooms": rooms}, expected


def slurm(expected, *, has_gpu=False, files=(), pyxis=True, srun=None, sinfo=SINFO, environment=(), **programs):
    helps = {"--version": "slurm 22.05.8\n", "--help": f"Usage{'  --container-image=[USER@]…  pyxis' * pyxis}\n"}
    said = {"srun": srun or helps, "sinfo": sinfo, **programs}
    return of(judge_slurm, has_gpu), {"files": files, "programs": said, "environment": environment}, expected


def squashfs(settings, told, **programs):
    files = {"/etc/slurm/plugstack.conf": PLUGSTACK.format(settings)}
    seen = f"| srun has --container-image: {', '.join(settings.split())}"
    return slurm({"pyxis": seen, "pyxis-squashfuse": told}, files=files, **programs)


NO_CLI = {"nvidia-container-cli": None}
OPT = "/opt/enroot-4.1.2"
CLUSTERS = [
    enroot({"*": "ok"}),
    enroot({"hook-nvidia": "fail", "hook-pytorch": "| RANK"}, {}),
    *[
        enroot({"hook-pytorch": f"| cp {place} /etc/enroot/hooks.d/"}, {place: "", **more})
        for place, more in (
            ("/usr/share/enroot/hooks.d/50-slurm-pytorch.sh", {}),
            ("/opt/enroot-4.1.2/share/enroot/hooks.d/50-slurm-pytorch.sh", {"/usr/bin/enroot": f"-> {OPT}/bin/enroot"}),
        )
    ],
    enroot({"hook-pytorch": "| find / -name 50-slurm-pytorch.sh"}, {}),
    enroot({"hook-nvidia": "warn"}, {}, has_gpu=False),
    enroot({"hook-nvidia": "| NVIDIA_VISIBLE_DEVICES=void"}, **NO_CLI),
    enroot({"hook-nvidia": "ok"}, VOID, has_gpu=False, **NO_CLI),
    enroot({"hook-nvidia": "fail"}, VOID, **NO_CLI),
    enroot({"enroot": "warn"}, enroot="3.4.0"),
    enroot({"unsquashfs": "warn | --compression gzip"}, unsquashfs="unsquashfs version 4.3 (2014/05/12)"),
    enroot({"unsquashfs": "ok"}, unsquashfs="unsquashfs version 4.4 (2019/08/29)\n"),
    enroot({"unsquashfs": "warn"}, unsquashfs=None),
    enroot(
        {"enroot-folders": "warn | ENROOT_DATA_PATH=/run/enroot/1000/alice: 1 GiB free, tmpfs | it is memory"},
        MEMORY,
        rooms={"/run": Room(GIB, GIB)},
    ),
    enroot({"enroot-folders": "note"}, {**HOOKS, CONF: "ENROOT_DATA_PATH $(somewhere)\n"}),
    enroot({"credentials": "warn | nvcr.io twice"}, {**HOOKS, "/home/alice/.config/enroot/.credentials": LOGINS}),
    slurm({"slurm": "| slurm 22.05.8, partitions with GPUs: dgx2", "pyxis": "ok", "job": None}),
    slurm({"slurm": "| no word within 2 s"}, sinfo=Done(None, "", "")),
    slurm({"slurm": "| configuration source"}, srun=Done(1, "", "srun: fatal: … a configuration source\n")),
    squashfs("runtime_path=/scratch/pyxis", "note"),
    squashfs("use_squashfuse=1 container_scope=job", "fail"),
    squashfs("use_squashfuse=1", None, squashfuse="0.5"),
    slurm({"pyxis": "fail"}, pyxis=False, files={"/etc/slurm/plugstack.conf.d/pyxis.conf": PLUGSTACK.format("")}),
    slurm({"pyxis": "note"}, pyxis=False),
    slurm({"job": "warn"}, has_gpu=True, environment=JOB),
    slurm({"job": "| job 7 with 6 cores, GPUs: 0,1"}, has_gpu=True, environment={**JOB, "SLURM_JOB_GPUS": "0,1"}),
]


@pytest.mark.parametrize(("judge", "fields", "expected"), [*GPUS, *STACKS, *MACHINES, *LEAKS, *APPTAINERS, *CLUSTERS])
def test_doctor_of_each_made_up_machine_has_the_expected_findings(tmp_path, judge, fields, expected):
    """`expected`: id → "status | words | more words" of the finding; None: there is none; "*": statuses of all."""
    found = by_id(judge(MadeUp(tmp_path, **fields)))
    for name, told in expected.items():
        status, *words = (told or "").split("|")
        if name == "*":
            assert {one.status for one in found.values()} <= set(status.split()), found
        elif told is None:
            assert name not in found
        else:
            assert found[name].status == (status.strip() or found[name].status)
            assert all(one.strip() in "\n".join(found[name]) for one in words), found[name]
    assert not any("hunter" in word for one in found.values() for word in one), "a password is shown"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x86_64", None),
        ("aarch64", ("note", "make image ARCH=arm64")),
        ("ppc64le", ("fail", "x86_64 or aarch64")),
    ],
)
def test_processor_that_images_are_made_for_is_no_failure(tmp_path, monkeypatch, name, told):
    usual = os.uname()
    monkeypatch.setattr(machine.os, "uname", lambda: os.uname_result((*usual[:4], name)))
    arm = {"/proc/cpuinfo": "processor : 0\nFeatures : fp asimd sve2\nCPU implementer : 0x41\n"}
    found = by_id(judge_machine(MadeUp(tmp_path, files={**MEMINFO, **arm})))
    if told is None:
        assert "machine" not in found
    else:
        assert found["machine"].status == told[0]
        assert f"the processor is {name}" in found["machine"].seen
        assert told[1] in "\n".join(found["machine"])
    assert "avx2" not in found


def test_gpu_capability_without_libcuda_follows_its_name(tmp_path):
    _, fields, _ = card("535.54.03", {}, python=NO_LIBCUDA)
    told = {"/proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ: 1\n"}
    seen = look_at_driver(MadeUp(tmp_path, **{**fields, "files": {**fields["files"], **told}}))
    assert (seen.capabilities, seen.works, THERE.works) == (("8.0",), False, True)


def test_doctor_counts_cores_and_limits_of_the_cgroup(tmp_path, monkeypatch):
    quota = {**MEMINFO, **AVX2, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n"}
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 16)
    known = machine.resource
    limits = {known.RLIMIT_NOFILE: (1024, 4096), known.RLIMIT_AS: (8 * GIB, -1)}
    monkeypatch.setattr(known, "getrlimit", limits.get)
    found = by_id(judge_machine(MadeUp(tmp_path, quota)))
    assert {found[name].status for name in ("cores", "addresses")} == {"warn"}
    assert (found["cores"].fix, found["open-files"].fix) == ("export OMP_NUM_THREADS=2", "ulimit -n 4096")
    free = {**quota, "/sys/fs/cgroup/cpu.max": "max 100000\n"}
    assert by_id(judge_machine(MadeUp(tmp_path / "free", free)))["cores"].status == "ok"
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 96)
    assert by_id(judge_machine(MadeUp(tmp_path / "share", free)))["cores"].seen == "16 of 96 cores"


def test_kind_of_a_path_is_that_of_its_mount():
    mounts = [("/", "ext4"), ("/run", "tmpfs"), ("/home", "nfs4"), ("/home/alice", "lustre"), ("/home", "beegfs")]
    kinds = {"/x": "ext4", "/run/user/1": "tmpfs", "/home/bob": "beegfs", "/home/alice/x": "lustre", "/homes": "ext4"}
    assert {path: kind_of(mounts, path) for path in kinds} == kinds


ROOTFS = {"/etc/rc": "", "/etc/environment": "", "/proc/self/mounts": "x / overlay rw 0 0\n"}
CONTAINERS = [
    ("", {}, {}),
    ("docker", {"/.dockerenv": ""}, {}),
    ("podman", {"/run/.containerenv": ""}, {}),
    ("apptainer", {"/.singularity.d/env/": ""}, {}),
    ("apptainer", {}, {"APPTAINER_CONTAINER": "/x.sif"}),
    ("kubernetes", {"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
    ("enroot", ROOTFS, {}),
    ("image", {"/opt/graphcrate/examples/": ""}, {}),
]


def test_container_kind_is_recognised_by_its_files_and_variables(tmp_path):
    for number, (kind, files, variables) in enumerate(CONTAINERS):
        assert container_of(MadeUp(tmp_path / str(number), files, environment=variables)) == kind


def test_python_of_the_image_first_in_path_is_ok(tmp_path):
    host = MadeUp(tmp_path, dict.fromkeys((*IMAGE, "/opt/venv/bin/python"), ""))
    host.find = lambda program: "/opt/venv/bin/" + program
    assert by_id(judge_container(host, "enroot", SHUT))["python"].status == "ok"


# The report


def test_exception_in_a_doctor_area_is_a_finding(tmp_path, monkeypatch):
    def stumble(host):
        yield ok("first", "seen")
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(surveys, "judge_network", stumble)
    found = by_id(dict(survey(MadeUp(tmp_path)))["network"])
    assert found["doctor"].why == "ZeroDivisionError: oh"


def test_doctor_in_a_container_surveys_installed_runtimes_only(tmp_path):
    report = survey(MadeUp(tmp_path / "host"))
    assert [area for area, _ in report] == ["GPU", "machine", "storage", "network", "Apptainer", "enroot", "Slurm"]
    assert not any(finding.id == "doctor" for _, findings in report for finding in findings)
    areas = [area for area, _ in survey(MadeUp(tmp_path, {"/.dockerenv": ""}, {"srun": "slurm 22.05.8\n"}))]
    assert "Slurm" in areas
    assert "enroot" not in areas


@pytest.mark.parametrize(("files", "code"), [({}, 0), ({"/dev/shm/": None}, 7)])
def test_doctor_command_exits_with_its_worst_finding_and_prints_json(tmp_path, files, code, monkeypatch, capsys):
    monkeypatch.setattr(command, "Host", lambda: MadeUp(tmp_path, files))
    assert command.main([]) == code
    assert capsys.readouterr().out.splitlines()[-1] == ("1 cannot work." if code else "No problem found.")
    assert command.main(["--json"]) == code
    told = json.loads(capsys.readouterr().out)["findings"]
    assert {"area", "id", "status", "seen", "why", "fix"} == set(told[0])
    with pytest.raises(SystemExit) as ended:
        command.main(["--imports", "--no-imports"])
    assert (ended.value.code, bool(capsys.readouterr().err)) == (2, True)


def test_doctor_page_lines_wrap_with_why_and_fix():
    report = [("GPU", [ok("a", "fine"), warn("b", "seen " * 30, "because", "do this")])]
    lines = list(page_lines(report, 80, colour=False))
    assert lines[:2] == ["GPU", "  ok    fine"]
    assert lines[-1] == "1 to look at."
    assert {"        why: because", "        fix: do this"} <= set(lines)
    assert all(len(line) <= 80 for line in lines)
    assert not cannot_work(report)
    assert "\033[33mwarn" in "".join(page_lines(report, 80, colour=True))


def test_doctor_formats_sizes_and_parses_version_numbers():
    assert [size(count) for count in (0, 1023, 1 << 20, 1536 << 20)] == ["0 B", "1023 B", "1 MiB", "1.5 GiB"]
    texts = ("v1.2-rc1", "3.10.0-1160.el7", "2.0.1+cu118", "x")
    assert [numbers(text) for text in texts] == [(1, 2), (3, 10, 0), (2, 0, 1), ()]
