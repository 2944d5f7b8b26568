"""`python -m ocilayout FOLDER OUT`: an OCI image layout of a folder's files."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ocilayout import folder, spec
from ocilayout.errors import WritingError

#: Go's names of processors by uname(1)'s
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the layout and print the image's digest; return the exit code: 0, or 1 with a sentence on stderr."""
    machine = os.uname().machine
    parser = argparse.ArgumentParser("python -m ocilayout", description="An OCI image layout of a folder's files.")
    parser.add_argument("folder", type=Path, help="the image's root file system")
    parser.add_argument("out", type=Path, help="the layout, which must not be there")
    parser.add_argument("--tag", default="latest", help="of the image in the layout")
    parser.add_argument("--architecture", default=_ARCHITECTURES.get(machine, machine), help="as Go names it")
    parser.add_argument("--created", type=int, help="Unix seconds; without it SOURCE_DATE_EPOCH, or 0")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--workdir", help="the folder in which its program starts")
    parser.add_argument("--command", nargs=argparse.REMAINDER, help="the program that it starts; comes last")
    given = parser.parse_args(arguments)
    created = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) if given.created is None else given.created
    run = spec.RunConfig(
        env=tuple(given.env) or None,
        cmd=tuple(given.command or ()) or None,
        working_dir=given.workdir,
        labels=dict(text.partition("=")[::2] for text in given.label) or None,
    )
    try:
        image = folder.make(
            given.folder,
            given.out,
            given.tag,
            run=run,
            created=created,
            architecture=given.architecture,
            note=lambda line: print(f"ocilayout: {line}", file=sys.stderr),
        )
    except (WritingError, OSError) as error:
        print(f"ocilayout: {error}", file=sys.stderr)
        return 1
    print(image.digest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
