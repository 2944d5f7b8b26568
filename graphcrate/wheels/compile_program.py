"""The program that compiles sources inside the image. It runs on CPython 3.8 to 3.14 with the standard library alone.

Its folder holds `<n>.sources`, zip archives whose members are named by their path in the image without the first
slash. It writes `<n>.bytecode` beside each: a zip with a `.pyc` for each source that compiles, and `skipped`, a JSON
object of path → reason. Each archive gets a fresh interpreter: this program, called with the archive's number.
"""

# The image's Python may be 3.8, and starts fastest with few imports.
# ruff: noqa: PTH100, PTH118, PTH120, PTH122, PTH208

import importlib.util
import json
import marshal
import os
import sys
import zipfile

FLAGS = ("-S", "-s", "-B", "-W", "ignore")
_UNCHECKED_HASH = 0b01  # PEP 552: validated by hash, and not at import


def main(arguments: "list[str]") -> int:
    """Compile archive `arguments[0]`, or all, each in a child; returns the first exit code that is not 0."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if arguments:
        compile_archive(os.path.join(folder, arguments[0]))
        return 0
    for name in sorted(os.listdir(folder)):
        stem, extension = os.path.splitext(name)
        if extension == ".sources":
            command = [sys.executable, *FLAGS, os.path.abspath(__file__), stem]
            code = os.spawnv(os.P_WAIT, sys.executable, command)
            if code != 0:
                return abs(code)
    return 0


def compile_archive(stem: str) -> None:
    """Compile the members of `<stem>.sources` in their order."""
    skipped = {}
    with zipfile.ZipFile(stem + ".sources") as sources, zipfile.ZipFile(stem + ".bytecode", "w") as compiled:
        for name in sources.namelist():
            path = "/" + name
            try:
                content = compile_source(sources.read(name), path)
            # As compileall does: whatever a source makes the compiler raise concerns that source alone.
            except Exception as error:
                skipped[path] = f"{type(error).__name__}: {error}"
                continue
            target = importlib.util.cache_from_source(path, optimization="")
            compiled.writestr(zipfile.ZipInfo(target[1:]), content)
        compiled.writestr(zipfile.ZipInfo("skipped"), json.dumps(skipped))


def compile_source(source: bytes, path: str) -> bytes:
    """The bytes of the `.pyc` of this source; `path` is what tracebacks show."""
    code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little")
    return head + importlib.util.source_hash(source) + marshal.dumps(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
