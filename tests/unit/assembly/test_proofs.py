"""The matrix of committed locks: what is built, what is taken as proved, what is written, and the room it makes."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import matrix, proving
from graphcrate.assembly.job import BuildJob
from graphcrate.assembly.making import MadeImage
from graphcrate.assembly.matrix import MatrixRequest
from graphcrate.assembly.with_engine import EMBEDDED
from graphcrate.checks import broken
from graphcrate.cli import options, tables
from graphcrate.compat import proofs
from graphcrate.compat.plan import planning
from graphcrate.compat.variants import catalog
from graphcrate.compat.variants.choice import VariantChoice
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.engines import run_suites
from graphcrate.host.context import Context
from graphcrate.host.disk import cleaning
from graphcrate.host.disk.cache import Cache
from graphcrate.model.errors import AuditError, BuildError, DiskFullError, NetworkError, UsageError
from graphcrate.model.lock import decode_lock, encode
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.report import Audited
from tests import ROOT
from tests.made import build_request, refused
from tests.unit.smoke.test_gate import report, suite

GPUS = {"7.0": "native", "7.5": "jit", "12.0": "fails"}
AUDIT = Audited(binaries=9, fail=0, warn=2, note=1, gpus=GPUS)


@pytest.fixture
def project(tmp_path, progress, monkeypatch):
    """A checkout with `torch` for CUDA 11.7 and 12.1 and `glt` for 12.1, whose committed locks are not proved."""
    (tmp_path / "recipes").mkdir()
    for name, variants in {"torch": ("11.7", "12.1"), "glt": ("12.1",)}.items():
        head, *parts = (ROOT / f"recipes/{name}.toml").read_text().split("[[variant]]")
        kept = [part for part in parts if part.startswith(tuple(f'\ncuda = "{cuda}"' for cuda in variants))]
        (tmp_path / f"recipes/{name}.toml").write_text("[[variant]]".join([head, *kept]))
    for place in ("torch/cu117", "torch/cu121", "glt/cu121"):
        (tmp_path / "images" / place).mkdir(parents=True)
        shutil.copy(ROOT / f"images/{place}/pypi.lock.json", tmp_path / "images" / place)
    made = Context(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    vars(made)["progress"] = progress
    monkeypatch.setattr(matrix.checkout, "commit", lambda *_: "0123abc+")
    monkeypatch.setattr(Cache, "free_bytes", lambda _: 10**12)  # whatever this machine has
    yield made
    made.cache.close()


def build(asked, broken=()):
    """A stand-in for a build: it notes what it was asked for, and fails for some CUDA versions of `torch`."""

    def build(request, ctx):
        asked.append(request)
        if (request.name, request.cuda) in broken:
            raise NetworkError("torch.whl cannot be fetched", next_step="try again")
        path = ctx.root / f"images/{request.name}/cu{request.cuda.replace('.', '')}/pypi.lock.json"
        lock = decode_lock(path.read_bytes())
        row = next(one for one in matrix.rows(ctx, MatrixRequest(recipe=request.name, cuda=request.cuda)))
        key = matrix.EMBEDDED.key(matrix.plan_of(row, row.lock, ctx))
        ran = (suite("dna", device="cpu EPYC"), suite("ops", status="skipped"))
        return msgspec.structs.replace(
            report(suites=ran, build_key=key, lock_sha256=lock.sha256), audit=AUDIT, cuda=request.cuda
        )

    return build


def run(project, asked, broken=(), **request):
    return matrix.run(MatrixRequest(**request), project, build(asked, broken))


def test_prove_builds_each_committed_lock_and_writes_its_proof(project):
    asked = []
    results = run(project, asked)
    assert [(one.name, one.cuda, one.sources.channel, one.sources.locked, one.engine) for one in asked] == [
        ("torch", "11.7", "pypi", True, "embedded"),
        ("glt", "12.1", "pypi", True, "embedded"),
        ("torch", "12.1", "pypi", True, "embedded"),
    ], "locks of one torch in a row: they share their wheels"
    assert {one.state for one in results} == {"proved"}
    lock = (project.root / "images/torch/cu117/pypi.lock.json").read_bytes()
    proof = decode_proof((project.root / "images/torch/cu117/pypi.proof.json").read_bytes())
    assert (proof.lock_sha256, proof.commit, proof.gpus) == (decode_lock(lock).sha256, "0123abc+", GPUS)
    assert [(one.suite, one.device) for one in proof.suites] == [("dna", "cpu EPYC")], "what was skipped proves nothing"
    assert (proof.binaries, proof.warnings) == (9, 2)


@pytest.fixture
def grace(project):
    """The same checkout with a lock of `torch` 12.1 for arm64 beside that for x86-64."""
    folder = project.root / "images/torch/cu121/arm64"
    folder.mkdir()
    lock = decode_lock((ROOT / "images/torch/cu130/arm64/pypi.lock.json").read_bytes())
    (folder / "pypi.lock.json").write_bytes(encode(msgspec.structs.replace(lock, cuda="12.1")))
    return project


def emulating(asked):
    """A stand-in for a build, which an emulator tries where it is for arm64."""

    def build(request, ctx):
        asked.append((request.cuda, request.platform))
        row = next(iter(matrix.rows(ctx, MatrixRequest(recipe="torch", cuda="12.1", platform=request.platform))))
        ran = (suite("emulated", device="cpu (emulating arm64)"),)
        key = matrix.EMBEDDED.key(matrix.plan_of(row, row.lock, ctx))
        return msgspec.structs.replace(report(suites=ran, build_key=key, lock_sha256=row.lock.sha256), audit=AUDIT)

    return build


def test_matrix_takes_what_is_compiled_from_a_shared_cache_and_no_whole_image(project):
    places = SourceOptions(cache=("/site/cache",), cache_trust=(Path("/site/cosign.pub"),))
    run(project, asked := [], recipe="torch", sources=places)
    assert asked
    for request in asked:
        assert (request.sources.cache, request.sources.cache_trust) == (places.cache, places.cache_trust)
        assert request.sources.parts_only
        assert request.sources.locked


def test_matrix_proves_locks_of_each_platform_beside_them(grace):
    results = matrix.run(MatrixRequest(recipe="torch", cuda="12.1"), grace, emulating(asked := []))
    assert asked == [("12.1", "linux/amd64"), ("12.1", "linux/arm64")]
    assert [(one.platform, one.state) for one in results] == [("", "proved"), ("linux/arm64", "proved")]
    proof = decode_proof((grace.root / "images/torch/cu121/arm64/pypi.proof.json").read_bytes())
    assert [(one.suite, one.device) for one in proof.suites] == [("emulated", "cpu (emulating arm64)")]
    assert list(tables.proofs(results))[2].startswith("torch 12.1 pypi for linux/arm64  proved")
    again = matrix.run(MatrixRequest(recipe="torch", platform="linux/arm64"), grace, emulating(asked := []))
    assert ([one.state for one in again], asked) == (["proved before"], [])
    failed = matrix.run(MatrixRequest(platform="linux/arm64", again=True), grace, build([], [("torch", "12.1")]))
    with refused(NetworkError, "first torch 12.1 pypi for linux/arm64", "ARCH=arm64"):
        matrix.raise_if_failed(failed)


def test_matrix_of_a_platform_without_locks_is_refused(project):
    with refused(UsageError, "there is no candidate of torch for linux/arm64"):
        matrix.rows(project, MatrixRequest(recipe="torch", platform="linux/arm64"))


def test_list_says_what_is_locked_for_other_platforms(grace):
    recipes = catalog.all_recipes(grace)
    lines = list(tables.variants(grace, recipes))
    assert any(line.startswith("linux/arm64: torch 12.1 (") and "ARCH=arm64" in line for line in lines)
    locked = {(one["recipe"], one["cuda"]): one["locked_for"] for one in tables.described(grace, recipes)}
    assert locked == {
        ("torch", "11.7"): ["linux/amd64"],
        ("torch", "12.1"): ["linux/amd64", "linux/arm64"],
        ("glt", "12.1"): ["linux/amd64"],
    }


def words(project):
    return {each.title: each.word for each in proofs.standings(project, catalog.all_recipes(project))}


def test_standing_of_a_lock_is_unproved_proved_emulated_or_of_other_code_stale(grace, monkeypatch):
    assert set(words(grace).values()) == {"unproved"}
    run(grace, [], recipe="torch", platform="linux/amd64")
    matrix.run(MatrixRequest(recipe="torch", platform="linux/arm64"), grace, emulating([]))
    assert words(grace) == {
        "torch 11.7": "proved",
        "torch 12.1": "proved",
        "torch 12.1 for linux/arm64": "emulated",
        "glt 12.1": "unproved",
    }
    recipes = catalog.all_recipes(grace)
    monkeypatch.setattr(Context, "is_checkout", True)
    assert [line for line in tables.variants(grace, recipes) if line.startswith(("stale", "unproved"))] == [
        "unproved: glt 12.1; ./build.py matrix builds and tests them (docs/proof.md)"
    ]
    monkeypatch.setattr(planning, "LAYER_FORMAT", planning.LAYER_FORMAT + 1)
    assert sorted(words(grace).values()) == ["stale", "stale", "stale", "unproved"]
    (line,) = (line for line in tables.variants(grace, recipes) if line.startswith("stale"))
    assert line.startswith("stale: torch 11.7, torch 12.1 and torch 12.1 for linux/arm64; ")
    assert {one["proof"] for one in tables.described(grace, recipes)} == {"stale", "unproved"}


def test_report_of_an_image_says_what_the_proof_of_its_lock_is_worth(project):
    (row,) = matrix.rows(project, MatrixRequest(recipe="torch", cuda="12.1"))
    built = report(lock_sha256=row.lock.sha256)
    named = msgspec.structs.replace(built, name="torch")
    assert proofs.proof_of(named, project).dated == "unproved"
    run(project, [], recipe="torch")
    assert re.fullmatch(r"proved, of \d{4}-\d\d-\d\d", proofs.proof_of(named, project).dated)
    assert proofs.proof_of(msgspec.structs.replace(named, lock_sha256="0" * 64), project) is None, "with additions"
    assert proofs.proof_of(msgspec.structs.replace(built, name="mine"), project) is None


def test_proved_lock_is_built_again_only_on_request_or_change(project):
    run(project, asked := [])
    asked.clear()
    assert {one.state for one in run(project, asked, recipe="torch")} == {"proved before"}
    assert asked == []
    run(project, asked, recipe="torch", cuda="11.7", again=True)
    assert [one.cuda for one in asked] == ["11.7"]
    path = project.root / "images/torch/cu117/pypi.lock.json"
    path.write_bytes(encode(msgspec.structs.replace(decode_lock(path.read_bytes()), created=1)))
    run(project, asked := [], recipe="torch")
    assert [one.cuda for one in asked] == ["11.7"]
    proof = project.root / "images/torch/cu121/pypi.proof.json"
    proof.write_bytes(proof.read_bytes().replace(b'"build_key": "', b'"build_key": "other '))
    run(project, asked := [], recipe="torch")
    assert [one.cuda for one in asked] == ["12.1"]


def test_image_that_is_there_is_built_and_tested_again_since_the_proof_names_the_commit(project):
    (row,) = matrix.rows(project, MatrixRequest(recipe="torch", cuda="12.1"))
    request = MatrixRequest(recipe="torch", cuda="12.1", output=project.root / "dist")
    others, image = (request.output / "torch" / tag for tag in ("mine", matrix.plan_of(row, row.lock, project).tag))
    for folder in (others, image):
        (folder / "passes").mkdir(parents=True)
    there = []

    def built(asked, ctx):
        there.append((others.is_dir(), image.exists()))
        return build([])(asked, ctx)

    (result,) = matrix.run(request, project, built)
    assert (result.state, there) == ("proved", [(True, False)])


def test_failed_proof_does_not_end_others_and_is_retried_next_time(project):
    results = run(project, [], broken=[("torch", "11.7")])
    assert [one.state for one in results] == ["failed", "proved", "proved"]
    assert (results[0].error, results[0].exit_code) == ("torch.whl cannot be fetched", NetworkError.exit_code)
    assert not (project.root / "images/torch/cu117/pypi.proof.json").exists()
    with refused(
        BuildError, "1 of 3 images were not proved", "torch 11.7 pypi", "exit code 5", "make image STACK=torch"
    ):
        matrix.raise_if_failed(results)
    matrix.raise_if_failed(results[1:])
    with refused(NetworkError, "1 of 1 images were not proved"):
        matrix.raise_if_failed(results[:1])  # who asks for one image gets the exit code of that image
    assert [one.state for one in run(project, [])] == ["proved", "proved before", "proved before"]
    lines = list(tables.proofs(results))
    names = [" ".join(line.split()[:3]) for line in lines[1:]]
    assert names == ["torch 11.7 pypi", "glt 12.1 pypi", "torch 12.1 pypi"]
    assert "torch.whl cannot be fetched" in lines[1]
    assert lines[2].endswith("sm_70 sm_75+")


def test_candidate_without_a_lock_is_built_and_a_silent_channel_is_no_failure(project):
    (project.root / "images/torch/cu117/pypi.lock.json").unlink()
    silent = [("torch", "11.7")]

    def built(request, ctx):
        assert not request.sources.locked
        return report(smoke=None)

    assert [one.state for one in matrix.run(MatrixRequest(cuda="11.7"), project, built)] == ["tested"]
    results = run(project, [], silent, cuda="11.7")
    assert [one.state for one in results] == ["unavailable"]
    matrix.raise_if_failed(results)
    assert not list(project.root.glob("images/torch/cu117/*"))


def test_unknown_recipe_variant_or_candidate_of_a_matrix_is_refused(project):
    with refused(UsageError, "no recipe 'tensor'"):
        matrix.rows(project, MatrixRequest(recipe="tensor"))
    with refused(UsageError, "no variant for CUDA '9.0'"):
        matrix.rows(project, MatrixRequest(recipe="torch", cuda="9.0"))
    with refused(UsageError, "there is no candidate of torch for CUDA 12.1 that is called conda"):
        matrix.rows(project, MatrixRequest(recipe="torch", cuda="12.1", candidate="conda"))


def test_matrix_frees_the_cheapest_cache_folders_first(project, monkeypatch):
    steps = []
    monkeypatch.setattr(cleaning, "release", lambda _, names: steps.append(names))
    monkeypatch.setattr(matrix, "_remove_layouts", lambda _: steps.append("layouts"))
    monkeypatch.setattr(cleaning, "keep_files", lambda _, keep: steps.append(len(keep)))
    rows = matrix.rows(project, MatrixRequest())
    monkeypatch.setattr(matrix, "_free", lambda *_: 10**12)
    matrix.make_room(rows, MatrixRequest(), project)
    assert steps == []
    monkeypatch.setattr(matrix, "_free", lambda *_: 10**12 if len(steps) == 2 else 10**9)
    matrix.make_room(rows, MatrixRequest(), project)
    assert steps == [["rootfs", "squashed"], "layouts"]
    monkeypatch.setattr(matrix, "_free", lambda *_: 10**9)
    with refused(DiskFullError, "torch 11.7 pypi takes", "1.00 GB are free", "--disk 60GB"):
        matrix.make_room(rows, MatrixRequest(), project)
    all_files = {sha256 for row in rows for sha256 in row.lock.files()}
    assert steps[-2:] == [len(all_files), len(rows[0].lock.files())]


def test_disk_limit_counts_cache_and_images_with_hard_links_once(project):
    layers = project.root / "dist/torch/1/oci"
    layers.mkdir(parents=True)
    (layers / "own").write_bytes(b"x" * 100_000)
    (project.cache.root / "blobs" / "a").write_bytes(b"y" * 100_000)
    (layers / "shared").hardlink_to(project.cache.root / "blobs" / "a")
    free = matrix._free(MatrixRequest(disk=1_000_000, output=project.root / "dist"), project)
    assert 780_000 < free < 800_000
    assert matrix._free(MatrixRequest(), project) == pytest.approx(project.cache.free_bytes(), rel=0.1)


def test_keep_files_removes_all_other_downloads(cache):
    for name in ("a", "b"):
        cache.file(name * 64, "file").parent.mkdir(parents=True)
        cache.file(name * 64, "file").write_bytes(b"x")
    cleaning.keep_files(cache, {"a" * 64})
    assert [path.name for path in (cache.root / "files").iterdir()] == ["a" * 64]


@pytest.mark.parametrize(
    ("text", "number"), [("", None), ("40GB", 40 * 10**9), ("500M", 5 * 10**8), ("1.5 TB", 15 * 10**11)]
)
def test_bytes_of_reads_units(text, number):
    assert options.bytes_of(text) == number


def test_invalid_disk_size_is_refused():
    with refused(UsageError, "'much' is not a number of bytes", "--disk 40GB"):
        options.bytes_of("much")


def test_image_that_fails_its_audit_runs_no_suites(ctx, monkeypatch, tmp_path):
    failing = msgspec.structs.replace(
        report(), audit=msgspec.structs.replace(AUDIT, fail=1, failures=("torch: no code",))
    )
    monkeypatch.setattr(proving, "draw", lambda *_: None)
    monkeypatch.setattr(run_suites, "prove", lambda *_: pytest.fail("a suite ran"))
    choice = VariantChoice(None, SimpleNamespace(cuda="11.8", smoke=("ops",)), "", ())
    job = BuildJob(typed=build_request(output=tmp_path), choice=choice, engine=EMBEDDED)
    made = MadeImage(None, failing, is_new=True)
    with refused(AuditError, "cannot work as a whole: see torch", "torch: no code"):
        job.prover.prove(made, None, ctx)
    assert broken.raise_if_broken(report(), tmp_path) is None
