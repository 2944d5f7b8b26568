#!/usr/bin/env python3
"""Measures all_reduce, all_gather and reduce_scatter over all processes, on one node or several, and reads NCCL's log.

Fails where NCCL uses TCP between nodes that have a faster network, and names the reason. On CPUs gloo shows that the
program is right, and nothing of bandwidth. Alone it starts a process for each GPU; srun, torchrun or a job script may
start it once for each process, or with --per-node once for each node.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import socket
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import collectives, curve, fabric, leaving, machine, nccl_log, rates, seats, stack
from proof.collectives import Elsewhere, Group
from proof.nccl_log import Log
from proof.verdict import Fault, Layer, Proof, exit_with, explained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    import torch as torch_types
    from proof.seats import Seat

LARGEST = {"cuda": rates.LARGEST, "cpu": 16 << 20}  #: bytes
SECONDS = {"cuda": 1.0, "cpu": 0.2}  #: to repeat a size for, about
ON_CPUS = 2  #: processes, where there is no GPU
SHARE_OF_MEMORY = 0.2  #: of a GPU's free memory for the largest size; a second buffer and NCCL's own come to it
SECONDS_TO_TELL = 10  #: for another rank's account of a failure
SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,NET"


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--most", type=_size, metavar="BYTES", help="largest size; default 1 GiB, on CPUs 16 MiB")
    parser.add_argument("--curve", type=Path, metavar="FILE.svg", help="draw bus bandwidth over size")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    seats.add_options(parser, 64)
    return parser.parse_args(argv)


def _size(text: str) -> int:
    size = int(text)
    if not rates.SMALLEST <= size <= rates.LARGEST * 8:
        raise ValueError(text)
    return size


# One node


def _processes(options: argparse.Namespace) -> int:
    """The number of processes of this node: one for each GPU."""
    if options.device == "cpu" or not (options.device == "cuda" or stack.gpu_expected()):
        return ON_CPUS
    return max(_gpus(), 1)


def _gpus() -> int:
    """The number of GPUs that this node gives: a container may show all, and Slurm let a job open some."""
    opened = 0
    for path in Path("/dev").glob("nvidia[0-9]*"):
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            opened += 1
    return min(opened, machine.gpus())


# One process


def take_part(options: argparse.Namespace, seat: Seat, proof: Proof) -> None:
    """One process's whole proof. Raises Fault."""
    if options.curve and seat.leads:
        curve.check(options.curve)
    asked = os.environ.get("NCCL_DEBUG", "").upper()
    with tempfile.TemporaryDirectory(prefix="nccl-") as folder:
        log = Path(folder) / "nccl.log"
        # before torch, whose NCCL reads them once
        os.environ["NCCL_DEBUG"] = "TRACE" if asked == "TRACE" else "INFO"
        os.environ["NCCL_DEBUG_SUBSYS"] = SUBSYSTEMS
        os.environ["NCCL_DEBUG_FILE"] = str(log)
        torch = stack.load_torch(proof)
        device = stack.choose_device(torch, options.device, proof)
        if device.type == "cuda":
            device = _own_gpu(torch, seat, proof)
        store, rank, world = seats.meet(torch, seat, proof)
        backend = "nccl" if device.type == "cuda" else "gloo"
        seats.make_group(torch, backend, store, rank, world, proof)
        group = Group(torch, rank, world, device, backend)
        try:
            _prove(options, group, store, log, proof)
        finally:
            if asked in ("INFO", "TRACE"):
                for line in _read(log).splitlines():
                    proof.say(line)
        leaving.leave(store, group.rank, group.world, proof)


def _own_gpu(torch: ModuleType, seat: Seat, proof: Proof) -> torch_types.device:
    """The GPU of this process alone: NCCL takes one for each. Raises Fault."""
    count = torch.cuda.device_count()
    if seat.rank is None and seat.here > count:  # what srun starts may see its own GPU alone
        raise Fault(Layer.MACHINE, f"{seat.here} processes share {count} GPU(s) of this node: NCCL takes one for each")
    device = torch.device("cuda", seat.local % count)
    torch.cuda.set_device(device)
    proof.device = torch.cuda.get_device_name(device)
    return device


def _prove(options: argparse.Namespace, group: Group, store: Any, log: Path, proof: Proof) -> None:  # noqa: ANN401
    """Measure, and have rank 0 judge what all processes found. Raises Fault."""
    proof.enter(f"measuring over {group.world} processes with {group.backend}", Layer.NETWORK)
    kind = group.device.type
    try:
        largest = options.most or LARGEST[kind]
        if kind == "cuda":
            free = group.torch.cuda.mem_get_info(group.device)[0] * SHARE_OF_MEMORY
            largest = min(largest, -int(group.largest(-free)))
        rows, left_out = collectives.measure(group, largest, SECONDS[kind], proof)
    except Exception as error:
        raise _explained(error, group, store, log) from error
    found = seen(group, nccl_log.read(_read(log)), fabric.look(), os.environ)
    store.set(f"seen/{group.rank}", json.dumps(found))
    if group.rank == 0:
        every = [json.loads(store.get(f"seen/{rank}")) for rank in range(group.world)]
        report(group, rows, left_out, every, proof)
        if options.curve:
            wire = proof.metrics.get("ports_gb_s", 0.0) * rates.GIGA
            title = f"{group.backend} over {group.world} processes on {proof.device}"
            options.curve.write_text(rates.svg(rows, title, wire), encoding="utf-8")
        proof.enter("judging", Layer.NETWORK)
        if why := objection(every):
            raise Fault(Layer.NETWORK, why)


def _explained(error: Exception, group: Group, store: Any, log: Path) -> Fault:  # noqa: ANN401
    """The fault of a collective that failed, with NCCL's own words and what speaks against its network."""
    if isinstance(error, Elsewhere):
        with contextlib.suppress(RuntimeError):
            store.wait(["fault"], datetime.timedelta(seconds=SECONDS_TO_TELL))
            return Fault(error.layer, store.get("fault").decode(errors="replace"))
    if isinstance(error, Fault):
        with contextlib.suppress(RuntimeError):
            store.set("fault", str(error))
        return error
    read = nccl_log.read(_read(log))
    words = [explained(error), *(f"NCCL: {line}" for line in read.warnings[:3])]
    if group.backend == "nccl" and group.world > 1:
        words += fabric.reasons(fabric.look(), read, os.environ)[:3]
    return Fault(Layer.NETWORK, "; ".join(words))


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# What all processes found


def seen(group: Group, log: Log, network: fabric.Fabric, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return one process's facts for rank 0: its node, its log, the node's ports, and why TCP, should it be TCP."""
    carrying = fabric.rails(network, log)
    return {
        "host": environment.get("SLURMD_NODENAME") or socket.gethostname(),
        "node": _node(environment),
        "log": asdict(log),
        "ports": [str(port) for port in carrying],
        "rate": fabric.bytes_per_second(carrying),
        "slingshot": list(network.slingshot),
        "reasons": fabric.reasons(network, log, environment) if group.backend == "nccl" else [],
    }


def _node(environment: Mapping[str, str]) -> str:
    """Return what tells a node from others, as NCCL does: its name and its boot; in Slurm also its number."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot} {environment.get('SLURM_NODEID', '')}"


def report(
    group: Group, rows: list[rates.Row], left_out: Mapping[str, str], every: Sequence[dict[str, Any]], proof: Proof
) -> None:
    """Put figures into the proof, and say them."""
    nodes = len({found["node"] for found in every})
    log = nccl_log.merge([Log(**found["log"]) for found in every])
    proof.extra["nodes"] = nodes
    last = {operation: rates.of(rows, operation)[-1] for operation in rates.OPERATIONS if rates.of(rows, operation)}
    proof.metrics.update(
        largest_bytes=max(row.size for row in rows),
        bus_gb_s={operation: row.as_list()[3] for operation, row in last.items()},
        rates={operation: [row.as_list() for row in rates.of(rows, operation)] for operation in last},
        rates_columns=["bytes", "microseconds", "algorithm GB/s", "bus GB/s", "repeats"],
    )
    if left_out:
        proof.metrics["left_out"] = dict(left_out)
    for line in rates.table(rows):
        proof.say(line)
    for operation, why in left_out.items():
        proof.say(f"{operation} is left out: {why}")
    if group.backend == "nccl":
        _report_nccl(log, proof)
    rate = min(found["rate"] for found in every)
    if rate:
        proof.metrics.update(ports=every[0]["ports"], rails=len(every[0]["ports"]), ports_gb_s=rate / rates.GIGA)
        proof.say(f"ports of a node: {', '.join(every[0]['ports'])}: {rate / rates.GIGA:.4g} GB/s each way together")
    if rate and nodes > 1 and "all_reduce" in last:
        share = proof.metrics["share_of_ports"] = round(last["all_reduce"].bus / rate, 3)
        size = rates.human(last["all_reduce"].size)
        proof.say(f"all_reduce of {size} reaches {share:.0%} of what the ports carry")
    proof.say(summary(group, nodes, every))


def _report_nccl(log: Log, proof: Proof) -> None:
    """Report what NCCL says of itself."""
    known = asdict(log)
    proof.metrics["nccl"] = {name: value for name, value in known.items() if value not in ("", [], {}, 0, None, False)}
    paths = ", ".join(f"{number} {kind}" for kind, number in sorted(log.transports.items()))
    direct = {True: "yes", False: "no", None: "no connection to another node"}[log.gpudirect]
    proof.say(
        f"NCCL {log.version}: network {log.network or 'not named'}, {log.channels} channels, paths: {paths or 'none'}"
    )
    proof.say(f"GPUDirect RDMA: {direct}")
    for name, layer in log.devices.items():
        proof.say(f"NCCL uses {name} ({layer})")
    for line in (*log.plugin_lines, *(f"warning: {line}" for line in log.warnings)):
        proof.say(f"NCCL says {line}")


def summary(group: Group, nodes: int, every: Sequence[dict[str, Any]]) -> str:
    """Sum up what was measured, and what that says."""
    if group.world == 1:
        return "one process alone: it sums right, and nothing was sent: several GPUs or nodes have a bus bandwidth"
    if group.backend == "gloo":
        return f"gloo over {group.world} processes on {nodes} node(s): sums are right; nothing is said of bandwidth"
    if nodes == 1:
        return f"NCCL over {group.world} GPUs of one node: the network between nodes was not used"
    return f"NCCL over {group.world} GPUs of {nodes} nodes ({', '.join(dict.fromkeys(each['host'] for each in every))})"


def objection(every: Sequence[dict[str, Any]]) -> str:
    """Explain a failure though all sums are right: TCP between nodes with a faster network; empty where it passed."""
    nodes = len({found["node"] for found in every})
    slow = [
        found
        for found in every
        if found["log"]["network"] == "Socket" and (found["ports"] or found["slingshot"]) and nodes > 1
    ]
    if not slow:
        return ""
    there = ", ".join((*slow[0]["ports"], *slow[0]["slingshot"]))
    by_reason: dict[tuple[str, ...], list[str]] = {}
    for found in slow:
        hosts = by_reason.setdefault(tuple(found["reasons"]), [])
        if found["host"] not in hosts:
            hosts.append(found["host"])
    why = " | ".join(f"on {', '.join(hosts)}: {'; '.join(reasons)}" for reasons, hosts in by_reason.items())
    return f"NCCL uses TCP (Socket) between {nodes} nodes that have {there}: {why}"


def suite() -> seats.Suite:
    """This program, as it starts and meets."""
    return seats.Suite("nccl", __file__, take_part, _processes)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when all is well, 1 when not."""
    told = list(sys.argv[1:] if argv is None else argv)
    options = arguments(told)
    return seats.run(suite(), options, told)


if __name__ == "__main__":
    exit_with(main())
