#!/usr/bin/env python3
"""Trains a GCN on sampled batches with a process for each GPU, on one or more nodes, as one model. Copy and change.

torchrun --standalone --nproc-per-node=2 multi_node.py          two processes of this machine
srun --nodes=2 --ntasks-per-node=1 … python multi_node.py       two nodes of Slurm; it finds its rank by itself

At the end rank 0 says which network NCCL chose, and how long a step takes to sum its gradients over all processes.
"""

import argparse
import os
import re
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models import GCN

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="generated", help="generated, or a file .npz with x, edge_index and y")
parser.add_argument("--graph-nodes", "--graph_nodes", type=int, default=3000, help="of the generated graph")
parser.add_argument("--hidden", "--hidden_channels", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch-size", "--batch_size", type=int, default=64, help="nodes of each process in a batch")
parser.add_argument("--fan-out", "--fan_out", type=int, default=50, help="neighbours sampled of each node")
parser.add_argument("--ngpu-per-node", "--ngpu_per_node", type=int, help="stop unless each node has so many processes")


def find_place():
    """RANK and its kin are set by torchrun and job scripts; where srun alone started us, Slurm says the same."""
    env = os.environ
    if "WORLD_SIZE" not in env and "SLURM_STEP_NUM_TASKS" in env:
        env.update(RANK=env["SLURM_PROCID"], LOCAL_RANK=env["SLURM_LOCALID"], WORLD_SIZE=env["SLURM_STEP_NUM_TASKS"])
        first = re.match(r"([^,\[]*)(?:\[(\d+))?", env["SLURM_STEP_NODELIST"])  # n1 of n[1-2,7]
        env.setdefault("MASTER_ADDR", first[1] + (first[2] or ""))
        env.setdefault("MASTER_PORT", str(20000 + int(env["SLURM_JOB_ID"]) % 20000))
    for name, alone in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")):
        env.setdefault(name, alone)
    env.setdefault("MASTER_PORT", "29500")
    return int(env["RANK"]), int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"])


def load(name, nodes):
    if name != "generated":
        arrays = np.load(name)
        x, edge_index, y = (torch.from_numpy(arrays[key]) for key in ("x", "edge_index", "y"))
        return Data(x=x.float(), edge_index=edge_index.long(), y=y.long())
    y = torch.arange(nodes) % 10
    ends = torch.randint(nodes, (2, 50 * nodes))
    ends = ends[:, (y[ends[0]] == y[ends[1]]) | (torch.rand(50 * nodes) < 0.02)]  # most edges join nodes of one class
    x = F.one_hot(y, 10) + 1.5 * torch.randn(nodes, 10)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=y)


def transport(log):
    """Read a log of NCCL's: the network, and the ways to other ranks. GDRDMA: past the processor's memory."""
    network = re.findall(r"Using network (.+)", log) or ["not known"]
    ways = re.findall(r" via (NET/[^/\n]+|P2P|SHM)(?:/\d+(?:\(\d+\))?)?(/GDRDMA)?", log)
    return f"network {network[-1].strip()}, ways " + (", ".join(dict.fromkeys(map("".join, ways))) or "none")


def time_of_sum(model, device, repeats=20):
    """Bytes of a step's gradients, and seconds for summing them over all processes with nothing beside it."""
    gradients = torch.zeros(sum(weight.numel() for weight in model.parameters()), device=device)
    dist.all_reduce(gradients)  # the first one connects
    float(gradients[0])  # waits for a GPU
    start = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(gradients)
    float(gradients[0])
    return 4 * len(gradients), (time.perf_counter() - start) / repeats


@contextmanager
def together(rank, world, patience=timedelta(minutes=5)):
    """Gives the store in which all processes meet; behind the `with` this one ends, not before all are through.

    Not by dist.destroy_process_group(), by RPC's shutdown or by Python's own end: each may wait for ever for a thread
    that waits for Python (seen with gloo of torch 2.0). Close in the `with` what you write. Who waits for one that
    works on alone takes more `patience`.
    """
    store, _, _ = next(dist.rendezvous("env://", rank, world))
    code = 1
    try:
        yield store
        sys.stdout.flush()
        store.set(f"done/{rank}", "yes")
        store.wait([f"done/{each}" for each in range(world)], patience)  # raises if one does not come
        code = 0
        if rank == 0:  # the store ends with this process, so it leaves last
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libraries say of connections that end now
            with suppress(RuntimeError):
                store.wait([f"left/{each}" for each in range(1, world)], patience)
        else:
            store.set(f"left/{rank}", "yes")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main():
    args = parser.parse_args()
    rank, local_rank, world = find_place()
    if args.ngpu_per_node and (world % args.ngpu_per_node or local_rank >= args.ngpu_per_node):
        raise SystemExit(f"rank {rank} of {world} is local rank {local_rank}: not {args.ngpu_per_node} on each node")
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    with together(rank, world) as store, tempfile.TemporaryDirectory() as folder:
        if "NCCL_DEBUG" not in os.environ:  # NCCL says in its log alone which network it takes
            os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=f"{folder}/nccl")
        dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=world)
        train(args, rank, world, device, Path(folder))


def train(args, rank, world, device, folder):
    torch.manual_seed(0)  # the same graph, split and weights everywhere
    data = load(args.dataset, args.graph_nodes)
    order = torch.randperm(len(data.y))
    train, test = order[: int(0.8 * len(order))], order[int(0.8 * len(order)) :]
    # as many batches for each process: who had one more would wait for ever for the gradients of the others
    mine = train[: len(train) // world * world][rank::world]
    fan_outs = [args.fan_out] * args.layers
    loader = NeighborLoader(data, fan_outs, input_nodes=mine, batch_size=args.batch_size, shuffle=True)
    model = GCN(data.x.size(1), args.hidden, args.layers, int(data.y.max()) + 1).to(device)
    model = DistributedDataParallel(model, device_ids=None if device.index is None else [device.index])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    for epoch in range(1, args.epochs + 1):
        model.train()
        start, total = time.perf_counter(), torch.zeros(1, device=device)
        for batch in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            output = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(output, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader) / world
        dist.all_reduce(total)
        seconds = time.perf_counter() - start
        if rank == 0:
            print(f"Epoch: {epoch:03d}, Loss: {float(total):.4f}, {len(loader) / seconds:.1f} iterations/s", flush=True)
    counts = torch.zeros(2, device=device)  # right, tested: each process counts its own nodes
    model.eval()
    with torch.no_grad():
        for batch in NeighborLoader(data, fan_outs, input_nodes=test[rank::world], batch_size=args.batch_size):
            batch = batch.to(device)
            output = model.module(batch.x, batch.edge_index)[: batch.batch_size]
            right = (output.argmax(dim=1) == batch.y[: batch.batch_size]).sum()
            counts += torch.tensor([right, batch.batch_size], device=device)
    dist.all_reduce(counts)
    size, sums = time_of_sum(model, device)
    if rank == 0:
        step = 1e3 * seconds / len(loader)
        print(f"a step takes {step:.2f} ms, to sum its {size} bytes of gradients {1e3 * sums:.2f} ms")
        for log in folder.iterdir():
            print(f"NCCL: {transport(log.read_text(errors='replace'))}")
        print(f"{world} processes, {dist.get_backend()}: test accuracy {float(counts[0] / counts[1]):.4f}")


if __name__ == "__main__":
    main()
