"""One lock, three builders, the same files; and texts that build alone, on a base that lacks everything.

The differences that are allowed, each with its reason, are in `graphcrate/artifacts/tree/allowances.toml`.
"""

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from graphcrate import render
from graphcrate.compat.plan import planning
from graphcrate.compat.variants import recipes
from graphcrate.model.lock import decode_lock
from tests.engines.workplace import call, small_stack

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("user namespaces")]

#: of a real lock, small ones from each group, and one that is there as source only
FEW = ("nvidia-nvtx-cu11", "numpy", "tqdm", "pip", "torch-geometric")
IMPORTS = (
    "import numpy, tqdm, importlib.metadata as m; print('versions', numpy.__version__, m.version('torch_geometric'))"
)


@pytest.fixture(scope="module")
def mine(workplace, built_image):
    """A recipe of one's own on the small stack, with a package, a file and a smoke test: its request and layout."""
    _, *options = small_stack()
    (workplace.folder / "train.py").write_text("import tabulate\nprint('trained')\n")
    (workplace.folder / "mine.toml").write_text(
        f'extends = "torch"\ncuda = "{options[options.index("--cuda") + 1]}"\npip = ["tabulate"]\n'
        'env = { MINE = "two words" }\n'  # so that it does not begin with the stack's own image
        'files = { "/opt/mine/train.py" = "train.py" }\nsmoke = ["python /opt/mine/train.py"]\n'
    )
    request = ("image", "./mine.toml", *options)
    finished = workplace.run(*request, "--no-smoke", "--json").ok()
    return request, finished.json["layout"]


def built(workplace, request, engine, environment):
    """The image by an engine, with its smoke tests passed: workplace and what names the image."""
    place = workplace.having(**environment)
    finished = place.run(*request, "--engine", engine).ok()
    report = json.loads(next((place.folder / "dist" / "mine").glob(f"*/{engine}/report.json")).read_text())
    assert {(suite["suite"], suite["status"]) for suite in report["suites"]} >= {
        ("torch", "passed"),
        ("own-1", "passed"),
    }
    assert finished.out.strip() == report["artifact"]["reference"]
    again = place.run(*request, "--engine", engine)
    assert again.code == 0
    assert "build" not in again.err.replace(f"engine: {engine}", ""), "nothing was to be done"
    return place, report["artifact"]["reference"]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("docker", marks=pytest.mark.engine("docker daemon")),
        pytest.param("apptainer", marks=pytest.mark.engine("apptainer build")),
    ],
)
def test_image_of_each_engine_has_the_files_of_ours(workplace, mine, request, engine):
    given = request.getfixturevalue(engine)
    docker = engine == "docker"
    environment = {"DOCKER_HOST": given} if docker else {name: given[name] for name in given if "APPTAINER" in name}
    asked, layout = mine
    place, image = built(workplace, asked, engine, environment)
    finished = place.run("diff", layout, f"docker:{image}" if docker else image, "--json")
    told = json.loads(finished.out)
    assert (finished.code, told["unexpected"][:20]) == (0, [])


@pytest.fixture(scope="module")
def few(project):
    """A plan of a few small packages of the committed lock, without the programs."""
    recipe = recipes.load(project / "recipes" / "pyg.toml")
    lock = decode_lock((project / "images/pyg/cu118/compatible.lock.json").read_bytes())
    packages = tuple(package for package in lock.packages if package.name in FEW)
    assert len(packages) == len(FEW)
    lock = msgspec.structs.replace(lock, packages=packages)
    return planning.make_plan(recipe, lock, recipe.variant("11.8").candidates[1], examples={})


def bring_authorities(folder):
    """Certificates and proxies that a text that builds alone needs on this machine."""
    certificates = os.environ.get("SSL_CERT_FILE", "")
    if Path(certificates).is_file():
        shutil.copyfile(certificates, folder / "ca.crt")


@pytest.mark.weekly
@pytest.mark.engine("docker daemon")
def test_a_dockerfile_alone_builds_with_plain_docker_build(few, scratch, docker, docker_base):
    bring_authorities(scratch)
    (scratch / "Dockerfile").write_text(render.dockerfile(few))
    environment = {**os.environ, "DOCKER_BUILDKIT": "0", "DOCKER_HOST": docker}
    call("docker", "build", "--tag", "lone:1", ".", environment=environment, folder=scratch)
    run = ["docker", "run", "--rm", "--network", "none", "lone:1"]
    assert "versions 1.26.4 2.3.1" in call(*run, "python", "-c", IMPORTS, environment=environment)
    left = call(*run, "sh", "-c", "ls -A /root /tmp /opt /var/lib/apt/lists; pip --version", environment=environment)
    assert "ca.crt" not in left
    assert "requirements.txt" not in left
    assert "tools" not in left


@pytest.mark.weekly
@pytest.mark.engine("apptainer build")
def test_apptainer_builds_the_definition_without_graphcrate(few, scratch, apptainer, debian_base):
    bring_authorities(scratch)
    (scratch / "lone.def").write_text(render.definition(few, bootstrap="oci", base=debian_base.layout))
    sif = scratch / "lone.sif"
    build = ["apptainer", "build", "--fakeroot", "--notest", sif, "lone.def"]
    call(*build, environment=apptainer, folder=scratch)
    output = call(
        "singularity", "run", "--cleanenv", sif, "python", "-c", IMPORTS, environment=apptainer, folder=scratch
    )
    assert "versions 1.26.4 2.3.1" in output
    assert "Run a program in it" in call("singularity", "run", sif, environment=apptainer)
    kept = call("apptainer", "inspect", "--json", sif, environment=apptainer)
    assert json.loads(kept)["data"]["attributes"]["labels"]["graphcrate.recipe"] == "pyg"
