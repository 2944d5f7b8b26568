"""The network between nodes as a suite finds it, and why NCCL does not use it: made-up /sys, /dev and logs."""

import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import fabric
from proof.fabric import Fabric, Port, look, rails, reasons
from proof.nccl_log import Log

MIB = 1 << 20
SOCKET = Log(network="Socket", plugin_absent=True)
IB = Port("mlx5_0", 1, active=True, layer="InfiniBand", rate=200.0, provider="mlx5")
ROCE = Port("mlx5_1", 1, active=True, layer="Ethernet", rate=100.0, provider="mlx5")
EFA = Port("rdmap0s6", 1, active=True, layer="Unspecified", rate=100.0, provider="efa")
ERDMA = Port("erdma_0", 1, active=True, layer="Ethernet", rate=100.0, provider="erdma")


def sound(*ports, **changed):
    """A node of which nothing keeps NCCL from its ports."""
    known = {"providers": ("efa", "erdma", "mlx4", "mlx5"), "nodes": {port.device: "" for port in ports}}
    return Fabric(ports=ports, **{**known, **changed})


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Folders of a made-up node, and a function that adds a card; libibverbs opens."""

    class Node:
        sys, dev, root = tmp_path / "sys", tmp_path / "dev", tmp_path / "root"

        def card(self, name, *ports, driver="mlx5_core", number=0, node=True):
            folder = self.sys / "class/infiniband" / name
            (self.sys / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "device").mkdir(parents=True)
            if driver:
                (folder / "device/driver").symlink_to(self.sys / "drivers" / driver)
            for place, (state, layer, rate) in enumerate(ports, 1):
                port = folder / "ports" / str(place)
                port.mkdir(parents=True)
                for file, text in (("state", state), ("link_layer", layer), ("rate", rate)):
                    (port / file).write_text(text + "\n")
            verbs = self.sys / f"class/infiniband_verbs/uverbs{number}"
            verbs.mkdir(parents=True)
            (verbs / "ibdev").write_text(name + "\n")
            (self.dev / "infiniband").mkdir(parents=True, exist_ok=True)
            if node:
                (self.dev / f"infiniband/uverbs{number}").touch()

        def provider(self, name, *, library=True):
            (self.root / "etc/libibverbs.d").mkdir(parents=True, exist_ok=True)
            (self.root / f"etc/libibverbs.d/{name}.driver").write_text(f"driver {name}\n")
            folder = self.root / "usr/lib/x86_64-linux-gnu/libibverbs"
            folder.mkdir(parents=True, exist_ok=True)
            if library:
                (folder / f"lib{name}-rdmav34.so").touch()

        def look(self):
            return look(self.sys, self.dev, self.root)

    monkeypatch.setattr(fabric, "VERBS", "libc.so.6")
    monkeypatch.setattr(fabric.resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return Node()


UP, DOWN = "4: ACTIVE", "1: DOWN"
HDR, EDR = "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)"


def test_ports_rates_providers_and_device_nodes_are_read(node):
    node.card("mlx5_0", (UP, "InfiniBand", HDR))
    node.card("mlx5_1", (DOWN, "InfiniBand", "10 Gb/sec (4X SDR)"), (UP, "Ethernet", EDR), number=1, node=False)
    node.card("rdmap0s6", (UP, "Unspecified", EDR), driver="efa", number=2)
    node.provider("mlx5")
    node.provider("erdma", library=False)
    seen = node.look()
    assert [str(port) for port in seen.active] == [
        "mlx5_0:1 (InfiniBand, 200 Gb/s)",
        "mlx5_1:2 (RoCE, 100 Gb/s)",
        "rdmap0s6:1 (EFA, 100 Gb/s)",
    ]
    assert [port.provider for port in seen.ports] == ["mlx5", "mlx5", "mlx5", "efa"]
    assert (seen.providers, seen.memlock, seen.verbs, seen.is_there) == (("mlx5",), -1, "", True)
    assert seen.nodes == {
        "mlx5_0": "",
        "mlx5_1": f"{node.dev}/infiniband/uverbs1 is not there",
        "rdmap0s6": "",
    }
    assert fabric.bytes_per_second(seen.active) == 50e9


def test_node_without_cards_has_no_fabric(node):
    seen = node.look()
    assert (seen.ports, seen.slingshot, seen.is_there) == ((), (), False)
    assert reasons(seen, SOCKET, {"NCCL_IB_DISABLE": "1"}) == [
        "NCCL_IB_DISABLE=1 turns it off: unset it (/etc/nccl.conf may set it too)"
    ]
    assert reasons(seen, SOCKET, {}) == []


def test_slingshot_devices_are_found(node):
    (node.sys / "class/cxi/cxi0").mkdir(parents=True)
    assert node.look().is_there


@pytest.mark.parametrize(
    ("state", "layer", "rate"), [("", "", ""), ("4: ACTIVE", "InfiniBand", "."), (UP, "x", "1.2.3 Gb")]
)
def test_port_with_files_of_another_form_has_no_rate(node, state, layer, rate):
    node.card("mlx5_0", (state, layer, rate), driver="")
    (port,) = node.look().ports
    assert port.rate == 0.0


def test_rails_are_the_ports_that_nccl_names():
    seen = sound(IB, ROCE)
    assert rails(seen, Log(devices={"mlx5_1:1": "RoCE"})) == [ROCE]
    assert rails(seen, Log(devices={"other:1": "IB"})) == [IB, ROCE]
    assert fabric.bytes_per_second(rails(seen, Log())) == 300e9 / 8


# Each reason


def only(found):
    (reason,) = found
    return reason


def test_missing_libibverbs_is_the_reason(node, monkeypatch):
    node.card("mlx5_0", (UP, "InfiniBand", HDR))
    monkeypatch.setattr(fabric, "VERBS", "libibverbs-absent.so.1")
    reason = only(reasons(node.look(), SOCKET, {}))
    assert "libibverbs-absent.so.1 cannot be loaded in this image" in reason
    assert "cannot open shared object file" in reason
    assert "libibverbs1, ibverbs-providers and librdmacm1 of Debian" in reason
    assert "NCCL could not open it" in only(reasons(sound(IB), Log(network="Socket", verbs_absent=True), {}))


def test_missing_provider_is_the_reason(node):
    node.card("erdma_0", (UP, "Ethernet", EDR), driver="erdma")
    node.provider("mlx5")
    reason = only(reasons(node.look(), SOCKET, {}))
    assert "libibverbs has no provider erdma for erdma_0 (there are: mlx5)" in reason
    assert "of bookworm or later" in reason
    assert reasons(sound(ERDMA), SOCKET, {}) != [reason]


def test_missing_device_node_is_the_reason(node):
    node.card("mlx5_0", (UP, "InfiniBand", HDR), node=False)
    node.provider("mlx5")
    reason = only(reasons(node.look(), SOCKET, {}))
    assert reason.startswith(f"{node.dev}/infiniband/uverbs0 is not there: `docker run --device=/dev/infiniband`")
    assert "MELLANOX_VISIBLE_DEVICES=all" in reason


def test_closed_device_node_is_the_reason(node, monkeypatch):
    node.card("mlx5_0", (UP, "InfiniBand", HDR))
    node.provider("mlx5")

    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    assert "uverbs0 cannot be opened: Permission denied: " in only(reasons(node.look(), SOCKET, {}))


def test_small_memlock_limit_is_the_reason(node, monkeypatch):
    node.card("mlx5_0", (UP, "InfiniBand", HDR))
    node.provider("mlx5")
    monkeypatch.setattr(fabric.resource, "getrlimit", lambda _: (64 << 10, 64 << 10))
    reason = only(reasons(node.look(), SOCKET, {}))
    assert "only 64 KiB may be pinned (ulimit -l): `docker run --ulimit memlock=-1:-1`" in reason
    assert "PropagateResourceLimitsExcept=MEMLOCK" in reason


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"NCCL_NET": "AWS Libfabric"}, "NCCL_NET=AWS Libfabric asks for a plugin"),
        ({"NCCL_NET_PLUGIN": "ofi"}, "NCCL_NET_PLUGIN=ofi asks for a plugin"),
    ],
)
def test_absent_plugin_that_is_asked_for_is_the_reason(variables, asked):
    reason = only(reasons(sound(IB), SOCKET, variables))
    assert reason.startswith(asked)
    assert "bind in the site's libnccl-net.so" in reason
    # a plugin that is there, and none at all, are no reason
    assert asked not in only(reasons(sound(IB), Log(network="Socket", plugin="Libfabric"), variables))
    for builtin in ({"NCCL_NET": "IB"}, {"NCCL_NET_PLUGIN": "none"}):
        assert "asks for a plugin" not in only(reasons(sound(IB), SOCKET, builtin))


@pytest.mark.parametrize(("seen", "name"), [(sound(EFA), "EFA"), (Fabric(slingshot=("cxi0",)), "Slingshot")])
def test_absent_plugin_that_the_card_needs_is_the_reason(seen, name):
    reason = only(reasons(seen, SOCKET, {}))
    assert f"NCCL reaches {name} by a plugin alone" in reason
    assert 'NCCL_NET="AWS Libfabric" makes NCCL fail instead' in reason
    assert "nothing that is known explains it" in only(reasons(seen, Log(network="Socket", plugin="Libfabric"), {}))


@pytest.mark.parametrize(
    ("environment", "log", "reason"),
    [
        ({"NCCL_IB_DISABLE": "1"}, SOCKET, "NCCL_IB_DISABLE=1 turns it off: unset it"),
        ({}, Log(network="Socket", variables={"NCCL_IB_DISABLE": "1"}), "NCCL_IB_DISABLE=1 turns it off"),
        ({"NCCL_NET": "Socket"}, SOCKET, "NCCL_NET=Socket asks for TCP: unset it"),
        ({"NCCL_IB_HCA": "mlx5_9"}, SOCKET, "NCCL_IB_HCA=mlx5_9 matches no port that is up (there are: mlx5_0:1)"),
    ],
)
def test_variable_that_turns_the_network_off_is_the_reason(environment, log, reason):
    assert only(reasons(sound(IB), log, environment)).startswith(reason)


def test_variables_that_turn_nothing_off_are_no_reason():
    given_ = {"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB", "NCCL_IB_HCA": "mlx5", "OTHER_IB_DISABLE": "1"}
    log = Log(network="Socket", no_device=True)
    assert only(reasons(sound(IB), log, given_)).startswith("libibverbs gives NCCL no port, and nothing that is known")


def test_reasons_come_in_their_order():
    seen = sound(IB, verbs="", providers=(), nodes={"mlx5_0": "/dev/infiniband/uverbs0 is not there"}, memlock=8 * MIB)
    begin = [
        "libibverbs has no provider",
        "/dev/infiniband/uverbs0",
        "only 8192 KiB",
        "NCCL_NET=x",
        "NCCL_IB_DISABLE=1",
    ]
    found = reasons(seen, SOCKET, {"NCCL_NET": "x", "NCCL_IB_DISABLE": "1"})
    assert [text.startswith(words) for text, words in zip(found, begin, strict=True)] == [True] * 5


@pytest.mark.parametrize(
    ("chosen", "hit"),
    [
        ("mlx5", True),
        ("mlx5_0", True),
        ("mlx5_0:1", True),
        ("mlx5_0:2", False),
        ("=mlx5", False),
        ("=mlx5_0", True),
        ("mlx4_0,mlx5_0", True),
        ("^mlx5_0", False),
        ("^mlx5_1", True),
        ("^=mlx5", True),
    ],
)
def test_nccl_ib_hca_is_matched_as_nccl_does(chosen, hit):
    assert fabric.is_chosen(IB, chosen) is hit


@given(st.dictionaries(st.sampled_from(["NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_NET_PLUGIN"]), st.text()))
def test_any_variables_give_reasons(environment):
    assert reasons(sound(IB), SOCKET, environment)
