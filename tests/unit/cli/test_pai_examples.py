"""examples/pai/: what `./build.py job` writes for the commands of docs/tutorials/pai.md, and nothing by hand."""

import json
import re
import shlex

import pytest
from glt import partition, train_distributed
from typer.testing import CliRunner

from graphcrate.cli.main import app
from tests import ROOT
from tests.engines.typist import blocks

PAI, PAGE = ROOT / "examples" / "pai", ROOT / "docs" / "tutorials" / "pai.md"
IMAGE = "registry.cn-shanghai.aliyuncs.com/team/glt:2.5.3-torch2.3.1-cu121-py311"


def requests():
    return {path.name: json.loads(path.read_text()) for path in PAI.glob("*.json")}


def program(request):
    """The program of a job and its arguments, as a shell of DLC's second node reads them."""
    command = request["UserCommand"]
    for name, value in {"MASTER_ADDR": "glt-train-master-0", "WORLD_SIZE": "2", "RANK": "1"}.items():
        command = command.replace(f"${name}", value)
    python, path, *argv = shlex.split(command)
    assert python == "python"
    return path.removeprefix("/opt/graphcrate/examples/"), argv


@pytest.mark.parametrize(("heading", "name"), [("Cut the graph", "partition"), ("Train", "train")])
def test_pai_request_files_equal_the_output_of_the_commands_on_the_page(heading, name):
    ((command, *_),) = blocks(PAGE, heading)
    registry, tag = IMAGE.split("/glt:")
    words, target = command.replace("<registry>", registry).replace("<tag>", tag).split(" > ")
    assert target == f"{name}.json"
    told = CliRunner().invoke(app, shlex.split(words)[1:])
    assert told.exit_code == 0, told.output
    assert told.stdout == (PAI / f"{name}.json").read_text()


def test_dsw_request_has_the_image_of_the_job_command():
    told = CliRunner().invoke(app, ["job", IMAGE, "--runtime", "pai-dsw"])
    found = requests()
    assert found["dsw.json"]["ImageUrl"] == told.stdout.strip()
    worker = found["train.json"]["JobSpecs"][0]
    assert (found["dsw.json"]["ImageUrl"], found["dsw.json"]["EcsSpec"]) == (worker["Image"], worker["EcsSpec"])
    assert re.fullmatch(r"\w{1,27}", found["dsw.json"]["InstanceName"])
    ((mount,), (source,)) = found["dsw.json"]["Datasets"], found["train.json"]["DataSources"]
    assert (mount["DatasetId"], mount["MountPath"]) == (source["DataSourceId"], source["MountPath"])


def test_pai_partition_and_train_requests_agree_on_folder_and_number():
    found = requests()
    cut, train = found["partition.json"], found["train.json"]
    name, argv = program(cut)
    assert name == "glt/partition.py"
    made = partition.arguments(argv)
    name, argv = program(train)
    assert name == "glt/train_distributed.py"
    told = train_distributed.arguments(argv)
    assert (told.dataset, told.num_nodes) == (made.output, made.num_partitions)
    assert (told.node_rank, told.master_addr) == (1, "glt-train-master-0")
    assert train["JobSpecs"][0]["PodCount"] == made.num_partitions
    assert str(made.output).startswith(f"{cut['DataSources'][0]['MountPath']}/")
