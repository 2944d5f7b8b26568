"""The network between nodes: whether NCCL can use the cards, in this container and with these variables."""

import re
from typing import Iterator

from doctor.cards import (
    cards_of,
    closed_reason,
    judge_mellanox,
    judge_nodes,
    judge_partitions,
    judge_ports,
    judge_slingshot,
    no_card,
)
from doctor.finding import Finding
from doctor.host import Host
from doctor.nccl import judge_interfaces, judge_network_choice, nccl_settings
from doctor.verbs import (
    Verbs,
    ask_verbs,
    judge_gpudirect,
    judge_locked_memory,
    judge_plugin,
    judge_verbs,
    plugins_of,
)


def judge_fabric(host: Host, container: str) -> Iterator[Finding]:
    """Yield whether NCCL can use the cards that the node has; a node without any is fine."""
    cards, settings = cards_of(host), nccl_settings(host)
    slingshot = sorted({*host.names("/sys/class/cxi"), *(name for name in host.names("/dev") if _is_cxi(name))})
    yield from judge_interfaces(host, settings)
    if not container:
        yield from judge_mellanox(host, cards)
    if not cards and not slingshot:
        yield no_card(host)
        yield from judge_network_choice(host, settings, [], by_plugin=False)
        return
    active = [card for card in cards if card.active]
    usable = [card for card in active if not closed_reason(host, card)]
    yield from judge_ports(cards)
    yield from judge_slingshot(host, slingshot, container)
    yield from judge_nodes(host, active, container)
    by_plugin = bool(slingshot) or any(card.provider == "efa" for card in active)
    verbs = ask_verbs(host, plugins_of(settings) if by_plugin else ()) if usable or by_plugin else Verbs()
    yield from judge_verbs(host, usable, verbs, container)
    if by_plugin:
        yield from judge_plugin(verbs, settings, container)
    yield from judge_locked_memory(host, cards, container)
    yield from judge_gpudirect(host, active, verbs)
    yield from judge_partitions(host, active, settings["NCCL_IB_PKEY"].value if "NCCL_IB_PKEY" in settings else "")
    yield from judge_network_choice(host, settings, [port.name for card in active for port in card.active], by_plugin)


def _is_cxi(name: str) -> bool:
    return re.match(r"cxi\d+$", name) is not None
