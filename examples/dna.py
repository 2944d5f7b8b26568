#!/usr/bin/env python3
"""Trains DNAConv (https://arxiv.org/abs/1904.04849) on a graph, after PyG's example of the same name. Copy and change.

python dna.py                              on a graph that is made up, without a network
python dna.py --dataset cora --root data   on Cora, which PyG downloads to data/ (or finds there)
python dna.py --dataset mine.npz           on yours: x [nodes, features], edge_index [2, edges], y [nodes]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import DNAConv

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="generated", help="generated, cora, or a file .npz")
parser.add_argument("--root", default="data", help="where Cora lies, or goes")
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--every", type=int, default=10, help="epochs between two evaluations")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--checkpoint", help="keep the training in this file, and go on from it")


class Network(torch.nn.Module):
    def __init__(self, features, classes, channels=128, layers=5, heads=8, groups=16):
        super().__init__()
        self.enter = torch.nn.Linear(features, channels)
        self.layers = torch.nn.ModuleList(DNAConv(channels, heads, groups, 0.8, cached=True) for _ in range(layers))
        self.leave = torch.nn.Linear(channels, classes)

    def forward(self, x, edge_index):
        x = F.dropout(F.relu(self.enter(x)), 0.5, self.training)
        history = x.unsqueeze(1)  # [nodes, layers so far, channels]: each layer attends to all before it
        for layer in self.layers:
            x = F.relu(layer(history, edge_index))
            history = torch.cat([history, x.unsqueeze(1)], dim=1)
        return self.leave(F.dropout(x, 0.5, self.training))


def load(name, root):
    if name == "cora":
        return Planetoid(root, "Cora")[0]
    if name != "generated":
        arrays = np.load(name)
        x, edge_index, y = (torch.from_numpy(arrays[key]) for key in ("x", "edge_index", "y"))
        return Data(x=x.float(), edge_index=edge_index.long(), y=y.long())
    y = torch.arange(2800) % 7
    ends = torch.randint(2800, (2, 40000))
    ends = ends[:, (y[ends[0]] == y[ends[1]]) | (torch.rand(40000) < 0.02)]  # most edges join nodes of one class
    return Data(x=F.one_hot(y, 7) + torch.randn(2800, 7), edge_index=torch.cat([ends, ends.flip(0)], 1), y=y)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load(args.dataset, args.root).to(device)
    fold = torch.randperm(len(data.y), device=device) % 5  # a fifth to train, a fifth to validate, the rest to test
    masks = {"train": fold == 0, "val": fold == 1, "test": fold > 1}
    model = Network(data.x.size(1), int(data.y.max()) + 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    first, points = 1, []
    if args.checkpoint and Path(args.checkpoint).exists():
        model_state, optimizer_state, masks, first, points = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
    for epoch in range(first, args.epochs + 1):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.x, data.edge_index)[masks["train"]], data.y[masks["train"]])
        loss.backward()
        optimizer.step()
        if epoch % args.every and epoch != args.epochs:
            continue
        model.eval()
        with torch.no_grad():
            right = model(data.x, data.edge_index).argmax(dim=1) == data.y
        points.append((epoch, [float(right[mask].float().mean()) for mask in masks.values()]))
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: {points[-1][1][0]:.4f}, "
              f"Val: {points[-1][1][1]:.4f}, Test: {points[-1][1][2]:.4f}", flush=True)  # fmt: skip
        if args.checkpoint:
            state = (model.state_dict(), optimizer.state_dict(), masks, epoch + 1, points)
            torch.save(state, f"{args.checkpoint}.new")
            Path(f"{args.checkpoint}.new").replace(args.checkpoint)
    best = max(points, key=lambda point: point[1][1])
    print(f"on {device}: test accuracy {best[1][2]:.4f} at the best validation accuracy, epoch {best[0]}")


if __name__ == "__main__":
    main()
