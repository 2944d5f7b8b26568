"""Linking: whether the loader takes each program and library, by libraries, versions, symbols, the form of strings."""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from posixpath import basename

import itanium_demangler
import msgspec

from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, TORCH, InstalledPackage, Packages, is_torch_library, short
from graphcrate.compat.facts import allowances
from graphcrate.compat.facts import packages as package_facts
from graphcrate.compat.facts.facts import ordered
from graphcrate.model.allowance import Allowance, Check
from graphcrate.model.audit import AuditFinding, Contents, Severity
from graphcrate.model.words import joined, listed
from treeaudit.loader import is_driver, loadable
from treeaudit.values import Binary, NeededSymbol

_MODULE = re.compile(r"\.(cpython-(\d)(\d+)[a-z]*-[^/]*|abi3)\.so$")
_LIBRARY = re.compile(r"lib[^/]*\.so[.\d]*$")
_RUNTIME = re.compile(r"lib(gfortran|quadmath|gomp|stdc\+\+|gcc_s|atomic)\b")  #: GCC's, as repaired wheels bring them
_C10 = re.compile(r"/torch/lib/libc10\.so$")
_CANNOT = "its loading ends with `cannot open shared object file`"
_NEWER = "a newer base, or a wheel built on an older system"
_LONGEST = 2000  #: characters of a symbol; longer ones are not read
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")  #: in a mangled name, to an earlier part of it
_MOST_REFERENCES = 40
_DRIVER_SYMBOL = re.compile(r"(cu[A-Z]|nvml|cuvid|Nv[A-Z])")


class Linking:
    """Findings on how things are linked. `broken`: files that cannot be loaded, after the findings were run through."""

    def __init__(self, contents: Contents, packages: Packages, loader: Loader, allow: Sequence[Allowance] = ()) -> None:
        """`allow`: findings that are accepted, and so what follows from them."""
        self._contents, self._packages, self._loader, self._allow = contents, packages, loader, allow
        self._allowed: dict[str, str] = {}  #: files of which all that fails is allowed, and why
        self._paths = sorted(contents.binaries)
        self._torch_strings = functools.cache(self._strings_of)
        self.broken: set[str] = set()

    def findings(self) -> Iterator[AuditFinding]:
        """Of every file, of packages that need one of several or open them by name, and of all programs together."""
        yield from self._files()
        yield from self._alternatives()
        yield from self._opened()
        yield from self._programs()

    def why_not(self, path: str) -> str:
        """Explain why the loader refuses a library that is opened by name, or one that it needs; empty: it does not."""
        for library in self._loader.closure(path)[0]:
            findings = list(self._file(library, self._contents.binaries[library]))
            if library in self.broken:
                return f"{basename(library)} {findings[0].what}"
        return ""

    def _files(self) -> Iterator[AuditFinding]:
        """Yield those of files that are broken themselves, then those of files that need a broken one."""
        for path in self._paths:
            findings = list(self._file(path, self._contents.binaries[path]))
            reasons = [allowances.why(finding, self._allow) for finding in findings if finding.severity == "fail"]
            if reasons and all(reasons):
                self._allowed[path] = reasons[0]
            yield from findings
        causes = frozenset(self.broken)
        for path in self._paths:
            if path not in causes and self._packages.owner(path) != BASE and not self._is_foreign(path):
                yield from self._dependent(path, causes)

    def _alternatives(self) -> Iterator[AuditFinding]:
        """Packages that need one of several libraries, and have none that can be loaded."""
        for alternative in package_facts.optional():
            groups: dict[tuple[InstalledPackage, str], list[str]] = {}
            for path in self._contents.binaries if alternative.one_of or alternative.by_torch else ():
                package = self._packages.owner(path)
                if package_facts.matches(alternative, package.name, short(path)):
                    folder = path.rpartition("/")[0] if alternative.by_torch else ""
                    groups.setdefault((package, folder), []).append(path)
            for (package, _), paths in groups.items():
                torch = self._torch(package)
                fitting = [path for path in paths if not alternative.by_torch or package_facts.is_for(path, torch)]
                # Without the torch that they are for nothing tells which would be used.
                is_known = torch or not (alternative.by_torch or any(map(self._packages.refers_to_torch, paths)))
                if is_known and self.broken.issuperset(fitting):
                    used = f"used with torch {torch}" if alternative.by_torch else "used"
                    what = f"none of {joined(map(short, paths))} can be {used}"
                    severity: Severity = "warn" if alternative.by_torch else "fail"
                    fix = self._other_build(paths[0])
                    missing = tuple(filter(None, (_of_system(self._missing(path)) for path in fitting)))
                    yield AuditFinding(
                        "libraries", severity, package.name, "", what, alternative.why, fix, missing=missing
                    )

    def _opened(self) -> Iterator[AuditFinding]:
        """Packages that open libraries of the system when they are imported, which nothing links."""
        installed = {distribution.name for distribution in self._contents.distributions}
        for opener in package_facts.opened():
            absent = [name for name in opener.libraries if not self._loader.is_there(name)]
            if opener.package in installed and absent:
                what = f"opens {joined(absent)} when it is imported, which nothing in the image has"
                missing = (tuple(absent),)
                yield AuditFinding("libraries", "fail", opener.package, "", what, "its import fails", missing=missing)

    def _programs(self) -> Iterator[AuditFinding]:
        """An image has programs for other machines here and there; one of which no program starts is for another."""
        machines = [
            binary.machine
            for path, binary in self._contents.binaries.items()
            if binary.interpreter and self._packages.owner(path) == BASE
        ]
        platform = self._contents.platform
        if self._contents.base and machines and platform.elf not in machines:
            made, number = machines[0].removeprefix("EM_"), len(machines)
            what = f"is made for {made}: of its {number} programs none is for {platform.title}"
            breaks = "nothing in it can be started: `exec format error`"
            yield AuditFinding("files", "fail", BASE.name, "", what, breaks, f"the image for {platform.name}")

    def _torch(self, package: InstalledPackage) -> str:
        return self._packages.version(self._packages.torch(package))

    def _idle(self, path: str) -> str | None:
        """Name the loss where a library that may be absent cannot be loaded; None for others."""
        if _RUNTIME.match(basename(path)) and not any(self._loaders(path)):
            return "nothing: a compiler's runtime library that was left over, which no other library needs"
        package = self._packages.owner(path)
        return package_facts.reason(package.name, short(path), self._torch(package))

    def _dependent(self, path: str, causes: frozenset[str]) -> Iterator[AuditFinding]:
        """A file that cannot be loaded because another cannot; no worse than that one."""
        broken = [library for library in self._loader.closure(path)[0] if library in causes]
        if not broken:
            return
        self.broken.add(path)
        why = [self._idle(library) for library in broken]
        allowed = [self._allowed.get(library, "") for library in broken if self._idle(library) is None]
        what = f"needs {joined(map(short, broken))}, which cannot be loaded"
        if allowed and all(allowed):
            finding = self._packages.finding("libraries", "warn", path, what, "its loading fails as that one's does")
            yield msgspec.structs.replace(finding, allowed=allowed[0])
        elif all(why):
            yield self._packages.finding("libraries", "note", path, what, str(why[0]))
        else:
            fix = f"what is said of {short(broken[0])}"
            yield self._fault("libraries", path, what, "its loading fails as that one's does", fix)

    def _file(self, path: str, binary: Binary) -> Iterator[AuditFinding]:
        # 32-bit files that are no modules are in good packages: debugpy attaches to such processes with one.
        is_module = self._is_python_module(path) and (not binary.foreign or _MODULE.search(path))
        if binary.fault and is_module:
            yield self._fault("files", path, binary.fault, "Python does not load it", "install its package again")
            return
        if what := binary.fault or binary.opaque:
            yield self._packages.finding("files", "warn", path, what, "what it needs is not known")
            return
        if self._is_foreign(path):
            yield from self._foreign(path, binary)
            return
        if binary.interpreter and self._contents.base and not self._loader.at(binary.interpreter):
            what = f"names the loader {binary.interpreter}, which is not in the image"
            yield self._fault("libraries", path, what, "it cannot be started: `No such file or directory`")
        missing = self._missing(path)
        yield from self._libraries(path, binary, missing)
        yield from self._versions(path, binary)
        if self._packages.owner(path) != BASE:
            if not missing:
                yield from self._symbols(path, binary)
            yield from self._strings(path, binary)

    def _is_foreign(self, path: str) -> bool:
        """Made for another machine, or another Python."""
        binary = self._contents.binaries[path]
        match = _MODULE.search(path)
        pythons = self._packages.pythons(path) if match and match[2] else ()
        other = match and pythons and f"{match[2]}.{match[3]}" not in pythons
        return not loadable(binary, self._contents.platform.elf) or bool(other)

    def _foreign(self, path: str, binary: Binary) -> Iterator[AuditFinding]:
        """A module for another Python is idle where one for ours is beside it, and is missed where none is."""
        if not self._is_python_module(path):
            return
        platform = self._contents.platform
        if binary.machine != platform.elf:
            self.broken.add(path)
            what, fix = f"is made for {binary.machine.removeprefix('EM_')}, not for {platform.title}", platform.title
            yield self._packages.finding("files", "fail", path, what, "Python does not load it", f"a wheel for {fix}")
            return
        stem, match = _MODULE.sub("", path), _MODULE.search(path)
        twins = [other for other in self._contents.binaries if _MODULE.sub("", other) == stem]
        if match and all(map(self._is_foreign, twins)):
            self.broken.add(path)
            what = f"is for Python {match[2]}.{match[3]}; the image has {listed(self._packages.pythons(path))}"
            others = self._packages.binaries(self._packages.owner(path))
            # where Python can import any of the package's, the wheel is for this Python
            is_ours = any(self._is_python_module(path) and not self._is_foreign(path) for path in others)
            severity: Severity = "warn" if is_ours else "fail"
            yield self._packages.finding("files", severity, path, what, "its import fails", "a wheel for this Python")

    def _is_python_module(self, path: str) -> bool:
        if self._packages.owner(path) == BASE:
            return False
        return _MODULE.search(path) is not None or (path.endswith(".so") and not _LIBRARY.match(basename(path)))

    def _missing(self, path: str) -> set[str]:
        """Libraries that it, or what it needs, does not get; who loads it may have a run path that holds for it too."""
        missing = {name for name in self._loader.closure(path)[1] if not self._loader.is_assumed(name)}
        for other in self._loaders(path) if missing else ():
            missing &= self._loader.closure(other)[1]
        return missing

    def _libraries(self, path: str, binary: Binary, missing: Collection[str]) -> Iterator[AuditFinding]:
        own = sorted(name for name in missing if name in binary.needed)
        torch = self._packages.torch(self._packages.owner(path))
        if any(map(is_torch_library, own)) and not self._packages.binaries(torch):
            fix = "install torch" if self._contents.base else "name torch's wheel too"
            yield self._fault("libraries", path, f"needs torch, which is not there: {joined(own)}", _CANNOT, fix)
        elif own and (folders := self._elsewhere(path, own)):
            where = f"{joined(map(short, folders))} alone: no loader looks there"
            what = f"needs {joined(own)}, which the image has in {where}"
            fix = "whatever loads it imports torch first, where that loads the same (CUDA's libraries); in a job "
            fix += f"`export LD_LIBRARY_PATH={':'.join(folders)}`"
            yield self._fault("libraries", path, what, _CANNOT, fix)
        elif own:  # the others are reported of the library that needs them
            finding = self._fault("libraries", path, f"needs {joined(own)}, which nothing in the image has", _CANNOT)
            yield msgspec.structs.replace(finding, missing=tuple(filter(None, [_of_system(own)])))

    def _elsewhere(self, path: str, names: Collection[str]) -> list[str]:
        """The folders of other packages that have all of these libraries; nothing where one has no such file."""
        owner, folders = self._packages.owner(path), set[str]()
        for name in names:
            files = [file for file in self._by_name.get(name, ()) if self._packages.owner(file) != owner]
            if not files:
                return []
            folders.add(files[-1].rpartition("/")[0])
        return sorted(folders)

    @functools.cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """File name, and name that a library is linked by → the files of packages that have it."""
        files: dict[str, list[str]] = {}
        for path, binary in self._contents.binaries.items():
            if self._packages.owner(path) != BASE:
                for name in {basename(path), binary.soname}:
                    files.setdefault(name, []).append(path)
        return files

    def _versions(self, path: str, binary: Binary) -> Iterator[AuditFinding]:
        """Symbol versions that the loader asks for before it looks at any symbol."""
        for library in dict.fromkeys(need.library for need in binary.versions_wanted):
            provider = self._loader.find(library, path)
            has = self._contents.binaries[provider].versions if provider else frozenset[str]()
            versions = ordered({need.version for need in binary.versions_wanted if need.library == library} - has)
            if not has or not versions:  # missing, which is reported; or a library without versions, which serves any
                continue
            prefix = versions[-1].rpartition("_")[0]
            last = ["", *ordered(version for version in has if version.rpartition("_")[0] == prefix)][-1]
            offer = f"goes up to {last}" if last else "has no such version"
            what = f"needs {joined(versions)} of {library}; the image's {offer}"
            breaks = f"its loading ends with `version {versions[-1]} not found`"
            yield self._fault("versions", path, what, breaks, _NEWER)

    def _symbols(self, path: str, binary: Binary) -> Iterator[AuditFinding]:
        """Yield symbols that the loader would not find with RTLD_NOW, which is how Python loads."""
        missing = self._undefined(binary.wanted, path)
        for root in self._loaders(path) if missing else ():
            missing = self._undefined(missing, root)
        if not missing:
            return
        count = "a symbol that nothing" if len(missing) == 1 else f"{len(missing)} symbols that nothing"
        what = f"refers to {count} it is loaded with defines: {_names(missing)}"
        yield self._fault("symbols", path, what, "its loading ends with `undefined symbol`", self._other_build(path))

    def _undefined(self, symbols: Iterable[NeededSymbol], path: str) -> list[NeededSymbol]:
        shown, (needed, missing) = self._loader.shown(self._packages.owner(path)), self._loader.closure(path)
        libraries = [self._contents.binaries[other] for other in dict.fromkeys((*shown, *needed))]
        if any(library.opaque for library in libraries):  # which may define them all
            return []
        driver = any(map(is_driver, missing))
        return [
            symbol
            for symbol in symbols
            if not any(library.has(symbol) for library in libraries)
            and not self._loader.is_assumed_symbol(symbol)
            and not (driver and _DRIVER_SYMBOL.match(symbol.name))
        ]

    def _loaders(self, path: str) -> Iterator[str]:
        """Others that bring it: it may lean on what they have. A module of Python is loaded on its own."""
        if self._is_python_module(path):
            return
        for other in self._paths:
            if other != path and not self._is_foreign(other) and path in self._loader.closure(other)[0]:
                yield other

    def _other_build(self, path: str) -> str:
        package = self._packages.owner(path)
        if package.name != TORCH and self._packages.refers_to_torch(path):
            torch = self._torch(package)
            return f"a build of {package.name} for torch {torch}" if torch else "install torch"
        return ""

    def _strings(self, path: str, binary: Binary) -> Iterator[AuditFinding]:
        """std::string comes in two forms; who hands strings to torch must use torch's (_GLIBCXX_USE_CXX11_ABI).

        Who hands it none works all the same (tensordict 0.7 with torch 2.6).
        """
        package = self._packages.owner(path)
        if package.name == TORCH or binary.old_strings == binary.new_strings:
            return
        refers = self._packages.refers_to_torch(path)
        torch_new = self._torch_strings(self._packages.torch(package)) if refers else None
        if torch_new is not None and binary.new_strings != torch_new:
            what = f"is compiled with _GLIBCXX_USE_CXX11_ABI={int(binary.new_strings)}, torch with {int(torch_new)}"
            breaks = "they do not understand each other's strings: undefined symbols, or a crash"
            fix = f"recompile {package.name} with -D_GLIBCXX_USE_CXX11_ABI={int(torch_new)}"
            severity: Severity = "fail" if path in self.broken and self._idle(path) is None else "warn"
            yield self._packages.finding("strings", severity, path, what, breaks, fix)

    def _strings_of(self, torch: InstalledPackage) -> bool | None:
        """Tell whether torch's strings have the new form; None without torch."""
        core = next((path for path in self._packages.binaries(torch) if _C10.search(path)), None)
        exports = self._contents.binaries[core].exports if core else ()
        new = any(symbol.startswith("_ZN3c10") and "NSt7__cxx1112basic_string" in symbol for symbol in exports)
        return new if exports else None

    def _fault(self, check: Check, path: str, what: str, breaks: str, fix: str = "") -> AuditFinding:
        """A file cannot be loaded, which for a plugin that may be absent is no more than a note."""
        self.broken.add(path)
        if (why := self._idle(path)) is not None:
            return self._packages.finding(check, "note", path, what, why)
        is_idle = self._packages.owner(path) == BASE and not self._contents.binaries[path].interpreter
        return self._packages.finding(check, "warn" if is_idle else "fail", path, what, breaks, fix)


def _of_system(libraries: Collection[str]) -> tuple[str, ...]:
    """Those that a package of the system may bring."""
    return tuple(sorted(name for name in libraries if not is_torch_library(name)))


def _names(symbols: Sequence[NeededSymbol], most: int = 4) -> str:
    """As people read them. A hostile file may lack a million: no more are looked at than are shown."""
    shown: dict[str, None] = {}
    for number, symbol in enumerate(symbols):
        if len(shown) == most:
            return listed([*shown, f"{len(symbols) - number} more"])
        shown[demangled(symbol.name)] = None
    return joined(shown)


def demangled(symbol: str) -> str:
    """A C++ name as it is read, or the symbol itself. Each reference can double the text: few are followed."""
    if len(symbol) > _LONGEST or len(_REFERENCE.findall(symbol)) > _MOST_REFERENCES:
        return symbol
    try:
        return str(itanium_demangler.parse(symbol) or symbol)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):  # names of a kind that it does not know
        return symbol
