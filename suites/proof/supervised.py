"""Supervised GraphSAGE (https://arxiv.org/abs/1706.02216) on partitions: what each process of the training does.

Every process takes its share of its node's seeds; GLT samples their neighbours from whichever node has them. All
processes make the same number of steps: who has fewer seeds takes some of them twice, as torch's DistributedSampler.
"""

from __future__ import annotations

import datetime
import json
import math
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof import glt, leaving, machine, partitions, parts
from proof.partitions import LABELS, Partitions
from proof.verdict import Fault, Layer, Proof, end_at_once

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from proof.ranks import Place

SECONDS_TO_SAMPLE = 180  #: for one request to another node
CONCURRENCY = 4  #: batches that a sampling process works on at once
SAME = 1e-6  #: relative difference of the sums of two processes' weights


@dataclass(frozen=True)
class Meeting:
    """The meeting point of all processes, and their number. The ports are node 0's."""

    nodes: int
    node_rank: int
    per_node: int
    address: str
    group_port: int
    train_port: int
    test_port: int

    @property
    def world(self) -> int:
        """Processes in all."""
        return self.nodes * self.per_node


def load_dataset(modules: tuple[ModuleType, ModuleType], folder: Path, meeting: Meeting, on_gpu: bool) -> Any:  # noqa: ANN401
    """GLT's DistDataset of this node's partition. Raises Fault when the files are not what GLT reads."""
    _, module = modules
    dataset = module.distributed.DistDataset()
    try:
        dataset.load(
            str(folder),
            meeting.node_rank,
            graph_mode="ZERO_COPY" if on_gpu else "CPU",
            feature_with_gpu=on_gpu,
            whole_node_label_file=str(folder / LABELS),
        )
    except Exception as error:
        made = partitions.read(folder).versions.get("graphlearn_torch")
        raise Fault(
            Layer.DATA,
            f"GLT cannot load partition {meeting.node_rank} of {folder}: {type(error).__name__}: {error}; it was "
            f"written with graphlearn-torch {made}: partition again with this image",
        ) from error
    return dataset


def shares(found: Partitions, role: str, meeting: Meeting) -> list[int]:
    """The number of seeds of this role of each process, by rank."""
    per_node = meeting.per_node
    return [len(range(local, part[role], per_node)) for part in found.parts for local in range(per_node)]


class Worker:
    """One process of the training. `device`: torch's."""

    def __init__(
        self,
        modules: tuple[ModuleType, ModuleType],
        place: Place,
        meeting: Meeting,
        found: Partitions,
        options: argparse.Namespace,
        device: Any,  # noqa: ANN401  torch is not imported here
        proof: Proof,
    ) -> None:
        self.torch, self.glt = modules
        self.place, self.meeting, self.found, self.options = place, meeting, found, options
        self.device, self.proof = device, proof
        self.dataset: Any = None
        self.store: Any = None  #: torch's TCPStore, served by rank 0

    # Meeting

    def join(self) -> None:
        """Meet the other processes. Raises Fault when their partitions are others than this node's."""
        distributed = self.torch.distributed
        self.proof.enter(f"meeting the other processes at {self.meeting.address}", Layer.NETWORK)
        place, backend, patience = self.place, self.options.backend, datetime.timedelta(seconds=self.options.patience)
        where = (self.meeting.address, self.meeting.group_port, place.world, place.leads)
        store = self.store = distributed.TCPStore(*where, timeout=patience)
        store.set(f"backend/{place.rank}", backend)
        first = store.get("backend/0").decode()
        if backend != first:  # they would wait for each other
            raise Fault(
                Layer.NETWORK,
                f"rank {place.rank} chose {backend}, rank 0 {first}: not all see a GPU of their own; give all the same "
                "--backend or --device",
            )
        distributed.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=patience)
        told: list[Any] = [None] * self.place.world
        distributed.all_gather_object(told, (self.found.graph_sha256, self.found.book_sha256))
        others = [rank for rank, each in enumerate(told) if each != told[0]]
        if others:
            raise Fault(
                Layer.DATA,
                f"the partitions of rank {', '.join(map(str, others))} are not of the same partitioning as rank 0's: "
                "copy one folder to all nodes, or share it; two calls of partition.py may cut a graph differently",
            )
        self.glt.distributed.init_worker_group(self.place.world, self.place.rank, "graphcrate")

    def part(self) -> None:
        """Wait for all, since they may still ask for neighbours; then this process may end, RPC and group with it."""
        self.proof.enter("parting", Layer.NETWORK)
        leaving.leave(self.store, self.place.rank, self.place.world, self.proof)

    # Loaders

    def loader(self, seeds: Any, port: int, shuffle: bool) -> Any:  # noqa: ANN401
        """A loader of batches around these seeds; sampled in processes of their own, or in this one."""
        distributed = self.glt.distributed
        common = {"master_addr": self.meeting.address, "master_port": port, "rpc_timeout": SECONDS_TO_SAMPLE}
        if self.options.sampling == "collocated":
            options = distributed.CollocatedDistSamplingWorkerOptions(**common)
        else:
            options = distributed.MpDistSamplingWorkerOptions(
                num_workers=self.options.workers,
                worker_devices=[self.device] * self.options.workers,
                worker_concurrency=CONCURRENCY,
                channel_size=self.options.channel_size,
                pin_memory=self.device.type == "cuda",
                **common,
            )
        return distributed.DistNeighborLoader(
            self.dataset,
            list(self.options.fan_outs),
            seeds,
            batch_size=self.options.batch_size,
            shuffle=shuffle,
            with_edge=self.options.record is not None,
            collect_features=True,
            to_device=self.device,
            worker_options=options,
        )

    def seeds(self, *roles: str) -> Any:  # noqa: ANN401
        """This process' share of its node's seeds."""
        mine = partitions.seeds_of(self.options.dataset, self.meeting.node_rank, self.torch)
        return self.torch.cat([mine[role][self.place.local_rank :: self.meeting.per_node] for role in roles])

    # Training

    def train(self) -> dict[str, Any]:
        """Train, then test; the figures are of all processes together. Raises Fault."""
        torch, options = self.torch, self.options
        counts = shares(self.found, "train", self.meeting)
        steps = math.ceil(max(counts) / options.batch_size)
        seeds = self.seeds("train")
        self.proof.enter("starting to sample", Layer.GLT)
        loader = self.loader(seeds.repeat(-(-max(counts) // len(seeds)))[: max(counts)], self.meeting.train_port, True)
        self.proof.enter(f"training on {self.proof.device}", Layer.TORCH)
        torch.manual_seed(options.seed)
        model = torch.nn.parallel.DistributedDataParallel(
            network(self.found, options).to(self.device),
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
        epochs = []
        for epoch in range(1, options.epochs + 1):
            loss, seconds = self._epoch(loader, model, optimizer, steps, epoch)
            epochs.append({"epoch": epoch, "loss": round(loss, 4), "seconds": round(seconds, 3)})
            if self.place.leads:
                self.proof.say(
                    f"Epoch: {epoch:03d}, Loss: {loss:.4f}, {seconds:.2f} s, {steps / seconds:.2f} iterations/s"
                )
            if not math.isfinite(loss):
                raise Fault(Layer.TRAINING, f"the loss is {loss} in epoch {epoch}: a smaller --lr may help")
        self._close(loader)
        self.proof.enter("testing", Layer.GLT)
        tested = self._test(model.module)
        self._check_weights(model)
        usual = [each["seconds"] for each in epochs[1:]] or [epochs[0]["seconds"]]  # the first one warms up
        mean = sum(usual) / len(usual)
        return {
            "epochs": epochs,
            "iterations_per_epoch": steps,
            "seconds_per_epoch": round(mean, 3),
            "iterations_per_second": round(steps / mean, 3),
            **tested,
        }

    def _epoch(self, loader: Any, model: Any, optimizer: Any, steps: int, epoch: int) -> tuple[float, float]:  # noqa: ANN401
        """The mean loss over all processes, and this one's seconds. Raises Fault when batches are missing."""
        model.train()
        total = self.torch.zeros(1, device=self.device)
        start, done = time.perf_counter(), 0
        for batch in loader:
            optimizer.zero_grad()
            output = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = self.torch.nn.functional.cross_entropy(output, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total += loss.detach()
            done += 1
            if epoch == 1 and self.options.record:
                self._record(batch)
        self.torch.distributed.all_reduce(total)
        loss_of_all = float(total) / (done * self.place.world) if done else math.nan  # waits for the GPU
        if done != steps:
            raise Fault(Layer.GLT, f"{done} batches came instead of {steps}")
        return loss_of_all, time.perf_counter() - start

    def _test(self, model: Any) -> dict[str, Any]:  # noqa: ANN401
        """Shares of all processes' validation and test nodes that are right, neighbours sampled as in the training."""
        torch = self.torch
        figures = torch.zeros(4, dtype=torch.float64, device=self.device)
        seeds = self.seeds("valid", "test")
        tests = torch.zeros(self.found.nodes, dtype=torch.bool)
        tests[self.seeds("test")] = True
        model.eval()
        if len(seeds):
            loader = self.loader(seeds, self.meeting.test_port, False)
        with torch.no_grad():
            for batch in loader if len(seeds) else ():
                count = batch.batch_size
                right = (model(batch.x, batch.edge_index)[:count].argmax(dim=1) == batch.y[:count]).double()
                role = tests[batch.node[:count].cpu()].to(self.device).double()
                figures += torch.stack([((1 - role) * right).sum(), (1 - role).sum(), (role * right).sum(), role.sum()])
        torch.distributed.all_reduce(figures)  # nobody closes before all have sampled
        if len(seeds):
            self._close(loader)
        valid_right, valid, test_right, test = figures.tolist()
        return {
            "valid_accuracy": round(valid_right / max(valid, 1), 4),
            "test_accuracy": round(test_right / max(test, 1), 4),
            "tested": int(test),
        }

    def _close(self, loader: Any) -> None:  # noqa: ANN401
        """End a loader's sampling processes once no other process asks them; one in this process stays."""
        if self.options.sampling == "workers":
            self.torch.distributed.barrier()
            CLOSING.set()
            glt.clear(loader)
            time.sleep(1.0)  # for the thread that watches to see that they are gone
            CLOSING.clear()

    def _check_weights(self, model: Any) -> None:  # noqa: ANN401
        weights = self.torch.cat([each.detach().flatten() for each in model.parameters()]).double().abs().sum()
        low, high = weights.clone(), weights.clone()
        self.torch.distributed.all_reduce(low, self.torch.distributed.ReduceOp.MIN)
        self.torch.distributed.all_reduce(high, self.torch.distributed.ReduceOp.MAX)
        if not float(high - low) <= SAME * float(high):
            raise Fault(Layer.TRAINING, "the processes have different weights, so they did not train one model")

    def _record(self, batch: Any) -> None:  # noqa: ANN401
        """Write what a batch has, as a line of JSON."""
        sample = glt.sample_of(batch, batch.node[: batch.batch_size].tolist())
        line = json.dumps({"seeds": list(sample.seeds), "nodes": list(sample.nodes), "edges": list(sample.edges)})
        with (Path(self.options.record) / f"rank{self.place.rank}.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")


CLOSING = threading.Event()  #: set while sampling processes end as they should


def watch_helpers(proof: Proof) -> None:
    """End this process with a verdict when one that samples for it dies: it would wait for its batches for ever."""

    def look() -> None:
        helpers: set[Any] = set()
        while True:
            time.sleep(0.5)
            helpers |= set(multiprocessing.active_children())
            dead = [each for each in helpers if each.exitcode]
            if dead and not CLOSING.is_set():
                layer, how = parts.ending(dead[0].exitcode or 0, Layer.GLT)
                leave(proof, Fault(layer, f"a sampling process {how}; its last lines are above, if it had any"))
            helpers -= set(dead)

    threading.Thread(target=look, daemon=True).start()


def leave(proof: Proof, fault: Fault) -> None:
    """End this process with a verdict, from any thread. GLT's channel would outlive it."""
    machine.remove_segments({os.getpid()})
    end_at_once(proof, fault)


def network(found: Partitions, options: argparse.Namespace) -> Any:  # noqa: ANN401
    """PyG's GraphSAGE, a layer for each fan-out."""
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(
        in_channels=found.in_channel,
        hidden_channels=options.hidden,
        num_layers=len(options.fan_outs),
        out_channels=found.out_channel,
        dropout=options.dropout,
    )
