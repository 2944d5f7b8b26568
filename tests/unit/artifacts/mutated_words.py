"""Mutations of what users write: requirements files, `--with`, recipes, a stack's recipe, a target, a netrc; and
sdists, which users bring.

Rows of `test_mutated.TARGETS`. Each is taken, or refused by an error of ours.
"""

import contextlib
import gzip

from graphcrate.compat.requirements import expected, own, own_packages, own_typed, package_text
from graphcrate.compat.variants import recipes, targets
from graphcrate.inputs.wheels import sdist
from graphcrate.model.errors import GraphcrateError
from graphcrate.resolve.sources import further
from patienthttp import connections
from tests import ROOT
from tests.unit.compat.test_conda import ENVIRONMENT
from tests.unit.compat.test_projects import POETRY, PROJECT, PYLOCK, UV
from tests.unit.compiled_plans import plain_lock
from tests.unit.inputs.test_sdist import zipped
from tests.unit.wheel_server import small_sdist

REQUIREMENTS = [
    b"# mine\nlightning==2.1  # pinned\n\ndgl \\\n  >=2.0 --hash=sha256:aa\n-r more.txt\n-c bounds.txt\n-e ./pkg\n",
    b"-r requirements.txt\n",
    b"a[b,c]>=1 ; python_version < '3.9'\n--requirement=more.txt\n~/x\n~nobody-there/x.whl\nfile:///x\n",
    b"-f https://data.pyg.org/whl/a.html -i=https://a:b@c/\n--find-links ./pkg\ntorch==2.0.1+cu118\na=1.0=b\n",
    b"\xff\xfea\0\n\0https://data.pyg.org/whl/a-1-py3-none-any.whl\n-e ./pkg[x]\n",
    b"x @ git+https://host.example/x@0123456789012345678901234567890123456789\n",
]
WORDS = [b"lightning wandb", b"'dgl == 2.1' ./pkg ~nobody-there/x", b"git+https://a.example/b@c ./a.whl file:///a x@y"]
OWN = [
    b'extends = "pyg"\ncuda = "11.8"\npip = ["lightning", "./pkg"]\nrequirements = "more.txt"\napt = ["git"]\n'
    b'env = { WANDB_MODE = "offline" }\nfiles = { "/opt/mine/a.py" = "more.txt" }\nsmoke = ["true"]\n',
    b'extends = "torch"\nextends."a" = [[1, {x = 1979-05-27T07:32:00Z}], """b\\u0000"""]\n',
    b"extends = " + b"[" * 2000,
    b"smoke_minutes = " + b"9" * 5000,
]
NETRC = [
    b"machine a.example login me password p\xe9ss\n# x\ndefault login a password b\n",
    b'machine "a.example" login "\\"',
]


def beside(place):
    """The files that the seeds refer to."""
    (place / "more.txt").write_text("wandb\n-c bounds.txt\n")
    (place / "bounds.txt").write_text("numpy<2\n")
    (place / "pkg").mkdir()
    (place / "pkg/setup.py").touch()


def requirements(data, place):
    beside(place)
    (place / "requirements.txt").write_bytes(data)
    found = package_text.read_requirements(place / "requirements.txt")
    named(found.packages, found.constraints)


def foreign(name):
    """A reader of a file of another format, by its name."""

    def reader(data, place):
        beside(place)
        (place / name).write_bytes(data)
        found = package_text.read_requirements(place / name)
        named(found.packages, found.constraints)
        further.lines(found.channels, ())
        expected.compared(found.expected, plain_lock())

    return reader


def words(data, place):
    beside(place)
    with contextlib.chdir(place):
        named(own_typed.given([data.decode("utf-8", "surrogateescape")]).packages, ())


def named(packages, constraints):
    """Accepted words have a name, for the tag."""
    for package in (*packages, *constraints):
        assert package
        own_packages.name_of(package)


def recipe(data, place):
    beside(place)
    (place / "mine.toml").write_bytes(data)
    _, additions = own.load(place / "mine.toml")
    named(own_packages.wanted_packages(additions), additions.constraints)
    own_packages.suffix(additions, [*map(own_packages.name_of, additions.packages)])


def written(name, read):
    def reader(data, place):
        (place / name).write_bytes(data)
        read(place / name)

    return reader


def netrc(data, place):
    (place / ".netrc").write_bytes(data)
    connections.authorization("https://a.example/", "", {"HOME": str(place)})


def sdists():
    pyproject = '[build-system]\nrequires = ["setuptools"]\n[project]\ndependencies = ["a"]\n'
    name, content = small_sdist("demo", "1.0", pyproject=pyproject, requires_txt="a\n[x]\nb\n", more={"a.c": ""})
    return [gzip.decompress(content), zipped(name, content)[1]]


def source(data, place):
    """A file that begins as a zip is one by its name, too."""
    name = "demo-1.0.zip" if data[:2] == b"PK" else "demo-1.0.tar.gz"
    (place / name).write_bytes(data)
    sdist.compiled_sources(place / name)
    sdist.read_sdist(place / name, name)


TARGETS = {
    "environment": (lambda: ENVIRONMENT.encode(), foreign("environment.yml")),
    "project": (lambda: [PROJECT.encode(), POETRY.encode()], foreign("pyproject.toml")),
    "uv-lock": (lambda: UV.encode(), foreign("uv.lock")),
    "pylock": (lambda: PYLOCK.encode(), foreign("pylock.toml")),
    "sdist": (sdists, source),
    "requirements": (lambda: REQUIREMENTS, requirements),
    "words": (lambda: WORDS, words),
    "own-recipe": (lambda: OWN, recipe),
    "recipe": (lambda: (ROOT / "recipes/torch.toml").read_bytes()[:6000], written("torch.toml", recipes.load)),
    "target": (lambda: sorted(ROOT.glob("targets/*.toml"))[0].read_bytes(), written("a.toml", targets.load)),
    "netrc": (lambda: NETRC, netrc),
}
ERRORS = {**dict.fromkeys(TARGETS, GraphcrateError), "netrc": ()}
