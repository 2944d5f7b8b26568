"""Order a program of `run`: its variables, its folders of the host, where it starts; and say what it does not get.

Rows say which variables pass. A program gets nothing of the host that is not named here, by the user or by the site.
"""

import contextlib
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.watching import Watch
from graphcrate.host.sandbox import given
from graphcrate.host.sandbox.sandbox import Exec, Inside
from graphcrate.host.sandbox.steps import Step
from graphcrate.model.errors import UsageError
from graphcrate.model.words import joined, printable
from nsbox.box import Bind
from projectfiles.files import unreadable

WORK = "/work"  #: the folder in which `run` was typed, inside
CACHE = "/cache"  #: that of --cache-dir, inside
#: where an image has the kernel's own, and what no mount may cover
_KERNELS = ("/proc", "/sys", "/dev")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MOST_NAMED = 6
INTERRUPTED = 130  #: exit code after SIGINT


class Passed(NamedTuple):
    """Variables that a program gets as they are set here, by patterns. `paths`: values may be paths of the host."""

    patterns: tuple[str, ...]
    what: str
    paths: bool = True


PASSED = (
    Passed(("TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES"), "the terminal"),
    Passed(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_*"), "GPUs"),
    Passed(("OMP_*", "MKL_*", "KMP_*", "OPENBLAS_*"), "threads"),
    Passed(("NCCL_*", "TORCH_NCCL_*", "GLOO_*", "UCX_*"), "networks between GPUs"),
    Passed(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_*"), "processes of one training"),
    Passed(("SLURM_*", "PMI*"), "the job", paths=False),
    Passed(("WANDB_*", "HF_*"), "services and their logins"),
)
#: what else programs of images read: it is named where it is set and does not pass, as is what a program's files name
MEANT = (
    *("CUDA_*", "CUBLAS_*", "CUDNN_*", "TORCH*", "PYTORCH_*", "TRITON_*", "PYTHON*", "PYG_*", "DGL*", "OGB_*", "GLT_*"),
    *("TF_*", "XLA_*", "JAX_*", "TRANSFORMERS_*", "TOKENIZERS_*", "MLFLOW_*", "COMET_*", "NEPTUNE_*", "RAY_*"),
    *("OMPI_*", "I_MPI_*", "FI_*", "AWS_*", "DATA*", "*SEED", "*_TOKEN", "*_API_KEY", "LD_PRELOAD", "*_proxy"),
)
#: what a program names and every image has, or the sandbox
_EVERYWHERE = ("HOME", "PATH", "PWD", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "HOSTNAME", "_")
#: a variable's name in code: between quotes, or behind `$`
_IN_CODE = re.compile(r"""(?:["']|\$\{?)([A-Za-z_][A-Za-z0-9_]*)""", re.ASCII)
_MOST_CODE = 1 << 20  #: bytes of a program's file that are looked at
#: variable → its folder below that of --cache-dir
CACHES = {
    "XDG_CACHE_HOME": "",
    "HF_HOME": "/huggingface",
    "TORCH_HOME": "/torch",
    "TRITON_CACHE_DIR": "/triton",
    "TORCHINDUCTOR_CACHE_DIR": "/inductor",
    "WANDB_CACHE_DIR": "/wandb",
    "MPLCONFIGDIR": "/matplotlib",
}


class Foreign(NamedTuple):
    """Options that other programs have before an image's program, and what to do here."""

    names: tuple[str, ...]
    instead: str


FOREIGN = (
    Foreign(("-v", "--volume", "-B", "--bind"), "--mount SOURCE:TARGET[:ro]"),
    Foreign(("-e",), "--env NAME=VALUE"),
    Foreign(("-w", "--pwd", "--cwd"), "--workdir FOLDER"),
    Foreign(
        ("--gpus", "--nv", "--nvccli", "--runtime", "--device"),
        "leave it out: every GPU is there; CUDA_VISIBLE_DEVICES=0 before the command chooses one",
    ),
    Foreign(("-it", "-ti", "-i", "-t", "--interactive", "--tty", "--rm"), "leave it out: this is always so"),
    Foreign(("--shm-size", "--ipc"), "leave it out: /dev/shm may take half of the memory"),
    Foreign(("-p", "--publish", "--net"), "leave it out: it uses this machine's network; --no-network turns it off"),
    Foreign(("-u", "--user", "--fakeroot", "--userns"), "leave it out: what it writes belongs to you"),
    Foreign(("-H", "--home", "--no-home"), "leave it out: its home is in memory; --cache-dir FOLDER outlives the run"),
    Foreign(("--cleanenv", "--contain", "--containall", "-C"), "leave it out: this is always so"),
    Foreign(("--entrypoint",), "name the program behind the image"),
    Foreign(("-d", "--detach"), "leave it out, and put nohup before the command and & behind it"),
)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A request of `run`, as typed. `mounts` of the configuration come first and give way to typed ones."""

    program: Sequence[str] = ()
    env: Sequence[str] = ()
    env_files: Sequence[Path] = ()
    mounts: Sequence[str] = ()
    configured: Sequence[str] = ()
    workdir: str = ""
    cache: Path | None = None
    network: bool = True
    watched: Sequence[Path] = ()  #: run it again whenever one of these changes


def foreign(option: str) -> str:
    """Return what to type in place of an option of another program; empty for an unknown one."""
    name = option.partition("=")[0]
    return next((row.instead for row in FOREIGN if name in row.names), "")


def make_order(request: RunRequest, ctx: Context, image: Exec, *, gpu: bool) -> Exec:
    """Return the order for a runner, and say what the program may change and what does not pass.

    `image`: the image's own program and working folder, for a request that names none. Raises UsageError, and
    HostError for a folder that is the kernel's own.
    """
    folder = Path.cwd()
    typed, configured = [list(map(read_mount, texts)) for texts in (request.mounts, request.configured)]
    if request.cache is not None:
        typed.append(Bind(_made(request.cache), CACHE, read_only=False))
    taken = [bind.target for bind in typed]
    if twice := next((target for target in taken if taken.count(target) > 1), ""):
        raise UsageError(f"two folders are to be {twice} in the image", next_step="--mount SOURCE:TARGET    for one")
    mounts = [*(bind for bind in configured if bind.target not in taken), *typed]
    work = () if any(bind.target == WORK for bind in mounts) else (Bind(folder, WORK, read_only=False),)
    _look_at([(bind, bind in work) for bind in (*work, *mounts)], ctx)
    targets = [WORK, *(bind.target for bind in mounts)]
    passed, unpassed = pass_on(ctx.environment, targets, named_in_code(request.program))
    caches = {name: f"{CACHE}{below}" for name, below in CACHES.items()} if request.cache else {}
    asked = {name: value for path in request.env_files for name, value in read_env_file(path, ctx.environment)}
    asked |= dict(read_env(text, ctx.environment) for text in request.env)
    for line in unpassed.lines({*asked, *caches}):
        ctx.progress.note(line)
    return Exec(
        request.program or image.argv,
        environment={**passed, **caches, **asked},
        binds=(*work, *mounts),
        cwd=_started_in(request.workdir) or (not request.program and image.cwd) or WORK,
        network=request.network,
        gpu=gpu,
        attached=True,
        step=Step.RUN,
    )


def carry_out(inside: Inside, order: Exec, request: RunRequest, ctx: Context) -> int:
    """Run a program in an image, and return its exit code; where files are watched, on and on until an interrupt."""
    watch = Watch(request.watched) if request.watched else None
    while True:
        code = inside.run(order if watch is None else replace(order, ends=watch.changed)).returncode
        code = code if code >= 0 else 128 - code
        if watch is None or code == INTERRUPTED:
            return code
        if not watch.changed():
            ctx.progress.note(f"it ended with {code}, and runs again on a change of {joined(map(str, watch.paths))}")
        ctx.progress.note(f"{watch.wait()} has changed: running it again")


def named_in_code(program: Sequence[str]) -> set[str]:
    """Return the words that a program's files, and the Python files beside them, have where code names variables."""
    named: set[str] = set()
    files = [Path(word) for word in program if not word.startswith("/") and _is_file(Path(word))]
    beside = [code for path in files for code in sorted(path.parent.glob("*.py"))]
    for path in dict.fromkeys([*files, *beside]):
        with contextlib.suppress(OSError):  # one that may not be read
            if path.is_file() and path.stat().st_size <= _MOST_CODE:
                named.update(_IN_CODE.findall(path.read_text(encoding="utf-8", errors="replace")))
    return named


def _is_file(path: Path) -> bool:
    """Return whether a word of a program is a file: it may also be code, longer than a name may be."""
    try:
        return path.is_file()
    except OSError:
        return False


def _made(folder: Path) -> Path:
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _look_at(binds: Sequence[tuple[Bind, bool]], ctx: Context) -> None:
    """Raise HostError for a folder of the kernel's own, and say what holds more than work."""
    for bind, is_work in binds:
        given.refuse_interfaces(bind.source, mounted=not is_work)
        home, homes = settings.home(ctx.environment), given.home_folders()
        source = bind.source if is_work else bind.source.resolve()
        if exposed := given.exposure(source, home, homes, mounted=not is_work, read_only=bind.read_only):
            ctx.progress.warn(exposed)


def _started_in(folder: str) -> str:
    if folder and (not folder.startswith("/") or not folder.isprintable()):
        raise UsageError(
            f"{printable(folder)!r} is not a folder of the image: it does not begin with /",
            next_step=f"--workdir {WORK}/FOLDER    for one of this folder",
        )
    return folder


def read_mount(text: str) -> Bind:
    """Read SOURCE[:TARGET][:ro|:rw]. Raises UsageError, also for a target that is the kernel's or the whole image."""
    parts = text.split(":")
    mode = parts.pop() if len(parts) > 1 and parts[-1] in ("ro", "rw") else "rw"
    source, target = parts[0], parts[-1]
    is_path = target.startswith("/") and ".." not in target.split("/")
    if len(parts) > 2 or not source or not is_path or not text.isprintable():
        raise UsageError(
            f"{printable(text)!r} is not a mount, SOURCE:TARGET or SOURCE:TARGET:ro with a target from / on",
            next_step="--mount ./data:/data:ro",
        )
    target = "/" + "/".join(part for part in target.split("/") if part)
    if target == "/" or any(target == folder or target.startswith(f"{folder}/") for folder in _KERNELS):
        raise UsageError(
            f"nothing can be mounted at {target}: the image itself is at /, and {', '.join(_KERNELS)} are the kernel's",
            next_step=f"--mount {source}:/data",
        )
    return Bind(Path(source).expanduser().absolute(), target, read_only=mode == "ro")


def read_env(text: str, environment: Mapping[str, str], where: str = "") -> tuple[str, str]:
    """Read NAME=VALUE, or NAME alone for its value here. Raises UsageError where it is not set."""
    name, equals, value = text.partition("=")
    if not _NAME.fullmatch(name) or "\0" in value:
        raise UsageError(
            f"{where}{printable(text)!r} names no variable",
            cause="A name has letters, digits and _, and does not begin with a digit.",
            next_step="--env NAME=VALUE, or --env NAME for its value here",
        )
    if not equals and name not in environment:
        raise UsageError(f"{where}{name} is not set here", next_step=f"--env {name}=VALUE")
    return name, value if equals else environment[name]


def read_env_file(path: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a file as `docker run --env-file` reads it: lines as `read_env` has them, and comments.

    Nothing is taken from the host for a file's NAME alone: a file may be a stranger's. Raises UsageError.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what, next_step = unreadable(path, error)
        raise UsageError(what, cause="--env-file is a file of lines NAME=VALUE.", next_step=next_step) from error
    for number, line in enumerate(lines, 1):
        if (text := line.strip()) and not text.startswith("#"):
            if "=" not in text:
                raise UsageError(
                    f"{path}:{number}: {printable(text)!r} has no value",
                    cause="A file that others may have written takes no variable of this machine.",
                    next_step=f"write NAME=VALUE, or type --env {printable(text)}",
                )
            yield read_env(text, environment, f"{path}:{number}: ")


def pass_on(
    environment: Mapping[str, str], targets: Sequence[str], named: Collection[str] = ()
) -> "tuple[dict[str, str], Unpassed]":
    """Return the variables that pass by the table, and what is to be said of the others: of those `named` in code, too.

    A path of the host that the image has at none of the mounts' `targets` would be missing inside: it does not pass.
    """
    passed: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, value in environment.items():
        if (row := _row(name)) is not None:
            is_there = any(value == target or value.startswith(f"{target}/") for target in (*targets, "/tmp"))
            kept = missing if row.paths and value.startswith("/") and not is_there else passed
            kept[name] = value
    meant = {name for name in environment if _matches(name, MEANT)}
    meant |= {name for name in named if name in environment and not _matches(name, _EVERYWHERE)}
    return passed, Unpassed(missing, sorted(meant - (passed | missing).keys()))


@dataclass(frozen=True)
class Unpassed:
    """Variables that are set and do not pass: paths that the image lacks, and what else programs may read."""

    paths: Mapping[str, str]
    names: Sequence[str]

    def lines(self, given_by_name: set[str]) -> Iterator[str]:
        """Yield a line on each path and one on all others, but for what the user gave by name."""
        for name, path in self.paths.items():
            if name not in given_by_name:
                yield f"not passed: {name}: the image has no {printable(path)}; --mount {printable(path)}"
        if names := [name for name in self.names if name not in given_by_name]:
            yield f"not passed: {joined(names, _MOST_NAMED)}; --env {names[0]}    passes it"


def passes(name: str) -> bool:
    """Return whether a variable passes by the table."""
    return _row(name) is not None


def _row(name: str) -> Passed | None:
    return next((row for row in PASSED if _matches(name, row.patterns)), None)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
