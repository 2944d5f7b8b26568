"""The same lock gives the same bytes, whoever builds it, wherever, whenever, with whatever is there already."""

import dataclasses
import os
import random
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import ROOT
from tests.faults import project
from tests.faults.rows import ALL, Ended, Watch, row, rows

YEAR = 365 * 86400
HOW = "`image` from an empty cache"


def shell(place, script):
    """The place, where this goes before each command."""
    return dataclasses.replace(place, prefix=("sh", "-c", f'{script} && exec "$@"', "sh"))


def setting(place, **variables):
    return dataclasses.replace(place, environment={**place.environment, **variables})


def pretending(place, what):
    """The place on a machine that is not what it says (`pretending.py`)."""
    program = (sys.executable, "-s", "-m", "tests.faults.pretending", what)
    return dataclasses.replace(setting(place, PYTHONPATH=f"{place.folder}:{ROOT}"), program=program)


def elsewhere(place, name):
    """The place under another name."""
    folder = place.folder.parent / name
    place.folder.rename(folder)
    return dataclasses.replace(place, folder=folder)


def without_dist(place):
    shutil.rmtree(place.folder / "dist", ignore_errors=True)
    return place


WAYS = {
    "umask-077": ("umask 077", lambda place: shell(place, "umask 077")),
    "umask-000": ("umask 000", lambda place: shell(place, "umask 000")),
    "zone": ("the time zone of Chatham, 12:45 hours off", lambda place: setting(place, TZ="Pacific/Chatham")),
    "turkish": ("a Turkish locale", lambda place: setting(place, LC_ALL="tr_TR.UTF-8", LANG="tr_TR.UTF-8")),
    "c": ("the locale C, no UTF-8 mode", lambda place: setting(place, LC_ALL="C", PYTHONUTF8="0")),
    "folder": ("a folder with spaces and other letters", lambda place: elsewhere(place, "mein Projekt 图")),
    "hash": ("another seed of Python's hashes", lambda place: setting(place, PYTHONHASHSEED="7")),
    "one-core": ("one core", lambda place: shell(place, "taskset -p -c 0 $$ >/dev/null")),
    "past": ("a clock five years back", lambda place: pretending(place, f"clock=-{5 * YEAR}")),
    "future": ("a clock five years ahead", lambda place: pretending(place, f"clock={5 * YEAR}")),
}


@rows("Same bytes", HOW, WAYS)
def test_way(origin, cold, case):
    watch = Watch()
    project.goes_on(case(cold), origin.digest)
    return Ended("the same digest", watch.seconds)


@row(
    "Same bytes",
    "a cache that has everything",
    "`image`, without the image; then a clock a year back, without it again",
)
def test_warm(origin, warm):
    watch = Watch()
    project.goes_on(without_dist(warm), origin.digest)
    project.goes_on(pretending(without_dist(warm), f"clock=-{YEAR}"), origin.digest)
    project.goes_on(pretending(warm, f"clock=-{YEAR}"), origin.digest)
    return Ended("the same digest each time", watch.seconds)


@row("Same bytes", "another user, without rights", f"{HOW}, as nobody")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the packages of .venv are for another Python")
@pytest.mark.engine("root", "setpriv", "/usr/bin/python3.11")
def test_user(origin, cold):
    for path in (cold.cache.parent, *cold.cache.parent.rglob("*")):
        shutil.chown(path, "nobody", "nogroup")
    user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--")
    watch = Watch()
    project.goes_on(dataclasses.replace(of_system(cold), prefix=user), origin.digest)
    return Ended("the same digest", watch.seconds)


def of_system(place):
    """The place with the machine's own Python, and the packages of ours."""
    packages = setting(place, PYTHONPATH=f"{place.folder}:{sysconfig.get_path('purelib')}")
    return dataclasses.replace(packages, program=("/usr/bin/python3.11", "-s", "-m", "graphcrate.cli.main"))


@row("Same bytes", "other Pythons", f"{HOW}, by the machine's own Python, and those that FAULTS_PYTHONS names")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the packages of .venv are for another Python")
@pytest.mark.engine("/usr/bin/python3.11")
def test_pythons(origin, scratch):
    ask = "import platform; print(platform.python_version())"
    programs = ["/usr/bin/python3.11", *os.environ.get("FAULTS_PYTHONS", "").split()]
    versions, slowest = [f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"], 0.0
    for number, name in enumerate(programs):
        place = project.copy(origin.place, scratch / str(number))
        place = of_system(place) if number == 0 else dataclasses.replace(place, program=(name, *place.program[1:]))
        watch = Watch()
        project.goes_on(place, origin.digest)
        slowest = max(slowest, watch.seconds)
        versions.append(subprocess.check_output([name, "-c", ask], encoding="utf-8").strip())
    return Ended(f"the same digest with {', '.join(sorted(set(versions)))}", slowest)


@row("Same bytes", "several of these at once, drawn by chance (seeded)", f"{HOW}, or from one that has some of it")
def test_drawn(origin, scratch):
    random_, number, slowest = random.Random(5), 100 if ALL else 5, 0.0
    for count in range(number):
        place = project.copy(origin.place, scratch / str(count), warm=bool(count % 2))
        without_dist(place)
        for kind in random_.sample(sorted(path.name for path in place.cache.glob("[!tl]*")), 2) if count % 2 else ():
            shutil.rmtree(place.cache / kind)
        ways = [WAYS[name][1] for name in random_.sample(["zone", "turkish", "hash", "folder"], 2)]
        for way in (*ways, WAYS[random_.choice(["umask-077", "umask-000", "one-core", "past", "future"])][1]):
            place = way(place)
        watch = Watch()
        project.goes_on(place, origin.digest)
        slowest = max(slowest, watch.seconds)
        shutil.rmtree(Path(scratch, str(count)))
    return Ended(f"{number} of {number}: the same digest", slowest)
