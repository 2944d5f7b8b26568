"""The same lock gives the same bytes for any user, place and time, with any cache."""

import contextlib
import hashlib
import os
import random

import pytest

from graphcrate.host.disk.trees import remove_tree
from tests.faults import project, pythons
from tests.faults.rows import ALL, Ended, Watch, row, rows
from tests.faults.ways import behind, owned, pretending, run_by, shell, small_disk

YEAR = 365 * 86400
FORMS = ("sif", "sqsh", "docker")
EACH = 25 if ALL else 2  #: mixes of each Python
MINORS = ("3.11", "3.12", "3.13", "3.14")
DISK = "another file system"
CORES = sorted(os.sched_getaffinity(0))


def as_it_is(place):
    return place


#: what differs between machines: value → the place where it is so. Who it is comes first, as it goes before the others
FACTORS = {
    "user": {
        "root": as_it_is,
        "nobody": lambda place: owned(place, 65534),
        "a user without a name": lambda place: owned(place, 54321),
        "root of a user namespace with no other user": lambda place: behind(place, "unshare", "--map-root-user"),
    },
    "home": {
        "as it is": as_it_is,
        "not set": lambda place: behind(place, "env", "-u", "HOME"),
        "a folder that is not there": lambda place: place.having(HOME="/no/such/home"),
    },
    "umask": {
        "022": lambda place: shell(place, "umask 022"),
        "077": lambda place: shell(place, "umask 077"),
        "000": lambda place: shell(place, "umask 000"),
        "027": lambda place: shell(place, "umask 027"),
    },
    "cores": {
        "one": lambda place: behind(place, "taskset", "-c", f"{CORES[0]}"),
        "two": lambda place: behind(place, "taskset", "-c", ",".join(map(str, CORES[:2]))),
    },
    "zone": {name: lambda place, name=name: place.having(TZ=name) for name in ("UTC", "Pacific/Chatham", "EST5EDT")},
    "locale": {
        "C.UTF-8": lambda place: place.having(LC_ALL="C.UTF-8"),
        "tr_TR.UTF-8": lambda place: place.having(LC_ALL="tr_TR.UTF-8", LANG="tr_TR.UTF-8"),
        "C without UTF-8": lambda place: place.having(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
    },
    "hash seed": {
        "random": as_it_is,
        "0": lambda place: place.having(PYTHONHASHSEED="0"),
        "7": lambda place: place.having(PYTHONHASHSEED="7"),
    },
    "clock": {
        "right": as_it_is,
        "five years back": lambda place: pretending(place, f"clock=-{5 * YEAR}"),
        "five years ahead": lambda place: pretending(place, f"clock={5 * YEAR}"),
    },
    "folder": {
        "short": "p",
        "spaces and other letters": "mein Projekt 图",
        "long": "/".join(["long" * 40] * 4),
        DISK: "p",
    },
    "cache": dict.fromkeys(("empty", "with everything", "with some of it")),
}


def drawn(number):
    """Mixes: the value of each factor, each value as often as the others."""
    columns = {}
    for factor, values in FACTORS.items():
        columns[factor] = (list(values) * number)[:number]
        random.Random(f"{factor} 5").shuffle(columns[factor])
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture(scope="session")
def expected(origin):
    """The bytes of all forms of the image, by this Python on this machine as it is."""
    folder = origin.root / "expected"
    folder.mkdir()
    return made(project.copy(origin.place, folder, warm=True))


def made(place):
    """The digest of the image that is built there, and the checksums of files of it."""
    report = project.report(place, place.run(*project.IMAGE, "--json"))
    found = {"image": report["digest"]}
    for form in FORMS:
        place.run("convert", place.layout(report), "--to", form, "--output", f"made.{form}", "--force").ok()
        found[form] = hashlib.sha256((place.folder / f"made.{form}").read_bytes()).hexdigest()
    return found


def tried(origin, expected, folder, python, mix, number):
    """Build as a mix says, from its cache; seconds of the last build and its files."""
    with small_disk(folder, size="2g") if mix["folder"] == DISK else contextlib.nullcontext(folder.mkdir()):
        home = folder / FACTORS["folder"][mix["folder"]]
        home.mkdir(parents=True)
        place = run_by(project.copy(origin.place, home), python)
        for factor in list(FACTORS)[:-2]:
            place = FACTORS[factor][mix[factor]](place)
        if mix["cache"] != "empty":
            assert made(place) == expected, mix
            remove_tree(place.folder / "dist")
        if mix["cache"] == "with some of it":
            kinds = sorted(path.name for path in place.cache.iterdir() if path.name not in ("tmp", "locks"))
            for kind in random.Random(number).sample(kinds, len(kinds) // 2):
                remove_tree(place.cache / kind)
        watch = Watch()
        assert made(place) == expected, mix
        seconds = watch.seconds
    remove_tree(folder)
    return seconds


@rows(
    "Same bytes",
    "`image`, then `convert` to a SIF, a squashfs and a Docker archive, drawn by chance (seeded)",
    {minor: (f"Python {minor}; another {', '.join(FACTORS)}", minor) for minor in MINORS},
)
@pytest.mark.engine("root", "setpriv", "unshare", "taskset", "mount")
def test_mix(origin, expected, scratch, case):
    python = pythons.prepared(case, scratch / "python")
    if python is None:
        return Ended(f"not tried: no Python {case} is here")
    first = MINORS.index(case) * EACH
    mixes = list(enumerate(drawn(len(MINORS) * EACH)))[first : first + EACH]
    seconds = [tried(origin, expected, scratch / str(number), python, mix, number) for number, mix in mixes]
    return Ended(f"{EACH} of {EACH} with {python.version}: the same bytes of the image and all three", max(seconds))


@row("Same bytes", "a clock a year back", "`image` from a cache and an image of the day after")
def test_clock_back(origin, warm):
    seconds = project.goes_on(pretending(warm, f"clock=-{YEAR}"), origin.digest)
    remove_tree(warm.folder / "dist")
    project.goes_on(pretending(warm, f"clock=-{YEAR}"), origin.digest)
    return Ended("the same digest", seconds)
