"""`init --devcontainer`, as an editor opens it: the devcontainer program of npm, our image in a real Docker."""

import json
import re
import sys

import pytest

from tests.conftest import program
from tests.engines.test_customize import as_here
from tests.engines.typist import Typist
from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.engine("devcontainer", "docker daemon", "user namespaces")]

TRAINING = "import os, sys, torch\nprint(torch.__version__, sys.prefix, os.getcwd(), os.listdir('/data'))\n"


@pytest.fixture
def project(workplace, built_image, docker, scratch):
    """A folder of a person's own, with a recipe on the small stack."""
    folder = scratch / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data/graph.csv").touch()
    (folder / "train.py").write_text(TRAINING)
    (folder / "mine.toml").write_text(as_here('extends = "torch"\ncuda = "11.8"\nmounts = ["data:/data:ro"]\n'))
    variables = {"PYTHONPATH": str(workplace.folder), "GRAPHCRATE_CACHE": str(workplace.cache), "DOCKER_HOST": docker}
    # the image is the small one under another name, which was tested
    changes = [("make image RECIPE=mine.toml", "./build.py image mine.toml --no-smoke")]
    return Typist(folder, variables, [*changes, ("./build.py", f"{sys.executable} -m graphcrate.cli.main")])


def test_editor_opens_a_project_in_the_image_of_its_recipe_and_trains(project, built_image):
    done = project.typed("./build.py init --devcontainer")
    assert done.stdout == "mine.toml\n.devcontainer/devcontainer.json\n"
    assert "Loaded image" in project.type(re.search(r"^next: (.*)$", done.stderr, re.MULTILINE)[1])
    words = ("--workspace-folder", project.folder)

    def devcontainer(verb, *more):
        return call("devcontainer", verb, *words, *more, environment=project.environment, folder=project.folder)

    told = json.loads(devcontainer("up").splitlines()[-1])
    try:
        assert (told["outcome"], told["remoteWorkspaceFolder"]) == ("success", "/work")
        read = json.loads(devcontainer("read-configuration", "--include-merged-configuration"))
        assert read["mergedConfiguration"]["hostRequirements"]["gpu"] == "optional"
        torch = built_image.report["torch"]
        assert devcontainer("exec", "python", "train.py") == f"{torch} /opt/venv /work ['graph.csv']\n"
        devcontainer("exec", "sh", "-c", "echo written >/work/made; ! touch /data/x 2>/dev/null")
        assert (project.folder / "made").read_text() == "written\n", "the project's folder is the editor's"
    finally:
        call(program("docker"), "rm", "--force", told["containerId"], environment=project.environment)
        image = json.loads((project.folder / ".devcontainer/devcontainer.json").read_text())["image"]
        call(program("docker"), "rmi", "--force", image, environment=project.environment)
