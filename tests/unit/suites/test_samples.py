"""Samples, clusters and walks that no right operator gives: each is told, and a right one passes."""

import contextlib

import pytest
from proof import choices, samples
from proof.choices import Graph
from proof.operators import Wrong
from proof.samples import ONE, Sampled


class Numbers(list):
    """The part of a tensor that judges use."""

    def tolist(self):
        return list(self)


#: edges from `col` to `row`: 0 has 1 and 2, 1 has 2, 2 has 3, 3 has none
GRAPH = Graph(Numbers([0, 0, 1, 2]), Numbers([1, 2, 2, 3]), Numbers([0, 2, 3, 4, 4]))
NODES = [0, 1, 2, 3]
WHOLE = [(1, 0, 0), (2, 0, 1), (2, 1, 2), (3, 2, 3)]  #: all neighbours of 0, two hops deep


@pytest.mark.parametrize(
    ("nodes", "edges", "fan", "said"),
    [
        (NODES, WHOLE, -1, None),
        ([0, 1, 2], [(1, 0, 0), (2, 1, 2)], 1, None),
        (NODES, WHOLE[:2] + WHOLE[3:], -1, "0 neighbours of a node are sampled, not 1"),
        (NODES, [*WHOLE[:3], (3, 2, 2)], -1, "has the number 2, another's"),
        (NODES, [*WHOLE, WHOLE[0]], -1, "an edge is sampled twice"),
        ([0, 1, 2, 3, 3], WHOLE, -1, "and not \\[0\\] and others"),
        ([1, 0, 2, 3], WHOLE, -1, "and not \\[0\\] and others"),
        ([0, 1, 2], WHOLE[:3], -1, "0 neighbours of a node are sampled, not 1"),
        (NODES, WHOLE, 1, "2 neighbours of a node are sampled, not 1"),
        ([0, 1, 2, 3], [(1, 0, 0), (2, 1, 2), (3, 2, 3)], 1, "not 2 hops deep"),
        ([0, 1, 2, 3], [(1, 0, 0), (2, 1, 2)], 1, "not 2 hops deep"),
    ],
)
def test_sample_with_other_edges_nodes_or_depth_is_wrong(nodes, edges, fan, said):
    found = Sampled({"n": nodes}, {ONE[0]: edges})
    with pytest.raises(Wrong, match=said) if said else contextlib.nullcontext():
        samples.judge_sample(found, GRAPH, {"n": [0]}, fan)


BOTH_WAYS = Graph(Numbers([0, 1, 1, 2]), Numbers([1, 0, 2, 1]), Numbers([0, 1, 3, 4]))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([0, 0, 2], None),
        ([0, 1, 1], None),
        ([0, 0, 0], "are a cluster, and no edge"),
        ([0, 1, 0], "are a cluster, and no edge"),
        ([0, 1, 2], "have an edge and are both left alone"),
    ],
)
def test_matching_that_is_no_edge_or_leaves_one_is_wrong(found, said):
    with pytest.raises(Wrong, match=said) if said else contextlib.nullcontext():
        choices.judge_matching(found, BOTH_WAYS)
