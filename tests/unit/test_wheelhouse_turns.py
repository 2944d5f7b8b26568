"""Who compiles next: the dealer of turns in the program that runs in the sandbox."""

import json
import os
import socket
from pathlib import Path

import pytest

from graphcrate.wheelhouse import inside
from graphcrate.wheelhouse.inside import own_temporary_folder
from graphcrate.wheelhouse.turns import Dealer, Line, Worker


@pytest.fixture
def dealer():
    made = Dealer(socket.socket(socket.AF_UNIX), 2)
    yield made
    for key in list(made.selector.get_map().values()):
        key.fileobj.close()
    made.selector.close()


@pytest.fixture
def asking(dealer):
    """Makes a process's end of a line, whose first messages the dealer has heard."""
    ends = []

    def make(source, weight, package="pkg"):
        theirs, ours = socket.socketpair()
        worker = Worker(Line(ours))
        dealer.selector.register(ours, 1, worker)
        line = Line(theirs)
        line.send({"package": package})
        line.send({"source": source, "weight": weight})
        assert dealer.hear(worker)
        ends.append(theirs)
        theirs.setblocking(False)
        return line, worker

    yield make
    for end in ends:
        end.close()


def has_turn(line):
    try:
        return line.receive() == "go"
    except BlockingIOError:
        return False


def result(line, log, *, failed=False):
    line.send({"seconds": 1.0, "cpu": 1.0, "peak_mb": 900, "failed": failed, "log": str(log)})


def said(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_messages_that_come_together_are_all_heard_and_long_work_is_first(dealer, asking):
    lines = [asking(f"{weight}.cpp", weight)[0] for weight in (5, 9, 1, 7)]
    dealer.deal()
    assert [has_turn(line) for line in lines] == [False, True, False, True]


def test_a_turn_that_ends_is_the_next_ones(dealer, asking, capsys, tmp_path):
    (first, worker), (second, _), (third, _) = (asking("a.cu", 9), asking("b.cpp", 5), asking("c.cpp", 1))
    dealer.deal()
    assert [has_turn(line) for line in (first, second, third)] == [True, True, False]
    result(first, tmp_path / "log")
    assert dealer.hear(worker)
    dealer.deal()
    assert has_turn(third)
    (event,) = said(capsys)
    assert (event["event"], event["package"], event["source"]) == ("compiled", "pkg", "a.cu")


def test_a_compiler_that_the_kernel_ended_runs_again_with_fewer_beside_it(dealer, asking, capsys, tmp_path):
    log = tmp_path / "log"
    log.write_text("g++-11: fatal error: Killed signal terminated program cc1plus\n")
    (first, worker), (second, other) = asking("a.cu", 9), asking("b.cpp", 5)
    dealer.deal()
    assert has_turn(first)
    assert has_turn(second)
    result(first, log, failed=True)
    assert dealer.hear(worker)
    dealer.deal()
    assert not has_turn(first)  # one at a time now, and the other still runs
    result(second, log)
    assert dealer.hear(other)
    dealer.deal()
    assert has_turn(first)
    result(first, log, failed=True)
    assert not dealer.hear(worker)  # alone, it was too much for the machine
    assert [event["event"] for event in said(capsys)] == ["fewer", "compiled", "failed"]


def test_a_file_that_does_not_compile_ends_it(dealer, asking, capsys, tmp_path):
    log = tmp_path / "log"
    log.write_text("a.cu(3): error: no\n")
    line, worker = asking("a.cu", 9)
    dealer.deal()
    result(line, log, failed=True)
    assert not dealer.hear(worker)
    (event,) = said(capsys)
    assert (event["event"], event["killed"], event["log"]) == ("failed", False, str(log))


def test_how_many_files_there_are_is_passed_on(dealer, capsys):
    theirs, ours = socket.socketpair()
    worker = Worker(Line(ours))
    dealer.selector.register(ours, 1, worker)
    line = Line(theirs)
    line.send({"package": "pkg"})
    line.send({"event": "files", "count": 7, "weight": 3.5})
    theirs.close()
    assert dealer.hear(worker)
    assert dealer.hear(worker)
    assert said(capsys) == [{"event": "files", "count": 7, "weight": 3.5, "package": "pkg"}]


def test_objects_of_one_name_get_temporary_folders_of_their_own(tmp_path, monkeypatch):
    found = set()
    for package in ("torch-sparse", "torch-cluster"):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setenv("GRAPHCRATE_PACKAGE", package)
        with own_temporary_folder("build/temp/csrc/cuda/rw_cuda.o"):
            found.add(os.environ["TMPDIR"])
        assert os.environ["TMPDIR"] == str(tmp_path)
    assert len(found) == 2
    assert all(Path(folder).is_dir() for folder in found)


GCC = ["g++-11", "-O2", "-I/torch", "-Icsrc", "-DWITH_CUDA", "-c", "csrc/a.cpp", "-o", "a.o", "-std=c++17"]
NVCC = ["/usr/local/cuda/bin/nvcc", "-I/torch", "-c", "csrc/a.cu", "-o", "a.o"]


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setenv("GRAPHCRATE_HEADERS", "/build/headers")


def test_a_package_that_nobody_prepared_is_compiled_as_its_setup_has_it(monkeypatch):
    monkeypatch.setenv("GRAPHCRATE_HEADERS", "")
    assert inside.ways([GCC], "csrc/a.cpp", "a.o") == [[GCC]]


def test_setups_own_way_is_the_last(prepared, monkeypatch):
    monkeypatch.setattr(inside, "precompiled", lambda *_: "/made/torch.h")
    small = [NVCC[0], "-I/build/headers", *NVCC[1:]]
    assert inside.ways([NVCC], "csrc/a.cu", "a.o") == [[small], [NVCC]]
    small = [GCC[0], "-I/build/headers", *GCC[1:]]
    quick = [*small[:2], "-include", "/made/torch.h", *GCC[1:]]
    assert inside.ways([GCC], "csrc/a.cpp", "a.o") == [[quick], [small], [GCC]]
    monkeypatch.setattr(inside, "precompiled", lambda *_: "")
    assert inside.ways([GCC], "csrc/a.cpp", "a.o") == [[small], [GCC]]


def test_files_with_the_same_options_share_a_header_that_is_compiled_once(prepared, monkeypatch, tmp_path):
    monkeypatch.setattr(inside, "PRECOMPILED", str(tmp_path))
    made = []

    def in_turn(source, target, ways, run, *, counts):
        made.append((source, ways[0][0], counts))
        Path(target).touch()

    monkeypatch.setattr(inside, "in_turn", in_turn)
    first = inside.precompiled(GCC, "csrc/a.cpp", "a.o")
    second = [word.replace("a.cpp", "b.cpp").replace("a.o", "b.o").replace("CUDA", "PYTHON") for word in GCC]
    assert inside.precompiled(second, "csrc/b.cpp", "b.o") == first
    assert Path(first).read_text() == "#include <torch/extension.h>\n"
    options = ["-O2", "-I/torch", "-std=c++17"]
    command = ["g++-11", "-x", "c++-header", first, "-o", f"{first}.gch", *options]
    assert made == [("torch/extension.h", command, False)]
    assert inside.precompiled([*GCC, "-O3"], "csrc/a.cpp", "a.o") != first


def test_a_header_that_cannot_be_compiled_is_tried_once_and_left_out(prepared, monkeypatch, tmp_path):
    monkeypatch.setattr(inside, "PRECOMPILED", str(tmp_path))
    tried = []
    monkeypatch.setattr(inside, "in_turn", lambda *arguments, **_: tried.append(arguments[2][-1]))
    assert [inside.precompiled(GCC, "csrc/a.cpp", "a.o") for _ in range(2)] == ["", ""]
    assert tried == [[]]  # its last way is to do nothing, which works


def test_what_would_be_started_is_asked_of_the_compiler_and_not_started():
    class Compiler:
        def spawn(self, command):
            raise AssertionError

    compiler = Compiler()
    assert inside.commands_of(compiler, lambda: compiler.spawn(GCC)) == [GCC]
    with pytest.raises(AssertionError):
        compiler.spawn(GCC)


def test_files_that_are_known_to_take_long_weigh_most(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(inside.KNOWN_SECONDS, "long.cu", 60.0)
    for name in ("long.cu", "a.cu", "b.cpp", "longer.cpp"):
        Path(name).write_text(name)
    order = sorted(("b.cpp", "longer.cpp", "a.cu", inside.WHOLE, "long.cu"), key=inside.weight)
    assert order == ["b.cpp", "longer.cpp", "a.cu", inside.WHOLE, "long.cu"]
