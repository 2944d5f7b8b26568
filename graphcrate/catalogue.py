"""What there is: recipes and their variants, committed locks, images below the output folder."""

import contextlib
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from graphcrate import recipes
from graphcrate.compat import facts
from graphcrate.compat.doctor_file import one_file
from graphcrate.errors import ResolutionError, UsageError
from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import decode_lock
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.model.unreadable import UNREADABLE

if TYPE_CHECKING:
    from graphcrate.oci.layout import Layout


def find_recipe(place: Workplace, name: str) -> Recipe:
    """The recipe of this name. Raises UsageError with the nearest that exist."""
    names = sorted(path.stem for path in (place.root / "recipes").glob("*.toml"))
    if name not in names:
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.3)
        raise UsageError(
            f"there is no recipe {name!r}" + (f"; the nearest is {', '.join(near)}" if near else ""),
            next_step="./build.py list",
        )
    return recipes.load(place.root / "recipes" / f"{name}.toml")


def find_variant(place: Workplace, name: str, cuda: str) -> tuple[Recipe, Variant]:
    """The recipe and its variant. Raises UsageError with the nearest that exist, ResolutionError for a refused one."""
    recipe = find_recipe(place, name)
    variant = refuse_unknown_cuda(recipe, cuda)
    if variant.unavailable is not None:
        raise ResolutionError(
            f"recipe {name} cannot be had for CUDA {cuda!r}",
            cause=f"{variant.unavailable.why[0].upper()}{variant.unavailable.why[1:]}.",
            next_step=variant.unavailable.instead,
        )
    return recipe, variant


def refuse_unknown_cuda(recipe: Recipe, cuda: str) -> Variant:
    """The recipe's variant, be it one that can be had or not. Raises UsageError with the nearest that exist."""
    variant = recipe.variant(cuda)
    if variant is None:
        near = nearest_cuda(cuda, [variant.cuda for variant in recipe.variants])
        raise UsageError(
            f"recipe {recipe.name} has no variant for CUDA {cuda!r}; the nearest {'are' if len(near) > 1 else 'is'} "
            f"{' and '.join(near)}",
            next_step=f"make image STACK={recipe.name} CUDA={near[0]}    (./build.py list shows all)",
        )
    return variant


def all_recipes(place: Workplace) -> list[Recipe]:
    """Every recipe, by name. Raises RecipeError."""
    return [recipes.load(path) for path in sorted((place.root / "recipes").glob("*.toml"))]


def committed(place: Workplace) -> set[tuple[str, str, str]]:
    """(recipe, CUDA, candidate) of the committed locks."""
    found = set()
    for path in (place.root / "images").glob("*/*/*.lock.json"):
        lock = decode_lock(path.read_bytes())
        found.add((lock.recipe, lock.cuda, lock.candidate))
    return found


def describe(found: Sequence[Recipe], locked: set[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """`list --json`: one object per variant and candidate; so none for a variant that cannot be had."""
    return [
        {
            "recipe": recipe.name,
            "cuda": variant.cuda,
            "torch": candidate.torch,
            "torch_cuda": candidate.torch_cuda,
            "torch_geometric": variant.torch_geometric or None,
            "python": variant.python,
            "base": msgspec.to_builtins(variant.base),
            "candidate": candidate.name,
            "meaning": candidate.meaning or None,
            "channels": [channel.value for channel in candidate.channels],
            "locked": (recipe.name, variant.cuda, candidate.name) in locked,
            "gpus": list(facts.gpu_names(candidate)),
        }
        for recipe in found
        for variant in recipe.variants
        for candidate in variant.candidates
    ]


def examples(place: Workplace) -> dict[str, str]:
    """Return the programs that ship in images, by their names below /opt/graphcrate; the doctor as one file."""
    doctor = place.root / "doctor"
    programs = {
        path.relative_to(place.root).as_posix(): path.read_text(encoding="utf-8")
        for folder in (place.root / "examples", place.root / "suites")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".md", ".sbatch", ".json", ".yml")
    }
    modules = {path.stem: path.read_text(encoding="utf-8") for path in doctor.glob("*.py")}
    if modules:
        programs["examples/doctor.py"] = one_file(modules, (doctor / "errors.ini").read_text(encoding="utf-8"))
    return programs


def check_digest(ref: str, output: Path) -> None:
    """Raises UsageError where a NAME:TAG@DIGEST that is there (below `output`) has another digest by now.

    Engines' builds of the same lock have digests of their own, beside the layout's. An image without a layout, such as
    a SIF that was copied here, says nothing of a digest.
    """
    name, _, digest = ref.partition("@")
    folder = output / name.replace(":", "/")
    built = [report.digest for path in folder.glob("*/report.json") if (report := read_report(path))]
    if digest not in built and (folder / "oci" / "index.json").is_file():
        find_image(ref, output)


def find_image(ref: str, output: Path) -> tuple["Layout", BuildReport]:
    """A layout by NAME:TAG[@DIGEST] (below `output`) or path, with its report.

    Raises UsageError, also where the name has another digest by now, LayoutError.
    """
    from graphcrate.oci.layout import read_layout

    path, name, digest = Path(ref), ref, ""
    if not (path / "index.json").is_file():
        name, _, digest = ref.partition("@")
        path = output / name.replace(":", "/") / "oci"
    if not (path / "index.json").is_file():
        present = [f"{p.parent.parent.parent.name}:{p.parent.parent.name}" for p in output.glob("*/*/oci/index.json")]
        near = difflib.get_close_matches(ref, present, n=3, cutoff=0.3) or present[:3]
        raise UsageError(
            f"there is no image {ref!r}" + (f"; there are {', '.join(near)}" if near else f" in {output}/"),
            next_step="make image CUDA=11.8    builds one; a path to an OCI layout works too",
        )
    layout = read_layout(path)
    if digest not in ("", layout.digest):
        raise UsageError(
            f"{name} is {layout.digest} now, and {digest} was asked for",
            cause="It was built again since, from another lock or with another graphcrate.",
            next_step=f"name the one that is there: {name}@{layout.digest}",
        )
    report = read_report(path.parent / "report.json")
    return layout, report if report and report.digest == layout.digest else _foreign_report(layout)


def read_report(path: Path) -> BuildReport | None:
    """A build's report; None where there is none, or one of an older graphcrate."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return msgspec.json.decode(path.read_bytes(), type=BuildReport)
    return None


def nearest_cuda(cuda: str, known: list[str]) -> list[str]:
    """At most two of the known CUDA versions, the nearest first."""
    numbers = [version for version in known if version != "cpu"]
    try:
        wanted = float(cuda)
    except ValueError:
        return difflib.get_close_matches(cuda, known, n=2, cutoff=0.4) or ["11.8"]
    return sorted(numbers, key=lambda version: abs(float(version) - wanted))[:2]


def lock_path(place: Workplace, recipe: Recipe, variant: Variant, candidate: Candidate) -> Path:
    """Where the candidate's lock is committed."""
    from graphcrate import planning

    label = planning.cuda_label(variant.cuda)
    return place.root / "images" / recipe.name / label / f"{candidate.name}.lock.json"


def _foreign_report(layout: "Layout") -> BuildReport:
    """What a layout without our report says of itself."""
    labels = layout.labels
    name = labels.get("org.opencontainers.image.title", layout.path.name)
    size = sum(layer.size for layer in layout.layers)
    return BuildReport(
        artifact=Artifact(
            engine="unknown", kind="layout", reference=str(layout.path), digest=layout.digest, bytes=size
        ),
        name=name,
        tag=layout.tag or "",
        digest=layout.digest,
        layout=str(layout.path),
        bytes=size,
        candidate=labels.get("graphcrate.candidate", ""),
        torch=labels.get("graphcrate.torch", ""),
        torch_cuda=labels.get("graphcrate.torch.cuda", ""),
        cuda=labels.get("graphcrate.cuda", ""),
        python=labels.get("graphcrate.python", ""),
        packages=(),
        smoke=None,
        seconds=0.0,
        layers=layout.records,
        lock_sha256=labels.get("graphcrate.lock.sha256", ""),
    )
