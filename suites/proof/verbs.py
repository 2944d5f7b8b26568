"""Opens what NCCL opens for the network between nodes, without its hardware: libibverbs, symbols, providers of cards.

NCCL itself says nothing where this fails: it uses TCP.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proof.verdict import Proof

LIBRARY, VERSION = "libibverbs.so.1", "IBVERBS_1.1"
#: what each NCCL since 2.8 looks up in this version, and does without libibverbs where one is not there
SYMBOLS = (
    *("ibv_ack_async_event", "ibv_alloc_pd", "ibv_close_device", "ibv_create_cq", "ibv_create_qp", "ibv_dealloc_pd"),
    *("ibv_dereg_mr", "ibv_destroy_cq", "ibv_destroy_qp", "ibv_event_type_str", "ibv_fork_init"),
    *("ibv_free_device_list", "ibv_get_async_event", "ibv_get_device_list", "ibv_get_device_name", "ibv_modify_qp"),
    *("ibv_open_device", "ibv_query_device", "ibv_query_gid", "ibv_query_port", "ibv_query_qp", "ibv_reg_mr"),
)
#: where distributions and the makers of cards have them
FOLDERS = ("usr/lib/*/libibverbs", "usr/lib64/libibverbs", "usr/lib/libibverbs", "usr/local/lib*/libibverbs")


def load(
    proof: Proof,
    dlopen: Callable[[str], ctypes.CDLL] = ctypes.CDLL,
    root: Path = Path("/"),
) -> None:
    """Load libibverbs, look NCCL's symbols up, load each provider; an image may be without all that. Raises Fault."""
    proof.enter(f"loading {LIBRARY}", Layer.NETWORK)
    try:
        library = dlopen(LIBRARY)
    except OSError as error:
        if str(error).startswith(f"{LIBRARY}: cannot open shared object file"):
            proof.metrics["verbs"] = "none"
            proof.say(f"{LIBRARY} is not in the image: ranks on several nodes talk TCP")
            return
        raise Fault(Layer.NETWORK, f"{LIBRARY} cannot be loaded: {error}") from error
    absent = [name for name in SYMBOLS if not is_defined(library, name, VERSION)]
    if absent:
        raise Fault(Layer.NETWORK, f"{LIBRARY} does not define {', '.join(absent)} in {VERSION}, which NCCL looks up")
    loaded = {name: why_not(paths, dlopen) for name, paths in providers(root).items()}
    faults = {name: fault for name, fault in loaded.items() if fault}
    if faults and len(faults) == len(loaded):
        raise Fault(Layer.NETWORK, f"no provider of {LIBRARY} can be loaded: {next(iter(faults.values()))}")
    for name, fault in faults.items():
        proof.say(f"the provider {name} of {LIBRARY} cannot be loaded: {fault}")
    proof.metrics["verbs"] = f"{len(SYMBOLS)} symbols, {len(loaded) - len(faults)} of {len(loaded)} providers"
    proof.say(f"{LIBRARY} loads with {proof.metrics['verbs']}")


def is_defined(library: ctypes.CDLL, name: str, version: str) -> bool:
    """Return whether the loader finds a symbol in this version, as NCCL asks for it.

    True where no loader can tell (musl).
    """
    try:
        dlvsym = ctypes.CDLL(None).dlvsym
    except AttributeError:  # glibc before 2.34 has it in a library of its own
        try:
            dlvsym = ctypes.CDLL("libdl.so.2").dlvsym
        except (OSError, AttributeError):
            return True
    dlvsym.restype = ctypes.c_void_p
    dlvsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    return dlvsym(library._handle, name.encode(), version.encode()) is not None


def providers(root: Path) -> Mapping[str, list[str]]:
    """Provider → files of it, of those that `driver NAME` in libibverbs.d names. What cannot be read names none."""
    named: dict[str, list[str]] = {}
    for path in sorted(root.glob("etc/libibverbs.d/*.driver")):
        text = ""
        with contextlib.suppress(OSError):
            text = path.read_text(encoding="utf-8", errors="replace")
        for name in re.findall(r"^\s*driver[ \t]+(\S+)[ \t]*$", text, re.MULTILINE):
            patterns = (f"{folder}/lib{name}-rdmav*.so" for folder in FOLDERS)
            paths = (path for pattern in patterns for path in root.glob(pattern))
            named[Path(name).name] = sorted(map(str, root.glob(f"{name[1:]}-rdmav*.so") if name[0] == "/" else paths))
    return named


def why_not(paths: list[str], dlopen: Callable[[str], ctypes.CDLL]) -> str:
    """Explain why none of these libraries can be loaded; empty: one can. Loading one touches no hardware."""
    fault = "there is no library of it"
    for path in paths:
        try:
            dlopen(path)
        except OSError as error:
            fault = str(error)
        else:
            return ""
    return fault
