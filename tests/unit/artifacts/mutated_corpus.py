"""Inputs that the mutating tests begin with, beside whole ones.

`python -m tests.unit.artifacts.mutated_corpus [TARGET …]` gathers them.

`mutated/TARGET.b85` has one a line, deflated and in base 85: text, so that a change can be read as one, and small. It
is there because it reaches a step of a reader that no other reaches, or because it once failed.
"""

import base64
import random
import struct
import sys
import tempfile
import zlib
from pathlib import Path

FOLDER = Path(__file__).with_name("mutated")
TRIES, LONGEST = 1500, 1500  #: mutations of each target, bytes of a line


def inputs(target):
    """Those of a target."""
    path = FOLDER / f"{target}.b85"
    return [unpacked(line) for line in path.read_text("ascii").split()] if path.exists() else []


def packed(data):
    return base64.b85encode(zlib.compress(data, 9)).decode()


def unpacked(line):
    return zlib.decompress(base64.b85decode(line))


def steps(action):
    """Pairs of lines of graphcrate that are run one after the other."""
    found = set()

    def follow(frame, event, _):
        if "/graphcrate/" not in (name := frame.f_code.co_filename):
            return None
        last = 0

        def line(frame, event, _):
            nonlocal last
            found.add((name, last, last := frame.f_lineno))
            return line

        return line

    sys.settrace(follow)
    try:
        action()
    finally:
        sys.settrace(None)
    return found


def drawn(random_, pieces):
    """Changes as hypothesis draws them."""
    kinds = ("set", "insert", "delete", "copy", "cut")
    few = range(random_.randint(1, 6))
    return [(random_.choice(kinds), random_.randrange(1 << 20), random_.choice(pieces)) for _ in few]


def gather(target):
    """Add the inputs that reach more than those that are there."""
    from tests.unit.artifacts.test_mutated import NUMBERS, mutated, seeds_of, tried

    seeds, reached, random_ = seeds_of(target), set(), random.Random(target)
    pieces = [*NUMBERS, b"../", b"\0", b'"', b"9" * 30, *(struct.pack("B", number) for number in range(256))]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "x")
        for seed in seeds:
            reached |= steps(lambda seed=seed: tried(target, seed, place))
        for _ in range(TRIES):
            data = mutated(random_.choice(seeds), drawn(random_, pieces))
            more = steps(lambda data=data: tried(target, data, place)) - reached
            if more and len(line := packed(data)) <= LONGEST:
                reached |= more
                seeds.append(data)
                FOLDER.mkdir(exist_ok=True)
                with Path(FOLDER, f"{target}.b85").open("a", encoding="ascii") as stream:
                    stream.write(f"{line}\n")


if __name__ == "__main__":
    from tests.unit.artifacts.test_mutated import TARGETS

    for name in sys.argv[1:] or TARGETS:
        gather(name)
