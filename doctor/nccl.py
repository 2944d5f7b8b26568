"""NCCL's variables and files, against what the machine has."""

import re
from typing import Dict, Iterator, List, NamedTuple, Sequence

from doctor.finding import Finding, fail, listed, warn
from doctor.host import Host

NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


class Setting(NamedTuple):
    """A value, and the file that it is from; empty for the environment."""

    value: str
    file: str = ""

    def undo(self, name: str) -> str:
        """Say how to be rid of it."""
        return f"take {name} out of {self.file}" if self.file else f"unset {name}"


def nccl_settings(host: Host) -> Dict[str, Setting]:
    """NCCL_* and GLOO_*: of the environment, else of NCCL's file, ~/.nccl.conf, else of /etc/nccl.conf."""
    found = {
        name: Setting(value)
        for name, value in host.environment.items()
        if name.startswith(("NCCL_", "GLOO_")) and value
    }
    own = found["NCCL_CONF_FILE"].value if "NCCL_CONF_FILE" in found else host.home() + "/.nccl.conf"
    for file in (own, "/etc/nccl.conf"):
        for name, value in re.findall(r"^(NCCL_\w+)=(.+?)\s*$", host.read(file) or "", re.MULTILINE):
            found.setdefault(name, Setting(value, file))
    return found


def chosen_of(value: str, names: Sequence[str]) -> List[str]:
    """The names that NCCL takes by such a list: `^` leaves out, `=` takes whole names, else beginnings; `mlx5_0:1`."""
    leaves_out = value.startswith("^")
    rest = value[1:] if leaves_out else value
    whole = rest.startswith("=")
    rest = rest[1:] if whole else rest
    wanted = [part.partition(":")[::2] for part in rest.split(",") if part]

    def fits(name: str) -> bool:
        own, _, port = name.partition(":")
        return any(
            (own == beginning if whole else own.startswith(beginning)) and (not number or not port or number == port)
            for beginning, number in wanted
        )

    return [name for name in names if not wanted or fits(name) != leaves_out]


def judge_interfaces(host: Host, settings: Dict[str, Setting]) -> Iterator[Finding]:
    """Interfaces that are named and not there: nothing starts then, on one node neither."""
    there = host.names("/sys/class/net")
    fix = "ip -brief address    shows what there is"
    if not there:
        return
    nccl = settings.get("NCCL_SOCKET_IFNAME")
    if nccl and len(nccl.value) > 1 and not chosen_of(nccl.value, there):
        why = f"this machine has {listed(there)}: NCCL ends with `Bootstrap : no socket interface found`"
        name = "NCCL_SOCKET_IFNAME"
        yield fail("nccl-interface", f"{name}={nccl.value} fits no interface", why, f"{nccl.undo(name)}; {fix}")
    gloo = settings.get("GLOO_SOCKET_IFNAME")
    absent = [name for name in gloo.value.split(",") if name not in there] if gloo else []
    if gloo and absent:
        why = f"this machine has {listed(there)}: gloo ends with `Unable to find address for: {absent[0]}`"
        name = "GLOO_SOCKET_IFNAME"
        yield fail("gloo-interface", f"{name}={gloo.value}", why, f"{gloo.undo(name)}; {fix}")


def judge_network_choice(
    host: Host, settings: Dict[str, Setting], ports: Sequence[str], by_plugin: bool
) -> Iterator[Finding]:
    """Variables that keep NCCL from the cards that are there. `ports`: those of active cards, `mlx5_0:1`."""
    disabled, net = settings.get("NCCL_IB_DISABLE"), settings.get("NCCL_NET")
    if disabled and disabled.value == "1" and ports and not by_plugin:
        why = "NCCL then leaves InfiniBand, RoCE and eRDMA alone and uses TCP"
        yield warn("nccl-ib-disable", "NCCL_IB_DISABLE=1", why, disabled.undo("NCCL_IB_DISABLE"))
    if net and net.value.lower() == "socket" and (ports or by_plugin):
        yield warn("nccl-net", f"NCCL_NET={net.value}", "NCCL then uses TCP alone", net.undo("NCCL_NET"))
    elif net and net.value.lower() == "ib" and not ports:
        why = "no card of that kind is active: NCCL ends with `Failed to initialize any NET plugin`"
        yield fail("nccl-net", f"NCCL_NET={net.value}", why, net.undo("NCCL_NET"))
    cards = settings.get("NCCL_IB_HCA")
    if cards and ports and not chosen_of(cards.value, ports):
        why = f"the active ports are {listed(ports)}: NCCL says `NET/IB : No device found` and uses TCP"
        yield warn("nccl-hca", f"NCCL_IB_HCA={cards.value} fits none", why, cards.undo("NCCL_IB_HCA"))
    yield from _gid(host, settings, ports)


def _gid(host: Host, settings: Dict[str, Setting], ports: Sequence[str]) -> Iterator[Finding]:
    index = settings.get("NCCL_IB_GID_INDEX")
    if index is None or not index.value.isdigit():
        return
    chosen = chosen_of(settings["NCCL_IB_HCA"].value, ports) if "NCCL_IB_HCA" in settings else list(ports)
    empty = []
    for port in chosen:
        card, _, number = port.partition(":")
        folder = f"/sys/class/infiniband/{card}/ports/{number}"
        is_ethernet = (host.read(folder + "/link_layer") or "").strip() == "Ethernet"
        if is_ethernet and host.names(folder + "/gids"):
            gid = (host.read(f"{folder}/gids/{index.value}") or "").strip()
            empty += [port] if gid in ("", NO_GID) else []
    if empty:
        why = "NCCL ends with `ibv_modify_qp failed`: Invalid argument, or No data available"
        name = "NCCL_IB_GID_INDEX"
        seen = f"{name}={index.value} is empty at {listed(empty)}"
        yield warn("nccl-gid", seen, why, f"{index.undo(name)}    (NCCL 2.21 and newer choose it); show_gids")
