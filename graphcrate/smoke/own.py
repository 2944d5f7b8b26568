"""Tests of what a person adds to a stack: each package is imported, and their own commands must succeed."""

import hashlib
import re
import shlex

from graphcrate.model.plan import VENV
from graphcrate.model.report import OwnTests, SmokeReport
from graphcrate.smoke.suites import Program, Ran
from graphcrate.smoke.verdict import failed, tail

IMPORTS_LIMIT = 300  #: seconds
_SHOWN = 60  #: characters of a command

#: Imports each distribution's top-level modules, as its RECORD has them. Runs in the image, from Python 3.9 on.
_IMPORT = """
import importlib, importlib.metadata, sys
for name in sys.argv[1:]:
    files = importlib.metadata.distribution(name).files or ()
    tops = {file.parts[0].split(".")[0] for file in files if file.suffix in (".py", ".so") and file.parts[0] != ".."}
    folders = {file.parts[0] for file in files if len(file.parts) > 1}
    modules = [top for top in sorted(tops) if top.isidentifier() and top not in ("tests", "test", "docs", "examples")]
    public = [top for top in modules if not top.startswith("_")] or modules
    for module in public:
        print("importing", module, "of", name, flush=True)
        importlib.import_module(module)
    if not public:
        print(name, "has no module to import", flush=True)
"""


def programs(own: OwnTests) -> list[Program]:
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


def _own(name: str, title: str, argv: tuple[str, ...], limit: int) -> Program:
    version = hashlib.sha256(repr((argv, limit)).encode()).hexdigest()[:16]
    return Program(name, f"{name} {version}", title, argv, limit, _judge)


def _judge(test: Program, ran: Ran, on_gpu: bool) -> SmokeReport:
    begun = [line for line in ran.lines if re.match(r"importing \S+ of ", line)]
    what = begun[-1] if test.name == "imports" and begun else shlex.quote(test.title)
    if ran.late or ran.returncode:
        ending = f"{test.title}: {ran.late}" if ran.late else f"{what} ended with exit code {ran.returncode}"
        reason = f"{ending}; last lines: {tail(ran.lines)}"
        return failed(test.name, ran.seconds, reason, layer="", on_gpu=on_gpu)
    return SmokeReport(suite=test.name, status="passed", device="gpu" if on_gpu else "cpu", seconds=ran.seconds)
