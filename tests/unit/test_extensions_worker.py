"""The program that compiles in the sandbox: what it lists, in which order and which ways it compiles."""

import json
from pathlib import Path

import pytest

from graphcrate.inputs.extensions import worker
from graphcrate.inputs.extensions.worker import Compiler, Work, header_of

GCC = ["g++-11", "-O2", "-I/torch", "-Icsrc", "-DWITH_CUDA", "-c", "csrc/a.cpp", "-o", "a.o", "-std=c++17"]
SMALL = ["g++-11", "-I/headers"]
NVCC = ["/usr/local/cuda/bin/nvcc", "-I/torch", "-c", "csrc/a.cu", "-o", "a.o"]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Makes the work for a source; its command is told by the source."""
    monkeypatch.setattr(worker, "PRECOMPILED", str(tmp_path / "precompiled"))

    def make(source, seconds=1.0, headers="", package="pkg", command=None):
        log = tmp_path / f"{package}-{Path(source).name}.log"
        log.touch()
        return Work(package, source, f"{source}.o", command or [source], str(tmp_path), str(log), headers, seconds)

    return make


@pytest.fixture
def compiled(capsys):
    """Compiles by a function in place of compilers; returns the commands in their order, the outcomes, the events."""

    def run(works, code=lambda *_: 0, jobs=1):
        commands = []

        def compiler(command, work):
            commands.append(command)
            Path(work.log).touch()
            return code(command, work)

        files = Compiler(jobs, compiler).start(works)
        failed = [file.exception() is not None for package in files.values() for file in package]
        return commands, failed, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_the_longest_file_of_all_packages_is_the_first(work, compiled):
    works = [work(f"{seconds}.cpp", seconds, package=f"p{seconds % 2}") for seconds in (5, 9, 1, 7)]
    commands, failed, events = compiled(works)
    assert (commands, any(failed)) == ([["9.cpp"], ["7.cpp"], ["5.cpp"], ["1.cpp"]], False)
    assert events[0] == {"event": "compiled", "package": "p1", "source": "9.cpp", "weight": 9}


def test_a_compiler_that_the_kernel_ended_runs_again_with_fewer_beside_it(work, compiled):
    tries = []

    def short_of_memory(command, work):
        tries.append(command)
        Path(work.log).write_text("g++: fatal error: Killed signal terminated program cc1plus" * (len(tries) < 3))
        return int(len(tries) < 3)

    _, failed, events = compiled([work("a.cpp")], short_of_memory, jobs=4)
    assert failed == [False]
    assert [(event["event"], event.get("jobs")) for event in events] == [("fewer", 2), ("fewer", 1), ("compiled", None)]
    tries.clear()
    _, failed, events = compiled([work("a.cpp")], lambda *given: short_of_memory(*given) or 1, jobs=2)
    assert (failed, [event["event"] for event in events]) == ([True], ["fewer", "failed"])
    assert events[1]["log"].endswith("a.cpp.log")


@pytest.mark.parametrize(
    ("command", "headers", "ways"),
    [
        (GCC, "", [GCC]),
        (NVCC, "/headers", [[NVCC[0], "-I/headers", *NVCC[1:]], NVCC]),
        (GCC, "/headers", [["g++-11", "-I/headers", "-include", "HEADER", *GCC[1:]], [*SMALL, *GCC[1:]], GCC]),
    ],
)  # fmt: skip
def test_setups_own_way_is_the_last(work, compiled, command, headers, ways):
    one = work(command[command.index("-c") + 1], headers=headers, command=command)
    commands, failed, events = compiled([one], lambda command, _: command[1] != "-x" and command != ways[-1])
    tried = [[word.replace(header_of(one).source, "HEADER") for word in way] for way in commands if way[1] != "-x"]
    assert (tried, failed) == (ways, [False])
    assert [event["event"] for event in events] == ["slower"] * (len(ways) - 1) + ["compiled"]


def test_files_with_the_same_options_share_a_header_that_is_made_once(work, compiled):
    other = [word.replace("csrc/a.cpp", "csrc/b.cpp").replace("CUDA", "PYTHON") for word in GCC]
    commands = GCC, other, [*GCC, "-O3"]
    works = [work(one[6], headers="/headers", command=one)._replace(target="a.o") for one in commands]
    commands, _, _ = compiled(works)
    made = [command for command in commands if command[1] == "-x"]
    assert made == [header_of(works[0]).command, header_of(works[2]).command]
    assert header_of(works[0])[3:4] == header_of(works[1])[3:4]
    header = header_of(works[0]).source
    own = ["-I/headers", "-O2", "-I/torch", "-std=c++17"]
    assert made[0] == ["g++-11", "-x", "c++-header", header, "-o", f"{header}.gch", *own]
    assert Path(header).read_text() == "#include <torch/extension.h>\n"
    commands, failed, _ = compiled(works[:2], lambda command, _: command[1] == "-x")  # one that cannot be made
    assert [command[1] for command in commands] == ["-x", "-I/headers", "-I/headers"]
    assert not any(failed)


class BuildExt:
    """As distutils' command and compiler behave, as far as listing goes. `start`: the method that starts programs."""

    build_temp = "temp"

    def __init__(self, start):
        self.extensions = [type("Extension", (), {"name": name, "sources": ["a.cpp", "a.cu"]}) for name in ("x", "y")]
        self.compiler = type("Compiler", (), {"link_shared_object": lambda *_: pytest.fail("linked")})()
        self.compiler.object_filenames = lambda sources, output_dir: [f"{output_dir}/{name}.o" for name in sources]

        def compile_in_a_row(sources, output_dir=None, macros=()):
            objects = self.compiler.object_filenames(sources, output_dir)
            for source, target in zip(sources, objects, strict=True):
                getattr(self.compiler, start)(["cc", *macros, "-c", source, "-o", target])
            return objects

        type(self.compiler).compile = staticmethod(compile_in_a_row)

    def build_extension(self, extension):
        objects = self.compiler.compile(extension.sources, output_dir=self.build_temp, macros=["-DX", "-march=native"])
        self.compiler.link_shared_object(objects, extension.name)


@pytest.mark.parametrize("start", ["spawn", "call"])
def test_commands_are_listed_and_not_started(start):
    build_ext = BuildExt(start)
    assert worker.list_commands(build_ext) == [
        (name, f"temp/{one}/{name}.o", ["cc", "-DX", "-c", name, "-o", f"temp/{one}/{name}.o"])
        for one in "xy"
        for name in ("a.cpp", "a.cu")
    ]
    assert (hasattr(build_ext.compiler, start), build_ext.build_temp) == (False, "temp")


def test_a_file_weighs_what_is_known_of_it_or_what_is_usual(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    order = {"name": "pkg", "folder": ".", "log": "logs/pkg", "headers": "", "seconds": {"long.cu": 60.0}}
    weights = []
    for name in ("b.cpp", "longer.cpp", "a.cu", "long.cu"):
        Path(name).write_text(name)
        weights.append(worker.work_of(order, name, f"temp/{name}.o", []).seconds)
    assert weights == sorted(weights)
    assert worker.work_of(order, "a.cu", "temp/a.cu.o", []).log == "logs/pkg.temp_a.cu.o.log"
