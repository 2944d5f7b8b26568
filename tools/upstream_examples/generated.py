"""Small graphs in the place of data sets that upstream's examples would download; put beside the examples in an image.

`install()` replaces classes of torch_geometric.datasets and of ogb. Each graph is drawn from the name of its data set:
the same in every run. What an example reads of its data set is there, and nodes of a class are like one another, so
that there is something to learn; accuracies mean nothing.
"""

from __future__ import annotations

import sys
import types
import zlib
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.utils import to_undirected


def generator(name: str) -> torch.Generator:
    """Return numbers that depend on the name alone."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def graph(name: str, nodes: int = 300, width: int = 32, classes: int = 7, degree: int = 4) -> Data:
    """Draw an undirected graph: `degree` edges from each node, three of four of them to nodes of its class."""
    draw = generator(name)
    y = torch.arange(nodes) % classes
    source = torch.arange(nodes).repeat_interleave(degree)
    alike = torch.randint(nodes // classes, source.shape, generator=draw) * classes + y[source]
    other = torch.randint(nodes, source.shape, generator=draw)
    target = torch.where(torch.rand(source.shape, generator=draw) < 0.75, alike, other)
    edge_index = to_undirected(torch.stack([source, target])[:, source != target], num_nodes=nodes)
    x = (torch.rand(nodes, width, generator=draw) < 0.1).float()
    x[torch.arange(nodes), y] = 1.0
    return Data(x=x, edge_index=edge_index, y=y, **masks(nodes, draw))


def masks(nodes: int, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Six of ten nodes to train with, two to choose by, two to test."""
    part = torch.rand(nodes, generator=draw)
    return {"train_mask": part < 0.6, "val_mask": (part >= 0.6) & (part < 0.8), "test_mask": part >= 0.8}


def links(draw: torch.Generator, sources: int, targets: int, number: int) -> torch.Tensor:
    """Draw edges between two kinds of nodes; each node has one at least."""
    source = torch.cat([torch.arange(sources), torch.randint(sources, (number,), generator=draw)])
    target = torch.cat([torch.randint(targets, (sources,), generator=draw), torch.arange(number) % targets])
    return torch.stack([source, target])


class Generated(InMemoryDataset):  # type: ignore[misc]  # torch is an image's
    """A data set without files: `root` and the other arguments are those of the one that it stands for."""

    def __init__(self, root: str = "", *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        self.arguments = {"name": "", **options}
        if arguments and isinstance(arguments[0], str):
            self.arguments["name"] = arguments[0]
        super().__init__(str(root) or None, options.get("transform"))
        if self.root:
            Path(self.processed_dir).mkdir(parents=True, exist_ok=True)
        self.data, self.slices = self.collate(self.graphs())

    def graphs(self) -> list[Any]:
        """Draw them; each data set has its own."""
        return []


class Planetoid(Generated):
    """Cora, CiteSeer, PubMed: a graph with classes."""

    def graphs(self) -> list[Any]:
        """One."""
        return [graph(str(self.arguments["name"]))]


class Reddit(Generated):
    """One graph; ClusterData cuts it in as many parts as an example asks for."""

    def graphs(self) -> list[Any]:
        """One, with more nodes than parts."""
        return [graph("Reddit", nodes=3000, classes=8)]


class TUDataset(Generated):
    """MUTAG, PROTEINS …: small graphs of two classes, which the features of their nodes tell."""

    def graphs(self) -> list[Any]:
        """Two hundred."""
        draw, found = generator(str(self.arguments["name"])), []
        for number in range(200):
            nodes = int(torch.randint(10, 25, (1,), generator=draw))
            one = graph(f"{self.arguments['name']} {number}", nodes, width=8, classes=2, degree=2)
            kinds = torch.randint(3, (nodes,), generator=draw) + 3 * (number % 2)
            x = torch.nn.functional.one_hot(kinds, 7).float()
            found.append(Data(x=x, edge_index=one.edge_index, y=torch.tensor([number % 2])))
        return found


class PPI(Generated):
    """Graphs whose nodes have several labels each."""

    def graphs(self) -> list[Any]:
        """Four to train with, two for the others."""
        split = str(self.arguments.get("split", "train"))
        found = []
        for number in range(4 if split == "train" else 2):
            one = graph(f"PPI {split} {number}", nodes=200, width=50, classes=5)
            labels = torch.stack([(one.y == kind) | (one.x[:, kind + 10] > 0) for kind in range(5)], dim=1)
            found.append(Data(x=one.x, edge_index=one.edge_index, y=labels.float()))
        return found


class AMiner(Generated):
    """Authors, papers and venues; authors and venues have classes."""

    def graphs(self) -> list[Any]:
        """One."""
        draw, data = generator("AMiner"), HeteroData()
        data["paper"].num_nodes = 400
        for kind, nodes in (("author", 200), ("venue", 20)):
            data[kind].num_nodes = nodes
            data[kind].y = torch.arange(nodes) % 4
            data[kind].y_index = torch.arange(nodes)
        writes, published = links(draw, 200, 400, 600), links(draw, 400, 20, 100)
        data["paper", "written_by", "author"].edge_index = writes.flip([0])
        data["author", "writes", "paper"].edge_index = writes
        data["paper", "published_in", "venue"].edge_index = published
        data["venue", "publishes", "paper"].edge_index = published.flip([0])
        return [data]


class Taobao(Generated):
    """Users, items and categories; what users did with items."""

    def graphs(self) -> list[Any]:
        """One in which many items share three users, as the example that counts them expects."""
        draw, data = generator("Taobao"), HeteroData()
        for kind, nodes in (("user", 300), ("item", 120), ("category", 10)):
            data[kind].num_nodes = nodes
        seen = links(draw, 300, 120, 15000)
        data["user", "item"].edge_index = seen
        data["user", "item"].time = torch.arange(seen.size(1))
        data["user", "item"].behavior = torch.zeros(seen.size(1), dtype=torch.long)
        data["item", "category"].edge_index = links(draw, 120, 10, 0)
        return [data]


class OGB_MAG(Generated):  # noqa: N801  PyG's name
    """Papers, authors, institutions and fields of study; papers have classes and years."""

    def graphs(self) -> list[Any]:
        """One, with features for every kind of node, as preprocess="metapath2vec" has it."""
        draw, data = generator("ogbn-mag"), HeteroData()
        sizes = {"paper": 600, "author": 300, "institution": 20, "field_of_study": 40}
        for kind, nodes in sizes.items():
            data[kind].x = torch.rand(nodes, 32, generator=draw)
        data["paper"].y = torch.arange(600) % 6
        data["paper"].x[torch.arange(600), data["paper"].y] += 2.0
        for name, mask in masks(600, draw).items():
            data["paper"][name] = mask
        for source, relation, target in (
            ("author", "affiliated_with", "institution"),
            ("author", "writes", "paper"),
            ("paper", "cites", "paper"),
            ("paper", "has_topic", "field_of_study"),
        ):
            data[source, relation, target].edge_index = links(draw, sizes[source], sizes[target], 900)
        return [data]

    @property
    def num_classes(self) -> int:
        """Of the papers."""
        return 6


class PygNodePropPredDataset(Generated):
    """ogbn-products, ogbn-arxiv …, as the package ogb hands them out: labels are a column."""

    def __init__(self, name: str, root: str = "dataset", transform: Any = None, **_: Any) -> None:  # noqa: ANN401
        super().__init__(root, name, transform=transform)

    def graphs(self) -> list[Any]:
        """One, as wide and with as many classes as ogbn-products, since examples have these numbers in their text."""
        one = graph(str(self.arguments["name"]), nodes=3000, width=100, classes=47)
        one.y = one.y.view(-1, 1)
        one.node_year = torch.arange(3000).view(-1, 1) % 10 + 2010
        return [one]

    @property
    def num_classes(self) -> int:
        """As many as labels."""
        return 47

    def get_idx_split(self) -> dict[str, torch.Tensor]:
        """Nodes by part."""
        return {name: self[0][f"{part}_mask"].nonzero().view(-1) for name, part in SPLITS}


SPLITS = (("train", "train"), ("valid", "val"), ("test", "test"))
OF_PYG = (Planetoid, Reddit, TUDataset, PPI, AMiner, Taobao, OGB_MAG)


def install() -> None:
    """Put the generated graphs in the place of the data sets, in this process, and seed what examples draw from."""
    import torch_geometric.datasets

    for kind in OF_PYG:
        setattr(torch_geometric.datasets, kind.__name__, kind)
    if _there("ogb"):
        import ogb.nodeproppred

        ogb.nodeproppred.PygNodePropPredDataset = PygNodePropPredDataset
    if not _there("matplotlib"):
        _without_pictures()
    if _there("graphlearn_torch") and not torch.cuda.is_available():
        _on_cpus()
    torch.manual_seed(0)


def _there(name: str) -> str:
    """The name of a package that is installed, else nothing."""
    import importlib.util

    return name if importlib.util.find_spec(name) else ""


def _without_pictures() -> None:
    """Let an example end that draws its results: the image has no matplotlib, and the picture is not used."""

    class Nothing(types.ModuleType):
        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_, **__: None

    pictures, pyplot = Nothing("matplotlib"), Nothing("matplotlib.pyplot")
    vars(pictures)["pyplot"] = pyplot
    sys.modules |= {"matplotlib": pictures, "matplotlib.pyplot": pyplot}


def _on_cpus() -> None:
    """Have GLT keep graphs and features in memory and sample on the CPU, where examples name a GPU by its number."""
    import graphlearn_torch as glt

    def with_options(kind: Any, name: str, **forced: Any) -> None:  # noqa: ANN401
        before = getattr(kind, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            return before(self, *arguments, **{**options, **forced})

        setattr(kind, name, call)

    made = glt.data.Graph.__init__
    glt.data.Graph.__init__ = lambda self, csr_topo, mode="CPU", device=None: made(self, csr_topo, "CPU")
    with_options(glt.data.Dataset, "init_node_features", with_gpu=False)
    with_options(glt.data.Dataset, "init_edge_features", with_gpu=False)
    for kind in (glt.loader.NeighborLoader, glt.loader.LinkNeighborLoader):
        with_options(kind, "__init__", device=torch.device("cpu"))
