"""`python -m nsbox ROOTFS PROGRAM …`: a program in a folder as its root, with this terminal."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nsbox import box, walls
from nsbox.box import Bind, Box
from nsbox.errors import BoxError
from nsbox.needs import Needs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code, 128 + N after signal N."""
    parser = argparse.ArgumentParser("nsbox", description="Run a program in a folder as its root.")
    parser.add_argument("rootfs", type=Path, help="the folder")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    parser.add_argument("--bind", type=_bind, action="append", default=[], metavar="PATH:TARGET[:rw]")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--cwd", default="/", help="its working folder")
    parser.add_argument("--network", action="store_true", help="the host's network, and sockets of TCP and UDP")
    parser.add_argument("--write", action="store_true", help="it may change the folder")
    parser.add_argument(
        "--set-user-id", action="store_true", help="with --write: it may make set-user-ID files, as dpkg"
    )
    given = parser.parse_args(arguments)
    if not given.program:
        parser.error("name a program to run")
    if lacking := walls.missing():
        sys.stderr.write(f"this kernel has no {', '.join(wall.name for wall in lacking)}\n")
    boxed = Box(
        rootfs=given.rootfs,
        argv=given.program,
        needs=Needs(
            "a command",
            internet=given.network,
            changes_root=given.write,
            ignored_owners=given.write,
            set_user_id=given.set_user_id,
        ),
        environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **_variables(given.env)},
        cwd=given.cwd,
        binds=given.bind,
        network=given.network,
    )
    try:
        code = box.run(boxed, box.call)
    except BoxError as error:
        sys.stderr.write(f"{error}\n")
        return 125
    return code if code >= 0 else 128 - code


def _bind(text: str) -> Bind:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not (source and target.startswith("/") and mode in ("", "ro", "rw") and Path(source).exists()):
        raise argparse.ArgumentTypeError(f"{text!r} is not PATH:TARGET or PATH:TARGET:rw of a PATH that is there")
    return Bind(Path(source), target, read_only=mode != "rw")


def _variables(texts: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


if __name__ == "__main__":
    sys.exit(main())
