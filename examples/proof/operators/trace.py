"""Which registered operators a piece of code really runs, as the dispatcher of PyTorch sees it.

Python names do not tell: PyG falls back to code of its own, and scripted functions are called past any wrapper.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

#: the names under which the extensions register
NAMESPACES = {
    "pyg_lib": "pyg",
    "torch_scatter": "torch_scatter",
    "torch_sparse": "torch_sparse",
    "torch_cluster": "torch_cluster",
    "torch_spline_conv": "torch_spline_conv",
}


def registered(torch: ModuleType, extension: str) -> set[str]:
    """The operators that an imported extension has registered ("torch_scatter::scatter_max")."""
    start = NAMESPACES[extension] + "::"
    return {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith(start)}


@contextlib.contextmanager
def traced(torch: ModuleType, into: set[str]) -> Iterator[None]:
    """Add the extensions' operators that run in the block to `into`."""
    starts = tuple(f"{namespace}::" for namespace in NAMESPACES.values())
    with torch.autograd.profiler.profile() as profile:
        yield
    into.update(event.name for event in profile.function_events if event.name.startswith(starts))
