"""Break what an image has, one thing at a time, and print what the suite `ops` says of each. Runs in the image.

A row is an operator that gives something wrong (in this process), or a library that cannot be loaded (its file
changed in a copy, in a process of its own). Rows of a library that the image lacks are left out.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SUITES = os.environ.get("SUITES", "/opt/graphcrate/suites")
sys.path.insert(0, SUITES)

import ops  # noqa: E402
import torch  # noqa: E402
from proof.operators import wanted_by_pyg  # noqa: E402
from proof.verdict import Proof  # noqa: E402

CPU = torch.device("cpu")


def changed(change):
    """An operator whose first tensor is changed."""

    def made(real):
        def call(*args, **kwargs):
            given = real(*args, **kwargs)
            return (change(given[0]), *given[1:]) if isinstance(given, tuple) else change(given)

        return call

    return made


def place(number, change):
    """An operator of which one of several results is changed."""

    def made(real):
        def call(*args, **kwargs):
            given = [*real(*args, **kwargs)]
            given[number] = change(given[number])
            return tuple(given)

        return call

    return made


def raising(error):
    """An operator that raises."""

    def made(_):
        def call(*_, **__):
            raise error

        return call

    return made


def repeating(*numbers):
    """A sampler that gives its second edge as its first one again: what of its results is of edges."""
    return lambda real: (
        lambda *args, **more: tuple(
            torch.cat([given[:1], given[:1], given[2:]]) if number in numbers else given
            for number, given in enumerate(real(*args, **more))
        )
    )


ZERO, SCALED, DETACHED = changed(lambda x: x * 0), changed(lambda x: x * 1.01), changed(lambda x: x.detach())
NAN, SHORT = changed(lambda x: x * float("nan")), changed(lambda x: x[..., :-1])
FIRST, ROLLED = changed(lambda x: x * 0 + x.flatten()[0]), changed(lambda x: x.roll(1, -1))
TWICE = changed(lambda pairs: torch.cat([pairs, pairs[:, :1]], 1))
SHIFTED = changed(lambda x: x + 1)
OTHER_NODE = changed(lambda walks: (walks + torch.arange(walks.size(1))) % 20)
HALVED = changed(lambda cells: cells // 2)
MEMORY = RuntimeError("DefaultCPUAllocator: can't allocate memory")

#: library, where, how; the operator that the suite names, and the layer
OPERATORS = (
    ("torch_scatter", "scatter_min", ZERO, "torch_scatter.scatter_min", "extension"),
    ("torch_scatter", "scatter_max", SCALED, "torch_scatter.scatter_max", "extension"),
    ("torch_scatter", "scatter_mul", DETACHED, "torch_scatter.scatter_mul", "extension"),
    ("torch_scatter", "scatter_mean", NAN, "torch_scatter.scatter_mean", "extension"),
    ("torch_scatter", "scatter", changed(lambda x: x.abs()), "torch_scatter.scatter, sum", "extension"),
    ("torch_scatter", "segment_min_coo", ZERO, "torch_scatter.segment_min_coo", "extension"),
    ("torch_scatter", "segment_sum_csr", SHORT, "torch_scatter.segment_sum_csr", "extension"),
    ("torch_scatter", "gather_csr", ROLLED, "torch_scatter.gather_csr", "extension"),
    (
        "torch_scatter",
        "scatter_sum",
        raising(RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED")),
        "torch_scatter.scatter_sum",
        "CUDA library",
    ),
    ("torch_scatter", "gather_coo", raising(MEMORY), "torch_scatter.gather_coo", "machine"),
    (
        "torch_sparse",
        "matmul",
        lambda real: lambda a, b, how="sum": real(a, b, "sum"),
        "torch_sparse.spmm_mean",
        "extension",
    ),
    ("torch_sparse", "spmm", ZERO, "torch_sparse.spmm", "extension"),
    ("torch_sparse", "transpose", place(1, lambda values: values.flip(0)), "torch_sparse.transpose", "extension"),
    ("torch_sparse", "coalesce", place(1, lambda values: values / 2), "torch_sparse.coalesce", "extension"),
    ("torch_sparse", "set_diag", lambda _: lambda matrix: matrix, "torch_sparse.set_diag", "extension"),
    ("torch_sparse", "remove_diag", lambda _: lambda matrix: matrix, "torch_sparse.remove_diag", "extension"),
    ("torch_sparse", "min", ZERO, "torch_sparse.min", "extension"),
    ("ops.torch_sparse", "neighbor_sample", repeating(1, 2, 3), "torch_sparse.neighbor_sample", "extension"),
    ("ops.torch_sparse", "ptr2ind", SHIFTED, "torch_sparse.ptr2ind", "extension"),
    (
        "ops.torch_sparse",
        "ego_k_hop_sample_adj",
        place(3, lambda edge: edge.flip(0)),
        "torch_sparse.ego_k_hop",
        "extension",
    ),
    ("torch_cluster", "knn", changed(lambda pairs: pairs.flip(1).flip(0)), "torch_cluster.knn", "extension"),
    ("torch_cluster", "radius", SHORT, "torch_cluster.radius", "extension"),
    ("torch_cluster", "radius_graph", TWICE, "torch_cluster.radius_graph", "extension"),
    ("torch_cluster", "nearest", ROLLED, "torch_cluster.nearest", "extension"),
    ("torch_cluster", "fps", ROLLED, "torch_cluster.fps", "extension"),
    ("torch_cluster", "grid_cluster", HALVED, "torch_cluster.grid_cluster", "extension"),
    ("torch_cluster", "graclus_cluster", changed(lambda x: torch.arange(len(x))), "torch_cluster.graclus", "extension"),
    ("torch_cluster", "random_walk", OTHER_NODE, "torch_cluster.random_walk", "extension"),
    (
        "torch_cluster",
        "knn_graph",
        raising(RuntimeError("no kernel image is available")),
        "torch_cluster.knn_graph",
        "torch",
    ),
    ("torch_spline_conv", "spline_conv", SCALED, "torch_spline_conv.spline_conv", "extension"),
    ("pyg_lib.ops", "segment_matmul", SCALED, "pyg_lib.segment_matmul", "extension"),
    (
        "pyg_lib.ops",
        "grouped_matmul",
        lambda real: lambda a, b: [x * 0 for x in real(a, b)],
        "pyg_lib.grouped",
        "extension",
    ),
    ("ops.pyg", "neighbor_sample", repeating(0, 1, 3), "pyg_lib.neighbor_sample", "extension"),
    (
        "ops.pyg",
        "hetero_neighbor_sample",
        place(0, lambda rows: {k: v.flip(0) for k, v in rows.items()}),
        "pyg_lib.hetero",
        "extension",
    ),
    ("ops.pyg", "subgraph", place(2, lambda edge: edge.flip(0)), "pyg_lib.subgraph", "extension"),
    ("ops.pyg", "knn", SHORT, "pyg_lib.knn", "extension"),
    ("ops.pyg", "index_sort", ROLLED, "pyg_lib.index_sort", "extension"),
    ("torch_geometric.nn", "radius", SHORT, "PyG.radius", "extension"),
    (
        "torch_geometric.nn",
        "SAGEConv",
        lambda real: lambda *args, **more: real(*args, **{**more, "aggr": "sum"}),
        "PyG.SAGEConv",
        "extension",
    ),
    ("torch_geometric.typing", "WITH_TORCH_SPARSE", lambda _: False, "PyG.typing", "extension"),
)

#: what is changed in a library's file, and what the suite says
FILES = {
    "another ABI": (b"_ZN3c10", b"_ZN3c1X", "undefined symbol", "extension"),
    "another C library": (b"GLIBC_2.2.5\0", b"GLIBC_9.9.9\0", "GLIBC_9.9.9", "C library"),
    "another CUDA": (b"libtorch_cpu.so\0", b"libcudart.so.99\0", "libcudart.so.99", "CUDA library"),
    "cut off": (None, b"", "cannot be imported", "extension"),
    "gone": (None, None, "cannot be imported", "extension"),
}
EXTENSIONS = [name for name in ops.stack.EXTENSIONS if importlib.util.find_spec(name)]


def place_of(where):
    """The module or namespace in which an operator is; None where the image lacks its library."""
    first, _, second = where.partition(".")
    if first == "ops":
        library = "pyg_lib" if second == "pyg" else second
        return getattr(torch.ops, second) if library in EXTENSIONS else None
    return importlib.import_module(where) if importlib.util.find_spec(first) else None


@contextlib.contextmanager
def broken(where, name, how):
    """One operator in another's place."""
    place = place_of(where)
    real = getattr(place, name)
    setattr(place, name, how(real))
    try:
        yield
    finally:
        setattr(place, name, real)


def found(named):
    """All that the suite finds wrong in the part that has this operator."""
    findings, library = ops.Findings(), named.partition(".")[0]
    there = EXTENSIONS if named == "PyG.typing" else [name for name in EXTENSIONS if name == library]
    ops.check_device(torch, CPU, there, library == "PyG", 0, findings, Proof("ops"))
    return [wrong for wrong in findings.wrong if wrong["operator"].startswith(named)]


def of_operators():
    """For each operator: its row, whether the suite names it, the layer, and what it says."""
    for where, name, how, named, layer in OPERATORS:
        is_lost = named == "PyG.radius" and not wanted_by_pyg("torch_cluster")[1]
        if place_of(where) is None or not hasattr(place_of(where), name) or is_lost:
            continue
        with contextlib.redirect_stdout(sys.stderr), broken(where, name, how):
            wrong = found(named)
        yield f"{where}.{name}", bool(wrong), layer, wrong[0] if wrong else {}


def of_files():
    """The same for each fault of a file of an extension: the suite's own verdict."""
    name = EXTENSIONS[0] if EXTENSIONS[0] != "pyg_lib" else EXTENSIONS[1]
    folder = pathlib.Path(importlib.util.find_spec(name).origin).parent
    for title, (old, new, said, layer) in FILES.items():
        with tempfile.TemporaryDirectory() as given:
            copy = pathlib.Path(shutil.copytree(folder, f"{given}/{name}", symlinks=True))
            for file in (file for file in copy.glob("_version_c*.so") if not file.is_symlink()):
                text = file.read_bytes()
                file.unlink()
                if new is not None:
                    file.write_bytes(text[:40] if old is None else text.replace(old, new))
            argv = [sys.executable, f"{SUITES}/ops.py", "--device", "cpu"]
            done = subprocess.run(
                argv, env={**os.environ, "PYTHONPATH": given}, capture_output=True, text=True, check=False
            )
        verdict = json.loads(done.stdout.splitlines()[-1])
        yield f"{name} {title}", said in verdict["reason"] and name in verdict["reason"], layer, verdict


if __name__ == "__main__":
    for rows in (of_operators, of_files):
        for title, named, layer, told in rows():
            is_right = named and told["layer"] == layer
            print(json.dumps({"row": title, "right": is_right, "layer": layer, "told": told}))
