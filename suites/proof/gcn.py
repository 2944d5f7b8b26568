"""A GCN (https://arxiv.org/abs/1609.02907) trained on sampled batches by all processes of a job, as one model."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from proof import sampling
from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch as torch_types

    from proof.graphs import Tensors
    from proof.verdict import Proof

HIDDEN, LAYERS, FAN_OUT, BATCH, EPOCHS = 64, 2, 50, 64, 6
MOST_AT_ONCE = 128  #: nodes in a step of all processes: of many, each takes fewer, so that as many steps are made
LEARNING_RATE, WEIGHT_DECAY = 0.01, 5e-4
GRADIENT_TOLERANCE = 1e-3  #: of the largest entry; GPUs add in another order each time


class Training:
    """One process's share of a training: its batches, the model that all share, the figures."""

    def __init__(self, rank: int, world: int, graph: Tensors, device: torch_types.device, seed: int) -> None:
        import torch

        self.torch, self.device, self.graph, self.seed = torch, device, graph, seed
        self.rank, self.world = rank, world
        self.by_pyg = sampling.pyg_samples()
        self.sampler = sampling.Sampler(graph, [FAN_OUT] * LAYERS)
        first, second = math.floor(0.6 * len(graph.y)), math.floor(0.8 * len(graph.y))
        order = torch.randperm(len(graph.y), generator=torch.Generator().manual_seed(seed)).tolist()
        self.parts = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
        self.mine = sampling.share(self.parts["train"], rank, world)
        self.batch = max(1, min(BATCH, MOST_AT_ONCE // world))
        self.steps = math.ceil(len(self.mine) / self.batch)
        torch.manual_seed(seed)  # the same weights everywhere, were DDP not to hand rank 0's out
        self.model = torch.nn.parallel.DistributedDataParallel(
            network(graph).to(device), device_ids=[device.index] if device.type == "cuda" else None
        )
        torch.manual_seed(seed * world + rank)  # NeighborLoader draws with it
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.loader = self._loader(self.mine, shuffle=True)
        self.losses: list[float] = []
        self.seconds: list[float] = []  #: of each epoch

    def _loader(self, nodes: Sequence[int], *, shuffle: bool) -> Any:  # noqa: ANN401
        seed = self.seed * self.world + self.rank
        return sampling.loader(self.sampler, nodes, self.batch, seed, shuffle=shuffle, by_pyg=self.by_pyg)

    def loss(self, model: Any, batch: Any) -> torch_types.Tensor:  # noqa: ANN401
        """Of the batch's seeds, which come first."""
        output = model(batch.x, batch.edge_index)[: batch.batch_size]
        return self.torch.nn.functional.cross_entropy(output, batch.y[: batch.batch_size])

    def epoch(self) -> float:
        """Train on all batches; the mean loss of all processes. Raises Fault."""
        self.model.train()
        total, seen = self.torch.zeros(1, dtype=self.torch.double, device=self.device), 0
        start = time.perf_counter()
        for batch in self.loader:
            batch = batch.to(self.device)
            self.optimizer.zero_grad()
            loss = self.loss(self.model, batch)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            seen += 1
        if seen != self.steps:
            raise Fault(Layer.PYG, f"{seen} batches came for {len(self.mine)} nodes, not {self.steps}")
        self.torch.distributed.all_reduce(total)
        self.losses.append(float(total) / seen / self.world)  # waits for the GPU
        self.seconds.append(time.perf_counter() - start)
        if not math.isfinite(self.losses[-1]):
            raise Fault(Layer.TRAINING, f"the loss is {self.losses[-1]} in epoch {len(self.losses)}")
        return self.losses[-1]

    def accuracy(self, part: str) -> float:
        """The share of this part's nodes that is right; each process counts its own, and the counts are added up."""
        model = self.model.module  # without the others: some may have a batch less, or none
        model.eval()
        counts = self.torch.zeros(2, dtype=self.torch.double, device=self.device)
        with self.torch.no_grad():
            for batch in self._loader(self.parts[part][self.rank :: self.world], shuffle=False):
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
        check_equal(torch, weights, "weights after the training", Layer.TORCH)
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
        mine = sampling.share(self.parts["train"], rank, self.world)[:BATCH]
        batch = self.sampler.batch(self.torch.tensor(list(dict.fromkeys(mine))), random).to(self.device)
        model.train()
        self.model.zero_grad()
        self.loss(model, batch).backward()
        return self.torch.cat([each.grad.flatten() for each in self.model.parameters()]).double().clone()


def network(graph: Tensors) -> torch_types.nn.Module:
    """PyG's own GCN."""
    from torch_geometric.nn.models import GCN

    return GCN(graph.x.size(1), HIDDEN, LAYERS, graph.classes)


def check_equal(torch: Any, values: torch_types.Tensor, what: str, layer: Layer) -> None:  # noqa: ANN401
    """Raise Fault unless all processes hold the same numbers."""
    operation = torch.distributed.ReduceOp
    least, most = values.clone(), values.clone()
    torch.distributed.all_reduce(least, op=operation.MIN)
    torch.distributed.all_reduce(most, op=operation.MAX)
    off = float((most - least).abs().max())
    if not off <= 1e-6 * float(most.abs().max()):
        raise Fault(layer, f"the processes have different {what}: they differ by up to {off:.3g}")
