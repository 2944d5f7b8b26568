"""GPU models (`packages/gpunames`) beside NVIDIA's public list of compute capabilities, a page that was saved.

Read are rows of its tables: a capability in the first cell, models in the others, one a line. A model that our names
do not lead to gets a row with its source; one that they lead elsewhere is an error, which a maintainer decides.
"""

import html.parser
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphcrate.compat.facts import gpu_table
from graphcrate.host import settings
from graphcrate.host.disk import atomic
from graphcrate.model.errors import IntegrityError, UsageError

TABLE = Path("packages", "gpunames", "src", "gpunames", "gpus.toml")
LARGEST = 16 << 20  #: bytes of a page
_NEXT = "\n[aliases]\n"  #: what follows the table of models
_INTRODUCTION = "# Other names of theirs, as people type them."
_CAPABILITY = re.compile(r"\d{1,2}\.\d")
#: words of a name that tell no model from another
_IDLE = re.compile(
    r"\b(?:NVIDIA|GEFORCE|TESLA|GENERATION|GPUS?|LAPTOP|NOTEBOOK|SERIES|\d+ ?GB)\b|\([^)]*\)", re.IGNORECASE
)


class _Rows(html.parser.HTMLParser):
    """Collect the cells of each row of all tables; a break or paragraph begins a line."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        elif tag in ("br", "p", "li", "div"):
            self.handle_data("\n")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def models_of(page: str) -> Iterator[tuple[str, str]]:
    """Yield each model of a page with its capability: ("NVIDIA A100", "8.0")."""
    parser = _Rows()
    parser.feed(page)
    for capability, *cells in (row for row in parser.rows if row):
        if _CAPABILITY.fullmatch(capability.strip()):
            lines = (" ".join(line.split()) for cell in cells for line in cell.splitlines())
            yield from ((line, capability.strip()) for line in lines if re.search(r"\w", line))


def compared(models: Sequence[tuple[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return rows for models that no name of ours leads to, and a line on each that one leads elsewhere."""
    missing: dict[str, str] = {}
    wrong = []
    for model, capability in models:
        try:
            known = gpu_table.compute_capability(model)
        except UsageError:
            name = "_".join(re.findall(r"[A-Z0-9]+", _IDLE.sub(" ", model).upper()))
            if (
                missing.setdefault(name, capability) != capability
                or gpu_table.all_gpus().get(name, capability) != capability
            ):
                wrong.append(f"{model}: {capability} there, and its name {name} is another's here")
            continue
        if known != capability:
            wrong.append(f"{model}: {capability} there, {known} here")
    return missing, wrong


def update(path: Path, root: Path, *, check: bool) -> list[str]:
    """Add the models of a saved page to the table, unless it is only to be checked; return a line on each.

    Raises UsageError for a page without models, IntegrityError where it has another capability than the table.
    """
    try:
        with path.open("rb") as stream:
            models = list(models_of(stream.read(LARGEST).decode("utf-8", "replace")))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", next_step="the page, saved as HTML") from error
    if not models:
        raise UsageError(
            f"{path} has no table of compute capabilities",
            next_step="save NVIDIA's page of CUDA GPUs as HTML: python -m upkeep gpus cuda-gpus.html",
        )
    missing, wrong = compared(models)
    if wrong:
        raise IntegrityError(f"{path} and {TABLE} differ:\n    " + "\n    ".join(wrong))
    if missing and not check:
        target = root / TABLE
        source = f"documented: NVIDIA, {path.name}, {settings.now_utc()[:10]}"
        rows = "".join(f'{name} = "{capability}"  # {source}\n' for name, capability in missing.items())
        before, middle, after = target.read_text(encoding="utf-8").partition(f"\n{_INTRODUCTION}{_NEXT}")
        assert middle, TABLE
        atomic.write_file(target, f"{before}{rows}{middle}{after}".encode())
    return [f"{name}: {capability}" for name, capability in missing.items()] or [f"{len(models)} models, all known"]
