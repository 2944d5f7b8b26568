"""`python -m dockerread`: print what a file installs as JSON. Nothing of it is run."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from dockerread import contents
from dockerread.errors import ReadError

_LARGEST = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for a file that is not taken, 2 for a wrong call."""
    parser = argparse.ArgumentParser("python -m dockerread", description="What would this file install?")
    parser.add_argument("file", type=Path, help="a Dockerfile, a Singularity definition, a script or a page")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="the value of an ARG")
    words = parser.parse_args(arguments)
    if odd := [text for text in words.build_arg if "=" not in text]:
        parser.error(f"--build-arg {odd[0]!r} is not NAME=VALUE")
    given = {name: value for name, _, value in (text.partition("=") for text in words.build_arg)}
    try:
        read = contents.read(_text(words.file), str(words.file), given)
    except ReadError as error:
        print(f"dockerread: {error if str(error).isprintable() else ascii(str(error))}", file=sys.stderr)
        return 1
    made = read._asdict()
    for part in ("installs", "others"):
        made[part] = [step._asdict() for step in made[part]]
    print(json.dumps(made, indent=2))
    return 0


def _text(path: Path) -> str:
    """Read a file of at most a megabyte. Raises ReadError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ReadError(f"{path} has more than {_LARGEST >> 20} MB", kind="length", file=str(path))
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ReadError(f"{path} cannot be read: {error}", kind="file", file=str(path)) from error


if __name__ == "__main__":
    sys.exit(main())
