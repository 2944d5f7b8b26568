"""NCCL's own log: what is read of each release's wording.

Lines are short ones of our own with the wording of NCCL's sources at the release that each names, and of public logs.
"""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import nccl_log
from proof.nccl_log import Log, merge, read, transport

#: two nodes over InfiniBand, NCCL 2.14.3 (src/init.cc, net.cc, transport/net_ib.cc, transport/net.cc)
IB_2_14 = """\
n1:21:21 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
n1:21:21 [0] NCCL INFO Bootstrap : Using ib0:10.1.0.1<0>
n1:21:21 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
NCCL version 2.14.3+cuda11.7
n1:21:60 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0,mlx5_1
n1:21:60 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.1.0.1<0>
n1:21:60 [0] NCCL INFO Using network IB
n1:21:60 [0] NCCL INFO Channel 00/02 :    0   1   2   3
n1:21:60 [0] NCCL INFO Channel 00/0 : 3[c7000] -> 0[7000] [receive] via NET/IB/0/GDRDMA
n1:21:60 [0] NCCL INFO Channel 00 : 0[7000] -> 1[f000] via SHM/direct/direct
n1:21:60 [0] NCCL INFO Channel 01/0 : 0[7000] -> 1[f000] via P2P/IPC/read
n1:21:60 [0] NCCL INFO Channel 01/0 : 0[7000] -> 2[7000] [send] via NET/IB/1/GDRDMA
n1:21:60 [0] NCCL INFO 2 coll channels, 2 p2p channels, 1 p2p channels per peer
n1:21:60 [0] NCCL INFO comm 0x5581 rank 0 nranks 4 cudaDev 0 busId 7000 - Init COMPLETE
"""
#: RoCE, GPUDirect of one of two channels, NCCL 2.19.3 (transport/net_ib.cc, net.cc)
ROCE_2_19 = """\
n1:33:33 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.1<0>
n1:33:33 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file No plugin found
NCCL version 2.19.3+cuda12.3
n1:33:71 [0] NCCL INFO NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB eth0:10.2.0.1<0>
n1:33:71 [0] NCCL INFO Using non-device net plugin version 0
n1:33:71 [0] NCCL INFO Using network IB
n1:33:71 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
n1:33:71 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1
n1:33:71 [0] NCCL INFO 2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer
"""
#: no libibverbs, NCCL 2.21.5 (misc/ibvsymbols.cc, transport/net_socket.cc)
SOCKET_2_21 = """\
n1:40:40 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.1<0>
NCCL version 2.21.5+cuda12.4
n1:40:55 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
n1:40:55 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file
n1:40:55 [0] NCCL INFO NET/Plugin: Using internal network plugin.
n1:40:55 [0] NCCL INFO Failed to open libibverbs.so[.1]
n1:40:55 [0] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.1<0> [1]ib0:10.1.0.1<0>
n1:40:55 [0] NCCL INFO Using non-device net plugin version 0
n1:40:55 [0] NCCL INFO Using network Socket
n1:40:55 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/1
"""
#: a plugin, NCCL 2.27.7 (plugin/net.cc, plugin/net/net_v10.cc) with aws-ofi-nccl 1.14
EFA_2_27 = """\
n1:50:50 [0] NCCL INFO Bootstrap: Using eth0:10.3.0.1<0>
n1:50:50 [0] NCCL INFO NCCL version 2.27.7+cuda12.9
n1:50:66 [0] NCCL INFO NCCL_NET_PLUGIN set by environment to ofi
n1:50:66 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)
n1:50:66 [0] NCCL INFO Successfully loaded external plugin libnccl-net-ofi.so
n1:50:66 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)
n1:50:66 [0] NCCL INFO Initialized NET plugin Libfabric
n1:50:66 [0] NCCL INFO Assigned NET plugin Libfabric to comm
n1:50:66 [0] NCCL INFO Using network Libfabric
n1:50:66 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0(3)/GDRDMA/Shared
n1:50:66 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
n1:50:66 [0] NCCL INFO 8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 1 p2p channels per peer
"""
#: a plugin that is not there, ports that are not given, NCCL 2.30.7 (plugin/plugin_open.cc, transport/net_ib/init.cc)
SOCKET_2_30 = """\
[2026-09-10 10:00:00] n1:60:60 [0] NCCL INFO NCCL version 2.30.7+cuda13.0
n1:60:77 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net-ofi.so
n1:60:77 [0] NCCL INFO NET/IB : No device found.
n1:60:77 [0] NCCL INFO NET/IB : Using ; OOB eth0:10.4.0.1<0>
n1:60:77 [0] NCCL INFO Failed to initialize NET plugin IB
n1:60:77 [0] NCCL INFO NET/Socket : Using [0]eth0:10.4.0.1<0>
n1:60:77 [0] NCCL INFO Initialized NET plugin Socket
n1:60:77 [0] NCCL INFO Using network Socket
"""
#: ports with rail and plane, GPUDirect by PCI, NCCL 2.30 (transport/net_ib/init.cc, transport/net.cc)
RAILS_2_30 = """\
n1:61:61 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1:0:1/IB [1]mlx5_1:1::2/IB [2]mlx5_2:1/RoCE [RO]; OOB eth0:10.4.0.1<0>
n1:61:61 [0] NCCL INFO Using network IB
n1:61:61 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/2/GDRDMA(PCI)
"""


def test_log_of_2_14_over_infiniband_is_read():
    assert asdict(read(IB_2_14)) == {
        **asdict(Log()),
        "version": "2.14.3+cuda11.7",
        "network": "IB",
        "devices": {"mlx5_0:1": "IB", "mlx5_1:1": "IB"},
        "interfaces": ["ib0"],
        "transports": {"SHM": 1, "P2P/IPC": 1, "NET/IB": 1},
        "gpudirect": True,
        "channels": 2,
        "variables": {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_HCA": "mlx5_0,mlx5_1"},
        "plugin_absent": True,
        "plugin_lines": ["NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"],
    }


def test_log_of_2_19_over_roce_has_gpudirect_only_where_all_connections_have():
    log = read(ROCE_2_19)
    assert (log.network, log.devices) == ("IB", {"mlx5_10:1": "RoCE", "mlx5_11:1": "RoCE"})
    assert (log.transports, log.gpudirect, log.channels) == ({"NET/IB": 2}, False, 2)


def test_log_of_2_21_without_libibverbs_names_socket_and_its_interfaces():
    log = read(SOCKET_2_21)
    assert (log.network, log.verbs_absent, log.no_device, log.plugin_absent) == ("Socket", True, False, True)
    assert log.interfaces == ["eth0", "ib0"]
    assert log.gpudirect is False


def test_log_of_2_27_with_a_plugin_has_its_name_and_lines():
    log = read(EFA_2_27)
    assert (log.version, log.network, log.plugin, log.plugin_absent) == (
        "2.27.7+cuda12.9",
        "Libfabric",
        "Libfabric",
        False,
    )
    assert (log.transports, log.gpudirect) == ({"NET/Libfabric": 1, "P2P/CUMEM": 1}, True)
    assert log.variables == {"NCCL_NET_PLUGIN": "ofi"}
    assert "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)" in log.plugin_lines
    old = "n1:1:1 [0] NCCL INFO Channel 00/0 : 7[0] -> 8[0] [send] via NET/AWS Libfabric/0\n"
    assert read("n1:1:1 [0] NCCL INFO Using network AWS Libfabric\n" + old).transports == {"NET/AWS Libfabric": 1}


def test_log_of_2_30_without_plugin_and_ports_is_socket():
    log = read(SOCKET_2_30)
    assert (log.version, log.network) == ("2.30.7+cuda13.0", "Socket")
    assert (log.plugin_absent, log.no_device, log.verbs_absent, log.devices) == (True, True, False, {})
    assert "Failed to initialize NET plugin IB" in log.plugin_lines


def test_log_of_2_30_with_rails_and_planes_gives_device_and_port():
    log = read(RAILS_2_30)
    assert log.devices == {"mlx5_0:1": "IB", "mlx5_1:1": "IB", "mlx5_2:1": "RoCE"}
    assert log.gpudirect is True


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("Failed to open libibverbs.so[.1]", True),  # 2.14 to 2.29
        ("Count not open libibverbs.so.1", True),  # 2.30, as it is written there
        ("Count not open libibverbs.so", False),  # 2.30: the next name is tried
    ],
)
def test_each_release_s_words_for_a_missing_libibverbs_are_known(line, absent):
    assert read(f"n1:1:1 [0] NCCL INFO {line}").verbs_absent is absent


def test_warnings_are_kept_once_and_cut():
    many = "".join(
        f"\n[2026-01-01 00:00:00] n1:1:2 [0] net.cc:{n} NCCL WARN Call {n % 30} failed {'x' * 400}\n" for n in range(60)
    )
    log = read("n1:1:1 [0] init.cc:290 NCCL WARN Error: network AWS Libfabric not found.\n" + many)
    assert log.warnings[0] == "Error: network AWS Libfabric not found."  # 2.14 to 2.26
    assert len(log.warnings) == nccl_log.MOST_LINES
    assert max(map(len, log.warnings)) == nccl_log.MOST_LETTERS


@pytest.mark.parametrize(
    ("via", "read_as"),
    [
        ("NET/IB/0", ("NET/IB", False)),
        ("NET/IB/0(3)/GDRDMA/Shared", ("NET/IB", True)),
        ("NET/Socket/1", ("NET/Socket", False)),
        ("P2P/direct pointer/read", ("P2P/direct", False)),
        ("P2P/CUMEM/read", ("P2P/CUMEM", False)),
        ("SHM/direct/direct", ("SHM", False)),
        ("direct shared memory", ("direct", False)),  # before 2.8
    ],
)
def test_paths_between_ranks_are_told_apart(via, read_as):
    assert transport(via) == read_as


def test_merged_logs_name_every_network_and_gpudirect_of_all():
    whole = merge([read(IB_2_14), read(SOCKET_2_21), Log()])
    assert (whole.network, whole.gpudirect, whole.verbs_absent, whole.channels) == ("IB, Socket", False, True, 2)
    assert whole.transports == {"SHM": 1, "P2P/IPC": 1, "NET/IB": 1, "NET/Socket": 1}
    assert whole.interfaces == ["ib0", "eth0"]
    assert merge([]) == Log()


@given(st.lists(st.sampled_from((*IB_2_14.splitlines(), *EFA_2_27.splitlines())) | st.text(max_size=60)))
def test_any_text_is_read(lines):
    log = read("\n".join(lines))
    assert merge([log, log]).devices == log.devices


@pytest.mark.parametrize("words", ["via", "Channel", "NET/", "Bootstrap : Using", "NCCL_X set to", "NET/IB : Using ["])
@given(tail=st.text(max_size=40))
def test_lines_that_are_cut_off_are_read(words, tail):
    read(f"n1:1:1 [0] NCCL INFO {words}{tail}")
