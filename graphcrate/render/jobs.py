"""Write jobs as text: a script for sbatch or a shell, a request for PAI. Refuse by name what a runtime cannot do.

Job ──job (checks)──▶ job_network, notebook (its command) ──jobs, pai_job──▶ text
"""

import re
import shlex
from collections.abc import Callable, Mapping

import msgspec

from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import JOBS
from graphcrate.model.suite import SUITES
from graphcrate.oci import reference
from graphcrate.render import slurm_batch
from graphcrate.render.job import SHELL_ALONE, Job, by_torchrun, check_job, is_path
from graphcrate.render.job_network import docker_options, with_plugin
from graphcrate.render.layout import render_template
from graphcrate.render.pai_job import dlc_request, pai_image

#: what no path that pyxis mounts may have, with its name
_NO_MOUNT = {" \t": "a space", ",": "a comma", ":": "a colon"}
BY_A_LINK = 'ln -s "THE FOLDER" ~/data    gives it a name without, which is mounted alike'
#: a name of Kubernetes (RFC 1123), of at most 253 characters
_CLAIM = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_MOST_OF_A_NAME = 50  #: of a job of Kubernetes, whose pods add to it


def text(job: Job) -> str:
    """Write the job as its runtime reads it.

    Raises UsageError for what this runtime cannot do, and for characters that readers of the script do not see.
    """
    check_job(job)
    cores = job.cpus * max(job.gpus, 1) // job.tasks  # of each process; 0 leaves it to Slurm
    values: dict[str, object] = {
        "job": job,
        "command": _for_exec(with_plugin(job, job.command)),
        "cores": cores,
        # since Slurm 22.05 a step does not take this over from the job
        "cpus": f" --cpus-per-task={cores}" if cores else "",
    }
    if job.runtime in _WRITERS:
        return _WRITERS[job.runtime](job, values)
    form = JOBS[job.runtime]
    values |= {
        "binds": _binds(job),
        "gpus": f" {form.gpus.format(gpus=job.gpus)}" if job.gpus and form.gpus else "",
        "network": docker_options(job),
        "overlay": f" {form.overlay.format(delta=shlex.quote(job.overlay))}" if job.overlay else "",
    }
    if not form.is_slurm:
        values["command"] = _for_exec(with_plugin(job, by_torchrun(job, "--standalone")))
    return render_template(f"job-{job.runtime}", values)


def _pyxis(job: Job, values: dict[str, object]) -> str:
    image = job.image if is_path(job.image) else reference.parse(job.image).enroot
    for mount in job.mounts:
        if strange := mountable(mount.source) or mountable(mount.target):
            raise UsageError(f"pyxis cannot mount {mount.source!r}: {strange}", next_step=BY_A_LINK)
    binds = "".join(f",{_in_double_quotes(mount.typed)}" for mount in job.mounts)
    container = re.sub(r"[^A-Za-z0-9._-]+", "_", re.sub(r"\.sqsh$", "", image.rpartition("/")[2]))
    values |= {"job": msgspec.structs.replace(job, image=image), "binds": binds, "container": container}
    values["warning"] = slurm_batch.warning(job.time, "TERM")
    return render_template("job-pyxis", values)


def _module(job: Job, values: dict[str, object]) -> str:
    _refuse_part_of_a_path(job)
    return render_template("job-module", values | {"binds": _binds(job)})


def _refuse_part_of_a_path(job: Job) -> None:
    if not job.image.startswith("/"):
        raise UsageError(
            f"a {job.runtime} calls its image from any folder, and {job.image} is not a whole path",
            next_step=command("job", f"/FOLDER/{job.image.removeprefix('./')}", runtime=job.runtime),
        )


def _reframe(job: Job, values: dict[str, object]) -> str:
    _refuse_part_of_a_path(job)
    title = re.sub(r"\W|^(?=\d)", "_", f"{job.name}_suites", flags=re.ASCII)  # no word of Python ends so
    rows = {name: SUITES[name] for name in job.suites}
    suites = {
        name: {
            "cpu": (shlex.join(row.argv(on_gpu=False)), row.cpu_limit),
            "cuda": (shlex.join(row.argv(on_gpu=True)), row.cuda_limit),
        }
        for name, row in rows.items()
    }
    return render_template("job-reframe", values | {"title": title, "suites": suites})


def _oci(job: Job, values: dict[str, object]) -> str:
    return render_template("job-oci", values | {"args": _arguments(by_torchrun(job, "--standalone"))})


def _kubernetes(job: Job, values: dict[str, object]) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")
    if name != job.name or not name[0].isalpha() or len(name) > _MOST_OF_A_NAME:
        raise UsageError(
            f"{job.name} is not a name for a job of Kubernetes",
            cause=f"It has small letters, digits and -, begins with a letter and has {_MOST_OF_A_NAME} at most.",
            next_step=f"--name {f'job-{name}' if not name[:1].isalpha() else name[:_MOST_OF_A_NAME].strip('-')}",
        )
    for mount in job.mounts:
        if not _CLAIM.fullmatch(mount.source):
            raise UsageError(
                f"{mount.source!r} is not the name of a claim: small letters, digits, - and .",
                next_step=f"kubectl get pvc    lists them; --mount CLAIM:{mount.target}",
            )
    nodes = f"--nnodes={job.nodes} --node-rank=$JOB_COMPLETION_INDEX --master-addr=$MASTER_ADDR"
    where = f"{nodes} --master-port=$MASTER_PORT" if job.nodes > 1 else "--standalone"
    args = [word.replace("$$", "$$$$").replace("$(", "$$(") for word in _arguments(by_torchrun(job, where))]
    return render_template("job-kubernetes", values | {"args": args})  # which fills $(NAME) in itself


def _edf(job: Job, values: dict[str, object]) -> str:
    image = job.image if is_path(job.image) else reference.parse(job.image).enroot
    major = re.search(r"cu(\d\d)\d\b", job.image)
    return render_template("job-edf", values | {"image": image, "major": major and major[1]})


def _arguments(typed: str) -> list[str]:
    """The words by which a container starts a command of a shell."""
    return ["/bin/sh", "-c", typed if SHELL_ALONE.search(typed.replace("$", "")) else f"exec {typed}"]


def _binds(job: Job) -> str:
    """Options that mount data, where a runtime has them."""
    bind = JOBS[job.runtime].bind
    return "".join(f" {bind} {shlex.quote(mount.typed)}" for mount in job.mounts)


def mountable(path: str) -> str:
    """Explain why pyxis cannot mount a path; empty where it can.

    It hands mounts to enroot as lines of an fstab, whose fields end at spaces; commas and colons part its own option.
    """
    separators = [name for letters, name in _NO_MOUNT.items() if any(letter in path for letter in letters)]
    return f"there is {separators[0]} in its path" if separators else ""


#: kinds of jobs that their template alone does not write
_WRITERS: Mapping[str, Callable[[Job, dict[str, object]], str]] = {
    "pyxis": _pyxis,
    "module": _module,
    "reframe": _reframe,
    "oci": _oci,
    "kubernetes": _kubernetes,
    "edf": _edf,
    "pai-dlc": lambda job, _: dlc_request(job),
    "pai-dsw": lambda job, _: f"{pai_image(job.image)}\n",
}


def _for_exec(command: str) -> str:
    """Quote the command for an exec inside the image, without a shell."""
    return f"sh -c {shlex.quote(command)}" if SHELL_ALONE.search(command) else command


def _in_double_quotes(words: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", words)
