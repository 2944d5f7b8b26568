"""An update from end to end, with stand-ins for the commands that it starts in its copy of the checkout."""

import hashlib
import json
import shutil

import msgspec
import pytest
from packaging.version import Version
from test_update_weighing import SM, TEXT, WITH_V100, aarch64, arm_build, built
from test_update_weighing import wheel as torch_wheel

from graphcrate.compat.facts import addresses, facts
from graphcrate.compat.variants import catalog, recipes
from graphcrate.host.context import Context
from graphcrate.host.disk import atomic
from graphcrate.host.process import Completed
from graphcrate.model.errors import BuildError, DiskFullError, NetworkError, NewsError, UsageError
from graphcrate.model.lock import Lock, MissingPackage, decode_lock, encode
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.platform import ARM64, DEFAULT, platform_named
from graphcrate.model.recipe import Channel
from tests import ROOT
from tests.made import bookworm, refused, wheel
from tools import torch_facts
from upkeep import staged
from upkeep.news import review as texts
from upkeep.news import run as updating
from upkeep.news import torch_builds
from upkeep.request import UpdateRequest
from upkeep.staged import FailedCommandError

FACTS, PORTED = (f"graphcrate/compat/data/{name}.toml" for name in ("torch", "torch_ported"))
NO_NETWORK = {"PIP_CONFIG_FILE": "/dev/null", "no_proxy": "*"}


class Commands:
    """In place of processes in the copy. `measured`: version → what its wheel tells; `failing`: recipe, CUDA → why.

    `refused`: a version that no lock may have → why.
    """

    def __init__(self):
        self.measured, self.failing, self.versions, self.missing, self.refused = {}, {}, {}, {}, {}
        self.ran, self.unproved = [], {}  #: CUDA → the error that `matrix` ends with

    def tool(self, stage, *words):
        self.ran.append(words)
        if words[0] != "tools.measure_wheel":
            (stage.root / "docs" / "images.md").write_text("generated\n")
            return
        if words[2] not in self.measured:
            raise FailedCommandError("it is no whole wheel")
        if "--platform" in words:
            path, name = stage.root / PORTED, words[words.index("--platform") + 1]
            fresh = [self.measured[words[2], name]] if (words[2], name) in self.measured else []
            path.write_text(torch_facts.ported_written(torch_builds.ported_in(path.read_text()), name, fresh))
            return
        path = stage.root / FACTS
        known = torch_builds.builds_in(path.read_text())
        path.write_text(torch_facts.written(known, [self.measured[words[2]]]))

    def build_py(self, stage, *words):
        self.ran.append(words)
        if words[0] != "lock":
            return
        name, cuda, channel = words[1], words[3], words[5]
        platform = platform_named(words[7]) if words[6:] else DEFAULT
        assert channel == "pypi"
        if why := self.failing.get((name, cuda, *([platform.name] if platform != DEFAULT else []))):
            raise FailedCommandError(why)
        variant = recipes.load(stage.root / "recipes" / f"{name}.toml").variant(cuda)
        versions = {variant.torch_geometric, variant.candidates[0].torch}
        if why := next((why for version, why in self.refused.items() if version in versions), ""):
            raise FailedCommandError(why)
        path = catalog.path_of_lock(stage.root, name, cuda, "pypi", platform)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(self.lock(name, variant)))

    def prove(self, stage, name, cuda, candidate, disk):
        self.ran.append(("prove", name, cuda, candidate))
        if error := self.unproved.get(cuda):
            raise error
        catalog.proof_path(catalog.path_of_lock(stage.root, name, cuda, candidate)).write_text("proved")

    def lock(self, name, variant):
        versions = {"torch": variant.candidates[0].torch, "ogb": "1.3.6", "torch-scatter": "2.1.2", **self.versions}
        missing = self.missing.get(variant.cuda, ())
        gone = {package.name for package in missing}
        packages = tuple(wheel(each, version) for each, version in sorted(versions.items()) if each not in gone)
        digest = hashlib.sha256(msgspec.json.encode(variant)).hexdigest()
        return Lock(
            recipe=name, cuda=variant.cuda, candidate="pypi", torch_cuda=variant.cuda, python="3.11",
            created=1_700_000_000, request_sha256=digest, base=bookworm(), packages=packages, missing=missing,
        )  # fmt: skip


@pytest.fixture
def commands(monkeypatch):
    stands_in = Commands()
    monkeypatch.setattr(staged.StagedCheckout, "tool", lambda stage, *words: stands_in.tool(stage, *words))
    monkeypatch.setattr(staged.StagedCheckout, "build_py", lambda stage, *words: stands_in.build_py(stage, *words))
    monkeypatch.setattr(staged.StagedCheckout, "prove", lambda stage, *words: stands_in.prove(stage, *words))
    return stands_in


@pytest.fixture
def checkout(tmp_path, server, commands):
    """A project of one recipe, locked, and an index that has what it has."""
    root = tmp_path / "checkout"
    for folder in ("recipes", "docs", "images/made", "graphcrate/compat/data"):
        (root / folder).mkdir(parents=True)
    (root / "recipes/made.toml").write_text(TEXT.format(more=""))
    (root / "docs/images.md").write_text("old\n")
    for name in (FACTS, PORTED):
        shutil.copyfile(ROOT / name, root / name)
    for variant in recipes.load(root / "recipes/made.toml").variants:
        path = catalog.path_of_lock(root, "made", variant.cuda, "pypi")
        path.parent.mkdir()
        path.write_bytes(encode(commands.lock("made", variant)))
        catalog.proof_path(path).write_text("{}")
    for build in facts.torch_builds():
        if build.known == "measured" and Version(build.torch) <= Version("2.12.1"):
            put(server, "torch", build.source)
    put(server, "torch-geometric", "torch_geometric-2.8.1-py3-none-any.whl")
    put(server, "ogb", "ogb-1.3.6-py3-none-any.whl")
    environment = {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": server.url("/simple"), **NO_NETWORK}
    ctx = Context(root=root, environment=environment, quiet=True)
    yield ctx
    ctx.cache.close()


def put(server, project, name, **options):
    """One file more of a project."""
    page = server.pages.get(f"/simple/{project}/")
    files = {**(page.files if page else {}), name: b"a wheel"}
    server.simple(project, files, **{"uploaded": "2026-11-20T10:00:00Z", **options})


def publish(server, commands, version="2.99.0", cuda="13.0", sm=SM, **options):
    """A new torch on the index, and what its wheel tells."""
    put(server, "torch", torch_wheel(version), **options)
    commands.measured[version] = built(version, cuda, sm=sm, by=torch_facts.EACH)


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def update(ctx, *, check=False, recipe="", prove=False):
    return updating.run(UpdateRequest(recipe=recipe, check=check, prove=prove), ctx)


@pytest.mark.parametrize(
    ("given", "what", "next_step"),
    [
        ({"check": True, "prove": True}, "--check writes nothing", "./build.py update pyg --check, or "),
        ({"disk": "40GB"}, "--disk is for", "./build.py update pyg --prove --disk 40GB"),
        ({"security": True, "prove": True}, "--prove is for new releases", "--security, then ./build.py matrix pyg"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_what_does(given, what, next_step):
    with refused(UsageError, what, next_step):
        UpdateRequest(recipe="pyg", **given).raise_if_contradictory()


# --- is anything new --------------------------------------------------------------------------------------------------


def test_nothing_new_is_no_news_and_writes_nothing(checkout, commands):
    before = files(checkout.root)
    for check in (True, False):
        review = update(checkout, check=check)
        assert (review.changes, review.held, review.facts, commands.ran) == ((), (), (), [])
        updating.raise_if_news(review)
    assert files(checkout.root) == before


def test_check_says_what_is_new_by_small_libraries_and_writes_nothing(checkout, commands, server):
    publish(server, commands)
    before = files(checkout.root)
    review = update(checkout, check=True)
    assert [change.title for change in review.changes] == ["made CUDA 13.0"]
    assert [build.torch for build in review.facts] == ["2.99.0"]
    assert commands.ran == [("tools.measure_wheel", "torch", "2.99.0", "--update", "--libraries", "small")]
    assert files(checkout.root) == before
    with refused(NewsError, "there is news: made CUDA 13.0, torch 2.99.0", "./build.py update") as caught:
        updating.raise_if_news(review)
    assert caught.value.exit_code == 20


def test_update_writes_facts_recipe_lock_and_pages_at_once(checkout, commands, server):
    publish(server, commands, "2.99.0", "13.0")
    publish(server, commands, "2.99.1", "13.2")
    review = update(checkout)
    assert [(change.kind, change.cuda) for change in review.changes] == [("replace", "13.0"), ("new", "13.2")]
    assert commands.ran[-4:] == [
        ("lock", "made", "--cuda", "13.0", "--channel", "pypi"),
        ("lock", "made", "--cuda", "13.2", "--channel", "pypi"),
        ("render",),
        ("tools.generate",),
    ]
    root = checkout.root
    known = {(build.torch, build.cuda) for build in torch_builds.builds_in((root / FACTS).read_text())}
    assert {("2.99.0", "13.0"), ("2.99.1", "13.2")} <= known
    assert (root / "docs/images.md").read_text() == "generated\n"
    for cuda, version in (("13.0", "2.99.0"), ("13.2", "2.99.1"), ("12.8", "2.10.0")):
        path = catalog.path_of_lock(root, "made", cuda, "pypi")
        assert decode_lock(path.read_bytes()).package("torch").version == version
        assert catalog.proof_path(path).exists() is (cuda == "12.8"), "a proof is of the lock before"
    assert review.locks["made CUDA 13.0"].moved == (("torch", "2.12.1", "2.99.0"),)
    assert review.tried
    assert not update(checkout).is_news, "the same again finds nothing"


def test_what_does_not_lock_is_held_back_and_the_rest_goes_on(checkout, commands, server):
    publish(server, commands, "2.99.0", "13.0")
    publish(server, commands, "2.99.1", "13.2")
    commands.failing["made", "13.0"] = "no candidate of made CUDA 13.0 is available"
    before = files(checkout.root)
    review = update(checkout)
    assert [change.cuda for change in review.changes] == ["13.2"]
    (held,) = review.held
    assert (held.cuda, held.release) == ("13.0", "torch 2.99.0")
    assert held.reasons == ("no candidate of made CUDA 13.0 is available",)
    text = (checkout.root / "recipes/made.toml").read_text()
    assert ('torch = "2.12.1"' in text, "2.99.0" in text, 'cuda = "13.2"' in text) == (True, False, True)
    changed = {str(path) for path, content in files(checkout.root).items() if before.get(path) != content}
    assert changed == {*(FACTS, "recipes/made.toml", "docs/images.md", "images/made/cu132/pypi.lock.json")}, (
        "and the lock and proof for 13.0 stay"
    )


def test_what_is_left_of_a_change_is_tried_without_what_failed(checkout, commands, server):
    """First without the new PyG, then with the torch before."""
    publish(server, commands, "2.98.0", "13.0")
    publish(server, commands, "2.99.0", "13.0")
    put(server, "torch-geometric", "torch_geometric-2.9.0-py3-none-any.whl")
    commands.refused = {"2.9.0": "PyG wants another Python", "2.99.0": "torch wants what nobody has"}
    review = update(checkout)
    (change,) = review.changes
    assert (change.cuda, change.torch, change.pyg) == ("13.0", "2.98.0", "2.8.1")
    assert [(held.release, held.reasons) for held in review.held] == [
        ("torch_geometric 2.9.0", ("PyG wants another Python",)),
        ("torch 2.99.0", ("torch wants what nobody has",)),
    ]
    assert (
        decode_lock(catalog.path_of_lock(checkout.root, "made", "13.0", "pypi").read_bytes()).package("torch").version
        == "2.98.0"
    )


def test_an_extension_that_a_new_lock_lacks_holds_it_back(checkout, commands, server):
    publish(server, commands)
    commands.missing["13.0"] = (MissingPackage(name="torch-scatter", reason="no channel has a source that compiles"),)
    review = update(checkout)
    assert (review.changes, [held.reasons for held in review.held]) == (
        (), [("torch-scatter: no channel has a source that compiles",)],
    )  # fmt: skip
    lock = decode_lock(catalog.path_of_lock(checkout.root, "made", "13.0", "pypi").read_bytes())
    assert lock.package("torch").version == "2.12.1"


# --- other platforms --------------------------------------------------------------------------------------------------


@pytest.fixture
def for_arm(checkout, commands, server):
    """The variant for 13.0 has a lock for arm64; torch 2.99.0 has wheels for both, 2.99.1 is for CUDA 13.2."""
    path = catalog.path_of_lock(checkout.root, "made", "13.0", "pypi", ARM64)
    path.parent.mkdir()
    variant = recipes.load(checkout.root / "recipes/made.toml").variant("13.0")
    path.write_bytes(encode(commands.lock("made", variant)))
    for version, cuda in (("2.99.0", "13.0"), ("2.99.1", "13.2")):
        publish(server, commands, version, cuda)
        put(server, "torch", aarch64(version))
        commands.measured[version, ARM64.name] = arm_build(version, cuda, by=torch_facts.EACH)
    return path


def torch_of(path):
    return decode_lock(path.read_bytes()).package("torch").version


def test_locks_and_facts_of_another_platform_follow_and_the_text_names_it(checkout, commands, for_arm):
    with refused(NewsError, "torch 2.99.0 for arm64"):
        updating.raise_if_news(update(checkout, check=True))
    measured = ("tools.measure_wheel", "torch", "2.99.0", "--update", "--platform", "linux/arm64")
    assert (*measured, "--libraries", "small") in commands.ran
    review = update(checkout)
    assert measured in commands.ran
    assert ("lock", "made", "--cuda", "13.0", "--channel", "pypi", "--platform", "linux/arm64") in commands.ran
    of_new = catalog.path_of_lock(checkout.root, "made", "13.2", "pypi", ARM64)
    assert (torch_of(for_arm), torch_of(of_new)) == ("2.99.0", "2.99.1")
    builds = torch_builds.ported_in((checkout.root / PORTED).read_text())[ARM64.name]
    assert {("2.99.0", "13.0"), ("2.99.1", "13.2")} < {(build.torch, build.cuda) for build in builds}
    text = texts.text(review)
    for words in (
        "- made CUDA 13.0, arm64: torch 2.12.1 → 2.99.0.",
        "- torch 2.99.0 for arm64: CUDA 13.0, code for 8.0, 9.0",
        "- made CUDA 13.0: it has a new lock for arm64 too, whose image is not built here: "
        "make image STACK=made CUDA=13.0 ARCH=arm64.",
    ):
        assert words in text, text
    assert not update(checkout).is_news


def test_torch_that_does_not_lock_for_another_platform_is_held_back_on_both_and_a_new_variant_is_not(
    checkout, commands, for_arm
):
    commands.failing["made", "13.0", ARM64.name] = commands.failing["made", "13.2", ARM64.name] = "no numpy"
    before = files(checkout.root / "images/made/cu130")
    review = update(checkout)
    (change,), (held,) = review.changes, review.held
    assert (held.release, held.reasons) == ("torch 2.99.0", ("for arm64: no numpy",))
    assert files(checkout.root / "images/made/cu130") == before
    assert (change.cuda, change.platforms, change.why[-1]) == ("13.2", (), "it is not locked for arm64: no numpy")
    assert catalog.path_of_lock(checkout.root, "made", "13.2", "pypi").is_file()
    assert not catalog.path_of_lock(checkout.root, "made", "13.2", "pypi", ARM64).exists()
    assert "a new lock for arm64" not in texts.text(review)


# --- images -----------------------------------------------------------------------------------------------------------


def ended(code, what):
    error = FailedCommandError(what)
    error.ended_with = code
    return error


def proof_of(checkout, cuda):
    return catalog.proof_path(catalog.path_of_lock(checkout.root, "made", cuda, "pypi")).read_text()


def test_prove_builds_each_changed_image_and_writes_its_proof(checkout, commands, server):
    publish(server, commands, "2.99.0", "13.0")
    review = update(checkout, prove=True)
    assert [change.torch for change in review.changes] == ["2.99.0"]
    assert commands.ran[1:] == [
        ("lock", "made", "--cuda", "13.0", "--channel", "pypi"),
        ("tools.locked_licences", "--new"),
        ("prove", "made", "13.0", "pypi"),
        ("tools.locked_licences", "--new"),
        ("tools.locked_code",),
        ("render",),
        ("tools.generate",),
    ]
    assert (proof_of(checkout, "13.0"), proof_of(checkout, "12.8")) == ("proved", "{}")


@pytest.mark.parametrize("code", [9, 10, 14, 15], ids=["compile", "suite", "contract", "audit"])
def test_an_image_that_fails_is_held_back_with_its_reason_and_the_rest_goes_on(checkout, commands, server, code):
    publish(server, commands, "2.99.0", "13.0")
    publish(server, commands, "2.99.1", "13.2")
    commands.unproved["13.0"] = ended(code, "1 of 1 images were not proved; first made 13.0 pypi: dna failed")
    review = update(checkout, prove=True)
    assert [(change.cuda, change.torch) for change in review.changes] == [("13.2", "2.99.1")]
    assert [(held.release, held.reasons) for held in review.held] == [
        ("torch 2.99.0", ("1 of 1 images were not proved; first made 13.0 pypi: dna failed",))
    ]
    assert (proof_of(checkout, "13.0"), proof_of(checkout, "13.2")) == ("{}", "proved")
    path = catalog.path_of_lock(checkout.root, "made", "13.0", "pypi")
    assert decode_lock(path.read_bytes()).package("torch").version == "2.12.1"


@pytest.mark.parametrize(("code", "error"), [(8, DiskFullError), (5, NetworkError), (130, BuildError)])
def test_a_full_disk_while_proving_ends_the_update_and_writes_nothing(checkout, commands, server, code, error):
    publish(server, commands, "2.99.0", "13.0")
    commands.unproved["13.0"] = ended(code, "2 GB are free")
    before = files(checkout.root)
    with refused(error, "2 GB are free", "./build.py update --prove"):
        update(checkout, prove=True)
    assert files(checkout.root) == before


def test_a_proof_of_the_copy_names_the_commit_of_the_checkout(tmp_path, checkout, monkeypatch):
    monkeypatch.undo()  # of `commands`: the copy's own method
    path = catalog.proof_path(catalog.path_of_lock(tmp_path, "made", "13.0", "pypi"))
    path.parent.mkdir(parents=True)
    proof = next((ROOT / "images").glob("*/*/*.proof.json")).read_bytes()
    calls = []

    def run(argv, *, cwd, **_):
        calls.append((argv[3:], cwd))
        path.write_bytes(proof)
        return Completed(0, ())

    monkeypatch.setattr(staged.process, "run", run)
    monkeypatch.setattr(staged.checkout, "commit", lambda root, _: "ab" * 20 if root == checkout.root else "")
    staged.StagedCheckout(tmp_path, checkout).prove("made", "13.0", "pypi", "60GB")
    matrix = ["matrix", "made", "--cuda", "13.0", "--candidate", "pypi", "--disk", "60GB"]
    assert calls == [(["build.py", *matrix, "--output", str(checkout.root / "dist")], tmp_path)]
    assert decode_proof(path.read_bytes()).commit == "ab" * 20 + "+"


def test_a_torch_that_cannot_be_measured_is_named_and_held_back(checkout, commands, server):
    publish(server, commands, "2.98.0")
    put(server, "torch", torch_wheel("2.99.0"))
    review = update(checkout)
    assert [change.torch for change in review.changes] == ["2.98.0"]
    assert "torch 2.99.0 could not be measured: it is no whole wheel" in review.by_hand


def test_yanked_and_pre_releases_are_no_news(checkout, commands, server):
    put(server, "torch", torch_wheel("3.0.0rc1"))
    put(server, "torch", torch_wheel("2.99.0"), yanked=(torch_wheel("2.99.0"),))
    assert not update(checkout, check=True).is_news
    assert commands.ran == []


def test_an_index_without_times_of_upload_is_said(checkout, commands, server):
    publish(server, commands, "2.10.1", "12.8", sm=WITH_V100, uploaded="")
    (change,) = update(checkout, check=True).changes
    assert "does not say when its files were uploaded" in change.why[-1]


def test_newer_packages_of_a_stack_of_today_lock_it_again(checkout, commands, server):
    put(server, "ogb", "ogb-1.4.0-py3-none-any.whl")
    commands.versions = {"ogb": "1.4.0"}
    review = update(checkout)
    (change,) = review.changes
    assert (change.kind, change.cuda, change.why) == ("renew", "13.0", ("ogb 1.4.0 is newer than the locked 1.3.6",))
    assert review.locks[change.title].moved == (("ogb", "1.3.6", "1.4.0"),)


# --- who does not answer ----------------------------------------------------------------------------------------------


def test_channels_that_do_not_answer_are_named_and_end_nothing(checkout, commands, server, monkeypatch):
    root = checkout.root / "recipes/made.toml"
    text = root.read_text()
    root.write_text(
        text.replace('channels = ["pypi"]\ntorch = "2.12.1"', 'channels = ["pypi", "pyg"]\ntorch = "2.12.1"')
    )
    monkeypatch.setitem(addresses.ROOTS, Channel.PYG, "http://127.0.0.1:9")
    publish(server, commands)
    review = update(checkout, check=True)
    assert [change.torch for change in review.changes] == ["2.99.0"]
    assert any(sentence.startswith("PyG's pages of wheels: ") for sentence in review.unanswered)


def test_without_any_index_there_is_an_error(checkout, server):
    del server.pages["/simple/torch/"]
    ctx = Context(root=checkout.root, environment={**checkout.environment, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/s"})
    with pytest.raises(NetworkError):
        update(ctx, check=True)


def test_what_a_person_has_to_look_at_is_named(checkout, server):
    put(server, "nvidia-cuda-runtime", "nvidia_cuda_runtime-13.9.1-py3-none-manylinux_2_28_x86_64.whl")
    put(server, "graphlearn-torch", "graphlearn_torch-0.9.0-cp311-cp311-manylinux_2_28_x86_64.whl")
    put(server, "pyg-lib", "pyg_lib-0.9.0-cp311-cp311-manylinux_2_28_x86_64.whl")
    review = update(checkout, check=True)
    assert [sentence.partition(" is on the index")[0] for sentence in review.by_hand] == [
        "graphlearn-torch 0.9.0",
        "pyg-lib 0.9.0",
    ]
    (awaited,) = review.awaited
    assert awaited.startswith("CUDA 13.9 is on the index, and no torch is for it: compat/data/drivers.toml, which ends")
    assert "## Nothing to do yet\n\n- CUDA 13.9 is" in texts.text(review)
    assert not review.is_news
    put(server, "torch-geometric", "torch_geometric-2.9.0-py3-none-any.whl")
    row = (
        "torch_geometric 2.9.0 has no row in compat/data/pyg.toml: python -m tools.measure_wheel torch_geometric 2.9.0"
    )
    assert row in update(checkout, check=True).by_hand


def test_torch_of_a_cuda_without_a_driver_is_named_in_place_of_the_wheels_of_that_cuda(checkout, commands, server):
    publish(server, commands, "2.99.0", "13.9")
    put(server, "nvidia-cuda-runtime", "nvidia_cuda_runtime-13.9.1-py3-none-manylinux_2_28_x86_64.whl")
    review = update(checkout, check=True)
    (sentence,) = review.by_hand
    assert review.awaited == ()
    assert sentence.startswith("torch 2.99.0 is for CUDA 13.9, and compat/data/drivers.toml ends with 13.2: which")


# --- nothing half-written ---------------------------------------------------------------------------------------------


def test_a_full_disk_while_writing_leaves_all_as_it_was(checkout, commands, server, monkeypatch):
    publish(server, commands)
    before, writing, count = files(checkout.root), atomic.write_file, 0

    def full(path, content):
        nonlocal count
        if path.is_relative_to(checkout.root):
            count += 1
            if count == 3:
                raise DiskFullError("no room")
        writing(path, content)

    monkeypatch.setattr(staged, "write_file", full)
    with pytest.raises(DiskFullError):
        update(checkout)
    assert count > 3, "what was written is put back"
    assert files(checkout.root) == before


def test_an_installed_package_and_an_unknown_recipe_are_refused(checkout, tmp_path):
    with refused(UsageError, "an installed package keeps its recipes and facts as they are"):
        update(Context(root=tmp_path / "data", environment={}))
    with refused(UsageError, "there is no recipe 'mad'", "made"):
        update(checkout, recipe="mad")


def test_a_failed_command_is_told_by_its_own_words(checkout, monkeypatch):
    monkeypatch.undo()
    lines = (
        "resolving", "graphcrate: no candidate of made CUDA 13.0 is available", "    pypi: has no torch 9",
        "cause: x", "next:  y",
    )  # fmt: skip
    monkeypatch.setattr(staged.process, "run", lambda *_, **__: Completed(4, lines))
    with refused(FailedCommandError, "no candidate of made CUDA 13.0 is available pypi: has no torch 9"):
        staged.StagedCheckout(checkout.root, checkout).build_py("lock", "made")
    monkeypatch.setattr(staged.process, "run", lambda *_, **__: Completed(1, ()))
    with refused(FailedCommandError, "build.py ended with 1"):
        staged.StagedCheckout(checkout.root, checkout).build_py("lock", "made")


# --- what `list` says of it -------------------------------------------------------------------------------------------


def test_list_says_how_old_locks_are_and_what_the_last_update_found(checkout, commands, server, typed, monkeypatch):
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: checkout))
    assert "newer" not in typed("list")[1], "nobody looked"
    publish(server, commands, "2.99.0", "13.0")
    publish(server, commands, "2.99.1", "13.2")
    update(checkout, check=True)
    code, out, _ = typed("list")
    lines = out.splitlines()
    assert (code, lines[2].split()[-3:]) == (0, ["1107", "d", "old"])
    assert lines[-3:] == [
        "newer for made 13.0: torch 2.99.0, PyG 2.8.1 (as of 2026-11-25)",
        "newer for made 13.2: torch 2.99.1, PyG 2.8.1 (as of 2026-11-25)",
        "./build.py update takes them",
    ]
    assert max(map(len, (*lines[:3], *lines[-3:]))) <= 80
    row = json.loads(typed("list", "--json")[1])[1]
    assert row["newer"] == {"torch": "2.99.0", "torch_geometric": "2.8.1", "known": "2026-11-25"}
    update(checkout)
    assert "newer" not in typed("list")[1], "it was taken"


def test_news_that_a_recipe_has_by_now_is_not_said(checkout, commands, server, typed, monkeypatch):
    monkeypatch.setattr(Context, "here", classmethod(lambda kind: checkout))
    publish(server, commands)
    update(checkout, check=True)
    path = checkout.root / "recipes/made.toml"
    path.write_text(path.read_text().replace("2.12.1", "2.99.0"))
    assert "newer" not in typed("list")[1]
