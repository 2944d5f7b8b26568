"""docs/tutorials/glt.md and the jobs of pai.md, typed in an image with GLT: for the tests of images that have it.

ogbn-products cannot be downloaded where tests run: the generated graph stands in, under the names that the page gives.
"""

import contextlib
import gzip
import io
import json
import random
import shlex
import subprocess
import zipfile

from tests.conftest import ROOT
from tests.engines.typist import Typist, blocks
from tests.loopback import Answers, Loopback

GLT, PAI = ROOT / "docs" / "tutorials" / "glt.md", ROOT / "docs" / "tutorials" / "pai.md"
#: no GPU and a small graph: other data, and few epochs of small steps
SMALL = "--device=cpu --epochs=2 --batch_size=64 --fan_outs=10,5 --hidden=32"
CHANGES = (
    ("--dataset=ogbn-products", "--dataset=generated --output=data/ogbn-products-in-2"),
    ("train_distributed.py ", f"train_distributed.py {SMALL} "),
)


def archive():
    """ogbn-products in small (300 nodes, 900 edges, 100 features, 47 classes): products.zip as OGB packs it."""
    draw = random.Random(1)
    splits = {"train": range(100), "valid": range(100, 150), "test": range(150, 300)}
    rows = {
        "raw/edge": [(draw.randrange(300), draw.randrange(300)) for _ in range(900)],
        "raw/node-feat": [[round(draw.gauss(0, 1), 3) for _ in range(100)] for _ in range(300)],
        "raw/node-label": [[draw.randrange(47)] for _ in range(300)],
        "raw/num-node-list": [[300]],
        "raw/num-edge-list": [[900]],
        **{f"split/sales_ranking/{role}": [[node] for node in nodes] for role, nodes in splits.items()},
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr("products/processed/", b"")
        packed.writestr("products/RELEASE_v1.txt", b"")
        for name, lines in rows.items():
            text = "".join(",".join(map(str, line)) + "\n" for line in lines)
            packed.writestr(f"products/{name}.csv.gz", gzip.compress(text.encode()))
    return stream.getvalue()


class _Ogb(Answers):
    """OGB's own server, as a proxy. It says 1.4 GB at first: OGB's package asks a person before it takes as much."""

    def do_GET(self):
        self.addresses.append(self.path)
        size = 1_481_000_000 if len(self.addresses) == 1 else len(self.content)
        with contextlib.suppress(OSError):
            self.answer(200, self.content, {"Content-Length": str(size)}, len(self.content))


class OgbServer(Loopback):
    """`asked`: addresses of the requests."""

    def __enter__(self):
        self.asked = []
        return self.start(_Ogb, content=archive(), addresses=self.asked)


def verdicts(output):
    """The lines of JSON."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def passed(told, **metrics):
    """Return whether both nodes of a training passed, with these figures."""
    assert [one["status"] for one in told] == ["passed"] * 2
    assert all(one["metrics"].items() >= metrics.items() for one in told)


def type_cutting(folder, sif, environment):
    """Type "Cut the graph" in a folder that has `glt.sif`; what the others need."""
    (folder / "glt.sif").symlink_to(sif)
    user = Typist(folder, environment, CHANGES)
    (cut,), (make, own) = blocks(GLT, "Cut the graph")
    made = [verdicts(user.type(cut))[-1]["metrics"]["made"] for _ in range(2)]
    assert made == [True, False]
    user.type(make)
    mine = verdicts(user.type(own))[-1]["metrics"]
    assert (mine["nodes"], mine["out_channel"]) == (2000, 4)


def download_products(folder, environment):
    """The page's own command, with OGB's server played on loopback; then again with neither network nor folder."""
    (cut,), _ = blocks(GLT, "Cut the graph")
    with OgbServer() as server:
        variables = {"http_proxy": f"http://{server.address}", "no_proxy": ""}
        out = Typist(folder, {**environment, **variables}).type(cut, ("--root=data", "--root=ogb"))
    assert server.asked == ["http://snap.stanford.edu/ogb/data/nodeproppred/products.zip"] * 2
    assert "Will you proceed? (y/N) y\n" in out
    figures = verdicts(out)[-1]["metrics"]
    assert (figures["nodes"], figures["edges"], figures["in_channel"], figures["out_channel"]) == (300, 1800, 100, 47)
    nowhere = {**environment, "http_proxy": "http://127.0.0.1:9"}  # where nobody listens
    told = verdicts(Typist(folder, nowhere).type(cut, ("--root=data", "--root=none"), code=1))[-1]
    assert told["layer"] == "data"
    assert f"put its folder products here as {folder}/none/ogbn_products" in told["reason"]
    assert "raw/edge.csv.gz" in told["reason"]


def train_on_hosts(hosts, folder, environment, commands):
    """Each command on a host of its own, at once; their verdicts. `commands` as a page has them."""
    running = []
    for number, command in enumerate(commands):
        for before, after in (*CHANGES, ("10.0.0.1", hosts.addresses[0])):
            command = command.replace(before, after)
        log = folder / f"node{number}.txt"
        with log.open("w") as stream:
            argv = hosts.at(number, "bash", "-euc", command)
            process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=stream, stderr=stream)
        running.append((process, log))
    for process, log in running:
        assert process.wait(timeout=900) == 0, log.read_text()[-3000:]
    return [verdicts(log.read_text())[-1] for _, log in running]


def type_training(hosts, folder, environment):
    """Type "Train, node by node" on two hosts."""
    (first,), (second,) = blocks(GLT, "Train, node by node")
    told = train_on_hosts(hosts, folder, environment, [first, second])
    passed(told, nodes=2, test_accuracy=told[0]["metrics"]["test_accuracy"])
    assert told[0]["metrics"]["tested"] == 1624


def type_on_one_machine(folder, environment):
    """Type "On one machine": one part, then both parts at once; and the reader's own program."""
    user = Typist(folder, environment, CHANGES)
    (cut, train), pair = blocks(GLT, "On one machine")
    one = ("--dataset=ogbn-products", "--dataset=generated --output=data/ogbn-products-in-1")
    passed([verdicts(user.type(command, one))[-1] for command in (cut, train)])
    passed(verdicts(user.type("\n".join([*pair, "wait"]))), nodes=2)
    ((copy, run),) = blocks(GLT, "Your own program")
    user.type(copy)
    assert user.type(run).splitlines()[-1].startswith("2 parts, gloo: test accuracy ")


def type_under_slurm(folder, environment):
    """Type "Train under Slurm", with a cluster of two nodes in the environment."""
    (command,), _ = blocks(GLT, "Train under Slurm")
    passed(verdicts(Typist(folder, environment, CHANGES).type(command)), nodes=2)


def type_under_pyxis(site, folder):
    """Type the same for pyxis, where a site's person is, in a folder that has `glt.sqsh`; what it prints."""
    _, (command,) = blocks(GLT, "Train under Slurm")
    there = f"NVIDIA_VISIBLE_DEVICES=void {shlex.join(site.hosts.prefix)} srun "
    said = Typist(folder, site.environment, CHANGES).type(command, ("srun ", there))
    passed(verdicts(said), nodes=2)
    return said


def type_dlc_jobs(hosts, folder, environment):
    """Run what examples/pai/train.json does, on two hosts with the variables of DLC."""
    request = json.loads((ROOT / "examples" / "pai" / "train.json").read_text())
    command = request["UserCommand"].replace("/mnt/data", f"{folder}/data")
    given = f"export MASTER_ADDR={hosts.addresses[0]} MASTER_PORT=23456 WORLD_SIZE=2"
    ranks = range(request["JobSpecs"][0]["PodCount"])
    nodes = [f"{given} RANK={rank}; apptainer exec glt.sif {command}" for rank in ranks]
    passed(train_on_hosts(hosts, folder, environment, nodes))


def type_launching(hosts, folder, environment, login="root"):
    """Type "Train over ssh" where the person is; `login`: the person's name. What it prints."""
    (write,), (launch,) = blocks(GLT, "Train over ssh")
    changes = [
        ("10.0.0.1", hosts.addresses[0]),
        ("10.0.0.2", hosts.addresses[1]),
        ("usernames: ann", f"usernames: {login}\narguments: {shlex.quote(SMALL)}"),
        ("/data/ann", str(folder)),
        ("--epochs=10 --batch_size=2048", "--epochs=2 --batch_size=64"),
    ]
    user = Typist(folder, environment, changes)
    user.type(write)
    prefix = shlex.join([*map(str, hosts.prefix), ""]).removesuffix("''")
    there = f"{prefix}singularity exec --home {hosts.home} --bind {folder}"  # Singularity takes no HOME
    said = user.type(launch, ("singularity exec", there))
    told = verdicts(said)[-1]
    assert (told["status"], told["metrics"]["hosts"]) == ("passed", 2)
    assert "Epoch: 002" in (folder / "logs" / "first" / "0.log").read_text()
    return said


def type_notebook(folder, environment):
    """Type what pai.md has for a notebook's terminal, which is inside the image: one machine, one partition."""
    changes = (
        ("python /opt", "apptainer exec glt.sif python /opt"),
        ("--dataset=ogbn-products", "--dataset=generated"),
        ("/mnt/data", "notebook"),
        ("train_distributed.py ", f"train_distributed.py {SMALL} "),
    )
    user = Typist(folder, environment, changes)
    ((*commands,),) = blocks(PAI, "In a notebook (DSW)")
    assert [verdicts(user.type(command))[-1]["status"] for command in commands] == ["passed"] * 4
