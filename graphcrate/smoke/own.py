"""Tests of what the user adds to a stack: each package is imported, and their own commands must succeed."""

import hashlib
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts import together
from graphcrate.compat.failures import importing
from graphcrate.compat.failures.failure import More
from graphcrate.model.plan import VENV
from graphcrate.model.report import OwnTests, SmokeReport
from graphcrate.model.words import printable
from graphcrate.smoke.suites import Ran, SuiteProgram
from graphcrate.smoke.verdict import failed, tail

IMPORTS_LIMIT = 300  #: seconds
#: Raise it with a change that may give another verdict, or tell more of a run: past results do not count then.
JUDGING = 2
#: figures of a result: what packages said that do without what is there; what to ask for where an import failed
SAID, ASK, APT = "said", "ask", "apt"
_FIGURES: dict[More, str] = {"with_": ASK, "apt": APT}
_SHOWN = 60  #: characters of a command
#: the last line of a traceback: "ModuleNotFoundError: No module named 'a'", "pkg.errors.Missing: why"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit)\b(?:: |$)|[a-z_]\w*\.[\w.]+: ")

#: Imports each distribution's top-level modules, as its RECORD has them; of a namespace (google), and of a package with
#: an empty __init__.py and one package alone (scikits), whose own import loads nothing, the packages in it. Runs in the
#: image, from Python 3.9 on.
_IMPORT = """
import importlib, importlib.metadata, sys
ASIDE = ("tests", "test", "docs", "examples")
for name in sys.argv[1:]:
    files = importlib.metadata.distribution(name).files or ()
    files = [file for file in files if file.suffix in (".py", ".so") and file.parts[0] != ".."]
    tops = {file.parts[0] if len(file.parts) > 1 else file.name.split(".")[0] for file in files}
    modules = [top for top in sorted(tops) if top.isidentifier() and top not in ASIDE]
    public = [top for top in modules if not top.startswith("_")] or modules
    alone = {file.name.split(".")[0] for file in files if len(file.parts) == 1}
    starts = {file.parts[:-1]: file.locate() for file in files if file.name == "__init__.py"}
    packages = set(starts)
    for parts, start in starts.items():
        below = {file.parts[len(parts)] for file in files if file.parts[: len(parts)] == parts} - {"__init__.py"}
        if not start.read_text().strip() and [(*parts, one) in starts for one in below] == [True]:
            packages.remove(parts)
    first = [parts for parts in sorted(packages) if not any(parts[:end] in packages for end in range(1, len(parts)))]
    named = [parts for parts in first if all(part.isidentifier() and part not in ASIDE for part in parts)]
    for top in public:
        inside = [".".join(parts) for parts in named if parts[0] == top and top not in alone]
        for module in inside or [top]:
            print("importing", module, "of", name, flush=True)
            importlib.import_module(module)
    if not public:
        print(name, "has no module to import", flush=True)
"""


def programs(own: OwnTests) -> list[SuiteProgram]:
    """Make the programs of these tests: one that imports the packages, then the commands."""
    tests = []
    if own.imports:
        python = (f"{VENV}/bin/python", "-c", _IMPORT, *own.imports)
        tests.append(_own("imports", f"importing {', '.join(own.imports)}", python, IMPORTS_LIMIT))
    for number, command in enumerate(own.commands, 1):
        shown = command if len(command) <= _SHOWN else f"{command[:_SHOWN]}…"
        argv = ("/bin/sh", "-c", f"cd /tmp && {command}")
        tests.append(_own(f"own-{number}", shown, argv, own.minutes * 60))
    return tests


def _own(name: str, title: str, argv: tuple[str, ...], limit: int) -> SuiteProgram:
    version = hashlib.sha256(repr((argv, limit, JUDGING)).encode()).hexdigest()[:16]
    return SuiteProgram(name, f"{name} {version}", title, argv, limit, _judge, is_whole=True)


def _judge(test: SuiteProgram, ran: Ran, on_gpu: bool) -> SmokeReport:
    imports = _imports(ran.lines) if test.name == "imports" else []
    if ran.late or ran.returncode:
        what = imports[-1].announced if imports else shlex.quote(test.title)
        ending = f"{test.title}: {ran.late}" if ran.late else f"{what} ended with exit code {ran.returncode}"
        raised = _first_raised(imports[-1].lines) if imports else ""
        reason = f"{ending}: {raised}" if raised else f"{ending}; last lines: {tail(ran.lines)}"
        report = failed(test.name, ran.seconds, reason, layer="", on_gpu=on_gpu)
        metrics = _remedy(imports[-1].package, raised, _python(imports[-1].lines)) if raised else {}
        return msgspec.structs.replace(report, metrics=metrics)
    complaints = [
        printable(f"{module.package}: {line}") for module in imports if (line := together.complaint(module.lines))
    ]
    return SmokeReport(
        suite=test.name,
        status="passed",
        device="gpu" if on_gpu else "cpu",
        seconds=ran.seconds,
        metrics={SAID: complaints} if complaints else {},
    )


class _Import(NamedTuple):
    """The output of importing one module of a package, after the line that it was `announced` by."""

    announced: str
    package: str
    lines: list[str]


def _imports(lines: Sequence[str]) -> list[_Import]:
    modules: list[_Import] = []
    for line in lines:
        if begun := re.fullmatch(r"importing \S+ of (\S+)", line):
            modules.append(_Import(line, begun[1], []))
        elif modules:
            modules[-1].lines.append(line)
    return modules


def _first_raised(lines: Sequence[str]) -> str:
    """The line of the first exception, of which all others of a chain come; empty where there is no traceback."""
    return next((line.strip() for line in lines if _RAISED.match(line)), "")


def _python(lines: Sequence[str]) -> str:
    """The Python whose files a traceback names ("3.11"); empty where it names none."""
    return next((match[1] for line in lines if (match := re.search(r"/python(3\.\d+)/", line))), "")


def _remedy(package: str, raised: str, python: str) -> dict[str, str]:
    """Return the figure that says what else to ask for, so that the import does not end so; empty if unknown."""
    known = importing.remedy(package, raised, python)
    return {_FIGURES[known[0]]: known[1]} if known else {}
