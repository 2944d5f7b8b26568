"""A graph in parts, in a folder: GLT's own files, labels, the nodes to train and test with, and `partitions.json`.

partitions.json     what it is: see Partitions
META, node_pb.pt, edge_pb.pt, part0/, part1/, …     as GLT's partitioners write them and DistDataset reads them
labels.pt           of all nodes
seeds0.pt, …        {"train", "valid", "test"}: numbers of nodes of that part, sorted
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    import torch as torch_types

    from proof.sources import Source

META = "partitions.json"
FORMAT = 1
LABELS = "labels.pt"
ROLES = ("train", "valid", "test")
CHUNK = 64 << 20  #: bytes that are hashed at once
FULL = 1 << 20  #: bytes that are left of a full disk
FEWEST_ROWS, MOST_CHUNKS = 10_000, 1000  #: GLT goes through edges and features in chunks, a Python loop


@dataclass(frozen=True)
class Request:
    """A request: the same one gives the same folder. `sha256`: of the files, for files."""

    dataset: str
    sha256: str
    num_partitions: int
    seed: int

    def gives_same(self, other: Request) -> bool:
        """Return whether both give the same folder: files may have been moved."""
        if self.sha256 and self.sha256 == other.sha256:
            other = replace(other, dataset=self.dataset)
        return self == other

    def __str__(self) -> str:
        files = f" (sha256 {self.sha256[:12]}…)" if self.sha256 else ""
        return f"{self.dataset}{files} in {self.num_partitions} partitions, seed {self.seed}"


@dataclass(frozen=True)
class Partitions:
    """A folder's parts. `parts`: for each its nodes, edges, bytes and how many of its nodes have which role."""

    request: Request
    graph_sha256: str  #: of the edges, the features and the labels
    book_sha256: str  #: of which node is in which part: two folders with the same one can work together
    nodes: int
    edges: int
    in_channel: int
    out_channel: int
    parts: tuple[Mapping[str, int], ...]
    versions: Mapping[str, str]

    @property
    def num_partitions(self) -> int:
        """As many nodes (machines) can train with it."""
        return self.request.num_partitions


def read(folder: Path) -> Partitions:
    """Read the folder. Raises Fault of layer data."""
    path = folder / META
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            raise ValueError("of another version of this program")
        return Partitions(
            **{**found, "request": Request(**found["request"]), "parts": tuple(found["parts"])},
        )
    except FileNotFoundError as error:
        there = "is no folder with partitions: it has no partitions.json" if folder.is_dir() else "is not there"
        raise Fault(
            Layer.DATA,
            f"--dataset {folder} {there}; partition a graph first, or mount the data where it is looked for: "
            f"{command('ogbn-products', 2, folder)}",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fault(
            Layer.DATA, f"{path} cannot be read ({error}); partition the graph again into an empty place"
        ) from error


def command(dataset: str, number: int, output: Path) -> str:
    """Return the command that partitions a data set."""
    program = Path(__file__).resolve().parent.parent / "glt" / "partition.py"
    return f"python {program} --dataset {shlex.quote(dataset)} --num-partitions {number} --output {output}"


def check_number(found: Partitions, nodes: int, folder: Path) -> None:
    """Raises Fault when the folder was made for another number of nodes."""
    if found.num_partitions == nodes:
        return
    beside = folder.with_name(f"{folder.name}-in-{nodes}")
    raise Fault(
        Layer.DATA,
        f"{folder} was made for {found.num_partitions} nodes, and this training has {nodes}: each node holds one "
        f"partition. Give --num_nodes={found.num_partitions}, or partition again: "
        f"{command(found.request.dataset, nodes, beside)}",
    )


def make(source: Source, request: Request, output: Path, modules: tuple[ModuleType, ModuleType], proof: Proof) -> None:
    """Cut a graph into parts, into a temporary folder that becomes `output`. `modules`: torch and GLT. Raises Fault."""
    torch, glt = modules
    proof.enter("loading the graph", Layer.DATA)
    graph = source.load(request.seed, proof)
    with _becoming(output) as folder:
        proof.enter(f"partitioning {graph.nodes} nodes, {graph.edges} edges in {request.num_partitions}", Layer.GLT)
        torch.manual_seed(request.seed)
        partitioner = glt.partition.RandomPartitioner(
            str(folder),
            max(request.num_partitions, 2),
            graph.nodes,
            graph.edge_index,
            node_feat=graph.x,
            chunk_size=max(FEWEST_ROWS, graph.edges // MOST_CHUNKS),
        )
        partitioner.num_parts = request.num_partitions  # it refuses 1, which makes a whole graph that one node can use
        partitioner.partition()
        proof.enter("writing labels and seeds", Layer.DATA)
        book = torch.load(str(folder / "node_pb.pt"))
        torch.save(graph.y, str(folder / LABELS))
        parts = [_write_seeds(folder, number, graph.roles, book, torch) for number in range(request.num_partitions)]
        for number, part in enumerate(parts):
            if not part["train"]:
                raise Fault(Layer.DATA, f"part {number} has none of the {len(graph.roles['train'])} training nodes")
        proof.enter("hashing the graph", Layer.DATA)
        made = Partitions(
            request=request,
            graph_sha256=digest(graph.edge_index, graph.x, graph.y),
            book_sha256=digest(book),
            nodes=graph.nodes,
            edges=graph.edges,
            in_channel=graph.x.size(1),
            out_channel=graph.classes,
            parts=tuple(parts),
            versions={name: str(proof.versions[name]) for name in ("torch", "graphlearn_torch")},
        )
        (folder / META).write_text(json.dumps({"format": FORMAT, **asdict(made)}, indent=1) + "\n", encoding="utf-8")


def _write_seeds(
    folder: Path, number: int, roles: Mapping[str, torch_types.Tensor], book: torch_types.Tensor, torch: ModuleType
) -> dict[str, int]:
    """Write which nodes of a part have which role; returns the part's sizes."""
    seeds = {role: nodes[book[nodes] == number].sort().values for role, nodes in roles.items()}
    torch.save(seeds, str(folder / f"seeds{number}.pt"))
    part = folder / f"part{number}"
    return {
        "nodes": int((book == number).sum()),
        "edges": len(torch.load(str(part / "graph" / "eids.pt"))),
        "bytes": sum(path.stat().st_size for path in part.rglob("*") if path.is_file()),
        **{role: len(nodes) for role, nodes in seeds.items()},
    }


def digest(*tensors: torch_types.Tensor) -> str:
    """The SHA-256 of tensors, one after the other."""
    found = hashlib.sha256()
    for tensor in tensors:
        content = memoryview(tensor.contiguous().numpy()).cast("B")
        for start in range(0, len(content), CHUNK):
            found.update(content[start : start + CHUNK])
    return found.hexdigest()


def is_there(output: Path, request: Request) -> bool:
    """Return whether `output` is what this request makes. Raises Fault when something else is there."""
    if not output.exists() and not output.is_symlink():
        return False
    if output.is_dir() and not any(output.iterdir()):
        return False
    if not (output / META).is_file():
        raise Fault(
            Layer.DATA, f"--output {output} is there and is no folder with partitions; name another, or remove it"
        )
    found = read(output).request
    if not found.gives_same(request):
        raise Fault(
            Layer.DATA,
            f"--output {output} has another request: it is {found}; asked for is {request}. Name another --output, or "
            f"remove it: rm -r {shlex.quote(str(output))}",
        )
    return True


@contextlib.contextmanager
def _becoming(output: Path) -> Iterator[Path]:
    """A temporary folder beside `output` that takes its name at the end, whole or not at all."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=str(output.parent)))
    except OSError as error:
        raise Fault(
            Layer.DATA, f"--output {output} cannot be written: {error.strerror}; name a folder of yours with --output"
        ) from error
    try:
        yield folder
        mask = os.umask(0)
        os.umask(mask)
        folder.chmod(0o777 & ~mask)  # mkdtemp closes it to others
        folder.replace(output)
    except (OSError, RuntimeError) as error:  # torch says of a full disk that a position is unexpected
        if shutil.disk_usage(output.parent).free > FULL:
            raise
        raise Fault(Layer.MACHINE, f"the disk of {output.parent} is full; name another with --output") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def seeds_of(folder: Path, number: int, torch: ModuleType) -> dict[str, Any]:
    """The nodes of a part by role."""
    return {role: nodes for role, nodes in torch.load(str(folder / f"seeds{number}.pt")).items() if role in ROLES}
