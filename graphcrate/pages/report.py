"""The report of an image, anybody's: what is in it, where it runs, how it was tested. Read here, drawn by templates."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphcrate.artifacts.locate import Located, find_image, locate
from graphcrate.artifacts.reports import read_upstream
from graphcrate.checks import licences, wording
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.audit.run import Look
from graphcrate.checks.contracts import run as contracts
from graphcrate.checks.reading import read_image
from graphcrate.compat.facts import driver_table, gpu_table
from graphcrate.compat.plan import base_lines
from graphcrate.compat.proofs import proof_of
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.sealed import kept
from graphcrate.host.sandbox import beneath
from graphcrate.model.audit import AuditFinding
from graphcrate.model.command import command
from graphcrate.model.contract import ContractFinding, Host
from graphcrate.model.recipe import CHANNELS
from graphcrate.model.report import BuildReport, LayerRecord, SmokeReport, UpstreamResults
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.suite import SUITES
from graphcrate.model.trial import TrialReport
from graphcrate.pages import timeline
from graphcrate.pages.charts import Box, Curve, Rates, curve, rates, treemap
from graphcrate.pages.html import render_page
from graphcrate.pages.timeline import Timeline

NAME = "report.html"  #: beside report.json
UNKNOWN = "not known"
_MOST_BOXES = 40
_MOST_FINDINGS = 200
_LIBRARIES = {re.escape(name) for row in CHANNELS.values() for name in row.libraries}
#: a package's colour in the treemap, by its name; the first that fits
_GROUPS = (
    ("torch", re.compile(r"torch|torchvision|torchaudio|triton")),
    ("nvidia", re.compile(r"nvidia-.*|cuda.*")),
    ("pyg", re.compile("|".join((*sorted(_LIBRARIES), "graphlearn-torch", "dgl")))),
    ("system", re.compile(r"debian|base|files|bytecode")),
)


@dataclass(frozen=True)
class PackageRow:
    """A row of the table. `bytes` unpacked: of a foreign image its programs and libraries alone."""

    name: str
    version: str
    source: str
    licence: str
    bytes: int


@dataclass(frozen=True)
class Gpu:
    """GPUs of one compute capability. `status`: yes, limits, no; empty: the image has no GPU code."""

    capability: str
    models: str
    status: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class SuiteChart:
    """A test with its curve. `band`: of accuracy that counts as passed, in per cent."""

    report: SmokeReport
    figures: str
    curve: Curve | None
    band: tuple[float, float] | None
    below: bool  #: it ran in the image below this one, which has all of that one's layers
    rates: Rates | None = None


class RunTab(NamedTuple):
    """A command that runs a program in the image."""

    id: str
    title: str
    text: str


class FetchedFile(NamedTuple):
    """A file of an image that is there to be fetched: its name, and the command that fetches it."""

    name: str
    line: str


@dataclass(frozen=True)
class Page:
    """All that a page says. Texts are the image's own: templates escape them."""

    name: str
    ref: str  #: what commands take
    form: str
    digest: str
    facts: Mapping[str, str]
    size: int
    unpacked: int
    packages: Sequence[PackageRow]
    layers: Sequence[LayerRecord]
    boxes: Sequence[tuple[Box, str]]
    narrow: Sequence[tuple[Box, str]]  #: the same for a telephone
    gpus: Sequence[Gpu]
    driver: str
    runtimes: Mapping[str, Sequence[ContractFinding]]
    suites: Sequence[SuiteChart]
    upstream: UpstreamResults | None
    findings: Sequence[AuditFinding]
    audited: str
    warnings: Sequence[str]
    saved: int  #: bytes that SLIM made zeros
    environment: Sequence[str]
    rebuild: str
    lock: str
    timeline: Timeline | None = None  #: of its build


def read(ref: str, ctx: Context, output: Path = Path("dist"), seen: auditing.Seen | None = None) -> Page:
    """Read all that can be read of an image. Raises UsageError for what does not exist, LayoutError.

    `output`: the folder of builds, for NAME:TAG; `seen`: the image where it was looked at already.
    """
    image = locate(ref, output)
    report = find_image(ref, output)[1] if image.has_layout else None
    own = report if report and report.build_key else None
    checked = seen.image if seen else read_image(ref, ctx, output)
    looked = seen.look if seen else auditing.look(checked.contents)
    configured = checked.contents.settings
    findings = (own and own.contracts) or contracts.judge(
        checked.view, Host(today=settings.today()), contracts.targets(checked.view)
    )
    proof = proof_of(own, ctx)
    packages = list(_packages(own, looked, licences.of_image(checked.contents.texts, looked.audit.python or "3")))
    gpus, layers, folder = _gpus(looked), report.layers if report else (), image.path.parent
    file_size = image.path.stat().st_size if image.path.is_file() else 0
    return Page(
        name=f"{own.name}:{own.tag}" if own else _name(image),
        ref=own.image if own else ref,
        form=image.form,
        digest=report.digest if report else "",
        facts={**_facts(own, looked), **({"its lock's proof": proof.dated} if proof else {})},
        size=report.bytes if report else file_size,
        unpacked=sum(layer.unpacked_size for layer in layers),
        packages=packages,
        layers=layers,
        boxes=_boxes(packages, 1000, 420),
        narrow=_boxes(packages, 360, 380),
        gpus=gpus,
        driver=_driver(own, looked, gpus),
        runtimes={name: [finding for finding in findings if name in finding.runtimes] for name in RUNTIMES},
        suites=[_suite(suite, own, folder) for suite in (*own.suites, *_measured(folder, own))] if own else (),
        upstream=read_upstream(folder, own) if own else None,
        findings=looked.audit.findings[:_MOST_FINDINGS],
        audited=wording.audit(looked.audit).summary[-1],
        warnings=_warnings(own),
        saved=sum(cut.bytes for layer in layers for cut in layer.cut),
        environment=configured.environment if configured else (),
        rebuild=_rebuild(own),
        lock=own.lock_sha256 if own else "",
        timeline=_timeline(folder) if own else None,
    )


def _timeline(folder: Path) -> Timeline | None:
    """Draw its build over time; None without a trace beside its report."""
    data = beneath.read(folder, timeline.FILE)
    return timeline.read(data) if data else None


def run_tabs(ref: str, name: str, *, has_gpus: bool, brought: Mapping[str, FetchedFile] | None = None) -> list[RunTab]:
    """A tab for each runtime, those of Slurm's clusters first, and one for this machine without any.

    `brought`: files that are there, by their forms; all others are made.
    """
    rows = sorted(RUNTIMES.items(), key=lambda row: not next(iter(row[1].jobs.values())).is_slurm)
    tabs = []
    for runtime, row in rows:
        to, file = row.own.to, row.own.file
        made = command("convert", ref, to=to, output=file) if file else command("publish", ref, to=to)
        line = row.own.line.format(name=name, gpus=row.own.gpus if has_gpus else "")
        if there := (brought or {}).get(to):
            line = line.replace(file, there.name)
        tabs.append(RunTab(runtime, row.title, f"{there.line if there else made}\n{line}"))
    return [*tabs, RunTab("here", "no engine", str(command("run", ref, "--", "python", "train.py")))]


def html(page: Page) -> str:
    """Draw a report as one file."""
    names = {name: row.shown or row.title for name, row in RUNTIMES.items()}
    tabs = run_tabs(page.ref, page.name, has_gpus=bool(page.gpus))
    return render_page("report.html", {"page": page, "unknown": UNKNOWN, "names": names, "tabs": tabs})


def comparison(first: Page, second: Page) -> str:
    """Draw what differs between two images: packages, bytes, GPUs."""
    before = {package.name: package for package in first.packages}
    after = {package.name: package for package in second.packages}
    rows = [
        (name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if _differ(before.get(name), after.get(name))
    ]
    gpus = {gpu.capability: gpu for gpu in second.gpus}
    values = {
        "first": first,
        "second": second,
        "rows": rows,
        "same": len({*before, *after}) - len(rows),
        "gpus": [(gpu, gpus[gpu.capability]) for gpu in first.gpus if gpu.capability in gpus],
        "unknown": UNKNOWN,
    }
    return render_page("comparison.html", values)


def _differ(first: PackageRow | None, second: PackageRow | None) -> bool:
    return first is None or second is None or (first.version, first.bytes) != (second.version, second.bytes)


def _packages(
    own: BuildReport | None, looked: Look, known: Mapping[str, licences.PackageFacts]
) -> Iterator[PackageRow]:
    sizes: dict[str, int] = {}
    for owner in (owner for layer in own.layers for owner in layer.owners) if own else ():
        sizes[owner.name] = sizes.get(owner.name, 0) + owner.bytes
    sources = {package.name: package.channel for package in own.packages} if own else {}
    for name in sorted({*sizes, *looked.packages}):
        version, binaries = looked.packages.get(name, ("", 0))
        if not version and not sizes.get(name) and (sizes or not binaries):
            continue  # what a package's sources or the system's Python have
        licence = ", ".join(known[name].licences) if name in known else ""
        yield PackageRow(
            name="Debian and files" if name == "base" else name,
            version=version,
            source=sources.get(name, ""),
            licence=licence if len(licence) <= 120 and "\n" not in licence else "a text",
            bytes=sizes.get(name, 0 if sizes else binaries),
        )


def _boxes(packages: Sequence[PackageRow], width: int, height: int) -> list[tuple[Box, str]]:
    largest = sorted(packages, key=lambda row: -row.bytes)
    values = [(row.name, row.bytes) for row in largest[:_MOST_BOXES]]
    if rest := sum(row.bytes for row in largest[_MOST_BOXES:]):
        values.append((f"{len(largest) - _MOST_BOXES} more", rest))
    return [(box, group_of(box.label)) for box in treemap(values, width, height)]


def group_of(name: str) -> str:
    """Name the family of a package, which has a colour of its own."""
    return next((group for group, pattern in reversed(_GROUPS) if pattern.fullmatch(name.lower())), "other")


def _facts(own: BuildReport | None, looked: Look) -> dict[str, str]:
    """Return its facts, in the words of its chips."""
    version = {name: package[0] for name, package in looked.packages.items()}
    base = next((layer.title for layer in own.layers if layer.owners), "") if own else ""
    return {
        "torch": own.torch if own else version.get("torch", ""),
        "CUDA": own.cuda if own else "",
        "PyG": version.get("torch-geometric", "none" if version else ""),
        "Python": own.python if own else looked.audit.python,
        "base": base,
        "glibc needed": looked.audit.glibc,
    }


def _driver(own: BuildReport | None, looked: Look, gpus: Iterable[Gpu]) -> str:
    match = re.search(r"\+cu(\d+)(\d)", looked.packages.get("torch", ("", 0))[0])
    cuda = own.torch_cuda if own else f"{match[1]}.{match[2]}" if match else ""
    oldest = driver_table.oldest_driver(cuda) if cuda and cuda != "cpu" else ""
    return (
        driver_table.drivers_of_each(oldest, [gpu.capability for gpu in gpus if gpu.status != "no"]) if oldest else ""
    )


def _gpus(looked: Look) -> list[Gpu]:
    """Judge by the bytes of the image's own libraries: what has no code, or PTX alone."""
    if not looked.audit.code:
        return []
    statuses = {"fail": "no", "warn": "limits"}
    gpus = []
    for capability, its_findings in looked.by_gpu.items():
        names = ", ".join(model for model, its in gpu_table.gpus().items() if its == capability)
        judged = [finding for finding in its_findings if finding.severity in statuses]
        worst = min((finding.severity for finding in judged), default="")  # "fail" before "warn"
        reasons = tuple(
            f"{finding.package} {finding.file.rpartition('/')[2]}: {finding.what}" for finding in judged[:8]
        )
        gpus.append(Gpu(capability, names, statuses.get(worst, "yes"), reasons))
    return gpus


def _suite(report: SmokeReport, own: BuildReport, folder: Path) -> SuiteChart:
    below = own.is_from_below(report)
    try:
        lines = (folder / f"smoke-{report.suite}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    metrics = report.metrics
    names = {"test_accuracy": "accuracy", "accuracy": "accuracy", "epochs": "epochs", "last_loss": "loss"}
    figures = dict.fromkeys(f"{word} {metrics[name]}" for name, word in names.items() if name in metrics)
    band = metrics.get("accuracy_band")
    is_band = isinstance(band, list) and len(band) == 2 and all(isinstance(bound, int | float) for bound in band)
    accepted = (band[0] * 100, band[1] * 100) if band and is_band else None
    between = rates(metrics)
    words = [*figures, *(_between(between, metrics) if between else ())]
    return SuiteChart(report, ", ".join(words), None if below else curve(lines), accepted, below, between)


def _between(measured: Rates, metrics: Mapping[str, object]) -> Iterator[str]:
    """Say the bandwidth of the largest size, and by what it went."""
    yield f"{metrics.get('world')} processes on {metrics.get('nodes')} node(s), {metrics.get('backend')}"
    nccl = metrics.get("nccl")
    if isinstance(nccl, dict) and nccl.get("network"):
        yield f"network {nccl['network']}"
    for operation, _ in measured.lines:
        last = max((row for row in measured.rows if row.operation == operation), key=lambda row: row.bytes)
        yield f"{operation} {last.bus:.4g} GB/s"
    if isinstance(share := metrics.get("share_of_ports"), float):
        yield f"{share:.0%} of the ports' rate"


def _measured(folder: Path, own: BuildReport) -> Iterator[SmokeReport]:
    """Read what `test` measured of this very image on other machines."""
    for path in sorted(folder.glob("trials/**/trial.json")):
        trial = kept(path, TrialReport)
        if trial is not None and trial.layout == own.digest:
            yield from (suite for suite in trial.suites if (known := SUITES.get(suite.suite)) and known.measures)


def _warnings(own: BuildReport | None) -> list[str]:
    if own is None:
        return ["graphcrate did not build it: what follows was read from its bytes."]
    warnings = [f"{own.fallback.meaning}; it {'; it '.join(own.fallback.limits)}"] if own.fallback else []
    if own.cuda != "cpu" and not any(suite.driver for suite in own.suites):
        warnings.append("No suite of it has run on a GPU yet.")
    if own.drift:
        warnings.append(f"{base_lines.drift_line(own.drift)}.")
    if own.unfixed:
        warnings.append(f"The base has {base_lines.unfixed_line(own.unfixed)}.")
    return [*warnings, *(f"missing: {package}" for package in own.missing)]


def _rebuild(own: BuildReport | None) -> str:
    from graphcrate.compat.variants.request import BuildRequest

    return str(BuildRequest.again(own.asked).command()) if own and own.asked else ""


def _name(image: Located) -> str:
    """Name a foreign image by its file or folder; that of a layout is often just called oci."""
    path = image.path.resolve()
    if image.form == "registry" or not path.name:
        return image.name
    return path.parent.name if path.name == "oci" else path.name
