"""Starts a compiler or linker for a build that chooses its options itself: a program for the sandbox.

Left out is what would make a library useless elsewhere: code for the very processor that compiles, machine code for
GPUs not asked for, a link to libpython, which an interpreter has inside (PEP 513) and images lack. And nvcc is
given the same process number every time, which it writes into the names of symbols.

What took long to compile is kept in a folder that the next build of the same inputs gets, should this one not end.

Its arguments are the command; TORCH_CUDA_ARCH_LIST says what was asked for. Under another name it is that compiler:
`back_end_program` puts such links before the compilers on PATH. Python 3.9, standard library.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

NATIVE = re.compile(r"(-Xcompiler[= ]?)?-m(arch|tune|cpu)=native|(-C|--codegen=)?target-cpu=native")
CODEGEN = ("-C", "--codegen")  #: of rustc, before a word that says what
LIBPYTHON = re.compile(r"(.*/)?libpython3[\d.]*\.(so[\d.]*|a)|-lpython3[\d.]*")
LIBRARY = re.compile(r".*/|(?<=\.so)[.\d]+$")  #: what a path to a library has besides the name that `-l` stands for
GENCODE = re.compile(r"(?:--generate-code|-gencode)(?:=(.*))?")
CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
COMPRESS = "--compress-mode"
COMPRESS_SINCE = (12, 8)  #: an older nvcc ends at this option, which only makes a library smaller

#: a library whose getpid always returns the same, beside this program where there is a toolkit
SAME_NUMBER = "same_number.so"

LIBRARIES = "libraries"  #: a folder beside this program
#: beside this program: names that it goes by → programs, as JSON; and what was left out, a line for each command
PROGRAMS, LEFT_OUT = "programs.json", "left_out"

#: a folder beside this program, with what a build of the same inputs finished before it was interrupted
FINISHED = "finished"
LONG = 10.0  #: seconds of a compile that is worth keeping; none of a configure takes that, where names are used again
SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu")
INSIDE = "GRAPHCRATE_COMPILE"  #: seen by what a compiler starts in turn: nvcc's g++ makes the object that nvcc does
DEPENDENCIES = ("-MF", "--dependency-output")  #: before the file that says which headers were read
#: variables by which the same command gives other objects
READ = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "SOURCE_DATE_EPOCH")

Command = list[str]


def command_for(command: Command, asked: str, cuda: tuple[int, ...]) -> Command:
    """The command as it is run. `asked`: "7.0;8.0+PTX", empty for no GPU; `cuda`: version of the toolkit."""
    native = [number for number, word in enumerate(command) if NATIVE.fullmatch(word)]
    native += [number - 1 for number in native if command[number].startswith("t") and command[number - 1] in CODEGEN]
    kept = [word for number, word in enumerate(command) if number not in native]
    if "-shared" in kept:
        kept = [word for word in kept if not LIBPYTHON.fullmatch(word)]
    if cuda < COMPRESS_SINCE:
        kept = [word for word in kept if not word.startswith(COMPRESS)]
    return for_gpus(kept, asked) if asked else kept


def with_folders(command: Command, libraries: Path) -> Command:
    """The same, with the image's folders of CUDA's libraries, where it links a library to one of them.

    `libraries`: links to those of the image's packages. As DT_RPATH, which counts for what these need in turn: no
    loader looks there by itself, and torch does not load all of them before a package is imported.
    """
    links = {path.name: path.readlink().parent for path in libraries.glob("*.so") if path.is_symlink()}
    names = {f"lib{word[2:]}.so" if word.startswith("-l") else LIBRARY.sub("", word) for word in command}
    if not {"-shared", "--shared"} & {*command} or names.isdisjoint(links):
        return command
    folders = sorted({str(folder) for folder in links.values()})
    words = [word for folder in folders for word in ("-Xlinker", f"-rpath={folder}")]
    return [*command, "-Xlinker", "--disable-new-dtags", *words]


def for_gpus(command: Command, asked: str) -> Command:
    """The same with machine code for these GPUs alone, each once; as it is where it makes none for any of them."""
    rest: list[str] = []
    codes: list[str] = []
    words = iter(command)
    for word in words:
        match = GENCODE.fullmatch(word)
        if match is None:
            rest.append(word)
        else:
            value = match[1] if match[1] is not None else next(words, "")
            codes += [code[0] for code in CODE.finditer(value.partition("code=")[2])]
    kept = [code for code in dict.fromkeys(codes) if code.rstrip("af") in _named(codes, asked)]
    if not kept:
        return command
    return [*rest, *(f"--generate-code=arch=compute_{code.partition('_')[2]},code={code}" for code in kept)]


def _named(codes: "list[str]", asked: str) -> "set[str]":
    """The machine codes of these that serve the GPUs: a GPU's own, else that of the newest before it in its family."""
    there = {(int(code[2]), int(code[3])) for code in map(CODE.fullmatch, codes) if code and code[1] == "sm"}
    named = set()
    for entry in asked.split(";"):
        major, minor = map(int, entry.partition("+")[0].split("."))
        older = [code for code in there if code[0] == major and code[1] <= minor]
        named.add("sm_{}{}".format(*max(older, default=(major, minor))))
        if entry.endswith("+PTX"):
            named.add(f"compute_{major}{minor}")
    return named


def toolkit() -> tuple[int, ...]:
    """The version of the CUDA toolkit, (11, 8, 89); nothing newer than any where there is none."""
    path = Path(os.environ.get("CUDA_HOME", "/nonexistent"), "version.json")
    if not path.is_file():
        return (0,)
    return tuple(map(int, re.findall(r"\d+", json.loads(path.read_text())["cuda"]["version"])))


def environment_for(command: Command, environ: Mapping[str, str], library: Path) -> "dict[str, str]":
    """The variables that the command sees: for nvcc, which names temporary files and with them symbols of templates in
    unnamed namespaces by its process number, a constant one, and a folder for temporary files of its own, so that two
    that run at once do not meet there.
    """
    if Path(command[0]).name != "nvcc" or not library.is_file():
        return dict(environ)
    own = hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]
    preloaded = " ".join(filter(None, (str(library), environ.get("LD_PRELOAD", ""))))
    return {**environ, "LD_PRELOAD": preloaded, "TMPDIR": str(Path(environ.get("TMPDIR", "/tmp"), f"nvcc-{own}"))}


def kept_at(command: Command, seen: Mapping[str, str], folder: Path) -> "Path | None":
    """The path at which a command's object is kept, by all that it depends on beside what the whole folder is for;
    None for what does not compile one file to one object.
    """
    sources = [Path(word) for word in command if word.endswith(SOURCES) and not word.startswith("-")]
    if not {"-c", "-o"} <= {*command} or len(sources) != 1 or INSIDE in seen:
        return None
    if not sources[0].is_file() or not folder.is_dir():
        return None
    asked = json.dumps([command, str(Path.cwd()), [seen.get(name, "") for name in READ]])
    return folder / hashlib.sha256(asked.encode() + sources[0].read_bytes()).hexdigest()


def compile_once(command: Command, seen: Mapping[str, str], kept: Path) -> int:
    """Compile, or take what was kept of the same compile; the exit code."""
    numbers = [number for number, word in enumerate(command[:-1]) if word in ("-o", *DEPENDENCIES)]
    files = {command[number]: Path(command[number + 1]) for number in numbers}
    if kept.is_dir():
        for word, path in files.items():
            if (kept / word).is_file():
                shutil.copyfile(kept / word, path)
        return 0
    begin = time.monotonic()
    code = subprocess.call(command, env={**seen, INSIDE: "1"})
    if code == 0 and time.monotonic() - begin >= LONG:
        part = Path(tempfile.mkdtemp(dir=kept.parent))
        for word, path in files.items():
            if path.is_file():
                shutil.copyfile(path, part / word)
        try:
            part.rename(kept)  # whole, or not there
        except OSError:  # another compile of the same was faster
            shutil.rmtree(part)
    return code


def main(argv: "list[str]", beside: Path) -> None:
    """Become the compiler. `beside`: the folder of this program."""
    name = Path(argv[0]).name
    programs = json.loads((beside / PROGRAMS).read_text()) if (beside / PROGRAMS).is_file() else {}
    command = [programs[name], *argv[1:]] if name in programs else argv[1:]
    chosen = command_for(command, os.environ.get("TORCH_CUDA_ARCH_LIST", ""), toolkit())
    if programs:  # it is not the fixed compile of a package that is known
        chosen = with_folders(chosen, beside / LIBRARIES)
    if name == "cargo" and "CARGO_HOME" in os.environ:
        # Before that of the source: a project that names a mirror of crates.io has nothing fetched from there.
        chosen[1:1] = ["--config", str(Path(os.environ["CARGO_HOME"], "config.toml"))]
    if lacking := [word for word in command if NATIVE.fullmatch(word)]:
        with (beside / LEFT_OUT).open("a") as stream:
            stream.write(" ".join(lacking) + "\n")
    seen = environment_for(chosen, os.environ, beside / SAME_NUMBER)
    Path(seen.get("TMPDIR", "/tmp")).mkdir(parents=True, exist_ok=True)
    if programs and (kept := kept_at(chosen, seen, beside / FINISHED)):
        sys.exit(compile_once(chosen, seen, kept))
    os.execvpe(chosen[0], chosen, seen)


if __name__ == "__main__":
    main(sys.argv, Path(__file__).resolve().parent)
