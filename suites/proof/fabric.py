"""The network between nodes as this process finds it: ports and their rates in /sys, and why NCCL may not use them.

`look` reads the machine and the image, `reasons` judges what was read. NCCL says nothing where it falls back to TCP.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proof import verbs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proof.nccl_log import Log

VERBS = verbs.LIBRARY
LEAST_MEMLOCK = 1 << 30  #: bytes; NCCL pins some MB for each channel and connection
BITS = 8
_PLUGIN_LAYER = "Unspecified"  #: what ports of EFA have for a link layer: no verbs of NCCL's reach them
#: the kernel's driver of a card, or of the card below it → provider of libibverbs
_PROVIDERS = {
    "mlx5_core": "mlx5",
    "mlx4_core": "mlx4",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "hns3": "hns",
    "qede": "qedr",
    "mana": "mana",
    "efa": "efa",
    "erdma": "erdma",
}
_RDMA_CORE = "libibverbs1, ibverbs-providers and librdmacm1 of Debian"
_BUILT_IN = ("IB", "SOCKET")
_SITES_PLUGIN = "bind in the site's libnccl-net.so with its libfabric, and put their folders into LD_LIBRARY_PATH"


@dataclass(frozen=True)
class Port:
    """A port of a card for RDMA. `rate` in Gb/s; `layer` as the kernel names it: InfiniBand, Ethernet, Unspecified."""

    device: str
    number: int
    active: bool
    layer: str
    rate: float
    provider: str = ""  #: of libibverbs; empty where the card's driver is none that is known

    @property
    def name(self) -> str:
        """As NCCL names it: mlx5_0:1."""
        return f"{self.device}:{self.number}"

    def __str__(self) -> str:
        layer = {"Ethernet": "RoCE", _PLUGIN_LAYER: "EFA"}.get(self.layer, self.layer)
        return f"{self.name} ({layer}, {self.rate:g} Gb/s)"


@dataclass(frozen=True)
class Fabric:
    """The network between nodes, as one process sees it."""

    ports: tuple[Port, ...] = ()
    slingshot: tuple[str, ...] = ()  #: devices of /sys/class/cxi
    verbs: str = ""  #: why libibverbs cannot be opened; empty: it can
    providers: tuple[str, ...] = ()  #: of the image's libibverbs, each with its library
    nodes: Mapping[str, str] = field(default_factory=dict)  #: card → why its node in /dev cannot be used; empty: it can
    memlock: int = -1  #: bytes that may be pinned; -1: without limit

    @property
    def active(self) -> list[Port]:
        """The ports that are up."""
        return [port for port in self.ports if port.active]

    @property
    def is_there(self) -> bool:
        """Return whether this node has a network that NCCL should use instead of TCP."""
        return bool(self.active or self.slingshot)


def look(sys: Path = Path("/sys"), dev: Path = Path("/dev"), root: Path = Path("/")) -> Fabric:
    """Read the machine's cards and the image's libraries. What cannot be read is not there."""
    ports = tuple(_ports(sys / "class" / "infiniband"))
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Fabric(
        ports=ports,
        slingshot=tuple(sorted(path.name for path in _entries(sys / "class" / "cxi"))),
        verbs=_unopened(VERBS),
        providers=tuple(sorted(name for name, libraries in verbs.providers(root).items() if libraries)),
        nodes=_device_nodes(sys / "class" / "infiniband_verbs", dev / "infiniband", {port.device for port in ports}),
        memlock=-1 if soft == resource.RLIM_INFINITY else soft,
    )


def _ports(folder: Path) -> Iterable[Port]:
    """Read /sys/class/infiniband: `ports/1/state` is `4: ACTIVE`, `rate` is `200 Gb/sec (4X HDR)`."""
    for card in _entries(folder):
        try:
            driver = (card / "device" / "driver").resolve(strict=True).name
        except OSError:
            driver = re.sub(r"[_\d].*", "", card.name)  # soft RoCE (rxe0) has no card
        provider = _PROVIDERS.get(driver, driver if driver in {"rxe", "siw"} else "")
        for entry in _entries(card / "ports"):
            if entry.name.isdigit():
                rate = re.match(r"[\d.]+", _text(entry / "rate"))
                yield Port(
                    device=card.name,
                    number=int(entry.name),
                    active=_text(entry / "state").endswith("ACTIVE"),
                    layer=_text(entry / "link_layer"),
                    rate=float(rate[0]) if rate and rate[0].count(".") < 2 and rate[0] != "." else 0.0,
                    provider=provider,
                )


def _device_nodes(verbs: Path, dev: Path, cards: set[str]) -> dict[str, str]:
    """Try the node of each card (/dev/infiniband/uverbs0); `verbs` says which it is."""
    found = {_text(entry / "ibdev"): entry.name for entry in _entries(verbs)}
    return {card: _unusable(dev / found[card]) for card in sorted(cards) if card in found}


def _unusable(path: Path) -> str:
    """Say why a device cannot be opened; empty: it can."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"{path} is not there"
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    return ""


def _unopened(library: str) -> str:
    """Say why a library cannot be opened; empty: it can."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def rails(fabric: Fabric, log: Log) -> list[Port]:
    """Return the ports that carry traffic: those that NCCL names, else all that are up."""
    named = [port for port in fabric.active if port.name in log.devices]
    return named or fabric.active


def bytes_per_second(ports: Iterable[Port]) -> float:
    """Return what ports carry each way together."""
    return sum(port.rate for port in ports) * 1e9 / BITS


def reasons(fabric: Fabric, log: Log, environment: Mapping[str, str]) -> list[str]:
    """Say why NCCL uses TCP although there is a better network, the most certain first, each with what to do."""
    ports = [port for port in fabric.active if port.layer != _PLUGIN_LAYER]
    # /etc/nccl.conf sets some that the environment has not
    variables = {**{name: text for name, text in environment.items() if name.startswith("NCCL_")}, **log.variables}
    found = [*_of_library(fabric, log, ports), *_of_device(fabric, ports), *_of_plugin(fabric, log, variables)]
    found += _of_variables(fabric, variables)
    if not found and fabric.is_there:
        begin = "libibverbs gives NCCL no port, and " if log.no_device else ""
        found.append(
            f"{begin}nothing that is known explains it: NCCL_DEBUG=TRACE NCCL_DEBUG_SUBSYS=INIT,NET shows more, and "
            "`ibv_devinfo` in the container what libibverbs sees"
        )
    return found


def _of_library(fabric: Fabric, log: Log, ports: list[Port]) -> Iterable[str]:
    """libibverbs, and the provider of each card."""
    if not ports:
        return
    if fabric.verbs or log.verbs_absent:
        why = fabric.verbs or "NCCL could not open it"
        yield f"{VERBS} cannot be loaded in this image ({why}): it needs {_RDMA_CORE}"
        return
    absent = sorted({port.provider for port in ports if port.provider and port.provider not in fabric.providers})
    if absent:
        has = ", ".join(fabric.providers) or "none"
        yield (
            f"libibverbs has no provider {' or '.join(absent)} for {', '.join(port.device for port in ports)} (there "
            f"are: {has}): it needs ibverbs-providers of Debian, of bookworm or later for erdma, irdma and mana"
        )


def _of_device(fabric: Fabric, ports: list[Port]) -> Iterable[str]:
    """The cards' nodes in /dev, and how much may be pinned."""
    if not ports:
        return
    closed = sorted({fabric.nodes[port.device] for port in ports if fabric.nodes.get(port.device)})
    if closed:
        yield (
            f"{'; '.join(closed)}: `docker run --device=/dev/infiniband`, under enroot and pyxis "
            "MELLANOX_VISIBLE_DEVICES=all, in Kubernetes the resource of the RDMA device plugin; where it is there "
            "and closed, the site's udev rules give it mode 0666"
        )
    if 0 <= fabric.memlock < LEAST_MEMLOCK:
        yield (
            f"only {fabric.memlock >> 10} KiB may be pinned (ulimit -l): `docker run --ulimit memlock=-1:-1`, in Slurm "
            "PropagateResourceLimitsExcept=MEMLOCK and LimitMEMLOCK=infinity for slurmd"
        )


def _of_plugin(fabric: Fabric, log: Log, variables: Mapping[str, str]) -> Iterable[str]:
    """A plugin that is asked for, or that the card needs, and is not loaded."""
    if log.plugin:
        return
    asked = [
        f"{name}={text}"
        for name, text in variables.items()
        if (name == "NCCL_NET" and text.upper() not in _BUILT_IN)
        or (name == "NCCL_NET_PLUGIN" and text.lower() not in ("", "none"))
    ]
    efa = [port.device for port in fabric.active if port.layer == _PLUGIN_LAYER]
    if asked:
        yield f"{', '.join(asked)} asks for a plugin that NCCL does not find: {_SITES_PLUGIN}"
    elif efa or fabric.slingshot:
        cards = ", ".join((*efa, *fabric.slingshot))
        yield (
            f"{cards}: NCCL reaches {'EFA' if efa else 'Slingshot'} by a plugin alone (aws-ofi-nccl), and none is "
            f'here: {_SITES_PLUGIN}; NCCL_NET="AWS Libfabric" makes NCCL fail instead of using TCP'
        )


def _of_variables(fabric: Fabric, variables: Mapping[str, str]) -> Iterable[str]:
    """Variables that turn the network off."""
    if variables.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        yield f"NCCL_IB_DISABLE={variables['NCCL_IB_DISABLE']} turns it off: unset it (/etc/nccl.conf may set it too)"
    if variables.get("NCCL_NET", "").upper() == "SOCKET":
        yield "NCCL_NET=Socket asks for TCP: unset it"
    chosen = variables.get("NCCL_IB_HCA", "")
    if chosen and not [port for port in fabric.active if is_chosen(port, chosen)]:
        there = ", ".join(port.name for port in fabric.active) or "none"
        yield f"NCCL_IB_HCA={chosen} matches no port that is up (there are: {there}): unset it, or name one of them"


def is_chosen(port: Port, chosen: str) -> bool:
    """Return whether NCCL_IB_HCA names a port: `mlx5` all that begin so, `=mlx5_0:1` just this, `^mlx5_3` others."""
    excludes = chosen.startswith("^")
    rest = chosen[excludes:]
    exact = rest.startswith("=")
    names = [name for name in rest[exact:].split(",") if name]
    hit = any(_matches(port, name, exact) for name in names)
    return hit != excludes


def _matches(port: Port, name: str, exact: bool) -> bool:
    device, _, number = name.partition(":")
    if number and number != str(port.number):
        return False
    return port.device == device if exact else port.device.startswith(device)
