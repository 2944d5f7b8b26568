"""NCCL's access to the network between nodes in an image: libibverbs, its symbols, providers of cards.

No table of a file says so: NCCL opens libibverbs.so.1 and looks its symbols up by name, and libibverbs opens the
provider that each file of libibverbs.d names, of its own private ABI. Sources: NCCL, misc/ibvsymbols.cc; rdma-core,
libibverbs/dynamic_driver.c.
"""

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping

from graphcrate.artifacts.tree.binaries import VERBS_DRIVER
from graphcrate.checks.audit.linking import Linking
from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, Packages
from graphcrate.compat.facts import verbs as facts
from graphcrate.model.audit import AuditFinding, Contents
from graphcrate.model.contract import Verbs
from graphcrate.model.words import joined, listed
from treeaudit.values import NeededSymbol

_ABI = re.compile(r"IBVERBS_PRIVATE_(\d+)")
_DRIVER = re.compile(r"^\s*driver[ \t]+(\S{1,200})[ \t]*$", re.MULTILINE)
_PROVIDER = re.compile(r"lib(.+)-rdmav\d+\.so")
_MOST = 100  #: names of providers that are read; rdma-core has fewer than twenty
_UNKNOWN = "what it looks up besides"
_TCP = "ranks on several nodes talk TCP"


def look(contents: Contents) -> Verbs:
    """Look at what NCCL asks for, and who answers. Nothing is loaded, and no hardware is needed."""
    packages = Packages(contents)
    loader = Loader(contents, packages)
    return seen_by(contents, loader, Linking(contents, packages, loader))


def seen_by(contents: Contents, loader: Loader, linking: Linking) -> Verbs:
    """As `look`, with what an audit has made already."""
    return _Network(contents, loader, linking).seen()


def findings(contents: Contents, packages: Packages, seen: Verbs) -> Iterator[AuditFinding]:
    """Yield what keeps NCCL from the network, or from a part of its features there. Bare wheels have no network."""
    if not (seen.nccl and contents.base):
        return
    if not seen.library:
        what = f"opens {facts.needed().library} by name, which nothing in the image has"
        yield packages.finding("libraries", "note", seen.nccl[0], what, _TCP, facts.INSTALL)
        return
    if seen.absent:
        what = f"does not define {listed(seen.absent)}, which NCCL looks up"
        yield packages.finding("symbols", "warn", seen.library, what, _TCP, "a newer rdma-core")
    for name, fault in seen.providers.items():
        if fault:
            what = f"the provider {name} of libibverbs cannot be loaded: {fault}"
            yield AuditFinding("libraries", "note", BASE.name, "", what, f"its cards are not used: {_TCP}")
    for feature, symbols in seen.lost.items():
        what = f"looks up {joined(symbols)}, which the image's rdma-core does not define"
        yield packages.finding("symbols", "note", seen.nccl[0], what, f"NCCL does without: {feature}")


class _Network:
    def __init__(self, contents: Contents, loader: Loader, linking: Linking) -> None:
        self._contents, self._loader, self._linking = contents, loader, linking
        self._nccl = sorted(path for path, binary in contents.binaries.items() if binary.verbs)
        files = map(posixpath.basename, (*contents.binaries, *contents.links))
        self._files = {file: match[1] for file in files if (match := _PROVIDER.fullmatch(file))}
        self._asked = {name for path in self._nccl for name in contents.binaries[path].verbs}

    def seen(self) -> Verbs:
        needed = facts.needed()
        symbols = sorted(self._asked.intersection(needed.symbols))
        library = self._library(needed.library)
        if not library:
            return Verbs(nccl=tuple(self._nccl), needed=len(symbols))
        return Verbs(
            nccl=tuple(self._nccl),
            needed=len(symbols),
            library=library,
            fault=self._linking.why_not(library),
            absent=self._absent(library, symbols, needed.version),
            lost=self._lost(),
            providers=self._providers(library),
        )

    def _library(self, name: str) -> str:
        """The path of the library that NCCL gets by this name; of an image without NCCL, that anybody gets."""
        folders = (*self._contents.preferred, *self._contents.folders)
        its_own = (self._loader.find(name, path) for path in self._nccl)
        anybodys = (self._loader.at(f"{folder}/{name}") for folder in folders)
        return next(filter(None, (*its_own, *anybodys)), "")

    def _absent(self, library: str, symbols: list[str], version: str) -> tuple[str, ...]:
        """Those of these symbols that a library does not define in this version; of no library all."""
        binary = self._contents.binaries.get(library)
        if binary and binary.opaque:  # which may define them all
            return ()
        absent = (name for name in symbols if not (binary and binary.has(NeededSymbol(name, version))))
        return tuple(f"{name}@{version}" if version else name for name in absent)

    def _lost(self) -> Mapping[str, tuple[str, ...]]:
        """Features that NCCL does without, and what it would need for them."""
        lost: dict[str, tuple[str, ...]] = {}
        rest = self._asked.difference(facts.needed().symbols)
        groups = [(row.library, row.version, row.symbols, row.lost) for row in facts.optional()]
        known = {name for row in facts.optional() for name in row.symbols}
        groups.append((facts.needed().library, "", tuple(rest - known), _UNKNOWN))
        for library, version, names, feature in groups:
            asked = sorted(rest.intersection(names))
            if asked and (absent := self._absent(self._library(library), asked, version)):
                lost[feature] = (*lost.get(feature, ()), *absent)
        return lost

    def _providers(self, library: str) -> dict[str, str]:
        """Provider → why it cannot be loaded, of those that libibverbs' configuration names."""
        texts = (self._contents.texts[path] for path in sorted(filter(VERBS_DRIVER.fullmatch, self._contents.texts)))
        named = (match[1] for text in texts for match in _DRIVER.finditer(text.decode("utf-8", "replace")))
        names = dict.fromkeys(itertools.islice(named, _MOST))
        versions = self._contents.binaries[library].versions
        abi = next((match[1] for version in sorted(versions) if (match := _ABI.fullmatch(version))), "")
        return {posixpath.basename(name): self._fault(name, abi, library) for name in names}

    def _fault(self, name: str, abi: str, library: str) -> str:
        """Explain why a provider cannot be loaded. `name`: as the configuration has it, maybe with its path."""
        if not abi:  # from before 2017, when all had one
            return "" if self._others(name) else "there is no library of it"
        file = f"{name}-rdmav{abi}.so" if name.startswith("/") else f"lib{name}-rdmav{abi}.so"
        folders = (f"{posixpath.dirname(library)}/libibverbs", *self._contents.preferred, *self._contents.folders)
        paths = [file] if name.startswith("/") else [f"{folder}/{file}" for folder in folders]
        if path := next(filter(None, map(self._loader.at, paths)), ""):
            return self._linking.why_not(path)
        others = self._others(name)
        if posixpath.basename(file) in others:
            return f"{posixpath.basename(file)} is damaged, for another machine, or a link that leads nowhere"
        return f"there is no {file}" + (f", but {listed(others)}, of another rdma-core" if others else "")

    def _others(self, name: str) -> list[str]:
        """Files of a provider, of whichever ABI."""
        stem = posixpath.basename(name).removeprefix("lib")
        return sorted(file for file, provider in self._files.items() if provider == stem)
