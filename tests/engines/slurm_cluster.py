"""A Slurm of the tests' own: two nodes with cores and GPUs that they only claim to have, two partitions that work, and
one that never starts anything. The machine's own Slurm and munge, if it has any, stay untouched.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import program
from tests.engines.daemons import free_ports, log_of, stop
from tests.engines.workplace import call, until

CONFIGURATION = """\
ClusterName=graphcrate
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64 Gres=gpu:4 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64 Gres=gpu:4 State=UNKNOWN
PartitionName=dgx2 Nodes=n[1-2] Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
PartitionName=a100 Nodes=n[1-2] MaxTime=INFINITE OverSubscribe=YES State=UP
PartitionName=closed Nodes=n[1-2] MaxTime=INFINITE OverSubscribe=YES State=DOWN
"""
CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=no
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers. `environment`: what its commands need to find it."""

    folder: Path
    environment: dict

    def ask(self, *command):
        """What one of Slurm's commands prints."""
        return call(*command, environment={**os.environ, **self.environment}, timeout=60)

    def is_idle(self):
        """Whether all nodes wait for work."""
        return set(self.ask("sinfo", "--noheader", "--Node", "--format=%t").split()) == {"idle"}

    def jobs(self):
        """Ids of the jobs in the queue, those of arrays apart."""
        return self.ask("squeue", "--noheader", "--array", "--format=%i").split()


@contextlib.contextmanager
def slurm_cluster(folder):
    """Start munge, the controller and the nodes' daemons with all their files in `folder`; stop them at the end.

    Gives the `Cluster`'s environment.
    """
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool", "munge", "tmp/n1", "tmp/n2"):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder, ports=free_ports(3)))
    (folder / "cgroup.conf").write_text(CGROUPS)
    (folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 n1 n2\n")
    # Slurm wants a device file for each GPU, and does nothing with it here
    (folder / "gres.conf").write_text(
        "".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full", "random"))
    )
    cluster = Cluster(folder, {"SLURM_CONF": str(folder / "slurm.conf")})
    with contextlib.ExitStack() as stack:
        stack.callback(stop, _munge(folder / "munge"))
        for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]):
            stack.callback(stop, _daemon(command, cluster))
        stack.callback(_cancel_all, cluster)
        with log_of(folder):
            until(lambda: _answered(cluster.is_idle), 60)
        yield cluster.environment


def _munge(folder):
    """munged with a key of its own. It insists on folders that nobody else may write to."""
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


def _daemon(command, cluster):
    with (cluster.folder / f"{'-'.join(command)}.out").open("w") as log:
        # on a cluster nodes know each other by name: what runs on them sees these names too
        names = f'mount --bind {shlex.quote(str(cluster.folder / "hosts"))} /etc/hosts && exec "$@"'
        inside = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", names, "sh"]
        command = [*inside, "setpriv", "--pdeathsig", "TERM", program(command[0]), *command[1:]]
        # a session of its own: it starts jobs, which must not get an interrupt meant for the tests
        return subprocess.Popen(
            command, env={**os.environ, **cluster.environment}, stdout=log, stderr=log, start_new_session=True
        )


def _cancel_all(cluster):
    with contextlib.suppress(AssertionError):
        cluster.ask("scancel", "--user", "root")
        until(lambda: not cluster.jobs(), 60)


def _answered(question):
    """The answer; False while the daemons that are asked begin."""
    with contextlib.suppress(AssertionError):
        return question()
    return False
