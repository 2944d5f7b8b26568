"""A site with pyxis 0.24 and enroot 4.1.2, played: what both do to a job's variables, names and files.

Apptainer runs the command where enroot would, and Slurm's own srun starts the tasks. `make_site` writes a folder with
an `srun` and an `enroot`, which run this file; it imports nothing of the project then.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

HELP = "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"
#: args.c: those with a value, and those without
VALUED = ("image", "mounts", "workdir", "name", "env")
PLAIN = ("no-container-mount-home", "container-mount-home", "container-readonly", "container-writable")
#: pyxis_slurmstepd.c, enroot_deny_env: what enroot and its hooks do not get of the job's variables
DENIED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASK_PID")
LOCALE = ("LANG", "LANGUAGE", "LC_ALL")
CHDIR = """
cd "$1" 2>/dev/null || {
    echo "slurmstepd: error: pyxis: couldn't chdir to $1: No such file or directory" >&2
    exit 1
}
shift
exec "$@"
"""


@dataclass(frozen=True)
class Site:
    """`hook`: enroot's 50-slurm-pytorch.sh is enabled; `tools`: nodes have nvidia-container-cli; `scope`: pyxis'
    container_scope; `image`: variables that images have besides their own, such as those for CUDA. `srun` and
    `apptainer`: the real programs.
    """

    folder: str
    srun: str
    apptainer: str
    hook: bool = True
    tools: bool = True
    scope: str = "global"
    image: dict = field(default_factory=dict)

    @property
    def path(self):
        """A PATH with this site's programs first."""
        return f"{self.folder}/bin:{os.environ['PATH']}"

    def imports(self):
        """The imports: (node, container, image) of each."""
        record = Path(self.folder, "imports")
        return [tuple(line.split()) for line in record.read_text().splitlines()] if record.exists() else []

    def containers(self):
        """Those that enroot has on any node."""
        return sorted(path.name for path in Path(self.folder, "nodes").glob("*/pyxis_*"))


class StartError(Exception):
    """The lines that pyxis prints where it starts no container."""

    @classmethod
    def of(cls, *lines, head=("pyxis: container start failed with error code: 1",)):
        """With a log of enroot's of these lines."""
        log = ("pyxis: printing enroot log file:", *(f"pyxis:     [ERROR] {line}" for line in lines))
        return cls(*head, *log)


def make_site(folder, srun, apptainer, **kind):
    """A site with its files in a folder, which is made."""
    site = Site(str(folder), srun, apptainer, **kind)
    (folder / "bin").mkdir(parents=True)
    (folder / "site.json").write_text(json.dumps(asdict(site)))
    programs = {name: f'{sys.executable} -I {__file__} {folder} {name} "$@"' for name in ("srun", "enroot")}
    # enroot imports with `-noD`; so does Apptainer here, which compresses an image for minutes otherwise
    programs["mksquashfs"] = f'{shutil.which("mksquashfs")} "$@" -noD -noF'
    for name, command in programs.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\nexec {command}\n")
        program.chmod(0o755)
    return site


# What becomes of variables


def started(image, job, site, first_host, named=()):
    """The variables of a container that enroot starts for an image's and a job's: those of its hooks too.

    `first_host`: of a list of nodes, as `scontrol show hostname` tells it; `named`: --container-env. Raises StartError
    where a hook fails.
    """
    seen = {name: value for name, value in job.items() if name not in DENIED}
    environ = dict(image) | {name: seen[name] for name in named if seen.get(name)}
    if site.hook and "PYTORCH_VERSION" in environ:  # 50-slurm-pytorch.sh
        found = {}
        if seen.get("SLURM_STEP_NODELIST"):
            found["MASTER_ADDR"] = first_host(seen["SLURM_STEP_NODELIST"])
        if seen.get("SLURM_JOB_ID"):
            found["MASTER_PORT"] = str(int(seen["SLURM_JOB_ID"]) % 4536 + 61000)
        if seen.get("SLURM_NTASKS"):
            found["WORLD_SIZE"] = seen["SLURM_NTASKS"]
        if int(seen.get("SLURM_STEP_NUM_TASKS", 1)) > int(seen.get("SLURM_STEP_NUM_NODES", 1)):
            found["OMP_NUM_THREADS"] = "1"
        environ = found | environ
    # 98-nvidia.sh: the job's value beats the image's, and changes nothing inside
    wanted = seen.get("NVIDIA_VISIBLE_DEVICES", environ.get("NVIDIA_VISIBLE_DEVICES", "")) or "void"
    if wanted != "void" and not site.tools:
        missing = "Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container"
        raise StartError.of(missing, "/etc/enroot/hooks.d/98-nvidia.sh exited with return code 1")
    # 99-mellanox.sh, on nodes without InfiniBand
    if seen.get("MELLANOX_VISIBLE_DEVICES", environ.get("MELLANOX_VISIBLE_DEVICES", "")) not in ("", "void", "none"):
        raise StartError.of("/etc/enroot/hooks.d/99-mellanox.sh exited with return code 1")
    return environ


def in_task(environ, job):
    """The variables of a task: the container's over the job's, and pyxis' own for PyTorch (pytorch_setup)."""
    found = {name: value for name, value in job.items() if name not in LOCALE} | environ
    if "PYTORCH_VERSION" in found:
        found |= {"RANK": job["SLURM_PROCID"], "LOCAL_RANK": job["SLURM_LOCALID"]}
    return found


# srun


def srun(site, words):
    """As srun is called: without a container it is Slurm's own."""
    if words[:1] == ["--help"]:
        print(HELP)
        return
    options, chosen, rest = [], {}, list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, _, value = word.removeprefix("--").partition("=")
        if name.removeprefix("container-") in VALUED and name.startswith("container-"):
            chosen[name.removeprefix("container-")] = value
        elif name not in PLAIN:
            options.append(word)
    if "image" in chosen or "name" in chosen:
        rest = [sys.executable, "-I", __file__, site.folder, "task", json.dumps(chosen), *rest]
    os.execv(site.srun, [site.srun, *options, *rest])


def task(site, words):
    """Do what pyxis does in each task of a step, and then run the task's command."""
    chosen, command = json.loads(words[0]), words[1:]
    job = dict(os.environ)
    try:
        container = _container(site, chosen, job)
        image = json.loads((container / "environment").read_text())
        named = chosen.get("env", "").split(",")
        found = in_task(started(image, job, site, _first_host, named), job)
    except StartError as error:
        plugin = "spank: required plugin spank_pyxis.so: task_init() failed with rc=-1"
        told = (*error.args, plugin, "Failed to invoke spank plugin stack")
        sys.exit("\n".join(f"slurmstepd: error: {line}" for line in told))
    ours = [f"{name}={value}" for name, value in found.items() if job.get(name) != value or name in image]
    binds = [word for mount in filter(None, chosen.get("mounts", "").split(",")) for word in ("--bind", mount)]
    inside = ["env", *(f"--unset={name}" for name in LOCALE if name not in image), *ours]
    inside += ["sh", "-c", CHDIR, "sh", chosen.get("workdir", "/"), *command]
    argv = [site.apptainer, "--silent", "exec", "--contain", *binds, (container / "image").read_text(), *inside]
    if "name" in chosen:
        os.execve(argv[0], argv, job)
    _run_and_leave(argv, job, container)


def _run_and_leave(argv, job, container):
    """Run a task; the last one of the step on its node removes the container, which has no name of its own."""
    child = subprocess.Popen(argv, env=job)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: child.send_signal(number))
    code = child.wait()
    with Path(container.parent, ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (container / "ended").open("a+") as ended:
            ended.write("x")
            ended.seek(0)
            last = len(ended.read()) == _tasks_here(job)
        if last:
            _remove(container)
    sys.exit(code if code >= 0 else 128 - code)


def _tasks_here(job):
    """Tasks of the step on this node, of `2(x3),1`."""
    each = []
    for part in job["SLURM_STEP_TASKS_PER_NODE"].split(","):
        count, _, times = part.partition("(x")
        each += [int(count)] * int(times.rstrip(")") or 1)
    return each[int(job["SLURM_NODEID"])]


def _remove(container):
    for path in container.iterdir():
        path.unlink()
    container.rmdir()


def _first_host(nodes):
    done = subprocess.run(["scontrol", "show", "hostname", nodes], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().split()[0]


def _container(site, chosen, job):
    """Its folder on this node: the one that stands under the name, else a new one."""
    scope = f"{job['SLURM_JOB_ID']}_" if site.scope == "job" else ""
    own = f"{job['SLURM_JOB_ID']}.{job['SLURM_STEP_ID']}"  # without a name it goes with the step
    node = Path(site.folder, "nodes", job["SLURMD_NODENAME"])
    name = f"pyxis_{scope}{chosen.get('name', own)}"
    folder = node / name
    node.mkdir(parents=True, exist_ok=True)
    with (node / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            image = _address(name, chosen)
            found = _image_environment(site, image)
            folder.mkdir()
            (folder / "image").write_text(image)
            (folder / "environment").write_text(json.dumps(found))
            with Path(site.folder, "imports").open("a") as record:
                record.write(f"{node.name} {name} {image}\n")
    return folder


def _address(name, chosen):
    """The image in Apptainer's words. Raises StartError where enroot would find none."""
    if "image" not in chosen:
        raise StartError(
            f'pyxis: error: a container with name "{name}" does not exist, and --container-image is not set'
        )
    image = chosen["image"]
    if not image.startswith((".", "/")):
        return f"docker://{image.removeprefix('docker://').replace('#', '/', 1)}"
    path = Path(image).absolute()
    if not path.is_file():
        failed = f"pyxis: failed to create container filesystem for image: {image}"
        raise StartError.of(f"No such file or directory: {path}", head=(failed,))
    return str(path)


def _image_environment(site, image):
    """ENV of the image: enroot's squashfs has it in a file, of a registry's Apptainer has made its own."""
    ask = "env" if image.startswith("docker://") else "cat /etc/environment"
    command = [site.apptainer, "--silent", "exec", "--cleanenv", "--contain", image, "sh", "-c", ask]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    pairs = (line.partition("=") for line in told.splitlines())
    found = {name: value for name, _, value in pairs if name.isidentifier() and not name.startswith("APPTAINER")}
    return found | site.image


# enroot


def enroot(site, words):
    """`list`, `remove [--force] NAME…` and `version`, on the node where it is called."""
    folder = Path(site.folder, "nodes", os.environ.get("SLURMD_NODENAME", "login"))
    action, names = words[0], [word for word in words[1:] if not word.startswith("-")]
    if action == "version":
        print("4.1.2")
    elif action == "list":
        print("".join(f"{path.name}\n" for path in sorted(folder.glob("pyxis_*"))), end="")
    elif action == "remove" and names:
        for name in names:
            if not (folder / name).is_dir():
                sys.exit(f"[ERROR] No such file or directory: {folder / name}")
            _remove(folder / name)
    else:
        sys.exit(f"Usage: enroot {action} [options] [--] NAME...")


if __name__ == "__main__":
    place, part, *given = sys.argv[1:]
    {"srun": srun, "task": task, "enroot": enroot}[part](
        Site(**json.loads(Path(place, "site.json").read_text())), given
    )
