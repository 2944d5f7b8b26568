"""GLT at work on the generated graph: sampling in one process, partitioning, sampling between two.

What GLT gives is compared with the graph itself by `proof.neighbours`. Only what 0.2.2 and 0.2.4 share is used.
"""

from __future__ import annotations

import datetime
import gc
import importlib
import math
import multiprocessing
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proof import graphs, neighbours, stack
from proof.machine import LOOPBACK
from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path
    from types import ModuleType

    import torch as torch_types

PARTS = 2
HOPS = 2
FEW = (5, 3)  #: fan-outs below many degrees, for the check of counts
FAN_OUTS = (10, 5)  #: of the training
BATCH, TRAINING_BATCH, HIDDEN = 128, 32, 64
EPOCHS, LEARNING_RATE, DROPOUT = 6, 0.01, 0.5
SECONDS_TO_ANSWER = 120  #: for a message between the processes, on a machine with other things to do
CHANNEL = "16MB"  #: between a sampling process and its trainer; GLT's own choice is 64 MB
BACKEND = "You are using a Backend"
VERSIONS = "0.2.0 to 0.2.2 fit torch 1.13, 0.2.3 and 0.2.4 fit torch 2.3 to 2.6 for CUDA 12 from the package index"


@dataclass(frozen=True)
class World:
    """The graph as tensors and as links, and the device to work on."""

    torch: ModuleType
    glt: ModuleType
    device: torch_types.device
    graph: graphs.Tensors
    links: neighbours.Links

    @property
    def on_gpu(self) -> bool:
        """Return whether GLT samples on a GPU."""
        return self.device.type == "cuda"

    @property
    def all_neighbours(self) -> tuple[int, ...]:
        """Fan-outs that no degree exceeds."""
        return (self.links.highest_degree,) * HOPS


def load_glt(proof: Proof) -> ModuleType:
    """Import GLT and note its version. Raises Fault of the layer that keeps it from being imported."""
    version = stack.installed("graphlearn-torch")
    if version is None:
        raise Fault(Layer.GLT, "graphlearn-torch is not installed")
    if stack.installed("torch_sparse") is None and importlib.util.find_spec("torch_sparse") is None:
        raise Fault(Layer.EXTENSION, "torch_sparse is not installed, and graphlearn_torch cannot be imported without")
    proof.enter(f"importing graphlearn_torch {version}", Layer.GLT)
    try:
        glt = importlib.import_module("graphlearn_torch")
    except ImportError as error:
        text = " ".join(str(error).split())
        if "undefined symbol" in text:
            text += f" (it was built for another torch or CUDA: {VERSIONS})"
        raise Fault(Layer.GLT, f"graphlearn_torch {version} cannot be imported: {text}") from error
    proof.versions["graphlearn_torch"] = version
    return glt


def enter_world(wanted: str, proof: Proof, number: int = 0) -> World:
    """Import everything, choose the device, make the graph. `number`: which GPU, where there are several."""
    torch = stack.load_torch(proof)
    stack.load_pyg(proof)
    glt = load_glt(proof)
    device = stack.choose_device(torch, wanted, proof)
    if device.type == "cuda":
        device = torch.device("cuda", number % torch.cuda.device_count())
        torch.cuda.set_device(device)
    proof.enter("making the graph", Layer.DATA)
    graph = graphs.generate()
    return World(torch, glt, device, graphs.tensors(graph), neighbours.link(graph.edges, len(graph.labels)))


# Comparing


def sample_of(batch: Any, seeds: Sequence[int]) -> neighbours.Sample:  # noqa: ANN401  PyG's Data
    """A loader's batch. Its edges run as messages do, from the neighbour to the node that was expanded."""
    nodes = batch.node.tolist()
    rows, columns = batch.edge_index.tolist()
    edges = [(nodes[column], nodes[row], number) for row, column, number in zip(rows, columns, batch.edge.tolist())]
    return neighbours.Sample(seeds, nodes, edges)


def compare(
    world: World, batches: Iterable[Any], seeds: Sequence[int], fan_outs: Sequence[int], home: Collection[int]
) -> dict[str, int]:
    """Check each batch of a loader that goes through `seeds` in order. Raises Fault of GLT.

    Counts batches, edges, and edges of nodes that are not in `home`.
    """
    figures = {"batches": 0, "edges": 0, "remote_edges": 0}
    for number, batch in enumerate(batches):
        wanted = seeds[number * BATCH : (number + 1) * BATCH]
        sample = sample_of(batch, wanted)
        if found := neighbours.objections(sample, world.links, fan_outs):
            raise Fault(Layer.GLT, f"batch {number} of fan-out {list(fan_outs)}: " + "; ".join(found))
        nodes = batch.node.cpu()
        if not world.torch.equal(batch.x.cpu(), world.graph.x[nodes]):
            raise Fault(Layer.GLT, f"batch {number}: the features are not those of its nodes")
        if not world.torch.equal(batch.y.cpu(), world.graph.y[nodes]):
            raise Fault(Layer.GLT, f"batch {number}: the labels are not those of its nodes")
        figures["batches"] += 1
        figures["edges"] += len(sample.edges)
        figures["remote_edges"] += neighbours.abroad(sample, home)
    if figures["batches"] != math.ceil(len(seeds) / BATCH):
        raise Fault(Layer.GLT, f"{figures['batches']} batches came for {len(seeds)} seeds of {BATCH} each")
    return figures


# In one process


def sample_alone(world: World, proof: Proof) -> None:
    """GLT's loader on the whole graph, against the graph itself. Raises Fault."""
    proof.enter(f"sampling in one process on {proof.device}", Layer.GLT)
    dataset = world.glt.data.Dataset()
    dataset.init_graph(world.graph.edge_index, graph_mode="CUDA" if world.on_gpu else "CPU")
    dataset.init_node_features(world.graph.x, split_ratio=0.2 if world.on_gpu else 0.0, with_gpu=world.on_gpu)
    dataset.init_node_labels(world.graph.y)
    nodes = list(range(len(world.graph.y)))
    for fan_outs in (world.all_neighbours, FEW):
        loader = world.glt.loader.NeighborLoader(
            dataset,
            list(fan_outs),
            world.torch.arange(len(nodes)),
            batch_size=BATCH,
            with_edge=True,
            device=world.device,  # without it GLT takes the first GPU, also where there is none
        )
        figures = compare(world, loader, nodes, fan_outs, nodes)
        proof.say(f"{figures['edges']} sampled edges of {len(nodes)} nodes are the graph's, fan-out {list(fan_outs)}")
        if fan_outs != FEW:
            proof.metrics["edges_compared"] = figures["edges"]


def partition(world: World, folder: Path, seed: int, proof: Proof) -> None:
    """Cut the graph in two with GLT's own partitioner, into `folder`; check that the parts are the whole."""
    proof.enter(f"partitioning the graph in {PARTS}", Layer.GLT)
    torch = world.torch
    torch.manual_seed(seed)
    world.glt.partition.RandomPartitioner(
        str(folder), PARTS, len(world.graph.y), world.graph.edge_index, node_feat=world.graph.x
    ).partition()
    torch.save(world.graph.y, str(folder / "labels.pt"))
    edges, sizes = 0, []
    for number in range(PARTS):
        _, _, part, features, _, book, _ = world.glt.partition.load_partition(str(folder), number)
        rows, columns = part.edge_index[0], part.edge_index[1]
        whole = world.graph.edge_index[:, part.eids]
        if not (torch.equal(rows, whole[0]) and torch.equal(columns, whole[1])):
            raise Fault(Layer.GLT, f"part {number} has edges that are not the graph's")
        if not bool((book[rows] == number).all()):
            raise Fault(Layer.GLT, f"part {number} has edges of nodes of the other part")
        if not torch.equal(features.feats, world.graph.x[features.ids]):
            raise Fault(Layer.GLT, f"part {number} has features that are not those of its nodes")
        edges += len(rows)
        sizes.append(int((book == number).sum()))
    if edges != world.graph.edge_index.size(1) or sum(sizes) != len(world.graph.y):
        raise Fault(Layer.GLT, f"the parts have {edges} edges and {sizes} nodes in all")
    proof.metrics["part_sizes"] = sizes
    proof.say(f"{PARTS} parts with {sizes} nodes and {edges} edges in all")


# Between processes


@dataclass(frozen=True)
class Meeting:
    """The meeting point of the processes: ports of loopback, and a folder that has the parts."""

    rank: int
    ports: Sequence[int]
    folder: Path


class Rank:
    """One of the processes: a part of the graph, loaders on all of it, a model that both train."""

    def __init__(self, world: World, meeting: Meeting, seed: int, proof: Proof) -> None:
        self.world, self.meeting, self.proof = world, meeting, proof
        torch, distributed = world.torch, world.glt.distributed
        proof.enter("joining the processes", Layer.NETWORK)
        torch.distributed.init_process_group(
            # NCCL wants a GPU for each process
            "nccl" if world.on_gpu and torch.cuda.device_count() >= PARTS else "gloo",
            init_method=f"file://{meeting.folder}/meeting",
            rank=meeting.rank,
            world_size=PARTS,
            timeout=datetime.timedelta(seconds=SECONDS_TO_ANSWER),
        )
        proof.enter("loading the part", Layer.GLT)
        distributed.init_worker_group(PARTS, meeting.rank, "graphcrate")
        self.dataset = distributed.DistDataset()
        self.dataset.load(
            str(meeting.folder),
            meeting.rank,
            graph_mode="ZERO_COPY" if world.on_gpu else "CPU",
            feature_with_gpu=world.on_gpu,
            whole_node_label_file=str(meeting.folder / "labels.pt"),
            device=world.device.index,
        )
        self.book = self.dataset.node_pb.tolist()
        self.home = [node for node, part in enumerate(self.book) if part == meeting.rank]
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Split the nodes, and draw the weights that are made next, by a seed."""
        split = graphs.split(self.world.graph.y.tolist(), seed)
        # Each process needs as many batches as the others, or they would wait for one another for ever.
        smallest = min(sum(self.book[node] == part for node in split.train) for part in range(PARTS))
        self.train = [node for node in split.train if self.book[node] == self.meeting.rank][:smallest]
        self.test = [node for node in split.test if self.book[node] == self.meeting.rank]
        self.world.torch.manual_seed(seed)

    def loader(self, nodes: Sequence[int], fan_outs: Sequence[int]) -> Any:  # noqa: ANN401  GLT has no types
        """A loader whose sampling is done in this process, with messages to the other one."""
        distributed = self.world.glt.distributed
        options = distributed.CollocatedDistSamplingWorkerOptions(
            master_addr=LOOPBACK, master_port=self.meeting.ports[0], rpc_timeout=SECONDS_TO_ANSWER
        )
        return distributed.DistNeighborLoader(
            self.dataset,
            list(fan_outs),
            self.world.torch.tensor(nodes),
            batch_size=BATCH,
            with_edge=True,
            collect_features=True,
            to_device=self.world.device,
            worker_options=options,
        )

    def training_loader(self) -> Any:  # noqa: ANN401
        """A loader whose sampling is done in a process of its own, which sends batches through shared memory."""
        distributed = self.world.glt.distributed
        options = distributed.MpDistSamplingWorkerOptions(
            num_workers=1,
            worker_devices=[self.world.device],
            master_addr=LOOPBACK,
            master_port=self.meeting.ports[1],
            rpc_timeout=SECONDS_TO_ANSWER,
            channel_size=CHANNEL,
        )
        return distributed.DistNeighborLoader(
            self.dataset,
            list(FAN_OUTS),
            self.world.torch.tensor(self.train),
            batch_size=TRAINING_BATCH,
            shuffle=True,
            drop_last=True,
            with_edge=True,
            collect_features=True,
            to_device=self.world.device,
            worker_options=options,
        )

    def check(self) -> None:
        """Every node of this part as a seed, all its neighbours. Raises Fault."""
        self.proof.enter("sampling from both parts", Layer.GLT)
        home = set(self.home)
        for fan_outs in (self.world.all_neighbours, FEW):
            figures = compare(self.world, self.loader(self.home, fan_outs), self.home, fan_outs, home)
            if not figures["remote_edges"]:
                raise Fault(Layer.GLT, "no neighbour of a node of the other part came")
            self.proof.say(
                f"{figures['edges']} sampled edges of {len(home)} nodes are the graph's, {figures['remote_edges']} of "
                f"them from the other part, fan-out {list(fan_outs)}"
            )
            if fan_outs != FEW:
                self.proof.metrics.update(edges_compared=figures["edges"], remote_edges=figures["remote_edges"])


def prepare(interface: str = "lo") -> None:
    """Set what has to be so before torch is imported. `interface`: of the network between processes, "" if unknown."""
    # Else torch's transports would ask DNS for this machine's name, or take the network of a cluster's settings.
    for transport in ("GLOO", "TP", "NCCL"):
        if interface == "lo":
            os.environ[f"{transport}_SOCKET_IFNAME"] = interface
        elif interface:
            os.environ.setdefault(f"{transport}_SOCKET_IFNAME", interface)
    # GLT makes a lock by the default way and hands it to a spawned process, which Python refuses since 3.11.5.
    multiprocessing.set_start_method("spawn")
    # Torch says it of its own code; for this process, and for those that GLT starts.
    warnings.filterwarnings("ignore", message=BACKEND)
    os.environ["PYTHONWARNINGS"] = f"ignore:{BACKEND}:UserWarning"


#: Channels in shared memory that CUDA has pinned, kept until the process ends. GLT 0.2.4 detaches one without a call of
#: cudaHostUnregister, so CUDA would take the next channel at that address for the old one: seen on an H100, "part or
#: all of the requested memory range is already mapped" where that is pinned too.
PINNED: list[Any] = []


def clear(loader: Any) -> None:  # noqa: ANN401
    """End a loader's process and give its shared memory back; what is pinned, when this process ends."""
    loader.shutdown()
    for process in multiprocessing.active_children():  # GLT waits 5 s for its own and does not fetch it after
        process.join()
    channel = loader.__dict__.pop("_channel", None)
    if channel is not None and getattr(loader.worker_options, "pin_memory", False):
        PINNED.append(channel)
    loader.__dict__.pop("_mp_producer", None)
    del channel
    gc.collect()
