"""An image that keeps every contract, a host to run it on, and what of them to change for each verdict."""

import datetime

import msgspec

from graphcrate.model.contract import Below, CLibrary, FileFact, Host, ImageView, LayerFact, Settings, Verbs
from ocilayout import spec

GZIP = LayerFact(media_type=spec.LAYER_GZIP, size=1000)
ZSTD = LayerFact(media_type=spec.LAYER_ZSTD, size=1000)
DOCKER_ZSTD, FOREIGN = (
    LayerFact(media_type=f"application/vnd.docker.image.rootfs.{kind}", size=1000)
    for kind in ("diff.tar.zstd", "foreign.diff.tar.gzip")
)
FOLDER = FileFact(kind="folder", real="folder", mode=0o755)
FILE = FileFact(kind="file")
PROFILE = (
    'if [ "$(id -u)" -eq 0 ]; then\n  PATH="/usr/sbin:/usr/bin:/sbin:/bin"\nfi\nexport PATH\n. /etc/profile.d/*.sh\n'
)


def release(name, number="", **more):
    """An os-release as Debian has it; `more` is changed or added, and None takes a line out."""
    lines = {"PRETTY_NAME": f'"Debian GNU/Linux {number} ({name})"', "VERSION_ID": f'"{number}"', "ID": "debian"}
    lines = {**lines, "VERSION_CODENAME": name, **more}
    text = "".join(f"{key}={value}\n" for key, value in lines.items() if value is not None)
    return FileFact(kind="symlink", link="../usr/lib/os-release", text=text)


VERBS = Verbs(
    nccl=("/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",),
    needed=22,
    library="/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0",
    providers={"mlx5": "", "siw": ""},
)
FILES = {
    **dict.fromkeys(("/", "/etc", "/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/root", "/home"), FOLDER),
    "/etc/passwd": FileFact(kind="file", text="root:x:0:0::/root:/bin/sh\nworker:x:1000:1000::/:/bin/sh\n"),
    "/etc/group": FILE,
    "/etc/profile": FileFact(kind="file", text=PROFILE),
    "/etc/profile.d/image.sh": FileFact(kind="file", text="PATH=/opt/venv/bin:$PATH\n"),
    "/etc/localtime": FileFact(kind="symlink", link="/usr/share/zoneinfo/Etc/UTC", real=None),
    "/etc/os-release": release("bookworm", "12"),
    "/bin/sh": FileFact(kind="symlink", link="dash", mode=0o755),
    "/bin/bash": FileFact(kind="file", mode=0o755, size=1_000_000),
}
ENVIRONMENT = {
    "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONNOUSERSITE": "1",
    "PYTORCH_VERSION": "2.0.1",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NVIDIA_REQUIRE_CUDA": "cuda>=11.0",
}
SETTINGS = Settings(environment=tuple(f"{name}={value}" for name, value in ENVIRONMENT.items()), command=("/bin/bash",))
GOOD = ImageView(
    name="good",
    form="layout",
    settings=SETTINGS,
    manifest_type=spec.MANIFEST,
    layers=(GZIP, GZIP),
    files=FILES,
    programs={"sh": "/bin/sh", "python": "/opt/venv/bin/python"},
    verbs=VERBS,
    packages=("/opt/venv/lib/python3.11/site-packages",),
    distributions={"torch": "2.0.1", "jupyterlab": "4.0"},
    torch="2.0.1+cu118",
    cuda="11.8",
    c_library=CLibrary(name="glibc", version="2.36", kernel="3.2.0"),
    unpacked=4_000_000_000,
)
HOST = Host(
    gpus=("v100",),
    driver="535.54.03",
    kernel="5.10.0",
    glibc="2.31",
    shm=8 << 30,
    versions={"docker": "24.0.7", "pyxis": "4.1.2", "apptainer": "1.3"},
    today=datetime.date(2026, 11, 25),
)
UNREAD = ("2 of 3 layers were left on the registry",)


def env(**variables):
    """The environment with these variables changed; None takes one out."""
    merged = {**ENVIRONMENT, **variables}
    entries = tuple(f"{name}={value}" for name, value in merged.items() if value is not None)
    return {"settings": msgspec.structs.replace(SETTINGS, environment=entries)}


def configured(**changes):
    return {"settings": msgspec.structs.replace(SETTINGS, **changes)}


def files(**changes):
    """Files by path, where `__` stands for a slash, changed; None takes one out."""
    named = {f"/{name.replace('__', '/').replace('_dot_', '.')}": fact for name, fact in changes.items()}
    return {"files": {path: fact for path, fact in {**FILES, **named}.items() if fact is not None}}


def libraries(*paths):
    """Large files below /usr."""
    return {"files": {**FILES, **{f"/usr/{path}": FileFact(kind="file", size=500_000_000) for path in paths}}}


def script(text):
    """An entry point that is a script with this text."""
    return {**configured(entrypoint=("/entry",)), **files(entry=FileFact(kind="file", mode=0o755, text=text))}


def verbs(**changes):
    return {"verbs": msgspec.structs.replace(VERBS, **changes)}


WITHOUT_VERBS = verbs(library="", providers={})
BROKEN = "libibverbs.so.1.14.44.0 needs libnl-3.so.200, which nothing in the image has"
OTHER_ABI = "there is no libmlx5-rdmav34.so, but libmlx5-rdmav33.so, of another rdma-core"
SLINGSHOT = {"fabric": "slingshot", "plugin": "/opt/cray/ofi-nccl"}
PLUGIN = {"files": {**FILES, "/opt/site/libnccl-net.so": FILE}}
GLT = {"graphlearn-torch": "0.2.2", "torch-sparse": "0.6.17", "torch": "1.13.1"}
SITE = "/opt/venv/lib/python3.9/site-packages"
GLT_IMAGE = {"distributions": GLT, "torch": "1.13.1", "cuda": "11.7", "packages": (SITE,)}
OTHER_NVCC = configured(labels={"graphcrate.architectures": "6.0+PTX", "graphcrate.nvcc": "12.4.131"})
PTX_LABEL = configured(labels={"graphcrate.architectures": "6.0+PTX"})
SLIM = configured(labels={"graphcrate.slim": "7.0"})
CPU = {**env(NVIDIA_VISIBLE_DEVICES=None, NVIDIA_REQUIRE_CUDA=None), "cuda": "cpu", "torch": "2.0.1+cpu"}
PLAIN = {"cuda": "", "torch": "", "distributions": {}, "packages": (), "programs": {"sh": "/bin/sh"}}
MUNGES = FileFact(kind="file", text="pathmunge () {\n  PATH=$1:$PATH\n}\n")

OS_RELEASE, LTS_OF_BULLSEYE = "etc__os-release", datetime.date(2026, 8, 31)

#: check, status, what is changed of the image, and of the host; "?": it is unknown where not all layers were read
CASES = [
    ("entrypoint", "pass", script('#!/bin/sh\nset -e\nexec "$@"\n')),
    ("entrypoint", "pass", script("#!/bin/bash\nexport A=b\nexec gosu worker ${@}\n")),
    ("entrypoint", "pass", configured(entrypoint=("/usr/bin/tini", "--"))),
    ("entrypoint", "fail", script("#!/bin/sh\npython /app/main.py\n")),
    ("entrypoint", "fail", script("")),
    ("entrypoint", "unknown", script(None)),
    ("entrypoint", "fail?", configured(entrypoint=("/missing",))),
    ("entrypoint", "fail", configured(entrypoint=("/bin/sh", "-c", 'set -e\nexec "$@"'))),  # which takes it for $0
    ("entrypoint", "pass", configured(entrypoint=("/bin/sh", "-c", 'set -e\nexec "$@"', "sh"))),
    ("entrypoint", "warn", script('#!/bin/sh\nsetup\n"$@"\n')),
    ("command", "warn", configured(command=())),
    ("command", "pass", configured(command=("bash",))),
    ("command", "fail?", configured(command=("jupyter", "lab"))),
    ("command", "pass", configured(entrypoint=("/entry",), command=("--all",))),
    ("shell", "fail?", files(bin__sh=None)),
    ("shell", "fail", files(bin__sh=FileFact(kind="file", mode=0o644))),
    ("shell", "fail", files(bin__sh=FileFact(kind="symlink", link="gone", real=None))),
    ("user-known", "pass", configured(user="worker")),
    ("user-known", "pass", configured(user="1000:1000")),
    ("user-known", "fail?", configured(user="nobody-here")),
    ("ranks", "warn", env(MASTER_ADDR="localhost", RANK="0")),
    ("offline-start", "warn", configured(command=("sh", "-c", "pip install graphlearn-torch && python a.py"))),
    ("offline-start", "unknown", {**configured(entrypoint=("/start",)), "unread": UNREAD}),
    ("offline-start", "warn", {**script('#!/bin/sh\nwget http://example.org\nexec "$@"\n'), "unread": UNREAD}),
    ("offline-start", "pass", {**configured(command=()), "unread": UNREAD}),
    ("user-site", "warn", env(PYTHONNOUSERSITE=None)),
    ("user-site", "pass?", {**PLAIN, **env(PYTHONNOUSERSITE=None)}),
    ("python-path", "warn", env(PYTHONPATH="/app")),
    ("library-path", "fail", env(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs")),
    ("library-path", "warn", {**env(LD_LIBRARY_PATH="/opt/lib"), **files(opt__lib=FOLDER)}),
    ("library-path", "pass", env(LD_LIBRARY_PATH="/usr/local/nvidia/lib64")),
    ("platform", "fail", configured(platform="linux/riscv64")),
    ("platform", "pass", configured(platform="linux/arm64")),
    ("platform", "pass", configured(platform="linux/arm64"), {"gpus": ("GH200",)}),
    ("platform", "pass", configured(platform="linux/arm64"), {"gpus": ("sm_90",)}),
    ("platform", "fail", configured(platform="linux/arm64"), {"gpus": ("A100",)}),
    ("platform", "fail", {}, {"gpus": ("GB200",)}),
    ("platform", "unknown", configured(platform="")),
    ("layers", "fail", {"broken": "a layer has files below lib, which is not a folder"}),
    ("security-updates", "warn", files(**{OS_RELEASE: release("bullseye", "11")})),
    ("security-updates", "pass", files(**{OS_RELEASE: release("bullseye", "11")}), {"today": LTS_OF_BULLSEYE}),
    ("security-updates", "warn", files(**{OS_RELEASE: release(None, "10")})),  # by its number
    ("security-updates", "warn", {}, {"today": datetime.date(2028, 7, 1)}),
    ("security-updates", "pass", files(**{OS_RELEASE: None, "usr__lib__os-release": release("trixie", "13")})),
    ("security-updates", "unknown", files(**{OS_RELEASE: release("forky")})),
    ("security-updates", "unknown", files(**{OS_RELEASE: release("stretch", "9")})),
    ("security-updates", "unknown", files(**{OS_RELEASE: release("jammy", "22.04", ID="ubuntu", ID_LIKE="debian")})),
    ("security-updates", "unknown", files(**{OS_RELEASE: None})),
    ("security-updates", "unknown", {}, {"today": None}),
    ("hidden", "fail", {"packages": ("/root/miniconda3/lib/python3.10/site-packages",)}),
    ("hidden", "fail", env(PATH="/home/me/bin:/usr/bin:/bin")),
    ("hidden", "warn", {"hidden": {"/root": Below(files=2, example="/root/train.py")}}),
    ("mount-points", "fail", files(tmp=FileFact(kind="symlink", link="/scratch", real=None))),
    ("mount-points", "warn?", {**files(sys=None), "form": "sif"}),
    ("mount-points", "pass", {"form": "sif"}),
    ("devices", "warn", {"devices": ("/dev/vda (b 254:0)", "/dev/mem (c 1:1)")}),
    ("own-driver", "fail", libraries("lib/x86_64-linux-gnu/libcuda.so.470.1")),
    ("own-driver", "pass", libraries("local/cuda-11.8/compat/libcuda.so.520")),
    ("cuda-once", "warn", libraries("local/cuda/lib64/libcublasLt.so.11", "lib/dist-packages/a/libcublasLt.so.11")),
    ("cuda-once", "pass", libraries("local/cuda/lib64/libcublasLt.so.11")),
    ("size", "warn", {"unpacked": 25_000_000_000}),
    ("driver", "fail", {}, {"driver": "440.33"}),
    ("driver", "pass", {}, {"driver": "450.80.02"}),
    ("driver", "warn", libraries("local/cuda-11.8/compat/libcuda.so.1"), {"driver": "440.33"}),
    ("driver", "pass", CPU, {"driver": "440.33"}),
    ("driver", "unknown", {}, {"driver": ""}),
    ("driver", "unknown", {"cuda": "", "distributions": {}}),
    ("require-cuda", "warn", env(NVIDIA_REQUIRE_CUDA=None)),
    ("require-cuda", "unknown", {**env(NVIDIA_REQUIRE_CUDA=None), "cuda": ""}),
    ("require-cuda", "pass", env(NVIDIA_REQUIRE_CUDA="cuda>=12.4 brand=tesla,driver>=535,driver<536")),
    ("require-cuda", "fail", env(NVIDIA_REQUIRE_CUDA="cuda>=12.4")),
    ("require-cuda", "pass", env(NVIDIA_REQUIRE_CUDA="cuda>=12.4", NVIDIA_DISABLE_REQUIRE="1")),
    ("require-cuda", "unknown", {}, {"driver": ""}),
    ("gpu", "fail", {}, {"gpus": ("h100", "b200")}),
    ("gpu", "fail", CPU),
    ("gpu", "pass", CPU, {"gpus": ()}),
    ("gpu", "fail", configured(labels={"graphcrate.architectures": "8.0,9.0+PTX"})),
    ("gpu", "pass", configured(labels={"graphcrate.architectures": "6.0+PTX"})),
    ("gpu", "unknown", {}, {"gpus": ()}),
    ("gpu", "unknown", {"torch": "9.9.9"}),
    ("glt-fits", "pass", GLT_IMAGE),
    ("glt-fits", "fail", {**GLT_IMAGE, "distributions": {**GLT, "graphlearn-torch": "0.2.4"}}),
    ("glt-fits", "fail", {**GLT_IMAGE, "distributions": {"graphlearn-torch": "0.2.2"}}),
    ("glt-fits", "unknown", {**GLT_IMAGE, "torch": ""}),
    ("fabric", "pass", {}),
    ("fabric", "pass", {}, {"fabric": "infiniband"}),
    ("fabric", "pass", WITHOUT_VERBS, {"fabric": "ethernet"}),
    ("fabric", "pass", {**WITHOUT_VERBS, **CPU}, {"fabric": "infiniband"}),
    ("fabric", "pass", {**PLAIN, **WITHOUT_VERBS}, {"fabric": "infiniband"}),
    ("fabric", "warn", WITHOUT_VERBS),
    ("fabric", "fail", WITHOUT_VERBS, {"fabric": "infiniband"}),
    ("fabric", "unknown", {**WITHOUT_VERBS, "unread": UNREAD}, {"fabric": "infiniband"}),
    ("fabric", "fail", verbs(providers={}), {"fabric": "roce"}),  # nothing names it to libibverbs
    ("fabric", "warn", verbs(providers={})),
    ("fabric", "fail", verbs(fault=BROKEN, providers={"mlx5": BROKEN}), {"fabric": "infiniband"}),
    ("fabric", "warn", verbs(fault=BROKEN, providers={"mlx5": BROKEN})),
    ("fabric", "fail", verbs(absent=("ibv_open_device@IBVERBS_1.1",)), {"fabric": "infiniband"}),
    ("fabric", "warn", verbs(absent=("ibv_open_device@IBVERBS_1.1",))),
    ("fabric", "pass", verbs(lost={"relaxed ordering": ("ibv_reg_mr_iova2@IBVERBS_1.8",)}), {"fabric": "infiniband"}),
    ("fabric", "fail", verbs(providers={"mlx5": OTHER_ABI, "siw": ""}), {"fabric": "infiniband"}),
    ("fabric", "warn", verbs(providers={"mlx5": OTHER_ABI})),
    ("fabric", "pass", verbs(nccl=(), needed=0), {"fabric": "infiniband"}),
    ("fabric", "fail", {}, {"fabric": "erdma"}),
    ("fabric", "unknown", WITHOUT_VERBS, {"fabric": "slingshot"}),
    ("fabric", "pass", PLUGIN, {"fabric": "slingshot"}),
    ("fabric", "fail", PLUGIN, {"fabric": "efa"}),  # no provider efa
    ("fabric", "pass", {**PLUGIN, **verbs(providers={"efa": ""})}, {"fabric": "efa"}),
    ("fabric", "warn", WITHOUT_VERBS, {"fabric": "slingshot", "glibc": "2.38"}),
    ("fabric", "pass", WITHOUT_VERBS, {**SLINGSHOT, "glibc": "2.31"}),
    ("fabric", "warn", WITHOUT_VERBS, {**SLINGSHOT, "glibc": "2.38"}),
    ("fabric", "warn", PLUGIN, {**SLINGSHOT, "glibc": "2.38"}),  # the site's comes first
    ("fabric", "pass", PLUGIN, {"fabric": "slingshot", "glibc": "2.38"}),
    ("fabric", "unknown", WITHOUT_VERBS, {**SLINGSHOT, "glibc": ""}),
    ("fabric", "unknown", {**WITHOUT_VERBS, "c_library": None}, SLINGSHOT),
    ("ptx", "pass", GLT_IMAGE, {"driver": "450.80.02"}),
    ("ptx", "fail", GLT_IMAGE, {"gpus": ("a100",), "driver": "470.82.01"}),
    ("ptx", "unknown", GLT_IMAGE, {"gpus": ("a100",), "driver": ""}),
    ("ptx", "fail", PTX_LABEL, {"driver": "450.80.02"}),
    # the PTX is of nvcc 12.4, whatever torch was built with
    ("ptx", "fail", OTHER_NVCC, {"driver": "525.60.13"}),
    ("ptx", "pass", OTHER_NVCC, {"driver": "550.54.14"}),
    ("glibc", "fail", {"c_library": CLibrary(name="musl")}),
    ("glibc", "pass", {**CPU, "c_library": CLibrary(name="musl")}),
    ("glibc", "fail", {"c_library": CLibrary(name="glibc", version="2.12")}),
    ("glibc", "warn", {}, {"glibc": "2.39"}),
    ("slim", "pass", {}),
    ("slim", "pass", SLIM),
    ("slim", "fail", SLIM, {"gpus": ("v100", "a100")}),
    ("slim", "unknown", SLIM, {"gpus": ()}),
    ("glibc", "warn", {"c_library": None}),
    ("glibc", "unknown", {"c_library": CLibrary(name="glibc")}),
    ("kernel", "fail", {"c_library": CLibrary(name="glibc", version="2.38", kernel="4.4.0")}, {"kernel": "3.10.0"}),
    ("kernel", "unknown", {}, {"kernel": ""}),
    ("kernel", "unknown", {"c_library": None}),
    ("layered", "fail", {"form": "sif"}),
    ("layer-count", "fail", {"layers": (GZIP,) * 126}),
    ("layer-count", "pass", {"layers": (GZIP,) * 125}),
    ("docker-layer-types", "fail", {"layers": (GZIP, FOREIGN)}),
    ("docker-layer-types", "fail", {"layers": (ZSTD,)}, {"versions": {"docker": "20.10.24"}}),
    ("docker-layer-types", "warn", {"layers": (ZSTD,)}, {"versions": {}}),
    ("clone3", "fail", {}, {"versions": {"docker": "20.10.7"}}),
    ("clone3", "pass", {"c_library": CLibrary(name="glibc", version="2.31")}, {"versions": {"docker": "19.03"}}),
    ("clone3", "unknown", {}, {"versions": {}}),
    ("shm", "fail", {}, {"shm": 64 << 20}),
    ("shm", "warn", {}, {"shm": 256 << 20}),
    ("shm", "unknown", {}, {"shm": None}),
    ("shm", "pass", PLAIN, {"shm": None}),
    ("squashfs", "fail", {"form": "sif", "compression": "zstd"}, {"kernel": "3.10"}),
    ("squashfs", "pass", {"form": "sif", "compression": "gzip"}, {"kernel": "3.10"}),
    ("squashfs", "pass", {"form": "squashfs", "compression": "zstd"}, {"kernel": "4.14"}),
    ("squashfs", "unknown", {"form": "sif", "compression": "zstd"}, {"kernel": ""}),
    ("user", "warn", configured(user="worker")),
    ("home", "warn", env(HOME="/root")),
    ("working-folder", "warn", configured(working_folder="/root/project")),
    ("working-folder", "warn?", configured(working_folder="/nowhere")),
    ("working-folder", "pass", {**configured(working_folder="/work"), **files(work=FOLDER), "unread": UNREAD}),
    ("etc-binds", "warn", files(etc__resolv_dot_conf=FileFact(kind="symlink", link="../run/stub", real=None))),
    ("importable", "fail", {"form": "sif"}),
    ("unsquashfs", "pass", {"form": "squashfs", "compression": "zstd"}, {"kernel": "4.14"}),
    ("unsquashfs", "pass", {"form": "squashfs", "compression": "lzo"}, {"kernel": "3.10"}),
    ("unsquashfs", "warn", {"form": "squashfs", "compression": "zstd"}, {"kernel": "3.10"}),
    ("importable", "fail", {"form": "squashfs"}),
    ("importable", "pass", {**files(etc__rc=FILE, etc__environment=FILE), "form": "squashfs"}),
    ("manifest-type", "fail", {}, {"versions": {"pyxis": "3.4.0"}}),
    ("manifest-type", "pass", {"manifest_type": spec.DOCKER_MANIFEST}, {"versions": {"pyxis": "3.0"}}),
    ("manifest-type", "fail", {"manifest_type": "application/vnd.docker.distribution.manifest.v1+prettyjws"}),
    ("manifest-type", "unknown", {}, {"versions": {}}),
    ("enroot-layer-types", "fail", {"layers": (DOCKER_ZSTD,)}),
    ("enroot-layer-types", "fail", {"layers": (ZSTD,)}, {"versions": {"pyxis": "3.5.0"}}),
    ("enroot-layer-types", "warn", {"layers": (ZSTD,)}, {"versions": {}}),
    ("enroot-layer-types", "pass", {"layers": (ZSTD,)}),
    ("index-platform", "fail", {"without_platform": 1, "form": "registry"}),
    ("path-login", "fail?", files(etc__profile_dot_d__image_dot_sh=None)),
    ("path-login", "pass", env(PATH="/usr/local/bin:/usr/bin:/bin")),
    ("path-login", "pass", files(etc__profile=MUNGES, etc__profile_dot_d__image_dot_sh=FILE)),
    ("pytorch-version", "warn", env(PYTORCH_VERSION=None)),
    ("pytorch-version", "pass?", {**PLAIN, **env(PYTORCH_VERSION=None)}),
    ("visible-devices", "fail", env(NVIDIA_VISIBLE_DEVICES="void")),
    ("visible-devices", "warn", {**CPU, **env()}),
    ("visible-devices", "pass", CPU),
    ("visible-devices", "unknown", {**PLAIN, **env(NVIDIA_VISIBLE_DEVICES=None), "unread": UNREAD}),
    ("driver-capabilities", "fail", env(NVIDIA_DRIVER_CAPABILITIES=None)),
    ("driver-capabilities", "fail", env(NVIDIA_DRIVER_CAPABILITIES="utility,video")),
    ("driver-capabilities", "warn", env(NVIDIA_DRIVER_CAPABILITIES="compute,utility,ngx")),
    ("driver-capabilities", "unknown", {**PLAIN, **env(NVIDIA_DRIVER_CAPABILITIES=None), "unread": UNREAD}),
    ("infiniband", "warn", {**CPU, **env(MELLANOX_VISIBLE_DEVICES="0,1")}),
    ("infiniband", "pass", {**CPU, **env(MELLANOX_VISIBLE_DEVICES="void")}),
    ("kill", "fail", files(bin__sh=FileFact(kind="symlink", link="/opt/odd-shell"))),
    ("kill", "unknown", {**files(bin__sh=None), "unread": UNREAD}),
    ("etc", "fail", files(etc=FileFact(kind="symlink", link="/data/etc", real="folder"))),
    ("etc", "fail", files(etc__passwd=FileFact(kind="symlink", link="/data/passwd"))),
    ("etc", "fail", files(etc=FileFact(kind="folder", real="folder", mode=0o555))),
    ("etc", "warn", files(etc__group=None)),
    ("etc", "unknown", {**files(etc=None), "unread": UNREAD}),
    ("localtime", "fail", files(etc__localtime=FileFact(kind="symlink", link="/usr/share/zoneinfo", real="folder"))),
    ("localtime", "unknown", {**files(etc__localtime=None), "unread": UNREAD}),
    ("volumes", "fail?", configured(volumes=("/data",))),
    ("volumes", "warn", {**configured(volumes=("/data",)), **files(data=FOLDER)}),
    ("skipped-entrypoint", "warn", script('#!/bin/sh\n. /opt/conda/activate\nexec "$@"\n')),
    ("env-values", "fail", env(MOTD="one\ntwo")),
    ("env-values", "fail", env(DATA="${SCRATCH}/data")),
    ("env-values", "warn", env(QUOTED='"yes"')),
    ("env-values", "warn", env(**{"my.name": "x"})),
    ("notebook", "warn?", {"distributions": {}}),
    ("notebook", "pass", {"distributions": {}, "programs": {"jupyter": "/usr/bin/jupyter"}}),
]
