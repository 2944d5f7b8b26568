"""The parts of examples/glt/ that need neither torch nor other hosts; the rest runs in images with GLT."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import glt_distributed as check
import pytest
from glt import launch, partition, train_distributed
from proof import graphs, hosts, machine, neighbours, node, ogb_files, partitions, ranks, sources, supervised
from proof.partitions import Partitions, Request
from proof.supervised import Meeting
from proof.verdict import Fault, Layer, Proof

from tests.unit.suites.test_glt_check import first_neighbours

REQUEST = Request("generated", "", 2, 0)
PART = {"nodes": 5, "edges": 9, "bytes": 100, "train": 3, "valid": 1, "test": 1}
FOUND = Partitions(REQUEST, "a" * 64, "b" * 64, 10, 18, 4, 3, (PART, {**PART, "train": 2}), {"torch": "2.3.1"})


def written(folder, **changes):
    """A folder that says it has FOUND."""
    folder.mkdir()
    fields = {"format": 1, **vars(FOUND), "request": vars(REQUEST), **changes}
    (folder / "partitions.json").write_text(json.dumps(fields))
    return folder


# Partitions


def test_partition_folder_is_read_back_and_missing_or_invalid_ones_are_faults(tmp_path):
    assert partitions.read(written(tmp_path / "parts")) == FOUND
    for folder, message in (
        (written(tmp_path / "new", format=2), "of another version"),
        (written(tmp_path / "odd", request={"no": 1}), "cannot be read"),
        (tmp_path / "absent", "is not there; partition a graph first"),
        (tmp_path, r"it has no partitions\.json"),
    ):
        with pytest.raises(Fault, match=message) as caught:
            partitions.read(folder)
        assert caught.value.layer is Layer.DATA


def test_partition_folder_for_another_node_count_is_a_fault_with_a_command(tmp_path):
    partitions.check_number(FOUND, 2, tmp_path)
    with pytest.raises(Fault, match="was made for 2 nodes, and this training has 3") as caught:
        partitions.check_number(FOUND, 3, tmp_path / "parts")
    told = partition.arguments(re.search(r"partition\.py (--dataset .*)$", str(caught.value))[1].split())
    assert (told.dataset, told.num_partitions, told.output) == ("generated", 3, tmp_path / "parts-in-3")


def test_existing_partition_folder_of_another_request_is_a_fault(tmp_path):
    assert not partitions.is_there(tmp_path / "absent", REQUEST)
    assert not partitions.is_there(tmp_path, REQUEST)
    folder = written(tmp_path / "parts")
    assert partitions.is_there(folder, REQUEST)
    with pytest.raises(Fault, match=r"it is generated in 2 partitions, seed 0; asked for is generated in 2 partit.* 1"):
        partitions.is_there(folder, Request("generated", "", 2, 1))
    with pytest.raises(Fault, match="is no folder with partitions"):
        partitions.is_there(tmp_path, REQUEST)


# Where a graph comes from


def test_graph_source_is_found_by_name_or_path(tmp_path):
    assert sources.find("generated", tmp_path).sha256() == ""
    assert sources.find("ogbn-products", tmp_path).root == tmp_path
    (tmp_path / "x.npy").write_bytes(b"1")
    assert sources.find(str(tmp_path / "x.npy"), tmp_path).sha256().startswith("6b86b273")
    for name, message in (
        ("ogbn-arxiv", "neither generated, ogbn-products, ogbn-papers100M nor a folder nor a file"),
        (str(tmp_path), r"lacks edge_index\.npy, y\.npy"),
    ):
        with pytest.raises(Fault, match=message):
            sources.find(name, tmp_path)


def test_missing_ogb_files_are_named(tmp_path):
    folder = tmp_path / "ogbn_products"
    for name in ogb_files.NAMES["ogbn-products"][1:]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    assert ogb_files.missing("ogbn-products", folder) == ["RELEASE_v1.txt"]


# A node's place, ports and shares


def options(*argv):
    return train_distributed.arguments(["--dataset", "parts", *argv])


STEP = {"JOB_ID": "7", "STEP_ID": "0", "PROCID": "1", "LOCALID": "0", "STEP_NUM_TASKS": "2"}
STEP |= {"STEP_NODELIST": "n[1-2]", "STEP_TASKS_PER_NODE": "1(x2)"}


def test_node_rank_and_ports_follow_pai_options_or_srun():
    told = options("--num_nodes=2", "--node_rank=1", "--master_addr=job-master-0", "--training_pg_master_port=12345")
    environment = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
    place = node.find_place(told, environment)
    assert (place.rank, place.world, place.address) == (1, 2, "job-master-0")
    assert list(node.choose_ports(told, place).values()) == [12345, 12346, 12347]
    place = node.find_place(options(), {f"SLURM_{name}": value for name, value in STEP.items()})
    assert (place.rank, place.world, place.address) == (1, 2, "n1")
    ports = list(node.choose_ports(options(), place).values())
    assert ports == list(range(place.port, place.port + ranks.PORTS_OF_A_JOB))


def test_incomplete_node_options_or_equal_ports_are_refused():
    for argv, message in (
        (["--num_nodes=2"], "wants --node_rank"),
        (["--num_nodes=2", "--node_rank=2", "--master_addr=a"], "is not one of 2 nodes"),
        (["--num_nodes=0", "--node_rank=0"], "0 nodes"),
        (["--training_pg_master_port=5000", "--test_loader_master_port=5000"], "must be different ones"),
    ):
        with pytest.raises(Fault, match=message):
            node.choose_ports(options(*argv), node.find_place(options(*argv), {}))


def test_port_in_use_is_a_fault_with_its_option():
    with machine.free_ports(1) as (port,), machine.socket.socket() as listener:
        machine.check_ports({"--test_loader_master_port": port})
        listener.setsockopt(machine.socket.SOL_SOCKET, machine.socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        said = f"port {port} of .* is in use by another program.*--test_loader_master_port"
        with pytest.raises(Fault, match=said) as caught:
            machine.check_ports({"--test_loader_master_port": port})
    assert caught.value.layer is Layer.NETWORK


def test_master_name_that_resolves_to_loopback_is_a_network_fault():
    srun = ranks.Place(0, 2, 0, 1, "n1", 20000, "srun")
    said = r"'n1', the name of node 0, is an address of loopback .*--master_addr.*MASTER_ADDR"
    with pytest.raises(Fault, match=said) as caught:
        node.check_interface("lo", srun)
    assert caught.value.layer is Layer.NETWORK
    for interface, place in (
        *(("eth0", srun), ("", srun), ("lo", ranks.Place())),  # one machine, or who asks for it
        ("lo", ranks.Place(0, 2, 0, 2, "n1", 20000, "srun")),
        ("lo", ranks.Place(0, 2, 0, 0, "n1", 20000, "by hand")),
        *(("lo", ranks.Place(1, 2, 0, 1, f"127.0.{last}.1", 20000, "by node")) for last in (0, 1)),
        ("lo", ranks.Place(1, 2, 0, 1, "localhost", 20000, "by node")),
    ):
        node.check_interface(interface, place)


@pytest.mark.parametrize(("argv", "first"), [([], 0), (["--gpu=1"], 1), (["--gpu=3"], 1)])
def test_partition_is_loaded_with_the_nodes_gpu_current(argv, first, monkeypatch):
    """GLT keeps features with the current GPU, and the training's process samples there (--sampling=collocated)."""
    done = []
    cuda = SimpleNamespace(device_count=lambda: 2, set_device=lambda index: done.append(("current", index)))
    for name in ("machine.check_ports", "glt.prepare", "glt.load_glt", "stack.load_pyg", "_share_cores"):
        monkeypatch.setattr(f"proof.node.{name}", lambda *_: None)
    for name, value in (
        ("partitions.read", lambda folder: FOUND),
        ("stack.load_torch", lambda proof: SimpleNamespace(cuda=cuda)),
        ("stack.choose_device", lambda *_: SimpleNamespace(type="cuda")),
        ("supervised.load_dataset", lambda *_: done.append("loaded")),
        ("_work", lambda *given: done.append(given[4]) or {}),
    ):
        monkeypatch.setattr(f"proof.node.{name}", value)
    told = ["--num_nodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "--num_training_procs=1"]
    node.run(options(*told, "--sampling=collocated", *argv), Proof("glt-train"))
    assert done == [("current", first), "loaded", (0, options(*argv).gpu)]


def test_channels_or_process_counts_against_the_folder_are_faults():
    node._check_channels(options("--in_channel=4", "--out_channel=3"), FOUND)
    with pytest.raises(Fault, match="--in_channel=100, and parts has 4"):
        node._check_channels(options("--in_channel=100"), FOUND)
    with pytest.raises(Fault, match="3 processes on each node are more than"):
        node._check_sizes(options(), FOUND, Meeting(2, 0, 3, "a", 1, 2, 3), Proof("glt-train"))
    assert supervised.shares(FOUND, "train", Meeting(2, 0, 2, "a", 1, 2, 3)) == [2, 1, 1, 1]


def test_too_little_shared_memory_names_collocated_sampling(monkeypatch):
    given = FOUND, Meeting(2, 0, 1, "a", 1, 2, 3), Proof("glt-train")
    check_of = machine.check_shared_memory
    monkeypatch.setattr(machine, "check_shared_memory", lambda needed: check_of(needed, Path("/proc")))
    with pytest.raises(Fault, match=r"--shm-size=1g.*--sampling=collocated") as caught:
        node._check_sizes(options(), *given)
    assert caught.value.layer is Layer.MACHINE
    node._check_sizes(options("--sampling=collocated"), *given)


# The suite's judgement


GRAPH = graphs.generate()
SPLIT = graphs.split(GRAPH.labels, 0)
LINKS = neighbours.link(GRAPH.edges, len(GRAPH.labels))


def a_sound_run():
    """made, figures, recorded: as if nodes with even numbers were in part 0."""
    seeds = [[seed for seed in SPLIT.train if seed % 2 == rank] for rank in range(2)]
    recorded = [[first_neighbours(LINKS, one, check.FAN_OUTS)] for one in seeds]
    parts = [{"nodes": 1354, "train": len(samples[0].seeds)} for samples in recorded]
    made = {"nodes": len(GRAPH.labels), "edges": len(LINKS.sources), "parts": parts}
    figures = {"epochs": [{"epoch": 1, "loss": 1.2}, {"epoch": 2, "loss": 0.1}], "test_accuracy": 0.88}
    figures |= {"tested": len(SPLIT.test), "iterations_per_second": 9.0, "sampling": "collocated", "backend": "gloo"}
    return made, [dict(figures), dict(figures)], recorded


def sampled(seeds):
    return first_neighbours(LINKS, seeds, check.FAN_OUTS)


def judged(made, figures, recorded):
    proof = Proof("glt-distributed")
    proof.extra["seed"] = 0
    check.judge(made, figures, recorded, proof)
    return proof.metrics


def test_sound_glt_run_passes_and_spoiled_records_are_faults():
    assert judged(*a_sound_run())["test_accuracy"] == 0.88
    for spoil, message in (
        (spoil_edge, "node 1, batch 0: .*which the graph does not have"),
        (lambda _, __, recorded: recorded.__setitem__(1, recorded[0]), "both nodes trained on"),
        (spoil_missing, "1 nodes were trained on that should not be, or the other way round"),
        (lambda _, figures, __: figures[1].update(test_accuracy=0.87), "do not agree"),
        (lambda _, figures, __: [each.update(test_accuracy=0.97) for each in figures], "outside"),
        (lambda _, figures, __: figures[0]["epochs"][-1].update(loss=1.1), "the loss went from 1.2 to 1.1"),
        (lambda made, *_: made.update(edges=made["edges"] - 1), "10555 edges"),
    ):
        run = a_sound_run()
        spoil(*run)
        with pytest.raises(Fault, match=message):
            judged(*run)


def spoil_edge(made, figures, recorded):
    sample = recorded[1][0]
    edges = [(sample.edges[0][0], sample.edges[0][1], sample.edges[1][2]), *sample.edges[1:]]
    recorded[1][0] = neighbours.Sample(sample.seeds, sample.nodes, edges)


def spoil_missing(made, figures, recorded):
    recorded[0] = [first_neighbours(LINKS, recorded[0][0].seeds[1:], check.FAN_OUTS)]


def test_glt_distributed_suite_arguments_parse_with_its_programs(tmp_path):
    argv = check.partitioning(tmp_path, 3)
    assert partition.arguments(argv[3:]).seed == 3
    told = check.arguments(["--device", "cpu", "--sampling", "workers"])
    argv = check.training(told, 1, tmp_path, [4001, 4002, 4003, 4004])
    found = train_distributed.arguments(argv[3:])
    assert (found.node_rank, found.fan_outs, found.batch_size) == (1, check.FAN_OUTS, check.BATCH)
    assert (found.training_pg_master_port, found.test_loader_master_port, found.sampling) == (4001, 4003, "workers")


def test_partition_request_ignores_the_path_of_its_source():
    one = Request("/here/g.npz", "c" * 64, 2, 0)
    assert one.gives_same(Request("/there/g.npz", "c" * 64, 2, 0))
    assert not one.gives_same(Request("/here/g.npz", "d" * 64, 2, 0))
    assert not one.gives_same(Request("/there/g.npz", "c" * 64, 3, 0))


# The hosts of launch.py: its config, and what each host is told to run


def config(tmp_path, text):
    (tmp_path / "hosts.yml").write_text(text)
    return hosts.read(tmp_path / "hosts.yml")


WHOLE = """\
nodes:
  - 10.0.0.1
  - 10.0.0.2
ports: [22, 2200]
usernames: [ann, bob]
python_bins: singularity exec --nv glt.sif python
dataset: /data/parts
in_channel: 100
out_channel: 47
visible_devices:
  - 0,1,2,3
  - 0
arguments: --fan_outs 15,10 --hidden 128
"""


def test_launcher_config_of_the_tutorial_is_read(tmp_path):
    found = config(tmp_path, WHOLE)
    told = [(host.user, host.port, host.devices) for host in found.hosts]
    assert told == [("ann", 22, "0,1,2,3"), ("bob", 2200, "0")]
    argv = launch.command(found, found.hosts[1], launch.arguments(["--config", "hosts.yml", "--epochs", "3"]))
    assert argv[:5] == ["singularity", "exec", "--nv", "glt.sif", "python"]
    told = train_distributed.arguments(argv[6:])
    assert (told.num_nodes, told.node_rank, told.master_addr) == (2, 1, "10.0.0.1")
    assert (told.in_channel, told.fan_outs, told.epochs, told.batch_size) == (100, (15, 10), 3, 2048)
    assert (told.training_pg_master_port, told.test_loader_master_port) == (11234, 11236)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ports: [22, 2200]", "ports: [22]"), "hosts.yml:4: ports: it has 1 entries for 2 nodes"),
        (("2200", "22000000"), "hosts.yml:4: ports: '22000000' is no port"),
        (("usernames", "username"), "hosts.yml:5: username: there is no such field; is usernames meant?"),
        (("dataset: /data/parts\n", ""), "hosts.yml: dataset: it is missing"),
        (("  - 10.0.0.2", "  - bob@10.0.0.2"), "hosts.yml:2: nodes: 'bob@10.0.0.2' is no address"),
        (("  - 10.0.0.2", "  - "), "hosts.yml:3: nodes: an entry is empty"),
        (("dataset: /data/parts", "dataset: {a: b}"), "hosts.yml:7: dataset: it must be a list of texts"),
        (("in_channel: 100", "in_channel: many"), "hosts.yml:8: in_channel: 'many' is no number"),
        (("nodes:", "nodes: ["), "hosts.yml:2: it is no YAML"),
        (("exec --nv", '"exec --nv'), "hosts.yml:6: python_bins: .*No closing quotation"),
        (("ports: [22, 2200]", "ports: 22\nports: 23"), "hosts.yml:5: ports: it is there twice"),
    ],
)
def test_launcher_config_mistake_is_a_fault_with_line_and_field(tmp_path, change, message):
    assert change[0] in WHOLE
    with pytest.raises(Fault, match=re.escape(message).replace(r"\.\*", ".*")):
        config(tmp_path, WHOLE.replace(*change))


def test_glt_program_with_invalid_arguments_exits(capsys):
    trained = ["--epochs", "0"], ["--fan_outs", "5,x"], ["--fan_outs", "0"], ["--sampling", "no"]
    launched = [], ["--config", "h", "--run", "a b"], ["--stop", "../x"], ["--master_port", "65534"]
    for program, argv in [(train_distributed, one) for one in trained] + [(launch, one) for one in launched]:
        with pytest.raises(SystemExit) as caught:
            program.arguments(argv)
        assert (caught.value.code, bool(capsys.readouterr().err)) == (2, True)
