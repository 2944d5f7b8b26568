"""The hosts of examples/glt/launch.py: its config, and what each host is told to run."""

import re

import pytest
from glt import launch, train_distributed
from proof import hosts
from proof.verdict import Fault


def config(tmp_path, text):
    (tmp_path / "hosts.yml").write_text(text)
    return hosts.read(tmp_path / "hosts.yml")


WHOLE = """\
nodes:
  - 10.0.0.1
  - 10.0.0.2
ports: [22, 2200]
usernames: [ann, bob]
python_bins: singularity exec --nv glt.sif python
dataset: /data/parts
in_channel: 100
out_channel: 47
visible_devices:
  - 0,1,2,3
  - 0
arguments: --fan_outs 15,10 --hidden 128
"""


def test_the_config_of_the_tutorial_is_read(tmp_path):
    found = config(tmp_path, WHOLE)
    told = [(host.user, host.port, host.devices) for host in found.hosts]
    assert told == [("ann", 22, "0,1,2,3"), ("bob", 2200, "0")]
    argv = launch.command(found, found.hosts[1], launch.arguments(["--config", "hosts.yml", "--epochs", "3"]))
    assert argv[:5] == ["singularity", "exec", "--nv", "glt.sif", "python"]
    told = train_distributed.arguments(argv[6:])
    assert (told.num_nodes, told.node_rank, told.master_addr) == (2, 1, "10.0.0.1")
    assert (told.in_channel, told.fan_outs, told.epochs, told.batch_size) == (100, (15, 10), 3, 2048)
    assert (told.training_pg_master_port, told.test_loader_master_port) == (11234, 11236)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ports: [22, 2200]", "ports: [22]"), "hosts.yml:4: ports: it has 1 entries for 2 nodes"),
        (("2200", "22000000"), "hosts.yml:4: ports: '22000000' is no port"),
        (("usernames", "username"), "hosts.yml:5: username: there is no such field; is usernames meant?"),
        (("dataset: /data/parts\n", ""), "hosts.yml: dataset: it is missing"),
        (("  - 10.0.0.2", "  - bob@10.0.0.2"), "hosts.yml:2: nodes: 'bob@10.0.0.2' is no address"),
        (("  - 10.0.0.2", "  - "), "hosts.yml:3: nodes: an entry is empty"),
        (("dataset: /data/parts", "dataset: {a: b}"), "hosts.yml:7: dataset: it must be a list of texts"),
        (("in_channel: 100", "in_channel: many"), "hosts.yml:8: in_channel: 'many' is no number"),
        (("nodes:", "nodes: ["), "hosts.yml:2: it is no YAML"),
        (("exec --nv", '"exec --nv'), "hosts.yml:6: python_bins: .*No closing quotation"),
        (("ports: [22, 2200]", "ports: 22\nports: 23"), "hosts.yml:5: ports: it is there twice"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_field(tmp_path, change, message):
    assert change[0] in WHOLE
    with pytest.raises(Fault, match=re.escape(message).replace(r"\.\*", ".*")):
        config(tmp_path, WHOLE.replace(*change))


@pytest.mark.parametrize(
    "argv", [[], ["--config", "h", "--run", "a b"], ["--stop", "../x"], ["--master_port", "65534"]]
)
def test_wrong_calls_of_the_launcher_are_told(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        launch.arguments(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err
