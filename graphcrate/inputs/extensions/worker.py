"""Compile sdists inside the image's base: the program that the image's own Python runs in the sandbox.

setuptools would compile file after file. So each package's setup.py runs in a process of its own, which lists the
compilers' commands in place of starting them; then the files of all packages are compiled side by side, longest first,
and each package links and makes its wheel. A file whose compiler the kernel ended for lack of memory is compiled again
with half as many beside it. `headers` of an order stand in front of torch's, precompiled for the host compiler; where
that fails the file is compiled as setup.py has it. Files of libraries that packages are linked to are compiled among
the others; a package links when its own are there and the library is put together.

Python 3.9, standard library, torch, setuptools. Orders come in the file that the argument names; events go to stdout,
one JSON object a line, all other output to logs.
"""

import contextlib
import fnmatch
import functools
import glob
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import traceback
import zipfile
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

#: where precompiled headers are
PRECOMPILED = "/build/precompiled"
#: the header that includes everything of torch's that the host compiler needs
WHOLE = "torch/extension.h"
#: options that differ from package to package, and change nothing in torch's headers: macros, and folders of sources
ITS_OWN = re.compile(r"-DTORCH_EXT|-DWITH_|-I([^/]|/build/)")
NATIVE = re.compile(r"-m(arch|tune|cpu)=native")
OBJECTS = "objects"  #: below a library's folder
#: Estimates in seconds for files that no order knows.
CUDA_SECONDS, CPP_SECONDS = 12.0, 3.0
#: what compilers and drivers print when the kernel ended a part of them for lack of memory
KILLED = re.compile(r"[Kk]illed|signal 9|SIGKILL|out of memory|[Cc]annot allocate memory|bad_alloc")
#: nvcc names what is hidden in a file by its process number. `-s` drops such names, but in a file without any external
#: function kernels keep them. With a seed they are the same each time. Every nvcc that compiles for another platform
#: takes one; others are not asked to, so that wheels for this machine keep their bytes.
SEED = "-frandom-seed"

Orders = dict[str, Any]
Command = list[str]


class Work(NamedTuple):
    """One file to compile. `command`: as setup.py has it; `folder`: where it runs; `log`: where its output goes."""

    package: str
    source: str
    target: str
    command: Command
    folder: str
    log: str
    headers: str
    seconds: float


class Package:
    """A process that runs a package's setup.py, and the pipe to it."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.name: str = order["name"]
        fork = multiprocessing.get_context("fork")
        self._pipe, end = fork.Pipe()
        self._process = fork.Process(target=build, args=(order, end))
        self._process.start()
        end.close()

    def works(self) -> list[Work]:
        """Wait for the list of what is to be compiled; empty when setup.py ended before it had one."""
        try:
            listed: list[Work] = self._pipe.recv()
        except EOFError:
            return []
        return listed

    def finish(self) -> bool:
        """Have the package link and make its wheel, now that its files are compiled. Returns whether it could."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send("compiled")
        self._process.join()
        return self._process.exitcode == 0


def main(orders: Orders) -> int:
    """Compile every package of the orders; 0 when all became wheels."""
    sort_glob()
    importlib.import_module("setuptools")  # first, so that distutils is its own
    importlib.import_module("torch.utils.cpp_extension")
    os.umask(0o022)
    libraries = {order["name"]: order for order in orders.get("libraries", [])}
    listed = {name: prepare(order) for name, order in libraries.items()}
    packages = [Package(order) for order in orders["packages"]]
    listed |= {package.name: package.works() for package in packages}
    for name, works in listed.items():
        report("files", package=name, count=len(works), weight=sum(work.seconds for work in works))
    run = functools.partial(run_compiler, seeds=orders.get("seeds", False))
    files = Compiler(orders["jobs"], run).start([work for works in listed.values() for work in works])
    linking = ThreadPoolExecutor(max_workers=len(packages) + len(libraries))
    # Each of these waits in a thread of its own, so that what waits for a library keeps nothing from being made.
    archives = {name: linking.submit(put_together, order, files[name]) for name, order in libraries.items()}
    needed = {order["name"]: [archives[name] for name in order.get("libraries", [])] for order in orders["packages"]}
    links = [
        linking.submit(link, package, [*files.get(package.name, []), *needed[package.name]]) for package in packages
    ]
    done = wait(links, return_when=FIRST_EXCEPTION).done
    return 1 if any(link.exception() for link in done) else 0


def prepare(order: dict[str, Any]) -> list[Work]:
    """List what is to be compiled of a library, and report where its sources are not those of the order; raises it."""
    try:
        return unpack_library(order)
    except (OSError, tarfile.TarError):
        report("failed", package=order["name"])
        raise


def unpack_library(order: dict[str, Any]) -> list[Work]:
    """Unpack a library's sources to the folder of the order, edit them, and list what is to be compiled.

    Raises OSError for sources that are not those that the order is for.
    """
    folder, inside = Path(order["folder"]), f"{order['folder']}.unpacked"
    with tarfile.open(order["archive"]) as archive:
        archive.extractall(inside)
    Path(inside, order["top"]).rename(folder)
    for path, old, new in order["edits"]:
        lines = (folder / path).read_text().split("\n")
        if lines.count(old) != 1:
            raise OSError(f"{order['name']}: {path} has no line of its own {old!r}")
        (folder / path).write_text("\n".join(new if line == old else line for line in lines))
    for name, text in order["texts"].items():
        (folder / name).write_text(text)
    paths = sorted(path.relative_to(folder).as_posix() for pattern in order["files"] for path in folder.glob(pattern))
    sources = [path for path in paths if not any(fnmatch.fnmatchcase(path, pattern) for pattern in order["without"])]
    if not sources:
        raise OSError(f"{order['name']} has no file to compile")
    (folder / OBJECTS).mkdir()
    compiler = [os.environ.get("CC", "cc"), *order["options"], *(f"-I{path}" for path in order["include"])]
    works = []
    for source in sources:
        target = f"{OBJECTS}/{source.replace('/', '_')}.o"
        command = [*compiler, "-c", source, "-o", target]
        log = f"{order['log']}.{source.replace('/', '_')}.log"
        name, seconds = order["name"], order["seconds"] / len(sources)
        works.append(Work(name, f"{name}/{source}", target, command, str(folder), log, "", seconds))
    return works


def put_together(order: dict[str, Any], files: "list[Future[None]]") -> None:
    """Make the static library of its objects, now that they are compiled. Raises what one of them raised, OSError."""
    for file in files:
        file.result()
    objects = sorted(path.name for path in Path(order["folder"], OBJECTS).glob("*.o"))
    log = f"{order['log']}.log"
    # D: no times and owners, the same bytes each time
    command = [os.environ.get("AR", "ar"), "rcsD", f"../lib{order['name']}.a", *objects]
    with Path(log).open("w") as output:
        done = subprocess.run(
            command,
            cwd=f"{order['folder']}/{OBJECTS}",
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode != 0:
        report("failed", package=order["name"], source="", log=log)
        raise OSError(order["name"])


def link(package: Package, files: "list[Future[None]]") -> None:
    """Finish a package when its files are compiled. Raises what one of them raised, and OSError when it fails."""
    for file in files:
        file.result()
    if not package.finish():
        report("failed", package=package.name)
        raise OSError(package.name)
    report("built", package=package.name)


def sort_glob() -> None:
    """Make `glob` independent of the order that a disk has its files in: link order goes by it."""
    original = glob.glob

    def in_order(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return sorted(original(*arguments, **options))

    glob.glob = in_order


def unpack(order: dict[str, Any]) -> None:
    """Unpack an sdist to the folder of the order, which takes the place of the one folder in it."""
    is_zip = str(order["sdist"]).endswith(".zip")
    with zipfile.ZipFile(order["sdist"]) if is_zip else tarfile.open(order["sdist"]) as archive:
        archive.extractall(f"{order['folder']}.unpacked")
    for setup in Path(f"{order['folder']}.unpacked").glob("*/setup.py"):
        setup.parent.rename(order["folder"])
        return
    raise FileNotFoundError("it has no setup.py in a folder of its own, by which setuptools compiles")


def link_to_libraries(order: dict[str, Any]) -> None:
    """Set what makes a setup.py take its libraries, and put their licences where setuptools takes such files from."""
    os.environ.update(order.get("variables", {}))
    for name, path in order.get("texts", {}).items():
        shutil.copyfile(path, Path(order["folder"], name))


def build(order: dict[str, Any], pipe: "Connection") -> None:
    """Make the wheel of an sdist by its setup.py, through setuptools' back-end, as an installer would."""
    log = os.open(f"{order['log']}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    unpack(order)
    link_to_libraries(order)
    os.chdir(order["folder"])
    sys.path.insert(0, order["folder"])
    Path(order["wheels"]).mkdir()
    extensions = importlib.import_module("torch.utils.cpp_extension").BuildExtension
    begin = extensions.__init__

    def without_ninja(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        begin(self, *arguments, **options)
        self.use_ninja = False

    def build_extensions(self: Any) -> None:  # noqa: ANN401
        self.check_extensions_list(self.extensions)
        for extension in self.extensions:
            extension.include_dirs.extend(order.get("include_dirs", ()))
            extension.library_dirs.extend(order.get("library_dirs", ()))
        pipe.send([work_of(order, *command) for command in list_commands(self)])
        pipe.recv()  # the files are compiled
        names = self.compiler.object_filenames
        self.compiler.compile = lambda sources, output_dir=None, **_: names(sources, output_dir=output_dir)
        each_extension(self)

    extensions.__init__ = without_ninja
    importlib.import_module("setuptools.command.build_ext").build_ext.build_extensions = build_extensions
    importlib.import_module("setuptools.build_meta").__legacy__.build_wheel(order["wheels"])


def each_extension(build_ext: Any) -> None:  # noqa: ANN401
    """Build the extensions one by one. Variants of one have the same sources, hence objects of the same names."""
    temporary = build_ext.build_temp
    for extension in build_ext.extensions:
        build_ext.build_temp = f"{temporary}/{extension.name}"
        build_ext.build_extension(extension)
    build_ext.build_temp = temporary


def list_commands(build_ext: Any) -> "list[tuple[str, str, Command]]":  # noqa: ANN401
    """List the compilers' commands as (source, object, command); start none."""
    compiler = build_ext.compiler
    commands: list[tuple[str, str, Command]] = []
    compile_in_a_row = compiler.compile

    def compile_files(sources: list[str], output_dir: "str | None" = None, **options: Any) -> list[str]:  # noqa: ANN401
        started: list[Command] = []
        # setuptools up to 83 starts programs by `spawn`, newer ones by `call`
        compiler.spawn = compiler.call = lambda command, **_: started.append(command)
        made = list(compile_in_a_row(sources, output_dir=output_dir, **options))
        del compiler.spawn, compiler.call
        targets = {compiler.object_filenames([source], output_dir=output_dir)[0]: source for source in sources}
        for command in started:
            # Code for the processor that compiles would end with an illegal instruction on other nodes.
            command = [word for word in command if not NATIVE.fullmatch(word)]
            target = command[command.index("-o") + 1]
            commands.append((targets[target], target, command))
        return made

    compiler.compile = compile_files
    compiler.link_shared_object = lambda *_, **__: None
    each_extension(build_ext)
    del compiler.compile, compiler.link_shared_object
    return commands


def work_of(order: dict[str, Any], source: str, target: str, command: Command) -> Work:
    """Complete a command with what the order says of its package."""
    usual = CUDA_SECONDS if source.endswith(".cu") else CPP_SECONDS
    seconds = order["seconds"].get(source, usual) + Path(source).stat().st_size / 1e6
    log = f"{order['log']}.{target.replace(os.sep, '_')}.log"
    return Work(order["name"], source, target, command, order["folder"], log, order["headers"], seconds)


class KilledError(Exception):
    """The kernel ended a compiler, which ran as one of at most `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most


class Slots:
    """The number of compilers that may run at once. All threads ask here: it is kept nowhere else."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def slot(self) -> "Iterator[int]":
        """Wait for a slot and keep it; give how many there were when it was taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken < self._most)
            self._taken += 1
            most = self._most
        try:
            yield most
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    def lower(self, most: int) -> bool:
        """Allow no more than `most` from now on; False where no more were allowed anyway. Does not wait."""
        with self._changed:
            if most >= self._most:
                return False
            self._most = most
            return True


class Compiler:
    """Runs commands side by side, at most `jobs` at once, and fewer when memory does not suffice."""

    def __init__(self, jobs: int, run: "Callable[[Command, Work], int]") -> None:
        self._run = run
        self._slots = Slots(jobs)
        self._pool = ThreadPoolExecutor(max_workers=jobs)
        self._headers: dict[str, Future[str]] = {}

    def start(self, works: list[Work]) -> "dict[str, list[Future[None]]]":
        """Begin to compile, longest first; package → its files. A file that cannot be compiled raises OSError."""
        for work in works:
            if work.headers and not work.source.endswith(".cu"):
                header = header_of(work)
                if header.target not in self._headers:  # before any file that waits for it
                    self._headers[header.target] = self._pool.submit(self._precompile, header)
        files: dict[str, list[Future[None]]] = {work.package: [] for work in works}
        for work in sorted(works, key=lambda work: -work.seconds):
            files[work.package].append(self._pool.submit(self._compile, work))
        return files

    def _compile(self, work: Work) -> None:
        while True:
            try:
                if self._works(work, self._ways(work)):
                    report("compiled", package=work.package, source=work.source, weight=work.seconds)
                    return
                fewer = 0
            except KilledError as killed:
                fewer = killed.most // 2  # of the number that it ran beside: those killed together halve it once
            if not fewer:
                report("failed", package=work.package, source=work.source, log=work.log)
                raise OSError(work.source)
            if self._slots.lower(fewer):
                report("fewer", package=work.package, source=work.source, jobs=fewer)

    def _ways(self, work: Work) -> list[Command]:
        """List how a file can be compiled, the quickest way first, as setup.py has it last."""
        if not work.headers:
            return [work.command]
        program, *options = work.command
        quick = [program, f"-I{work.headers}", *options]
        if work.source.endswith(".cu"):
            return [quick, work.command]
        header = self._headers[header_of(work).target].result()
        return [*([[*quick[:2], "-include", header, *options]] if header else []), quick, work.command]

    def _precompile(self, header: Work) -> str:
        """Precompile a header; returns its path, and "" where that fails."""
        Path(header.source).parent.mkdir(parents=True, exist_ok=True)
        Path(header.source).write_text(f"#include <{WHOLE}>\n")
        with contextlib.suppress(KilledError):
            return header.source if self._works(header, [header.command]) else ""
        return ""

    def _works(self, work: Work, ways: list[Command]) -> bool:
        """Run these commands until one works; the log holds the output of the last that ran. Raises KilledError."""
        for way in ways:
            with self._slots.slot() as most:
                code = self._run(way, work)
            if code == 0:
                return True
            if was_killed(work.log):
                raise KilledError(most)
            if way is not ways[-1]:
                output = Path(work.log).read_text(encoding="utf-8", errors="replace")
                report("slower", package=work.package, source=work.source, output=output[:4000])
        return False


def run_compiler(command: Command, work: Work, seeds: bool = False) -> int:
    """Run a compiler and return its exit code. `seeds`: whether nvcc takes a seed."""
    # Temporary files of each object are apart: of two packages they may be named alike.
    temporary = Path(os.environ["TMPDIR"], work.package, work.target.replace(os.sep, "_"))
    temporary.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    argv = seeded(command, work.source) if seeds else command
    with Path(work.log).open("w") as log:
        print(shlex.join(argv), file=log, flush=True)
        return subprocess.call(argv, cwd=work.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def seeded(command: Command, source: str) -> Command:
    """The command with a seed of its own for a CUDA file; nvcc needs another one for each file."""
    return [command[0], f"{SEED}={source}", *command[1:]] if source.endswith(".cu") else command


def header_of(work: Work) -> Work:
    """Describe a host compiler's precompiled header; files with the same options share it, macros of packages aside."""
    files = {"-c", work.source, "-o", work.target}
    program, *given = work.command
    shared = (word for word in given if word not in files and not ITS_OWN.match(word))
    options = [f"-I{work.headers}", *shared]
    name = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
    header = f"{PRECOMPILED}/{name}/torch.h"
    command = [program, "-x", "c++-header", header, "-o", f"{header}.gch", *options]
    return work._replace(source=header, target=f"{header}.gch", command=command, log=f"{work.log}.header.log")


def was_killed(log: str) -> bool:
    """Return whether the kernel ended a program whose output this is."""
    return KILLED.search(Path(log).read_text(encoding="utf-8", errors="replace")) is not None


_stdout = threading.Lock()


def report(event: str, **about: Any) -> None:  # noqa: ANN401
    """Write an event for the wheelhouse."""
    with _stdout:
        print(json.dumps({"event": event, **about}), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.path[0]
    code = 1
    try:
        code = main(json.loads(Path(sys.argv[1]).read_text()))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without what an interpreter does at its end: threads may still wait for compilers
