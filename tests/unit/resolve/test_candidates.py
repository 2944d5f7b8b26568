"""Choosing between candidates, with locks, caches, folders and a network that comes and goes."""

import hashlib
import random
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat.facts import addresses
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.errors import IntegrityError, LockedError, NetworkError, ResolutionError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Additions, BaseSpec, Channel, FurtherChannel
from graphcrate.resolve.additions import additions
from graphcrate.resolve.sources import further, request_sources
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.stack import pinning
from graphcrate.resolve.stack.locks import request_digest
from graphcrate.resolve.stack.pinning import UnsolvableError
from tests import made
from tests.made import public, refused
from tests.unit import small_index
from tests.unit.resolve_world import NOWHERE
from tests.unit.small_index import COMPATIBLE, CP311, LOCAL, PYTORCH, put_torch
from tests.unit.wheel_server import small_sdist, small_wheel


@pytest.fixture
def unplugged(world, monkeypatch):
    """A world in which PyTorch's channel cannot be reached."""
    monkeypatch.setitem(addresses.ROOTS, Channel.PYTORCH, NOWHERE)
    return world


def test_unreachable_candidate_is_replaced_by_the_next_with_its_reason(unplugged):
    resolution = unplugged.choose(PYTORCH, COMPATIBLE)
    assert resolution.candidate is COMPATIBLE
    out, chosen = resolution.outcomes
    assert out.constraint == "pytorch channel: connection refused (127.0.0.1)"
    assert out.fix == "try a mirror: MIRROR=sjtu or MIRROR=aliyun or MIRROR=nju"
    assert chosen.chosen


def test_channel_option_forbids_the_fallback(unplugged):
    with refused(ResolutionError, "connection refused (127.0.0.1)", "try a mirror: MIRROR=sjtu") as caught:
        unplugged.choose(PYTORCH, COMPATIBLE, channel="pytorch")
    assert "compatible" not in caught.value.what


def test_unknown_channel_or_mirror_is_refused(world):
    with refused(UsageError, "there are pytorch and pypi", "CHANNEL=pytorch "):
        world.choose(PYTORCH, COMPATIBLE, channel="conda")
    with refused(UsageError, "there is no mirror 'nowhere'; known are sjtu, aliyun, nju, tuna"):
        world.choose(PYTORCH, COMPATIBLE, mirror="nowhere")
    with refused(UsageError, "there is no mirror 'Tsinghua'", "MIRROR=tuna"):
        world.choose(PYTORCH, COMPATIBLE, mirror="Tsinghua")
    with refused(UsageError, "there is no folder "):
        world.choose(PYTORCH, COMPATIBLE, wheels=Path("/nowhere"))


def test_wheels_option_with_an_empty_folder_is_refused(world, tmp_path):
    (tmp_path / "empty").mkdir()
    with refused(UsageError, f"there is no wheel in {tmp_path / 'empty'}"):
        world.choose(PYTORCH, COMPATIBLE, wheels=tmp_path / "empty")


def test_an_unreachable_index_is_a_network_error_that_names_a_mirror(unplugged):
    unplugged.environment["UV_DEFAULT_INDEX"] = NOWHERE
    with refused(NetworkError, "compatible: pypi channel: connection refused", "MIRROR=sjtu"):
        unplugged.choose(PYTORCH, COMPATIBLE)


def test_unchanged_request_with_cached_files_needs_no_network(world):
    world.pytorch_channel()
    first = world.choose(PYTORCH, COMPATIBLE)
    assert (first.candidate, first.lock.candidate) == (PYTORCH, "pytorch")
    assert [(outcome.candidate, outcome.chosen) for outcome in first.outcomes] == [("pytorch", True)]
    world.fetch(first.lock)
    world.silence()
    assert world.choose(PYTORCH, COMPATIBLE).lock == first.lock
    assert world.bases == 1


def test_recent_fallback_is_reused_without_network(unplugged, monkeypatch):
    first = unplugged.choose(PYTORCH, COMPATIBLE)
    unplugged.fetch(first.lock)
    unplugged.now += 600
    with monkeypatch.context() as unplugged.monkeypatch:
        unplugged.silence()
        assert unplugged.choose(PYTORCH, COMPATIBLE) == first
    for record in unplugged.cache.path("resolutions", "x").parent.glob("*.json"):
        record.write_bytes(b"{")  # a spoilt memory does no harm
    assert unplugged.choose(PYTORCH, COMPATIBLE).candidate is COMPATIBLE


def test_fallback_is_left_if_the_preferred_channel_answers(world, monkeypatch):
    with monkeypatch.context() as cut:
        cut.setitem(addresses.ROOTS, Channel.PYTORCH, NOWHERE)
        world.fetch(world.choose(PYTORCH, COMPATIBLE).lock)
        world.now += 1000  # long enough: the channel is knocked at, in vain
        assert world.choose(PYTORCH, COMPATIBLE).candidate is COMPATIBLE
    world.pytorch_channel()
    assert world.choose(PYTORCH, COMPATIBLE).candidate is COMPATIBLE  # remembered since the knock
    assert world.choose(PYTORCH, COMPATIBLE, mirror=world.server.url("/whl")).candidate is PYTORCH
    assert world.choose(PYTORCH, COMPATIBLE, channel="pytorch").candidate is PYTORCH
    world.now += 1000
    assert world.choose(PYTORCH, COMPATIBLE).candidate is PYTORCH


def test_fallback_is_left_if_the_clock_says_that_the_outage_is_yet_to_come(world, monkeypatch):
    """It went wrong then, or does now: the outage would be believed for as long."""
    with monkeypatch.context() as cut:
        cut.setitem(addresses.ROOTS, Channel.PYTORCH, NOWHERE)
        world.fetch(world.choose(PYTORCH, COMPATIBLE).lock)
    world.pytorch_channel()
    world.now -= 10_000
    assert world.choose(PYTORCH, COMPATIBLE).candidate is PYTORCH


@pytest.mark.parametrize("stale", [False, True])
def test_committed_lock_is_used_unless_its_recipe_is_older(world, stale):
    changes = {"request_sha256": "0" * 64} if stale else {}
    committed = msgspec.structs.replace(world.choose(COMPATIBLE).lock, notes=("committed",), **changes)
    assert (world.choose(COMPATIBLE, committed=committed).lock.notes == ("committed",)) is not stale
    assert any("older recipe" in line for line in world.notes.lines) is stale


@pytest.mark.parametrize("age", [-1, 0, 1])
def test_renewed_lock_comes_before_an_older_one_whose_files_are_all_in_the_cache(world, age):
    resolved = world.choose(COMPATIBLE).lock
    world.fetch(resolved)
    world.built = {package.file.sha256 for package in resolved.packages}
    newer = small_wheel("tqdm", "4.67")
    world.server.simple("tqdm", dict([small_wheel("tqdm", "4.66"), newer]))
    packages = tuple(made.locked(newer) if package.name == "tqdm" else package for package in resolved.packages)
    renewed = msgspec.structs.replace(resolved, packages=packages, created=resolved.created + age)
    assert world.choose(COMPATIBLE, committed=renewed).lock == (renewed if age >= 0 else resolved)


def test_what_two_people_lock_on_a_day_is_the_same_to_the_byte(world):
    wanted = Additions(packages=("einops",))
    world.server.simple("einops", dict([small_wheel("einops", "0.8")]))

    def made_at(seconds):
        world.now = seconds
        stack = world.choose(COMPATIBLE, fresh=True)
        context = world.context(small_index.recipe(COMPATIBLE))
        return encode(stack.lock), encode(additions.add(context, stack, wanted, None, fresh=True).lock)

    day = 20_000 * 86_400
    first = made_at(day + 1)
    assert made_at(day + 86_399) == first
    assert all(map(bytes.__ne__, made_at(day + 86_400), first))


def test_committed_lock_with_gone_files_is_replaced(world):
    committed = world.choose(COMPATIBLE).lock
    gone = msgspec.structs.replace(committed.package("torch").file, sha256="0" * 64, size=1 << 40)
    torch = msgspec.structs.replace(committed.package("torch"), file=gone)
    packages = tuple(torch if package.name == "torch" else package for package in committed.packages)
    stale = msgspec.structs.replace(committed, packages=packages)
    assert world.choose(COMPATIBLE, committed=stale).lock == committed


def test_committed_lock_with_files_on_a_public_mirror_is_kept(world, mirrors, monkeypatch):
    """Newer files of the index are not taken: the lock says what the image is made of."""
    tqdm = small_wheel("tqdm", "4.66", content=random.Random(0).randbytes(9000))  # the largest, which is looked for
    world.server.simple("tqdm", dict([tqdm]))
    committed = world.choose(COMPATIBLE).lock
    world.environment = public(world.server, monkeypatch)
    mirrors[1].simple("tqdm", dict([tqdm]))
    world.server.simple("tqdm", dict([small_wheel("tqdm", "99.0")]))
    assert world.choose(COMPATIBLE, committed=committed).lock == committed
    assert not any("no place" in line for line in world.notes.lines)
    mirrors[1].pages.clear()
    assert world.choose(COMPATIBLE, committed=committed).lock.package("tqdm").version == "99.0"
    assert f"no source that answers has {tqdm[0]}, which the lock of compatible names" in world.notes.lines


def test_committed_pytorch_lock_is_served_by_a_mirror_if_the_channel_is_unreachable(world, mirrors, monkeypatch):
    name, content = small_index.pytorch_channel(world.server)
    committed = world.choose(PYTORCH, COMPATIBLE).lock
    monkeypatch.setitem(addresses.ROOTS, Channel.PYTORCH, NOWHERE)
    world.cache.path("resolutions", "x").parent.joinpath(f"{committed.request_sha256}.json").unlink()
    mirrors[0].pytorch("cu118", {name: content})
    world.environment |= {"WHEEL_FALLBACK": ""}
    assert world.choose(PYTORCH, COMPATIBLE, committed=committed).lock == committed
    world.fetch(committed)
    assert mirrors[0].paths()[-1] == f"/whl/cu118/{name}"


@pytest.mark.parametrize("complete", [False, True])
def test_locked_option_takes_the_committed_lock(world, complete):
    """With or without its files in the cache, and with any others."""
    committed = world.choose(COMPATIBLE).lock
    if complete:
        world.fetch(committed)
    committed = msgspec.structs.replace(committed, notes=("committed",))
    world.silence()
    resolution = world.choose(COMPATIBLE, committed=committed, locked=True)
    assert (resolution.lock, resolution.candidate) == (committed, COMPATIBLE)


def test_locked_option_without_a_matching_committed_lock_is_refused(world):
    lock = world.choose(COMPATIBLE).lock  # which the cache remembers, and whose files it has
    world.fetch(lock)
    world.silence()
    command = "./build.py lock pyg --cuda 11.8"
    with refused(
        LockedError, "compatible: no committed lock answers this request: there is none", "LOCKED=yes", command
    ) as caught:
        world.choose(COMPATIBLE, locked=True)
    assert caught.value.exit_code == 18
    older = msgspec.structs.replace(lock, request_sha256="0" * 64)
    with refused(
        LockedError,
        "compatible: no committed lock answers this request: there is one for another, or for an older",
        command,
    ):
        world.choose(COMPATIBLE, committed=older, locked=True)
    with refused(LockedError, "no compiler and toolkit for FLAVOUR=devel"):
        without = msgspec.structs.replace(lock, compilation=None)
        world.choose(COMPATIBLE, committed=without, locked=True, devel=True)


def test_locked_option_skips_candidates_without_a_lock(world):
    world.pytorch_channel()
    committed = world.choose(COMPATIBLE).lock
    preferred = world.choose(PYTORCH).lock
    world.fetch(preferred)
    resolution = world.choose(PYTORCH, COMPATIBLE, committed=committed, locked=True)
    assert resolution.lock == committed
    assert [(one.candidate, one.chosen, one.constraint) for one in resolution.outcomes] == [
        ("pytorch", False, "no committed lock answers this request: there is none"),
        ("compatible", True, ""),
    ]
    with refused(LockedError, "pytorch: no committed lock answers"):
        world.choose(PYTORCH, COMPATIBLE, committed=committed, locked=True, channel="pytorch")


def test_locked_option_with_unlocked_additions_is_refused(world):
    name, content = small_wheel("einops", "0.8")
    world.server.simple("einops", {name: content})
    stack, wanted = world.choose(COMPATIBLE), Additions(packages=("einops",))

    def add(committed, given=wanted, **request):
        context = world.context(small_index.recipe(COMPATIBLE), **request)
        return additions.add(context, stack, given, committed).lock

    lock = add(None)
    assert lock.package("einops")
    world.silence()
    with refused(LockedError, "what you add to the stack is not locked", "./build.py lock mine.toml"):
        add(None, locked=True)
    with refused(LockedError, "the lock beside your recipe answers other packages"):
        add(lock, Additions(packages=("einops", "tqdm")), locked=True)
    assert add(lock, locked=True) == lock


def test_cached_lock_of_before_sources_had_back_ends_of_their_own_is_made_again(world):
    """cython-bbox was compiled as PyG's extensions are, and failed; torch-scatter still is."""
    stack, wanted = world.choose(COMPATIBLE), Additions(packages=("einops",))
    name, content = small_wheel("einops", "0.8")
    world.server.simple("einops", {name: content})
    context = world.context(small_index.recipe(COMPATIBLE))
    fresh = additions.add(context, stack, wanted, None).lock
    record = world.cache.path("resolutions", f"{fresh.request_sha256}.json")
    for source, is_old in (
        (made.sdist("einops"), True),
        (made.sdist("einops", back_end=True), False),
        (made.sdist("torch-scatter"), False),
    ):
        added = msgspec.structs.replace(fresh.added, packages=(source.name,))
        stored = msgspec.structs.replace(fresh, packages=(source,), added=added)
        world.cache.keep(record, encode(stored))
        found = additions.add(context, stack, wanted, None).lock
        assert (found.packages == fresh.packages) is is_old, source


def test_addition_with_another_hash_than_in_requirements_is_refused(world):
    name, content = small_wheel("einops", "0.8")
    world.server.simple("einops", {name: content})
    stack = world.choose(COMPATIBLE)
    context = world.context(small_index.recipe(COMPATIBLE))
    right = hashlib.sha256(content).hexdigest()
    wanted = Additions(packages=("einops",), hashes={"einops": ("0" * 64, right)})
    assert additions.add(context, stack, wanted, None).lock.package("einops").file.sha256 == right
    with refused(IntegrityError, "which your requirements do not name"):
        wanted = msgspec.structs.replace(wanted, hashes={"einops": ("0" * 64,)})
        additions.add(context, stack, wanted, None, fresh=True)


def test_hashes_of_requirements_are_of_what_an_index_gives():
    """A wheel of the user's own has the name of an index's package, and other bytes."""
    hashes = {"einops": ("0" * 64,)}
    with refused(IntegrityError, "which your requirements do not name"):
        additions._check_hashes([made.wheel("einops")], hashes)
    additions._check_hashes([made.wheel("einops", channel="local"), made.wheel("tqdm")], hashes)


def test_package_that_the_stack_has_in_another_version_is_added(world):
    stack = world.choose(COMPATIBLE).lock
    (numpy,) = [package for package in stack.packages if package.name == "numpy"]
    offers_of = {version: SimpleNamespace(name="numpy", version=version) for version in (numpy.version, "9.9")}
    assert [additions._has(stack, offer) for offer in offers_of.values()] == [True, False]
    assert not additions._has(stack, SimpleNamespace(name="absent", version=numpy.version))


def test_links_page_of_requirements_gives_a_package_and_is_not_in_the_lock(world):
    """A page of links with a password in its address; the person's own index does not have the package."""
    name, content = small_wheel("mine", "1.0")
    world.server.pyg("mine", {name: content}, hashes=True)
    secret = world.server.url("/whl/torch-mine.html").replace("http://", "http://me:secret@")
    world.monkeypatch.setattr(request_sources, "emitted_indexes", lambda *_: "")
    channel = FurtherChannel(kind="links", location=secret, where="requirements.txt:1", names=("mine",))
    wanted = Additions(packages=("mine",), channels=(channel,))
    stack, recipe = world.choose(COMPATIBLE), small_index.recipe(COMPATIBLE)
    request = SourceOptions(further=wanted.channels)
    context = small_index.context(recipe, request, world.cache, world.environment, progress=world.notes)
    lock = additions.add(context, stack, wanted, None).lock
    assert (lock.package("mine").version, lock.package("mine").index) == ("1.0", "requirements.txt:1")
    assert b"secret" not in encode(lock)
    assert b"torch-mine" not in encode(lock)
    fetch(lock, request, context.ctx)
    assert world.cache.file(hashlib.sha256(content).hexdigest(), name).is_file()
    assert Offers.of_lock(Sources(SourceOptions(), world.cache, world.environment), lock).sources.user.further == ()


@pytest.fixture
def strangers(world):
    """A function that locks what a file with a stranger's index names: the lock, and what the plan says of it.

    The public index has nice 1.0, which needs helper, helper 1.0 and typed 1.0; the stranger's helper 5.0, typed 9.0,
    which needs alone, and alone.
    """
    public = {"nice": ("1.0", ["helper"]), "helper": ("1.0", []), "typed": ("1.0", [])}
    theirs = {"helper": ("5.0", []), "typed": ("9.0", ["helper"]), "alone": ("1.0", []), "lonely": ("1.0", ["alone"])}
    for prefix, packages in (("/simple", public), ("/evil", theirs)):
        for name, (version, requires) in packages.items():
            world.server.simple(name, dict([small_wheel(name, version, requires=requires)]), prefix=prefix)
    world.monkeypatch.setattr(request_sources, "emitted_indexes", lambda *_: "")
    address = world.server.url("/evil")

    def lock(*packages):
        channel = FurtherChannel(kind="index", location=address, where="/home/me/requirements.txt:1", names=packages)
        wanted = Additions(packages=packages, channels=(channel,))
        stack, recipe = world.choose(COMPATIBLE), small_index.recipe(COMPATIBLE)
        request = SourceOptions(further=wanted.channels)
        context = small_index.context(recipe, request, world.cache, world.environment, progress=world.notes)
        made = additions.add(context, stack, wanted, None).lock
        return made, further.origins(wanted.channels, made.packages)

    return lock


def test_index_of_a_requirements_file_gives_no_dependency_that_the_public_index_has(strangers):
    lock, origins = strangers("nice", "typed")
    chosen = {package.name: (package.version, package.index) for package in lock.packages}
    assert chosen["nice"] == ("1.0", "")
    assert chosen["helper"] == ("1.0", "")
    assert chosen["typed"] == ("9.0", "requirements.txt:1")
    assert origins == ["127.0.0.1, of requirements.txt:1: typed 9.0"]
    assert not [word for word in (b"evil", b"/home/me") if word in encode(lock)]


def test_dependency_that_the_file_names_is_of_its_index(strangers):
    lock, origins = strangers("nice", "helper")
    assert lock.package("helper").version == "5.0"
    assert origins == ["127.0.0.1, of requirements.txt:1: helper 5.0"]


def test_dependency_that_only_the_index_of_a_file_has_is_an_error_that_says_how_to_name_it(strangers, world):
    uv = pinning.compile_requirements

    def without_alone(requirements, *arguments, **options):
        if "lonely" in requirements:
            raise UnsolvableError("the requirements cannot be resolved")
        return uv(requirements, *arguments, **options)

    world.monkeypatch.setattr(pinning, "compile_requirements", without_alone)
    what = "alone, which lonely==1.0 needs, is at 127.0.0.1 alone"
    with refused(ResolutionError, what, "add a line to that file: alone"):
        strangers("lonely")


def test_lock_made_without_pyg_is_left_if_pyg_answers(world, monkeypatch):
    with monkeypatch.context() as cut:
        cut.setitem(addresses.ROOTS, Channel.PYG, NOWHERE)
        committed = world.choose(COMPATIBLE).lock
        assert [(missing.name, missing.unreachable) for missing in committed.missing] == [("pyg-lib", (Channel.PYG,))]
        assert committed.package("torch-scatter").unreachable == (Channel.PYG,)
        assert world.choose(COMPATIBLE, committed=committed).lock == committed
    name, content = small_wheel("torch_scatter", "2.1.2+pt20cu117", tag=CP311)
    world.server.pyg("2.0.0+cu117", {name: content})
    lock = world.choose(COMPATIBLE, committed=committed).lock
    scatter = lock.package("torch-scatter")
    assert (scatter.version, scatter.compiled, lock.compilation) == ("2.1.2+pt20cu117", False, None)
    assert [(missing.name, missing.unreachable) for missing in lock.missing] == [("pyg-lib", ())]


def test_fresh_option_resolves_again(world):
    first = world.choose(COMPATIBLE).lock
    name, content = small_wheel("tqdm", "4.67")
    world.server.simple("tqdm", {name: content})
    same = [world.choose(COMPATIBLE, fresh=fresh).lock == first for fresh in (False, True, False)]
    assert same == [True, False, False]


def test_local_candidate_takes_torch_from_the_wheel_folder(world, tmp_path):
    def torch_of(**request):
        lock = world.choose(LOCAL, **request).lock
        world.fetch(lock, **request)
        return lock.package("torch").version

    put_torch(tmp_path / "w", "2.12.0+cpu")
    assert torch_of(wheels=tmp_path / "w") == "2.12.0+cpu"
    put_torch(tmp_path / "w", "2.13.0+cpu")
    assert torch_of(wheels=tmp_path / "w") == "2.12.0+cpu", "its lock is there"
    put_torch(tmp_path / "other", "2.11.0+cpu")
    assert torch_of(wheels=tmp_path / "other") == "2.11.0+cpu"
    world.silence()
    assert world.choose(LOCAL).lock.package("torch").version == "2.11.0+cpu", "it need not be named again"


def test_local_candidate_without_a_wheel_folder_is_refused(world):
    with refused(ResolutionError, "local channel: no folder of wheels is named", "WHEELS="):
        world.choose(LOCAL)


def test_request_digest_covers_package_fields_only():
    """Of plan and smoke test it says nothing, so that these may change without a new lock."""
    recipe = small_index.recipe(COMPATIBLE)
    whole = (recipe, recipe.variants[0], COMPATIBLE)
    silent = {"description", "translated", "program", "smoke"}
    silent |= {"variants", "candidates", "unavailable", "suffix", "meaning"}
    silent |= {"exclude_newer_except"}  # where no date is: test_cutoff.py
    for place, part in enumerate(whole):
        for field in part.__struct_fields__:
            old = getattr(part, field)
            new = BaseSpec(suite="trixie") if field == "base" else (*old, "x") if isinstance(old, tuple) else f"{old}x"
            changed = (*whole[:place], msgspec.structs.replace(part, **{field: new}), *whole[place + 1 :])
            assert (request_digest(*changed) == request_digest(*whole)) == (field in silent), field


EXTRAS = """[project]
name = "torch_geometric"
version = "2.3.1"
dependencies = ["numpy", "tqdm"]
[project.optional-dependencies]
Graph_Gym = ["einops", "torch_geometric[more]"]
more = ["yacs; python_version >= '3.11'", "old; python_version < '3.11'"]
[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"
"""


@pytest.fixture
def with_extras(world):
    """A stack whose PyG has extras; adds packages to it."""
    world.server.simple("torch-geometric", dict([small_sdist("torch_geometric", "2.3.1", pyproject=EXTRAS)]))
    for name in ("einops", "yacs"):
        world.server.simple(name, dict([small_wheel(name, "1.0")]))
    stack = world.choose(COMPATIBLE)
    return lambda *packages: (
        additions.add(world.context(small_index.recipe(COMPATIBLE)), stack, Additions(packages=packages), None).lock
    )


def test_extra_of_what_stays_adds_what_it_needs(with_extras):
    added = with_extras("torch_geometric[graph-gym]").added
    assert added.packages == ("einops", "yacs")
    assert with_extras("torch_geometric").additions.packages == ()


def test_unknown_extra_of_what_stays_is_refused_with_those_that_there_are(with_extras):
    with refused(ResolutionError, "torch-geometric 2.3.1 has no extra nosuch", "It has graph-gym and more"):
        with_extras("torch_geometric[nosuch]")


def test_extra_of_a_wheel_that_stays_adds_what_it_needs(world):
    needs = ["tqdm", "einops ; extra == 'full'"]
    world.server.simple("torch-geometric", dict([small_wheel("torch_geometric", "2.3.1", requires=needs)]))
    world.server.simple("einops", dict([small_wheel("einops", "1.0")]))
    stack = world.choose(COMPATIBLE)
    context = world.context(small_index.recipe(COMPATIBLE))
    lock = additions.add(context, stack, Additions(packages=("torch_geometric[full]",)), None).lock
    assert lock.added.packages == ("einops",)
    with refused(ResolutionError, "torch-geometric 2.3.1 has no extra nosuch"):
        additions.add(context, stack, Additions(packages=("torch_geometric[nosuch]",)), None)
