"""Draw the pictures of README and docs/ from data that the project has: rules, a committed lock, recorded runs, tables.

`tools.generate` writes them; libraries were weighed in `graphcrate.pages.charts`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from graphcrate.compat.facts import gpu_table
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.support import MARKS, Mark, support
from graphcrate.host.context import Context
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.words import listed, size
from graphcrate.pages.charts import Box, curve, treemap
from graphcrate.pages.colours import COLOURS
from graphcrate.pages.report import group_of

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "pictures"
_STAGES = (
    *(("recipe", "stack, CUDA", "card"), ("lock", "files by hash", "card"), ("layers", "wheels, debs", "pyg")),
    *(("checks", "symbols, code", "nvidia"), ("training", "in the image", "torch")),
)
_FORMS = (("Docker", "archive"), ("Apptainer", ".sif"), ("pyxis", ".sqsh"), ("registry", "signed"), ("PAI", "DSW, DLC"))
#: of a mark of the matrix: the cell's colour, its text's, its border's, its text
_LOOKS: dict[Mark, tuple[str, str, str, str]] = {
    "native": ("run", "on", "", "●"),
    "jit": ("ptx", "on-ptx", "", "PTX"),
    "built": ("built-bg", "built", "built", "GPU="),
    "unknown": ("no-bg", "soft", "", "?"),
    "rejected": ("no-bg", "soft", "", "no"),
}
_DARK = "(dark)"  #: where the style for dark pages goes
_PROPERTIES = {"f": "fill", "s": "stroke"}
WIDTH = 560  #: of most, in their own units: text of 13 is readable where a telephone shows them 390 pixels wide


def pictures() -> Iterator[tuple[Path, str]]:
    """Each picture's path and text."""
    recipe = catalog.find_recipe(Context(root=ROOT, environment={}), "pyg")
    found = support(recipe)
    label = "GPUs against CUDA versions: green runs, yellow compiles first, violet needs an image built for it"
    rows = 156 + len(found.rows) * 29
    yield _drawn("matrix", 580, rows, label, support=found, marks=MARKS, looks=_LOOKS)
    lock = json.loads((ROOT / "images/pyg/cu118/compatible.lock.json").read_text(encoding="utf-8"))
    title = f"Where {size(sum(value for _, value in _files(lock)))} of pyg for CUDA 11.8 are (packed)"
    label = "treemap of the files of pyg for CUDA 11.8 by size"
    yield _drawn("bytes", WIDTH, 422, label, title=title, boxes=_boxes(lock, 360))
    lines = (DATA / "dna.log").read_text(encoding="utf-8").splitlines()
    trained: dict[str, object] = {"curve": curve(lines), "band": (75, 95)}
    title = "dna.py in pyg 11.8: the build stops when it has proven enough"
    yield _drawn("curve", WIDTH, 336, "loss falls, accuracy rises into its band", title=title, **trained)
    yield _drawn("report", WIDTH, 812, "report.html of pyg for CUDA 11.8", **_report(lock), **trained)
    groups = _speed()
    yield _drawn("speed", WIDTH, 20 + sum(50 + 30 * len(one) for _, one in groups), "seconds compared", groups=groups)
    label = "recipe, lock, layers, checks, training, image, and the forms it takes"
    yield _drawn("flow", 592, 264, label, forms=_FORMS, stages=_STAGES)
    shown = (DATA / "build.txt").read_text(encoding="utf-8").splitlines()
    label = "make image CUDA=11.8: plan, four steps, training, what was tested and what to type next, shortened"
    yield _drawn("build", WIDTH, 54 + 19 * len(shown), label, lines=shown)


def _drawn(name: str, width: int, height: int, label: str, **values: object) -> tuple[Path, str]:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "drawings")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"size": size, "stretched": _stretched, "few": _few}
    environment.globals["paint"] = _paint
    sizes = {"width": width, "height": height, "label": label}
    text = environment.get_template(f"{name}.svg").render(**sizes, **values, dark=_DARK) + "\n"
    used = sorted({*re.findall(r"\b[fs]-[a-z-]+(?=[ \"])", text)})
    rules = (f".{one} {{ {_PROPERTIES[one[0]]}: {COLOURS[one[2:]].dark}; }}" for one in used)
    return DATA / f"{name}.svg", text.replace(_DARK, f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}")


def _paint(fill: str, line: str = "") -> Markup:
    """Attributes for these colours, and the classes by which the style for dark pages changes them."""
    names = " ".join(f"{kind}-{name}" for kind, name in (("f", fill), ("s", line)) if name)
    stroke = f' stroke="{COLOURS[line].light}"' if line else ""
    return Markup(f'class="{names}" fill="{COLOURS[fill].light if fill else "none"}"{stroke}')


def _stretched(points: str, width: float, height: float) -> str:
    """Points of a field of 100 by 100 in one of this size: not every renderer keeps a line's width when it scales."""
    pairs = (pair.split(",") for pair in points.split())
    return " ".join(f"{float(x) * width / 100:.1f},{float(y) * height / 100:.1f}" for x, y in pairs)


def _files(lock: dict[str, Any]) -> list[tuple[str, int]]:
    """Wheels and Debian's packages of a lock, packed as they are downloaded."""
    debian = sum(one["file"]["size"] for one in lock["base"]["packages"])
    return [*((one["name"], one["file"]["size"]) for one in lock["packages"]), ("debian", debian)]


def _boxes(lock: dict[str, Any], height: int) -> list[tuple[Box, str]]:
    """A treemap of the files of a lock, with each one's colour."""
    boxes = treemap(_files(lock), WIDTH - 32, height)
    short = [box._replace(label=re.sub(r"^nvidia-(.*)-cu\d+$", r"\1", box.label)) for box in boxes]
    return [(box, group_of(one.label)) for box, one in zip(short, boxes, strict=True)]


def _report(lock: dict[str, Any]) -> dict[str, object]:
    """Read report.html of the image that proved this lock."""
    proof = decode_proof((ROOT / "images/pyg/cu118/compatible.proof.json").read_bytes())
    versions = {one["name"]: one["version"] for one in lock["packages"]}
    chips = [("torch", versions["torch"]), ("CUDA", proof.cuda), ("PyG", versions["torch-geometric"])]
    gpus = []
    for capability, models in gpu_table.models_by_capability().items():
        gpus.append((capability.replace(".", ""), _few(models), proof.gpus[capability]))
    suites = listed([one.suite for one in proof.suites])
    return {
        "proof": proof,
        "chips": [*chips, ("Python", lock["python"]), ("packed", size(proof.bytes))],
        "gpus": gpus,
        "tested": f"{suites} passed",
        "checked": f"{proof.binaries} programs and libraries, {proof.warnings or 'no'} warnings",
        "boxes": _boxes(lock, 160),
    }


#: characters that fit beside a compute capability
_WIDEST_NAMES = 18


def _few(models: Sequence[str]) -> str:
    """The first two of the GPUs of a compute capability: a picture does not change with each one that comes."""
    two = ", ".join(models[:2]).replace("_", " ")
    return f"{two if len(two) <= _WIDEST_NAMES else models[0].replace('_', ' ')} …"


def _speed() -> list[tuple[str, list[tuple[str, float, bool]]]]:
    """Side-by-side timings of bench/peers.py."""
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")

    def seconds(pattern: str) -> float:
        found = re.search(rf"^\| {pattern} \| ([\d.]+) s", page, re.MULTILINE)
        assert found, pattern
        return float(found[1])

    return [
        (
            "OCI layout of torch and PyG, everything downloaded",
            [
                ("graphcrate", seconds(r"graphcrate, `--no-smoke` \| OCI layout"), True),
                ("buildah and uv", seconds(r"… and `buildah push [^|]*\| OCI layout"), False),
            ],
        ),
        (
            "the same as a SIF",
            [
                ("graphcrate", seconds(r"… and `convert --to sif` \| SIF"), True),
                ("apptainer build, uv", seconds(r"Apptainer [\d.]+, `apptainer build` \| SIF"), False),
                ("docker, apptainer", seconds(r"… and `apptainer build` of that \| SIF"), False),
            ],
        ),
    ]
