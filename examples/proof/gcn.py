"""A GCN (https://arxiv.org/abs/1609.02907) trained on sampled batches by all processes of a job, as one model."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proof import group, sampling
from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from types import ModuleType

    import torch as torch_types

    from proof.data import Tensors
    from proof.watch import Watch

WEIGHT_DECAY = 5e-4
WARM_UP = 10  #: iterations that the timing leaves out, where twice as many come; else the first alone
GRADIENT_TOLERANCE = 1e-3  #: of the largest entry; GPUs add in another order each time


@dataclass
class Stopwatch:
    """Times the iterations of a training. `wait`: until a device has done what it was asked to do."""

    wait: Callable[[], None]
    planned: int
    clock: Callable[[], float] = time.perf_counter
    epochs: list[float] = field(default_factory=list)
    _seen: int = 0
    _counted: int = 0
    _seconds: float = 0.0
    _start: float | None = None
    _begin: float = 0.0

    @property
    def warm_up(self) -> int:
        """Iterations that do not count."""
        return WARM_UP if self.planned >= 2 * WARM_UP else min(1, self.planned - 1)

    def begin(self) -> None:
        """An epoch begins."""
        self.wait()
        self._begin = self.clock()
        self._start = self._begin if self._seen >= self.warm_up else None

    def tick(self) -> None:
        """An iteration was asked for."""
        self._seen += 1
        if self._start is not None:
            self._counted += 1
        elif self._seen >= self.warm_up:
            self.wait()
            self._start = self.clock()

    def end(self) -> None:
        """The epoch ends."""
        self.wait()
        now = self.clock()
        self.epochs.append(now - self._begin)
        if self._start is not None:
            self._seconds += now - self._start

    @property
    def iterations_per_second(self) -> float:
        """Of those that count."""
        return self._counted / self._seconds if self._seconds > 0 else 0.0

    @property
    def seconds_per_epoch(self) -> float:
        """The mean; without the first epoch, which is slower, where there are others."""
        kept = self.epochs[1:] or self.epochs
        return sum(kept) / len(kept) if kept else 0.0


class Training:
    """One process's share of a training: its batches, the model that all share, the figures."""

    def __init__(self, watch: Watch, graph: Tensors, device: torch_types.device, options: argparse.Namespace) -> None:
        import torch

        self.torch, self.device, self.options, self.graph = torch, device, options, graph
        self.rank, self.world = watch.place.rank, watch.place.world
        self.by_pyg = sampling.pyg_samples() if options.sampler == "auto" else options.sampler == "pyg"
        self.sampler = sampling.Sampler(graph, [options.fan_out] * options.layers)
        first, second = sampling.cut(len(graph.y))
        order = torch.randperm(len(graph.y), generator=torch.Generator().manual_seed(options.seed)).tolist()
        self.parts = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
        self.mine = sampling.share(self.parts["train"], self.rank, self.world)
        torch.manual_seed(options.seed)  # the same weights everywhere, were DDP not to hand rank 0's out
        self.model = torch.nn.parallel.DistributedDataParallel(
            network(graph, options).to(device), device_ids=[device.index] if device.type == "cuda" else None
        )
        torch.manual_seed(options.seed * watch.place.world + watch.place.rank)  # NeighborLoader draws with it
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr, weight_decay=WEIGHT_DECAY)
        self.loader = self._loader(self.mine, shuffle=True)
        self.losses: list[float] = []

    @property
    def steps(self) -> int:
        """Batches of an epoch, the same on all ranks."""
        return sampling.batches(len(self.mine), self.options.batch_size)

    def _loader(self, nodes: Sequence[int], *, shuffle: bool) -> Any:  # noqa: ANN401
        seed = self.options.seed * self.world + self.rank
        size = self.options.batch_size
        return sampling.loader(self.sampler, nodes, size, seed, shuffle=shuffle, by_pyg=self.by_pyg)

    def loss(self, model: Any, batch: Any) -> torch_types.Tensor:  # noqa: ANN401
        """Of the batch's seeds, which come first."""
        output = model(batch.x, batch.edge_index)[: batch.batch_size]
        return self.torch.nn.functional.cross_entropy(output, batch.y[: batch.batch_size])

    def epoch(self, watch: Stopwatch) -> float:
        """Train on all batches; the mean loss of all processes. Raises Fault."""
        self.model.train()
        total, seen = self.torch.zeros(1, dtype=self.torch.double, device=self.device), 0
        watch.begin()
        for batch in self.loader:
            batch = batch.to(self.device)
            self.optimizer.zero_grad()
            loss = self.loss(self.model, batch)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            seen += 1
            watch.tick()
        watch.end()
        if seen != self.steps:
            raise Fault(Layer.PYG, f"{seen} batches came for {len(self.mine)} nodes, not {self.steps}")
        self.torch.distributed.all_reduce(total)
        self.losses.append(float(total) / seen / self.world)
        if not math.isfinite(self.losses[-1]):
            raise Fault(Layer.TRAINING, f"the loss is {self.losses[-1]} in epoch {len(self.losses)}")
        return self.losses[-1]

    def accuracy(self, part: str) -> float:
        """The share of this part's nodes that is right; each process counts its own, and the counts are added up."""
        model = self.model.module  # without the others: some may have a batch less, or none
        model.eval()
        counts = self.torch.zeros(2, dtype=self.torch.double, device=self.device)
        with self.torch.no_grad():
            for batch in self._loader(sampling.own(self.parts[part], self.rank, self.world), shuffle=False):
                batch = batch.to(self.device)
                output = model(batch.x, batch.edge_index)[: batch.batch_size]
                counts[0] += (output.argmax(dim=1) == batch.y[: batch.batch_size]).sum()
                counts[1] += batch.batch_size
        self.torch.distributed.all_reduce(counts)
        right, tested = counts.tolist()
        if tested != len(self.parts[part]):
            raise Fault(Layer.PYG, f"{tested:g} nodes were tested of {len(self.parts[part])} in the {part} part")
        return right / tested

    def check(self, proof: Proof) -> None:
        """Prove that all hold one model, and that its gradients are the mean of what each would have. Raises Fault."""
        torch = self.torch
        weights = torch.cat([each.detach().flatten() for each in self.model.parameters()]).double()
        group.check_equal(torch, weights, "weights after the training", Layer.TORCH)
        alone = [self._gradient(self.model.module, rank) for rank in range(self.world)]
        together = self._gradient(self.model, self.rank)
        wanted = torch.stack(alone).mean(dim=0)
        size = float(wanted.abs().max()) or 1.0
        off = float((together - wanted).abs().max()) / size
        proof.metrics["gradient_error"] = float(f"{off:.2g}")
        proof.metrics["gradient_spread"] = round(float((alone[self.rank] - wanted).abs().max()) / size, 3)
        if not off <= GRADIENT_TOLERANCE:
            raise Fault(
                Layer.TORCH,
                f"the gradients that rank {self.rank} got are not the mean over {self.world} processes as one process "
                f"reckons it: off by {off:.2g} of the largest",
            )

    def _gradient(self, model: Any, rank: int) -> torch_types.Tensor:  # noqa: ANN401
        """The gradient on a batch of `rank`'s, which any process can draw; averaged by DDP where the model is its."""
        random = self.torch.Generator().manual_seed(rank)
        mine = sampling.share(self.parts["train"], rank, self.world)[: self.options.batch_size]
        batch = self.sampler.batch(self.torch.tensor(list(dict.fromkeys(mine))), random).to(self.device)
        model.train()
        self.model.zero_grad()
        self.loss(model, batch).backward()
        return self.torch.cat([each.grad.flatten() for each in self.model.parameters()]).double().clone()


def network(graph: Tensors, options: argparse.Namespace) -> torch_types.nn.Module:
    """PyG's own GCN."""
    from torch_geometric.nn.models import GCN

    return GCN(graph.x.size(1), options.hidden, options.layers, graph.classes)


def random_graph(torch: ModuleType, nodes: int, seed: int) -> Tensors:
    """A graph without structure, after PyG's FakeDataset: ten edges a node, 64 features around one of 10 classes."""
    from proof.data import Tensors

    degree, width, classes = 10, 64, 10
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=random)
    x = torch.randn(nodes, width, generator=random) + y.unsqueeze(1)
    edges = torch.randint(nodes, (2, nodes * degree // 2), generator=random)
    edges = edges[:, edges[0] != edges[1]]
    return Tensors(x, torch.cat([edges, edges.flip(0)], dim=1), y, classes)
