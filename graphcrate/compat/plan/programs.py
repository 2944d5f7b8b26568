"""The programs that ship in images: examples to copy, suites, and the modules of doctor/ put into one file."""

import graphlib
import re
from pathlib import Path

from graphcrate.host.context import Context

_PACKAGE = "doctor."
_MAIN = "__main__"  #: starts the program, so it comes last
_HEAD = '''\
#!/usr/bin/env python3
"""Looks at the machine, or the container, that it runs on: what a CUDA + PyTorch + PyG image will meet there, and why.

python3 doctor.py                        what works, what cannot, why, and what to type
python3 doctor.py --explain "ERROR"      cause and fix of an error
ssh node python3 - < doctor.py           it needs nothing but Python 3.6, and writes nothing

Written from the modules of doctor/: change those.
"""
'''
#: a module: docstring, imports, and the rest. (Parsing with `ast` would take a fifth of an unchanged build's time.)
_MODULE = re.compile(
    r'"""(?P<title>[^\n]*?)(?:\n.*?)?"""\n'
    r"(?P<imports>(?:\n|import [^\n]+\n|from [\w.]+ import (?:\([^)]*\)|[^\n(]+)\n)*)"
    r"(?P<body>.*)\Z",
    re.DOTALL,
)
_FROM = re.compile(r"^from ([\w.]+) import \(?([^)]*?)\)?$", re.MULTILINE)


def examples(ctx: Context) -> dict[str, str]:
    """Return the programs by their names below /opt/graphcrate; the doctor, which anybody can copy, as one file."""
    programs = {
        path.relative_to(ctx.root).as_posix(): path.read_text(encoding="utf-8")
        for folder in (ctx.root / "examples", ctx.root / "suites")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".md", ".sbatch", ".json", ".yml")
    }
    if (ctx.root / "doctor").is_dir():
        programs["examples/doctor.py"] = doctor(ctx.root / "doctor")
    return programs


def doctor(folder: Path) -> str:
    """Return the program made of a folder's modules, each below those that it imports from, and of errors.ini.

    Raises ValueError for a module that does not begin with a docstring.
    """
    parts: dict[str, re.Match[str]] = {}
    whole: set[str] = set()
    names: dict[str, set[str]] = {}
    needs: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.py")):
        if (name := path.stem) == "__init__":
            continue
        match = _MODULE.match(path.read_text(encoding="utf-8"))
        if match is None:
            raise ValueError(f"{path} does not begin with a docstring and imports")
        parts[name], needs[name] = match, []
        whole.update(re.findall(r"^import (\S+)$", match["imports"], re.MULTILINE))
        for module, imported in _FROM.findall(match["imports"]):
            if module.startswith(_PACKAGE):
                needs[name].append(module.removeprefix(_PACKAGE))
            else:
                names.setdefault(module, set()).update(re.findall(r"\w+", imported))
    lines = [f"import {name}" for name in sorted(whole)]
    lines += [f"from {module} import {', '.join(sorted(imported))}" for module, imported in sorted(names.items())]
    order = [name for name in graphlib.TopologicalSorter(needs).static_order() if name != _MAIN]
    table = f"\nERRORS_INI = r'''{(folder / 'errors.ini').read_text(encoding='utf-8')}'''\n"
    bodies = [f"\n\n# {name}: {parts[name]['title']}\n\n{parts[name]['body'].strip()}\n" for name in [*order, _MAIN]]
    return "\n".join([_HEAD, "\n".join(lines), table, *bodies])
