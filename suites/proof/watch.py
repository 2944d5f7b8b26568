"""Processes of one job watch each other: when one dies, each other one ends within seconds and says which it was.

Rank 0 listens, the others keep a connection to it; who closes it without goodbye has died. The kernel asks the other
side for signs of life, so that a busy process counts as living and a vanished host does not. What libraries do when a
peer is gone differs: NCCL waits for half an hour, gloo blames whichever connection it was using.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from proof import wires
from proof.verdict import Fault, Layer, Proof, blame, end_at_once
from proof.wires import SECONDS_BETWEEN, SILENCE, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from proof.ranks import Place

PATIENCE = 300.0  #: seconds for all to come: containers start at different speeds
SECONDS_TO_LEARN = 3.0  #: after an error that another one's death may explain
SECONDS_TO_GREET = 10.0  #: for whoever connects to say who it is
DIED = "died: it was killed, crashed, or left without a word; its own last lines tell more"


class Member(NamedTuple):
    """One process of the job."""

    rank: int
    world: int
    local_rank: int
    host: str
    pid: int
    backend: str = ""  #: of torch's process group, where it is chosen before all meet

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}{f', pid {self.pid}' if self.pid else ''})"


class Watch:
    """What one process knows of the others; a context manager. `members` are all of them once it is entered.

    `host`: how this one is called in messages. `leave` ends the process while its main thread is busy elsewhere.
    """

    def __init__(
        self,
        place: Place,
        proof: Proof,
        patience: float = PATIENCE,
        host: str = "",
        leave: Callable[[Proof, Fault], None] = end_at_once,
        backend: str = "",
    ) -> None:
        self.place, self.proof, self.patience = place, proof, patience
        host = host or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.me = Member(place.rank, place.world, place.local_rank, host, os.getpid(), backend)
        self.members: list[Member] = [self.me]
        self.address = ""  #: of this machine, as the others see it
        self.fault: Fault | None = None
        self._leave = leave
        self._wires: dict[int, Wire] = {}  # by rank; of others than rank 0 only that to rank 0
        self._arrived: dict[int, Member] = {place.rank: self.me}
        self._gone: set[int] = set()
        self._told: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._attentive = False  # the main thread waits for us and takes a fault itself
        self._ended = self._over = False
        self._door: socket.socket | None = None

    # For the main thread

    def __enter__(self) -> Watch:
        if self.place.world > 1:
            try:
                if self.place.leads:
                    self._gather()
                else:
                    self._join()
            except BaseException:
                self._close()
                raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self.place.world > 1:
                if error is None:
                    self._part()
                else:
                    self._give_up(error)
        finally:
            self._close()

    def tell(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Rank 0 hands a value to all others."""
        for wire in self._wires.values():
            wire.send(told=[name, value])

    def hear(self, name: str) -> Any:  # noqa: ANN401
        """A value that rank 0 tells; waits for it. Raises Fault."""
        if not self._wait(lambda: name in self._told, self.patience):
            raise Fault(Layer.NETWORK, f"rank 0 did not tell its {name} within {self.patience:g} s")
        return self._told[name]

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until it holds; False when the time is up. Raises the fault of the job, should there be one."""
        with self._changed:
            self._attentive = True
            try:
                self._changed.wait_for(lambda: self.fault is not None or condition(), seconds)
                if self.fault is not None:
                    raise self.fault
                return condition()
            finally:
                self._attentive = False

    def _part(self) -> None:
        """The clean end: rank 0 is the last to go."""
        if not self.place.leads:
            self._wires[0].send(bye=True)
        elif not self._wait(lambda: len(self._gone) == self.place.world - 1, self.patience):
            late = ", ".join(str(each) for each in self.members[1:] if each.rank not in self._gone)
            raise self._end_all(Fault(Layer.MACHINE, f"{late} did not end within {self.patience:g} s of rank 0"))

    def _give_up(self, error: BaseException) -> None:
        """Tell the others why this one ends. Raises the fault of the job when that is what made it fail."""
        if not isinstance(error, Fault) or error.layer in (Layer.NETWORK, Layer.MACHINE):
            try:
                self._wait(lambda: False, SECONDS_TO_LEARN)
            except Fault as known:
                raise known from error
        text = " ".join(str(error).split())[:500]
        text = text if isinstance(error, Fault) else f"{type(error).__name__}: {text}"
        fault = Fault(blame(error, self.proof.suspect), f"{self.me} failed: {text} (while {self.proof.phase})")
        if self.place.leads:
            self._end_all(fault)
        else:
            self._wires[0].send(failed=[fault.layer.value, str(fault)])

    def _close(self) -> None:
        self._over = True
        if self._door is not None:
            wires.shut(self._door)
        for wire in list(self._wires.values()):
            wire.close()

    # Rank 0

    def _gather(self) -> None:
        """Wait for all others. Raises Fault."""
        self._door = wires.listen(self.place.address, self.place.port, self.me.host)
        threading.Thread(target=self._accept, args=(self._door,), daemon=True).start()
        if not self._wait(lambda: len(self._arrived) == self.place.world, self.patience):
            raise self._end_all(Fault(Layer.NETWORK, self._absent()))
        self.members = [self._arrived[rank] for rank in range(self.place.world)]
        self._send_all(members=self.members)

    def _absent(self) -> str:
        absent = [rank for rank in range(self.place.world) if rank not in self._arrived]
        names = ", ".join(map(str, absent[:8])) + (", …" if len(absent) > 8 else "")
        there = ", ".join(str(each) for _, each in sorted(self._arrived.items())[:8])
        return (
            f"{'rank' if len(absent) == 1 else 'ranks'} {names} of {self.place.world} never came within "
            f"{self.patience:g} s ({there} did; by {self.place.how}): fewer processes were started than were asked "
            f"for, or they cannot reach {self.place.address}:{self.place.port}{wires.elsewhere(self.place.address)}"
        )

    def _accept(self, door: socket.socket) -> None:
        while True:
            try:
                wire = Wire(door.accept()[0])
            except OSError:
                if self._over:
                    return
                time.sleep(SECONDS_BETWEEN)  # a connection that was gone at once, or no file left to open
                continue
            threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: Wire) -> None:
        """One connection. Who does not say who it is is nobody of ours."""
        wire.set_timeout(SECONDS_TO_GREET)
        messages = wire.read()
        try:
            member = Member(*next(messages)["hello"])
            wire.set_timeout(None)
            complaint = self._welcome(member, wire)
        except (StopIteration, OSError, ValueError, KeyError, TypeError):
            wire.close()
            return
        if complaint:
            wire.send(end=[Layer.NETWORK.value, complaint])
            wire.close()
            self._end(Fault(Layer.NETWORK, complaint))
            return
        self._listen(member, messages)

    def _welcome(self, member: Member, wire: Wire) -> str:
        """Why this one cannot be of the job; empty: it is now."""
        with self._changed:
            if member.world != self.place.world:
                return f"{member} was told of {member.world} processes, {self.me} of {self.place.world}"
            if member.backend != self.me.backend:
                return (
                    f"{member} chose {member.backend}, {self.me} {self.me.backend}: not all see a GPU of their own; "
                    "give all the same --backend or --device"
                )
            if not 0 <= member.rank < member.world:
                return f"{member} is not one of {member.world} ranks, which count from 0"
            if member.rank in self._arrived:
                return (
                    f"{member} and {self._arrived[member.rank]} have the same rank, or are of two jobs that meet at "
                    f"port {self.place.port}: --port or MASTER_PORT gives one of these jobs another"
                )
            self._arrived[member.rank] = member
            self._wires[member.rank] = wire
            self.address = wire.here
            self._changed.notify_all()
        return ""

    def _send_all(self, **message: Any) -> None:  # noqa: ANN401
        for rank, wire in list(self._wires.items()):
            if rank not in self._gone:
                wire.send(**message)

    def _end_all(self, fault: Fault) -> Fault:
        self._send_all(end=[fault.layer.value, str(fault)])
        return fault

    # The others

    def _join(self) -> None:
        """Reach rank 0 and wait for all others. Raises Fault."""
        wire = self._wires[0] = wires.reach(self.place.address, self.place.port, self.patience, str(self.me))
        self.address = wire.here
        wire.send(hello=self.me)
        leader = Member(0, self.place.world, 0, self.place.address, 0)
        threading.Thread(target=self._listen, args=(leader, wire.read()), daemon=True).start()
        # Rank 0 loses patience first and says who is missing.
        if not self._wait(lambda: "members" in self._told, self.patience + SECONDS_TO_LEARN):
            raise Fault(
                Layer.NETWORK,
                f"{self.place.address}:{self.place.port} takes connections, but is no rank 0 of {self.place.world}, or "
                f"waits longer for the others than {self.patience:g} s; --port or MASTER_PORT names another port",
            )
        self.members = [Member(*each) for each in self._told["members"]]

    # For the threads that listen

    def _listen(self, member: Member, messages: Iterator[dict[str, Any]]) -> None:
        """Hear what one other process says, until it says goodbye or dies."""
        try:
            for message in messages:
                if self._hear(member, message):
                    return
            fault = Fault(Layer.MACHINE, f"{self._name(member)} {DIED}")
        except (OSError, ValueError) as error:
            fault = Fault(Layer.NETWORK, f"{self._name(member)} was lost: {error}; its host is silent for {SILENCE} s")
            if isinstance(error, OSError) and error.errno in (errno.ECONNRESET, errno.EPIPE, errno.EBADF):
                fault = Fault(Layer.MACHINE, f"{self._name(member)} {DIED}")
        if not self._over and not (self.place.leads and member.rank in self._gone):
            self._end(fault)

    def _hear(self, member: Member, message: Mapping[str, Any]) -> bool:
        """Take one message; True when it is the last."""
        if "bye" in message:
            with self._changed:
                self._gone.add(member.rank)
                self._changed.notify_all()
            return True
        if "failed" in message or "end" in message:
            layer, text = message.get("failed") or message["end"]
            text = str(text).removesuffix(f" (while {self.proof.phase})")  # the verdict says that of this one
            self._end(Fault(next((each for each in Layer if each.value == layer), Layer.MACHINE), text))
            return True
        with self._changed:
            if "members" in message:
                self._told["members"] = message["members"]
            if "told" in message:
                name, value = message["told"]
                self._told[name] = value
            self._changed.notify_all()
        return False

    def _name(self, member: Member) -> Member:
        """Rank 0 as it called itself, where it came to that."""
        told = self._told.get("members")
        return Member(*told[member.rank]) if told else member

    def _end(self, fault: Fault) -> None:
        """The job is over: the first fault counts."""
        with self._changed:
            if self._ended or self._over:
                return
            self._ended = True
        if self.place.leads:
            self._end_all(fault)
        with self._changed:  # only now: the main thread closes all connections when it learns of it
            self.fault = fault
            attentive = self._attentive
            self._changed.notify_all()
        if not attentive:
            time.sleep(SECONDS_BETWEEN)  # for what was sent, and for a main thread that comes to ask
            if not self._over:
                self._leave(self.proof, fault)


def watching(place: Place, proof: Proof, *, patience: float = PATIENCE, host: str = "") -> Watch:
    """Watch the other processes of a job while the block runs.

    Entering waits for all of them. When one dies or fails the others end with a verdict that names it.
    """
    return Watch(place, proof, patience, host)
