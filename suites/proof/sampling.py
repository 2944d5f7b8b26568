"""The nodes of each process, and batches of them with sampled neighbours: by PyG's NeighborLoader, or our own.

The parts of a split do not overlap. All processes have as many training nodes and therefore as many batches as each
other: one that had a batch more would wait for ever for the gradients of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch as torch_types

    from proof.graphs import Tensors


def share(nodes: Sequence[int], rank: int, world: int) -> list[int]:
    """This rank's part, as large as every other's: where they do not come out even, the first nodes come again."""
    each = math.ceil(len(nodes) / world)
    return [nodes[place % len(nodes)] for place in range(rank, each * world, world)]


class Sampler:
    """Batches like NeighborLoader's in plain torch: every neighbour, or `fan_out` of them drawn without replacement.

    `random` decides; with another one in the same state the same batch comes again, on every machine.
    """

    def __init__(self, graph: Tensors, fan_outs: Sequence[int]) -> None:
        import torch

        self.torch, self.graph, self.fan_outs = torch, graph, fan_outs
        count = len(graph.y)
        source, target = graph.edge_index
        self._sources = source[torch.sort(target, stable=True).indices]
        self._degrees = torch.bincount(target, minlength=count)
        self._starts = torch.cumsum(self._degrees, 0) - self._degrees
        self._local = torch.full((count,), -1, dtype=torch.long)

    def batch(self, seeds: torch_types.Tensor, random: torch_types.Generator) -> Any:  # noqa: ANN401  PyG's Data
        """The seeds first, then what was sampled for them hop by hop; `x`, `y`, `edge_index`, `batch_size`."""
        from torch_geometric.data import Data

        torch = self.torch
        nodes, frontier, edges = seeds, seeds, []
        self._local[seeds] = torch.arange(len(seeds))
        for fan_out in self.fan_outs:
            sources, targets = self._hop(frontier, fan_out, random)
            fresh = torch.unique(sources[self._local[sources] < 0])
            self._local[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh))
            nodes, frontier = torch.cat([nodes, fresh]), fresh
            edges.append(torch.stack([self._local[sources], self._local[targets]]))
        self._local[nodes] = -1
        batch = Data(x=self.graph.x[nodes], y=self.graph.y[nodes], edge_index=torch.cat(edges, dim=1))
        batch.batch_size, batch.n_id = len(seeds), nodes
        return batch

    def _hop(
        self, frontier: torch_types.Tensor, fan_out: int, random: torch_types.Generator
    ) -> tuple[torch_types.Tensor, torch_types.Tensor]:
        """The edges into these nodes that were drawn, as (sources, targets)."""
        torch = self.torch
        degrees = self._degrees[frontier]
        owner = torch.repeat_interleave(torch.arange(len(frontier)), degrees)
        first = torch.cumsum(degrees, 0) - degrees
        place = torch.arange(len(owner)) - first[owner]
        # Shuffled within each node's edges: a fraction added to the owner's number does not change its order.
        shuffled = torch.argsort(owner + torch.rand(len(owner), generator=random, dtype=torch.double))
        kept = shuffled[place < fan_out]
        return self._sources[self._starts[frontier[owner[kept]]] + place[kept]], frontier[owner[kept]]


class OwnLoader:
    """Goes over nodes as NeighborLoader does, in a new order each time where `shuffle` is."""

    def __init__(self, sampler: Sampler, nodes: torch_types.Tensor, size: int, seed: int, shuffle: bool) -> None:
        self._sampler, self._nodes, self._size, self._shuffle = sampler, nodes, size, shuffle
        self._random = sampler.torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return math.ceil(len(self._nodes) / self._size)

    def __iter__(self) -> Iterator[Any]:
        torch, nodes = self._sampler.torch, self._nodes
        if self._shuffle:
            nodes = nodes[torch.randperm(len(nodes), generator=self._random)]
        for chosen in nodes.split(self._size):
            yield self._sampler.batch(chosen, self._random)


def pyg_samples() -> bool:
    """Return whether PyG has an extension that samples neighbours."""
    from torch_geometric import typing

    return bool(getattr(typing, "WITH_PYG_LIB", False) or getattr(typing, "WITH_TORCH_SPARSE", False))


def loader(sampler: Sampler, nodes: Sequence[int], size: int, seed: int, *, shuffle: bool, by_pyg: bool) -> Any:  # noqa: ANN401
    """An iterable of batches around these nodes, of which there may be none."""
    torch, graph = sampler.torch, sampler.graph
    wanted = torch.tensor(nodes, dtype=torch.long)
    if not nodes:
        return []
    if not by_pyg:
        return OwnLoader(sampler, wanted, size, seed, shuffle)
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    data = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index)
    return NeighborLoader(data, list(sampler.fan_outs), input_nodes=wanted, batch_size=size, shuffle=shuffle)
