"""Cards of the network between nodes: what the kernel has of them, and what can be opened here."""

import re
from typing import Dict, Iterator, List, NamedTuple, Tuple

from doctor.finding import Finding, listed, note, ok, warn
from doctor.host import Host

ADAPTERS = "/sys/class/infiniband"
#: kernel module of a card → its provider in libibverbs. Source: rdma-core, providers/
PROVIDERS = {
    "mlx5_core": "mlx5",
    "mlx4_core": "mlx4",
    "efa": "efa",
    "erdma": "erdma",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "qede": "qedr",
    "hns3": "hns",
    "mana": "mana",
}
FULL_MEMBER = 0x8000  #: of a partition key: two limited members do not reach each other


class Port(NamedTuple):
    """A port of a card: `mlx5_0:1`. `kind`: InfiniBand, RoCE, eRDMA, EFA."""

    name: str
    kind: str
    state: str
    rate: str
    partition: int


class Card(NamedTuple):
    """A card as the kernel shows it. `nodes`: what programs open, in order of likelihood; it need not be there."""

    name: str
    provider: str
    ports: Tuple[Port, ...]
    nodes: Tuple[str, ...]

    @property
    def active(self) -> List[Port]:
        return [port for port in self.ports if port.state == "ACTIVE"]


def no_card(host: Host) -> Finding:
    """Return the finding on a node without any: nothing is wrong with it, unless a card waits for its driver."""
    folder = "/sys/bus/pci/devices"
    kinds = [(host.read(f"{folder}/{name}/class") or "").strip() for name in host.names(folder)]
    if any(kind.startswith("0x0207") for kind in kinds):  # an InfiniBand controller, by PCI's list of classes
        why = "the kernel's module is not loaded: between nodes NCCL uses TCP"
        return warn("fabric", "an InfiniBand card and no driver for it", why, "as root: modprobe mlx5_ib ib_uverbs")
    return note("fabric", "no InfiniBand, RoCE, EFA or Slingshot here", "between nodes TCP is all there is")


# Cards


def cards_of(host: Host) -> List[Card]:
    """The cards, sorted by name; a container that hides them shows none."""
    verbs = "/sys/class/infiniband_verbs"
    nodes: Dict[str, List[str]] = {}
    for name in host.names(verbs):
        owner = (host.read(f"{verbs}/{name}/ibdev") or "").strip()
        if owner:
            nodes.setdefault(owner, []).append(f"/dev/infiniband/{name}")
    there = [f"/dev/infiniband/{name}" for name in host.names("/dev/infiniband") if name.startswith("uverbs")]
    return [
        Card(name, provider, _ports_of(host, name, provider), tuple(nodes.get(name, []) if nodes else there))
        for name, provider in ((name, _provider(host, name)) for name in host.names(ADAPTERS))
    ]


def _provider(host: Host, name: str) -> str:
    driver = re.search(r"^DRIVER=(\S+)", host.read(f"{ADAPTERS}/{name}/device/uevent") or "", re.MULTILINE)
    if driver:
        module = driver.group(1).split(".")[0]  # mlx5_core.sf: a share of a card
        return PROVIDERS.get(module, module)
    beginning = re.match(r"[a-z]+\d*(?=_)|[a-z]+", name)  # mlx5_0, rxe0: of cards without a bus
    return beginning.group(0) if beginning else name


def _ports_of(host: Host, card: str, provider: str) -> Tuple[Port, ...]:
    found = []
    for number in host.names(f"{ADAPTERS}/{card}/ports"):
        told = {
            name: (host.read(f"{ADAPTERS}/{card}/ports/{number}/{name}") or "").strip()
            for name in ("state", "link_layer", "rate", "pkeys/0")
        }
        named = {"erdma": "eRDMA", "efa": "EFA", "rxe": "RoCE by software", "siw": "iWARP by software"}
        kind = named.get(provider) or ("RoCE" if told["link_layer"] == "Ethernet" else "InfiniBand")
        partition = _partition(told["pkeys/0"]) or 0xFFFF
        found.append(Port(f"{card}:{number}", kind, told["state"].split(":")[-1].strip(), told["rate"], partition))
    return tuple(found)


def judge_ports(cards: List[Card]) -> Iterator[Finding]:
    """Judge the networks and their speed, and the ports that wait for something."""
    ports = [port for card in cards for port in card.ports]
    active = [port for port in ports if port.state == "ACTIVE"]
    if not ports:
        return
    if not active:
        seen = "no port is active: " + listed(f"{port.name} {port.state or 'unknown'}" for port in ports)
        waiting = [port.name for port in ports if port.state == "INIT" and port.kind == "InfiniBand"]
        if waiting:
            why = "the cable is good, and no subnet manager has set the ports up: NCCL finds no device and uses TCP"
            yield warn("fabric", seen, why, "the administrator: systemctl status opensm, or the switch's own; sminfo")
        else:
            why = "no cable, a switch that is off, or the interface is down: NCCL finds no device and uses TCP"
            yield warn("fabric", seen, why, "ip -brief link; ibstat; as root: ip link set INTERFACE up")
        return
    kinds: Dict[str, List[Port]] = {}
    for port in active:
        kinds.setdefault(", ".join(part for part in (port.kind, port.rate) if part), []).append(port)
    told = "; ".join(f"{kind}: {listed(port.name for port in found)}" for kind, found in kinds.items())
    yield ok("fabric", f"{told} ({len(active)} of {len(ports)} ports active)")
    # one lane is usual for Ethernet: 25 Gb/sec (1X EDR)
    slow = [port for port in active if port.kind == "InfiniBand" and re.search(r"\b1X|\bSDR", port.rate)]
    if slow:
        why = "a single lane or the oldest rate: most often a bad cable, and the slowest card decides for all"
        seen = listed(f"{port.name} has {port.rate}" for port in slow)
        yield warn("fabric-rate", seen, why, "ibstat; as root: mlxlink -d CARD; another node until it is repaired")


# Devices


def closed_reason(host: Host, card: Card) -> str:
    """Explain why a card cannot be opened; empty where it can."""
    there = [node for node in card.nodes if host.exists(node)]
    if not there:
        return "there is no {}".format(card.nodes[0] if card.nodes else "/dev/infiniband/uverbs*")
    errors = [host.open_error(node) for node in there]
    return "" if "" in errors else f"{there[0]}: {errors[0]}"


def judge_nodes(host: Host, active: List[Card], container: str) -> Iterator[Finding]:
    """Yield whether programs here may open the cards."""
    closed = {card.name: reason for card, reason in ((card, closed_reason(host, card)) for card in active) if reason}
    if not closed:
        return
    seen = listed(f"{name}: {reason}" for name, reason in closed.items())
    if len(closed) < len(active):
        yield note("fabric-devices", seen, "NCCL uses the other cards: a share of the node, or one was forgotten")
        return
    if any("Operation not permitted" in reason for reason in closed.values()):
        why = "the container's cgroup shuts them off, though /dev/infiniband is bound in: NCCL uses TCP"
    elif any("Permission denied" in reason for reason in closed.values()):
        yield warn(
            "fabric-devices",
            seen,
            "their owner or mode shuts you out: NCCL uses TCP, ten times as slow",
            "ls -l /dev/infiniband; id    then ask the administrator (mode 0666, or the group rdma)",
        )
        return
    else:
        why = "the kernel has the cards, and here nothing opens them: NCCL uses TCP, ten times as slow"
    visible = host.environment.get("MELLANOX_VISIBLE_DEVICES")
    if container == "enroot":
        how = f"is {visible}" if visible else "is not set"
        why = f"MELLANOX_VISIBLE_DEVICES {how}, and the site gives no devices by itself: NCCL uses TCP"
    yield warn("fabric-devices", seen, why, fix_for_fabric(container))


def fix_for_fabric(container: str) -> str:
    """The way to ask each runtime for the cards."""
    return {
        "docker": "docker run --device=/dev/infiniband --ulimit memlock=-1:-1 --network=host …",
        "podman": "podman run --device=/dev/infiniband --ulimit memlock=-1:-1 --network=host …",
        "enroot": "MELLANOX_VISIBLE_DEVICES=all srun --container-image=… …",
        "apptainer": "singularity exec --bind /dev/infiniband IMAGE …    (or without --contain)",
        "kubernetes": "ask for the device plugin's rdma/… in the pod's limits, with capability IPC_LOCK; in PAI: an "
        "instance with eRDMA",
        "graphcrate": "Apptainer, enroot or Docker for several nodes: `./build.py run` has a /dev of its own",
        "": "as root: modprobe ib_uverbs; ls -l /dev/infiniband",
    }.get(container, "start the container with the host's /dev/infiniband: --device=/dev/infiniband, --bind")


def judge_slingshot(host: Host, cards: List[str], container: str) -> Iterator[Finding]:
    """Yield whether Slingshot's cards, which have no part in libibverbs, are here."""
    if not cards:
        return
    closed = {name: f"/dev/{name}" for name in cards if not host.exists(f"/dev/{name}")}
    if closed:
        why = "the kernel has the cards, and here nothing opens them: NCCL's plugin finds no device"
        fix = "docker run --device=/dev/cxi0 …; singularity exec --bind /dev/cxi0 …" if container else "ls -l /dev/cxi*"
        yield warn("slingshot", "there is no " + listed(closed.values()), why, fix)
    else:
        yield ok("slingshot", f"Slingshot: {listed(cards)}")


def judge_partitions(host: Host, active: List[Card], chosen: str) -> Iterator[Finding]:
    """InfiniBand's partitions: NCCL takes the key at index 0, or the index that NCCL_IB_PKEY has chosen."""
    ports = [port for card in active for port in card.active if port.kind == "InfiniBand" and port.partition != 0xFFFF]
    if not ports or chosen not in ("", "0"):
        return
    seen = listed(f"{port.name} has partition key 0x{port.partition:04x} at index 0" for port in ports)
    keys = "grep . /sys/class/infiniband/*/ports/*/pkeys/*"
    if all(port.partition & FULL_MEMBER for port in ports):
        why = "a partition of your own: all nodes of a job need the same one there"
        yield note("partition", seen, why, f"{keys}    on each node; NCCL_IB_PKEY=1    takes index 1")
        return
    why = "limited members do not reach each other: NCCL ends with `Got completion … error 12`"
    card, _, number = ports[0].name.partition(":")
    folder = f"{ADAPTERS}/{card}/ports/{number}/pkeys"
    indices = sorted((name for name in host.names(folder) if name.isdigit()), key=int)
    full = [index for index in indices if _partition(host.read(f"{folder}/{index}") or "") & FULL_MEMBER]
    fix = f"export NCCL_IB_PKEY={full[0]}" if full else f"the administrator makes it a full member; {keys}"
    yield warn("partition", seen, why, fix)


def _partition(text: str) -> int:
    found = re.match(r"0x([0-9a-fA-F]{1,4})$", text.strip())
    return int(found.group(1), 16) if found else 0


# enroot's hook


def judge_mellanox(host: Host, cards: List[Card]) -> Iterator[Finding]:
    """The variable goes from here into containers, where enroot's hook ends the start if it does not fit the node."""
    value = host.environment.get("MELLANOX_VISIBLE_DEVICES", "")
    if value in ("", "void", "none") or not host.find("enroot"):
        return
    count = sum(card.provider in ("mlx5", "mlx4") for card in cards)
    seen = f"MELLANOX_VISIBLE_DEVICES={value}"
    fix = "unset MELLANOX_VISIBLE_DEVICES    (or =all, on nodes with cards)"
    wrong = [one for one in value.split(",") if not (one.isdigit() and int(one) < count)] if value != "all" else []
    if not count or not host.exists("/dev/infiniband/rdma_cm"):
        why = "this node has no such card: enroot's hook 99-mellanox.sh ends the container's start"
        yield warn("mellanox", seen, why, fix)
    elif wrong:
        why = f"{listed(wrong)}: the node has {count}, counted from 0; the hook says `Unknown MELLANOX device id`"
        yield warn("mellanox", seen, why, fix)
