"""GraphSAGE (https://arxiv.org/abs/1706.02216) trained by several processes on batches that GLT samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from proof import glt
from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def network(width: int, classes: int) -> torch.nn.Module:
    """Two layers: `forward(x [nodes, width], edge_index)` gives class scores [nodes, classes]."""
    import torch
    from torch_geometric.nn import SAGEConv

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = SAGEConv(width, glt.HIDDEN)
            self.leave = SAGEConv(glt.HIDDEN, classes)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            hidden = torch.nn.functional.relu(self.enter(x, edge_index))
            hidden = torch.nn.functional.dropout(hidden, glt.DROPOUT, self.training)
            return self.leave(hidden, edge_index)

    return Network()


def train(rank: glt.Rank) -> dict[str, Any]:
    """Train with the other processes, then test on this part's nodes; returns the figures. Raises Fault."""
    torch, proof, device = rank.world.torch, rank.proof, rank.world.device
    proof.enter("starting the sampling process", Layer.GLT)
    loader = rank.training_loader()
    proof.enter(f"training on {proof.device}", Layer.TORCH)
    model = torch.nn.parallel.DistributedDataParallel(
        network(rank.world.graph.x.size(1), rank.world.graph.classes).to(device),
        device_ids=[device.index] if rank.world.on_gpu else None,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=glt.LEARNING_RATE, weight_decay=5e-4)
    losses = []
    for epoch in range(1, glt.EPOCHS + 1):
        losses.append(_epoch(rank, loader, model, optimizer))
        proof.say(f"Epoch: {epoch:02d}, Loss: {losses[-1]:.4f}")
        if not math.isfinite(losses[-1]):
            raise Fault(Layer.TRAINING, f"the loss is {losses[-1]} in epoch {epoch}: the arithmetic is broken")
    glt.clear(loader)
    proof.enter("testing", Layer.GLT)
    right = _right(rank, model)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()]).double()
    return {
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "right": right,
        "tested": len(rank.test),
        "weights": float(weights.abs().sum()),
    }


def _epoch(rank: glt.Rank, loader: Any, model: Any, optimizer: Any) -> float:  # noqa: ANN401  torch's are untyped here
    """The mean loss of one epoch. Raises Fault when not every node of the part came once."""
    torch = rank.world.torch
    model.train()
    total, seen = 0.0, 0
    for batch in loader:
        seeds = batch.batch_size
        optimizer.zero_grad()
        output = model(batch.x, batch.edge_index)[:seeds]
        loss = torch.nn.functional.cross_entropy(output, batch.y[:seeds])
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
        seen += 1
    wanted = len(rank.train) // glt.TRAINING_BATCH
    if seen != wanted:
        raise Fault(Layer.GLT, f"{seen} batches came for {len(rank.train)} nodes, not {wanted}")
    return total / seen


def _right(rank: glt.Rank, model: Any) -> int:  # noqa: ANN401
    """Count the test nodes of this part that the network gets right, from all their neighbours."""
    torch = rank.world.torch
    model = model.module  # without the other process: it may have another number of batches
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in rank.loader(rank.test, rank.world.all_neighbours):
            output = model(batch.x, batch.edge_index)[: batch.batch_size]
            right += int((output.argmax(dim=1) == batch.y[: batch.batch_size]).sum())
    return right


def objections(figures: Sequence[dict[str, Any]], band: tuple[float, float], loss_ratio: float) -> list[str]:
    """List objections to a finished training, from the figures of all processes; empty: passed."""
    found = []
    for rank, each in enumerate(figures):
        if not each["last_loss"] <= loss_ratio * each["first_loss"]:
            found.append(
                f"the loss of process {rank} went from {each['first_loss']:.4f} to {each['last_loss']:.4f}, not to "
                f"{loss_ratio:g} of it or less"
            )
    first = figures[0]["weights"]
    if not all(abs(each["weights"] - first) <= 1e-6 * first for each in figures):
        found.append("the processes have different weights, so they did not train one model")
    accuracy = accuracy_of(figures)
    if not band[0] <= accuracy <= band[1]:
        found.append(f"test accuracy {accuracy:.4f} is outside [{band[0]:.2f}, {band[1]:.2f}]")
    return found


def accuracy_of(figures: Sequence[dict[str, Any]]) -> float:
    """The share of all processes' test nodes that is right."""
    return sum(each["right"] for each in figures) / max(1, sum(each["tested"] for each in figures))
