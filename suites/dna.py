#!/usr/bin/env python3
"""Node classification with DNAConv: the training that proves an image. (One to copy: examples/dna.py.)

The network and its settings are those of PyG's example of the same name (DNAConv, https://arxiv.org/abs/1904.04849):
five layers of 128 channels, 8 heads, 16 groups, attention dropout 0.8, Adam. Says at the end, as one JSON line, whether
the loss fell and the accuracy landed where it lands in a sound stack. `--help` has the options.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import curve, graphs, stack
from proof.curve import Point
from proof.verdict import Fault, Layer, Proof, exit_with, prove

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

CHANNELS, LAYERS, HEADS, GROUPS, ATTENTION_DROPOUT, DROPOUT = 128, 5, 8, 16, 0.8, 0.5
LEARNING_RATE, WEIGHT_DECAY = 0.005, 5e-4
LOSS_RATIO = 0.75  #: the last loss is at most this share of the first
PROVEN_ACCURACY = 0.8  #: on validation nodes; `--until-proven` stops after PROVEN_TIMES evaluations in a row
PROVEN_TIMES = 2


#: where the test accuracy lands in a sound stack; docs/smoke.md tells how that was found
ACCURACY_BAND = (0.75, 0.95)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=_positive, default=200)
    parser.add_argument("--every", type=_positive, default=10, metavar="N", help="evaluate each N epochs (10)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", type=Path, metavar="FILE", help="draw the curve: .svg, or .png with matplotlib")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    parser.add_argument(
        "--until-proven",
        action="store_true",
        help=f"stop once the loss fell and {PROVEN_TIMES} evaluations in a row have {PROVEN_ACCURACY:g} on validation",
    )
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def network(width: int, classes: int) -> torch.nn.Module:
    """The model: `forward(x [nodes, width], edge_index)` gives log-probabilities [nodes, classes]."""
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch_geometric.nn import DNAConv

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = torch.nn.Linear(width, CHANNELS)
            self.convolutions = torch.nn.ModuleList(
                DNAConv(CHANNELS, HEADS, GROUPS, dropout=ATTENTION_DROPOUT, cached=True) for _ in range(LAYERS)
            )
            self.leave = torch.nn.Linear(CHANNELS, classes)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            hidden = F.dropout(F.relu(self.enter(x)), DROPOUT, self.training)
            history = hidden.unsqueeze(1)  # [nodes, layers so far, CHANNELS]: each layer attends to all before
            for convolution in self.convolutions:
                hidden = F.relu(convolution(history, edge_index))
                history = torch.cat([history, hidden.unsqueeze(1)], dim=1)
            return F.log_softmax(self.leave(F.dropout(hidden, DROPOUT, self.training)), dim=1)

    return Network()


class Training:
    """A model on a graph, with its optimizer and what was seen so far."""

    def __init__(self, graph: graphs.Tensors, device: torch.device, seed: int) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(seed)
        self.graph = graph.to(device)
        parts = graphs.split(graph.y.tolist(), seed)
        self.parts = {
            name: torch.tensor(nodes, device=device)
            for name, nodes in (("train", parts.train), ("validation", parts.validation), ("test", parts.test))
        }
        self.model = network(graph.x.size(1), graph.classes).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.epoch, self.first_loss, self.loss = 0, math.nan, math.nan
        self.points: list[Point] = []
        self.seconds: list[float] = []  #: of each epoch that was trained here

    def step(self) -> None:
        """One epoch. Raises Fault when the loss is no number."""
        start = time.perf_counter()
        self.model.train()
        self.optimizer.zero_grad()
        output = self.model(self.graph.x, self.graph.edge_index)
        nodes = self.parts["train"]
        loss = self.torch.nn.functional.nll_loss(output[nodes], self.graph.y[nodes])
        loss.backward()
        self.optimizer.step()
        self.epoch, self.loss = self.epoch + 1, float(loss.detach())  # waits for the device, which works in order
        self.seconds.append(time.perf_counter() - start)
        if self.epoch == 1:
            self.first_loss = self.loss
        if not math.isfinite(self.loss):
            raise Fault(Layer.TRAINING, f"the loss is {self.loss} in epoch {self.epoch}: the arithmetic is broken")

    def evaluate(self) -> Point:
        """Accuracies without dropout, kept in `points`. Raises Fault when an output is no number."""
        self.model.eval()
        with self.torch.no_grad():
            output = self.model(self.graph.x, self.graph.edge_index)
        if not bool(self.torch.isfinite(output).all()):
            raise Fault(Layer.TRAINING, f"the network's output has values that are no numbers after epoch {self.epoch}")
        right = output.argmax(dim=1) == self.graph.y
        shares = {name: float(right[nodes].float().mean()) for name, nodes in self.parts.items()}
        self.points.append(Point(self.epoch, self.loss, **shares))
        return self.points[-1]


def is_proven(points: Sequence[Point], first_loss: float) -> bool:
    """Return whether the latest evaluations settle it.

    Looks at training loss and validation nodes, never at test nodes.
    """
    latest = points[-PROVEN_TIMES:]
    return (
        len(latest) == PROVEN_TIMES
        and points[-1].loss <= LOSS_RATIO * first_loss
        and all(point.validation >= PROVEN_ACCURACY for point in latest)
    )


def best(points: Sequence[Point]) -> Point:
    """The first evaluation with the highest validation accuracy, whose test accuracy counts, as in PyG's example."""
    return max(points, key=lambda point: (point.validation, -point.epoch))


def objections(points: Sequence[Point], first_loss: float) -> list[str]:
    """List objections to a finished training; empty: passed."""
    found = []
    last, test = points[-1], best(points).test
    if not last.loss <= LOSS_RATIO * first_loss:
        found.append(f"the loss went from {first_loss:.4f} to {last.loss:.4f}, not to {LOSS_RATIO:g} of it or less")
    if not ACCURACY_BAND[0] <= test <= ACCURACY_BAND[1]:
        found.append(f"test accuracy {test:.4f} is outside [{ACCURACY_BAND[0]:.2f}, {ACCURACY_BAND[1]:.2f}]")
    return found


def describe(point: Point) -> str:
    """The line that people read."""
    return (
        f"Epoch: {point.epoch:03d}, Loss: {point.loss:.4f}, Train: {point.train:.4f}, Val: {point.validation:.4f}, "
        f"Test: {point.test:.4f}"
    )


def train(training: Training, options: argparse.Namespace, proof: Proof) -> str:
    """Train and evaluate; returns why it stopped."""
    while training.epoch < options.epochs:
        training.step()
        if training.epoch % options.every and training.epoch != options.epochs:
            continue
        proof.say(describe(training.evaluate()))
        record(proof, training)
        if options.until_proven and is_proven(training.points, training.first_loss):
            return "proven"
    return "all epochs ran"


def record(proof: Proof, training: Training) -> None:
    """Bring the verdict's figures up to date."""
    proof.extra["epochs"] = training.epoch
    if not training.points:
        return
    last, chosen = training.points[-1], best(training.points)
    proof.metrics.update(
        first_loss=round(training.first_loss, 4),
        last_loss=round(last.loss, 4),
        train_accuracy=round(last.train, 4),
        validation_accuracy=round(chosen.validation, 4),
        test_accuracy=round(chosen.test, 4),
        best_epoch=chosen.epoch,
        last_test_accuracy=round(last.test, 4),
    )
    usual = training.seconds[1:] or training.seconds  # the first one warms up
    if usual:
        proof.metrics["seconds_per_epoch"] = round(sum(usual) / len(usual), 4)


def run(options: argparse.Namespace, proof: Proof) -> None:
    """The whole proof. Raises Fault."""
    proof.extra.update(seed=options.seed, epochs=0, epochs_planned=options.epochs)
    if options.curve:
        curve.check(options.curve)
    torch = stack.load_torch(proof)
    complaints = stack.load_pyg(proof)
    device = stack.choose_device(torch, options.device, proof)
    proof.enter("making the graph", Layer.DATA)
    graph = graphs.tensors(graphs.generate())
    proof.metrics["accuracy_band"] = list(ACCURACY_BAND)
    proof.enter(f"training on {proof.device}", Layer.TORCH)
    training = Training(graph, device, options.seed)
    try:
        proof.extra["stopped"] = train(training, options, proof)
    finally:
        record(proof, training)
        if options.curve and training.points:
            curve.draw(training.points, f"DNAConv, {proof.device}", options.curve)
    proof.enter("judging", Layer.TRAINING)
    stack.raise_complaints(complaints)
    if found := objections(training.points, training.first_loss):
        raise Fault(Layer.TRAINING, "; ".join(found))


def main() -> int:
    """Returns 0 when proven, 1 when not."""
    options = arguments()
    return prove("dna", lambda proof: run(options, proof), options.limit)


if __name__ == "__main__":
    exit_with(main())
