"""docs/cache.md, typed as it is written: a first user compiles a package and builds an image, others do neither."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines.conftest import as_user, remove_later
from tests.engines.typist import MAKE, Typist, blocks, settings
from tests.engines.workplace import copy_bases, copy_downloads, second_place, small_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("user namespaces")]

PAGE = ROOT / "docs" / "cache.md"
MAIN = (sys.executable, "-E", "-s", "-m", "graphcrate.cli.main")
HERE = ("make image CUDA=11.8", f"{MAKE} image {settings(small_stack())} WITH=annoy")


@pytest.fixture(scope="module")
def users(workplace, built_image, own):
    """Two users: each has a clone, a home and a cache, and the first one's key and folder are the site's."""
    made = []
    for number in (1, 2):
        home = own / f"site-cache-{number}"
        place = second_place(workplace, home, base=True)
        variables = {"GRAPHCRATE_CACHE": str(place.cache), "HOME": str(home), "COSIGN_PASSWORD": "x"}
        made.append(Typist(place.folder, variables, [("/shared/cache", str(own / "shared"))]))
    yield made
    for user in made:
        remove_later(user.folder.parent)


@pytest.fixture(scope="module")
def site(users, registry):
    """A first user who has filled a registry with the image of a recipe that compiles, its base and layers."""
    first, _ = users
    if not (first.folder / "cosign.key").exists():
        first.type("./build.py keys")
    image = f"make image {settings(('vectors.toml', *lock_recipe(first, 'vectors')))}"
    given = first.typed(f"{image} CACHE={registry}/cache CACHE_KEY=cosign.key", ("make ", f"{MAKE} "))
    assert "compiling vectors" in given.stderr
    return first, image, given


def test_what_a_first_user_compiles_a_second_one_gets_by_its_signature(users):
    first, second = users
    ((keys, fill, take),) = blocks(PAGE, "A site's shared cache")
    first.type(keys)
    filled = first.typed(fill, HERE)
    assert "compiling annoy" in filled.stderr
    assert "to the shared cache" in filled.stderr
    (second.folder / "cosign.pub").write_bytes((first.folder / "cosign.pub").read_bytes())
    taken = second.typed(take, HERE)
    (said,) = [line for line in taken.stderr.splitlines() if line.startswith("from a shared cache, signed by a key")]
    # Both have locked it on one day, so it is one image; around midnight, the layer with its wheel is taken.
    assert said.endswith(("-annoy", "added packages, compiled")), said
    assert "compiling annoy" not in taken.stderr
    assert layers(second) == layers(first)
    for action in ("push --cache-key cosign.key", "list", "verify"):
        assert "annoy-" in first.type(f"./build.py cache {action} --cache /shared/cache --cache-trust cosign.pub")
    again = second.typed("./build.py cache verify --share 1 --cache /shared/cache --cache-trust cosign.pub")
    assert "made again, the same bytes: annoy-" in again.stderr
    compiled = Path(second.environment["GRAPHCRATE_CACHE"], "compiled")
    shutil.rmtree(compiled, ignore_errors=True)
    assert "annoy-" in second.type("./build.py cache pull --cache /shared/cache --cache-trust cosign.pub")
    assert list(compiled.glob("*/annoy-*.whl"))
    assert first.type("./build.py cache prune --cache /shared/cache --cache-trust cosign.pub") == "", "all of it counts"


@pytest.mark.engine("docker-registry", "root", "setpriv", "useradd", "make")
def test_a_plain_user_of_another_machine_has_the_same_image_without_a_compiler_and_with_its_tests(
    site, workplace, registry, plain_user, scratch
):
    """Of another home, umask and Python; their cache has no layer, and the locked files alone (which are not read)."""
    first, image, given = site
    assert f"to the shared cache {registry}/cache: vectors:" in given.stderr
    place = second_place(workplace, scratch / "second")
    shutil.copytree(first.folder / "vectors", place.folder / "vectors")
    for path in (*first.folder.glob("vectors.*"), first.folder / "cosign.pub"):  # the recipe and its lock
        shutil.copy(path, place.folder)
    for path in (scratch / "second", *(scratch / "second").rglob("*")):
        if path.is_dir() or not path.is_relative_to(place.cache):  # downloads are hard links
            os.chown(path, plain_user.pw_uid, plain_user.pw_gid, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o077)
    words = f"umask 077; {image} CACHE={registry}/cache CACHE_TRUST=cosign.pub"
    user = " ".join(as_user(plain_user, "env", f"HOME={scratch}/second", f"GRAPHCRATE_CACHE={place.cache}"))
    taken = Typist(place.folder).typed(f"{user} PATH=/usr/bin:/bin bash -c {shlex.quote(words)}")
    assert taken.stdout.partition("@")[2] == given.stdout.partition("@")[2]
    assert f"from    the shared cache {registry}/cache: vectors:" in taken.stderr.splitlines()[-1]
    assert "step 1 of 4" not in taken.stderr
    assert not (place.cache / "compiled").exists()
    shutil.rmtree(place.cache / "files")
    more = Typist(place.folder).typed(f"{user} PATH=/usr/bin:/bin bash -c {shlex.quote(f'{words} WITH=iniconfig')}")
    assert "compiling" not in taken.stderr + more.stderr
    fetched = {path.name for path in place.cache.glob("files/*/*")}
    assert [name for name in fetched if name.startswith("iniconfig-")]
    assert [name for name in fetched if name.startswith("torch-") or name.endswith(".deb")] == [], "layers came"


def layers(user):
    """Titles and digests of the layers of a user's one image with the package.

    (Each has a lock of their own, with its time, which is in the configuration.)
    """
    report = min(user.folder.glob("dist/torch/*annoy/report.json"))
    return [(layer["title"], layer["digest"]) for layer in json.loads(report.read_text())["layers"]]


#: a package that a compiler makes, in seconds
SOURCES = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "{name}"\nversion = "1.0"\n',
    "setup.py": "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('{name}', ['{name}.c'])])\n",
    "{name}.c": "#include <Python.h>\n"
    'static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{name}", 0, -1, 0}};\n'
    "PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&module); }}\n",
}


def lock_recipe(user, name):
    """Write a recipe with a project that is compiled, and lock it; return the options of its builds, after its name."""
    (project := user.folder / name).mkdir()
    for file, text in SOURCES.items():
        (project / file.format(name=name)).write_text(text.format(name=name))
    cuda, *options = small_stack()[2:]
    (user.folder / f"{name}.toml").write_text(f'extends = "torch"\ncuda = "{cuda}"\npip = ["./{name}"]\n')
    user.type(f"./build.py lock ./{name}.toml {shlex.join(options)}")
    return options


class Builders:
    """Builders of one recipe and lock at one shared cache, each with an empty cache but for downloads and bases.

    A compiler's is 151 packages more.
    """

    def __init__(self, user, folder, name, place):
        self.user, self.folder, self.name, self.begun = user, folder, name, []
        self.options = lock_recipe(user, name)
        self.options += ["--no-smoke", "--cache", place, "--cache-key", "cosign.key", "--cache-trust", "cosign.pub"]

    def start(self):
        """Start one more; the lines that it says go to a file."""
        home = self.folder / str(len(self.begun))
        for copy in (copy_downloads, copy_bases):
            copy(Path(self.user.environment["GRAPHCRATE_CACHE"]), home / "cache")
        environment = {**self.user.environment, "GRAPHCRATE_CACHE": str(home / "cache"), "HOME": str(home)}
        with (home / "said").open("w") as said:
            process = subprocess.Popen(
                [*MAIN, "image", f"./{self.name}.toml", "--output", home / "dist", *self.options],
                cwd=self.user.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                encoding="utf-8",
                start_new_session=True,
            )
        self.begun.append(process)
        return process

    def said(self, process):
        return (self.folder / str(self.begun.index(process)) / "said").read_text()

    @property
    def compiling(self):
        """Those that have begun to compile."""
        return [process for process in self.begun if f"compiling {self.name}" in self.said(process)]

    def digests(self, processes):
        """Wait for the end of these; the digests of their images."""
        printed = [process.communicate(timeout=900)[0] for process in processes]
        assert {process.returncode for process in processes} == {0}, [self.said(process) for process in processes]
        return {text.partition("@")[2] for text in printed}


@pytest.mark.engine("docker-registry")
@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.weekly)])
def test_builders_at_once_at_a_registry_compile_once(site, registry, scratch, count):
    name = f"together{count}"
    builders = Builders(site[0], scratch, name, f"{registry}/cache")
    for _ in range(count):
        builders.start()
    assert len(builders.digests(builders.begun)) == 1
    assert len(builders.compiling) == 1
    waiting = [process for process in builders.begun if f"waiting for {name} of graphcrate " in builders.said(process)]
    assert len(waiting) < count


@pytest.mark.weekly  # five minutes: a lease has to expire
@pytest.mark.engine("docker-registry")
def test_builder_that_is_killed_while_it_compiles_is_replaced_by_one_other(site, registry, scratch):
    """By a folder; base and layers come from the registry."""
    builders = Builders(site[0], scratch, "killed", scratch / "shared")
    builders.options += ["--cache", f"{registry}/cache"]
    first = builders.start()
    until(lambda: builders.compiling, seconds=600, process=first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    others = [builders.start() for _ in range(3)]
    assert len(builders.digests(others)) == 1
    assert len(builders.compiling) == 2
