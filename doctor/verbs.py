"""libibverbs and NCCL's plugin: whether they load, and what memory the cards may reach."""

import json
import re
import resource
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from doctor.cards import Card
from doctor.finding import Finding, fail, listed, note, numbers, ok, size, warn
from doctor.host import Host
from doctor.machine import GIB, distribution_of, kernel_of
from doctor.nccl import Setting

#: what Debian bullseye's rdma-core 33 does not have yet
AFTER_BULLSEYE = ("erdma", "irdma", "mana")
DMABUF_KERNEL = "5.12"
IPC_LOCK = 14  #: CAP_IPC_LOCK: the kernel then asks for no RLIMIT_MEMLOCK
VERBS_LIMIT = 20.0  #: seconds
OF_IMAGES = "make image …    of today has it; ./build.py check REF --only fabric    judges any image"
#: asked in a process of its own, as both may crash: argv has the plugins to try
ASK_VERBS = r"""
import ctypes, json, sys
told = {"loaded": False, "error": "", "devices": [], "dmabuf": False, "plugins": {}}
try:
    verbs = ctypes.CDLL("libibverbs.so.1")
    told["loaded"] = True
except OSError as error:
    told["error"] = str(error)
if told["loaded"]:
    told["dmabuf"] = hasattr(verbs, "ibv_reg_dmabuf_mr")
    count = ctypes.c_int(0)
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    found = verbs.ibv_get_device_list(ctypes.byref(count))
    for index in range(count.value if found else 0):
        told["devices"].append(verbs.ibv_get_device_name(ctypes.c_void_p(found[index])).decode("utf-8", "replace"))
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
        told["plugins"][name] = ""
    except OSError as error:
        told["plugins"][name] = str(error)
print("@verbs " + json.dumps(told), flush=True)
"""


class Verbs(NamedTuple):
    """The answers of libibverbs and the plugins. `plugins`: name → why it cannot be loaded, or nothing.

    `trouble`: why they gave no answer at all.
    """

    asked: bool = False
    trouble: str = ""
    loaded: bool = False
    error: str = ""
    devices: Tuple[str, ...] = ()
    dmabuf: bool = False
    plugins: Dict[str, str] = {}  # noqa: RUF012
    warnings: str = ""


# Libraries


def ask_verbs(host: Host, plugins: Tuple[str, ...]) -> Verbs:
    """Load libibverbs and the plugins, and let it list its devices."""
    done = host.run([host.python, "-I", "-S", "-c", ASK_VERBS, *plugins], limit=VERBS_LIMIT)
    lines = [line[7:] for line in (done.out if done else "").splitlines() if line.startswith("@verbs ")]
    if done is None or not lines:
        if done is None:
            how = "python cannot be started"
        else:
            how = "no answer in time" if done.code is None else f"it ended with {done.code}: {done.err.strip()[-200:]}"
        return Verbs(asked=True, trouble=how)
    told: Dict[str, Any] = json.loads(lines[-1])
    warnings = " ".join(line.strip() for line in done.err.splitlines() if "libibverbs: Warning" in line)
    return Verbs(
        asked=True,
        loaded=told["loaded"],
        error=told["error"],
        devices=tuple(told["devices"]),
        dmabuf=told["dmabuf"],
        plugins=told["plugins"],
        warnings=warnings,
    )


def judge_verbs(host: Host, usable: List[Card], verbs: Verbs, container: str) -> Iterator[Finding]:
    """Yield whether libibverbs, which NCCL opens for InfiniBand, RoCE and eRDMA, finds the cards that can be opened."""
    cards = [card for card in usable if card.provider != "efa"]  # that one goes by its plugin
    if not cards or not verbs.asked:
        return
    where = "in this container" if container else "on this host"
    if verbs.trouble:
        why = "whether NCCL can use the cards is not known"
        yield warn(
            "libibverbs", f"libibverbs gives no answer: {verbs.trouble}", why, "ibv_devinfo; dmesg | grep -i mlx"
        )
        return
    install = _install(host)
    if not verbs.loaded:
        seen = f"libibverbs.so.1 cannot be loaded {where}: {verbs.error}"
        why = "NCCL says `Failed to open libibverbs.so` in its debug log alone, and uses TCP, ten times as slow"
        if container:
            yield warn("libibverbs", seen, why, f"{install}; {OF_IMAGES}")
        else:
            yield note("libibverbs", seen, "containers bring their own; programs of the host use TCP", install)
        return
    missing = [card for card in cards if card.name not in verbs.devices]
    if not missing:
        yield ok("libibverbs", f"libibverbs.so.1 finds {listed(card.name for card in cards)}")
        return
    providers = sorted({card.provider for card in missing})
    seen = f"libibverbs.so.1 {where} has no provider for {listed(card.name for card in missing)} ({listed(providers)})"
    about = [line for line in verbs.warnings.split("libibverbs: Warning: ") if any(name in line for name in providers)]
    why = "NCCL says `NET/IB : No device found` and uses TCP" + (f"; {about[0].strip()}" if about else "")
    fix = f"{install}; {OF_IMAGES}" if container else install
    if "bullseye" in distribution_of(host) and set(providers) & set(AFTER_BULLSEYE):
        why = f"Debian bullseye has none for {listed(providers)}, bookworm has: {why}"
        fix = 'base = { provider = "debian", suite = "bookworm" }    in a recipe; or the packages of the card\'s maker'
    yield warn("libibverbs", seen, why, fix)


def _install(host: Host) -> str:
    name = distribution_of(host)
    if re.search("Debian|Ubuntu", name):
        return "as root: apt-get install --yes libibverbs1 ibverbs-providers librdmacm1"
    if re.search("Red Hat|Rocky|Alma|CentOS|Fedora|Oracle", name):
        return "as root: dnf install --assumeyes libibverbs librdmacm    (its providers are in it)"
    return "install rdma-core's libibverbs and its providers"


def plugins_of(settings: Dict[str, Setting]) -> Tuple[str, ...]:
    """The libraries that NCCL tries as its network plugin, and the one that it tries only where it is told to."""
    named = settings["NCCL_NET_PLUGIN"].value if "NCCL_NET_PLUGIN" in settings else ""
    if named == "none":
        return ()
    if not named:
        return ("libnccl-net.so", "libnccl-net-ofi.so")
    return (named,) if "/" in named or named.endswith(".so") else (f"libnccl-net-{named}.so", "libnccl-net.so")


def judge_plugin(verbs: Verbs, settings: Dict[str, Setting], container: str) -> Iterator[Finding]:
    """EFA and Slingshot: NCCL reaches them by a plugin alone."""
    chosen = settings.get("NCCL_NET")
    loaded = [name for name, error in verbs.plugins.items() if not error]
    strict = "NCCL_NET='AWS Libfabric'    ends a job without the plugin, instead of TCP"
    bind = "./build.py job REF --runtime … --target SITE    binds the site's plugin and libfabric in"
    if verbs.trouble:
        yield note("nccl-plugin", f"loading NCCL's plugin gave no answer: {verbs.trouble}")
    elif "NCCL_NET_PLUGIN" in settings and not verbs.plugins:
        why = "EFA and Slingshot are reached by a plugin, and it is switched off: NCCL uses TCP"
        yield warn("nccl-plugin", "NCCL_NET_PLUGIN=none", why, settings["NCCL_NET_PLUGIN"].undo("NCCL_NET_PLUGIN"))
    elif loaded and loaded[0] == "libnccl-net-ofi.so" and "NCCL_NET_PLUGIN" not in settings:
        why = "NCCL looks for libnccl-net.so, which is not here: it uses TCP"
        yield warn("nccl-plugin", "libnccl-net-ofi.so loads", why, "export NCCL_NET_PLUGIN=ofi")
    elif loaded:
        yield ok("nccl-plugin", f"NCCL's plugin loads: {loaded[0]}")
        if chosen is None:
            yield note("nccl-net", "NCCL_NET is not set", "where the plugin fails on a node, NCCL uses TCP", strict)
    elif verbs.plugins:
        name, error = next(iter(verbs.plugins.items()))
        absent = f"{name}: cannot open" in error
        seen = f"NCCL's plugin {name} is not here" if absent else f"NCCL's plugin cannot be loaded: {error}"
        why = "NCCL reaches EFA and Slingshot by it alone: it uses TCP"
        fix = bind if absent else f"an image with a newer base, where a version is `not found`; {bind}"
        if chosen is not None and chosen.value.lower() not in ("socket", "ib"):
            why = f"NCCL_NET={chosen.value}: NCCL ends with `Failed to initialize any NET plugin`"
            yield fail("nccl-plugin", seen, why, fix)
        elif container or not absent:
            yield warn("nccl-plugin", seen, why, f"{fix}; {strict}")
        else:
            yield note("nccl-plugin", seen, "on this host a module may bring it; a container needs it bound in", bind)


# Memory


def judge_locked_memory(host: Host, cards: List[Card], container: str) -> Iterator[Finding]:
    """Yield whether this process may pin the memory that cards read and write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if not cards or soft < 0 or _may_pin(host):
        return
    seen = f"{size(soft)} of memory may be locked"
    if hard < 0:
        fix = "ulimit -l unlimited"
    elif container in ("docker", "podman"):
        fix = f"{container} run --ulimit memlock=-1:-1 …"
    elif "SLURM_JOB_ID" in host.environment:
        fix = "the administrator: LimitMEMLOCK=infinity for slurmd, PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"
    else:
        fix = "the administrator: `* - memlock unlimited` in /etc/security/limits.d; docker run --ulimit memlock=-1:-1"
    if soft < GIB:
        why = "cards pin memory: NCCL ends with `ibv_create_qp failed` or `ibv_reg_mr failed: Cannot allocate memory`"
        yield warn("locked-memory", seen, why, fix)
    else:
        yield note("locked-memory", seen, "many ranks and channels pin more; sites set it to unlimited", fix)


def _may_pin(host: Host) -> bool:
    """Return whether the kernel asks this process for no limit: CAP_IPC_LOCK, outside every user namespace."""
    mask = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", host.read("/proc/self/status") or "", re.MULTILINE)
    is_outside = (host.read("/proc/self/uid_map") or "").split() == ["0", "0", "4294967295"]
    return bool(mask and int(mask.group(1), 16) >> IPC_LOCK & 1 and is_outside)


def judge_gpudirect(host: Host, active: List[Card], verbs: Verbs) -> Iterator[Finding]:
    """Yield whether cards reach the GPUs' memory by themselves: by the driver's module, or by the kernel's dma-buf."""
    driver = host.read("/proc/driver/nvidia/version") or ""
    if not driver or not any(card.provider in ("mlx5", "mlx4", "bnxt_re", "irdma") for card in active):
        return
    modules = (
        "/sys/module/nvidia_peermem/version",
        "/sys/kernel/mm/memory_peers/nv_mem/version",
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    )
    loaded = [name for name in modules if host.exists(name)]
    if loaded:
        yield ok("gpudirect", f"GPUDirect: {loaded[0].split('/')[-2]} is loaded")
        return
    folder = "/proc/driver/nvidia/gpus"
    cards = " ".join(host.read(f"{folder}/{name}/information") or "" for name in host.names(folder))
    if "GeForce" in cards:
        yield note("gpudirect", "GeForce GPUs have no GPUDirect", "NCCL goes by the main memory")
        return
    kernel, is_open = kernel_of(host), "Open Kernel Module" in driver
    lacking = [] if is_open else ["the driver's module is not NVIDIA's open one"]
    if numbers(kernel) < numbers(DMABUF_KERNEL):
        lacking.append(f"kernel {kernel} is older than {DMABUF_KERNEL}")
    if verbs.loaded and not verbs.dmabuf:
        lacking.append("libibverbs is older than rdma-core 34 (Debian bullseye)")
    if not lacking:
        yield ok("gpudirect", f"GPUDirect by dma-buf: kernel {kernel}, NVIDIA's open module")
        return
    why = f"nvidia_peermem is not loaded, and dma-buf does not serve ({'; '.join(lacking)}): slower, by the main memory"
    yield warn("gpudirect", "no GPUDirect between cards and GPUs", why, "as root on the host: modprobe nvidia_peermem")
