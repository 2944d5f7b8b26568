"""Reads what NCCL writes of itself (NCCL_DEBUG=INFO): network, devices, paths between ranks, what it could not load.

Pure. Wording of releases 2.14 to 2.31, of NCCL's own sources; what a release words in another way stays empty. A log is
of one process, whose lines come through unchanged by torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_LINES = 12  #: of plugins and of warnings that are kept
MOST_LETTERS = 300  #: of each
_LINE = re.compile(r"NCCL (INFO|WARN) (.*)")
_VERSION = re.compile(r"NCCL version (\S+)")
#: `[0]mlx5_0:1/IB`, `[1]mlx5_1:1/RoCE`; with rail and plane from 2.30 on: `[0]mlx5_0:1:0:2/IB`
_DEVICE = re.compile(r"\[\d+\]([^\s:\[\]]+:\d+)(?::-?\d*)*/(\w+)")
_INTERFACE = re.compile(r"\[\d+\]([^\s:\[\]]+):")
_OUT_OF_BAND = re.compile(r"; OOB ([^\s:]+):")
#: `NCCL_IB_DISABLE set by environment to 1.`, `NCCL_IB_HCA set to mlx5_9`, of 2.14 also `Plugin name set by env to x`
_VARIABLE = re.compile(r"(NCCL_\w+) set (?:by environment )?to (.*?)\.?$")
_PLUGIN_NAME = re.compile(r"[Pp]lugin name set by env to (\S+)")
_VIA = re.compile(r"(?:Channel|Ring) \S+ .*? via (.+)$")
_NET = re.compile(r"NET/(.+?)/\d+(?:\(\d+\))?(/GDRDMA)?")
_CHANNELS = re.compile(r"(\d+) coll channels")
_USING_CHANNELS = re.compile(r"Channel \d+/(\d+) : +\d")
#: 2.30 has the typing error
_NO_VERBS = re.compile(
    r"Failed to open libibverbs\.so|Count not open libibverbs\.so\.1|Could not open libibverbs\.so\.1"
)
#: nothing was found, or what was found does not load; `NET/Plugin` with the symbol of an older interface is usual
_NO_PLUGIN = re.compile(
    r"NET/Plugin ?: ?(?:No plugin found|Plugin load|dlerror=|Could not find: ?\S|.*cannot open shared object file)"
)
_LOADED = re.compile(r"NET/Plugin: Loaded net plugin (.+?) \(v\d+\)")


@dataclass
class Log:
    """One process's log. Empty, or None, where it tells nothing."""

    version: str = ""  #: "2.21.5+cuda12.4"
    network: str = ""  #: as NCCL names it: IB (RoCE and eRDMA too), Socket, "AWS Libfabric", a plugin's own name
    devices: dict[str, str] = field(default_factory=dict)  #: port that it uses ("mlx5_0:1") → its layer (IB, RoCE)
    interfaces: list[str] = field(default_factory=list)  #: of IP that it meets the others by, or sends through
    transports: dict[str, int] = field(default_factory=dict)  #: "NET/IB", "P2P/CUMEM", "SHM" → connections to peers
    gpudirect: bool | None = None  #: whether all connections to other nodes go past the processor's memory
    channels: int = 0
    variables: dict[str, str] = field(default_factory=dict)  #: that it took from the environment or nccl.conf
    plugin: str = ""  #: network plugin that it loaded
    plugin_absent: bool = False  #: it looked for one
    verbs_absent: bool = False  #: it could not open libibverbs
    no_device: bool = False  #: libibverbs is there, and gives it no port
    plugin_lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read(text: str) -> Log:
    """Read a log, ignoring other lines."""
    log = Log()
    for line in text.splitlines():
        if version := _VERSION.search(line):
            log.version = log.version or version[1]
        if match := _LINE.search(line):
            words = match[2].strip()
            if match[1] == "WARN":
                _keep(log.warnings, words)
            _read_network(log, words)
            _read_plugin(log, words)
            _read_paths(log, words)
    return log


def _read_network(log: Log, words: str) -> None:
    """Take the network, its ports and interfaces, and the variables."""
    if words.startswith("Using network "):
        log.network = words[len("Using network ") :].strip()
    elif words.startswith("NET/IB : Using"):
        log.devices.update(_DEVICE.findall(words))
        _add(log.interfaces, _OUT_OF_BAND.findall(words))
    elif words.startswith("NET/IB : No device found"):
        log.no_device = True
    elif words.startswith(("NET/Socket : Using", "Bootstrap : Using", "Bootstrap: Using")):
        _add(log.interfaces, _interfaces(words))
    elif _NO_VERBS.search(words):
        log.verbs_absent = True
    if variable := _VARIABLE.match(words):
        log.variables[variable[1]] = variable[2]
    elif name := _PLUGIN_NAME.search(words):
        log.variables.setdefault("NCCL_NET_PLUGIN", name[1])


def _interfaces(words: str) -> list[str]:
    """Return the names of `Using [0]eth0:10.0.0.1<0>`; of 2.14 to 2.17 without numbers: `Using eth0:10.0.0.1<0>`."""
    rest = words.partition("Using")[2].strip()
    return _INTERFACE.findall(rest) or [rest.partition(":")[0]]


def _read_plugin(log: Log, words: str) -> None:
    """Take what it loaded for the network, and whether what it looked for is there."""
    if loaded := _LOADED.search(words):
        log.plugin, log.plugin_absent = loaded[1], False
    elif _NO_PLUGIN.search(words) and not log.plugin:
        log.plugin_absent = True
    if words.startswith(("NET/Plugin", "NET/OFI", "Failed to initialize NET plugin", "Failed to initialize any NET")):
        _keep(log.plugin_lines, words)


def _read_paths(log: Log, words: str) -> None:
    """Take the transport of each connection, sending side; a receiving one has a line at its sender."""
    if (via := _VIA.match(words)) and "[receive]" not in words:
        kind, direct = transport(via[1])
        log.transports[kind] = log.transports.get(kind, 0) + 1
        if kind.startswith("NET/"):
            log.gpudirect = direct and log.gpudirect is not False
    if (channels := _CHANNELS.search(words)) or (not log.channels and (channels := _USING_CHANNELS.match(words))):
        log.channels = int(channels[1])


def transport(via: str) -> tuple[str, bool]:
    """Return the kind of a path, and whether GPU memory is its end: `NET/IB/0(3)/GDRDMA` is (NET/IB, True)."""
    if net := _NET.match(via):
        return f"NET/{net[1]}", bool(net[2])
    kind, _, rest = via.partition("/")
    way = re.match(r"[A-Za-z]+", rest)
    return (f"P2P/{way[0]}" if kind == "P2P" and way else kind.split()[0] if kind.split() else "?"), False


def merge(logs: list[Log]) -> Log:
    """Return what several processes' logs tell together. `network`: of all that differ, with commas."""
    whole = Log(network=", ".join(dict.fromkeys(log.network for log in logs if log.network)))
    for log in logs:
        whole.version, whole.plugin = whole.version or log.version, whole.plugin or log.plugin
        whole.devices.update(log.devices)
        whole.variables.update(log.variables)
        whole.channels = max(whole.channels, log.channels)
        _add(whole.interfaces, log.interfaces)
        for kind, number in log.transports.items():
            whole.transports[kind] = whole.transports.get(kind, 0) + number
        if log.gpudirect is not None:
            whole.gpudirect = log.gpudirect and whole.gpudirect is not False
        for name in ("plugin_absent", "verbs_absent", "no_device"):
            setattr(whole, name, getattr(whole, name) or getattr(log, name))
        for line in log.plugin_lines:
            _keep(whole.plugin_lines, line)
        for line in log.warnings:
            _keep(whole.warnings, line)
    return whole


def _add(names: list[str], more: list[str]) -> None:
    names += [name for name in dict.fromkeys(more) if name and name not in names]


def _keep(lines: list[str], line: str) -> None:
    """Keep a line once, cut, while there is room."""
    cut = line if len(line) <= MOST_LETTERS else line[: MOST_LETTERS - 1] + "…"
    if cut not in lines and len(lines) < MOST_LINES:
        lines.append(cut)
