"""Draw the pictures of README and docs/ from data that the project has: rules, a committed lock, recorded runs, tables.

`tools.generate` writes them; libraries were weighed in `graphcrate.pages.charts`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jinja2

from graphcrate.compat import catalog
from graphcrate.compat.support import MARKS, support
from graphcrate.host.context import Context
from graphcrate.model.words import size
from graphcrate.pages.charts import curve, treemap
from graphcrate.pages.report import group_of

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "pictures"
_FORMS = (("Docker", "archive"), ("Apptainer", ".sif"), ("pyxis", ".sqsh"), ("registry", "signed"), ("PAI", "DSW, DLC"))


def pictures() -> Iterator[tuple[Path, str]]:
    """Each picture's path and text."""
    recipe = catalog.find_recipe(Context(root=ROOT, environment={}), "pyg")
    found = support(recipe)
    rows = 100 + len(found.rows) * 30
    yield _drawn(
        "matrix",
        780,
        rows + 30,
        "GPUs against CUDA versions: green runs, yellow compiles first",
        support=found,
        marks=MARKS,
    )
    yield _drawn("bytes", 780, 420, "treemap of the files of pyg for CUDA 11.8 by size", **_bytes())
    lines = (DATA / "dna.log").read_text(encoding="utf-8").splitlines()
    title = "dna.py in pyg 11.8, two CPU cores: the build stops when it has proven enough"
    yield _drawn(
        "curve", 740, 340, "loss falls, accuracy rises into its band", curve=curve(lines), band=(75, 95), title=title
    )
    groups = _speed()
    yield _drawn("speed", 740, 20 + sum(50 + 30 * len(one) for _, one in groups), "seconds compared", groups=groups)
    yield _drawn(
        "flow", 760, 290, "recipe, lock, layers, checks, training, image, and the forms it takes", forms=_FORMS
    )
    shown = (DATA / "build.txt").read_text(encoding="utf-8").splitlines()
    label = "make image CUDA=11.8: plan, four steps, training, what was tested and what to type next, shortened"
    yield _drawn("build", 780, 54 + 19 * len(shown), label, lines=shown)


def _drawn(name: str, width: int, height: int, label: str, **values: object) -> tuple[Path, str]:
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "drawings")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["size"] = size
    sizes = {"width": width, "height": height, "label": label}
    return DATA / f"{name}.svg", environment.get_template(f"{name}.svg").render(**sizes, **values) + "\n"


def _bytes() -> dict[str, object]:
    """Wheels and Debian's packages of the committed lock, packed as they are downloaded."""
    lock = json.loads((ROOT / "images/pyg/cu118/compatible.lock.json").read_text(encoding="utf-8"))
    values = [(one["name"], one["file"]["size"]) for one in lock["packages"]]
    debian = sum(one["file"]["size"] for one in lock["base"]["packages"])
    boxes = treemap([*values, ("debian", debian)], 740, 350)
    families = [group_of(box.label) for box in boxes]
    short = [box._replace(label=re.sub(r"^nvidia-(.*)-cu\d+$", r"\1", box.label)) for box in boxes]
    total = sum(value for _, value in values) + debian
    return {
        "title": f"Where {size(total)} of pyg for CUDA 11.8 are (packed)",
        "boxes": list(zip(short, families, strict=True)),
    }


def _speed() -> list[tuple[str, list[tuple[str, float, bool]]]]:
    """Side-by-side timings of the pages that scripts of bench/ were written up in."""
    pages = ("docs/performance.md", "docs/decisions/conversion.md")
    page = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in pages)

    def seconds(pattern: str) -> float:
        found = re.search(pattern, page)
        assert found, pattern
        return float(found[1])

    return [
        (
            "2.4 GB of layers from wheels that are there",
            [
                ("graphcrate", seconds(r"layers and layout from cached wheels[^|]*\| ([\d.]+) s"), True),
                ("uv, tar, gzip -6", seconds(r"the same wheels by `uv pip install`[^|]*\| ([\d.]+) s"), False),
            ],
        ),
        (
            "push of 2.4 GB to a registry",
            [
                ("graphcrate", seconds(r"first push[^|]*\| ([\d.]+) s"), True),
                ("skopeo", seconds(r"first push[^|]*\| [\d.]+ s; skopeo ([\d.]+) s"), False),
            ],
        ),
        (
            "SIF of a CUDA image",
            [
                ("graphcrate, zstd", seconds(r"zstd, \*\*256 KiB\*\* \|[^|]*\| ([\d.]+) s"), True),
                ("graphcrate, gzip", seconds(r"gzip, 256 KiB \|[^|]*\| ([\d.]+) s"), True),
                ("apptainer build", seconds(r"`apptainer build` \([^|]*\|[^|]*\| ([\d.]+) s"), False),
            ],
        ),
    ]
