#!/usr/bin/env python3
"""Starts train_distributed.py on several hosts over ssh, each inside tmux, and gathers what they say.

When one ends with an error all others are stopped, on every host. Ctrl-C stops them too. A closed terminal does not:
the training goes on, and `--attach RUN` shows it again. Needs paramiko and PyYAML, no torch. `--help` has the options.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import queue
import re
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suites"))

from proof import hosts, remote
from proof.hosts import Config, Host
from proof.parts import HINTS, signal
from proof.remote import Machine
from proof.verdict import Fault, Layer, Proof, exit_with, prove

PORTS = ("training_pg_master_port", "train_loader_master_port", "test_loader_master_port")
SECONDS_TO_AGREE = (
    3.0  #: after the first that failed, for the others' account: the first to complain is not always to blame
)
RECONNECTS = 2
SECONDS_BETWEEN = 3.0


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", 1)[0],
        epilog="fields of the config, each a list or one text for all nodes: "
        + "; ".join(f"{name}: {what}" for name, what in hosts.FIELDS.items()),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="HOSTS.yml", help="the hosts")
    what.add_argument("--attach", metavar="RUN", help="follow a run that goes on without its launcher")
    what.add_argument("--stop", metavar="RUN", help="stop a run on all its hosts")
    parser.add_argument("--master_addr", "--master-addr", metavar="ADDRESS", help="of node 0; default: the first node")
    parser.add_argument("--master_port", "--master-port", type=int, default=11234, help="and the two after it")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", "--batch-size", type=int, default=2048)
    parser.add_argument("--run", default=time.strftime("glt-%Y%m%d-%H%M%S"), help="its name; default: the time")
    parser.add_argument("--logs", type=Path, default=Path("logs"), help="where LOGS/RUN/RANK.log are written")
    parser.add_argument("--identity", type=Path, metavar="FILE", help="the ssh key; default: the agent's, ~/.ssh")
    parser.add_argument("--accept-new-hosts", action="store_true", help="trust hosts that are met for the first time")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="stop all when it takes longer")
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="more options for train_distributed.py")
    options = parser.parse_args(argv)
    for name in (options.run, options.attach, options.stop):
        if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            parser.error(f"{name!r} is no name of a run: letters, digits, - and _")
    if not 0 < options.master_port <= 65535 - len(PORTS):
        parser.error("--master_port must leave room for the two ports after it")
    return options


def command(config: Config, host: Host, options: argparse.Namespace) -> list[str]:
    """Return the command that is run on a host."""
    told = ["--dataset", host.dataset, f"--num_nodes={len(config.hosts)}", f"--node_rank={host.rank}"]
    told += [f"--master_addr={options.master_addr or config.hosts[0].address}"]
    told += [f"--{name}={options.master_port + place}" for place, name in enumerate(PORTS)]
    told += [f"--epochs={options.epochs}", f"--batch_size={options.batch_size}"]
    return [*host.python, config.program, *told, *config.arguments, *options.more]


def run(options: argparse.Namespace, proof: Proof) -> None:
    """Start, attach or stop. Raises Fault."""
    name = options.attach or options.stop or options.run
    proof.extra["run"] = name
    folder = options.logs / name
    config = hosts.read(options.config) if options.config else _recall(folder)
    proof.enter(f"connecting to {len(config.hosts)} hosts", Layer.NETWORK)
    connect = remote.connector(options.accept_new_hosts, options.identity)
    machines = _for_all(config.hosts, lambda host: Machine(host, name, connect))
    try:
        if options.stop:
            _for_all(machines, Machine.stop)
            _for_all(machines, Machine.forget)
            proof.say(f"{name} is stopped on {len(machines)} hosts")
            return
        if options.config:
            _start(config, machines, options, folder, proof)
        Following(machines, folder, proof).to_the_end()
    finally:
        for machine in machines:
            machine.close()


def _for_all(things: Any, work: Any) -> list[Any]:
    """Do it for all at once; what came of each. Raises one Fault with everything that went wrong."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=32) as pool:
        futures = [pool.submit(work, thing) for thing in things]
    faults = [future.exception() for future in futures if future.exception()]
    for fault in faults:
        if not isinstance(fault, Fault):
            raise fault  # type: ignore[misc]
    if faults:
        raise Fault(faults[0].layer, "; ".join(map(str, faults)))  # type: ignore[union-attr]
    return [future.result() for future in futures]


def _start(config: Config, machines: list[Machine], options: argparse.Namespace, folder: Path, proof: Proof) -> None:
    complaints = [each for found in _for_all(machines, Machine.complaints) for each in found]
    if complaints:
        raise Fault(Layer.MACHINE, "; ".join(complaints))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(asdict(config), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise Fault(Layer.DATA, f"--logs: {folder} cannot be written to: {error.strerror}") from error
    proof.enter(f"starting {options.run}", Layer.MACHINE)
    try:
        _for_all(machines, lambda machine: _start_one(config, machine, options))
    except BaseException:
        _for_all(machines, Machine.stop)
        _for_all(machines, Machine.forget)
        raise


def _start_one(config: Config, machine: Machine, options: argparse.Namespace) -> None:
    host = machine.host
    environment = {"PYTHONUNBUFFERED": "1", **({"CUDA_VISIBLE_DEVICES": host.devices} if host.devices else {})}
    machine.start(command(config, host, options), environment)


def _recall(folder: Path) -> Config:
    """The hosts of a run that was started before. Raises Fault."""
    try:
        found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        listed = tuple(Host(**{**host, "python": tuple(host["python"])}) for host in found["hosts"])
        return Config(listed, found["program"], tuple(found["arguments"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        there = ", ".join(sorted(path.parent.name for path in folder.parent.glob("*/run.json"))) or "none"
        raise Fault(Layer.DATA, f"there is no run {folder.name} in {folder.parent}; there are: {there}") from error


class Following:
    """Listens to all hosts of a run until all have ended, or until one has failed and the others were stopped."""

    def __init__(self, machines: list[Machine], folder: Path, proof: Proof) -> None:
        self.machines, self.folder, self.proof = machines, folder, proof
        self._ends: queue.Queue[tuple[Machine, Any]] = queue.Queue()
        self._verdicts: dict[int, dict[str, Any]] = {}
        self._running = {machine.host.rank for machine in machines}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def to_the_end(self) -> None:
        """Raises Fault that names who failed; in any case nothing runs on any host afterwards."""
        self.proof.enter("following all hosts", Layer.NETWORK)
        threads = [threading.Thread(target=self._listen, args=(each,), daemon=True) for each in self.machines]
        for thread in threads:
            thread.start()
        failures: list[tuple[Machine, Any]] = []
        try:
            until = None
            while self._running and (until is None or time.monotonic() < until):
                try:
                    machine, end = self._ends.get(timeout=0.2)
                except queue.Empty:
                    continue
                self._running.discard(machine.host.rank)
                if end != 0:
                    failures.append((machine, end))
                    until = until or time.monotonic() + SECONDS_TO_AGREE
        finally:
            self._stop_all(threads)
        if failures:
            raise self._blame(failures)
        self.proof.metrics.update(self._verdicts.get(0, {}).get("metrics", {}), hosts=len(self.machines))
        self.proof.device = self._verdicts.get(0, {}).get("device", "none")
        self.proof.versions.update(self._verdicts.get(0, {}).get("versions", {}))

    def _listen(self, machine: Machine) -> None:
        """One host's lines into its log and to the person; then how it ended: an exit code, None, or a Fault."""
        lines, tries = 0, 0
        path = self.folder / f"{machine.host.rank}.log"
        with path.open("w", encoding="utf-8") as log:

            def hear(line: str) -> None:
                nonlocal lines
                lines += 1
                log.write(f"{line}\n")
                log.flush()
                self._hear(machine.host, line)

            while True:
                try:
                    self._ends.put((machine, machine.follow(hear, lines)))
                    return
                except Fault as fault:
                    tries += 1
                    if tries > RECONNECTS or self._stopping.is_set():
                        self._ends.put((machine, fault))
                        return
                    self._reconnect(machine)
                except Exception as error:  # a thread's traceback would be nobody's
                    self._ends.put((machine, Fault(Layer.NETWORK, f"{type(error).__name__}: {error}")))
                    return

    def _reconnect(self, machine: Machine) -> None:
        self.proof.say(f"[{machine.host.rank}] the connection is lost; trying again")
        time.sleep(SECONDS_BETWEEN)
        try:
            machine.reconnect()
        except Fault as fault:
            self.proof.say(f"[{machine.host.rank}] {fault}")

    def _hear(self, host: Host, line: str) -> None:
        if line.startswith('{"suite"'):
            try:
                with self._lock:
                    self._verdicts[host.rank] = json.loads(line)
            except ValueError:
                pass
        else:
            self.proof.say(f"[{host.rank}] {line}")

    def _stop_all(self, threads: list[threading.Thread]) -> None:
        """Stop what still runs, hear its last lines, and remove what the hosts keep; a host may not answer."""
        self._stopping.set()
        if self._running:
            self.proof.say(f"stopping what runs on {len(self._running)} of {len(self.machines)} hosts")

        def unless_gone(work: Any) -> Any:
            def attempt(machine: Machine) -> None:
                try:
                    work(machine)
                except Fault as fault:
                    self.proof.say(f"[{machine.host.rank}] it cannot be stopped: {fault}")

            return attempt

        _for_all(self.machines, unless_gone(Machine.stop))
        for thread in threads:
            thread.join(SECONDS_TO_AGREE)
        _for_all(self.machines, Machine.forget)

    def _blame(self, failures: list[tuple[Machine, Any]]) -> Fault:
        """A crash, or a host that is gone, explains the others' complaints."""
        machine, end = min(failures, key=lambda each: each[0].host.rank in self._verdicts)
        log = self.folder / f"{machine.host.rank}.log"
        if isinstance(end, Fault):
            return Fault(end.layer, f"{machine.host} is gone: {end}; the others were stopped. Its log is {log}")
        verdict = self._verdicts.get(machine.host.rank, {})
        if verdict.get("status") == "failed":
            layer = next((each for each in Layer if each.value == verdict.get("layer")), Layer.MACHINE)
            reason = str(verdict.get("reason", "")).removeprefix(f"{layer.value}: ")
            return Fault(layer, f"{machine.host} failed: {reason}; all hosts were stopped. Its log is {log}")
        return Fault(
            Layer.MACHINE,
            f"rank {machine.host.rank} died: {machine.host} {_ending(end)}; all hosts were stopped. Its log is {log}; "
            f"it ends: {_tail(log)}",
        )


def _ending(code: int | None) -> str:
    if code is None:
        return "left no exit code: the host went down, or the session was killed"
    if code > 128 and code - 128 in signal.Signals._value2member_map_:
        number = signal.Signals(code - 128)
        return f"was ended by {number.name}{HINTS.get(number, '')}"
    return f"ended with exit code {code} and without a verdict"


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:]) or "(nothing)"


def main() -> int:
    """Returns 0 when the training ended well on all hosts, 1 when not."""
    options = arguments()
    return prove("glt-launch", lambda proof: run(options, proof), options.limit)


if __name__ == "__main__":
    exit_with(main())
