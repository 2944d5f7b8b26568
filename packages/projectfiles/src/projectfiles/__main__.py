"""`python -m projectfiles`: print what a project's files say that it needs, as JSON. Nothing of it is run."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from projectfiles import environments, files
from projectfiles.errors import ProjectFileError
from projectfiles.values import Needs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 where a file is not taken, 2 for a wrong call."""
    parser = argparse.ArgumentParser("python -m projectfiles", description="What does this project need?")
    parser.add_argument("path", type=Path, help="a file (pyproject.toml[train] with an extra), or a project's folder")
    parser.add_argument("--python", action="append", metavar="3.11", help="read for this Python; again for more")
    parser.add_argument("--machine", default="x86_64", help="and this processor, on Linux")
    words = parser.parse_args(arguments)
    pythons = words.python or [f"{sys.version_info.major}.{sys.version_info.minor}"]
    machines = [environments.linux(python, words.machine) for python in pythons]
    paths = [words.path / name for name in files.NAMES if (words.path / name).is_file()]
    if words.path.is_dir() and not paths:
        print(f"projectfiles: {_plain(str(words.path))} has none of {', '.join(files.NAMES)}", file=sys.stderr)
        return 1
    made, problems = list[dict[str, Any]](), 0
    for path in paths or [words.path]:
        try:
            made += [_shown(entry) for entry in files.read(path, machines)]
        except ProjectFileError as error:
            problems += 1
            print(f"projectfiles: {_plain(str(error))}", file=sys.stderr)
    print(json.dumps(made, indent=2))
    return 1 if problems else 0


def _shown(entry: files.FileNeeds) -> dict[str, Any]:
    """Return a file's needs for JSON, without fields that are empty."""
    return _filled({"file": entry.file, "constrains": entry.constrains} | _fields(entry.needs))


def _fields(needs: Needs) -> dict[str, Any]:
    tuples = {field.name: getattr(needs, field.name) for field in dataclasses.fields(needs)}
    return {name: [_record(each) for each in values] for name, values in tuples.items()}


def _record(value: Any) -> Any:  # noqa: ANN401 (a line, a release, a note or a text)
    if not hasattr(value, "_asdict"):
        return value
    return _filled({name: _record(part) for name, part in value._asdict().items()})


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", (), [], False)}


def _plain(text: str) -> str:
    lines: Iterable[str] = (line if line.isprintable() else ascii(line) for line in text.splitlines())
    return "\n  ".join(lines)


if __name__ == "__main__":
    sys.exit(main())
