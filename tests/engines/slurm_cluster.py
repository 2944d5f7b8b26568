"""A Slurm of the tests' own: nodes with cores and GPUs that they only claim to have, two partitions that work, and one
that never starts anything. The machine's own Slurm and munge, if it has any, stay untouched.

The nodes are two daemons on loopback, or `Ground` says how many there are and where: hosts with an address each.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import program
from tests.engines.daemons import free_ports, log_of, stop
from tests.engines.workplace import call, until

CONFIGURATION = """\
ClusterName=graphcrate
SlurmctldHost={host}({control})
SlurmctldPort={ports[0]}
FirstJobId={ports[0]}00
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=dgx2 Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
PartitionName=a100 Nodes=ALL MaxTime=INFINITE OverSubscribe=YES State=UP
PartitionName=closed Nodes=ALL MaxTime=INFINITE OverSubscribe=YES State=DOWN
"""
NODE = "NodeName=n{number} NodeHostname={host} NodeAddr={address} Port={port} CPUs=64 Gres=gpu:4 State=UNKNOWN"
#: on one machine, loopback alone
LOOPBACK = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n"
CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=no
"""


@dataclass(frozen=True)
class Ground:
    """The daemons' places: their addresses, and the words before each one's command that start it there.

    `settings`: more lines of slurm.conf; `environment`: more variables of the daemons; `mounts`: pairs of a folder of
    the node, made below the cluster's (`{node}` stands for its name), and where the node has it.
    """

    control: str = "127.0.0.1"
    nodes: tuple = ("127.0.0.1", "127.0.0.1")
    at_control: tuple = ()
    at_nodes: tuple = ((), ())
    settings: str = LOOPBACK
    environment: dict = field(default_factory=dict)
    mounts: tuple = ()


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers. `environment`: what its commands need to find it; `there`: what goes before them."""

    folder: Path
    environment: dict
    there: tuple = ()

    def ask(self, *command):
        """The output of one of Slurm's commands."""
        return call(*self.there, *command, environment={**os.environ, **self.environment}, timeout=60)

    def is_idle(self):
        """Return whether all nodes wait for work."""
        return set(self.ask("sinfo", "--noheader", "--Node", "--format=%t").split()) == {"idle"}

    def ended(self, job):
        """Wait for the end of a job, and return its exit code; `sbatch --wait` looks each half minute."""
        until(lambda: job not in self.jobs(), 600)
        return int(self.ask("scontrol", "show", "job", job).partition("ExitCode=")[2].partition(":")[0])

    def jobs(self):
        """Ids of the jobs in the queue, those of arrays apart."""
        return self.ask("squeue", "--noheader", "--array", "--format=%i").split()


@contextlib.contextmanager
def slurm_cluster(folder, ground=Ground()):
    """Start munge, the controller and the nodes' daemons with all their files in `folder`; stop them at the end.

    Gives the `Cluster`'s environment.
    """
    host = socket.gethostname().partition(".")[0]
    numbered, ports = list(enumerate(ground.nodes, 1)), free_ports(1 + len(ground.nodes))
    for name in ("state", "spool", "munge", *(f"tmp/n{number}" for number, _ in numbered)):
        (folder / name).mkdir(parents=True)
    nodes = "\n".join(
        NODE.format(number=number, host=host, address=address, port=ports[number]) for number, address in numbered
    )
    # the first job's number is of a port: clusters of several workers write into one project's dist/slurm
    text = CONFIGURATION.format(host=host, folder=folder, control=ground.control, ports=ports, nodes=nodes)
    (folder / "slurm.conf").write_text(text + ground.settings)
    (folder / "cgroup.conf").write_text(CGROUPS)
    names = "".join(f"{address} n{number}\n" for number, address in numbered)
    (folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n{names}")
    # Slurm wants a device file for each GPU, and does nothing with it here
    (folder / "gres.conf").write_text(
        "".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full", "random"))
    )
    cluster = Cluster(folder, {"SLURM_CONF": str(folder / "slurm.conf")}, ground.at_control)
    with contextlib.ExitStack() as stack:
        stack.callback(stop, _munge(folder / "munge"))
        stack.callback(stop, _daemon(["slurmctld", "-D"], cluster, ground, ground.at_control))
        for number, there in enumerate(ground.at_nodes, 1):
            stack.callback(stop, _daemon(["slurmd", "-D", "-N", f"n{number}"], cluster, ground, there))
        stack.callback(_cancel_all, cluster)
        with log_of(folder):
            until(lambda: _answered(cluster.is_idle), 60)
        yield cluster.environment


def _munge(folder):
    """munged with a key of its own. It insists on folders that no other user may write to."""
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    for path in (folder, folder / "key"):
        shutil.chown(path, "munge", "munge")
    names = ("socket", "pid-file", "log-file", "key-file", "seed-file")
    files = [f"--{name}={folder / name.removesuffix('-file')}" for name in names]
    prefix = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--pdeathsig", "TERM"]
    with (folder.parent / "munge.log").open("w") as log:
        process = subprocess.Popen([*prefix, program("munged"), "--foreground", *files], stdout=log, stderr=log)
    with log_of(folder.parent / "munge.log"):
        until((folder / "socket").exists, 60, process)
    return process


def _daemon(command, cluster, ground, there):
    name = command[-1]
    with (cluster.folder / f"{'-'.join(command)}.out").open("w") as log:
        # on a cluster nodes know each other by name: what runs on them sees these names too
        steps = [f"mount --bind {shlex.quote(str(cluster.folder / 'hosts'))} /etc/hosts"]
        for source, target in ground.mounts if "slurmd" in command else ():
            path = cluster.folder / source.format(node=name)
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o1777)
            Path(target).mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --bind {shlex.quote(str(path))} {target}")
        if there and "slurmd" in command:
            steps.append(f"hostname {name}")
        steps.append('exec "$@"')
        inside = [*there, "unshare", "--mount", "--uts", "--propagation", "slave", "sh", "-c", " && ".join(steps), "sh"]
        command = [*inside, "setpriv", "--pdeathsig", "TERM", program(command[0]), *command[1:]]
        # a session of its own: it starts jobs, which must not get an interrupt meant for the tests
        environment = {**os.environ, **cluster.environment, **ground.environment}
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def _cancel_all(cluster):
    with contextlib.suppress(AssertionError):
        cluster.ask("scancel", *cluster.jobs())
        until(lambda: not cluster.jobs(), 60)


def _answered(question):
    """The answer; False while the daemons that are asked begin."""
    with contextlib.suppress(AssertionError):
        return question()
    return False
