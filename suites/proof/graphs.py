"""A generated citation-like graph, the split of its nodes, and both as tensors.

It is made in plain Python from `Random.random` alone, whose sequence Python guarantees for a given
seed, and from exact arithmetic: it is the same on every machine and with every version of Python, torch and PyG.
"""

from __future__ import annotations

import random
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

NODES, EDGES, WORDS = 2708, 5278, 1433  #: as many as Cora has; EDGES are undirected
CLASS_SIZES = (351, 217, 418, 818, 426, 298, 180)  #: Cora's, used as weights
TOPIC_WORDS = 30  #: words that a class prefers, drawn from all: topics overlap
TOPIC_SHARE = 0.75  #: of a node's words that come from its topic
SAME_CLASS = 0.97  #: of the edges drawn within the field; strays bring homophily down to about 0.8
STRAYS = 0.1  #: of the nodes that write and cite in another field than their label says; nobody can get these right
MUTE = 0.35  #: of the nodes, whose words tell nothing of their class: only their neighbours do
FEWEST_WORDS, MOST_WORDS = 10, 26


@dataclass(frozen=True)
class Graph:
    """A citation-like graph. `words[node]` are the columns that are 1; each undirected edge is there once."""

    words: tuple[tuple[int, ...], ...]
    width: int
    edges: tuple[tuple[int, int], ...]
    labels: tuple[int, ...]
    classes: int

    @property
    def homophily(self) -> float:
        """Share of the edges that join two nodes of one class."""
        return sum(self.labels[a] == self.labels[b] for a, b in self.edges) / len(self.edges)


@dataclass(frozen=True)
class Split:
    """Node numbers of PyG's `dna.py` split: a fifth to train, a fifth to validate, three fifths to test."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]


def generate(seed: int = 0) -> Graph:
    """The graph of this seed."""
    draw = random.Random(seed).random
    bounds = list(accumulate(CLASS_SIZES))
    labels = tuple(bisect(bounds, draw() * bounds[-1]) for _ in range(NODES))
    fields = tuple(label if draw() >= STRAYS else int(draw() * len(CLASS_SIZES)) for label in labels)
    topics = [[int(draw() * WORDS) for _ in range(TOPIC_WORDS)] for _ in CLASS_SIZES]
    words = []
    for label in fields:
        node: set[int] = set()
        telling = TOPIC_SHARE if draw() >= MUTE else 0.0
        for _ in range(FEWEST_WORDS + int(draw() * (MOST_WORDS - FEWEST_WORDS + 1))):
            own = draw() < telling
            place = draw()
            # The square makes some words common and most rare, as in texts. (`**` would ask the C library's pow.)
            node.add(topics[label][int(place * TOPIC_WORDS)] if own else int(place * place * WORDS))
        words.append(tuple(sorted(node)))
    return Graph(tuple(words), WORDS, _cite(fields, draw), labels, len(CLASS_SIZES))


def _cite(labels: Sequence[int], draw: random.Random.random) -> tuple[tuple[int, int], ...]:
    """Edges by preferential attachment: every node cites one before it, the rest are spread; no node is left alone."""
    edges: set[tuple[int, int]] = set()
    anyone: list[int] = []  # a node is listed once and once more per citation
    peers: list[list[int]] = [[] for _ in CLASS_SIZES]

    def cite(node: int) -> None:
        pool = peers[labels[node]] if draw() < SAME_CLASS else anyone
        if not pool:
            return
        other = pool[int(draw() * len(pool))]
        if other != node and (min(node, other), max(node, other)) not in edges:
            edges.add((min(node, other), max(node, other)))
            anyone.append(other)
            peers[labels[other]].append(other)

    for node, label in enumerate(labels):
        before = len(edges)
        while anyone and len(edges) == before:
            cite(node)
        anyone.append(node)
        peers[label].append(node)
    while len(edges) < EDGES:
        cite(int(draw() * len(labels)))
    return tuple(sorted(edges))


def split(labels: Sequence[int], seed: int) -> Split:
    """A stratified split of these labels, shuffled by `seed`."""
    draw = random.Random(seed).random
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for label in sorted(set(labels)):
        nodes = [node for node, other in enumerate(labels) if other == label]
        for last in range(len(nodes) - 1, 0, -1):
            other = int(draw() * (last + 1))
            nodes[last], nodes[other] = nodes[other], nodes[last]
        fifth = round(len(nodes) / 5)
        for part, chosen in zip(parts, (nodes[:fifth], nodes[fifth : 2 * fifth], nodes[2 * fifth :])):
            part.extend(chosen)
    return Split(*(tuple(sorted(part)) for part in parts))


@dataclass(frozen=True)
class Tensors:
    """A model's input: `x` [nodes, width] float32, `edge_index` [2, edges] int64 in both directions, `y` [nodes]."""

    x: torch.Tensor
    edge_index: torch.Tensor
    y: torch.Tensor
    classes: int

    def to(self, device: torch.device) -> Tensors:
        """The same on a device."""
        return Tensors(self.x.to(device), self.edge_index.to(device), self.y.to(device), self.classes)


def tensors(graph: Graph) -> Tensors:
    """A generated graph as tensors."""
    import torch

    x = torch.zeros(len(graph.labels), graph.width)
    for node, words in enumerate(graph.words):
        x[node, list(words)] = 1.0
    edges = torch.tensor(graph.edges, dtype=torch.long).t()
    return Tensors(x, torch.cat([edges, edges.flip(0)], dim=1), torch.tensor(graph.labels), graph.classes)
