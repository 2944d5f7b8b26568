"""Runtimes of images: a row each, by which targets, contracts, jobs, runners and help texts go.

A new runtime is a row here, its checks in a module of `checks.contracts` that has its name, and for `job` a template
`job-NAME` in `render`. What it takes only from some version on is data: `compat/data/runtimes.toml`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from graphcrate.model.tree import Form

RuntimeName = Literal["docker", "apptainer", "pyxis", "pai"]
#: those that run an image as the user who asks, with the host's home and folders; a new one of them is named here
AS_THE_USER: tuple[RuntimeName, ...] = ("apptainer", "pyxis")
#: those in which NVIDIA's hook reads the image's variables for what of the driver it brings
BY_NVIDIAS_HOOK: tuple[RuntimeName, ...] = ("docker", "pyxis", "pai")
#: those in which enroot starts the container, whose version is the runtime's
BY_ENROOT: tuple[RuntimeName, ...] = ("pyxis",)
_LAYERS: tuple[Form, ...] = ("layout", "archive", "docker", "podman", "registry")  #: images of layers
_ALIBABA = "registry.<region>.aliyuncs.com/<namespace>"
_SLURM = frozenset({"--partition", "--time", "--account", "--cpus", "--nodes"})


class JobForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form in which `job` writes what a runtime runs: the template `job-NAME`, or a function of `render.jobs`."""

    options: frozenset[str] = frozenset()  #: of `job`, beside those of every job
    runs: bool = True  #: a command; else the image alone is brought to where people type theirs
    suites: bool = False  #: it runs those of the image
    mounts: bool = True  #: it brings data
    is_slurm: bool = False  #: a script for sbatch, in which srun starts the processes
    files: tuple[str, ...] = ()  #: endings of files that it opens; the first is what `convert` makes
    pulls: Literal["", "registry", "any"] = ""  #: takes no reference; one with a registry's name; any
    read_only: bool = True  #: it can mount a folder for reading alone
    own_network: bool = False  #: its containers have interfaces of their own, and not the node's
    bind: str = ""  #: option by which a folder of the host is mounted
    overlay: str = ""  #: option by which a `{delta}` goes over its SIF; empty: it takes whole images
    gpus: str = ""  #: option for GPUs, with `{gpus}` for their number
    registry: str = "registry.example.com/team"  #: an address that it may pull from, in messages
    per_gpu: bool = False  #: on several nodes one process for each GPU, where nothing else is asked for
    devices: Literal["", "hook", "options"] = ""  #: how it is asked for a network's devices; empty: all are there
    is_dotted: bool = False  #: knows a file by the first letter of its path: `.` or `/`


class PublishedLine(NamedTuple):
    """A line for users of a published image, with `{image}`, `{enroot}`, `{host}`, `{name}`, `{examples}`, `{gpus}`."""

    line: str
    without_tls: str  #: where the registry has no TLS


class RunnerForm(NamedTuple):
    """The form that a runner of `test` opens.

    `file`: one of `convert`; empty: `engines.trials.artifact` knows others.
    """

    opens: str  #: in a sentence
    forms: tuple[Form, ...]  #: that it opens with --runner auto
    file: Literal["", "sif", "sqsh"] = ""


class OwnImage(NamedTuple):
    """The way to run a program in an image that was built here: bring it to the host that runs it, then type `line`."""

    to: str  #: a form for `convert`, or without `file` a registry for `publish`
    line: str  #: with `{name}` of the image in it, and `{gpus}`
    file: str = ""  #: that `convert` writes
    gpus: str = ""  #: in the line of an image with CUDA


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime. Contracts judge an image for it in the forms that it `opens`."""

    title: str  #: in texts
    shown: str = ""  #: in tables, where that is more
    also_called: tuple[str, ...] = ()  #: other names, which every command takes
    opens: tuple[Form, ...]
    mounts: bool = False  #: the kernel mounts the image's squashfs, in a compression that it knows
    lends_libraries: bool = False  #: libraries of the host come into the container, and need the host's glibc
    runners: Mapping[str, RunnerForm] = {}  #: by the names of `test --runner`
    jobs: Mapping[str, JobForm] = {}  #: by the names of `job --runtime`
    published: Mapping[str, PublishedLine] = {}  #: by program, what `publish` prints
    own: OwnImage  #: on the page of an image


RUNTIMES: Mapping[RuntimeName, Runtime] = {
    "docker": Runtime(
        title="Docker",
        shown="Docker, Podman",
        also_called=("podman",),
        opens=_LAYERS,
        runners={
            "docker": RunnerForm(
                "NAME:TAG, a layout, docker:NAME:TAG, or the tar of `docker save`", ("archive", "docker")
            ),
            "podman": RunnerForm("NAME:TAG, a layout, podman:NAME:TAG, or a tar", ("podman",)),
        },
        jobs={
            "docker": JobForm(pulls="any", bind="--volume", gpus="--gpus {gpus}", devices="options", own_network=True),
            "oci": JobForm(files=(".sqsh",)),
            "podman-hpc": JobForm(
                options=_SLURM, is_slurm=True, pulls="registry", bind="--volume", gpus="--gpu", per_gpu=True
            ),
            "charliecloud": JobForm(runs=False, files=(".sqsh",), read_only=False, bind="--bind"),
            "kubernetes": JobForm(
                options=frozenset({"--nodes"}), pulls="registry", per_gpu=True, devices="options", own_network=True
            ),
        },
        published={
            "docker": PublishedLine(
                "docker run {gpus}--rm -it {image}",
                'docker run {gpus}--rm -it {image}    (daemon.json: "insecure-registries": ["{host}"])',
            )
        },
        own=OwnImage(
            to="docker",
            file="image.tar",
            line="docker load --input image.tar\n"
            'docker run --rm {gpus}--shm-size=8g --volume "$PWD:/work" --workdir /work {name} python train.py',
            gpus="--gpus all ",
        ),
    ),
    "apptainer": Runtime(
        title="Apptainer",
        shown="Apptainer, Singularity",
        also_called=("singularity", "singularity-ce", "singularityce"),
        opens=(*_LAYERS, "sif", "squashfs", "delta", "folder"),
        mounts=True,
        lends_libraries=True,
        runners={
            "apptainer": RunnerForm(
                "NAME:TAG below dist/, a layout, the path of a .sif or of a delta", ("sif", "delta"), file="sif"
            )
        },
        jobs={
            "singularity": JobForm(
                options=_SLURM,
                is_slurm=True,
                files=(".sif", ".simg", ".img"),  # older releases of Singularity wrote the last two
                bind="--bind",
                overlay="--overlay {delta}:ro",
                gpus="--nv",
            ),
            "module": JobForm(runs=False, files=(".sif", ".simg", ".img"), bind="--bind"),
            "reframe": JobForm(runs=False, suites=True, mounts=False, files=(".sif", ".simg", ".img")),
        },
        published={
            "singularity": PublishedLine(
                "singularity pull {name}.sif docker://{image}",
                "singularity pull --no-https {name}.sif docker://{image}",
            )
        },
        own=OwnImage(to="sif", file="image.sif", line="singularity run {gpus}image.sif python train.py", gpus="--nv "),
    ),
    "pyxis": Runtime(
        title="pyxis",
        shown="Slurm with pyxis",
        also_called=("enroot", "slurm"),
        opens=(*_LAYERS, "squashfs", "folder"),
        jobs={
            "pyxis": JobForm(
                options=_SLURM,
                is_slurm=True,
                files=(".sqsh",),
                pulls="registry",
                per_gpu=True,
                devices="hook",
                is_dotted=True,
            ),
            "edf": JobForm(runs=False, files=(".sqsh",), pulls="registry"),
        },
        published={
            "srun": PublishedLine(
                "srun --container-image='{enroot}' python {examples}/torch_check.py",
                "srun --container-image='{enroot}' python {examples}/torch_check.py"
                "    (enroot.conf of the nodes: ENROOT_ALLOW_HTTP yes)",
            ),
            "enroot": PublishedLine(
                "enroot import --output {name}.sqsh 'docker://{enroot}'",
                "ENROOT_ALLOW_HTTP=yes enroot import --output {name}.sqsh 'docker://{enroot}'",
            ),
        },
        own=OwnImage(
            to="sqsh",
            file="image.sqsh",
            line='srun --container-image=./image.sqsh --container-mounts="$PWD" --container-workdir="$PWD" '
            "python train.py",
        ),
    ),
    "pai": Runtime(
        title="PAI",
        shown="Alibaba PAI",
        also_called=("pai-dlc", "pai-dsw"),
        opens=_LAYERS,
        jobs={
            "pai-dlc": JobForm(
                options=frozenset({"--nodes", "--instance", "--driver", "--workspace"}),
                pulls="registry",
                registry=_ALIBABA,
            ),
            "pai-dsw": JobForm(runs=False, mounts=False, pulls="registry", registry=_ALIBABA),
        },
        own=OwnImage(
            to="acr:cn-shanghai/NAMESPACE",
            line="# give the printed address as the image's URL when you create an instance or a job",
        ),
    ),
}
JOBS: Mapping[str, JobForm] = {name: form for row in RUNTIMES.values() for name, form in row.jobs.items()}
#: what `test` runs suites in: our own sandbox, what runs images here, and nodes of Slurm
RUNNER_FORMS: Mapping[str, RunnerForm] = {
    "embedded": RunnerForm("NAME:TAG below dist/, or the path of an OCI layout", ("layout",)),
    **{name: form for row in RUNTIMES.values() for name, form in row.runners.items()},
    "slurm": RunnerForm(
        "NAME:TAG below dist/, a layout, the path of a .sif; with pyxis a .sqsh or an image on a registry",
        ("squashfs", "registry"),
    ),
}
RUNNERS = ("auto", *RUNNER_FORMS)


def runtime_name(text: str) -> RuntimeName | None:
    """The name of the runtime that has this name or is called so; None where there is none."""
    return next((name for name, row in RUNTIMES.items() if text in (name, *row.also_called)), None)


def opened_on_slurm(ending: str) -> str:
    """Return the runtime that opens files of this ending (".sif") in jobs of Slurm; empty where none does."""
    return next((name for name, form in JOBS.items() if form.is_slurm and ending in form.files), "")
