"""examples/glt/launch.py on two hosts: real ssh, real tmux, a program that stands in for the training.

The training itself is started this way in tests of images with GLT.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time

import pytest

from tests.conftest import ROOT, program
from tests.engines.workplace import call, kill

pytestmark = [pytest.mark.slow, pytest.mark.engine("two hosts")]

LAUNCH = "examples/glt/launch.py"

#: says what it was told, then does what its last argument says
TRAINING = """
import json, os, signal, sys, time
options = dict(word[2:].split("=") for word in sys.argv if "=" in word)
told = [options["node_rank"], options["master_addr"], os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getcwd()]
print("told", *told, flush=True)
what, rank = sys.argv[-1], options["node_rank"]
if what == "wait" or (what == "die" and rank == "0"):
    time.sleep(600)
if what == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "complain" and rank == "1":
    time.sleep(0.5)
    verdict = {"suite": "glt-train", "status": "failed", "layer": "data", "reason": "data: no such thing"}
    print(json.dumps(verdict), flush=True)
    sys.exit(1)
print(json.dumps({"suite": "glt-train", "status": "passed", "device": "cpu", "metrics": {"by": rank}, "versions": {}}))
"""


class Run:
    """A folder with a config, and calls of launch.py in it."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        (folder / "training.py").write_text(TRAINING)
        self.configure()

    def configure(self, **fields):
        """Write the config: fields of YAML, as text."""
        usual = {
            "nodes": f"[{', '.join(self.hosts.addresses)}]",
            "usernames": "root",
            "python_bins": sys.executable,
            "program": str(self.folder / "training.py"),
            "dataset": "/data/parts",
            "dst_paths": str(self.folder),
            "visible_devices": "['0,1', '2']",
        }
        lines = [f"{name}: {text}\n" for name, text in {**usual, **fields}.items() if text is not None]
        (self.folder / "hosts.yml").write_text("".join(lines))

    def start(self, what, *more, run="first"):
        config = ("--config", "hosts.yml", "--run", run)
        return self.hosts.start(sys.executable, ROOT / LAUNCH, *config, *more, "--", what, cwd=self.folder)

    def call(self, *arguments, environment=None):
        """(exit code, verdict, all that it said)."""
        words = [sys.executable, ROOT / LAUNCH, *arguments]
        code, said = self.hosts.run(*words, cwd=self.folder, environment=environment or {})
        return code, json.loads(said.splitlines()[-1]), said

    def launch(self, what, *more, run="first", environment=None):
        return self.call("--config", "hosts.yml", "--run", run, *more, "--", what, environment=environment)

    def left(self):
        """Its processes still on the hosts, and its files there."""
        found = call("ps", "-ww", "-eo", "args").splitlines()
        running = [line for line in found if str(self.folder) in line and "launch.py" not in line]
        kept = list((self.hosts.home / ".local" / "state" / "graphcrate").rglob("*"))
        return running + kept


@pytest.fixture
def run(hosts, scratch):
    made = Run(hosts, scratch)
    yield made
    left = made.left()
    for path in (scratch / "logs").glob("*"):
        made.call("--stop", path.name)  # one test's trouble is not the next one's
    assert left == []


def hear_both(process):
    """Read until both hosts have said something."""
    heard = ""
    while not ("[0] told" in heard and "[1] told" in heard):
        line = process.stdout.readline()
        assert line, heard
        heard += line


def test_it_starts_on_both_hosts_and_gathers_what_they_say(run):
    code, verdict, said = run.launch("pass")
    assert code == 0, said
    assert (verdict["status"], verdict["metrics"]) == ("passed", {"by": "0", "hosts": 2})
    first = run.hosts.addresses[0]
    for rank, devices in enumerate(("0,1", "2")):
        line = f"told {rank} {first} {devices} {run.folder}"
        assert f"[{rank}] {line}\n" in said
        assert (run.folder / "logs" / "first" / f"{rank}.log").read_text().splitlines()[0] == line


def test_one_rank_that_dies_or_fails_ends_all_and_is_named(run):
    start = time.monotonic()
    code, verdict, said = run.launch("die")
    assert code == 1, said
    assert "rank 1 died: node 1 (root@" in verdict["reason"]
    assert "was ended by SIGKILL" in verdict["reason"]
    assert time.monotonic() - start < 30
    code, verdict, said = run.launch("complain", run="second")
    assert (code, verdict["layer"]) == (1, "data"), said
    assert "node 1" in verdict["reason"]
    assert "no such thing" in verdict["reason"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_the_processes_of_both_hosts(run, number):
    process = run.start("wait")
    hear_both(process)
    os.killpg(process.pid, number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert "stopping what runs on 2 of 2 hosts" in said


def test_a_closed_terminal_stops_nothing_and_the_run_is_followed_again(run):
    process = run.start("wait")
    hear_both(process)
    kill(process)
    assert len([line for line in run.left() if "training.py" in str(line)]) == 2
    code, verdict, _ = run.launch("pass")
    assert code == 1
    assert "a run of this name was started there: --attach or --stop it" in verdict["reason"]
    again = run.hosts.start(sys.executable, ROOT / LAUNCH, "--attach", "first", cwd=run.folder)
    hear_both(again)
    code, verdict, said = run.call("--stop", "first")
    assert code == 0, said
    again.communicate(timeout=60)
    assert again.returncode == 1
    _, verdict, _ = run.call("--attach", "other")
    assert "there is no run other in logs; there are: first" in verdict["reason"]


# Hosts that refuse


def test_refused_ssh_key_is_named_with_ssh_copy_id(run, scratch):
    other = scratch / "other"
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other)
    code, verdict, said = run.launch("pass", "--identity", other)
    assert code == 1, said
    assert verdict["layer"] == "network"
    for rank, address in enumerate(run.hosts.addresses):
        assert f"node {rank} (root@{address}:22): it refuses the user root with these keys: {other}" in said
        assert f"ssh-copy-id -p 22 root@{address}" in verdict["reason"]


def test_a_name_that_nobody_knows_and_a_closed_port_are_told(run):
    run.configure(nodes=f"[no-such-host.invalid, {run.hosts.addresses[1]}]", ports="[22, 2222]")
    _, verdict, _ = run.launch("pass")
    closed = f"node 1 (root@{run.hosts.addresses[1]}:2222): port 2222 takes no connection (Connection refused)"
    assert closed in verdict["reason"]
    assert "node 0 (root@no-such-host.invalid:22): nobody knows this name here" in verdict["reason"]


def test_a_host_that_is_met_for_the_first_time_is_trusted_only_on_request(run, scratch):
    stranger = scratch / "stranger"
    shutil.copytree(run.hosts.home, stranger)
    (stranger / ".ssh" / "known_hosts").unlink()
    elsewhere = {"HOME": str(stranger)}
    code, verdict, said = run.launch("pass", environment=elsewhere)
    assert code == 1, said
    assert "its key is not in ~/.ssh/known_hosts; it shows ssh-ed25519 SHA256:" in verdict["reason"]
    assert f"ssh-keyscan -p 22 {run.hosts.addresses[0]} >> ~/.ssh/known_hosts" in verdict["reason"]
    code, _, said = run.launch("pass", "--accept-new-hosts", environment=elsewhere)
    assert code == 0, said
    code, _, said = run.launch("pass", run="second", environment=elsewhere)
    assert code == 0, said


def test_changed_host_key_is_refused_with_accept_new_hosts_too(run, scratch):
    stranger = scratch / "stranger"
    shutil.copytree(run.hosts.home, stranger)
    known = stranger / ".ssh" / "known_hosts"
    one, two = sorted(known.read_text().splitlines())
    known.write_text(f"{one.split()[0]} {two.split(' ', 1)[1]}\n{two}\n")
    code, verdict, _ = run.launch("pass", "--accept-new-hosts", environment={"HOME": str(stranger)})
    assert code == 1
    assert "its key is another than the one in ~/.ssh/known_hosts" in verdict["reason"]


def test_what_is_missing_on_a_host_is_told_before_anything_starts(run):
    run.configure(dst_paths="/no/such/folder", python_bins="[no-such-python, singularity-of-nowhere exec x.sif python]")
    _, verdict, _ = run.launch("pass")
    assert "there is no folder /no/such/folder (dst_paths)" in verdict["reason"]
    assert "there is no program no-such-python (python_bins)" in verdict["reason"]
    assert "there is no program singularity-of-nowhere (python_bins)" in verdict["reason"]
    assert not (run.folder / "logs").exists()


def test_run_ends_when_a_host_goes_down(run):
    process = run.start("wait")
    hear_both(process)
    eth0 = run.hosts.at(1, program("ip"), "link", "set", "eth0")
    call(*eth0, "down")
    try:
        said, _ = process.communicate(timeout=180)
    finally:
        call(*eth0, "up")
    verdict = json.loads(said.splitlines()[-1])
    assert f"node 1 (root@{run.hosts.addresses[1]}:22) is gone" in verdict["reason"], said
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    code, _, said = run.call("--stop", "first")
    assert code == 0, said
