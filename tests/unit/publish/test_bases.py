"""A shared folder of deltas: the SIF that they go over once, listed, and removed when no delta needs it."""

import json
import os

import pytest

from graphcrate.artifacts import origin
from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.model.errors import GateError, LayoutError, UsageError
from graphcrate.publish import policy, publication
from graphcrate.publish.destinations import bases
from tests import ROOT
from tests.made import refused
from tests.unit import tars
from tests.unit.publish.test_publishing import write_image

COMMON = [tars.file("a", b"a" * 5000)]
OLD = 1_700_000_000


@pytest.fixture
def ctx(context):
    for name in ("recipes", "images"):
        (context.root / name).symlink_to(ROOT / name)
    return context


def built(tmp_path, tag, *layers):
    """An image below dist/ that may be published."""
    return write_image(tmp_path / "dist" / "torch" / tag, tag, *layers)


@pytest.fixture
def site(tmp_path, ctx):
    """Publish deltas of two images over a third; the shared folder, and a function that publishes."""
    built(tmp_path, "1.0", COMMON)
    for name in ("mine", "yours"):
        built(tmp_path, f"1.0-{name}", COMMON, [tars.file(name, name.encode())])
    shared = tmp_path / "shared"

    def publish(tag="1.0-mine", over="torch:1.0", forms=("delta",), to=shared):
        request = policy.PublishRequest(ref=f"torch:{tag}", output=tmp_path / "dist", forms=forms, over=over or None)
        return publication.publish(request, ctx, str(to))

    return shared, publish


def test_base_is_published_once_with_its_proofs_and_deltas_beside_it(site):
    shared, publish = site
    first = publish()
    base = shared / "bases" / "torch-1.0.sif"
    before = base.stat().st_mtime_ns
    publish("1.0-yours", over=str(base))
    assert base.stat().st_mtime_ns == before
    assert first.lines["singularity"].startswith(
        f"singularity run --nv --overlay {shared}/torch-1.0-mine.delta.sqsh:ro {base} python "
    ), "a name that the next user's delta takes over would start that"
    assert {path.name for path in shared.iterdir()} == {
        "bases",
        *(f"torch-1.0-{name}.delta.sqsh{end}" for name in ("mine", "yours") for end in ("", ".sha256")),
        *(f"torch-1.0-{name}.proofs" for name in ("mine", "yours")),
    }  # fmt: skip
    assert {path.name for path in base.parent.iterdir()} == {
        "torch-1.0.sif", "torch-1.0.sif.sha256", "torch.sif", "torch-1.0.proofs"
    }  # fmt: skip
    assert origin.base_of(shared / "torch-1.0-mine.delta.sqsh", {}) == base


def test_plan_of_a_delta_lists_its_base_and_the_layers_that_are_its_own(site, tmp_path, ctx):
    shared, _ = site
    request = policy.PublishRequest(ref="torch:1.0-mine", output=tmp_path / "dist", forms=("delta",), over="torch:1.0")
    planned = publication.plan(request, ctx, str(shared)).deliveries
    assert [row.place.removeprefix(f"{shared}/") for row in planned] == [
        "bases/torch-1.0.sif", "bases/torch-1.0.proofs", "torch-1.0-mine.delta.sqsh", "torch-1.0-mine.proofs"
    ]  # fmt: skip
    assert not shared.exists()


def test_sif_that_was_made_for_an_old_kernel_is_published_as_it_is(site, tmp_path, ctx):
    shared, publish = site
    made = tmp_path / "dist" / "torch" / "1.0" / "torch.sif"
    wanted = ConvertRequest(ref="torch:1.0", to="sif", kernel="3.10", images=tmp_path / "dist")
    convert(wanted, ctx)
    before = made.read_bytes()
    publish("1.0", over="", forms=("sif",))
    assert origin.compression_of(made) == "gzip"
    assert (shared / "torch-1.0.sif").read_bytes() == made.read_bytes() == before


def test_whole_image_of_the_folder_serves_as_base_and_is_never_prunable(site):
    shared, publish = site
    publish("1.0", over="", forms=("sif",))
    publish()
    whole = shared / "torch-1.0.sif"
    assert not (shared / "bases").exists()
    os.utime(whole, (OLD, OLD))
    assert [(base.path, base.prunable) for base in bases.listed(shared)] == [(str(whole), False)]


def test_prune_takes_old_bases_that_no_delta_goes_over(site):
    shared, publish = site
    publish()
    base = shared / "bases" / "torch-1.0.sif"
    delta = shared / "torch-1.0-mine.delta.sqsh"
    os.utime(base, (OLD, OLD))
    (needed,) = bases.listed(shared)
    assert (needed.name, needed.deltas, needed.prunable) == ("torch:1.0", (delta.name,), False)
    delta.unlink()
    (unneeded,) = bases.listed(shared)
    assert (unneeded.deltas, unneeded.prunable) == ((), True)
    os.utime(base)
    assert not bases.listed(shared)[0].prunable, "a delta may be on its way"
    bases.remove([unneeded])
    assert list(base.parent.iterdir()) == []


def test_delta_whose_base_is_gone_is_listed_as_missing(site):
    shared, publish = site
    publish()
    (shared / "bases" / "torch-1.0.sif").unlink()
    (missing,) = bases.listed(shared)
    assert (missing.path, missing.deltas) == ("", ("torch-1.0-mine.delta.sqsh",))


def test_broken_delta_ends_the_listing_so_that_nothing_is_pruned(site):
    shared, publish = site
    publish()
    (shared / "torch-1.0-mine.delta.sqsh").write_bytes(b"hsqs")
    with refused(LayoutError, "torch-1.0-mine.delta.sqsh"):
        bases.listed(shared)


@pytest.mark.parametrize(("forms", "over"), [(("delta",), ""), (("sif",), "torch:1.0")])
def test_delta_and_over_go_together(site, forms, over):
    with refused(UsageError, "are named together", "--as delta --over NAME:TAG"):
        site[1](forms=forms, over=over or None)


def test_base_that_may_not_go_out_is_refused_before_anything_is_written(site, tmp_path):
    shared, publish = site
    report = tmp_path / "dist" / "torch" / "1.0" / "report.json"
    known = json.loads(report.read_bytes())
    report.write_text(json.dumps(known | {"suites": [], "smoke": None}))
    with refused(GateError, "torch:1.0 is not published"):
        publish()
    assert not shared.exists()
