"""Tests of what a person adds to a stack: each package is imported, and their own commands must succeed."""

import hashlib
import re
import shlex
from collections.abc import Sequence

from graphcrate.model.plan import VENV
from graphcrate.model.recipe import Additions
from graphcrate.model.report import SmokeReport
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


def own_tests(asked: Sequence[str], additions: Additions) -> list[Program]:
    """The import of what was asked for by name, then the commands."""
    tests = []
    if asked:
        python = (f"{VENV}/bin/python", "-c", _IMPORT, *asked)
        tests.append(_own("imports", f"importing {', '.join(asked)}", python, IMPORTS_LIMIT))
    for number, command in enumerate(additions.smoke, 1):
        shown = command if len(command) <= _SHOWN else f"{command[:_SHOWN]}…"
        argv = ("/bin/sh", "-c", f"cd /tmp && {command}")
        tests.append(_own(f"own-{number}", shown, argv, additions.smoke_minutes * 60))
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
