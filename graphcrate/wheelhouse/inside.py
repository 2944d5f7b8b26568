"""Compiles sdists inside the image's base: the program that the wheelhouse has the image's own Python run.

Packages, their extensions and the files of these are all compiled side by side, and never more than `jobs` at once.
setuptools would compile file after file (PyG's packages ask for that), ninja the few files of one extension. So every
file is a process of its own, forked where setuptools would compile it, that waits for its turn; the first process
deals out the turns, longest work first. A file whose compiler the kernel ended for want of memory is compiled again,
with half as many beside it.

Knows the standard library, torch and setuptools; Python 3.9 and newer. Reads its orders (`Orders`) from the file that
its argument names, writes what goes on to stdout as one JSON object a line, and all that is said else to logs.
"""

import contextlib
import ctypes
import glob
import heapq
import importlib
import json
import os
import re
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TURNS = "/tmp/graphcrate-turns"
#: what compilers and drivers say when a part of them was ended by a signal, which is the kernel's want of memory
KILLED = re.compile(r"[Kk]illed|signal 9|SIGKILL|out of memory|[Cc]annot allocate memory|bad_alloc")
POLL = 0.2
#: Seconds without a new file after which the first turns are dealt: else those that ask first would have them.
SETTLED = 1.0
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000

Orders = dict[str, Any]


def main(orders: Orders) -> int:
    """Compile every package of the orders; 0 when all became wheels."""
    glob_in_order()
    importlib.import_module("setuptools")  # first, so that distutils is its own
    build_ext = importlib.import_module("setuptools.command.build_ext")
    cpp_extension = importlib.import_module("torch.utils.cpp_extension")
    os.umask(0o022)
    server = socket.socket(socket.AF_UNIX)
    server.bind(TURNS)
    server.listen(4096)
    spread_out(build_ext, cpp_extension)
    dealer = Dealer(server, orders["jobs"])
    for package in orders["packages"]:
        dealer.packages[fork(build, package)] = package["name"]
    return dealer.serve()


def glob_in_order() -> None:
    """Make `glob` independent of the order that a disk has its files in: link order goes by it."""
    original = glob.glob

    def in_order(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return sorted(original(*arguments, **options))

    glob.glob = in_order


def build(package: dict[str, str]) -> None:
    """Make the wheel of an unpacked sdist, as an installer would: by its setup.py through setuptools' back-end."""
    redirect(f"{package['log']}.log")
    os.environ["GRAPHCRATE_PACKAGE"] = package["name"]
    os.environ["GRAPHCRATE_LOG"] = package["log"]
    os.chdir(package["folder"])
    sys.path.insert(0, package["folder"])
    Path(package["wheels"]).mkdir()
    importlib.import_module("setuptools.build_meta").__legacy__.build_wheel(package["wheels"])


def spread_out(build_ext: Any, cpp_extension: Any) -> None:  # noqa: ANN401
    """Have setuptools compile extensions, and the files of each, in processes of their own."""
    ccompiler = importlib.import_module("distutils.ccompiler")
    begin = cpp_extension.BuildExtension.__init__

    def without_ninja(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        begin(self, *arguments, **options)
        self.use_ninja = False

    cpp_extension.BuildExtension.__init__ = without_ninja
    build_ext.build_ext.build_extensions = build_extensions
    ccompiler.CCompiler.compile = compile_files


def build_extensions(self: Any) -> None:  # noqa: ANN401
    """In place of setuptools' `build_ext.build_extensions`."""
    self.check_extensions_list(self.extensions)
    tell("files", count=sum(len(extension.sources) for extension in self.extensions))

    def one(extension: Any) -> None:  # noqa: ANN401
        # Two variants of an extension are made of the same sources, hence objects of the same name.
        self.build_temp = f"{self.build_temp}/{extension.name}"
        self.build_extension(extension)

    wait_for([fork(one, extension) for extension in self.extensions], "an extension could not be built")


def compile_files(
    self: Any,  # noqa: ANN401
    sources: list[str],
    output_dir: "str | None" = None,
    macros: Any = None,  # noqa: ANN401
    include_dirs: Any = None,  # noqa: ANN401
    debug: Any = 0,  # noqa: ANN401
    extra_preargs: Any = None,  # noqa: ANN401
    extra_postargs: Any = None,  # noqa: ANN401
    depends: Any = None,  # noqa: ANN401
) -> list[str]:
    """In place of distutils' `CCompiler.compile`, which does the same in a row."""
    macros, objects, extra_postargs, pp_opts, wanted = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)

    def one(target: str) -> None:
        source, extension = wanted[target]
        in_turn(source, target, lambda: self._compile(target, source, extension, cc_args, extra_postargs, pp_opts))

    wait_for([fork(one, target) for target in objects if target in wanted], "a file could not be compiled")
    return list(objects)


def in_turn(source: str, target: str, work: "Callable[[], None]") -> None:
    """Do the work when it is this process's turn; again where the dealer wants that."""
    log = f"{os.environ['GRAPHCRATE_LOG']}.{target.replace(os.sep, '_')}.log"
    # nvcc's work is the longest, and what others have to wait for at the end.
    weight = (source.endswith(".cu") << 30) + Path(source).stat().st_size
    own_temporary_folder(target)
    with connected() as dealer:
        dealer.send({"source": source, "weight": weight})
        while dealer.receive() == "go":
            redirect(log, anew=True)
            begin, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            failed = wait(fork(numbered_anew, work)) != 0
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            dealer.send(
                {
                    "seconds": round(time.monotonic() - begin, 1),
                    "cpu": round(usage.ru_utime - used, 1),
                    "peak_mb": usage.ru_maxrss // 1024,
                    "failed": failed,
                    "log": log,
                }
            )
            if not failed:
                return
    sys.exit(1)


def own_temporary_folder(target: str) -> None:
    """Temporary files of each object apart: processes are numbered alike, and files of two packages are named alike."""
    folder = Path(os.environ["TMPDIR"], os.environ["GRAPHCRATE_PACKAGE"], target.replace(os.sep, "_"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(folder)


def numbered_anew(work: "Callable[[], None]") -> None:
    """Do the work where processes are numbered from 1, wherever the kernel allows that.

    nvcc names temporary files by its number, and of a file without external functions the kernels too.
    """
    kernel, uid, gid = ctypes.CDLL(None), os.geteuid(), os.getegid()
    if kernel.unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0:
        return work()
    maps = (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"))
    for name, text in maps:
        with contextlib.suppress(OSError), Path(f"/proc/self/{name}").open("w") as stream:
            stream.write(text)
    if wait(fork(work)):
        sys.exit(1)
    return None


def tell(event: str, **about: Any) -> None:  # noqa: ANN401
    """Have the dealer say something of this package."""
    with connected() as dealer:
        dealer.send({"event": event, **about})


class Line:
    """A connection with messages, one JSON value a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._begun = b""
        self._whole: list[bytes] = []

    def send(self, message: Any) -> None:  # noqa: ANN401
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:  # noqa: ANN401
        """The next message; None when the other side has gone."""
        while not self._whole:
            if not self.gather():
                return None
        return json.loads(self._whole.pop(0))

    def gather(self) -> bool:
        """Read what has come, at least something. False when the other side has gone."""
        try:
            data = self.connection.recv(1 << 16)
        except ConnectionError:
            data = b""
        *whole, self._begun = (self._begun + data).split(b"\n")
        self._whole += whole
        return bool(data)

    def come(self) -> list[Any]:
        """The messages that have come whole."""
        whole, self._whole = self._whole, []
        return [json.loads(line) for line in whole]


@contextlib.contextmanager
def connected() -> "Iterator[Line]":
    """A line to the dealer, which knows from the first message whose it is."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(TURNS)
    line = Line(connection)
    line.send({"package": os.environ["GRAPHCRATE_PACKAGE"]})
    try:
        yield line
    finally:
        connection.close()


class Worker:
    """A process that waits for its turn or has it."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.package = ""
        self.about: dict[str, Any] = {}


class Dealer:
    """Deals out turns and says on stdout what goes on."""

    def __init__(self, server: socket.socket, jobs: int) -> None:
        self.server, self.jobs = server, jobs
        self.packages: dict[int, str] = {}
        self.waiting: list[tuple[int, int, Worker]] = []
        self.running = 0
        self.counter = 0
        self.asked = time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.selector.register(server, selectors.EVENT_READ, None)

    def serve(self) -> int:
        """Until every package is done, or the first has failed."""
        while self.packages:
            for key, _ in self.selector.select(POLL):
                if key.data is None:
                    worker = Worker(Line(self.server.accept()[0]))
                    self.selector.register(worker.line.connection, selectors.EVENT_READ, worker)
                elif not self.hear(key.data):
                    return 1
            if self.running or time.monotonic() - self.asked > SETTLED:
                self.deal()
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended in self.packages:
                name = self.packages.pop(ended)
                if status:
                    report("failed", package=name)
                    return 1
                report("built", package=name)
        return 0

    def hear(self, worker: Worker) -> bool:
        """Take a worker's messages. False when its file cannot be compiled."""
        there = worker.line.gather()
        # More than one can have come: what a selector does not tell again.
        good = [self.take(worker, message) for message in worker.line.come()]
        if not there:
            self.selector.unregister(worker.line.connection)
            worker.line.connection.close()
        return all(good)

    def take(self, worker: Worker, message: dict[str, Any]) -> bool:
        if "event" in message:
            report(**message, package=worker.package)
        elif "package" in message:
            worker.package = message["package"]
        elif "failed" in message:
            return self.finish(worker, message)
        else:
            worker.about = message
            self.queue(worker)
        return True

    def queue(self, worker: Worker) -> None:
        self.counter += 1
        self.asked = time.monotonic()
        heapq.heappush(self.waiting, (-worker.about["weight"], self.counter, worker))

    def finish(self, worker: Worker, result: dict[str, Any]) -> bool:
        self.running -= 1
        if not result["failed"]:
            report("compiled", package=worker.package, **worker.about, **result)
            return True
        killed = KILLED.search(Path(result["log"]).read_text(encoding="utf-8", errors="replace")) is not None
        if killed and self.jobs > 1:
            self.jobs //= 2
            report("fewer", package=worker.package, source=worker.about["source"], jobs=self.jobs)
            self.queue(worker)
            return True
        report("failed", package=worker.package, source=worker.about["source"], killed=killed, log=result["log"])
        return False

    def deal(self) -> None:
        while self.waiting and self.running < self.jobs:
            _, _, worker = heapq.heappop(self.waiting)
            self.running += 1
            worker.line.send("go")


def report(event: str, **about: Any) -> None:  # noqa: ANN401
    """A line for the wheelhouse."""
    print(json.dumps({"event": event, **about}), flush=True)


def fork(work: "Callable[..., None]", *arguments: Any) -> int:  # noqa: ANN401
    """Do the work in a child process, whose number is returned."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        leave(attempt(work, *arguments))
    return pid


def attempt(work: "Callable[..., Any]", *arguments: Any) -> int:  # noqa: ANN401
    """Do the work; the exit code for it. What went wrong is on stderr."""
    try:
        work(*arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """End a forked process without what its parent would do at its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(pid: int) -> int:
    """Whether a child failed: 0 when it did not."""
    return os.waitpid(pid, 0)[1]


def wait_for(children: list[int], what: str) -> None:
    """Wait for all of these children. Raises RuntimeError when one failed."""
    codes = [wait(child) for child in children]
    if any(codes):
        raise RuntimeError(what)


def redirect(path: str, *, anew: bool = False) -> None:
    """Have stdout and stderr, also of programs started from here, go to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if anew else os.O_APPEND), 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.path[0]
    leave(attempt(lambda: sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))))
