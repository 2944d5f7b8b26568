"""Pages of images: everything of an image is escaped, nothing is asked of the network, what is unknown says so."""

import dataclasses
import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphcrate.artifacts.locate import read_report
from graphcrate.model import command
from graphcrate.model.lock import encode
from graphcrate.model.report import (
    LayerRecord,
    PackageBytes,
    PackageLine,
    SmokeReport,
    UpstreamResults,
    UpstreamSuite,
)
from graphcrate.model.trial import TrialReport
from graphcrate.pages import report
from graphcrate.pages.charts import curve, rates, treemap
from tests.unit import small_layouts
from tests.unit.audited import GOOD
from tests.unit.checks.test_audit_findings import CODE
from tests.unit.checks.test_auditing import files
from tests.unit.tars import file, symlink

EVIL = "<script>alert('x')</script>"
SUITE = SmokeReport(suite="dna", status="passed", device=EVIL, seconds=3.0)
LINES = [f"Epoch: {at:03}, Loss: {2 - at / 10:.4f}, Train: 0.5, Val: 0.5, Test: {at / 10:.4f}" for at in (1, 2, 3, 9)]


def written(folder, name="image", *, ours=True):
    """An image of the usual stack below dist/, with a report of graphcrate's or without; its path."""
    place = folder / "dist" / name / "tag"
    entries = [file(path[1:], data, mode=0o755) for path, data in files({**GOOD, "fatbin": CODE}).items()]
    entries += [symlink("lib", "usr/lib"), file(f"opt/{EVIL.replace('/', '')}", b"x")]
    layout = small_layouts.layout(place, entries, tag="tag")
    if ours:
        owners = (
            PackageBytes(name="torch", version="2.0.1", bytes=900),
            PackageBytes(name=EVIL, version=EVIL, bytes=100),
        )
        digests = dict.fromkeys(("digest", "diff_id"), f"sha256:{'0' * 64}")
        metrics = {"test_accuracy": 0.84, "epochs": 9, "accuracy_band": [0.75, 0.95]}
        known = {
            "layers": (LayerRecord(title=EVIL, size=1, unpacked_size=2, owners=owners, **digests),),
            "suites": (msgspec.structs.replace(SUITE, reason=EVIL, metrics=metrics),),
            "packages": (PackageLine(name="torch", version="2.0.1", channel="pypi"),),
        }
        made = small_layouts.report(layout, name=name, build_key="k", missing=(EVIL,), **known)
        (place / "report.json").write_bytes(encode(made))
        (place / "smoke-dna.log").write_text("\n".join([EVIL, *LINES]))
    return layout.path


def read(context, folder, **options):
    return report.read(str(written(folder, **options)), context, folder / "dist")


def test_image_page_has_facts_suites_and_gpus_without_network(context, tmp_path):
    page = read(context, tmp_path)
    assert page.facts["torch"] == "2.0.1"
    statuses = {one.capability: one.status for one in page.gpus}
    assert (statuses["6.0"], statuses["7.0"], statuses["9.0"]) == ("no", "yes", "limits")  # PTX of 8.0
    (suite,) = page.suites
    assert (suite.figures, suite.band, suite.curve.epochs) == ("accuracy 0.84, epochs 9", (75.0, 95.0), 9)
    assert {box.label: round(box.width * box.height) for box, _ in page.boxes} == {"torch": 378_000, EVIL: 42_000}
    text = report.html(page)
    assert text.count("polyline class") == 2
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert text.count("<script>") == 1  # the page's own
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?(?!#|data:)""", text)
    assert "default-src 'none'" in text
    assert len(text.encode()) < 300_000


def test_image_page_has_what_upstreams_tests_found_of_this_very_image(context, tmp_path):
    path = written(tmp_path)
    digest = read_report(path.parent / "report.json").digest
    suites = (UpstreamSuite(title=EVIL, version="2.3.1", passed=3649, ran=3665),)
    results = UpstreamResults(digest=digest, device=EVIL, date="2026-11-26T00:00:00Z", suites=suites)
    (path.parent / "upstream.json").write_bytes(encode(results))
    text = report.html(report.read(str(path), context, tmp_path / "dist"))
    assert "2.3.1: 3,649 of 3,665 of its own tests" in text
    assert "<script>alert" not in text
    another = msgspec.structs.replace(results, digest=f"sha256:{'1' * 64}")
    for content in (encode(another), b"{", b""):
        (path.parent / "upstream.json").write_bytes(content)
        assert report.read(str(path), context, tmp_path / "dist").upstream is None


def test_image_page_sections_are_in_order_and_a_suite_without_a_curve_has_no_column(context, tmp_path):
    page = read(context, tmp_path)
    plain = dataclasses.replace(page.suites[0], curve=None)
    text = report.html(dataclasses.replace(page, suites=(plain, *page.suites)))
    assert re.findall('<section id="(.*?)"', text) == [
        *("gpus", "run", "tests", "bytes", "checks", "provenance", "packages"),
    ]
    columns = re.search(r'<div class="curves">(.*?)</div>\n</div>', text, re.DOTALL)[1]
    assert (columns.count("<svg"), columns.count("<b>dna</b>")) == (1, 1)


#: as the suite `nccl` gives them
RATES = {
    "rates": {
        "all_reduce": [[8, 20.5, 0.0004, 0.0004, 100], [1 << 30, 52000.0, 20.6, 20.6, 19]],
        EVIL: [[8, 1, 1, 1, 1]],
    },
    "ports_gb_s": 25.0,
    "share_of_ports": 0.824,
    "world": 2,
    "nodes": 2,
    "backend": "nccl",
    "nccl": {"network": EVIL},
}


def test_page_draws_and_lists_the_bandwidth_that_test_measured_of_this_very_image(context, tmp_path):
    path = written(tmp_path)
    own = read_report(path.parent / "report.json")
    suite = msgspec.structs.replace(SUITE, suite="nccl", metrics=RATES, reason="")
    trial = TrialReport(reference="x", runner="slurm", artifact=own.artifact, suites=(suite,), layout=own.digest)
    folder = path.parent / "trials/slurm/a100-2nodes"
    folder.mkdir(parents=True)

    def page(what):
        (folder / "trial.json").write_bytes(encode(what))
        return report.read(str(path), context, tmp_path / "dist")

    shown = page(trial)
    assert [each.report.suite for each in shown.suites] == ["dna", "nccl"]
    assert shown.suites[1].figures == (
        f"2 processes on 2 node(s), nccl, network {EVIL}, all_reduce 20.6 GB/s, {EVIL} 1 GB/s, 82% of the ports' rate"
    )
    text = report.html(shown)
    assert text.count('<polyline class="rate-') == 2
    assert '<td class="number">1073741824</td>' in text
    assert "<script>alert" not in text
    dna = msgspec.structs.replace(trial, suites=(SUITE,))
    for other in (msgspec.structs.replace(trial, layout="sha256:" + "1" * 64), dna):
        assert [each.report.suite for each in page(other).suites] == ["dna"]


@pytest.mark.parametrize(
    "measured", [{}, {"all_reduce": [[8, 1]]}, {"all_reduce": [[8, 1, 1, 1, 1]]}, 3, {"x": [["8", 1, 1, 1, 1]]}]
)
def test_bandwidths_of_another_form_are_not_drawn(measured):
    assert rates({"rates": measured}) is None
    assert rates({}) is None
    assert rates({**RATES, "ports_gb_s": "fast"}) is None


def test_bandwidths_are_drawn_over_the_logarithm_of_size():
    drawn = rates(RATES)
    assert (drawn.highest, drawn.ports) == (25.0, 25.0)
    assert drawn.lines[0] == ("all_reduce", "0.0,100.0 100.0,17.6")


def test_page_of_a_foreign_image_names_what_is_unknown(context, tmp_path):
    page = read(context, tmp_path, ours=False)
    assert (page.suites, page.lock) == ((), "")
    text = report.html(page)
    assert "<script>alert" not in text
    assert "graphcrate did not build it" in text
    assert "No test of it is known here" in text
    assert report.UNKNOWN in text
    assert {one.name for one in page.packages} >= {"torch", "torch-scatter"}


def test_a_page_of_an_installed_package_has_its_commands(context, tmp_path, monkeypatch):
    page = read(context, tmp_path)
    assert "./build.py run " in report.html(page)
    monkeypatch.setattr(command, "INSTALLED", True)
    text = report.html(page)
    assert ("./build.py" in text, "graphcrate run " in text, "graphcrate convert " in text) == (False, True, True)


def test_comparison_page_of_two_images_escapes_their_text(context, tmp_path):
    first = read(context, tmp_path, name="first")
    second = read(context, tmp_path, name="second", ours=False)
    text = report.comparison(first, second)
    assert "<script>alert" not in text
    rows = re.search(r'id="packages".*?</section>', text, re.DOTALL)[0]
    assert "&lt;script&gt;alert" in rows
    assert "packages are the same" in report.comparison(first, first)


def test_report_command_writes_its_page_beside_the_image(context, tmp_path, typed):
    path = written(tmp_path)
    code, out, err = typed("report", "image:tag")
    assert (code, out) == (0, "dist/image/tag/report.html\n"), err
    assert (path.parent / "report.html").is_file()
    code, out, _ = typed("report", "image:tag", "image:tag", "--output", "both.html")
    assert (code, out) == (0, "both.html\n")
    assert typed("report", "nothing:here")[0] == 2


def test_page_of_2000_packages_stays_below_600_kb(context, tmp_path):
    many = [report.PackageRow(f"package-{n}", "1.0", "pypi", "MIT", n) for n in range(2000)]
    drawn = {name: report._boxes(many, 1000, 420) for name in ("boxes", "narrow")}
    text = report.html(dataclasses.replace(read(context, tmp_path), packages=many, **drawn))
    assert text.count("<g class=") == 2 * (report._MOST_BOXES + 1)
    assert len(text.encode()) < 600_000


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60))
@example([1, 60_118_205])
@example([1, 10**9])
def test_treemap_boxes_have_the_areas_of_their_values(values):
    boxes = treemap([(str(number), value) for number, value in enumerate(values)], 1000, 420)
    total = sum(values)
    assert len(boxes) == len(values)
    for box in boxes:
        assert box.width * box.height == pytest.approx(box.value / total * 420_000, rel=1e-4)
        assert -1e-6 <= box.x <= box.x + box.width <= 1000 + 1e-6
        assert -1e-6 <= box.y <= box.y + box.height <= 420 + 1e-6


def test_training_curve_needs_three_points():
    assert curve(LINES[:2]) is None
    drawn = curve(["noise", *LINES])
    assert drawn.highest == 1.9
    assert drawn.accuracy.split()[0] == "11.1,90.0"
    assert curve([f"Step: {at}, Loss: 1.0" for at in (1, 2, 3)]).accuracy == ""
