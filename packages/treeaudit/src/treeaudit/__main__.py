"""`python -m treeaudit`: name what in a folder cannot load, or cannot run on some GPUs."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from treeaudit import tree


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 where there are problems, 2 for a wrong call."""
    parser = argparse.ArgumentParser("python -m treeaudit", description="Will this tree load, and on which GPUs?")
    parser.add_argument("folder", type=Path, help="a root file system, or a folder with packages")
    parser.add_argument("--gpu", action="append", default=[], type=_capability, metavar="7.0", help="its capability")
    parser.add_argument("--machine", default="", metavar="EM_X86_64", help="without it that of most files")
    parser.add_argument("--library-path", default="", metavar="A:B", help="LD_LIBRARY_PATH")
    parser.add_argument("--assume", action="append", default=[], metavar="libx.so.1", help="a library of the system")
    words = parser.parse_args(arguments)
    if not words.folder.is_dir():
        parser.error(f"{words.folder} is not a folder")
    try:
        contents = tree.read(words.folder)
    except OSError as error:
        print(f"treeaudit: {error}", file=sys.stderr)
        return 2
    problems = tree.problems(
        contents,
        gpus=words.gpu,
        machine=words.machine,
        preferred=tuple(filter(None, words.library_path.split(":"))),
        assumed=words.assume,
    )
    for problem in problems:
        path, what = (text if text.isprintable() else ascii(text) for text in (problem.path, problem.what))
        print(f"{path}: {problem.check}: {what}")
    every = tree.code(contents)
    has = " ".join((*every.sass, *(f"PTX {each}" for each in every.ptx)))
    counts = f"{len(contents.binaries)} programs and libraries, {len(problems)} problems"
    print(f"{counts}; GPU code for {has}" if has else f"{counts}; no GPU code", file=sys.stderr)
    return 1 if problems else 0


def _capability(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability such as 8.0")
    return text


if __name__ == "__main__":
    sys.exit(main())
