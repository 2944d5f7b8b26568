"""A folder with programs and libraries: what is in it, and what of it cannot load or run."""

import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from treeaudit.gpus import compiles_for, has_code, ordered
from treeaudit.judge import MAGIC, judge
from treeaudit.loader import MANYLINUX, Loader, is_driver, loadable, system_folders
from treeaudit.values import Binary, GpuCode

_TRIPLETS = {"EM_X86_64": "x86_64-linux-gnu", "EM_AARCH64": "aarch64-linux-gnu"}
_CONFIGURATION = re.compile(r"/etc/ld\.so\.conf(\.d/[^/]+\.conf)?")
_LARGEST_TEXT = 1 << 20
_SHOWN = 5  #: names of a list
_C_LIBRARY = "libc.so.6"

Check = Literal["file", "machine", "libraries", "versions", "symbols", "gpu"]


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Programs and libraries of a folder, by their paths in it as if it were the root."""

    binaries: Mapping[str, Binary]
    links: Mapping[str, str]  #: symbolic links: path → target
    folders: tuple[str, ...]  #: of etc/ld.so.conf.d, where the loader looks first

    @property
    def machine(self) -> str:
        """The machine that most of it is for, such as EM_X86_64; empty where there is nothing."""
        seen = Counter(binary.machine for binary in self.binaries.values() if binary.machine)
        return max(seen, key=lambda machine: (seen[machine], machine), default="")


class Problem(msgspec.Struct, frozen=True, order=True):
    """One thing that does not load or does not run."""

    path: str
    check: Check
    what: str


def read(root: Path) -> Tree:
    """Read all programs and libraries of a folder; nothing in it is followed out of it or started. Raises OSError."""
    links: dict[str, str] = {}
    paths: list[str] = []
    for at, folders, names in os.walk(root, onerror=_raised):
        inside = at.removeprefix(str(root).rstrip("/")).rstrip("/")
        for name in (*folders, *names):
            status = os.lstat(f"{at}/{name}")
            if stat.S_ISLNK(status.st_mode):
                links[f"{inside}/{name}"] = os.readlink(f"{at}/{name}")  # noqa: PTH115 (bytes that are no UTF-8 stay)
            elif stat.S_ISREG(status.st_mode) and status.st_size > len(MAGIC):
                paths.append(f"{inside}/{name}")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        judged = pool.map(lambda path: _binary(Path(f"{root}{path}"), path), paths)
    binaries = {path: binary for path, binary in zip(paths, judged, strict=True) if binary is not None}
    return Tree(binaries=binaries, links=links, folders=tuple(_configured(root, paths)))


def problems(
    tree: Tree,
    *,
    gpus: Sequence[str] = (),
    machine: str = "",
    preferred: Sequence[str] = (),
    assumed: Sequence[str] = (),
) -> list[Problem]:
    """Judge a tree for a machine (empty: that of most of it) and GPUs by their capability, such as 8.0.

    `preferred`: folders of LD_LIBRARY_PATH; `assumed`: names of libraries that the system will have. NVIDIA's driver is
    the host's. In a tree without a C library, those of manylinux count as there. A symbol is missing where nothing in
    the tree has it: a program may load by itself what it does not name.
    """
    return sorted(_Judge(tree, machine or tree.machine, preferred, assumed).problems(gpus))


def code(tree: Tree) -> GpuCode:
    """Return all GPU code of a tree."""
    every = [binary.code for binary in tree.binaries.values()]
    return GpuCode(
        sass=ordered({name for each in every for name in (*each.sass, *each.some)}),
        ptx=ordered({name for each in every for name in each.ptx}),
    )


class _Judge:
    def __init__(self, tree: Tree, machine: str, preferred: Sequence[str], assumed: Sequence[str]) -> None:
        self._tree, self._machine, self._assumed = tree, machine, frozenset(assumed)
        folders = (*tree.folders, *system_folders(_TRIPLETS.get(machine, "")))
        self._loader = Loader(tree.binaries, tree.links, machine, folders, preferred)
        self._loadable = {path: binary for path, binary in tree.binaries.items() if loadable(binary, machine)}
        names = {posixpath.basename(path) for path in (*self._loadable, *tree.links)}
        self._has_system = _C_LIBRARY in names
        self._exports = {symbol for binary in self._loadable.values() for symbol in binary.exports}

    def problems(self, gpus: Sequence[str]) -> Iterator[Problem]:
        for path, binary in self._tree.binaries.items():
            if binary.fault:
                yield Problem(path, "machine" if binary.foreign else "file", binary.fault)
            elif path not in self._loadable:
                yield Problem(path, "machine", f"is for {binary.machine}, the tree for {self._machine}")
            else:
                yield from self._linking(path, binary)
                yield from self._gpus(path, binary, gpus)

    def _linking(self, path: str, binary: Binary) -> Iterator[Problem]:
        lacking = [name for name in binary.needed if not self._is_there(name, path)]
        if lacking:
            yield Problem(path, "libraries", f"needs {_listed(lacking)}, which is not found")
        versions = []
        for needed in binary.versions_wanted:
            provider = self._loader.find(needed.library, path)
            if provider and needed.version not in self._tree.binaries[provider].versions:
                versions.append(f"{needed.version} of {provider}")
        if versions:
            yield Problem(path, "versions", f"needs {_listed(versions)}, which is older or another one")
        if not lacking and self._has_system and not any(map(is_driver, binary.needed)):
            symbols = [symbol.name for symbol in binary.wanted if symbol.name not in self._exports]
            if symbols:
                yield Problem(path, "symbols", f"refers to {_listed(symbols)}, which nothing in the tree defines")

    def _is_there(self, name: str, path: str) -> bool:
        if is_driver(name) or posixpath.basename(name) in self._assumed or self._loader.find(name, path):
            return True
        is_of_loader = posixpath.basename(name).startswith(("ld-linux", "ld64"))
        return not self._has_system and (is_of_loader or MANYLINUX.fullmatch(name) is not None)

    def _gpus(self, path: str, binary: Binary, gpus: Sequence[str]) -> Iterator[Problem]:
        if binary.code_fault:
            yield Problem(path, "gpu", binary.code_fault)
        sass, ptx = (*binary.code.sass, *binary.code.some), binary.code.ptx
        for gpu in gpus if sass or ptx else ():
            if not has_code(sass, gpu) and not any(compiles_for(each, gpu) for each in ptx):
                has = [*sass, *(f"PTX {each}" for each in ptx)]
                yield Problem(path, "gpu", f"has no code for GPUs of {gpu}; it has {_listed(has)}")


def _binary(path: Path, name: str) -> Binary | None:
    with path.open("rb") as file:
        return judge(file, name)[0] if file.read(len(MAGIC)) == MAGIC else None


def _configured(root: Path, paths: Sequence[str]) -> Iterator[str]:
    """Folders of the loader's configuration, in the order of its files' names."""
    for path in sorted(filter(_CONFIGURATION.fullmatch, paths)):
        with Path(f"{root}{path}").open("rb") as file:
            text = file.read(_LARGEST_TEXT).decode("utf-8", "replace")
        for line in text.splitlines():
            folder = line.partition("#")[0].strip()
            if folder.startswith("/"):
                yield folder


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _raised(error: OSError) -> None:
    raise error
