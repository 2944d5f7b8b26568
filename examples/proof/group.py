"""A job's processes as torch.distributed's groups: one of all, one of each node; and whether they work."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from proof import machine
from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import torch as torch_types

    from proof.ranks import Place
    from proof.watch import Member, Watch

SECONDS_TO_LEAVE = 10.0  #: for torch to take its groups down
STORE = "port of the store"
MORE_GPUS = (
    "ask for more (--gres=gpu:N), start fewer processes (--ntasks-per-node, --nproc-per-node, --ranks), or share GPUs "
    "with --share"
)


def choose_gpu(torch: ModuleType, place: Place, share: bool) -> torch_types.device:
    """The GPU of this process: that of its local rank, in turns. Raises Fault where the node has too few for that.

    Where CUDA_VISIBLE_DEVICES chooses, by Slurm or by hand, each process may see others: `check_gpus` judges those.
    """
    count = torch.cuda.device_count()
    if place.local_rank >= count and not share and "CUDA_VISIBLE_DEVICES" not in os.environ:
        raise Fault(
            Layer.MACHINE,
            f"{socket.gethostname()} shows {count} GPU{'s' * (count > 1)} to its local rank {place.local_rank}, which "
            f"counts from 0, and each process needs one of its own: {MORE_GPUS}",
        )
    device = torch.device("cuda", place.local_rank % count)
    torch.cuda.set_device(device)
    return device


def gpu_identity(index: int) -> str:
    """What no other GPU has, asked of the driver: old versions of torch do not tell."""
    identity = (ctypes.c_ubyte * 16)()
    with contextlib.suppress(OSError, AttributeError):
        driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        there = driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0
        if there and driver.cuDeviceGetUuid(ctypes.byref(identity), device) == 0:
            return bytes(identity).hex()
    return f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')} {index}"


def join(torch: ModuleType, watch: Watch, backend: str, device: torch_types.device, patience: float) -> None:
    """Make the group of all. Rank 0's store takes any free port, and the watch says which. Raises Fault.

    All have to have chosen one backend, or they would wait for each other; with NCCL each process has a GPU of its own,
    or NCCL would say only `invalid usage`. Rank 0 looks; the watch ends the others.
    """
    place = watch.place
    name_interface(watch.address)
    timeout = datetime.timedelta(seconds=patience)
    if place.leads:
        # It waits for nobody: the others learn of it only now.
        store = torch.distributed.TCPStore("127.0.0.1", 0, None, True, timeout, wait_for_workers=False)
        watch.tell(STORE, store.port)
    else:
        store = torch.distributed.TCPStore(place.address, watch.hear(STORE), None, False, timeout)
    store.set(f"backend/{place.rank}", backend)
    if place.leads:
        check_backends(watch.members, [store.get(f"backend/{rank}").decode() for rank in range(place.world)])
    if backend == "nccl":
        store.set(f"gpu/{place.rank}", gpu_identity(device.index))
        if place.leads:
            check_gpus(watch.members, [store.get(f"gpu/{rank}").decode() for rank in range(place.world)])
    torch.distributed.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=timeout)


def leave(torch: ModuleType, proof: Proof) -> None:
    """Part when all have come so far: rank 0 has the store. torch's own end was seen to hang: it gets a while."""
    torch.distributed.barrier()
    ending = threading.Thread(target=torch.distributed.destroy_process_group, daemon=True)
    ending.start()
    ending.join(SECONDS_TO_LEAVE)
    if ending.is_alive():
        proof.say(f"destroy_process_group is not done after {SECONDS_TO_LEAVE:g} s; the process ends without it")


def check_backends(members: Sequence[Member], backends: Sequence[str]) -> None:
    """Raise Fault when a process has chosen another backend than rank 0."""
    for member, backend in zip(members, backends):
        if backend != backends[0]:
            raise Fault(
                Layer.NETWORK,
                f"{members[0]} chose {backends[0]}, {member} {backend}: not all see a GPU of their own; ask for as "
                "many on each node (--gres=gpu:N), or give all the same --device, and --share",
            )


def check_gpus(members: Sequence[Member], identities: Sequence[str]) -> None:
    """Raise Fault when two processes have the same GPU."""
    identity, count = Counter(identities).most_common(1)[0]
    if count > 1:
        same = [str(each) for each, its in zip(members, identities) if its == identity]
        raise Fault(Layer.MACHINE, f"{' and '.join(same)} have one GPU in common: {MORE_GPUS}")


def name_interface(address: str) -> None:
    """Have gloo take the way by which the processes reach each other; by itself it asks DNS for this host's name."""
    name = machine.interface_of(address or machine.LOOPBACK)
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def nodes(members: Sequence[Member]) -> dict[str, list[int]]:
    """The ranks of each host, in order. Raises Fault where two of a host have the same local rank."""
    found: dict[str, list[int]] = {}
    for each in members:
        found.setdefault(each.host, []).append(each.rank)
    for host, ranks in found.items():
        local, count = Counter(members[rank].local_rank for rank in ranks).most_common(1)[0]
        if count > 1:
            same = " and ".join(str(rank) for rank in ranks if members[rank].local_rank == local)
            raise Fault(Layer.NETWORK, f"ranks {same} are both local rank {local} of {host}: LOCAL_RANK has to differ")
    return found


def check_nodes(members: Sequence[Member], per_node: int | None) -> dict[str, list[int]]:
    """The same, as many on each as were asked for. Raises Fault."""
    found = nodes(members)
    for host, ranks in found.items():
        if per_node is not None and len(ranks) != per_node:
            raise Fault(
                Layer.NETWORK,
                f"{host} has {len(ranks)} of the {len(members)} processes, and --ngpu_per_node asks for {per_node} on "
                "each node: srun's --ntasks-per-node, or torchrun's --nproc-per-node, has to say the same",
            )
    return found


def local_group(torch: ModuleType, watch: Watch) -> Any:  # noqa: ANN401
    """The group of this node's processes. All processes make all groups, in one order, as torch wants it."""
    mine = None
    for ranks in nodes(watch.members).values():
        made = torch.distributed.new_group(ranks)
        if watch.place.rank in ranks:
            mine = made
    return mine


def check_sums(torch: ModuleType, watch: Watch, device: torch_types.device, proof: Proof) -> Any:  # noqa: ANN401
    """Sum known numbers over all and over this node; returns the node's group. Raises Fault when the sums are wrong."""
    here = nodes(watch.members)[watch.me.host]
    group = local_group(torch, watch)
    for ranks, where, name in ((range(watch.place.world), None, "all processes"), (here, group, f"{watch.me.host}")):
        part = torch.full((1024,), watch.place.rank + 1.0, device=device)
        torch.distributed.all_reduce(part, group=where)
        wanted = float(sum(rank + 1 for rank in ranks))
        if not bool((part == wanted).all()):
            raise Fault(Layer.NETWORK, f"the sum over {name} is {float(part[0])}, not {wanted}")
    proof.metrics["all_reduce"] = f"{torch.distributed.get_backend()} over {watch.place.world}"
    return group


def check_equal(torch: ModuleType, values: torch_types.Tensor, what: str, layer: Layer) -> None:
    """Raise Fault unless all processes hold the same numbers."""
    operation = torch.distributed.ReduceOp
    least, most = values.clone(), values.clone()
    torch.distributed.all_reduce(least, op=operation.MIN)
    torch.distributed.all_reduce(most, op=operation.MAX)
    off = float((most - least).abs().max())
    if not off <= 1e-6 * float(most.abs().max()):
        raise Fault(layer, f"the processes have different {what}: they differ by up to {off:.3g}")
