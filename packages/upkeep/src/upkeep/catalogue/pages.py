"""Each variant with what is locked and what was measured. `templates/words.toml` has a column for each language."""

import datetime
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphcrate.artifacts.reports import read_report
from graphcrate.compat.facts import driver_table, gpu_table
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.proofs import Word, standings
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.support import Support, SupportCell, support
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.inputs.shared import stock
from graphcrate.inputs.shared.entry import IMAGE
from graphcrate.inputs.shared.site_cache import SiteCache
from graphcrate.model.lock import Lock
from graphcrate.model.lock_proof import LockProof
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.model.report import BuildReport
from graphcrate.model.runtime import RUNTIMES
from graphcrate.pages.html import page_words, render_page
from graphcrate.pages.report import NAME, run_tabs
from upkeep.catalogue import guide

_PACKAGE = "upkeep.catalogue"  #: has the templates; what they extend is in graphcrate.pages


class Measured(NamedTuple):
    """An image that was built and tested: here, by its report, or where its lock was proved."""

    tag: str
    digest: str
    bytes: int
    suites: Sequence[tuple[str, str]]  #: with their status
    device: str
    is_plain: bool  #: the stack itself, without additions of the user and for no GPU in particular
    made_for: Sequence[str]  #: GPU models
    no_code: Sequence[str]  #: GPU models that it has no code for
    stale: str = ""  #: the day of a proof that is stale


@dataclass(frozen=True)
class VariantItem:
    """A variant with what is known of it. `lock`: the committed one of its first candidate that has one."""

    recipe: Recipe
    variant: Variant
    candidate: str  #: that the lock is of
    lock: Lock | None
    measured: Sequence[Measured]  #: images here, newest first; last the one that proved the lock
    gpus: Mapping[str, SupportCell]  #: GPU model → the verdict, where a candidate runs

    @property
    def name(self) -> str:
        """ "pyg-cu118", also of its page."""
        return f"{self.recipe.name}-{self.label}"

    @property
    def label(self) -> str:
        """ "cu118", which is also a name of its newest image."""
        return cuda_label(self.variant.cuda)

    @property
    def elsewhere(self) -> list[str]:
        """GPU models that other candidates run, but not the locked one."""
        models = (model for model, cell in self.gpus.items() if cell.runs and self.candidate not in cell.ways)
        return list(models) if self.lock else []

    @property
    def built(self) -> list[str]:
        """GPU models that run an image which was built for them, and no other."""
        return [model for model, cell in self.gpus.items() if cell.mark == "built"]

    @property
    def torch(self) -> str:
        """The version that the lock has, else that of the first candidate which names one; empty where none does."""
        if self.lock:
            return next((package.version for package in self.lock.packages if package.name == "torch"), "")
        return next((candidate.torch for candidate in self.variant.candidates if candidate.torch != "*"), "")

    @property
    def locked_on(self) -> str:
        """The day ("2026-11-24") of its lock; empty where it has none. An age would not be true for long."""
        return datetime.datetime.fromtimestamp(self.lock.created, datetime.UTC).date().isoformat() if self.lock else ""

    @property
    def plain(self) -> Measured | None:
        """The image that `make image CUDA=…` makes, as it was measured."""
        return next((image for image in self.measured if image.is_plain), None)

    @property
    def driver(self) -> str:
        """The oldest NVIDIA driver; empty where it needs none."""
        return "" if self.variant.cuda == "cpu" else driver_table.oldest_driver(self.variant.cuda)

    @property
    def drivers(self) -> str:
        """The NVIDIA drivers from the oldest on, to the last branches for its GPUs."""
        models = self.gpus if self.driver else {}
        runs = dict.fromkeys(gpu_table.compute_capability(model) for model, cell in models.items() if cell.runs)
        return driver_table.drivers_of_each(self.driver, runs) if self.driver else ""

    @property
    def words(self) -> str:
        """All that a search may ask for."""
        packages = [f"{package.name} {package.version}" for package in self.lock.packages] if self.lock else []
        runs = " ".join(word for name, row in RUNTIMES.items() for word in (name, *row.also_called))
        stack = f"{self.recipe.name} cuda {self.variant.cuda} torch {self.torch} pyg {self.variant.torch_geometric}"
        models = " ".join(f"{model} {model.replace('_', ' ')}" for model in self.gpus)
        return " ".join([stack, f"python {self.variant.python} driver {self.driver}", models, runs, *packages]).lower()


def write(ctx: Context, output: Path, site: Path, shared: SiteCache | None = None) -> None:
    """Write the pages of all variants in all languages below `site`. `output`: the folder of builds.

    `shared`: a cache whose images are named. Raises what a place of it raises.
    """
    recipes = catalog.all_recipes(ctx)
    maps = [support(recipe) for recipe in recipes]
    items = list(_items(ctx, output, recipes, maps))
    pages = {}
    for report, folder in (pair for recipe in recipes for pair in _reports(output / recipe.name)):
        if (folder / NAME).is_file():
            pages[site / "reports" / f"{report.name}-{report.tag}.html"] = (folder / NAME).read_bytes()
    there = {path.stem for path in (*pages, *(site / "reports").glob("*.html"))}
    cached = _cached(shared) if shared else {}
    languages = page_words(_PACKAGE)["language"]
    guides = guide.guides(ctx.root, languages, file_name)
    for language in languages:
        spoken = {word: texts[language] for word, texts in page_words(_PACKAGE).items() if language in texts}
        values: dict[str, object] = {"t": spoken, "language": language, "items": items, "maps": maps, "there": there}
        values |= {"languages": languages, "file_name": file_name, "link": functools.partial(_link, language)}
        values |= {"run_tabs": run_tabs, "guides": guides, "cached": cached}
        pages[site / file_name("index", language)] = render_page("catalog.html", values, _PACKAGE).encode()
        if language in guides:
            pages[site / file_name("docs", language)] = render_page("docs.html", values, _PACKAGE).encode()
        for item in items:
            described = item.recipe.translated.get(language, "")
            text = render_page("variant.html", {**values, "item": item, "described": described}, _PACKAGE)
            pages[site / file_name(item.name, language)] = text.encode()
    for path, data in pages.items():
        write_file(path, data)


def _cached(shared: SiteCache) -> dict[str, str]:
    """Map digests of images to the places that have them, as a trusted key has signed: the first one of each."""
    places: dict[str, str] = {}
    for place in shared.places:
        for known in stock.counting(shared, place, IMAGE):
            for file in known.files:
                places.setdefault(f"sha256:{file.sha256}", place.name)
    return places


def _link(language: str, recipe: str, cuda: str, model: str) -> str:
    """The page of a cell of the map: of the variant, for any model."""
    return file_name(f"{recipe}-{cuda_label(cuda)}", language)


def file_name(name: str, language: str) -> str:
    """The page's file: English has the plain name."""
    return f"{name}.html" if language == "en" else f"{name}.{language}.html"


def _items(ctx: Context, output: Path, recipes: Sequence[Recipe], maps: Sequence[Support]) -> Iterator[VariantItem]:
    known = list(standings(ctx, recipes))
    for recipe, its_support in zip(recipes, maps, strict=True):
        reports = list(_reports(output / recipe.name))
        for variant in recipe.variants:
            cells = {model: row.cells.get(variant.cuda) for row in its_support.rows for model in row.models}
            locked = [each for each in known if (each.recipe, each.variant.cuda) == (recipe, variant.cuda)]
            first = next((each for each in locked if each.variant.base.runs_on == DEFAULT), None)
            measured = [_of_report(report) for report, _ in reports if report.cuda == variant.cuda]
            there = {image.digest for image in measured}
            shown = (each for each in locked if each is first or each.variant.base.runs_on != DEFAULT)
            measured += [
                _of_proof(each.proof, each.word, each is first)
                for each in shown
                if each.proof and each.proof.digest not in there
            ]
            yield VariantItem(
                recipe=recipe,
                variant=variant,
                candidate=first.candidate.name if first else "",
                lock=first.lock if first else None,
                measured=measured,
                gpus={model: cell for model, cell in cells.items() if cell and cell.ways},
            )


def _reports(folder: Path) -> Iterator[tuple[BuildReport, Path]]:
    """Reports of images that are there, the newest first; further names of an image are links."""
    paths = [path for path in folder.glob("*/report.json") if not path.parent.is_symlink()]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime):
        report = read_report(path)
        if report and report.layout and (report.name, report.tag) == (folder.name, path.parent.name):
            yield report, path.parent


def _of_report(report: BuildReport) -> Measured:
    asked = report.asked
    gpus = report.audit.gpus if report.audit else {}
    known = _without_code(gpus) if gpus else report.fallback.no_code if report.fallback else ()
    return Measured(
        tag=report.tag,
        digest=report.digest,
        bytes=report.bytes,
        suites=[(suite.suite, suite.status) for suite in report.suites],
        device=report.suites[0].device if report.suites else "",
        is_plain=not report.own and not (asked and (asked.additions or asked.gpus or asked.flavour or asked.platform)),
        made_for=[name.upper() for name in asked.gpus] if asked else (),
        no_code=() if asked and asked.gpus else known,
    )


def _of_proof(proof: LockProof, word: Word, is_plain: bool) -> Measured:
    return Measured(
        tag=proof.tag,
        digest=proof.digest,
        bytes=proof.bytes,
        suites=[(suite.suite, "passed") for suite in proof.suites],
        device=proof.suites[0].device if proof.suites else "",
        is_plain=is_plain,
        made_for=(),
        no_code=_without_code(proof.gpus),
        stale=proof.date[:10] if word == "stale" else "",
    )


def _without_code(gpus: Mapping[str, str]) -> list[str]:
    """GPU models of lists that an image cannot run on, by its audit."""
    return [model for model, capability in gpu_table.gpus().items() if gpus.get(capability) == "fails"]
