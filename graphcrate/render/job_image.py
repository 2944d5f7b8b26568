"""The image of a job: by which path or reference its runtime opens it, its name, and what its stack brings to run."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts import origin
from graphcrate.artifacts.locate import check_given_digest, is_image_file, store_of
from graphcrate.artifacts.reports import read_report
from graphcrate.compat.plan.image_config import EXAMPLES
from graphcrate.model.command import ETC, Command, command
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Recipe
from graphcrate.model.runtime import JOBS, opened_on_slurm
from graphcrate.oci import reference
from graphcrate.render.job import PLAIN, Job
from ociregistry.reference import SCHEME, on_registry

#: of files of images: those that runtimes open, and archives, which none of them does
_ENDINGS = (*dict.fromkeys(ending for form in JOBS.values() for ending in form.files), ".tar")


def find_image(ref: str, runtime: str, output: Path) -> str:
    """Return the path or the reference by which a runtime opens an image. Raises UsageError where it cannot."""
    if ref.startswith(SCHEME) or "#" in ref:  # as enroot writes a registry's image
        ref = on_registry(ref) or ref
    path = Path(ref)
    if path.is_file() and origin.is_delta(path):
        return _delta(path, runtime)
    if path.suffix in _ENDINGS or path.is_file():
        return _file(ref, runtime)
    if engine := store_of(ref):
        return _in_store(ref, engine, runtime)
    is_ours = ":" in ref and _folder(ref, output).is_dir()
    return _built(ref, output, runtime) if is_ours and JOBS[runtime].files else _pulled(ref, runtime, is_ours=is_ours)


def _folder(ref: str, output: Path) -> Path:
    return output / ref.partition("@")[0].replace(":", "/")


def _opens(runtime: str) -> str:
    return (*JOBS[runtime].files, "images on a registry")[0]


def _converted(ref: str, runtime: str) -> Command:
    """Return the command that makes of an image what a runtime opens, which opens files."""
    return command("convert", ref, to=JOBS[runtime].files[0][1:])


def _delta(path: Path, runtime: str) -> str:
    if not JOBS[runtime].overlay:
        to = (*JOBS[runtime].files, ".docker")[0][1:]
        raise UsageError(
            f"{path} has what an image has over {origin.over(path).name} alone, and {runtime} takes whole images",
            next_step=f"{command('convert', 'NAME:TAG', to=to)}    makes one",
        )
    return str(path.absolute())


def _file(ref: str, runtime: str) -> str:
    """Return the path as given: the file may be on the cluster alone."""
    path, job = Path(ref), JOBS[runtime]
    if path.suffix in job.files:
        return f"./{path}" if job.is_dotted and not str(path).startswith((".", "/")) else str(path)
    source = ref if path.suffix == ".tar" and path.is_file() else "NAME:TAG"
    pulls = command("job", f"{job.registry}/NAME:TAG", runtime=runtime)
    made = _converted(source, runtime) if job.files else pulls
    another = opened_on_slurm(path.suffix) if job.is_slurm else ""
    raise UsageError(
        f"{runtime} opens {_opens(runtime)}, and not {path.name}{', which is not here' if is_missing(ref) else ''}",
        next_step=f"{command(ETC, runtime=another)}    (opens {path.suffix} in a job of Slurm); or {made}"
        if another
        else made,
    )


def _in_store(ref: str, engine: str, runtime: str) -> str:
    if engine == runtime:
        return ref.removeprefix(f"{engine}:")
    pushed = f"push it, and name it so: {JOBS[runtime].registry}/NAME:TAG"
    raise UsageError(
        f"{ref} is in the store of {engine} on this machine, and {runtime} opens {_opens(runtime)}",
        next_step=f"{_converted(ref, runtime)}    makes one" if JOBS[runtime].files else pushed,
    )


def _built(ref: str, output: Path, runtime: str) -> str:
    if "@" in ref:
        check_given_digest(ref, output)
    file = _folder(ref, output) / f"{image_name(ref)}{_opens(runtime)}"
    if file.is_file():
        return str(file.absolute())
    raise UsageError(f"{ref} does not exist as {file}", next_step=f"{_converted(ref, runtime)}    makes it")


def _pulled(ref: str, runtime: str, *, is_ours: bool) -> str:
    job = JOBS[runtime]
    if not job.pulls:
        form = f"give the path of a {_opens(runtime)}"
        step = f"{_converted(ref, runtime)}    makes one" if on_registry(ref) else form
        raise UsageError(f"{runtime} needs a file: there is no {ref}", next_step=step)
    if job.pulls == "registry" and not on_registry(ref) and (is_ours or "/" not in ref):
        raise UsageError(
            f"{runtime} pulls from a registry, and {ref!r} names no registry",
            next_step=f"give its address there: {job.registry}/{ref}",
        )
    reference.parse(ref)
    return ref


def is_missing(ref: str) -> bool:
    """Return whether a file of an image is meant that is not here; it may be on the cluster alone."""
    return is_image_file(ref) and not Path(ref).exists()


def image_name(ref: str) -> str:
    """Return the image's name, without registry, tag and ending."""
    name = ref.rpartition("/")[2]
    return re.split(r"[:@]", name.removesuffix(next(filter(name.endswith, _ENDINGS), "")))[0]


def job_name(ref: str) -> str:
    """Return the image's name as Slurm's scripts take one: without quotes and spaces."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", image_name(ref)).strip("._+-") or "job"


def default_name(ref: str, runtime: str) -> str:
    """Return the name of a job whose user gives none: the image's, of a module with its release (pyg/2.3.1)."""
    release = ref.rpartition(":")[2].partition("-")[0] if runtime == "module" and ":" in ref else ""
    return f"{job_name(ref)}/{release}" if PLAIN.fullmatch(release) else job_name(ref)


def default_command(ref: str, output: Path, stacks: Sequence[Recipe]) -> str:
    """Return the command of the program that proves an image of a stack. Raises UsageError for another image.

    The stack is what built the image; where that is not known, the image's name is that of a stack, or begins with it
    and a version. `output`: the folder of builds.
    """
    program = next((stack.program for stack in _stack_of(ref, output, stacks)), "")
    if not program:
        raise UsageError(
            f"what shall run in {ref}? {_unknown(ref, 'is not an image of a stack, which bring a program')}",
            next_step=command(ETC, command="python train.py"),
        )
    return f"python {EXAMPLES}/{program}"


def default_suites(ref: str, output: Path, stacks: Sequence[Recipe]) -> tuple[str, ...]:
    """Return the suites of an image's stack. Raises UsageError for another image; the rest as `default_command`."""
    suites = next((stack.smoke for stack in _stack_of(ref, output, stacks)), ())
    if not suites:
        named = f"{stacks[0].name}-cu118.sif"
        raise UsageError(
            f"which suites has {ref}? {_unknown(ref, 'is not known to be an image of a stack, which has some')}",
            cause="That is in report.json beside an image, or its name begins with the stack's.",
            next_step=command("job", named, runtime="reframe")
            if is_missing(ref)
            else f"ln -s {shlex.quote(ref)} {named}    and then give that name",
        )
    return suites


def _unknown(ref: str, known: str) -> str:
    """Say why a job's command or suites are unknown: the file of its image is not here, or what is `known` of it."""
    return "There is no such file here, and its name begins with no stack's" if is_missing(ref) else f"It {known}"


def _stack_of(ref: str, output: Path, stacks: Sequence[Recipe]) -> Iterator[Recipe]:
    """Find the stack of an image, if there is one."""
    name, known = image_name(ref), ""
    for folder in (_folder(ref, output), Path(ref).parent):
        report = read_report(folder / "report.json")
        if report is not None and report.name == name:
            known = known or (report.asked.recipe if report.asked else report.name)
    for stack in stacks:
        if known == stack.name if known else re.fullmatch(rf"{re.escape(stack.name)}([-_.](cu\d|cpu|\d).*)?", name):
            yield stack


def on_base(job: Job, environment: Mapping[str, str]) -> Job:
    """Put a delta over the SIF that it goes over. Raises UsageError where no such SIF is here."""
    delta = Path(job.image)
    if not delta.is_file() or not origin.is_delta(delta):
        return job
    base = origin.base_of(delta, environment).absolute()
    return msgspec.structs.replace(job, image=str(base), overlay=str(delta))
