"""`python -m sifsquash`: make an image of a folder, list one, extract one."""

import argparse
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sifsquash import images
from sifsquash.errors import ImageError
from sifsquash.values import Compression, Entry

_TYPES = {
    "file": stat.S_IFREG,
    "folder": stat.S_IFDIR,
    "symlink": stat.S_IFLNK,
    "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, or 1 with a sentence on stderr."""
    words = _parser().parse_args(arguments)
    try:
        words.run(words)
    except ImageError as error:
        print(f"sifsquash: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `list … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"sifsquash: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m sifsquash", description="SIF and squashfs files, without an engine.")
    commands = parser.add_subparsers(required=True, metavar="make|list|cat|extract")
    make = commands.add_parser("make", help="a SIF of a folder, or a squashfs where OUT does not end with .sif")
    make.add_argument("folder", type=Path)
    make.add_argument("out", type=Path)
    make.add_argument("--compression", type=Compression, choices=list(Compression), default=Compression.GZIP)
    make.add_argument("--architecture", default="", help="of a SIF, as Go names it; without it this machine's")
    make.add_argument("--root-owned", action="store_true", help="as if root owned every file")
    make.add_argument("--created", type=int, help="Unix seconds; without it SOURCE_DATE_EPOCH, or the newest file's")
    make.set_defaults(run=_make)
    listing = commands.add_parser("list", help="the paths of an image, as ls -l has them")
    listing.add_argument("image", type=Path)
    listing.set_defaults(run=_list)
    cat = commands.add_parser("cat", help="the content of a file of an image")
    cat.add_argument("image", type=Path)
    cat.add_argument("path")
    cat.set_defaults(run=_cat)
    extract = commands.add_parser("extract", help="an image's files to a new folder")
    extract.add_argument("image", type=Path)
    extract.add_argument("folder", type=Path)
    extract.set_defaults(run=_extract)
    return parser


def _make(words: argparse.Namespace) -> None:
    moment = os.environ.get("SOURCE_DATE_EPOCH")
    created = words.created if words.created is not None else int(moment) if moment and moment.isdecimal() else None
    if words.out.suffix == ".sif":
        images.make_sif(
            words.folder,
            words.out,
            compression=words.compression,
            created=created,
            root_owned=words.root_owned,
            architecture=words.architecture,
        )
    else:
        images.make_squashfs(
            words.folder, words.out, compression=words.compression, created=created, root_owned=words.root_owned
        )


def _list(words: argparse.Namespace) -> None:
    for path, entry in images.entries(words.image):
        print(_line(path, entry))


def _line(path: str, entry: Entry) -> str:
    """Return an entry as ls -l has it, in UTC; what no terminal should get is escaped."""
    letter = {"b": stat.S_IFBLK, "c": stat.S_IFCHR}.get(entry.link[:1], 0)
    mode = stat.filemode(_TYPES.get(entry.kind, letter) | entry.mode)
    size = entry.link.partition(" ")[2] if entry.kind == "device" else str(entry.size)
    moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.mtime))
    shown = f"{path} -> {entry.link}" if entry.kind == "symlink" else path
    shown = shown if shown.isprintable() else shown.encode("unicode_escape", "surrogateescape").decode()
    return f"{mode} {entry.uid:>5} {entry.gid:>5} {size:>11} {moment} {shown}"


def _cat(words: argparse.Namespace) -> None:
    sys.stdout.buffer.write(images.read_file(words.image, words.path))
    sys.stdout.buffer.flush()


def _extract(words: argparse.Namespace) -> None:
    for path in images.extract(words.image, words.folder):
        print(f"sifsquash: left out: {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
