"""What `job` was asked for, in the words that a runtime takes: a file's path, a reference on a registry."""

import re
from pathlib import Path

from graphcrate.artifacts.locate import find_built
from graphcrate.compat.planning import EXAMPLES
from graphcrate.model.errors import UsageError
from graphcrate.model.job import Mount, Runtime
from graphcrate.oci import reference

#: what a runtime of Slurm opens: the files' ending, and what makes one
_FORMS = {Runtime.SINGULARITY: "sif", Runtime.PYXIS: "sqsh"}


def runtime(name: str) -> Runtime:
    """Raises UsageError with those that there are."""
    try:
        return Runtime(name)
    except ValueError:
        raise UsageError(f"there is no runtime {name!r}; there are {', '.join(Runtime)}") from None


def image(ref: str, where: Runtime, output: Path) -> str:
    """What the runtime is told. Raises UsageError for an image that it cannot reach from there."""
    ref = reference.on_registry(ref) if ref.startswith(reference.SCHEME) else ref
    path = Path(ref)
    form = _FORMS.get(where)
    if form and (path.suffix in (".sif", ".sqsh") or path.is_file()):
        if path.suffix != f".{form}":
            raise UsageError(f"{where} opens a .{form}, and not {path.name}")
        # as it was given: the file may be on the cluster alone. pyxis knows a file by its first letter
        return f"./{path}" if where is Runtime.PYXIS and not str(path).startswith((".", "/")) else str(path)
    built = find_built(ref, output)
    if form and built and built.ours:
        file = built.ours / f"{name(ref)}.{form}"
        if file.is_file():
            return str(file.absolute())
        raise UsageError(
            f"{ref} is not there as {file}", next_step=f"./build.py convert {ref} --to {form}    makes it of the layout"
        )
    if where is Runtime.SINGULARITY:
        raise UsageError(f"singularity needs a file, and {ref!r} is none", next_step="give the path of a .sif")
    if where is not Runtime.DOCKER and "." not in ref.partition("/")[0] and (built or "/" not in ref):
        raise UsageError(
            f"{where} pulls from a registry, and {ref!r} names none",
            next_step=f"give its address there: registry.<region>.aliyuncs.com/<namespace>/{ref}"
            if where.is_pai
            else f"give its address there, registry.example.com/team/{ref}, or the path of a .sqsh",
        )
    reference.parse(ref)
    return ref


def name(ref: str) -> str:
    """The image's name, without registry, tag and ending."""
    return re.split(r"[:@]", ref.rpartition("/")[2].removesuffix(".sif").removesuffix(".sqsh"))[0]


def program(ref: str) -> str:
    """What an image of ours is proven by."""
    return f"python {EXAMPLES}/{'torch_check.py' if name(ref).startswith('torch') else 'dna.py'}"


def mount(text: str) -> Mount:
    """Of SOURCE:TARGET. Raises UsageError."""
    source, _, target = text.partition(":")
    if not source or not target.startswith("/") or any(letter in text for letter in ",\n") or ":" in target:
        raise UsageError(f"{text!r} is not SOURCE:TARGET", next_step="--mount /data/ogb:/data")
    return Mount(source, target)
