"""A sampler's duties towards a graph, and whether it met them.

Where a fan-out is no smaller than a node's degree, each neighbour must come exactly once; where it is smaller, as many
as the fan-out (GLT draws with replacement, so one may come twice).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

MOST = 3  #: objections that are told of one batch


@dataclass(frozen=True)
class Links:
    """Directed edges: number `n` goes from `sources[n]` to `targets[n]`; `leaving[node]` numbers a node's."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    leaving: tuple[tuple[int, ...], ...]

    @property
    def highest_degree(self) -> int:
        """The most edges that leave one node."""
        return max(map(len, self.leaving))


@dataclass(frozen=True)
class Sample:
    """A batch in the graph's own numbers. An edge is (node that was expanded, neighbour that came, edge number)."""

    seeds: Sequence[int]
    nodes: Sequence[int]
    edges: Sequence[tuple[int, int, int]]


def link(edges: Iterable[tuple[int, int]], nodes: int) -> Links:
    """Both directions of undirected edges: first all as given, then all turned around."""
    given = tuple(edges)
    pairs = (*given, *((b, a) for a, b in given))
    leaving: list[list[int]] = [[] for _ in range(nodes)]
    for number, (source, _) in enumerate(pairs):
        leaving[source].append(number)
    return Links(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), tuple(map(tuple, leaving)))


def objections(sample: Sample, links: Links, fan_outs: Sequence[int]) -> list[str]:
    """List faults of a batch that was sampled with one fan-out per hop; empty: none. At most MOST are told."""
    found = []
    if list(sample.nodes[: len(sample.seeds)]) != list(sample.seeds):
        found.append("the batch does not begin with its seeds")
    if len(set(sample.nodes)) != len(sample.nodes):
        found.append("nodes are listed twice")
    came: dict[int, list[int]] = {}
    for node, neighbour, number in sample.edges:
        if not 0 <= number < len(links.sources) or (links.sources[number], links.targets[number]) != (node, neighbour):
            return [*found, f"edge {number} came as {node} → {neighbour}, which the graph does not have"]
        came.setdefault(node, []).append(number)
    reached = set(sample.seeds)
    frontier = list(sample.seeds)
    for hop, fan_out in enumerate(fan_outs, 1):
        fresh: list[int] = []
        for node in frontier:
            got = came.pop(node, [])
            found += _of_node(node, got, links.leaving[node], fan_out, hop)
            for number in got:
                neighbour = links.targets[number]
                if neighbour not in reached:
                    reached.add(neighbour)
                    fresh.append(neighbour)
        frontier = fresh
    if came:
        found.append(f"{len(came)} nodes were expanded that are {len(fan_outs)} or more hops from a seed")
    if reached != set(sample.nodes):
        found.append(f"{len(set(sample.nodes) ^ reached)} nodes are listed without an edge, or the other way round")
    return found[:MOST]


def _of_node(node: int, got: Sequence[int], edges: Collection[int], fan_out: int, hop: int) -> list[str]:
    wanted = min(fan_out, len(edges))
    if len(got) != wanted:
        text = f"hop {hop}: node {node} has {len(edges)} neighbours and fan-out {fan_out} brought {len(got)} of them"
        return [f"{text}, not {wanted}"]
    if wanted == len(edges) and set(got) != set(edges):
        return [f"hop {hop}: some of node {node}'s {len(edges)} neighbours came twice and others not at all"]
    return []


def abroad(sample: Sample, home: Collection[int]) -> int:
    """Count the edges of nodes that are not in `home`, so that another process had to sample them."""
    return sum(node not in home for node, _, _ in sample.edges)
