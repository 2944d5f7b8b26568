#!/usr/bin/env python3
"""Looks at the machine, or the container, that it runs on: what a CUDA + PyTorch + PyG image will meet there, and why.

python3 doctor.py                        what works, what cannot, why, and what to type
python3 doctor.py --explain "ERROR"      cause and fix of an error
ssh node python3 - < doctor.py           it needs nothing but Python 3.6, and writes nothing

Written by `python -m tools.doctor_file` from graphcrate/doctor. Do not edit.
"""

import argparse
import contextlib
import ctypes
import json
import os
import platform
import pwd
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple


# place: The machine, seen through one door: files below a root, variables, programs with a time limit.

LIMIT = 2.0  #: seconds that a program on the host may take
#: where programs of administrators lie, which a plain user's PATH lacks
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")


class Done(NamedTuple):
    """How a program ended. `code` is None where it took too long; negative is the signal that ended it."""

    code: Optional[int]
    out: str
    err: str


class Room(NamedTuple):
    """Bytes of a file system."""

    total: int
    free: int


class Place:
    """This machine. `root` is where its files are; nothing is ever written."""

    def __init__(self, root: str = "/", environment: Optional[Mapping[str, str]] = None) -> None:
        self.root = root
        self.environment: Dict[str, str] = dict(os.environ if environment is None else environment)
        self.uid = os.getuid()
        self.python = sys.executable or "python3"

    def path(self, name: str) -> Path:
        return Path(self.root + "/" + name.lstrip("/"))

    def read(self, name: str) -> Optional[str]:
        """A file's text; None where it is not there or closed."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> List[str]:
        """What is in a folder, sorted; nothing where it is not there or closed."""
        try:
            return sorted(os.listdir(str(self.path(folder))))  # noqa: PTH208
        except (OSError, ValueError):
            return []

    def exists(self, name: str) -> bool:
        try:
            self.path(name).stat()
        except (OSError, ValueError):
            return False
        return True

    def may_write(self, name: str) -> bool:
        """Also for device nodes: may be opened to read and write."""
        return os.access(str(self.path(name)), os.R_OK | os.W_OK)

    def is_setuid_root(self, name: str) -> bool:
        try:
            status = self.path(name).stat()
        except OSError:
            return False
        return bool(status.st_mode & stat.S_ISUID) and status.st_uid == 0

    def room(self, name: str) -> Optional[Room]:
        """Of the file system that a path is on, or would be on."""
        path = self.path(name)
        for folder in (path, *path.parents):
            try:
                status = os.statvfs(str(folder))
            except OSError:
                continue
            return Room(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
        return None

    def user(self) -> str:
        try:
            return str(pwd.getpwuid(self.uid).pw_name)
        except KeyError:
            return self.environment.get("USER", "")

    def home(self) -> str:
        return self.environment.get("HOME", "") or "/"

    def working_folder(self) -> str:
        """Where we are; empty where that is gone."""
        try:
            return os.getcwd()  # noqa: PTH109
        except OSError:
            return ""

    def find(self, program: str) -> Optional[str]:
        """Where a program lies."""
        path = ":".join([self.environment.get("PATH", ""), *SYSTEM_FOLDERS])
        return shutil.which(program, path=path)

    def run(self, argv: Sequence[str], limit: float = LIMIT, stdin: str = "") -> Optional[Done]:
        """Run a program in the user's environment, in no folder of theirs; None where it cannot be started."""
        environment = {**self.environment, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError):
            return None
        try:
            out, err = process.communicate(stdin.encode(), timeout=limit)
            code: Optional[int] = process.returncode
        except subprocess.TimeoutExpired:
            end_group(process)
            out, err, code = b"", b"", None
        return Done(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def resolves(self, host: str, limit: float = LIMIT) -> Optional[str]:
        """The address of a host; empty where there is none, None where the answer does not come in time."""
        answers: List[str] = []

        def ask() -> None:
            try:
                answers.append(str(socket.getaddrinfo(host, None)[0][4][0]))
            except (OSError, UnicodeError):
                answers.append("")

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(limit)
        return answers[0] if answers else None

    def loopback(self) -> str:
        """Why two processes of this machine cannot talk; empty where they can."""
        try:
            with socket.socket() as server, socket.socket() as client:
                server.settimeout(LIMIT)
                client.settimeout(LIMIT)
                server.bind(("127.0.0.1", 0))
                server.listen(1)
                client.connect(server.getsockname())
        except OSError as error:
            return str(error)
        return ""

    def host_name(self) -> str:
        return socket.gethostname()

    def ask_socket(self, path: str, question: bytes, limit: float = LIMIT) -> bytes:
        """What a server answers on a Unix socket. Raises OSError."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(limit)
            client.connect(self.root.rstrip("/") + path)
            client.sendall(question)
            parts: List[bytes] = []
            while True:
                part = client.recv(65536)
                if not part:
                    return b"".join(parts)
                parts.append(part)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a program and what it started; it leads a session of its own."""
    try:
        os.killpg(process.pid, 9)
    except OSError:
        process.kill()
    # what holds the pipes open beyond that (a process in the kernel's hands) is not waited for
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)



# finding: What was found, and how bad it is.

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"


class Finding(NamedTuple):
    """`seen` is what there is, `why` what follows from it, `fix` what to type. A `note` asks for nothing."""

    id: str
    status: str
    seen: str
    why: str = ""
    fix: str = ""

    def as_json(self, area: str) -> Dict[str, Any]:
        """The one form that scripts read."""
        return {"area": area, **self._asdict()}


def ok(name: str, seen: str) -> Finding:
    """All is well."""
    return Finding(name, OK, seen)


def note(name: str, seen: str, why: str = "", fix: str = "") -> Finding:
    """Good to know."""
    return Finding(name, NOTE, seen, why, fix)


def warn(name: str, seen: str, why: str, fix: str) -> Finding:
    """Works, but not for everybody or not as one would think."""
    return Finding(name, WARN, seen, why, fix)


def fail(name: str, seen: str, why: str, fix: str) -> Finding:
    """Cannot work."""
    return Finding(name, FAIL, seen, why, fix)


def listed(names: Iterable[object], most: int = 6) -> str:
    """`a, b, c and 4 more`."""
    shown = [str(name) for name in names]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")


def size(count: float) -> str:
    """Bytes for people: `64 MiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} {units[0]}" if count >= 10 or count == int(count) else f"{count:.1f} {units[0]}"


def numbers(version: str) -> Tuple[int, ...]:
    """`535.104.05` → (535, 104, 5); stops at the first part that is no number."""
    found = []
    for part in version.strip().lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
        if digits != part:
            break
    return tuple(found)



# facts: What drivers, GPUs, builds of torch and graphlearn-torch want of each other.

#: major CUDA version → the oldest driver that runs what it made
MINIMUM_DRIVERS = {
    "11": "450.80.02",
    "12": "525.60.13",
    "13": "580.65.06",
}

#: CUDA version → the driver that came with it
TOOLKIT_DRIVERS = {
    "9.0": "384.81",
    "9.2": "396.26",
    "10.0": "410.48",
    "10.1": "418.39",
    "10.2": "440.33",
    "11.0": "450.51.05",
    "11.1": "455.23",
    "11.2": "460.27.03",
    "11.3": "465.19.01",
    "11.4": "470.42.01",
    "11.5": "495.29.05",
    "11.6": "510.39.01",
    "11.7": "515.43.04",
    "11.8": "520.61.05",
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
    "13.2": "595.45.04",
}

#: GPU model → compute capability
GPU_CAPABILITIES = {
    "P100": "6.0",
    "P40": "6.1",
    "P4": "6.1",
    "V100": "7.0",
    "TITAN_V": "7.0",
    "T4": "7.5",
    "A100": "8.0",
    "A30": "8.0",
    "A10": "8.6",
    "A40": "8.6",
    "RTX3090": "8.6",
    "L4": "8.9",
    "L40": "8.9",
    "L40S": "8.9",
    "RTX4090": "8.9",
    "H100": "9.0",
    "H200": "9.0",
    "GH200": "9.0",
    "B200": "10.0",
    "GB200": "10.0",
    "B300": "10.3",
    "RTX5090": "12.0",
    "RTX_PRO_6000": "12.0",
    "V100S": "7.0",
    "A800": "8.0",
    "H800": "9.0",
    "H20": "9.0",
    "L20": "8.9",
    "A10G": "8.6",
    "A16": "8.6",
    "A2": "8.6",
    "TITAN_RTX": "7.5",
    "QUADRO_RTX_4000": "7.5",
    "QUADRO_RTX_5000": "7.5",
    "QUADRO_RTX_6000": "7.5",
    "QUADRO_RTX_8000": "7.5",
    "RTX2060": "7.5",
    "RTX2070": "7.5",
    "RTX2080": "7.5",
    "A2000": "8.6",
    "A4000": "8.6",
    "A4500": "8.6",
    "A5000": "8.6",
    "A5500": "8.6",
    "A6000": "8.6",
    "RTX3050": "8.6",
    "RTX3060": "8.6",
    "RTX3070": "8.6",
    "RTX3080": "8.6",
    "RTX_2000_ADA": "8.9",
    "RTX_4000_ADA": "8.9",
    "RTX_4000_SFF_ADA": "8.9",
    "RTX_4500_ADA": "8.9",
    "RTX_5000_ADA": "8.9",
    "RTX_6000_ADA": "8.9",
    "RTX4050": "8.9",
    "RTX4060": "8.9",
    "RTX4070": "8.9",
    "RTX4080": "8.9",
    "RTX_PRO_4000": "12.0",
    "RTX_PRO_4500": "12.0",
    "RTX_PRO_5000": "12.0",
    "RTX5050": "12.0",
    "RTX5060": "12.0",
    "RTX5070": "12.0",
    "RTX5080": "12.0",
}

#: CUDA of our variants, torch, compute capabilities with machine code
VARIANTS = (
    ("11.6", "1.13.1", ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6")),
    ("11.7", "1.13.1", ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6")),
    ("11.7", "2.0.1", ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6")),
    ("11.8", "2.0.1", ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")),
    ("12.1", "2.3.1", ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")),
    ("12.6", "2.7.1", ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")),
    ("12.8", "2.10.0", ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0")),
    ("13.0", "2.12.1", ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")),
)

#: graphlearn-torch → series of torch, major CUDA version
GLT_RELEASES = {
    "0.2.0": (("1.13",), "11"),
    "0.2.1": (("1.13",), "11"),
    "0.2.2": (("1.13",), "11"),
    "0.2.3": (("2.3", "2.4", "2.5", "2.6"), "12"),
    "0.2.4": (("2.3", "2.4", "2.5", "2.6"), "12"),
}



# pattern: The form of an error that the doctor recognises.

class Pattern(NamedTuple):
    """`sign`: a regular expression; its named groups fill `{name}` in `cause` and `fix`.

    `source`: where it was met: an issue, a document, or "seen here" for what was provoked on a machine of ours.
    """

    id: str
    sign: str
    cause: str
    fix: str
    source: str



# symbols: C++ names as people read them, with what this machine has: libstdc++'s own demangler, or c++filt.

MANGLED = re.compile(r"_Z[A-Za-z0-9_.$]+")
#: who has a symbol, by what it begins with; the first that fits
OWNERS = (
    (r"at::|c10::|torch::|caffe2::|at_|_ZN(K?)(2at|3c10|5torch)", "torch"),
    (r"cudnn", "cuDNN"),
    (r"cublas", "cuBLAS"),
    (r"nccl", "NCCL"),
    (r"__nvJitLink|nvJitLink", "nvJitLink"),
    (r"cuda|cusparse|cusolver|cufft|curand|__cuda", "the CUDA runtime"),
    (r"_?Py[A-Z_]", "Python"),
    (r"std::|__cxa|GLIBCXX", "libstdc++"),
    (r"GOMP_|omp_|__kmpc", "OpenMP's runtime"),
)


def demangled(symbol: str) -> str:
    """`at::_ops::zeros::call(…)` of `_ZN2at4_ops5zeros4callE…`; as it is where nothing here can tell."""
    if not MANGLED.match(symbol):
        return symbol
    for library in ("libstdc++.so.6", None):
        try:
            demangle = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        demangle.restype = ctypes.c_void_p
        demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        status = ctypes.c_int(1)
        answer = demangle(symbol.encode(), None, None, ctypes.byref(status))
        if status.value == 0 and answer:
            return (ctypes.cast(answer, ctypes.c_char_p).value or b"").decode("utf-8", "replace")
    try:
        done = subprocess.run(["c++filt", symbol], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=2)
    except (OSError, subprocess.TimeoutExpired):
        return symbol
    return done.stdout.decode("utf-8", "replace").strip() or symbol


def readable(text: str) -> str:
    """A text with its C++ names demangled."""
    return MANGLED.sub(lambda found: demangled(found.group(0)), text)


def owner_of(symbol: str) -> str:
    """Whose symbol it is, so whose version is the wrong one; empty where its name does not tell."""
    name = demangled(symbol)
    for sign, owner in OWNERS:
        if re.match(sign, name) or re.match(sign, symbol):
            return owner
    return ""


def has_old_strings(symbol: str) -> bool:
    """Whether a torch with the old C++ ABI is wanted: its names have std::string without __cxx11 (`Ss`, `SsE`)."""
    name = demangled(symbol)
    return "std::string" in name and "__cxx11" not in name


def has_new_strings(symbol: str) -> bool:
    """Whether the new C++ ABI is wanted."""
    return "__cxx11" in symbol



# docker: Docker, podman and NVIDIA's container tools.

GPUS_VERSION, CLONE3_VERSION = "19.03", "20.10.10"
QUESTION = b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n"


def judge_docker(place: Place, has_gpu: bool) -> Iterator[Finding]:
    """Whether the daemon answers you, and gives GPUs."""
    address = place.environment.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    path = address[len("unix://") :] if address.startswith("unix://") else ""
    if place.find("docker") is None and not (path and place.exists(path)):
        yield note("docker", "not installed")
    elif not path:
        yield note("docker", f"DOCKER_HOST={address}: on another machine, which the doctor does not ask")
    elif not place.exists(path):
        yield warn(
            "docker",
            f"installed, and no daemon: {path} is missing",
            "docker says `Cannot connect to the Docker daemon`",
            "as root: systemctl start docker",
        )
    else:
        for finding in _daemon(place, path, has_gpu):
            yield finding
    for finding in _podman(place, has_gpu):
        yield finding
    for finding in _tools(place, has_gpu):
        yield finding


def _daemon(place: Place, path: str, has_gpu: bool) -> Iterator[Finding]:
    try:
        told = _docker_says(place.ask_socket(path, QUESTION))
    except PermissionError:
        why = "the socket belongs to root and the group docker"
        yield warn(
            "docker", path + " is closed to you", why, "as root: usermod -aG docker $USER, then log in anew; or podman"
        )
        return
    except OSError as error:
        yield warn("docker", f"{path}: {error}", "the daemon does not answer", "as root: systemctl restart docker")
        return
    if told is None:
        yield warn("docker", path + " answers in no known way", "it may be no Docker daemon", "docker info")
        return
    version = str(told.get("ServerVersion", ""))
    runtimes = sorted(told.get("Runtimes") or {})
    yield ok("docker", f"{version}, runtimes: {listed(runtimes)}")
    if version and numbers(version) < numbers(GPUS_VERSION):
        yield warn(
            "docker-version",
            version,
            f"--gpus needs {GPUS_VERSION}",
            "docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all …",
        )
    elif version and numbers(version) < numbers(CLONE3_VERSION):
        why = "its seccomp filter does not know clone3: images with glibc 2.34 or newer say `can't start new thread`"
        yield warn(
            "docker-version",
            version,
            why,
            "docker run --security-opt seccomp=unconfined …; or an image on Debian bullseye",
        )
    if (
        has_gpu
        and "nvidia" not in runtimes
        and not (place.exists("/etc/cdi") or place.find("nvidia-container-runtime-hook"))
    ):
        why = '`could not select device driver "" with capabilities: [[gpu]]`'
        fix = (
            "as root: apt-get install nvidia-container-toolkit; nvidia-ctk runtime configure; systemctl restart docker"
        )
        yield fail("docker-gpu", "Docker has no NVIDIA runtime", why, fix)


def _docker_says(raw: bytes) -> Optional[Dict[str, Any]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    try:
        told = json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        return None
    return told if isinstance(told, dict) and b" 200 " in head.split(b"\r\n")[0] else None


def _podman(place: Place, has_gpu: bool) -> Iterator[Finding]:
    program = place.find("podman")
    if program is None:
        return
    done = place.run([program, "--version"])
    yield ok("podman", done.out.strip() if done and done.code == 0 else program)
    specifications = [name for folder in ("/etc/cdi", "/var/run/cdi") for name in place.names(folder)]
    if has_gpu and not any("nvidia" in name for name in specifications):
        fix = "as root: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        yield warn(
            "podman-gpu", "/etc/cdi has no nvidia.yaml", "podman run --device nvidia.com/gpu=all finds no GPU", fix
        )


def _tools(place: Place, has_gpu: bool) -> Iterator[Finding]:
    program = place.find("nvidia-container-cli")
    if program is None:
        if has_gpu:
            why = "Docker's --gpus and enroot's hook bring the driver in with it; Apptainer's --nv does without"
            yield note(
                "container-cli",
                "nvidia-container-cli is not installed",
                why,
                "as root: apt-get install libnvidia-container-tools",
            )
        return
    done = place.run([program, "--version"])
    if done is None or done.code != 0:
        seen = "{}: {}".format(program, ((done.err if done else "").strip().splitlines() or ["does not start"])[-1])
        yield fail("container-cli", seen, "containers get no GPU by it", "reinstall libnvidia-container")
    else:
        yield ok("container-cli", (done.out.strip().splitlines() or [program])[0])



# machine: Kernel, distribution, C library, cores, memory and limits; disks and shared memory; the network.

GIB = 1 << 30
MIB = 1 << 20
SMALL_MEMORY = 4 * GIB  #: importing torch for CUDA and starting a GPU takes 3 to 4
SMALL_SHM = GIB
TINY_SHM = 64 * MIB  #: Docker's own default
SMALL_DISK = 10 * GIB  #: an image of 5 GB, and it unpacked
FEW_FILES = 4096
#: kernel → what it lacks before. Source: docs/runtimes.md, Apptainer's user guide
ZSTD_KERNEL = "4.14"
NO_LIMIT = 1 << 60  #: cgroup v1 says so where there is none


def judge_machine(place: Place) -> Iterator[Finding]:
    """Kernel, distribution, C library, processor, memory, limits."""
    for part in (_system, _cores, _memory, _limits):
        yield from part(place)


def kernel_of(place: Place) -> str:
    """`3.10.0-1160.el7.x86_64`."""
    return (place.read("/proc/sys/kernel/osrelease") or "").strip()


def distribution_of(place: Place) -> str:
    """`Debian GNU/Linux 12 (bookworm)`."""
    text = place.read("/etc/os-release") or place.read("/usr/lib/os-release") or ""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return found.group(1) if found else "an unknown distribution"


def _system(place: Place) -> Iterator[Finding]:
    kernel = kernel_of(place)
    library, version = platform.libc_ver()
    c_library = f"{library} {version}" if version else "an unknown C library"
    yield ok(
        "system",
        f"{distribution_of(place)}, kernel {kernel}, {c_library}, Python {platform.python_version()}",
    )
    if kernel and numbers(kernel) < numbers(ZSTD_KERNEL):
        why = "it mounts squashfs with gzip alone; zstd came with " + ZSTD_KERNEL
        yield note(
            "kernel",
            f"kernel {kernel} is old",
            why,
            "make sif CUDA=11.8    (gzip, the default); never KERNEL=5.14",
        )
    machine = os.uname().machine
    if machine != "x86_64":
        why = "the images are for x86_64: `exec format error`"
        yield fail("machine", f"this is a {machine}", why, "a node with an Intel or AMD processor")
    flags = re.search(r"^flags\s*:(.*)$", place.read("/proc/cpuinfo") or "", re.MULTILINE)
    if flags and "avx2" not in flags.group(1).split():
        why = "PyG's and others' wheels may use AVX2: `Illegal instruction`"
        yield warn("avx2", "the processor has no AVX2", why, "EXTENSIONS=source make image …    compiles them without")


def _cores(place: Place) -> Iterator[Finding]:
    count = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(place)
    told = f"{allowed} of {count} cores" if allowed < count else f"{count} cores"
    if quota and quota + 0.5 < allowed:
        why = "torch starts a thread for each core that it sees; they then wait for one another"
        fix = f"export OMP_NUM_THREADS={max(1, quota):.0f}"
        yield warn("cores", f"{told}, of which the cgroup gives {quota:.1f}", why, fix)
    elif allowed < count:
        yield note("cores", told, "a job's share: num_workers and OMP_NUM_THREADS should fit it")
    else:
        yield ok("cores", told)


def _cgroups(place: Place) -> List[Tuple[str, str]]:
    """(controllers, folder) of each cgroup of this process, from the innermost folder that can be there."""
    found = []
    for line in (place.read("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.append((parts[1], parts[2]))
    return found


def cgroup_folders(place: Place, controller: str) -> List[Tuple[str, int]]:
    """(folder, version of cgroups) of this process's cgroup, and of all above it, for the files of a controller."""
    found = []
    for controllers, folder in _cgroups(place):
        if controllers == "":
            tops, version = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"), 2
        elif controller in controllers.split(","):
            tops, version = ("/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + controller), 1
        else:
            continue
        parts = [part for part in folder.split("/") if part]
        for top in tops:
            for depth in range(len(parts), -1, -1):
                found.append(("/".join([top, *parts[:depth]]), version))
    return found


def _cgroup_values(place: Place, controller: str, name: str, name_v2: str) -> List[str]:
    """The values of a file in this process's cgroup and in all above it."""
    values = []
    for folder, version in cgroup_folders(place, controller):
        text = place.read(folder + "/" + (name if version == 1 else name_v2))
        if text:
            values.append(text.strip())
    return values


def _quota(place: Place) -> Optional[float]:
    """Cores' worth of time that the cgroup gives; None for no limit."""
    found = []
    for value in _cgroup_values(place, "cpu", "cpu.cfs_quota_us", "cpu.max"):
        parts = value.split()
        if parts and parts[0].isdigit():
            found.append(int(parts[0]) / int(parts[1] if len(parts) > 1 else 100000))
    return min(found) if found else None


def memory_limit(place: Place) -> Optional[int]:
    """Bytes that the cgroup gives; None for no limit."""
    values = _cgroup_values(place, "memory", "memory.limit_in_bytes", "memory.max")
    limits = [int(value) for value in values if value.isdigit() and int(value) < NO_LIMIT]
    return min(limits) if limits else None


def _memory(place: Place) -> Iterator[Finding]:
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB", place.read("/proc/meminfo") or "", re.MULTILINE))
    total = int(told.get("MemTotal", 0)) * 1024
    free = int(told.get("MemAvailable") or told.get("MemFree") or 0) * 1024
    limit = memory_limit(place)
    if limit and (not total or limit < total):
        seen, least = f"{size(limit)} by the cgroup's limit, of {size(total)}", limit
    else:
        seen, least = f"{size(total)}, {size(free)} free", free
    if not total:
        return
    if least < SMALL_MEMORY:
        why = "importing torch for CUDA and starting a GPU takes 3 to 4 GiB: `Killed`, exit code 137"
        yield warn("memory", seen, why, "in Slurm: --mem=16G; docker run --memory 16g")
    else:
        yield ok("memory", seen)


def _limits(place: Place) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FEW_FILES:
        fix = f"ulimit -n {hard if hard >= 0 else 65536}"
        yield note(
            "open-files",
            f"{soft} open files",
            "many workers of DataLoaders want more: `Too many open files`",
            fix,
        )
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    adapters = place.names("/sys/class/infiniband")
    if adapters and 0 <= locked < GIB:
        why = "InfiniBand pins memory: NCCL says `ibv_reg_mr failed` or `Cannot allocate memory`"
        fix = "ulimit -l unlimited; docker run --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK"
        yield warn("locked-memory", f"{size(locked)} may be locked", why, fix)
    data = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= data < 64 * GIB:
        why = "CUDA reserves tens of gigabytes of addresses: cuInit answers out of memory"
        yield warn("addresses", f"ulimit -v is {size(data)}", why, "ulimit -v unlimited")


# Disks


def judge_storage(place: Place, container: str) -> Iterator[Finding]:
    """/dev/shm, /tmp, $TMPDIR, $HOME and what runtimes unpack into."""
    yield from _shared_memory(place, container)
    mounts = mounts_of(place)
    temporary = place.environment.get("TMPDIR", "")
    if temporary and not place.exists(temporary):
        why = "programs then fail or write elsewhere: a job's TMPDIR of the host is often not bound into the container"
        yield warn("tmpdir", f"TMPDIR={temporary} is not there", why, "export TMPDIR=/tmp")
        temporary = ""
    folders = {"tmp": "/tmp", "tmpdir": temporary, "home": place.home()}
    seen = set()
    for name, folder in folders.items():
        room = place.room(folder) if folder else None
        if room is None or (name == "tmpdir" and folder in seen):
            continue
        seen.add(folder)
        kind = kind_of(mounts, folder)
        told = "{}: {} free of {}{}".format(folder, size(room.free), size(room.total), ", " + kind if kind else "")
        if not place.may_write(folder):
            fix = "export HOME=/tmp" if name == "home" else "export TMPDIR=a folder of yours"
            yield warn(name, told + ", closed to you", "caches of PyG, ogb and torch are written there", fix)
        elif room.free < GIB // 4:
            fix = f"df -h {folder}; du -sh {folder}/*"
            if container == "apptainer" and kind == "tmpfs":
                fix = "singularity exec --workdir /scratch/$USER …    (--contain gives 64 MB of memory)"
            yield warn(name, told, "`No space left on device` as soon as something is written", fix)
        elif room.free < SMALL_DISK and not container:
            why = "an image is unpacked or converted there: `No space left on device`"
            fix = "export APPTAINER_TMPDIR=/scratch/$USER ENROOT_TEMP_PATH=/scratch/$USER TMPDIR=/scratch/$USER"
            yield note(name, told, why, fix)
        else:
            yield ok(name, told)


def _shared_memory(place: Place, container: str) -> Iterator[Finding]:
    fix = {
        "docker": "docker run --shm-size=8g …    (or --ipc=host)",
        "podman": "podman run --shm-size=8g …",
        "kubernetes": "an emptyDir with `medium: Memory` at /dev/shm; in PAI: shared memory in the job's settings",
    }.get(container, "as root: mount -o remount,size=50% /dev/shm; Docker: --shm-size=8g")
    room = place.room("/dev/shm") if place.exists("/dev/shm") else None
    if room is None:
        yield fail("shm", "there is no /dev/shm", "workers of DataLoaders and GLT cannot start", fix)
        return
    seen = f"/dev/shm: {size(room.free)} free of {size(room.total)}"
    why = "workers of DataLoaders, NCCL and GLT hand data over there; who runs out of it dies of `Bus error`"
    if not place.may_write("/dev/shm"):
        yield fail("shm", seen + ", closed to you", why, "as root: chmod 1777 /dev/shm")
    elif room.free < TINY_SHM or room.total <= TINY_SHM:
        yield fail("shm", seen, why, fix)
    elif room.free < SMALL_SHM:
        yield warn("shm", seen, why, fix)
    else:
        yield ok("shm", seen)


def mounts_of(place: Place) -> List[Tuple[str, str]]:
    """(mount point, kind of file system), as the kernel lists them."""
    rows = [line.split() for line in (place.read("/proc/self/mounts") or "").splitlines()]
    return [(row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2]


def kind_of(mounts: List[Tuple[str, str]], path: str) -> str:
    """The file system that a path is on: of equally long mount points the last."""
    best, kind = "", ""
    for point, name in mounts:
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind


# Network


def judge_network(place: Place) -> Iterator[Finding]:
    """What processes of one job need to find each other."""
    broken = place.loopback()
    if broken:
        why = "processes of one machine meet there: torchrun, gloo and GLT hang or fail"
        yield fail("loopback", "127.0.0.1 does not work: " + broken, why, "as root: ip link set lo up")
    host = place.host_name()
    address = place.resolves(host)
    if address:
        yield ok("host-name", f"{host} is {address}")
    else:
        seen = "{} {}".format(host, "has no address" if address == "" else "is not answered in time")
        why = "torch.distributed and gloo look their own machine up by name: they hang, or `Name or service not known`"
        fix = "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0    (a name of `ip link`); or a line in /etc/hosts"
        yield warn("host-name", seen, why, fix)
    for finding in _interfaces(place):
        yield finding
    master = place.environment.get("MASTER_ADDR", "")
    if master and not place.resolves(master):
        why = "every rank but the first waits for it until its time-out"
        yield fail(
            "master",
            f"MASTER_ADDR={master} has no address here",
            why,
            "export MASTER_ADDR=$(hostname -i)    on the first node",
        )
    for finding in _infiniband(place):
        yield finding
    told = {name: value for name, value in place.environment.items() if re.match(r"(NCCL|GLOO|UCX|FI)_", name)}
    if told:
        yield note("variables", listed((f"{name}={told[name]}" for name in sorted(told)), 8))


def _interfaces(place: Place) -> Iterator[Finding]:
    present = place.names("/sys/class/net")
    if present == ["lo"]:
        why = "started with --container-unshare=net, --net or --network none: processes of other nodes are out of reach"
        yield note("network", "there is no network but 127.0.0.1", why, "leave that option out")
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = place.environment.get(name, "")
        if not value or value.startswith("^") or not present:
            continue
        exact = value.startswith("=")
        wanted = [part for part in value.lstrip("=").split(",") if part]
        prefix = name.startswith("NCCL") and not exact
        if not any(each == part or (prefix and each.startswith(part)) for each in present for part in wanted):
            why = "NCCL says `no socket interface found`, gloo `Unable to find interface`"
            yield fail(
                "interface",
                f"{name}={value}, and there is none of that name",
                why,
                f"export {name}={_outward(present)}",
            )


def _outward(present: List[str]) -> str:
    others = [name for name in present if not re.match(r"lo$|docker|veth|br-|virbr|cni|flannel|tun|sit|ip6tnl", name)]
    return others[0] if others else "lo"


def _infiniband(place: Place) -> Iterator[Finding]:
    states: Dict[str, str] = {}
    for adapter in place.names("/sys/class/infiniband"):
        for port in place.names(f"/sys/class/infiniband/{adapter}/ports"):
            text = place.read(f"/sys/class/infiniband/{adapter}/ports/{port}/state") or ""
            states[f"{adapter}:{port}"] = text.split(":")[-1].strip()
    if not states:
        return
    active = [port for port, state in states.items() if state == "ACTIVE"]
    seen = f"InfiniBand: {len(active)} of {len(states)} ports active"
    if active and not any(name.startswith("uverbs") for name in place.names("/dev/infiniband")):
        why = "there is no /dev/infiniband/uverbs0 here: NCCL goes over TCP, ten times as slow"
        yield warn("infiniband", seen, why, "enroot: MELLANOX_VISIBLE_DEVICES=all; docker run --device /dev/infiniband")
    elif active and place.environment.get("NCCL_IB_DISABLE") == "1":
        yield warn("infiniband", seen, "NCCL_IB_DISABLE=1: NCCL goes over TCP", "unset NCCL_IB_DISABLE")
    else:
        yield ok("infiniband", seen)



# cuda: Drivers and CUDA versions: which of the two runs with which. Pure.

#: what cuInit and its like answer. Source: cuda.h of CUDA 13 (CUresult), NVIDIA's driver API reference
CODES = {
    1: ("CUDA_ERROR_INVALID_VALUE", "the driver's library and the kernel's module do not fit", ""),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "the GPU or the machine has no memory left", "nvidia-smi    shows who has it"),
    3: (
        "CUDA_ERROR_NOT_INITIALIZED",
        "the driver could not start, as in a process that was forked after CUDA had started",
        'multiprocessing.set_start_method("spawn")',
    ),
    34: (
        "CUDA_ERROR_STUB_LIBRARY",
        "the libcuda that was loaded is a toolkit's stub, made for linking alone",
        "take the folder `stubs` out of LD_LIBRARY_PATH",
    ),
    46: (
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "another process has the GPU for itself (compute mode EXCLUSIVE_PROCESS), or none is allowed",
        "nvidia-smi -q -d COMPUTE    then ask the administrator, or take another GPU",
    ),
    100: (
        "CUDA_ERROR_NO_DEVICE",
        "the driver shows this process no GPU",
        "look at CUDA_VISIBLE_DEVICES; in Slurm ask for one: --gres=gpu:1",
    ),
    101: (
        "CUDA_ERROR_INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES names a GPU that is not there",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    304: ("CUDA_ERROR_OPERATING_SYSTEM", "the kernel refused a call of the driver", "dmesg    as root, on the host"),
    802: (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the NVSwitches are not set up: NVIDIA's fabric manager is not running, or is of another version",
        "the administrator: systemctl status nvidia-fabricmanager    (its version has to be the driver's)",
    ),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda is of another version than the kernel's module: the driver was updated and not loaded anew, or "
        "the container has a libcuda of its own",
        "on the host: reboot the node; in a container: remove its own libcuda*, let the runtime bring the host's",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the image's forward-compatibility libcuda was loaded on a GPU that may not use it (GeForce), or beside a "
        "newer driver that does not need it",
        "take /usr/local/cuda/compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
    ),
    805: ("CUDA_ERROR_MPS_CONNECTION_FAILED", "CUDA's MPS daemon does not answer", "unset CUDA_MPS_PIPE_DIRECTORY"),
    999: (
        "CUDA_ERROR_UNKNOWN",
        "most often the module nvidia_uvm is not loaded, /dev/nvidia-uvm is missing, or the machine was suspended",
        "on the host as root: modprobe nvidia_uvm && nvidia-modprobe -u -c=0",
    ),
}  # name, meaning, fix


class Variant(NamedTuple):
    """Whether a CUDA of ours runs. `reason` is why not, or with which reserve."""

    cuda: str
    torch: str
    runs: bool
    reason: str


def oldest_driver(cuda: str) -> str:
    """As in graphcrate.compat.drivers: by minor-version compatibility from CUDA 11 on; empty where nobody knows."""
    return MINIMUM_DRIVERS.get(cuda.split(".")[0], "") or TOOLKIT_DRIVERS.get(cuda, "")


def newest_cuda(driver: str) -> str:
    """The newest CUDA version that this driver knows all of; empty for one before CUDA 9."""
    known = [cuda for cuda, first in TOOLKIT_DRIVERS.items() if numbers(first) <= numbers(driver)]
    return max(known, key=numbers) if known else ""


def cuda_of(number: int) -> str:
    """What the driver calls 11040, people call 11.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def model_of(name: str) -> str:
    """The model in a name as the driver has it ("Tesla V100-SXM3-32GB"); empty for none. The longest wins."""
    words = "".join(letter if letter.isalnum() else " " for letter in name.upper()).split()
    joined = ["".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)]
    return max((each for each in GPU_CAPABILITIES if each.replace("_", "").upper() in joined), key=len, default="")


def capability_of(model: str) -> str:
    """Of a name as the driver has it; empty where it is not known."""
    return GPU_CAPABILITIES.get(model_of(model), "")


def has_code(built: Sequence[str], capability: str) -> bool:
    """Machine code for X.Y runs on X.Z with Z ≥ Y (CUDA programming guide, binary compatibility)."""
    major, minor = capability.split(".")
    return any(code.split(".")[0] == major and int(code.split(".")[1]) <= int(minor) for code in built)


def fitting_variants(driver: str, capabilities: Sequence[str]) -> List[Variant]:
    """Which variants of ours run with this driver (or an empty one) on all of these GPUs."""
    found = []
    for cuda, torch, built in VARIANTS:
        least = oldest_driver(cuda)
        lacking = [code for code in capabilities if built and not has_code(built, code)]
        if driver and numbers(driver) < numbers(least):
            found.append(Variant(cuda, torch, False, f"needs driver {least} or newer"))
        elif lacking:
            reason = "torch {} has no code for sm_{}".format(torch, lacking[0].replace(".", ""))
            found.append(Variant(cuda, torch, False, reason))
        else:
            own = TOOLKIT_DRIVERS.get(cuda, "")
            minor = driver and own and numbers(driver) < numbers(own)
            found.append(Variant(cuda, torch, True, "by minor-version compatibility" if minor else ""))
    return found


def in_words(variants: Sequence[Variant]) -> Tuple[str, str]:
    """Those that run, and those that do not with the reason."""
    running = dict.fromkeys(each.cuda for each in variants if each.runs)
    reasons: Dict[str, Dict[str, None]] = {}
    for each in variants:
        if not each.runs and each.cuda not in running:
            reasons.setdefault(each.reason, dict.fromkeys([each.cuda])).update({each.cuda: None})
    out = "; ".join("{} {}".format(", ".join(cudas), reason) for reason, cudas in reasons.items())
    return ", ".join(running), out


def newest_fitting(driver: str, capabilities: Sequence[str]) -> str:
    """The newest CUDA of ours that runs there; empty for none."""
    running = [each.cuda for each in fitting_variants(driver, capabilities) if each.runs]
    return max(running, key=numbers) if running else ""



# known_gpu: Errors of drivers, GPUs, CUDA's libraries and NCCL, the most telling first.

GPU_PATTERNS = (
    Pattern(
        "driver-too-old",
        r"NVIDIA driver on your system is too old \(found version (?P<found>\d+)\)",
        "The node's driver knows CUDA {found} at most, and this torch was built for a newer one.",
        "make image CUDA={fitting}    (the newest of ours that such a driver runs); or a newer driver",
        "SeqNet #36, Fooocus #1313",
    ),
    Pattern(
        "driver-insufficient",
        r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver",
        "The node's driver is older than the CUDA that the program was built with; or a container without libcuda.",
        "doctor    says which CUDA the driver runs; then: make image CUDA=…; singularity exec --nv …",
        "cuda.h (error 35); cog #505",
    ),
    Pattern(
        "require-cuda",
        r"requirement error: unsatisfied condition: cuda ?>= ?(?P<wanted>[\d.]+)",
        "nvidia-container-cli refuses to start the image: it asks for CUDA {wanted}, and the driver knows an "
        "older one.",
        "an image for an older CUDA (`doctor` says which the driver runs); NVIDIA_DISABLE_REQUIRE=1 where the "
        "driver is of "
        "the same major version",
        "nvidia-container-toolkit #152, nvidia-docker #1442",
    ),
    Pattern(
        "forward-compat",
        r"forward compatibility was attempted on non supported HW|Error 804\b|CUDA_ERROR_COMPAT_NOT_SUPPORTED",
        "A libcuda of the image (cuda-compat) was loaded instead of the driver's own: such a GPU (GeForce) may "
        "not use it, or the "
        "driver was updated and the module not loaded anew.",
        "LD_LIBRARY_PATH without /usr/local/cuda/compat; remove the package cuda-compat-*; or reboot the node",
        "TensorRT-LLM #1806, TorchPod #43",
    ),
    Pattern(
        "fabric-manager",
        r"Error 802\b|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "The NVSwitches of the machine (DGX-2, A100, H100) are not set up: NVIDIA's fabric manager does not run, "
        "or is of another "
        "version than the driver.",
        "the administrator: systemctl restart nvidia-fabricmanager; another node until then",
        "gpustack #1254, pytorch #35710",
    ),
    Pattern(
        "driver-mismatch",
        r"Driver/library version mismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|Error 803\b",
        "libcuda or libnvidia-ml is of another version than the loaded kernel module: an update without a "
        "reboot, or an image that "
        "brings libraries of a driver.",
        "cat /proc/driver/nvidia/version; reboot the node; take libcuda* and libnvidia-* out of the image",
        "nvidia-docker #825",
    ),
    Pattern(
        "no-kernel-image",
        r"(with CUDA capability (?P<sm>sm_\d{2,3}) )?is not compatible with the current PyTorch installation"
        r"|no kernel image is available for execution|CUDA error 209\b|cudaErrorNoKernelImageForDevice",
        "torch, or an extension, has no machine code for {architecture}, and no PTX that the driver could compile.",
        "make image GPU={gpu}    (your GPU: it names the CUDA that suits); an extension of your own: "
        "TORCH_CUDA_ARCH_LIST={capability}",
        "PyG #5850, #3822, #1106",
    ),
    Pattern(
        "invalid-device-function",
        r"invalid device function|cudaErrorInvalidDeviceFunction",
        "A kernel of an extension is not there for this GPU: it was compiled on a node with another one, or for "
        "another CUDA or torch than it meets.",
        "install it for exactly this torch and CUDA, or compile it with TORCH_CUDA_ARCH_LIST=…    (of your GPU); "
        "make image GPU=…    does",
        "PyG #951, #863; scatter #199, #204; pytorch #1557",
    ),
    Pattern(
        "cuda-of-extension",
        r"Detected that PyTorch and (?P<name>\w{1,80}) were compiled with different CUDA (major )?versions"
        r"(\. PyTorch has CUDA [Vv]ersion[ =](?P<ours>[\d.]+\d) and \w{1,80} has CUDA [Vv]ersion[ =]"
        r"(?P<theirs>[\d.]+\d))?",
        "torch is a build for CUDA {ours}, and {name} one for CUDA {theirs}: it came from another index or page, or a "
        "compiler of another CUDA made it.",
        "pip install --force-reinstall --no-cache-dir {name}    from the page for that torch and CUDA; or make image "
        "CUDA=…, where they go together",
        "sparse #86, #122; scatter #187, #503",
    ),
    Pattern(
        "nvcc-mismatch",
        r"detected CUDA version \((?P<nvcc>[\d.]+)\) mismatches the version that was used to compile\s+PyTorch "
        r"\((?P<built>[\d.]+)\)",
        "The nvcc that was found is of CUDA {nvcc}, and torch was built with {built}: extensions would have parts of "
        "both.",
        "export CUDA_HOME=/usr/local/cuda-{built}, or module load cuda/{built}; make image CUDA=… FLAVOUR=devel    has "
        "the nvcc that suits",
        "sparse #189, DiffDock #176",
    ),
    Pattern(
        "nvml-unknown",
        r"Failed to initialize NVML: Unknown Error",
        "The container has lost its GPUs: systemd set the rules for its devices anew (a daemon-reload, an update) and "
        "left them out. On the host all is well.",
        "start the container anew; docker run --device /dev/nvidia0 --device /dev/nvidiactl --device "
        "/dev/nvidia-uvm …; as root: nvidia-ctk system create-dev-char-symlinks --create-all",
        "nvidia-docker #1730, nvidia-container-toolkit #48",
    ),
    Pattern(
        "ptx-toolchain",
        r"PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "There is no machine code for this GPU, so the driver compiles PTX; the PTX is of a newer CUDA than the "
        "driver knows.",
        "a driver as new as the toolkit that built it; or GPU=… when building, which makes machine code",
        "GeneFacePlusPlus #192, pytorch #146056",
    ),
    Pattern(
        "no-driver",
        r"Found no NVIDIA driver on your system|libcuda\.so(\.1)?: cannot open shared object",
        "No libcuda: there is no driver, or the container was started without it.",
        "singularity exec --nv …; docker run --gpus all …; enroot: NVIDIA_VISIBLE_DEVICES=all "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "seen here (torch for CUDA on a machine without a GPU)",
    ),
    Pattern(
        "nvidia-smi-failed",
        r"couldn't communicate with the NVIDIA driver",
        "The kernel's module is not loaded: not installed, not built for the running kernel, or nouveau has the GPU.",
        "as root: modprobe nvidia; dmesg | grep -i nvidia; after an update of the kernel: dkms autoinstall",
        "nvidia-smi",
    ),
    Pattern(
        "cuda-unknown",
        r"CUDA unknown error|Error 999\b|CUDA_ERROR_UNKNOWN|cudaErrorUnknown",
        "CUDA could not start, and does not say why: most often nvidia_uvm is not loaded, /dev/nvidia-uvm is "
        "missing, or the "
        "machine was suspended; also a CUDA_VISIBLE_DEVICES that was changed after the start.",
        "on the host as root: modprobe nvidia_uvm && nvidia-modprobe -u -c=0; ls -l /dev/nvidia*; start the "
        "container anew",
        "torch.cuda; cuda.h (error 999)",
    ),
    Pattern(
        "not-available",
        r"is_available\(\)[^\n]{0,40}\bFalse\b|AssertionError: .{0,40}CUDA is not available|No GPU (was )?found",
        "torch does not use the GPU, for one of seven reasons: only the node itself can tell which.",
        "doctor    where the program runs: the same job, the same container",
        "docs/doctor.md",
    ),
    Pattern(
        "cpu-torch",
        r"Torch not compiled with CUDA enabled|[Nn]ot compiled with (CUDA|GPU) support",
        "torch, or the extension, is a build for the CPU: pip took it from another index, or it was built where "
        "no GPU was seen.",
        "an image for CUDA: make image CUDA=…; building an extension: FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=…",
        "seen here; scatter #216, #194",
    ),
    Pattern(
        "no-device",
        r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available",
        "The driver is there and shows this process no GPU: the job asked for none, or CUDA_VISIBLE_DEVICES "
        "hides them.",
        "echo $CUDA_VISIBLE_DEVICES; srun --gres=gpu:1 …; ls -l /dev/nvidia*",
        "cuda.h (error 100)",
    ),
    Pattern(
        "invalid-device",
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE",
        "The program asks for a GPU by a number that it does not have: there are fewer than it thinks, or "
        "several ranks take "
        "numbers of the whole node where each sees its own alone.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()); ask Slurm for as many "
        "as there are processes",
        "cuda.h (error 101)",
    ),
    Pattern(
        "fork-after-cuda",
        r"Cannot re-initialize CUDA in forked subprocess",
        "CUDA was started, then the process was forked: a DataLoader worker or a process of "
        "torch.multiprocessing touches the GPU.",
        'torch.multiprocessing.set_start_method("spawn"); or keep tensors of the dataset on the CPU',
        "torch's notes on multiprocessing",
    ),
    Pattern(
        "cuda-memory",
        r"CUDA out of memory|CUDA error: out of memory|Cuda failure '?out of memory|torch\.(cuda\.)?OutOfMemoryError",
        "The GPU's memory is full: by this program, or by another that is still there.",
        "nvidia-smi    shows who has it; smaller batches or fan-outs; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "torch's documentation on memory management",
    ),
    Pattern(
        "device-assert",
        r"device-side assert triggered",
        "An index was out of range on the GPU: a node number beyond num_nodes, or a class beyond num_classes. "
        "All later calls fail too.",
        "run once on the CPU, or with CUDA_LAUNCH_BLOCKING=1: then the line is the right one; check "
        "edge_index.max() < num_nodes",
        "torch's documentation on CUDA semantics",
    ),
    Pattern(
        "nvjitlink",
        r"undefined symbol: __nvJitLink\w+",
        "libcusparse met a libnvJitLink of another CUDA: one of the host's, by LD_LIBRARY_PATH or a loaded module.",
        "unset LD_LIBRARY_PATH; module purge; singularity exec --cleanenv …",
        "pytorch #111469, #134929, #140797",
    ),
    Pattern(
        "cudnn-mismatch",
        r"cuDNN version (incompatibility|mismatch): PyTorch was compiled\s+against (?P<built>\([\d, ]+\)|\d+) but "
        r"(found runtime version|linked against) (?P<found>\([\d, ]+\)|\d+)",
        "A cuDNN {found} of the host was loaded before the {built} that torch brings: by LD_LIBRARY_PATH.",
        "unset LD_LIBRARY_PATH; module unload cudnn; singularity exec --cleanenv …",
        "kohya_ss #1096, pytorch #80637",
    ),
    Pattern(
        "cudnn-init",
        r"CUDNN_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR|EXECUTION_FAILED)|CUBLAS_STATUS_(NOT_INITIALIZED|ALLOC_FAILED)",
        "Most often the GPU's memory is full when cuDNN or cuBLAS wants its part; else a second cuDNN in "
        "LD_LIBRARY_PATH.",
        "nvidia-smi; smaller batches; unset LD_LIBRARY_PATH; if only that: CUDA_LAUNCH_BLOCKING=1 shows the true place",
        "NVIDIA's documentation of cuDNN and cuBLAS",
    ),
    Pattern(
        "nccl-shm",
        r"Error while (creating|attaching to) shared memory segment|Call to "
        r"(posix_fallocate|shm_open|ftruncate) failed",
        "NCCL found no room, or no right, in /dev/shm.",
        "docker run --shm-size=8g …; df -h /dev/shm; ls -ld /dev/shm    (must be drwxrwxrwt); rm /dev/shm/nccl-*",
        "nccl #328, #1683, nccl-tests #166",
    ),
    Pattern(
        "nccl-memlock",
        r"Call to ibv_(reg_mr\w*|create_cq|create_qp) failed|ibv_reg_mr\w* failed",
        "InfiniBand has to pin memory, and `ulimit -l` is too small.",
        "ulimit -l unlimited; docker run --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK, "
        "slurmd restarted",
        "nccl-tests #206, ucx #6264",
    ),
    Pattern(
        "nccl-interface",
        r"[Nn]o socket interface found|Bootstrap : no socket interface|[Uu]nable to find (address for|interface)",
        "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that this machine does not have, or the "
        "host's name has no address.",
        "ip -brief address; export NCCL_SOCKET_IFNAME=… GLOO_SOCKET_IFNAME=…    of those",
        "NCCL's documentation of environment variables; gloo's tcp transport",
    ),
    Pattern(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout|collective operation timeout: WorkNCCL",
        "A rank never came to a collective operation: it died, works longer (uneven batches), hangs in its "
        "loader, or the network "
        "between nodes is closed to NCCL.",
        "look at the log of every rank for the first error; NCCL_DEBUG=INFO TORCH_NCCL_TRACE_BUFFER_SIZE=2000; "
        "examples/torch_check.py",
        "pytorch #118369, Megatron-LM #1207",
    ),
    Pattern(
        "nccl-remote",
        r"remote process exited or there was a network error|ncclRemoteError",
        "Another rank is gone, or the network to it broke: this one only noticed. What ended that one stands in its "
        "own log.",
        "the log of the rank that failed first (`srun --label`); where none failed: NCCL_DEBUG=WARN, "
        "NCCL_SOCKET_IFNAME=…, or NCCL_IB_DISABLE=1 to rule InfiniBand out",
        "nccl #2076, #934, #1928",
    ),
    Pattern(
        "nccl-system",
        r"unhandled system error|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|unhandled cuda "
        r"error",
        "NCCL failed and keeps the reason to itself: /dev/shm, an interface, locked memory, a dead rank, or a "
        "GPU that two ranks share.",
        "NCCL_DEBUG=WARN    again, and give the lines with `NCCL WARN` to doctor --explain",
        "vllm #10626, nccl #425",
    ),
    Pattern(
        "nccl-duplicate",
        r"Duplicate GPU detected : rank (?P<one>\d+) and rank (?P<other>\d+)",
        "Ranks {one} and {other} took the same GPU.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))    before init_process_group; as many GPUs as processes",
        "nccl (init.cc)",
    ),
    Pattern(
        "xid",
        r"NVRM: Xid.{0,200}?: (?P<number>\d+)|GPU has fallen off the bus|Unable to determine the device handle for GPU",
        "The GPU, or its link, has failed: it is not the program.",
        "another node; tell the administrator, with `dmesg | grep -i xid`",
        "NVIDIA's list of Xid errors",
    ),
)



# known_library: Errors of importing and loading: symbols, C libraries, Python packages, the most telling first.

LIBRARY_PATTERNS = (
    Pattern(
        "mkl-ijit",
        r"undefined symbol: iJIT_\w+",
        "A torch that links MKL (conda's) met MKL 2024.1, which no longer has this symbol.",
        "conda install 'mkl<2024.1'; or the image, whose torch has MKL built in",
        "pytorch #123097",
    ),
    Pattern(
        "python-symbol",
        r"undefined symbol: (?P<symbol>_?Py[A-Z_]\w*)",
        "The extension was built for another version of Python than the one that runs ({symbol}): the host's "
        "packages in the image, or "
        "a wrong wheel.",
        "python --version; unset PYTHONPATH; export PYTHONNOUSERSITE=1; install it for this Python",
        "seen with packages of the host's ~/.local",
    ),
    Pattern(
        "glt-symbol",
        r"py_graphlearn_torch\S{0,200}: undefined symbol: (?P<symbol>[\w.$@]+)",
        "graphlearn-torch was built for another torch: it has not {symbol}. {glt}",
        "pip install graphlearn-torch==0.2.2    for torch 1.13, ==0.2.4    for torch 2.3 to 2.6; or an image of "
        "the recipe glt",
        "seen here; the symbols of its wheels and of torch's compared",
    ),
    Pattern(
        "undefined-symbol",
        r"(?:(?<![\w.+/-])(?P<file>[\w.+/-]{1,400}\.so[\w.]{0,40}): )?undefined symbol: (?P<symbol>[\w.$@]+)",
        "{file} was built for another version of {owner} than there is: it lacks {symbol}. {abi}",
        "python -c 'import torch; print(torch.__version__, torch.__file__)'; install {file}'s package for "
        "exactly that torch and CUDA; unset "
        "PYTHONPATH, export PYTHONNOUSERSITE=1",
        "PyG #4355, #3836, #3486; scatter #234, #248; sparse #350",
    ),
    Pattern(
        "glibc-nv",
        r"version `(?P<version>GLIBC_[\w.]+)' not found \(required by (?P<file>/\.singularity\.d/libs/[^)]+)\)",
        "--nv (or --fakeroot) brought {file} of the host into the container, and the container's C library is "
        "older than the host's.",
        "strike that library from nvliblist.conf (the GL ones are not needed for CUDA); or an image with a newer "
        "base; --nvccli",
        "apptainer #945, #2421, #598, #2103",
    ),
    Pattern(
        "glibc",
        r"(?:version `)?(?P<version>GLIBC_[\w.]+)'? not found(?: \(required by (?P<file>[^)]+)\))?",
        "{file} was built on a newer system: it wants {version}, which this C library does not have.",
        "run it in an image with a newer base (Debian bookworm has 2.36); or compile it in this one; ldd --version",
        "pyg-lib #363, PyG #8217",
    ),
    Pattern(
        "libstdcxx",
        r"(?:version `)?(?P<version>(?:GLIBCXX|CXXABI)_[\d.]+)'? not found(?: \(required by (?P<file>[^)]+)\))?",
        "An older libstdc++ than {file} wants ({version}) was loaded: by conda, a compiler module or LD_LIBRARY_PATH.",
        "unset LD_LIBRARY_PATH; module purge; conda install 'libstdcxx-ng>=12'; strings libstdc++.so.6 | grep "
        "{version}",
        "common with conda beside system compilers",
    ),
    Pattern(
        "pyg-disabling",
        r"An issue occurred while importing '(?P<name>[\w-]+)'\. Disabling its usage",
        "{name} could not be loaded, and PyG goes on without it: slower, or a crash later. The true error is "
        "what stands behind `Stacktrace:`.",
        "python -c 'import {module}'    shows it; install {name} for this torch and CUDA",
        "PyG #9636, pyg-lib #363",
    ),
    Pattern(
        "cudart",
        r"(?P<library>lib(?:cudart|cublas\w*|cusparse\w*|cusolver|cufft|curand|nvrtc)\.so\.(?P<major>\d+)[\d.]*): "
        r"cannot open shared object",
        "It was built for CUDA {major}, and the torch that is here brings the libraries of another.",
        "install it for the CUDA of torch.version.cuda: pip install --force-reinstall … -f the page of PyG for "
        "that torch+cu; import torch first",
        "PyG #9636, seen here",
    ),
    Pattern(
        "torch-library",
        r"(?P<library>lib(?:torch\w*|c10\w*)\.so): cannot open shared object",
        "The extension was loaded before torch, or torch is a build for the CPU that has no {library}.",
        "import torch    before it; for libtorch_cuda and libc10_cuda: a torch for CUDA",
        "extensions that are imported before torch",
    ),
    Pattern(
        "libgl",
        r"libGL\.so\.1: cannot open shared object|libgthread-2\.0\.so\.0: cannot open",
        "opencv-python wants libraries of a desktop.",
        "pip install opencv-python-headless    instead of it",
        "opencv-python's README",
    ),
    Pattern(
        "missing-library",
        r"(?<![\w+.-])(?P<library>lib[\w+.-]{1,80}\.so[\w.]{0,20}): cannot open shared object file",
        "{library} is not in the image, nor where the linker looks.",
        "ldd FILE | grep 'not found'; apt-file search {library}; build the image with its package",
        "seen here",
    ),
    Pattern(
        "numpy-abi",
        r"compiled using NumPy 1\.x cannot be run in\s+NumPy 2|numpy\.(dtype|ndarray|ufunc) size "
        r"changed|_ARRAY_API not found"
        r"|Numpy is not available",
        "A package was built for NumPy 1 and NumPy 2 is installed (or the other way round).",
        "pip install 'numpy<2'; torch before 2.3 needs it",
        "pytorch-frame #525, tensorflow #98406",
    ),
    Pattern(
        "illegal-instruction",
        r"[Ii]llegal instruction|SIGILL",
        "A library was compiled for a newer processor than this one (AVX2, AVX-512): it was built with "
        "-march=native elsewhere.",
        "grep -o -m1 'avx2\\|avx512f' /proc/cpuinfo; EXTENSIONS=source make image …",
        "seen here",
    ),
    Pattern(
        "externally-managed",
        r"externally-managed-environment",
        "pip of the distribution's Python may not install (PEP 668).",
        "python3 -m venv ~/venv && ~/venv/bin/pip install …; in the image: /opt/venv/bin/pip",
        "PEP 668; seen here",
    ),
    Pattern(
        "read-only",
        r"Read-only file system",
        "A SIF, and an image under pyxis, cannot be written to.",
        "pip install --target /scratch/$USER/site … with PYTHONPATH; srun --container-writable; singularity exec "
        "--overlay; or put it into the recipe",
        "seen here",
    ),
    Pattern(
        "exec-format",
        r"[Ee]xec format error|cannot execute binary file",
        "A program for another processor (aarch64 and x86_64), or a script without #!.",
        "uname -m; file PROGRAM; docker build --platform linux/amd64",
        "seen here",
    ),
    Pattern(
        "preload",
        r"object '(?P<file>[^']+)' from LD_PRELOAD cannot be preloaded",
        "The host's LD_PRELOAD names {file}, which is not in the container. It is a warning; what it should do "
        "is not done.",
        "unset LD_PRELOAD; singularity exec --cleanenv …",
        "seen here",
    ),
    Pattern(
        "python-missing",
        r"python3?: (command )?not found|exec:? \"?python3?\"?:? (executable file )?not found|python3?: No such file",
        "PATH is not the image's: a login shell set it anew (enroot), or Slurm's own --container takes the host's.",
        "/opt/venv/bin/python …; export PATH=/opt/venv/bin:$PATH; ENROOT_LOGIN_SHELL=n",
        "seen with pyxis 0.24 and enroot 4.1.2 on Debian images",
    ),
    Pattern(
        "pyg-version",
        r"cannot import name '(?P<name>\w+)' from "
        r"'(?P<module>(?:torch|torch_geometric|torch_sparse|torch_scatter|ogb)[\w.]*)'",
        "{name} is not in this version of {module}: the program was written for another one, or two of them do "
        "not go together.",
        "python -m pip list | grep -i torch; the versions of an image go together: ./build.py list",
        "PyG's changelog",
    ),
    Pattern(
        "no-module",
        r"No module named '(?P<name>[\w.]+)'",
        "{name} is not installed for the Python that runs: another Python than the image's, or it is not in the image.",
        "which python; python -m pip list | grep -i {name}; in the image /opt/venv/bin/python",
        "seen here",
    ),
)



# known_runtime: Errors of enroot, pyxis, Apptainer, Singularity, Docker and Slurm, the most telling first.

RUNTIME_PATTERNS = (
    # enroot and pyxis
    Pattern(
        "enroot-no-nvidia-cli",
        r"Command not found: nvidia-container-cli",
        "The image asks for GPUs (NVIDIA_VISIBLE_DEVICES), and the node has no NVIDIA container tools: a node "
        "without GPUs, or "
        "one where they were forgotten.",
        "NVIDIA_VISIBLE_DEVICES=void srun …    (`none` does not help); a node with GPUs: libnvidia-container-tools",
        "pyxis #101; seen with enroot 4.1.2",
    ),
    Pattern(
        "enroot-mellanox",
        r"99-mellanox\.sh exited with return code|Unknown MELLANOX device id: (?P<id>\S{1,40})",
        "MELLANOX_VISIBLE_DEVICES asks for InfiniBand, and this node has none, or not as much of it.",
        "unset MELLANOX_VISIBLE_DEVICES    (or =void, where the image sets it); on the node: ls /sys/class/infiniband",
        "enroot 4.1.2, hook 99-mellanox.sh; seen on a node without InfiniBand",
    ),
    Pattern(
        "enroot-namespaces",
        r"enroot-nsenter: failed to create user namespace|enroot-\w+: failed to (create|unshare)",
        "The kernel gives no (more) user namespaces: switched off, or user.max_user_namespaces is used up.",
        "as root: sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1; lsns -t user",
        "pyxis #93",
    ),
    Pattern(
        "enroot-space",
        r"(pyxis|enroot|mksquashfs|unsquashfs|Write failed because|FATAL ERROR).{0,200}?No space left on device"
        r"|No space left on device.{0,200}?(enroot|pyxis|squashfs)",
        "The image is unpacked, or packed as a squashfs, in a folder that is too small: often a tmpfs "
        "(/run/pyxis, /run/user, /tmp), "
        "that is memory.",
        "srun --container-image=./pyg.sqsh    made once by ./build.py convert REF --to sqsh; the administrator: "
        "runtime_path of pyxis, "
        "ENROOT_DATA_PATH, ENROOT_CACHE_PATH and ENROOT_TEMP_PATH on a disk",
        "pyxis #41, #53; enroot #39, #83, #187",
    ),
    Pattern(
        "enroot-compression",
        r"Filesystem uses (?P<kind>\w{1,20}) compression, this is unsupported by this version",
        "The node's unsquashfs is older than the file, or built without {kind}: zstd is read from squashfs-tools 4.4 "
        "(2019) on.",
        "./build.py convert REF --to sqsh --compression gzip    (of a SIF: --to sif); the administrator: newer "
        "squashfs-tools",
        "squashfs-tools 4.5.1, unsquashfs; seen here",
    ),
    Pattern(
        "enroot-basic",
        r"Authenticating with user: <anonymous>"
        r"(?![\s\S]{0,4000}?(Authentication succeeded|Fetching image manifest|returned error code|curl: \(\d))",
        "The registry wants a user and a password (basic authentication), and enroot has none for it: the import ends "
        "without a word.",
        "echo 'machine HOST login USER password TOKEN' >> ~/.config/enroot/.credentials    (HOST without its port); "
        "chmod 600 ~/.config/enroot/.credentials",
        "enroot 4.1.2, docker::_authenticate; seen with docker-registry 2.8",
    ),
    Pattern(
        "pyxis-name",
        r'a container with name "(?P<name>pyxis_[^"]{1,200})" does not exist, and --container-image is not set',
        "Nothing stands under {name} on this node: it was removed, made on other nodes or by another user, or by "
        "another job where the site has container_scope=job.",
        "srun --ntasks-per-node=1 --container-image=IMAGE --container-name=NAME true    in this job, on all its nodes",
        "pyxis 0.24, pyxis_slurmstepd.c",
    ),
    Pattern(
        "pyxis-workdir",
        r"pyxis: couldn't chdir to (container cwd )?(?P<folder>[^\n]{1,300}?): ",
        "{folder} is not there in the container, or closed to you: pyxis brings no folder of the host in by itself.",
        'srun --container-mounts="$PWD" --container-workdir="$PWD" …',
        "pyxis 0.24, pyxis_slurmstepd.c",
    ),
    Pattern(
        "pyxis-no-file",
        r"\[ERROR\] No such file or directory: (?P<path>/[^\n]{0,300}\.(sqsh|squashfs|sqfs))\b",
        "{path} is not there on the node: a relative path counts from where srun was typed, and the folder has to be "
        "one that all nodes share.",
        "srun ls -l PATH; realpath pyg.sqsh",
        "enroot 4.1.2, runtime::create",
    ),
    Pattern(
        "pyxis-hub",
        r"Could not resolve host: registry-1\.docker\.io",
        "enroot looked for the image on Docker Hub, which this node does not reach: a file's path begins with `.` or "
        "`/`, and a registry's name ends with `#`.",
        "srun --container-image=./pyg.sqsh; srun --container-image='registry.example.com#team/pyg:tag'",
        "seen with pyxis 0.24",
    ),
    Pattern(
        "pyxis-hash",
        r"registry-1\.docker\.io/v2/(?P<host>[\w-]+\.[\w.-]+(?::\d+)?)/\S{0,200} returned error code",
        "pyxis took the registry {host} for a folder of Docker Hub: between registry and image it wants a `#`.",
        "srun --container-image='{host}#team/image:tag'",
        "pyxis #39, enroot #8",
    ),
    Pattern(
        "pyxis-path",
        r"registry-1\.docker\.io/v2/\S{0,200}\.sqsh\S{0,200} returned error code|library/\S{1,200}\.sqsh",
        "pyxis took the file for an image on Docker Hub: a path has to begin with `.` or `/`.",
        "srun --container-image=./pyg.sqsh",
        "pyxis #127",
    ),
    Pattern(
        "apptainer-401",
        r"While (making image from|performing build|pulling)[^\n]{0,600}?(unauthorized|authentication required"
        r"|requested access to the resource is denied|status code from registry 40[13])",
        "The registry refuses Apptainer: it is not logged in there, or the image's name is wrong (a registry says the "
        "same of both).",
        "apptainer registry login --username USER docker://HOST    (before 1.3 and in Singularity 3: remote login); or "
        "APPTAINER_DOCKER_USERNAME=… APPTAINER_DOCKER_PASSWORD=…    (SINGULARITY_… for Singularity)",
        "apptainer #2230, cuda-quantum #1643",
    ),
    Pattern(
        "enroot-401",
        r"URL (?P<url>\S{1,200}) returned error code: 40[13]|401 Unauthorized|unauthorized: authentication required",
        "The registry refuses: no credentials, old ones, or two entries for one machine in "
        "~/.config/enroot/.credentials.",
        "one line `machine HOST login USER password TOKEN` for each host (NGC: nvcr.io and authn.nvidia.com); "
        "rm -r ~/.cache/enroot/.tokens-*",
        "enroot #161, #241, #14; pyxis #71",
    ),
    Pattern(
        "enroot-404",
        r"URL (?P<url>\S{1,200}/manifests/\S{1,200}) returned error code: 404",
        "The registry has no such tag, or does not give enroot an OCI manifest (docker-registry 2.8).",
        "skopeo copy --format v2s2 oci:… docker://…; skopeo inspect docker://…",
        "seen with enroot 4.1.2 and docker-registry 2.8",
    ),
    Pattern(
        "enroot-hook",
        r"nvidia-container-cli: (?P<what>(ldcache|mount|container|initialization|detection|permission) "
        r"error[^\n]{0,200})",
        "NVIDIA's container tools could not put the driver in: {what}",
        "nvidia-container-cli -k -d /dev/stderr info    on the node; a version that fits the driver; "
        "NVIDIA_VISIBLE_DEVICES=void without GPUs",
        "enroot #111, #128, #234; libnvidia-container #313",
    ),
    Pattern(
        "enroot-hook-failed",
        r"\[ERROR\] (?P<hook>/\S{0,200}hooks\.d/(?P<name>\S{1,200})) exited with return code (?P<code>\d+)",
        "enroot's hook {name} failed, and with it the start. The line above says why.",
        "bash -x {hook}    on the node; an /etc of the image that can be written (./build.py check REF "
        "--runtime pyxis)",
        "enroot #39, pyxis #101",
    ),
    Pattern(
        "pyxis-absent",
        r"unrecognized option '--container-(image|mounts|workdir|name)",
        "This Slurm has no pyxis (or slurm.conf's plugstack.conf does not name it).",
        "srun --help | grep container-image; ./build.py job REF --runtime singularity …",
        "getopt's words in a Slurm without pyxis",
    ),
    Pattern(
        "plugstack",
        r"(spank|plugstack|Failed to load plugin|required plugin).{0,200}?(spank_pyxis\.so|plugstack\.conf)",
        "Slurm could not load pyxis, or pyxis could not start the container: where the log of enroot is printed "
        "above, that is the cause.",
        "the lines with `pyxis:` above; a pyxis that was built for this very Slurm",
        "pyxis #101, #78",
    ),
    # Apptainer and Singularity
    Pattern(
        "apptainer-namespaces",
        r"Failed to create (user namespace|container process)|[Uu]ser namespace not supported|user namespaces? "
        r"(is|are) (not|disabled)"
        r"|requires unprivileged user namespaces|newuidmap was not found|apptainer-suid",
        "Apptainer is there without its set-uid part, and the kernel gives users no namespaces (or AppArmor of "
        "Ubuntu 24.04 does not).",
        "as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000 "
        "kernel.apparmor_restrict_unprivileged_userns=0; or "
        "install apptainer-suid",
        "apptainer #2370, #1582; megSAP #538",
    ),
    Pattern(
        "apptainer-fakeroot",
        r"could not use fakeroot|no mapping entry found in /etc/sub[ug]id|not listed in /etc/sub[ug]id",
        "--fakeroot wants ranges of subordinate ids for you.",
        "as root: usermod --add-subuids 200000-265535 --add-subgids 200000-265535 $USER; or convert without any: "
        "./build.py convert REF --to sif",
        "apptainer #1863",
    ),
    Pattern(
        "apptainer-squashfuse",
        r"squashfuse(_ll)? not found|Converting SIF file to temporary sandbox|gocryptfs not found",
        "Without set-uid a SIF is mounted by squashfuse; that is missing, so the whole image is unpacked at "
        "each start.",
        "as root: apt-get install squashfuse; ls -l /dev/fuse; APPTAINER_TMPDIR=/scratch/$USER until then",
        "apptainer #592, #737, #760",
    ),
    Pattern(
        "apptainer-squashfs",
        r"(unknown|unsupported|not supported).{0,40}compress|Filesystem uses \"?\w+\"? compression|squashfs "
        r"image.{0,200}?(xz|zstd|lzo)"
        r"|kernel reported a bad superblock for squashfs",
        "The kernel cannot mount this squashfs: zstd from 4.14 on, el7's 3.10 gzip alone.",
        "make sif CUDA=…    without KERNEL=: gzip",
        "Linux 4.14 fs/squashfs/Kconfig; Singularity on CentOS 7",
    ),
    Pattern(
        "apptainer-open",
        r"could not open image (?P<file>\S{1,200}?): (?P<why>[^\n]{1,200})|image format not recognized",
        "The file is not there, is closed to you, or is no SIF (a transfer that was cut short, a .sqsh of enroot).",
        "ls -l FILE; file FILE; apptainer sif list FILE; sha256sum on both sides",
        "seen here",
    ),
    Pattern(
        "apptainer-loop",
        r"failed to find loop device|could not attach image file to loop device|[Nn]o (more available )?loop devices",
        "A SIF is mounted by a loop device, and none can be had: all are in use (max loop devices in the "
        "configuration), or this is a container without /dev/loop*.",
        "losetup -a; as root: modprobe loop max_loop=256; shared loop devices = yes in apptainer.conf or "
        "singularity.conf; without any: apptainer exec --userns, or a folder: ./build.py convert REF --to rootfs",
        "sylabs/singularity #67, #2144; apptainer #344, #321",
    ),
    Pattern(
        "apptainer-bind",
        r"mount \S{1,200}->\S{1,200} error(?!: while mounting image)"
        r"|destination \S{1,200} doesn't exist in container|no such file or "
        r"directory.{0,200}?(bind|mount)|Skipping mount",
        "A folder that is bound has no place in the image, and none can be made there (no overlay or underlay).",
        "--bind /data:/mnt; enable underlay = yes in apptainer.conf",
        "apptainer #760, #2492",
    ),
    Pattern(
        "apptainer-nv",
        r"[Cc]ould not find any nv (files|libraries) on this host",
        "--nv found no driver: a login node without GPUs, or ldconfig does not know the driver's libraries.",
        "srun --gres=gpu:1 … on a node with GPUs; as root: ldconfig; /sbin in PATH",
        "apptainer/singularity #6356; sylabs/singularity #2805",
    ),
    Pattern(
        "kernel-too-old",
        r"FATAL: kernel too old",
        "The image's C library needs a newer kernel than the host has: an image of a new distribution on an "
        "old system.",
        "uname -r; ./build.py check REF --kernel VERSION; an image on an older base (Debian bullseye)",
        "glibc's start-up code",
    ),
    # Docker, registries and Kubernetes
    Pattern(
        "registry-unknown",
        r"manifest unknown|manifest for \S{1,200} not found|repository does not exist or may require",
        "The registry has no such image or tag, or does not show it to you.",
        "skopeo list-tags docker://REGISTRY/TEAM/IMAGE; docker login REGISTRY; check the name letter by letter",
        "OCI distribution specification (MANIFEST_UNKNOWN)",
    ),
    Pattern(
        "max-depth",
        r"max depth exceeded",
        "The image has more layers than Docker takes (125).",
        "./build.py check REF    counts them; squash it, or build it with fewer RUN lines",
        "docker/for-linux #414, moby/buildkit #3067",
    ),
    Pattern(
        "docker-gpu",
        r"could not select device driver \"?(nvidia)?\"? ?with capabilities: \[\[gpu\]\]|unknown or invalid "
        r"runtime name: nvidia",
        "Docker has no NVIDIA container toolkit (or is the snap, which cannot use it).",
        "as root: apt-get install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker; "
        "systemctl restart docker",
        "nvidia-docker #1352, #1642",
    ),
    Pattern(
        "docker-daemon",
        r"Cannot connect to the Docker daemon",
        "No Docker daemon runs here, or DOCKER_HOST names another.",
        "as root: systemctl start docker; unset DOCKER_HOST; without Docker: ./build.py run REF -- …",
        "seen here",
    ),
    Pattern(
        "docker-permission",
        r"permission denied while trying to connect to the Docker",
        "The daemon's socket is for root and the group docker.",
        "as root: usermod -aG docker $USER, then log in anew; or podman",
        "Docker's post-installation steps",
    ),
    Pattern(
        "docker-clone3",
        r"can't start new thread|pthread_create failed.{0,200}?(EPERM|Operation not permitted)|pthread_create failed: "
        r"Resource temporarily",
        "Threads cannot be started: Docker before 20.10.10 forbids clone3, which glibc 2.34 and newer use; or "
        "the limit of processes is reached.",
        "docker version; docker run --security-opt seccomp=unconfined …; ulimit -u; --pids-limit",
        "moby #42680",
    ),
    Pattern(
        "kubernetes-gpu",
        r"Insufficient nvidia\.com/gpu|UnexpectedAdmissionError.{0,200}?nvidia",
        "No node of the cluster has a free GPU of the kind that the pod asks for.",
        "kubectl describe node | grep nvidia.com/gpu; in PAI another instance type",
        "Kubernetes' documentation on scheduling GPUs",
    ),
    # Slurm
    Pattern(
        "slurm-oom",
        r"[Dd]etected \d+ oom[-_]kill|Out Of Memory|OUT_OF_MEMORY|oom-kill",
        "The job used more memory than it asked for, and the kernel ended it.",
        "sbatch --mem=64G    (or --mem-per-gpu); fewer DataLoader workers; sacct -j JOB -o MaxRSS,ReqMem",
        "nextflow #5932, ArjunaUsers #52",
    ),
    Pattern(
        "slurm-node-configuration",
        r"Requested node configuration is not available|Invalid generic resource \(gres\) specification",
        "No node of that partition has what the job asks for: GPUs, cores or memory of one node.",
        "sinfo -o '%P %D %c %m %G'; srun -p PARTITION --gres=gpu:1",
        "Slurm's documentation",
    ),
    Pattern(
        "slurm-partition",
        r"invalid partition specified|Invalid account or account/partition combination",
        "There is no such partition, or your account may not use it.",
        "sinfo -s; sacctmgr show assoc user=$USER format=account,partition,qos",
        "Slurm's documentation",
    ),
    Pattern(
        "slurm-time",
        r"CANCELLED AT \S{1,200} DUE TO TIME LIMIT|PartitionTimeLimit",
        "The job took longer than its --time, or asks for longer than the partition gives.",
        "sbatch --time=…; scontrol show partition; write checkpoints (dna.py --checkpoint)",
        "Slurm's documentation",
    ),
    Pattern(
        "slurm-connect",
        r"Unable to contact slurm controller|Could not establish a configuration source|slurm_load_\w+ "
        r"error|Unable to allocate resources: "
        r"(Socket|Zero|Unable to contact)",
        "slurmctld does not answer, or this machine has another slurm.conf.",
        "scontrol ping; echo $SLURM_CONF",
        "seen here",
    ),
)



# known_training: Errors of programs that run: memory, processes that do not find each other, files, the most telling first.

TRAINING_PATTERNS = (
    Pattern(
        "shm",
        r"insufficient shared memory|out of shared memory|[Bb]us error|SIGBUS|unable to "
        r"(allocate|mmap|open|write) (shared|.{0,200}?/torch_)",
        "/dev/shm is full: Docker gives 64 MB. Workers of DataLoaders and GLT hand their batches over there.",
        "docker run --shm-size=8g …    (or --ipc=host); PAI: shared memory in the job's settings; df -h "
        "/dev/shm; num_workers=0 to prove it",
        "GLT's FAQ; mmsegmentation #1356, LUPerson #20",
    ),
    Pattern(
        "too-many-files",
        r"Too many open files|received 0 items of ancdata",
        "Each tensor that a worker sends takes an open file, and the limit is small.",
        "ulimit -n 65536; torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch's documentation on multiprocessing",
    ),
    Pattern(
        "address-in-use",
        r"Address already in use|EADDRINUSE|errno: 98",
        "The port of MASTER_PORT is taken: by another job on this node, or by a process of yours that did not end.",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)); torchrun --standalone; ss -ltnp | grep PORT",
        "seen here",
    ),
    Pattern(
        "rendezvous",
        r"The client socket has (timed out|failed to connect)|Timed out after \d+ seconds waiting for "
        r"clients|RendezvousConnectionError"
        r"|RendezvousTimeoutError|DistStoreError|connect\(\) timed out",
        "The ranks do not reach the first one: MASTER_ADDR or MASTER_PORT is wrong, a firewall closes the port, "
        "or fewer processes came than "
        "WORLD_SIZE says (in PAI DLC it is the number of nodes, not of processes).",
        "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK    in every process; MASTER_ADDR=$(scontrol show "
        "hostnames $SLURM_JOB_NODELIST | head -1)",
        "seen here; pytorch's c10d store",
    ),
    Pattern(
        "ranks-missing",
        r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set"
        r"|KeyError: '(?P<key>RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)'",
        "Nobody told the processes all of it. torchrun does. Under pyxis RANK and LOCAL_RANK are there where the image "
        "has PYTORCH_VERSION, the others where the site has enroot's hook 50-slurm-pytorch.sh too.",
        "torchrun --nproc-per-node=…; ./build.py job REF --runtime … --per-gpu    sets all; under pyxis "
        "PYTORCH_VERSION in the image",
        "seen here; pyxis 0.24, pytorch_setup; enroot's hook 50-slurm-pytorch.sh",
    ),
    Pattern(
        "connection",
        r"Connection (closed|reset) by peer|Connection refused|Broken pipe.{0,200}?(TCPStore|gloo)|Socket closed",
        "The other process is gone, or nobody listens there: another rank failed first.",
        "the log of the rank that failed first (`srun --label`); MASTER_ADDR and MASTER_PORT alike everywhere",
        "seen here; sglang #3226",
    ),
    Pattern(
        "gloo",
        r"[Gg]loo connectFullMesh failed|connectFullMesh|gloo/transport/tcp",
        "The processes do not reach each other by the address that gloo chose: the host's name leads to "
        "127.0.1.1 or to a closed network.",
        "export GLOO_SOCKET_IFNAME=…    (a name of `ip -brief address` that all nodes share); getent hosts $(hostname)",
        "sglang #3226, pytorch #68726",
    ),
    Pattern(
        "rpc",
        r"RPC ran for more than|tensorpipe.{0,200}?(timed? ?out|ETIMEDOUT|ECONN|eof)|In ProcessGroupAgent",
        "A process of GLT or torch.distributed.rpc does not answer: it failed, its port is closed, or it still "
        "loads its partition.",
        "the log of every process; TP_SOCKET_IFNAME=…; a larger rpc_timeout",
        "seen with GLT's distributed loader",
    ),
    Pattern(
        "name-resolution",
        r"Name or service not known|Temporary failure in name resolution|gaierror|nodename nor servname",
        "A host's name has no address here: no network in the job, or MASTER_ADDR is a name that this node does "
        "not know.",
        "getent hosts NAME; MASTER_ADDR=$(hostname -i)    of the first node; data: fetch it on the login node before",
        "seen here",
    ),
    Pattern(
        "worker-killed",
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) (is killed by signal: Killed|exited unexpectedly)",
        "A worker was ended from outside: memory (the cgroup's limit), or it crashed.",
        "num_workers=0 shows its true error; sbatch --mem=…; docker run --memory …",
        "torch's documentation on DataLoader",
    ),
    Pattern(
        "killed",
        r"^[ \t]*Killed[ \t\r]*$|\bexit(ed)?( with)?( exit)?( code)?:? 137\b|signal 9|SIGKILL|-9\) local_rank"
        r"|exitcode *: -9",
        "The kernel ended the process: memory is over. Or somebody did (a time limit, scancel).",
        "sbatch --mem=…; docker run --memory …; dmesg | grep -i oom; fewer workers",
        "seen here",
    ),
    Pattern(
        "out-of-memory",
        r"Cannot allocate memory|DefaultCPUAllocator: (not enough|can't allocate) "
        r"memory|\bMemoryError\b|std::bad_alloc",
        "The machine, or the job's share of it, has no memory left.",
        "free -g; sbatch --mem=…; float16 features; a memory-mapped dataset",
        "seen here",
    ),
    Pattern(
        "disk-full",
        r"No space left on device|Disk quota exceeded|Errno 28|Errno 122",
        "A disk is full, or your quota is: often $HOME by caches, or /tmp.",
        "df -h . /tmp $HOME; quota -s; du -sh ~/.cache ~/.apptainer; APPTAINER_CACHEDIR, TMPDIR and "
        "GRAPHCRATE_CACHE on /scratch",
        "seen here; enroot #187",
    ),
    Pattern(
        "segfault",
        r"Segmentation fault|SIGSEGV|signal 11|exitcode *: -11|exited? (with )?(exit )?code 139",
        "A library crashed: mostly an extension that does not fit torch, or two OpenMP or CUDA libraries in one "
        "process.",
        "python -X faulthandler PROGRAM    shows where; doctor --imports; unset LD_LIBRARY_PATH PYTHONPATH",
        "PyG #9636",
    ),
    Pattern(
        "pyg-needs",
        r"\brequires (either "
        r")?'?(?P<name>pyg-lib|torch-sparse|torch-scatter|torch-cluster|torch-spline-conv)'?",
        "PyG wants the extension {name}, which is not installed or could not be loaded.",
        "doctor    says which; make image …    compiles them from source; python -W error -c 'import torch_geometric'",
        "seen here (NeighborLoader without pyg-lib or torch-sparse)",
    ),
    Pattern(
        "weights-only",
        r"Weights only load failed|weights_only",
        "torch 2.6 and newer load tensors alone, and datasets that ogb or an older PyG saved have objects in them.",
        "a newer ogb and PyG; for files that you trust: torch.load(…, weights_only=False), "
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",
        "torch 2.6's release notes; ogb with torch 2.6",
    ),
    Pattern(
        "permission",
        r"Permission denied|EACCES|Errno 13",
        "In a container you are yourself, not root: folders of the image are closed to you, and files of root in "
        "your working folder too.",
        "ls -ld PATH; id; write below $HOME or /scratch; docker run --user $(id -u):$(id -g)",
        "seen here",
    ),
)



# container: Which container we are in, and what of the host leaks into it.

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


def container_of(place: Place) -> str:
    """`apptainer`, `docker`, `podman`, `enroot`, `kubernetes`, `graphcrate` (our sandbox), `image`; empty outside."""
    variables = place.environment
    if place.exists("/.singularity.d") or "APPTAINER_CONTAINER" in variables or "SINGULARITY_CONTAINER" in variables:
        return "apptainer"
    if place.exists("/run/.containerenv"):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in variables or place.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if place.exists("/.dockerenv"):
        return "docker"
    if place.exists("/etc/rc") and place.exists("/etc/environment") and _enroot_root(place):
        return "enroot"
    if place.exists(OURS):
        return "graphcrate" if place.host_name() == "graphcrate" else "image"
    return ""


def _enroot_root(place: Place) -> bool:
    """enroot writes these two files at import, and its containers have no /etc/fstab of a machine with disks."""
    return any(
        point.startswith("/etc/") or kind in ("fuse.squashfuse", "fuse.squashfuse_ll", "overlay", "fuse.fuse-overlayfs")
        for point, kind in mounts_of(place)
    )


def judge_container(place: Place, container: str, python: Interpreter) -> Iterator[Finding]:
    """What leaks in. Outside a container, what would leak into one."""
    variables = place.environment
    if container:
        yield ok("container", f"in a container: {NAMES.get(container, container)}")
    for finding in (
        *_user_site(place, python),
        *_python_path(place, python, container),
        *_working_folder(place, python),
        *_library_path(place),
        *_preload(place),
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
    if container and place.exists(IMAGE_PYTHON):
        for finding in _which_python(place, container):
            yield finding


def _which_python(place: Place, container: str) -> Iterator[Finding]:
    found = place.find("python") or ""
    if found.startswith("/opt/venv/"):
        yield ok("python", found)
        return
    why = "PATH has something before the image's /opt/venv/bin: packages of the image are not found"
    if container == "enroot":
        why = "a login shell has set PATH anew: packages of the image are not found"
    fix = "export PATH=/opt/venv/bin:$PATH    (or name /opt/venv/bin/python)"
    yield fail("python", "`python` is {}".format(found or "not found"), why, fix)


def names_in(place: Place, folder: str) -> Dict[str, str]:
    """Packages of a folder: name as imported → version where a distribution says so, else nothing."""
    found: Dict[str, str] = {}
    for entry in place.names(folder):
        info = re.match(r"([A-Za-z0-9_.]+?)-(\d[^-]*)(?:-.*)?\.(?:dist-info|egg-info)$", entry)
        if info:
            found[info.group(1).lower().replace("-", "_")] = info.group(2)
        elif re.match(r"[A-Za-z_]\w*$", entry) and entry not in ("__pycache__", "bin", "tests", "test", "examples"):
            found.setdefault(entry.lower(), "")
        elif re.match(r"[A-Za-z_]\w*\.(py|so|[\w-]+\.so)$", entry):
            found.setdefault(entry.split(".")[0].lower(), "")
    return found


def _own_packages(place: Place, python: Interpreter) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for folder in python.path:
        if folder.startswith(python.prefix) and folder.endswith(("site-packages", "dist-packages")):
            found.update(names_in(place, folder))
    return found


def _user_site(place: Place, python: Interpreter) -> Iterator[Finding]:
    if not python.user:
        return
    theirs = names_in(place, python.user)
    if not theirs:
        return
    seen = f"{python.user} has {len(theirs)} packages"
    if not python.user_on or python.user not in python.path:
        yield ok("user-site", seen + ", which Python leaves alone")
        return
    both = sorted(set(theirs) & set(_own_packages(place, python)))
    fix = "export PYTHONNOUSERSITE=1    (or python -s); singularity exec --no-home …"
    why = "Python takes what is there before its own packages: other versions than you think, `undefined symbol`"
    if both:
        versions = (f"{name} {theirs[name]}".strip() for name in both)
        yield fail("user-site", f"{python.user} shadows {listed(versions)}", why, fix)
    else:
        yield warn("user-site", seen + ": " + listed(sorted(theirs)), why, fix)


def _python_path(place: Place, python: Interpreter, container: str) -> Iterator[Finding]:
    value = place.environment.get("PYTHONPATH", "")
    if not value:
        return
    own = _own_packages(place, python)
    shadowed: List[str] = []
    for folder in value.split(os.pathsep):
        shadowed += [name for name in names_in(place, folder) if name in own and name not in shadowed]
    fix = "unset PYTHONPATH; singularity exec --cleanenv …; pyxis passes the host's on"
    if shadowed:
        why = "Python takes these before its own packages: `undefined symbol`, wrong versions"
        yield fail("python-path", f"PYTHONPATH={value} shadows {listed(sorted(shadowed))}", why, fix)
    elif container:
        yield warn("python-path", "PYTHONPATH=" + value, "what lies there comes before the image's packages", fix)
    else:
        yield note(
            "python-path",
            "PYTHONPATH=" + value,
            "it goes into containers too",
            "unset PYTHONPATH    before starting one",
        )


def _working_folder(place: Place, python: Interpreter) -> Iterator[Finding]:
    """Python looks where the program lies before all else, and that is mostly where one works."""
    folder = place.working_folder()
    if not folder or folder in python.path:
        return
    shadowed = sorted(set(names_in(place, folder)) & {*_own_packages(place, python), *STANDARD})
    if shadowed:
        why = "programs that lie there, and `python -c`, import these instead of the packages of that name"
        yield warn("working-folder", f"{folder} has {listed(shadowed)}", why, "rename them, or work in another folder")


def _library_path(place: Place) -> Iterator[Finding]:
    folders = [folder for folder in place.environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    rivals: Dict[str, List[str]] = {}
    stubs = [folder for folder in folders if folder.rstrip("/").endswith("/stubs")]
    for folder in folders:
        if folder.rstrip("/") in RUNTIMES_OWN:
            continue
        names = [name.split(".so")[0] for name in place.names(folder) if RIVALS.match(name)]
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


def _preload(place: Place) -> Iterator[Finding]:
    names = [name for name in re.split(r"[ :]+", place.environment.get("LD_PRELOAD", "")) if name]
    absent = [name for name in names if "/" in name and not place.exists(name)]
    if absent:
        why = "the host's LD_PRELOAD names what is not here: every program says `cannot be preloaded`"
        yield warn("preload", "LD_PRELOAD has " + listed(absent), why, "unset LD_PRELOAD")
    elif names:
        yield note(
            "preload", "LD_PRELOAD=" + listed(names), "it is loaded into every program, before torch's libraries"
        )



# enroot: enroot, pyxis and Slurm: what a job with `--container-image` will meet.

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


def judge_enroot(place: Place, has_gpu: bool) -> Iterator[Finding]:
    """Version, hooks, folders, credentials."""
    program = place.find("enroot")
    if program is None:
        yield note("enroot", "not installed here", "with Slurm it may be on the compute nodes alone")
        return
    done = place.run([program, "version"])
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
    for finding in _unsquashfs(place):
        yield finding
    hooks = place.names(FOLDER + "/hooks.d")
    for finding in _hooks(place, hooks, has_gpu):
        yield finding
    for finding in _folders(place):
        yield finding
    for finding in _credentials(place):
        yield finding


def _unsquashfs(place: Place) -> Iterator[Finding]:
    """enroot unpacks by it."""
    program = place.find("unsquashfs")
    done = place.run([program, "-version"]) if program else None
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


def _hooks(place: Place, hooks: List[str], has_gpu: bool) -> Iterator[Finding]:
    if not any(name.startswith("98-nvidia") for name in hooks):
        fix = f"as root: install NVIDIA's hook 98-nvidia.sh into {FOLDER}/hooks.d (package enroot+caps, or enroot)"
        told = fail if has_gpu else warn
        yield told("hook-nvidia", f"98-nvidia.sh is not in {FOLDER}/hooks.d", "containers get no GPU", fix)
    elif not has_gpu and _settings(place).get("NVIDIA_VISIBLE_DEVICES") == "void":
        yield ok("hook-nvidia", f"98-nvidia.sh, which {FOLDER}/enroot.conf tells to leave GPUs")
    elif not place.find("nvidia-container-cli"):
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
        fix = f"as root: cp /usr/share/enroot/hooks.d/50-slurm-pytorch.sh {FOLDER}/hooks.d/; or export them in the job"
        yield note("hook-pytorch", f"50-slurm-pytorch.sh is not in {FOLDER}/hooks.d", why, fix)
    else:
        yield ok("hook-pytorch", "50-slurm-pytorch.sh")


def _settings(place: Place) -> Dict[str, str]:
    """ENROOT_… and what hooks go by as configured: files in order, then the environment for what they leave open."""
    found: Dict[str, str] = {}
    files = [FOLDER + "/enroot.conf"]
    files += [
        FOLDER + "/enroot.conf.d/" + name for name in place.names(FOLDER + "/enroot.conf.d") if name.endswith(".conf")
    ]
    for name in files:
        for key, value in re.findall(
            r"^[ \t]*((?:ENROOT|NVIDIA|MELLANOX)_\w+)[ \t=]+(.*?)[ \t]*$", place.read(name) or "", re.MULTILINE
        ):
            found[key] = value.strip("\"'")
    for key in FOLDERS:
        if key not in found and place.environment.get(key):
            found[key] = place.environment[key]
    return found


def _expanded(place: Place, text: str) -> str:
    """With variables as a shell has them; empty where one is not known."""
    home = place.home()
    known = {
        "XDG_RUNTIME_DIR": f"/run/user/{place.uid}",
        "XDG_CACHE_HOME": home + "/.cache",
        "XDG_DATA_HOME": home + "/.local/share",
        "HOME": home,
        "USER": place.user(),
        "UID": str(place.uid),
        "EUID": str(place.uid),
        **{name: value for name, value in place.environment.items() if value},
    }
    text = re.sub(r"\$\(id -u\)", str(place.uid), text)
    text = re.sub(r"\$\((?:id -un|whoami)\)", place.user(), text)

    def fill(found: "re.Match[str]") -> str:
        name = found.group(1) or found.group(3)
        return known.get(name, found.group(2) or "$" + name)

    text = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)", fill, text)
    return "" if "$" in text or "`" in text else text


def _folders(place: Place) -> Iterator[Finding]:
    settings, mounts = {**FOLDERS, **_settings(place)}, mounts_of(place)
    told: List[str] = []
    for name in FOLDERS:
        folder = _expanded(place, settings[name])
        room = place.room(folder) if folder else None
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


def _credentials(place: Place) -> Iterator[Finding]:
    """Two entries for one registry end in 401. Passwords are not shown."""
    folder = place.environment.get("ENROOT_CONFIG_PATH") or place.home() + "/.config/enroot"
    for path in (folder + "/.credentials", place.home() + "/.netrc"):
        machines = re.findall(r"^\s*machine\s+(\S+)", place.read(path) or "", re.MULTILINE)
        twice = sorted({name for name in machines if machines.count(name) > 1})
        if twice:
            why = "enroot takes one of them: 401, or the wrong account (enroot #187, pyxis #40)"
            yield warn("credentials", f"{path} has {listed(twice)} twice", why, "keep one entry for each machine")


# Slurm


def judge_slurm(place: Place, has_gpu: bool) -> Iterator[Finding]:
    """Whether Slurm answers, has pyxis and GPUs, and what this job has of them."""
    srun = place.find("srun")
    if srun is None:
        yield note("slurm", "not installed here")
        return
    version = place.run([srun, "--version"])
    told = version.out.strip() if version and version.code == 0 else ""
    if not told:
        seen = "srun does not start: " + _line(version.err if version else "")
        yield warn("slurm", seen, "jobs cannot be submitted from here", "echo $SLURM_CONF; module load slurm")
        return
    sinfo = place.find("sinfo")
    answer = place.run([sinfo, "-h", "-o", "%P|%G|%a"]) if sinfo else None
    if answer is None or answer.code is None or answer.code:
        why = "slurmctld does not answer: " + (_line(answer.err) if answer and answer.code else "no word within 2 s")
        yield warn("slurm", told, why, "scontrol ping; another login node")
    else:
        rows = [line.split("|") for line in answer.out.splitlines() if line.count("|") == 2]
        with_gpus = sorted({row[0].rstrip("*") for row in rows if "gpu" in row[1]})
        seen = "{}, partitions with GPUs: {}".format(told, listed(with_gpus) or "none")
        yield ok("slurm", seen)
    for finding in _pyxis(place, srun):
        yield finding
    for finding in _job(place, has_gpu):
        yield finding


def _line(text: str) -> str:
    return (text.strip().splitlines() or ["no word"])[-1][:200]


def _pyxis(place: Place, srun: str) -> Iterator[Finding]:
    configured = {
        path: settings.split()
        for folder in ("/etc/slurm", "/etc/slurm-llnl", "/opt/slurm/etc")
        for path in (
            f"{folder}/plugstack.conf",
            *(f"{folder}/plugstack.conf.d/{name}" for name in place.names(folder + "/plugstack.conf.d")),
        )
        for settings in re.findall(r"^[^#\n]*spank_pyxis\.so(.*)$", place.read(path) or "", re.MULTILINE)
    }
    done = place.run([srun, "--help"])
    if done and "--container-image" in done.out + done.err:
        settings = [setting for each in configured.values() for setting in each]
        yield ok("pyxis", "srun has --container-image" + (": " + listed(settings) if settings else ""))
        if any(re.match(r"use_squashfuse=(1|true|yes|y)$", setting) for setting in settings):
            if not place.find("squashfuse"):
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


def _job(place: Place, has_gpu: bool) -> Iterator[Finding]:
    variables = place.environment
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



# singularity: Apptainer and Singularity: whether a plain user can start an image with them, and with GPUs.

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



# driver: GPUs and their driver, as the kernel and libcuda show them; nvidia-smi is not needed.

CUDA_LIMIT = 30.0  #: seconds for cuInit: 16 GPUs without persistence mode take that long
SLOW_START = 4.0
#: asked in a process of its own: libcuda may crash, hang, or be somebody else's
ASK_LIBCUDA = r"""
import ctypes, json, time
told = {"loaded": False, "error": "", "library": "", "code": None, "cuda": 0, "gpus": []}
def tell():
    print(json.dumps(told), flush=True)
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    told["error"] = str(error)
    tell()
    raise SystemExit
told["loaded"] = True
with open("/proc/self/maps") as maps:
    told["library"] = next((line.split(None, 5)[5].strip() for line in maps if "libcuda.so" in line), "")
start = time.time()
number = ctypes.c_int(0)
if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
    told["cuda"] = number.value
told["code"] = cuda.cuInit(0)
if told["code"] == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    for index in range(number.value):
        device, name, memory = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.c_size_t(0)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, 256, device)
        getattr(cuda, "cuDeviceTotalMem_v2", cuda.cuDeviceTotalMem)(ctypes.byref(memory), device)
        answers = []
        for attribute in (75, 76, 20, 32):  # capability, its minor, compute mode, ECC
            value = ctypes.c_int(0)
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            answers.append(value.value)
        told["gpus"].append([name.value.decode("utf-8", "replace"), memory.value] + answers)
told["seconds"] = round(time.time() - start, 2)
tell()
"""


class Gpu(NamedTuple):
    """A GPU as libcuda has it, or by its name alone. `mode` 3: one process only; 2: none."""

    name: str
    capability: str
    memory: int = 0
    mode: int = 0
    ecc: bool = False


class Nvidia(NamedTuple):
    """What there is of NVIDIA's. `code` is cuInit's answer; None: libcuda is not there, or did not get so far."""

    driver: str = ""
    devices: Tuple[str, ...] = ()
    models: Tuple[str, ...] = ()
    on_bus: int = 0
    loaded: bool = False
    library: str = ""
    error: str = ""
    code: Optional[int] = None
    cuda: str = ""
    gpus: Tuple[Gpu, ...] = ()
    seconds: float = 0.0

    @property
    def capabilities(self) -> Tuple[str, ...]:
        known = [gpu.capability for gpu in self.gpus] or [capability_of(model) for model in self.models]
        return tuple(sorted({capability for capability in known if capability}))

    @property
    def works(self) -> bool:
        return self.code == 0 and bool(self.gpus)


def look_at_driver(place: Place) -> Nvidia:
    """Gather; nothing is judged."""
    told = place.read("/proc/driver/nvidia/version") or ""
    module = re.search(r"^NVRM version:.*?\bModule(?: for \S+)?\s+(\d+(?:\.\d+)+)", told, re.MULTILINE)
    folder = "/proc/driver/nvidia/gpus"
    cards = [place.read(f"{folder}/{name}/information") or "" for name in place.names(folder)]
    models = tuple(
        found.group(1).strip() for found in (re.search(r"^Model:\s*(.+)$", card, re.M) for card in cards) if found
    )
    devices = tuple("/dev/" + name for name in place.names("/dev") if re.match(r"nvidia\d+$|dxg$", name))
    asked = _ask_libcuda(place)
    gpus = tuple(
        Gpu(name, f"{major}.{minor}", memory, mode, bool(ecc))
        for name, memory, major, minor, mode, ecc in asked.get("gpus", ())
    )
    return Nvidia(
        driver=module.group(1) if module else "",
        devices=devices,
        models=models,
        on_bus=_on_bus(place),
        loaded=bool(asked.get("loaded")),
        library=asked.get("library", ""),
        error=asked.get("error", ""),
        code=asked.get("code"),
        cuda=cuda_of(asked["cuda"]) if asked.get("cuda") else "",
        gpus=gpus,
        seconds=asked.get("seconds", 0.0),
    )


def _ask_libcuda(place: Place) -> Dict[str, Any]:
    done = place.run([place.python, "-I", "-S", "-c", ASK_LIBCUDA], limit=CUDA_LIMIT)
    if done is None:
        return {"error": "python could not be started to ask"}
    try:
        told = json.loads(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        told = {}
    if isinstance(told, dict) and told:
        return told
    if done.code is None:
        return {"loaded": True, "error": f"no answer within {CUDA_LIMIT:.0f} s"}
    how = f"signal {-done.code}" if done.code < 0 else (done.err.strip().splitlines() or ["no answer"])[-1]
    return {"loaded": True, "error": f"asking libcuda ended by {how}"}


def _on_bus(place: Place) -> int:
    """NVIDIA's GPUs on the PCI bus, with a driver or without."""
    folder = "/sys/bus/pci/devices"
    count = 0
    for name in place.names(folder):
        vendor = (place.read(f"{folder}/{name}/vendor") or "").strip()
        kind = (place.read(f"{folder}/{name}/class") or "").strip()
        count += vendor == "0x10de" and kind.startswith("0x03")
    return count


def judge_driver(place: Place, nvidia: Nvidia, container: str) -> Iterator[Finding]:
    """What there is, and what speaks against using it. `container`: the kind that we are in, or nothing."""
    if not (nvidia.driver or nvidia.devices or nvidia.on_bus):
        why = "nothing runs on a GPU here; a login node seldom has one"
        yield note("gpu", "no NVIDIA GPU and no driver", why, "srun --gres=gpu:1 python3 doctor.py    asks a GPU node")
        return
    if nvidia.on_bus and not nvidia.driver and not container:
        yield fail(
            "driver",
            f"{nvidia.on_bus} NVIDIA GPU(s) on the bus, and no driver loaded",
            "/proc/driver/nvidia/version is not there: the kernel's module is not installed, not built for this "
            "kernel, or nouveau has the GPU",
            "as root: modprobe nvidia; dmesg | grep -i nvidia",
        )
        return
    if nvidia.driver:
        known = nvidia.cuda or newest_cuda(nvidia.driver)
        yield ok("driver", "{}; the newest CUDA it knows is {}".format(nvidia.driver, known or "older than 9.0"))
        for finding in _variants(nvidia):
            yield finding
    for finding in _devices(place, nvidia, container):
        yield finding
    for finding in _library(place, nvidia, container):
        yield finding
    for finding in _gpus(nvidia):
        yield finding


def _variants(nvidia: Nvidia) -> Iterator[Finding]:
    running, out = in_words(fitting_variants(nvidia.driver, nvidia.capabilities))
    where = "" if nvidia.capabilities else " (the GPU's kind is not known)"
    if running:
        yield ok("variants", f"CUDA {running} run{where}")
        if out:
            yield note("variants-out", "do not run: CUDA " + out)
    else:
        yield fail(
            "variants",
            "no variant of graphcrate runs here: CUDA " + out,
            "the driver or the GPU is older than all of them",
            "update the driver to {} or newer".format(oldest_driver("11")),
        )


def _devices(place: Place, nvidia: Nvidia, container: str) -> Iterator[Finding]:
    if nvidia.devices:
        closed = [device for device in (*nvidia.devices, "/dev/nvidiactl", "/dev/nvidia-uvm") if place.exists(device)]
        closed = [device for device in closed if not place.may_write(device)]
        if closed:
            why = "their owner or mode shuts you out: CUDA says that there is no device"
            yield fail(
                "devices",
                f"{listed(closed)} closed to you",
                why,
                "ls -l /dev/nvidia*; id    then ask the administrator",
            )
        elif not place.exists("/dev/nvidia-uvm") and not place.exists("/dev/dxg"):
            why = "CUDA needs it from its first call on (cuInit answers 999)"
            fix = "on the host as root: nvidia-modprobe -u -c=0" + (
                "; then start the container anew" if container else ""
            )
            yield fail("devices", "/dev/nvidia-uvm is missing", why, fix)
        else:
            yield ok("devices", listed(nvidia.devices))
        return
    seen = f"the kernel has driver {nvidia.driver}, and there is no /dev/nvidia0"
    if container:
        yield fail("devices", seen, _why_no_device(place, container), fix_for_gpu(container))
    else:
        why = "the device nodes were not made, or this job may not see a GPU (cgroup of Slurm)"
        yield fail("devices", seen, why, "nvidia-modprobe -c=0    as root; in Slurm: srun --gres=gpu:1 …")


def _why_no_device(place: Place, container: str) -> str:
    visible = place.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is None and container in ("enroot", "docker", "kubernetes"):
        return "NVIDIA_VISIBLE_DEVICES is not set: the NVIDIA runtime and enroot's hook give such a container no GPU"
    if container == "enroot":
        return "the job asked for none; NVIDIA_VISIBLE_DEVICES inside is the image's, whatever value the job gave it"
    if visible in ("", "void", "none"):
        return f"NVIDIA_VISIBLE_DEVICES={visible}: no GPU was asked for"
    return "this container was started without GPUs"


def fix_for_gpu(container: str) -> str:
    """How each runtime is asked for GPUs."""
    return {
        "apptainer": "singularity exec --nv IMAGE …",
        "docker": "docker run --gpus all IMAGE …",
        "podman": "podman run --device nvidia.com/gpu=all IMAGE …    (after: nvidia-ctk cdi generate)",
        "enroot": "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility srun --gres=gpu:1 "
        "--container-image=…",
        "kubernetes": "ask for nvidia.com/gpu in the pod's limits; in PAI take a GPU instance",
    }.get(container, "start the container with the host's GPUs: --nv, --gpus all, or NVIDIA_VISIBLE_DEVICES=all")


def _library(place: Place, nvidia: Nvidia, container: str) -> Iterator[Finding]:
    """Whether libcuda is there, is the module's own, and starts."""
    if not nvidia.devices:
        return
    if not nvidia.loaded:
        capabilities = place.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
        if (
            container
            and nvidia.devices
            and not re.search(r"\b(compute|all)\b", capabilities)
            and container != "apptainer"
        ):
            told = "is " + capabilities if capabilities else "is not set, and enroot then takes `utility` alone"
            why = f"NVIDIA_DRIVER_CAPABILITIES {told}: libcuda comes with `compute`"
            yield fail("libcuda", "the GPU is there, libcuda is not", why, "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
        elif container:
            why = "the container has the device, and not the driver's library: " + nvidia.error
            yield fail("libcuda", "the GPU is there, libcuda is not", why, fix_for_gpu(container))
        else:
            why = "the driver's user-space part is missing or not in the linker's path: " + nvidia.error
            yield fail(
                "libcuda", "libcuda.so.1 is not to be found", why, "as root: ldconfig; or install the driver whole"
            )
        return
    version = re.search(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)*)", nvidia.library)
    if (
        nvidia.driver
        and version
        and numbers(version.group(1)) != numbers(nvidia.driver)
        and "compat" not in nvidia.library
    ):
        seen = f"{nvidia.library} beside module {nvidia.driver}"
        yield fail("libcuda", seen, *_fix_of(803))
        return
    if nvidia.code == 0:
        yield ok("libcuda", "{} starts".format(nvidia.library or "libcuda.so.1"))
    elif nvidia.code is None:
        yield fail("libcuda", nvidia.error, "libcuda does not start", "nvidia-smi; dmesg | grep -i -e nvrm -e xid")
    else:
        name = CODES.get(nvidia.code, (f"error {nvidia.code}", "", ""))[0]
        yield fail("libcuda", f"cuInit answers {nvidia.code} ({name})", *_fix_of(nvidia.code))
    if nvidia.seconds > SLOW_START:
        seen = f"CUDA took {nvidia.seconds:.0f} s to start"
        why = "the driver is loaded anew for every program unless persistence mode is on"
        yield warn("persistence", seen, why, "as root: nvidia-smi -pm 1")


def _fix_of(code: int) -> Tuple[str, str]:
    known = CODES.get(code)
    if known is None:
        return "not in the doctor's list", "look it up in cuda.h (CUresult); dmesg | grep -i nvrm"
    return known[1], known[2] or "nvidia-smi"


def _gpus(nvidia: Nvidia) -> Iterator[Finding]:
    if not nvidia.gpus:
        if nvidia.models and nvidia.devices:
            yield note("gpus", listed(nvidia.models))
        return
    kinds: Dict[str, int] = {}
    for gpu in nvidia.gpus:
        text = "{} (sm_{}, {})".format(gpu.name, gpu.capability.replace(".", ""), size(gpu.memory))
        kinds[text] = kinds.get(text, 0) + 1
    yield ok("gpus", listed(f"{count} x {text}" for text, count in kinds.items()))
    if any(gpu.mode == 2 for gpu in nvidia.gpus):
        yield fail("mode", "a GPU is in compute mode PROHIBITED", "no process may use it", "as root: nvidia-smi -c 0")
    elif any(gpu.mode == 3 for gpu in nvidia.gpus):
        yield note("mode", "a GPU is for one process at a time (EXCLUSIVE_PROCESS)")



# explain: Recognises pasted errors: each known one that is in a text, with what its own words add to cause and fix.

#: in order: what says most of the cause goes first
PATTERNS = RUNTIME_PATTERNS + GPU_PATTERNS + LIBRARY_PATTERNS + TRAINING_PATTERNS
LONGEST = 400000  #: characters of a log that are looked at: its first half and its last
#: said of many things: only where nothing else was recognised
VAGUE = (
    "permission",
    "segfault",
    "no-module",
    "connection",
    "killed",
    "enroot-hook-failed",
    "plugstack",
    "missing-library",
)
#: what a recognised error makes needless to say
CONTAINS = {
    "enroot-space": ("disk-full",),
    "nccl-shm": ("nccl-system", "shm"),
    "nccl-memlock": ("nccl-system", "out-of-memory"),
    "nccl-interface": ("nccl-system",),
    "nccl-duplicate": ("nccl-system",),
    "docker-clone3": ("out-of-memory",),
    "slurm-oom": ("killed", "out-of-memory"),
    "worker-killed": ("killed",),
    "glibc-nv": ("glibc",),
    "cuda-memory": ("out-of-memory",),
    "cudart": ("torch-library",),
    "glt-symbol": ("undefined-symbol",),
    "nvjitlink": ("undefined-symbol",),
    "mkl-ijit": ("undefined-symbol",),
    "python-symbol": ("undefined-symbol",),
    "no-driver": ("missing-library",),
    "gloo": ("connection", "rendezvous"),
    "pyxis-hub": ("name-resolution", "connection"),
    "pyxis-path": ("enroot-401", "enroot-404", "pyxis-hash"),
    "pyxis-hash": ("enroot-401", "enroot-404"),
    "apptainer-fakeroot": ("apptainer-namespaces",),
    "apptainer-squashfs": ("apptainer-bind",),
    "apptainer-loop": ("apptainer-bind", "permission"),
    "apptainer-401": ("enroot-401",),
    "nccl-remote": ("nccl-system", "connection"),
    "forward-compat": ("no-device",),
    "require-cuda": ("enroot-hook", "docker-gpu"),
}


class Answer(NamedTuple):
    """What is known of an error; `line` is where it was recognised."""

    id: str
    line: str
    cause: str
    fix: str
    source: str


def explain(text: str) -> List[Answer]:
    """The errors that a text holds, the most telling first; none that is the mere consequence of another."""
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]
    found: Dict[str, Answer] = {}
    for pattern in PATTERNS:
        match = re.search(pattern.sign, text, re.MULTILINE)
        if match:
            found[pattern.id] = _answer(pattern, match, text)
    needless = {each for name in found for each in CONTAINS.get(name, ())}
    kept = [answer for name, answer in found.items() if name not in needless]
    telling = [answer for answer in kept if answer.id not in VAGUE]
    return telling or kept


def _answer(pattern: Pattern, match: "re.Match[str]", text: str) -> Answer:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = " ".join(text[start : end if end >= 0 else None].split())
    words = _words(match, line)
    cause = _filled(pattern.cause, words)
    if "file" in pattern.cause and not match.groupdict().get("file"):
        cause = cause[:1].upper() + cause[1:]
    return Answer(pattern.id, line[:300], cause, _filled(pattern.fix, words), pattern.source)


def _filled(sentence: str, words: Dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda each: words.get(each.group(1), "it"), sentence).replace("  ", "  ").rstrip()


def _words(match: "re.Match[str]", line: str) -> Dict[str, str]:
    """The match's own groups, and what can be worked out of them and of the line."""
    words = {name: value for name, value in match.groupdict().items() if value}
    sm = words.get("sm", "")
    words["architecture"] = sm or "this GPU's architecture"
    words["capability"] = f"{sm[3:-1]}.{sm[-1]}" if sm else "…    (of your GPU)"
    words["gpu"] = (model_of(line.partition(" with CUDA capability")[0]) if sm else "").lower() or sm or "…"
    for version in ("ours", "theirs"):
        words.setdefault(version, "another version")
    words["file"] = "/".join(words.get("file", "the extension").rsplit("/", 2)[-2:])
    if "name" in words and "module" not in words:
        words["module"] = words["name"].replace("-", "_")
    symbol = words.get("symbol", "")
    if symbol:
        words["owner"] = owner_of(symbol) or "a library"
        words["abi"] = _about_strings(symbol)
        words["symbol"] = demangled(symbol)
        words["glt"] = "Releases: " + "; ".join(
            "{} for torch {}".format(version, " ".join(series)) for version, (series, _) in GLT_RELEASES.items()
        )
    found = words.get("found", "")
    if found.isdigit() and int(found) >= 1000:
        words["found"] = cuda_of(int(found))
        words["fitting"] = _fitting(words["found"])
    return words


def _about_strings(symbol: str) -> str:
    if has_new_strings(symbol):
        return (
            "It was built with the new C++ ABI (as wheels of torch are from 2.7 on, PyTorch's own conda and "
            "older wheels are not)."
        )
    if has_old_strings(symbol):
        return "It was built with the old C++ ABI (wheels of torch before 2.7); this torch may have the new one."
    return ""


def _fitting(known: str) -> str:
    """The newest CUDA of ours for a driver that knows `known`; minor versions of one major do, from CUDA 11 on."""
    fits = [
        cuda
        for cuda, _, _ in VARIANTS
        if numbers(cuda) <= numbers(known) or (oldest_driver(cuda) and cuda.split(".")[0] == known.split(".")[0])
    ]
    return max(fits, key=numbers) if fits else "cpu"



# stack: Python packages: do their versions go together, does each extension load, does torch see the GPU and why not.

IMPORT_LIMIT = 240.0  #: seconds for torch and all extensions; a cold network disk is slow
EXTENSIONS = ("torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv", "pyg_lib")
#: imported after torch, in this order
IMPORTED = (
    *EXTENSIONS,
    "torch_geometric",
    "graphlearn_torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "dgl",
    "numpy",
)
#: Imports torch once, then each package in a process of its own that begins where torch is there: a crash is an answer.
#: CUDA is asked last, for a process that has started it cannot be forked.
IMPORT_ALL = r"""
import json, os, signal, sys, traceback, warnings
def tell(**what):
    print("@doctor " + json.dumps(what), flush=True)
def short(error):
    return type(error).__name__ + ": " + str(error)
def trial(name):
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        heard = []
        warnings.showwarning = lambda message, *rest, **more: heard.append(str(message))
        warnings.simplefilter("always")
        answer = {"error": ""}
        try:
            __import__(name)
            if name == "torch_geometric":
                __import__("torch_geometric.nn")
        except BaseException as error:
            answer["error"] = short(error)
        answer["heard"] = [text for text in heard if "Disabling its usage" in text or "compiled using NumPy 1" in text]
        os.write(say, json.dumps(answer).encode())
        os._exit(0)
    os.close(say)
    with os.fdopen(said, "rb") as stream:
        told = stream.read()
    status = os.waitpid(child, 0)[1]
    answer = json.loads(told.decode()) if told else {}
    if os.WIFSIGNALED(status):
        answer["signal"] = signal.Signals(os.WTERMSIG(status)).name
    elif not told:
        answer["error"] = "ended with exit code %d" % (status >> 8)
    tell(name=name, **answer)
try:
    import torch
except BaseException as error:
    tell(name="torch", error=short(error))
    raise SystemExit
tell(name="torch", error="", version=torch.__version__, cuda=torch.version.cuda, file=torch.__file__,
     abi=bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", False)))
for each in sys.argv[1:]:
    trial(each)
told = {"available": False, "error": "", "count": 0, "archs": [], "gpus": []}
try:
    told["available"] = torch.cuda.is_available()
    told["archs"] = torch.cuda.get_arch_list()
    if not told["available"] and torch.version.cuda:
        torch.cuda.init()
    told["count"] = torch.cuda.device_count()
    for index in range(told["count"]):
        told["gpus"].append([torch.cuda.get_device_name(index), list(torch.cuda.get_device_capability(index))])
    if told["available"]:
        torch.ones(8, device="cuda").sum().item()
except BaseException as error:
    told["error"] = short(error)
tell(name="cuda", **told)
"""


def installed_in(place: Place, python: Interpreter) -> Dict[str, str]:
    """Distributions that Python would find, the first of each name: its version, or nothing where it has no record."""
    found: Dict[str, str] = {}
    for folder in python.path:
        for name, version in names_in(place, folder).items() if folder else ():
            if version or name not in found:
                found[name] = found.get(name) or version
    return found


def judge_versions(place: Place, installed: Dict[str, str]) -> Iterator[Finding]:
    """What distributions say of each other, without importing anything."""
    torch = installed.get("torch", "")
    if not torch:
        return
    own = [name for name in ("torch", *IMPORTED) if installed.get(name)]
    yield ok("packages", listed((f"{name} {installed[name]}" for name in own), 12))
    series = ".".join(str(part) for part in numbers(torch)[:2])
    for name in EXTENSIONS:
        built = re.search(r"\+pt(\d)(\d+)(cu\d+|cpu)$", installed.get(name, ""))  # PyG's own wheels: +pt113cu117
        if not built:
            continue
        for_torch, for_cuda = f"{built.group(1)}.{built.group(2)}", built.group(3)
        seen = f"{name} {installed[name]} beside torch {torch}"
        if for_torch != series:
            why = f'its symbols are of torch {for_torch}: `undefined symbol`, or PyG\'s "Disabling its usage"'
            fix = f"pip install --force-reinstall {name} -f the page of PyG for torch {torch}"
            yield fail("extension-version", seen, why, fix)
        elif "+" in torch and for_cuda != torch.split("+")[1]:
            why = f"it was built for {for_cuda}, torch for {torch.split('+')[1]}"
            yield fail("extension-version", seen, why, "a wheel of the same CUDA, from the page of PyG for it")
    yield from _glt(installed, torch, series)
    stated = place.environment.get("PYTORCH_VERSION")
    if stated and stated.split("+")[0] != torch.split("+")[0]:
        why = "another torch than the image's own is found first"
        yield warn(
            "pytorch-version",
            f"PYTORCH_VERSION={stated}, torch {torch}",
            why,
            "python -c 'import torch; print(torch.__file__)'",
        )


def _glt(installed: Dict[str, str], torch: str, series: str) -> Iterator[Finding]:
    version = installed.get("graphlearn_torch", "")
    fitting = [release for release, (fits, _) in GLT_RELEASES.items() if series in fits]
    if not version or version not in GLT_RELEASES:
        return
    seen = f"graphlearn-torch {version} beside torch {torch}"
    if series not in GLT_RELEASES[version][0]:
        why = f"it was compiled for torch {listed(GLT_RELEASES[version][0])}: `undefined symbol`"
        fix = (
            f"pip install graphlearn-torch=={max(fitting, key=numbers)}"
            if fitting
            else "torch 2.3: an image of the recipe `glt`"
        )
        yield fail("glt", seen, why, fix)
    elif "torch_sparse" not in installed:
        yield fail("glt", seen + ", and no torch_sparse", "it imports torch_sparse first", "pip install torch_sparse")
    else:
        yield ok("glt", seen)


def judge_imports(place: Place, installed: Dict[str, str], nvidia: Nvidia, container: str) -> Iterator[Finding]:
    """Import everything for real, and ask torch for the GPU."""
    wanted = [name for name in IMPORTED if name in installed]
    done = place.run([place.python, "-c", IMPORT_ALL, *wanted], limit=IMPORT_LIMIT)
    told = [json.loads(line[8:]) for line in (done.out if done else "").splitlines() if line.startswith("@doctor ")]
    whole = [answer["name"] for answer in told if answer["name"] != "cuda" and _went_well(answer)]
    if whole:
        yield ok("imports", f"can be imported: {listed(whole, len(whole))}")
    for answer in told:
        name = answer["name"]
        if name == "cuda":
            yield from judge_torch_gpu(place, answer, told[0], nvidia, container)
        elif not _went_well(answer):
            yield import_finding(name, answer, told[0])
    if done is None or done.code != 0 or not told:
        seen = "importing ended " + _how(done)
        why = "after {}".format(told[-1]["name"]) if told else "before torch was there"
        yield fail("import", seen, why, "python -X faulthandler -c 'import torch'    shows where")


def _how(done: Optional[Done]) -> str:
    if done is None:
        return "before it began: python cannot be started"
    if done.code is None:
        return f"by the time limit of {IMPORT_LIMIT:.0f} s"
    last = (done.err.strip().splitlines() or [""])[-1]
    return f"by signal {-done.code}" if done.code < 0 else f"with exit code {done.code}: {last}"


def _went_well(answer: Dict[str, Any]) -> bool:
    return not (answer.get("signal") or answer.get("error") or answer.get("heard"))


def import_finding(name: str, answer: Dict[str, Any], torch: Dict[str, Any]) -> Finding:
    """What became of an import that did not go well."""
    heard: List[str] = answer.get("heard") or []
    if answer.get("signal"):
        why = "its binary does not fit this torch, CUDA or processor, or is broken"
        fix = f"python -X faulthandler -c 'import torch, {name}'"
        return fail("import", "{} crashes ({})".format(name, answer["signal"]), why, fix)
    if answer.get("error"):
        seen = "{}: {}".format(name, " ".join(readable(answer["error"]).split()))
        return fail("import", seen[:600], *_import_reason(name, answer["error"], torch))
    text = " ".join(readable(" ".join(heard)).split())
    seen = f"{name} says: {text}"[:600]
    if "NumPy" in text:
        return fail("import", seen, "a package was built for NumPy 1", "pip install 'numpy<2'")
    return fail(
        "import", seen, "PyG goes on without it: slower, or a crash later", _import_reason(name, text, torch)[1]
    )


def _import_reason(name: str, error: str, torch: Dict[str, Any]) -> Tuple[str, str]:
    symbol = re.search(r"undefined symbol: ([\w.$@]+)", error)
    with_torch = "torch {}".format(torch.get("version", "")).strip()
    renew = "pip install --force-reinstall {} built for {} (CUDA {})".format(name, with_torch, torch.get("cuda"))
    if symbol:
        owner = owner_of(symbol.group(1)) or "a library"
        if has_old_strings(symbol.group(1)) or has_new_strings(symbol.group(1)):
            return f"it was built for a torch of another version or C++ ABI than {with_torch}", renew
        return f"it was built for another version of {owner} than there is", renew
    version = re.search(r"version `(\w+_[\d.]+)' not found \(required by ([^)]+)\)", error)
    if version:
        why = "{} was built on a newer system than this one".format(version.group(2).rsplit("/", 1)[-1])
        return why, f"an image with a newer base; or build {name} from source here"
    library = re.search(r"(lib[\w+.-]+\.so[\w.]*): cannot open shared object", error)
    if library:
        why = f"it was linked to {library.group(1)}, which is not here: a build for another CUDA"
        return why, renew
    if "No module named" in error:
        return "something that it imports is not installed", "pip install the module that is named"
    modules = "torch" if name == "torch" else f"torch, {name}"
    return "see `doctor --explain` with the whole message", f"python -c 'import {modules}'"


def judge_torch_gpu(
    place: Place, cuda: Dict[str, Any], torch: Dict[str, Any], nvidia: Nvidia, container: str
) -> Iterator[Finding]:
    """Whether torch works on the GPU; if not, the one cause of the many."""
    version, built = torch.get("version", ""), torch.get("cuda")
    there = bool(nvidia.devices or nvidia.on_bus or nvidia.driver)
    if cuda["available"] and not cuda["error"]:
        yield ok(
            "torch-gpu",
            "torch {} works on {} GPU(s): {}".format(version, cuda["count"], listed(gpu[0] for gpu in cuda["gpus"])),
        )
        return
    seen = f"torch {version} does not use the GPU"
    if not built:
        if there:
            why, fix = (
                "it is a build for the CPU",
                "an image for CUDA: make image CUDA=…; pip install torch from a CUDA index",
            )
            yield fail("torch-gpu", seen, why, fix)
        else:
            yield ok("torch-gpu", f"torch {version} is a build for the CPU, and there is no GPU")
        return
    if not there:
        why = "there is no GPU, or the container does not see it"
        yield note(
            "torch-gpu",
            f"torch {version} for CUDA {built} runs on the CPU here",
            why,
            fix_for_gpu(container) if container else "",
        )
        return
    yield fail("torch-gpu", seen, *why_torch_sees_none(place, cuda, built, nvidia, container))


def why_torch_sees_none(
    place: Place, cuda: Dict[str, Any], built: str, nvidia: Nvidia, container: str
) -> Tuple[str, str]:
    """(cause, fix), the first that holds."""
    if not nvidia.devices:
        return "there is no /dev/nvidia0 (see `devices`)", fix_for_gpu(container)
    visible = place.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU", "unset CUDA_VISIBLE_DEVICES; srun --gres=gpu:1"
    if not nvidia.loaded:
        return "libcuda is not there (see `libcuda`)", fix_for_gpu(container)
    oldest = oldest_driver(built)
    if nvidia.driver and oldest and numbers(nvidia.driver) < numbers(oldest):
        better = newest_fitting(nvidia.driver, nvidia.capabilities)
        fix = (
            f"an image for CUDA {better}: make image CUDA={better}; or driver {oldest}"
            if better
            else "driver " + oldest
        )
        return f"driver {nvidia.driver} is too old for CUDA {built}, which needs {oldest}", fix
    if nvidia.code not in (None, 0):
        return f"CUDA does not start: cuInit answers {nvidia.code} (see `libcuda`)", "nvidia-smi"
    archs, text = cuda.get("archs") or [], cuda.get("error", "")
    if "no kernel image" in text or any(_lacks(archs, gpu.capability) for gpu in nvidia.gpus):
        kinds = listed("sm_" + code.replace(".", "") for code in nvidia.capabilities)
        better = newest_fitting(nvidia.driver, nvidia.capabilities)
        fix = f"make image CUDA={better}" if better else f"a torch that was built for {kinds}"
        return f"this torch was built for {listed(archs, 12)}, and not for {kinds}", fix
    return text or "torch gives no reason", "doctor --explain 'the whole message'"


def _lacks(archs: List[str], capability: str) -> bool:
    """As examples/proof/stack.py has it: machine code of the same major version, or PTX of any older one."""
    wanted = numbers(capability)
    for name in archs:
        found = re.match(r"(sm|compute)_(\d+)(\d)([af]?)$", name)
        if found:
            code = (int(found.group(2)), int(found.group(3)))
            if code == wanted[:2] or (found.group(1) == "compute" and not found.group(4) and code <= wanted):
                return False
            if found.group(1) == "sm" and found.group(4) != "a" and code[0] == wanted[0] and code[1] <= wanted[1]:
                return False
    return bool(archs)



# survey: Looks everywhere at once and gathers the findings; nothing that goes wrong on the way ends it.

Judge = Callable[[], Iterable[Finding]]
Report = List[Tuple[str, List[Finding]]]


class Sight(NamedTuple):
    """What several areas go by."""

    container: str
    nvidia: Nvidia
    python: Interpreter
    installed: Dict[str, str]


def look(place: Place) -> Sight:
    """Gather what several areas need."""
    python = _interpreter(place)
    return Sight(container_of(place), look_at_driver(place), python, installed_in(place, python))


def _interpreter(place: Place) -> Interpreter:
    done = place.run([place.python, "-c", PROBE], limit=20.0)
    try:
        told = json.loads(done.out.strip().splitlines()[-1]) if done else {}
    except (ValueError, IndexError):
        told = {}
    return (
        Interpreter(**{**told, "path": tuple(told["path"])})
        if isinstance(told, dict) and "path" in told
        else Interpreter()
    )


def survey(place: Place, imports: Optional[bool] = None) -> Report:
    """Every area with its findings. `imports`: import torch and the extensions; by default where torch is installed."""
    alone: Tuple[Tuple[str, Judge], ...] = (
        ("machine", lambda: judge_machine(place)),
        ("network", lambda: judge_network(place)),
    )
    gathered: Dict[str, List[Finding]] = {}
    threads = _start(alone, gathered)
    sight = look(place)
    has_gpu = bool(sight.nvidia.devices)
    areas: List[Tuple[str, Judge]] = [
        ("GPU", lambda: judge_driver(place, sight.nvidia, sight.container)),
        ("storage", lambda: judge_storage(place, sight.container)),
        ("environment", lambda: judge_container(place, sight.container, sight.python)),
    ]
    runtimes: List[Tuple[str, Tuple[str, ...], Judge]] = [
        ("Apptainer", ("apptainer", "singularity"), lambda: judge_singularity(place)),
        ("enroot", ("enroot",), lambda: judge_enroot(place, has_gpu)),
        ("Slurm", ("srun",), lambda: judge_slurm(place, has_gpu)),
        ("Docker", ("docker", "podman", "nvidia-container-cli"), lambda: judge_docker(place, has_gpu)),
    ]
    # In a container those alone that are in it too: a workspace, a node of a cluster in Kubernetes.
    present = [(area, judge) for area, names, judge in runtimes if not sight.container or any(map(place.find, names))]
    if present:
        areas += [*present, ("users", lambda: judge_identities(place))]
    if "torch" in sight.installed or imports:
        areas.append(("torch", lambda: _torch(place, sight, imports is not False)))
    for thread in [*threads, *_start(areas, gathered)]:
        thread.join()
    order = [
        "GPU",
        "torch",
        "environment",
        "machine",
        "storage",
        "network",
        "Apptainer",
        "enroot",
        "Slurm",
        "Docker",
        "users",
    ]
    return [(area, gathered[area]) for area in order if gathered.get(area)]


def _torch(place: Place, sight: Sight, imports: bool) -> Iterator[Finding]:
    if "torch" not in sight.installed:
        yield note("packages", f"torch is not installed for {place.python}")
        return
    for finding in judge_versions(place, sight.installed):
        yield finding
    if imports:
        for finding in judge_imports(place, sight.installed, sight.nvidia, sight.container):
            yield finding


def _start(areas: Iterable[Tuple[str, Judge]], gathered: Dict[str, List[Finding]]) -> List[threading.Thread]:
    threads = [threading.Thread(target=_gather, args=(area, judge, gathered), daemon=True) for area, judge in areas]
    for thread in threads:
        thread.start()
    return threads


def _gather(area: str, judge: Judge, gathered: Dict[str, List[Finding]]) -> None:
    found = gathered.setdefault(area, [])
    try:
        found.extend(judge())
    except Exception as error:  # whatever a strange machine has in store: the other areas are told
        why = f"{type(error).__name__}: {error}"
        found.append(warn("doctor", "the doctor stumbled here", why, "please report it with `doctor --json`"))


def cannot_work(report: Report) -> int:
    """How many findings say so."""
    return sum(finding.status == FAIL for _, findings in report for finding in findings)



# page: The report for eyes.

COLOURS = {"ok": "32", "note": "36", "warn": "33", "fail": "31;1"}


def page_lines(report: Report, width: int, colour: bool) -> Iterator[str]:
    """A line for each finding, below it why and what to do."""
    for area, findings in report:
        yield area
        for finding in findings:
            status = finding.status
            mark = f"\033[{COLOURS[status]}m{status:4}\033[0m" if colour else f"{status:4}"
            body = folded(finding.seen, width - 8)
            yield f"  {mark}  {body[0]}"
            for line in body[1:]:
                yield " " * 8 + line
            for label, text in (("why:", finding.why), ("fix:", finding.fix)):
                for number, line in enumerate(folded(text, width - 13) if text else ()):
                    yield " " * 8 + "{:4} {}".format("" if number else label, line)
    yield summary(report)


def folded(text: str, width: int) -> List[str]:
    """Lines of at most `width`; a word that is longer stays whole, to be copied."""
    return textwrap.wrap(text, max(width, 40), break_long_words=False, break_on_hyphens=False) or [""]


def summary(report: Report) -> str:
    """The last line."""
    counts = {kind: sum(each.status == kind for _, found in report for each in found) for kind in (FAIL, WARN)}
    if not counts[FAIL] and not counts[WARN]:
        return "Nothing speaks against it."
    parts = []
    if counts[FAIL]:
        parts.append(f"{counts[FAIL]} cannot work")
    if counts[WARN]:
        parts.append(f"{counts[WARN]} to look at")
    return ", ".join(parts) + "."


def say(text: str) -> None:
    """A line on stdout, in whatever letters that can write; a closed pipe is no reason to fail."""
    try:
        print(text, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "replace").decode(), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python itself still writes at the end
        raise SystemExit(0) from None



# __main__: The command: `doctor`, `doctor --explain TEXT`; the exit code says whether something cannot work.

#: as in graphcrate.errors: HostError ("The machine lacks something"), UsageError
DONE, LACKING, UNKNOWN = 0, 7, 2
NOTHING_KNOWN = """\
The doctor knows {count} errors, and this is none of them. What helps to find it:
  - the first error of the output, not the last; of several processes that of the one which failed first
  - python -X faulthandler PROGRAM where it crashed; NCCL_DEBUG=WARN where processes wait for each other
Ask where you have graphcrate from (an issue in its repository), with three things: the command, the whole output, and
what `doctor --json` prints on the same node and in the same container. Look through it before you send it: it has names
of hosts, users and folders."""


def main(argv: Optional[List[str]] = None) -> int:
    """Look around, or explain; returns the exit code."""
    options = arguments(sys.argv[1:] if argv is None else argv)
    if options.explain is not None:
        # a log is of many programs and letters, whatever this machine's locale says
        text = sys.stdin.buffer.read().decode("utf-8", "replace") if options.explain == "-" else options.explain
        return explain_text(text, options.json)
    report = survey(Place(), options.imports)
    if options.json:
        say(json.dumps({"findings": [each.as_json(area) for area, found in report for each in found]}, indent=2))
    else:
        width = min(shutil.get_terminal_size((110, 24)).columns, 140)
        for line in page_lines(report, width, sys.stdout.isatty()):
            say(line)
    return LACKING if cannot_work(report) else DONE


def arguments(argv: List[str]) -> argparse.Namespace:
    """The command line; ends with code 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="doctor",
        description="Looks at this machine or container: what CUDA, torch and PyG will meet there, and what to "
        "do about it. "
        "Writes nothing. Exit code 0: nothing stands against it; 7: something cannot work; 2: wrong usage, or an "
        "error that is "
        "not known.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("--explain", metavar="TEXT", help="cause and fix of a pasted error; - reads it from stdin")
    imports = parser.add_mutually_exclusive_group()
    imports.add_argument(
        "--imports", action="store_true", default=None, help="import torch and the extensions (where there is a torch)"
    )
    imports.add_argument("--no-imports", dest="imports", action="store_false", help="import nothing: seconds less")
    return parser.parse_args(argv)


def explain_text(text: str, as_json: bool) -> int:
    """Print what is known of an error."""
    answers = explain(text)
    if as_json:
        say(json.dumps({"answers": [answer._asdict() for answer in answers]}, indent=2))
    elif not answers:
        say(NOTHING_KNOWN.format(count=len(PATTERNS)))
    else:
        say("\n\n".join("\n".join(answer_lines(answer)) for answer in answers))
    return DONE if answers else UNKNOWN


def answer_lines(answer: Answer) -> List[str]:
    """An answer for eyes."""
    rows = [("error:", answer.line), ("cause:", answer.cause), ("fix:", answer.fix), ("seen:", answer.source)]
    lines = []
    for label, text in rows:
        for number, line in enumerate(folded(text, 100)):
            lines.append("{:7}{}".format("" if number else label, line))
    return lines


if __name__ == "__main__":
    sys.exit(main())
