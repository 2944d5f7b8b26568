"""The program that compiles sources inside the image. It runs on CPython 3.8 to 3.14 with the standard library alone.

For each bundle `<n>.sources` of its folder it writes `<n>.bytecode`, in a fresh interpreter: an entry `….pyc` for each
source that compiles, else the source's path with the reason. A bundle is a sequence of entries (name, content), since
importing `zipfile` takes longer than compiling most wheels.
"""

# The image's Python may be 3.8, and starts fastest with few imports.
# ruff: noqa: PTH100, PTH118, PTH120, PTH122, PTH123, PTH208

import gc
import importlib.util
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from collections.abc import Iterator
    from typing import BinaryIO

FLAGS = ("-S", "-s", "-B", "-W", "ignore")
_UNCHECKED_HASH = 0b01  # PEP 552: validated by hash, and not at import


def main(arguments: "list[str]") -> int:
    """Compile bundle `arguments[0]`, or all, each in a child; returns the first exit code that is not 0."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if arguments:
        gc.disable()  # compiling makes no cycles
        compile_bundle(os.path.join(folder, arguments[0]))
        return 0
    for name in sorted(os.listdir(folder)):
        stem, extension = os.path.splitext(name)
        if extension == ".sources":
            command = [sys.executable, *FLAGS, os.path.abspath(__file__), stem]
            code = os.spawnv(os.P_WAIT, sys.executable, command)
            if code != 0:
                return abs(code)
    return 0


def compile_bundle(stem: str) -> None:
    """Compile the entries of `<stem>.sources` in their order."""
    with open(stem + ".sources", "rb") as sources, open(stem + ".bytecode", "wb") as compiled:
        for path, offset, size in entries(sources):
            sources.seek(offset)
            try:
                content = compile_source(sources.read(size), path)
            # As compileall does: an error of the compiler concerns its source alone.
            except Exception as error:
                write_entry(compiled, path, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
            else:
                write_entry(compiled, importlib.util.cache_from_source(path, optimization=""), content)


def compile_source(source: bytes, path: str) -> bytes:
    """The bytes of the `.pyc` of this source; `path` is what tracebacks show."""
    code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little")
    return head + importlib.util.source_hash(source) + marshal.dumps(code)


def write_entry(stream: "BinaryIO", name: str, content: bytes) -> None:
    """Append an entry to a bundle: length of the name, size of the content, both."""
    raw = name.encode()
    stream.write(len(raw).to_bytes(4, "little") + len(content).to_bytes(8, "little") + raw)
    stream.write(content)


def entries(stream: "BinaryIO") -> "Iterator[tuple[str, int, int]]":
    """Name, offset and size of each entry; the stream may be moved meanwhile. ValueError for a bundle cut short."""
    stream.seek(0, os.SEEK_END)
    end, position = stream.tell(), 0
    while position < end:
        stream.seek(position)
        head = stream.read(12)
        length, size = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
        name = stream.read(length)
        offset = position + 12 + length
        position = offset + size
        if position > end:
            raise ValueError("the bundle is cut short")
        yield name.decode(), offset, size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
