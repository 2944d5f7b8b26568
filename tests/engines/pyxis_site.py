"""A cluster with the real pyxis and enroot on two hosts, each with its own network, name and containers.

Debian has neither: `PYXIS_SOURCES` names a folder with clones of both, `pyxis` and `enroot`, which are compiled here
against Debian's own Slurm and musl (libslurm-dev, slurm-wlm-basic-plugins-dev, musl-tools, jq, parallel).
"""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.engines.slurm_cluster import Cluster, Ground, slurm_cluster
from tests.engines.two_hosts import Hosts
from tests.engines.workplace import call

SOURCES = os.environ.get("PYXIS_SOURCES", "")
#: as sites have it: what a node holds is its own, and each user's apart
ENROOT = """\
ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)
ENROOT_CACHE_PATH /var/cache/enroot/user-$(id -u)
ENROOT_DATA_PATH /var/lib/enroot/user-$(id -u)
ENROOT_SQUASH_OPTIONS -noI -noD -noF -noX -no-duplicates
ENROOT_MOUNT_HOME no
ENROOT_ROOTFS_WRITABLE yes
"""
NODE_FOLDERS = ("/run/enroot", "/run/pyxis", "/var/cache/enroot", "/var/lib/enroot")


@dataclass(frozen=True)
class PyxisSite:
    """A cluster with pyxis. `path`: a PATH with enroot."""

    hosts: Hosts
    cluster: Cluster
    path: str

    @property
    def environment(self):
        """Return the environment of a person's shell at the third host."""
        return {**os.environ, **self.cluster.environment, "PATH": self.path, "HOME": str(self.hosts.home)}

    def run(self, *command, folder=None, timeout=600, **variables):
        """(exit code, what it said) of a command that the person types there."""
        done = subprocess.run(
            [*self.hosts.prefix, *map(str, command)],
            cwd=folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        return done.returncode, done.stdout

    def containers(self):
        """Those that each node's disk holds: (node, name)."""
        found = (self.cluster.folder / "nodes").glob("n?/var/lib/enroot/user-*/*")
        return sorted((path.relative_to(self.cluster.folder / "nodes").parts[0], path.name) for path in found)


def compiled(folder, sources=SOURCES):
    """Compile both below a folder, once; return it, with bin/enroot and spank_pyxis.so."""
    if (folder / "spank_pyxis.so").exists():
        return folder
    work = folder / "work"
    for name in ("pyxis", "enroot"):
        shutil.copytree(Path(sources) / name, work / name, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    deps = work / "enroot" / "deps"
    (deps / "dist" / "musl" / "bin").mkdir(parents=True)
    (deps / "dist" / "musl" / "bin" / "musl-gcc").symlink_to("/usr/bin/musl-gcc")
    headers = deps / "dist" / "linux" / "include"
    headers.mkdir(parents=True)
    (headers / "linux").symlink_to("/usr/include/linux")
    (headers / "asm-generic").symlink_to("/usr/include/asm-generic")
    (headers / "asm").symlink_to("/usr/include/x86_64-linux-gnu/asm")
    (deps / "dist" / "makeself" / "bin").mkdir(parents=True)
    (deps / "dist" / "makeself" / "bin" / "enroot-makeself").touch()
    for name in ("makeself", "musl", "linux-headers"):  # the submodules, of which Debian has what is needed
        (deps / name).mkdir(exist_ok=True)
        (deps / name / ".stamp").touch()
    call("make", "-s", "-C", deps, "libbsd", "CC=gcc")
    environment = {**os.environ, "LDFLAGS": "-static"}
    target = ("install", f"prefix={folder}", "CC=/usr/bin/gcc")
    call("make", "-s", "-C", work / "enroot", "-o", "deps", *target, environment=environment)
    call("make", "-s", "-C", work / "pyxis")
    (folder / "etc" / "enroot" / "enroot.conf").write_text(ENROOT)
    for hook in ("50-slurm-pytorch.sh", "50-slurm-pmi.sh"):
        shutil.copy(folder / "share" / "enroot" / "hooks.d" / hook, folder / "etc" / "enroot" / "hooks.d")
    shutil.copy(work / "pyxis" / "spank_pyxis.so", folder)
    shutil.rmtree(work)
    return folder


@contextlib.contextmanager
def pyxis_site(folder, hosts, options="container_scope=global"):
    """Start a Slurm on two hosts, with all files in `folder`, which other users can enter; stop it at the end."""
    there = compiled(folder / "programs")
    plugin = f"required {there}/spank_pyxis.so {options}\n"
    (folder / "plugstack.conf").write_text(plugin)
    path = f"{there}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
    prefixes = [("ip", "netns", "exec", name) for name in (hosts.person, *hosts.names)]
    ground = Ground(
        control=hosts.third,
        nodes=hosts.addresses,
        at_control=prefixes[0],
        at_nodes=tuple(prefixes[1:]),
        settings=f"PlugStackConfig={folder}/plugstack.conf\n",
        environment={"PATH": path},
        mounts=tuple((f"nodes/{{node}}{place}", place) for place in NODE_FOLDERS),
    )
    with slurm_cluster(folder / "slurm", ground) as environment:
        yield PyxisSite(hosts, Cluster(folder / "slurm", environment, prefixes[0]), path)
