"""The suite `nccl`: sizes and bandwidths, measured calls over ranks that are threads, and what is made of them."""

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict
from types import SimpleNamespace

import nccl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import collectives, rates, seats
from proof.collectives import Elsewhere, Group
from proof.fabric import Fabric, Port
from proof.nccl_log import Log
from proof.rates import Row, factor, human, sizes, svg, table
from proof.verdict import Fault, Layer, Proof

from tests.unit.suites.ranks_of_threads import World

MIB, GIB = 1 << 20, 1 << 30
HDR = Port("mlx5_0", 1, active=True, layer="InfiniBand", rate=200.0, provider="mlx5")


@pytest.fixture
def quick(monkeypatch):
    """Calls that seem to take a second each, so that none is repeated."""
    monkeypatch.setattr(collectives, "_timed", lambda group, call, repeats: [call() for _ in range(repeats)] and 1.0)


# Bandwidths


@pytest.mark.parametrize(
    ("operation", "world", "share"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 2, 0.5),
        ("reduce_scatter", 8, 0.875),
        ("all_reduce", 1, 0.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation, world, share):
    assert factor(operation, world) == share
    row = Row(operation, GIB, 0.5, 20, world)
    assert (row.algorithm, row.bus) == (2 * GIB, 2 * GIB * share)
    assert row.as_list() == [GIB, 500000.0, 2.147, float(f"{2.147483648 * share:.4g}"), 20]


def test_sizes_go_from_8_bytes_to_the_largest_in_fours():
    assert sizes(GIB, 2)[:3] == [8, 32, 128]
    assert sizes(GIB, 2)[-2:] == [GIB // 2, GIB]
    assert sizes(GIB, 16)[0] == 64  # a number for each rank
    assert len(sizes(GIB, 2)) == 15


@given(st.integers(8, 4 * GIB), st.integers(1, 4096))
def test_each_size_has_a_whole_number_for_each_rank(largest, world):
    found = sizes(largest, world)
    assert all(size % (rates.ITEM * world) == 0 and size > 0 for size in found)
    assert found[-1] <= max(largest, rates.ITEM * world)


def test_table_and_drawing_have_every_row():
    rows = [Row(operation, size, 1e-3, 5, 2) for operation in rates.OPERATIONS for size in (8, MIB, GIB)]
    lines = table(rows)
    assert len(lines) == 10
    assert lines[3] == "all_reduce          1 GiB    1000.0 us1073.742 GB/s1073.742 GB/s        5"
    drawn = ET.fromstring(svg(rows, "a < b", wire=2e12))
    polylines = [each for each in drawn if each.tag.endswith("polyline")]
    assert [len(each.get("points").split()) for each in polylines] == [3, 3, 3]
    assert [each for each in drawn if each.get("stroke-dasharray")]
    assert ET.fromstring(svg([], "none"))


@given(
    st.lists(
        st.builds(
            Row,
            st.sampled_from(rates.OPERATIONS),
            st.integers(4, 1 << 40),
            st.just(0.0) | st.floats(1e-9, 1e3),
            st.just(1),
            st.integers(1, 99),
        )
    ),
    st.floats(0, 1e15),
)
def test_drawing_keeps_its_points_in_its_frame(rows, wire):
    for each in ET.fromstring(svg(rows, "t", wire)):
        for pair in (each.get("points") or "").split():
            x, y = map(float, pair.split(","))
            assert rates.MARGIN - 0.1 <= x <= rates.WIDTH - rates.MARGIN + 0.1
            assert rates.MARGIN - 0.1 <= y <= rates.HEIGHT - rates.MARGIN + 0.1


def test_sizes_are_named_in_their_units():
    assert [human(size) for size in (0, 8, 2048, 3 * MIB, GIB, 1 << 43)] == [
        "0 B",
        "8 B",
        "2 KiB",
        "3 MiB",
        "1 GiB",
        "8192 GiB",
    ]


# Calls over ranks


def measured(world, largest=512, seconds=1.0, backend="gloo"):
    """The results of `measure` for each rank."""

    def body(rank, torch):
        group = Group(torch, rank, world.size, SimpleNamespace(type="cpu"), backend)
        return collectives.measure(group, largest, seconds, Proof("nccl"))

    return world.run(body)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_every_operation_is_measured_at_every_size_over_all_ranks(quick, ranks, backend, monkeypatch):
    monkeypatch.setattr(collectives, "PIECE", 26)  # numbers are compared in several pieces
    results = measured(World(ranks, is_new=ranks == 3), backend=backend)
    rows, left_out = results[0]
    assert [(row.operation, row.size) for row in rows] == [
        (operation, size) for operation in rates.OPERATIONS for size in sizes(512, ranks)
    ]
    assert (left_out, {row.world for row in rows}) == ({}, {ranks})
    assert results == [results[0]] * ranks


@pytest.mark.parametrize("operation", rates.OPERATIONS)
def test_wrong_number_on_one_rank_is_a_fault_on_all(quick, operation):
    def spoil(name, rank, tensor):
        if (name, rank) == (operation, 1) and len(tensor) > 20:
            tensor.view[7] += 1.0

    first, second = measured(World(2, spoil=spoil))
    assert isinstance(first, Elsewhere)
    assert first.layer is second.layer is Layer.NETWORK
    assert str(second).startswith(f"{operation} of ")
    assert str(second).endswith("(rank 1)")
    number = {"all_reduce": "number 7 is", "all_gather": "of rank 1, number 7 is", "reduce_scatter": "number 23 is"}
    if operation == "reduce_scatter":  # counted in the whole
        number[operation] = f"number {int(str(second).split(' of ')[1].split()[0]) // 8 + 7} is"
    assert number[operation] in str(second)


def test_operation_that_gloo_lacks_is_left_out(quick):
    rows, left_out = measured(World(2, lacks=["reduce_scatter"]))[0]
    assert left_out == {"reduce_scatter": "gloo of torch 2.13.0 has none"}
    assert {row.operation for row in rows} == {"all_reduce", "all_gather"}


def test_operation_that_nccl_refuses_is_an_error(quick):
    (error, _) = measured(World(2, lacks=["reduce_scatter"]), backend="nccl")
    assert "does not support" in str(error)


def test_repeats_fill_the_seconds_and_all_ranks_make_as_many(monkeypatch):
    asked = []
    monkeypatch.setattr(
        collectives,
        "_timed",
        lambda group, call, repeats: asked.append((group.rank, repeats)) or 0.02 * (group.rank + 1) * repeats,
    )
    rows, _ = measured(World(2), largest=8)[0]
    assert [row.repeats for row in rows] == [25, 25, 25]  # a second, of 0.04 s of the slowest rank
    assert rows[0].seconds == pytest.approx(0.03)  # the mean of both
    assert sorted(asked)[: len(asked) // 2] == [(0, number) for number in sorted([1, 4, 25] * 3)]


def test_calls_that_are_too_slow_end_an_operation(monkeypatch):
    monkeypatch.setattr(collectives, "_timed", lambda group, call, repeats: 6.0 * repeats)
    rows, left_out = measured(World(2), largest=128)[0]
    assert [(row.operation, row.size, row.repeats) for row in rows] == [(each, 8, 1) for each in rates.OPERATIONS]
    assert left_out["all_reduce"] == "beyond 8 B: a call of that took 6 s"


# What all found


def found(network="Socket", host="n1", ports=(HDR,), reasons=("NCCL_IB_DISABLE=1 turns it off",), **log):
    return {
        "host": host,
        "node": host,
        "log": asdict(Log(network=network, **log)),
        "ports": [str(port) for port in ports],
        "rate": sum(port.rate for port in ports) * 1e9 / 8,
        "slingshot": [],
        "reasons": list(reasons),
    }


def test_tcp_between_nodes_with_active_ports_is_refused_with_each_node_s_reason():
    other = ("libibverbs.so.1 cannot be loaded", "NCCL_IB_DISABLE=1 turns it off")
    every = [found(), found(), found(host="n2"), found(host="n3", reasons=other)]
    assert nccl.objection(every) == (
        "NCCL uses TCP (Socket) between 3 nodes that have mlx5_0:1 (InfiniBand, 200 Gb/s): on n1, n2: "
        "NCCL_IB_DISABLE=1 turns it off | on n3: libibverbs.so.1 cannot be loaded; NCCL_IB_DISABLE=1 turns it off"
    )
    assert nccl.objection([found(network="IB"), found(host="n2")]).endswith("on n2: NCCL_IB_DISABLE=1 turns it off")


@pytest.mark.parametrize(
    "every",
    [
        [found(), found()],  # one node
        [found(network="IB"), found(network="IB", host="n2")],
        [found(ports=()), found(host="n2", ports=())],  # TCP is all there is
        [found(network=""), found(network="", host="n2")],  # gloo
    ],
)
def test_other_networks_are_not_refused(every):
    assert nccl.objection(every) == ""


def test_slingshot_beside_tcp_is_refused():
    every = [{**found(ports=(), host=host), "slingshot": ["cxi0"]} for host in ("n1", "n2")]
    assert nccl.objection(every).startswith("NCCL uses TCP (Socket) between 2 nodes that have cxi0: ")


def reported(every, backend="nccl", world=2, rows=None):
    proof = Proof("nccl")
    group = SimpleNamespace(backend=backend, world=world)
    rows = rows or [Row("all_reduce", GIB, 0.05, 20, world), Row("all_gather", GIB, 0.05, 20, world)]
    nccl.report(group, rows, {}, every, proof)
    return proof


def test_report_has_rates_paths_ports_and_their_share(capsys):
    log = {"devices": {"mlx5_0:1": "IB"}, "transports": {"NET/IB": 2}, "gpudirect": True, "channels": 2}
    proof = reported([found("IB", version="2.21.5", **log), found("IB", host="n2", **log)])
    assert proof.extra["nodes"] == 2
    metrics = proof.metrics
    assert metrics["bus_gb_s"] == {"all_reduce": 21.47, "all_gather": 10.74}
    assert (metrics["ports_gb_s"], metrics["rails"], metrics["share_of_ports"]) == (25.0, 1, 0.859)
    assert metrics["nccl"]["transports"] == {"NET/IB": 4}
    assert metrics["rates"]["all_reduce"] == [[GIB, 50000.0, 21.47, 21.47, 20]]
    told = capsys.readouterr().out
    assert "NCCL 2.21.5: network IB, 2 channels, paths: 4 NET/IB" in told
    assert "GPUDirect RDMA: yes" in told
    assert "all_reduce of 1 GiB reaches 86% of what the ports carry" in told
    assert "NCCL over 2 GPUs of 2 nodes (n1, n2)" in told
    json.dumps(metrics, allow_nan=False)


@pytest.mark.parametrize(
    ("every", "backend", "said"),
    [
        ([found("")], "nccl", "one process alone"),
        (
            [found("", ports=())] * 2,
            "gloo",
            "gloo over 2 processes on 1 node(s): sums are right; nothing is said of bandw",
        ),
        ([found("IB")] * 2, "nccl", "of one node: the network between nodes was not used"),
    ],
)
def test_summary_says_what_was_not_measured(every, backend, said, capsys):
    proof = reported(every, backend, len(every))
    assert said in capsys.readouterr().out
    assert "share_of_ports" not in proof.metrics
    assert ("nccl" in proof.metrics) == (backend == "nccl")


def test_what_a_process_found_goes_through_json(monkeypatch):
    monkeypatch.setattr(nccl.socket, "gethostname", lambda: "n7")
    group = SimpleNamespace(backend="nccl")
    network = Fabric(ports=(HDR,), verbs="no such file")
    told = nccl.seen(group, Log(network="Socket"), network, {"SLURMD_NODENAME": "gpu7", "SLURM_NODEID": "3"})
    assert (told["host"], told["ports"], told["rate"]) == ("gpu7", ["mlx5_0:1 (InfiniBand, 200 Gb/s)"], 25e9)
    assert told["node"].startswith("n7 ")
    assert told["node"].endswith(" 3")
    assert "libibverbs.so.1 cannot be loaded" in told["reasons"][0]
    assert nccl.Log(**json.loads(json.dumps(told))["log"]) == Log(network="Socket")
    assert nccl.seen(SimpleNamespace(backend="gloo"), Log(), network, {})["reasons"] == []


# Who starts whom


@pytest.mark.parametrize(
    ("argv", "code"), [(["--ranks", "0"], 2), (["--most", "7"], 2), (["--most", "x"], 2), (["--device", "tpu"], 2)]
)
def test_wrong_usage_ends_with_2(argv, code, capsys):
    with pytest.raises(SystemExit) as caught:
        nccl.arguments(argv)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("argv", "opened", "chosen", "expected", "count"),
    [
        (["--device", "cpu"], 4, None, True, 2),
        (["--device", "cuda"], 4, None, True, 4),
        ([], 4, "0,1", True, 2),
        ([], 0, None, False, 2),
        (["--device", "cuda"], 0, None, True, 1),  # torch says then why it has none
    ],
)
def test_node_gets_a_process_for_each_gpu_that_opens(argv, opened, chosen, expected, count, monkeypatch):
    monkeypatch.setattr(nccl, "_gpus", lambda: min(opened, 2 if chosen else opened))
    monkeypatch.setattr(nccl.stack, "gpu_expected", lambda: expected)
    assert nccl._processes(nccl.arguments(argv)) == count


def test_half_set_ranks_are_a_verdict(monkeypatch, capsys):
    monkeypatch.setattr(seats.os, "environ", {"RANK": "1"})
    assert nccl.main(["--device", "cpu"]) == 1
    verdict = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (verdict["suite"], verdict["layer"]) == ("nccl", "network")


def test_failed_collective_is_told_with_nccls_own_words_and_reasons(tmp_path, monkeypatch):
    log = tmp_path / "nccl.log"
    log.write_text("n1:1:1 [0] init.cc:290 NCCL WARN Error: network AWS Libfabric not found.\n")
    monkeypatch.setattr(nccl.fabric, "look", lambda: Fabric(ports=(HDR,), verbs="no such file"))
    group = SimpleNamespace(backend="nccl", world=2)
    fault = nccl._explained(RuntimeError("NCCL error: invalid usage"), group, None, log)
    assert str(fault).startswith(
        "RuntimeError: NCCL error: invalid usage; NCCL: Error: network AWS Libfabric not found.; "
    )
    assert "libibverbs.so.1 cannot be loaded" in str(fault)


def test_wrong_sum_of_another_rank_is_told_in_its_words(tmp_path):
    class Store(dict):
        set = dict.__setitem__

        def wait(self, keys, timeout):
            if not set(keys) <= set(self):
                raise RuntimeError("timeout")

    store = Store()
    first = nccl._explained(Elsewhere(Layer.NETWORK, "all_reduce is wrong"), None, store, tmp_path)
    assert str(first) == "all_reduce is wrong"
    nccl._explained(Fault(Layer.NETWORK, "number 7 is 8.0, not 7.0 (rank 1)"), None, store, tmp_path)
    store["fault"] = store["fault"].encode()
    again = nccl._explained(Elsewhere(Layer.NETWORK, "all_reduce is wrong"), None, store, tmp_path)
    assert str(again) == "number 7 is 8.0, not 7.0 (rank 1)"
