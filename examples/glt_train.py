#!/usr/bin/env python3
"""Trains GraphSAGE with GLT on a graph in parts, a process for each. Copy and change. Cut the graph, then train:

python glt/partition.py --dataset generated --num_partitions 2 --output parts
torchrun --standalone --nproc-per-node=2 glt_train.py parts         two parts on one machine
torchrun --nnodes=2 --node-rank=0 --master-addr=10.0.0.1 --nproc-per-node=1 glt_train.py parts      and on each of two
"""

import argparse
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from datetime import timedelta

import graphlearn_torch as glt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

parser = argparse.ArgumentParser()
parser.add_argument("parts", help="the folder that partition.py made, with as many parts as there are processes")
parser.add_argument("--port", type=int, default=11112, help="of the first machine, for sampling; and the next one")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--fan-outs", type=int, nargs="+", default=[10, 5], help="neighbours sampled, hop by hop")
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.01)


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
    rank, world, address = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    with together(rank, world) as store:
        dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=world)
        train(args, rank, world, address, device)


def train(args, rank, world, address, device):
    on_gpu = device.type == "cuda"
    glt.distributed.init_worker_group(world, rank, "trainers")
    data = glt.distributed.DistDataset()
    labels = f"{args.parts}/labels.pt"
    mode = "ZERO_COPY" if on_gpu else "CPU"
    data.load(args.parts, rank, graph_mode=mode, feature_with_gpu=on_gpu, whole_node_label_file=labels)
    seeds = torch.load(f"{args.parts}/seeds{rank}.pt")  # train, valid, test: nodes of this part

    def loader(nodes, port, shuffle):
        options = glt.distributed.CollocatedDistSamplingWorkerOptions(master_addr=address, master_port=port)
        return glt.distributed.DistNeighborLoader(
            data, args.fan_outs, nodes, batch_size=args.batch_size, shuffle=shuffle, collect_features=True,
            to_device=device, worker_options=options,
        )  # fmt: skip

    # as many batches for each process: who had one more would wait for ever for the gradients of the others
    counts = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([len(seeds["train"])], device=device))
    batches = loader(seeds["train"][: int(min(counts))], args.port, True)
    width, classes = data.node_features.shape[1], int(torch.load(labels).max()) + 1
    model = GraphSAGE(width, args.hidden, len(args.fan_outs), classes, dropout=0.5).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch in batches:
            optimizer.zero_grad()
            output = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(output, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"Epoch: {epoch:03d}, Loss: {float(loss.detach()):.4f}", flush=True)
    right = torch.zeros(2, device=device)  # right, tested: each process counts its own nodes
    model.eval()
    with torch.no_grad():
        for batch in loader(seeds["test"], args.port + 1, False):
            output = model.module(batch.x, batch.edge_index)[: batch.batch_size]
            hits = (output.argmax(dim=1) == batch.y[: batch.batch_size]).sum()
            right += torch.tensor([hits, batch.batch_size], device=device)
    dist.all_reduce(right)
    if rank == 0:
        print(f"{world} parts, {dist.get_backend()}: test accuracy {float(right[0] / right[1]):.4f}", flush=True)


if __name__ == "__main__":
    main()
