"""Compiles sdists inside the image's base: the program that the wheelhouse has the image's own Python run.

Packages, their extensions and the files of these are all compiled side by side, and never more than `jobs` at once.
setuptools would compile file after file (PyG's packages ask for that), ninja the few files of one extension. So every
file is a process of its own, forked where setuptools would compile it, that waits for its turn; the first process
deals out the turns, longest work first. A file whose compiler the kernel ended for want of memory is compiled again,
with half as many beside it.

A package whose order names `headers` is compiled with those in front of torch's, and the host compiler reads them
compiled beforehand. Where that fails the file is compiled as setup.py has it.

Knows the standard library, torch and setuptools; Python 3.9 and newer. Reads its orders (`Orders`) from the file that
its argument names, writes what goes on to stdout as one JSON object a line, and all that is said else to logs.
"""

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import importlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from graphcrate.wheelhouse.turns import TURNS, Dealer, connected, tell, was_killed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: where headers lie that were compiled beforehand
PRECOMPILED = "/build/precompiled"
#: what brings all that the host compiler wants of torch
WHOLE = "torch/extension.h"
#: options that packages have each of their own, and torch's headers know nothing of
ITS_OWN = re.compile(r"-DTORCH_EXT|-DWITH_|-I[^/]")
#: Estimates in seconds, by which turns are dealt out: of files that no order knows, and of a header.
CUDA_SECONDS, CPP_SECONDS, HEADER_SECONDS = 12.0, 3.0, 40.0
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000

Orders = dict[str, Any]
Command = list[str]


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


#: of the package that this process builds: file → seconds that compiling it takes
KNOWN_SECONDS: dict[str, float] = {}


def build(package: dict[str, Any]) -> None:
    """Make the wheel of an unpacked sdist, as an installer would: by its setup.py through setuptools' back-end."""
    redirect(f"{package['log']}.log")
    os.environ["GRAPHCRATE_PACKAGE"] = package["name"]
    os.environ["GRAPHCRATE_LOG"] = package["log"]
    os.environ["GRAPHCRATE_HEADERS"] = package["headers"]
    KNOWN_SECONDS.update(package["seconds"])
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
    sources = [source for extension in self.extensions for source in extension.sources]
    tell("files", count=len(sources), weight=sum(map(weight, sources)))

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
        commands = commands_of(self, lambda: self._compile(target, source, extension, cc_args, extra_postargs, pp_opts))
        in_turn(source, target, ways(commands, source, target), self.spawn)

    wait_for([fork(one, target) for target in objects if target in wanted], "a file could not be compiled")
    return list(objects)


def commands_of(compiler: Any, work: "Callable[[], None]") -> list[Command]:  # noqa: ANN401
    """What distutils' compiler would start for this work, which is not started."""
    found: list[Command] = []
    compiler.spawn = found.append
    try:
        work()
    finally:
        del compiler.spawn
    return found


def ways(commands: list[Command], source: str, target: str) -> list[list[Command]]:
    """How a file can be compiled, the quickest way first, as setup.py has it last."""
    headers = os.environ["GRAPHCRATE_HEADERS"]
    if not headers or len(commands) != 1:
        return [commands]
    program, *options = commands[0]
    quick = [program, f"-I{headers}", *options]
    if source.endswith(".cu"):
        return [[quick], commands]
    header = precompiled(quick, source, target)
    return [*([[[*quick[:2], "-include", header, *options]]] if header else []), [quick], commands]


def precompiled(command: Command, source: str, target: str) -> str:
    """Precompile the header for what this command compiles; the first process that wants it makes it.

    Returns "" where it cannot be made. Macros that each package has of its own are no part of it; g++ reads the text
    where one of them changes anything.
    """
    files = {"-c", source, "-o", target}
    options = [word for word in command[1:] if word not in files and not ITS_OWN.match(word)]
    header = Path(PRECOMPILED, hashlib.sha256(repr(options).encode()).hexdigest()[:16], "torch.h")
    made = header.with_suffix(".h.gch")
    header.parent.mkdir(parents=True, exist_ok=True)
    with header.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not header.exists():
            header.write_text(f"#include <{WHOLE}>\n")
            make = [command[0], "-x", "c++-header", str(header), "-o", str(made), *options]
            in_turn(WHOLE, str(made), [[make], []], start, counts=False)
    return str(header) if made.exists() else ""


def start(command: Command) -> None:
    """Run a program. Raises CalledProcessError when it fails."""
    subprocess.run(command, check=True)


def weight(source: str) -> float:
    """Seconds that compiling a file takes, roughly: nvcc's work is the longest, and what others wait for at the end."""
    if source == WHOLE:
        return HEADER_SECONDS
    usual = CUDA_SECONDS if source.endswith(".cu") else CPP_SECONDS
    return KNOWN_SECONDS.get(source, usual) + Path(source).stat().st_size / 1e6


def in_turn(
    source: str,
    target: str,
    ways: list[list[Command]],
    run: "Callable[[Command], None]",
    *,
    counts: bool = True,
) -> None:
    """Run the first of these ways that works when it is this process's turn; again where the dealer wants that."""
    log = f"{os.environ['GRAPHCRATE_LOG']}.{target.replace(os.sep, '_')}.log"
    with own_temporary_folder(target), connected() as dealer:
        dealer.send({"source": source, "weight": weight(source), "counts": counts})
        while dealer.receive() == "go":
            begin, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            failed = True
            for way in ways:
                redirect(log, anew=True)
                failed = wait(fork(numbered_anew, run_all, run, way)) != 0
                if not failed or was_killed(log):
                    break
                if way is not ways[-1]:
                    said = Path(log).read_text(encoding="utf-8", errors="replace")
                    dealer.send({"event": "slower", "source": source, "said": said[:4000]})
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


@contextlib.contextmanager
def own_temporary_folder(target: str) -> "Iterator[None]":
    """Temporary files of each object apart: processes are numbered alike, and files of two packages are named alike."""
    before = os.environ["TMPDIR"]
    folder = Path(before, os.environ["GRAPHCRATE_PACKAGE"], target.replace(os.sep, "_"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        os.environ["TMPDIR"] = before


def run_all(run: "Callable[[Command], None]", commands: list[Command]) -> None:
    """Run these commands in a row, as far as they work."""
    for command in commands:
        run(command)


def numbered_anew(work: "Callable[..., None]", *arguments: Any) -> None:  # noqa: ANN401
    """Do the work where processes are numbered from 1, wherever the kernel allows that.

    nvcc names temporary files by its number, and of a file without external functions the kernels too.
    """
    kernel, uid, gid = ctypes.CDLL(None), os.geteuid(), os.getegid()
    if kernel.unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0:
        return work(*arguments)
    maps = (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1"))
    for name, text in maps:
        with contextlib.suppress(OSError), Path(f"/proc/self/{name}").open("w") as stream:
            stream.write(text)
    if wait(fork(work, *arguments)):
        sys.exit(1)
    return None


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
