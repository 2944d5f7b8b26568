"""Variants by new releases: made-up torches, indexes and recipes."""

import datetime
import tomllib

import msgspec
import pytest

from graphcrate.compat.facts import facts
from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.compat.variants import recipes
from graphcrate.model.errors import RecipeError
from graphcrate.model.lock import Lock
from graphcrate.model.platform import ARM64
from graphcrate.model.recipe import Channel, Recipe
from graphcrate.resolve.sources.source import Link
from tests.made import KNOWN, OF_ONE_DAY, RECIPES, bookworm, refused
from tests.made import wheel as locked_wheel
from upkeep.news import recipe_text, review
from upkeep.news.followed import News
from upkeep.news.weighing import dated, weigh
from upkeep.releases import ListedRelease, releases_of

TODAY = datetime.date(2026, 11, 26)
TEXT = """# a recipe
name = "made"
description = "made up"
smoke = ["torch"]
requirements = ["numpy"{more}]

[[variant]]
cuda = "12.8"  # the first
python = "3.11"
base = {{ provider = "debian", suite = "bookworm" }}
exclude_newer = "2026-04-30"

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.10.0"
torch_cuda = "12.8"

# what follows has no V100
[[variant]]
cuda = "13.0"
python = "3.11"
base = {{ provider = "debian", suite = "bookworm" }}
torch_geometric = "2.8.1"
extensions = ["torch_scatter"]
architectures = ["7.5", "8.0"]

# the only way
[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.12.1"  # exact
torch_cuda = "13.0"
"""
SM = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
WITH_V100 = ("7.0", *SM)  #: as torch 2.10.0 for CUDA 12.8 has


def recipe_of(text=TEXT, *, more=""):
    return msgspec.convert(tomllib.loads(text.format(more=more)), Recipe)


def wheel(version, *, python="cp311", platform="manylinux_2_28_x86_64"):
    return f"torch-{version}-{python}-{python}-{platform}.whl"


def torch(version, *, uploaded="2026-11-01", channel=Channel.PYPI, cuda="", **tags):
    return ListedRelease(
        version=version, files=(wheel(version, **tags),), uploaded=uploaded, channel=channel, cuda=cuda
    )


def built(version, cuda, sm=SM, **more):
    values = {"cxx11_abi": True, "glibc": "2.28", "python": ">=3.10", "ptx": (), "size": 5 * 10**8, **more}
    return TorchBuild(torch=version, cuda=cuda, sm=sm, known="measured", source=wheel(version), **values)


def news(*torches, builds=(), pyg=()):
    return News(torch=torches, builds=(*facts.torch_builds(), *builds), pyg=pyg, today=TODAY)


def weighed(*torches, builds=(), pyg=(), recipe=None):
    return weigh(recipe or recipe_of(), news(*torches, builds=builds, pyg=pyg))


def only(values):
    (value,) = values
    return value


# --- what is listed ---------------------------------------------------------------------------------------------------


def test_releases_are_final_not_yanked_and_know_their_day():
    def link(name, *, yanked=False):
        return Link(name=name, url=f"https://i/{name}", yanked=yanked)

    links = [
        link(wheel("2.99.0")),
        link(wheel("2.99.0", python="cp312")),
        link(wheel("2.98.0"), yanked=True),
        link(wheel("3.0.0rc1")),
        link(wheel("2.97.0+cu130")),
        link("torch-2.9.0.tar.gz"),
        link("README.txt"),
    ]
    times = {wheel("2.99.0"): "2026-11-03T01:00:00Z", wheel("2.99.0", python="cp312"): "2026-11-02T23:00:00Z"}
    found = releases_of(links, times)
    assert [(release.version, release.uploaded) for release in found] == [("2.9.0", ""), ("2.99.0", "2026-11-02")]
    assert found[1].addresses == (f"https://i/{wheel('2.99.0')}", f"https://i/{wheel('2.99.0', python='cp312')}")
    (of_channel,) = releases_of([links[4]], {}, Channel.PYTORCH, "13.0")
    assert (of_channel.cuda, str(of_channel.number)) == ("13.0", "2.97.0")


# --- what becomes of a variant ----------------------------------------------------------------------------------------


def test_a_new_patch_or_minor_for_a_cuda_replaces_the_variants_torch():
    for version, kind in (("2.12.2", "patch"), ("2.99.0", "minor")):
        change = only(weighed(torch(version), builds=[built(version, "13.0")]).changes)
        assert (change.kind, change.cuda, change.torch_before, change.torch) == ("replace", "13.0", "2.12.1", version)
        assert (change.driver_before, change.driver, change.exclude_newer) == ("580.65.06", "580.65.06", "")
        assert f"torch {version} is a new {kind} release for CUDA 13.0" in change.why
        assert any("whether PyG's pages have wheels" in why for why in change.why) is (version == "2.99.0")


def test_nothing_new_changes_nothing():
    assert weighed(torch("2.12.1"), torch("2.10.0")) == weighed()
    assert (weighed().changes, weighed().held) == ((), ())


def test_a_variant_with_a_day_gets_patches_of_its_torch_alone():
    """12.8 has one. 2.11.9 is for its CUDA, and 2.9.0 for one that had no variant when the recipe took 2.12.1."""
    builds = [built("2.11.9", "12.8", sm=WITH_V100), built("2.10.1", "12.8", sm=WITH_V100), built("2.9.0", "12.9")]
    change = only(weighed(torch("2.11.9"), torch("2.10.1"), torch("2.9.0"), builds=builds).changes)
    assert (change.cuda, change.torch) == ("12.8", "2.10.1")
    undated = recipe_of(TEXT.replace('exclude_newer = "2026-04-30"\n', ""))
    assert only(weighed(torch("2.11.9"), torch("2.10.1"), builds=builds, recipe=undated).changes).torch == "2.11.9"


def test_a_recipe_of_its_time_gets_no_new_variant():
    dated_recipe = recipe_of(
        TEXT.replace('architectures = ["7.5"', 'exclude_newer = "2026-08-31"\narchitectures = ["7.5"')
    )
    assert weighed(torch("2.99.0"), builds=[built("2.99.0", "13.2")], recipe=dated_recipe).changes == ()


def test_a_new_variant_is_like_the_nearest_of_today():
    """12.8 is nearer to 12.9, and of its time."""
    change = only(weighed(torch("2.99.0"), builds=[built("2.99.0", "12.9")]).changes)
    assert (change.kind, change.cuda, change.like) == ("new", "12.9", "13.0")


def test_an_older_release_is_not_held_back_again_for_the_reasons_of_a_newer_one():
    builds = [built("2.98.0", "13.0", sm=SM[1:]), built("2.99.0", "13.0", sm=SM[1:])]
    assert only(weighed(torch("2.98.0"), torch("2.99.0"), builds=builds).held).release == "torch 2.99.0"


def test_a_torch_for_another_cuda_is_a_new_variant_like_the_nearest():
    builds = [built("2.98.0", "13.0"), built("2.99.0", "13.2", sm=(*SM, "10.3"))]
    replaced, added = weighed(torch("2.98.0"), torch("2.99.0"), builds=builds).changes
    assert (replaced.cuda, replaced.torch) == ("13.0", "2.98.0")
    assert "torch 2.99.0 is for CUDA 13.2 there, and 2.98.0 the last for 13.0" in replaced.why
    assert (added.kind, added.cuda, added.like, added.torch, added.pyg) == ("new", "13.2", "13.0", "2.99.0", "2.8.1")
    assert "PTX that CUDA 13.2 makes is compiled by drivers from 595.45.04 on (CUDA 13.0: 580.65.06)" in added.why


def test_a_cuda_that_no_new_torch_has_keeps_its_torch():
    changes = weighed(torch("2.99.0"), builds=[built("2.99.0", "13.2")]).changes
    assert [(change.kind, change.cuda) for change in changes] == [("new", "13.2")]


def test_a_lost_gpu_holds_a_release_back_and_the_one_before_it_is_taken():
    builds = [built("2.98.0", "13.0"), built("2.99.0", "13.0", sm=SM[1:])]
    result = weighed(torch("2.98.0"), torch("2.99.0"), builds=builds)
    assert only(result.changes).torch == "2.98.0"
    held = only(result.held)
    assert (held.cuda, held.release) == ("13.0", "torch 2.99.0")
    assert held.reasons == ("it has no code for T4 (sm_75), which torch 2.12.1 runs on",)


def test_gpus_by_ptx_are_not_lost_and_new_ones_are_won(gpus_are):
    gpus_are({"P100": "6.0", "V100": "7.0", "B200": "10.0", "RTX5090": "12.0"})
    lean = built("2.99.0", "13.0", sm=("7.5", "8.0"), ptx=("8.0",))
    change = only(weighed(torch("2.99.0"), builds=[lean]).changes)
    assert (change.gained, change.lost) == ((), ())
    older = recipe_of(TEXT.replace("2.10.0", "2.7.1").replace("12.8", "12.6"))
    change = only(
        weighed(torch("2.7.2"), builds=[built("2.7.2", "12.6", sm=("5.0", "6.0", *WITH_V100))], recipe=older).changes
    )
    assert change.gained == ("B200", "RTX5090")


@pytest.mark.parametrize(
    ("release", "build", "reason"),
    [
        (torch("2.99.0", python="cp312"), built("2.99.0", "13.0"), "it has no wheel for Python 3.11 and glibc 2.36"),
        (torch("2.99.0", platform="manylinux_2_39_x86_64"), built("2.99.0", "13.0"), "no wheel for Python 3.11"),
        (torch("2.99.0"), built("2.99.0", "13.0", glibc="2.39"), "it needs glibc 2.39, and bookworm has 2.36"),
        (torch("2.99.0"), built("2.99.0", "14.0"), "which driver CUDA 14.0 needs is not known"),
        (torch("2.99.0"), built("2.99.0", "14.0"), "no toolkit is known that compiles extensions for CUDA 14.0"),
        (torch("2.99.0"), built("2.99.0", "13.0", compile_python="3.10"), "its torch.compile takes no Python after"),
    ],
)
def test_what_an_image_cannot_have_is_held_back(release, build, reason):
    result = weighed(release, builds=[msgspec.structs.replace(build, source=release.files[0])])
    assert result.changes == ()
    assert reason in "; ".join(only(result.held).reasons)


def test_an_unmeasured_release_of_pytorchs_channel_is_held_back():
    text = TEXT.replace('["pypi"]\ntorch = "2.12.1"', '["pytorch", "pypi"]\ntorch = "2.12.1+cu130"')
    release = ListedRelease(
        version="2.99.0+cu130", files=(wheel("2.99.0+cu130"),), channel=Channel.PYTORCH, cuda="13.0"
    )
    assert only(weighed(release, recipe=recipe_of(text)).held).reasons == ("its wheel was not measured",)
    change = only(weighed(release, recipe=recipe_of(text), builds=[built("2.99.0", "13.0")]).changes)
    assert change.torch == "2.99.0+cu130"


def test_graphlearn_torch_holds_a_new_torch_back():
    builds = [built("2.99.0", "13.0")]
    result = weighed(torch("2.99.0"), builds=builds, recipe=recipe_of(more=', "graphlearn-torch==0.2.4"'))
    assert result.changes == ()
    assert only(result.held).reasons == ("graphlearn-torch 0.2.4 does not work with it: compat/data/glt.toml",)


def test_committed_stacks_of_their_time_stay_as_they_are():
    """torch 2.4.1 for CUDA 12.1 was there when the stacks took 2.3.1."""
    listed = torch("2.4.1"), torch("2.3.1"), torch("2.6.0")
    for name in ("pyg", "torch", "glt"):
        assert weighed(*listed, recipe=RECIPES[name]) == weighed(recipe=RECIPES[name])


def company(name, *versions):
    return [
        ListedRelease(version=version, files=(f"{name}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl",))
        for version in versions
    ]


WITH_COMPANY = TEXT.replace(
    'architectures = ["7.5"', 'requirements = ["torchvision", "torchaudio"]\narchitectures = ["7.5"'
)


def test_a_companion_without_a_release_holds_a_torch_back_and_a_new_variant_is_without_it():
    """For a torch that pairs.toml has no row for torchaudio is 2.11.1 or later; an index that lacks it says nothing."""
    builds = [built("2.98.0", "13.0"), built("2.99.0", "13.2")]
    asked = {"recipe": recipe_of(WITH_COMPANY)}
    seen = news(torch("2.98.0"), torch("2.99.0"), builds=builds)
    for listed, changed in ((("2.11.0",), False), (("2.11.0", "2.12.0"), True), ((), True)):
        known = {"torchaudio": company("torchaudio", *listed), "torchvision": company("torchvision", "0.29.1")}
        result = weigh(asked["recipe"], seen._replace(companions=known))
        assert [change.kind for change in result.changes] == (["replace", "new"] if changed else ["new"])
        assert result.changes[-1].without == (() if changed else ("torchaudio",))
        if not changed:
            what = "torchaudio>=2.11.1 goes with torch 2.98.0, and the index ends with 2.11.0"
            assert only(result.held).reasons == (what,)
            text = recipe_text.changed(WITH_COMPANY.format(more=""), result.changes[-1])
            assert "# No torchaudio: no release goes with torch 2.99.0 yet" in text
            assert 'requirements = ["torchvision"]\n' in text


@pytest.mark.parametrize(
    ("before", "without", "after"),
    [
        ('["torchvision", "torchaudio", "six"]', ("torchvision",), ["torchaudio", "six"]),
        ('["torchvision", "torchaudio", "six"]', ("torchaudio",), ["torchvision", "six"]),
        ('["torchvision", "torchaudio"]', ("torchvision", "torchaudio"), []),
        ('["torchvision", "torchvision-x"]', ("torchvision",), ["torchvision-x"]),
    ],
)
def test_requirements_are_left_out_wherever_they_stand(before, without, after):
    text = WITH_COMPANY.replace('["torchvision", "torchaudio"]', before).format(more="")
    change = only(weighed(torch("2.99.0"), builds=[built("2.99.0", "13.2")]).changes)
    changed = recipe_text.changed(text, msgspec.structs.replace(change, without=without))
    assert tomllib.loads(changed)["variant"][2]["requirements"] == after


# --- PyG and days -----------------------------------------------------------------------------------------------------


def pyg(version, uploaded="2026-11-20", python="py3-none-any"):
    return ListedRelease(version=version, files=(f"torch_geometric-{version}-{python}.whl",), uploaded=uploaded)


def test_a_new_pyg_is_for_variants_of_today():
    change = only(weighed(pyg=[pyg("2.8.1", "2026-10-12"), pyg("2.9.0")]).changes)
    assert (change.cuda, change.torch, change.pyg_before, change.pyg) == ("13.0", "2.12.1", "2.8.1", "2.9.0")
    assert weighed(pyg=[pyg("2.8.1")]).changes == ()


def test_pyg_without_a_wheel_for_the_python_is_held_back():
    result = weighed(pyg=[pyg("2.9.0", python="cp314-cp314-manylinux_2_28_x86_64")])
    assert (result.changes, only(result.held).release) == ((), "torch_geometric 2.9.0")


def test_a_day_is_the_end_of_the_third_month_once_it_has_come():
    assert dated(["2023-05-08", "2023-04-06"], TODAY) == "2023-08-31"
    assert dated(["2025-11-12"], TODAY) == "2026-02-28"
    assert dated(["2026-08-27"], TODAY) == ""
    builds = [built("2.10.1", "12.8", sm=WITH_V100)]
    for uploaded, day in (("2026-05-09", "2026-08-31"), ("2026-11-20", ""), ("", "")):
        change = only(weighed(torch("2.10.1", uploaded=uploaded), builds=builds).changes)
        assert change.exclude_newer == day
        assert any("does not say when" in sentence for sentence in change.why) is (uploaded == "")


# --- the recipe's text ------------------------------------------------------------------------------------------------


def test_a_recipes_text_keeps_comments_order_and_everything_else():
    builds = [built("2.98.0", "13.0"), built("2.99.0", "13.2"), built("2.10.1", "12.8", sm=WITH_V100)]
    before = TEXT.format(more="")
    for change in weighed(torch("2.98.0"), torch("2.99.0"), torch("2.10.1"), builds=builds).changes:
        after = recipe_text.changed(before, change)
        removed = [line for line in before.splitlines() if line not in after.splitlines()]
        assert len(removed) == {"12.8": 2, "13.0": 1, "13.2": 0}[change.cuda], "12.8 loses its day"
        before = after
    assert before.count("# the only way") == 2
    assert 'torch = "2.98.0"  # exact' in before
    assert before.count('# what follows has no V100\n[[variant]]\ncuda = "13.0"') == 1
    recipe = msgspec.convert(tomllib.loads(before), Recipe)
    assert [(variant.cuda, variant.candidates[0].torch) for variant in recipe.variants] == [
        *(("12.8", "2.10.1"), ("13.0", "2.98.0"), ("13.2", "2.99.0"))
    ]
    assert recipe.variants[1].extensions == recipe.variants[2].extensions


def test_a_new_variant_between_others_leaves_the_next_ones_comment_to_it():
    text = TEXT.format(more="").replace("12.8", "12.6").replace("2.10.0", "2.7.1")
    change = msgspec.structs.replace(
        only(weighed(torch("2.99.0"), builds=[built("2.99.0", "13.2")]).changes),
        like="12.6", cuda="12.9", pyg="", pyg_before="",
    )  # fmt: skip
    after = recipe_text.changed(text, change)
    assert 'torch_cuda = "12.9"\n\n# what follows has no V100\n[[variant]]\ncuda = "13.0"' in after


@pytest.mark.parametrize("name", ["pyg", "torch"])
def test_a_recipe_of_ours_can_be_changed(tmp_path, name):
    """Every variant that an update follows, each to another torch, and one more."""
    text = (OF_ONE_DAY / f"{name}.toml").read_text()
    builds = [built("2.98.0", "13.0", sm=WITH_V100), built("2.99.0", "13.2")]
    changes = weigh(KNOWN[name], news(torch("2.98.0"), torch("2.99.0"), builds=builds)).changes
    assert [(change.kind, change.cuda) for change in changes] == [("replace", "13.0"), ("new", "13.2")]
    for change in changes:
        text = recipe_text.changed(text, change)
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    known = {variant.cuda: variant for variant in KNOWN[name].variants}
    for variant in recipes.load(path).variants:
        assert variant == known.get(variant.cuda, variant) or variant.cuda == "13.0"
    assert recipes.load(path).variant("13.2").candidates[0].torch == "2.99.0"


def test_a_layout_that_is_not_known_is_refused():
    change = only(weighed(torch("2.98.0"), builds=[built("2.98.0", "13.0")]).changes)
    odd = TEXT.format(more="").replace('torch = "2.12.1"', "torch = '2.12.1'")
    with refused(RecipeError, "is not laid out as an update can change it", "write torch 2.98.0 for CUDA 13.0 by hand"):
        recipe_text.changed(odd, change)
    with refused(RecipeError, "is not laid out"):
        recipe_text.changed(TEXT.format(more="").replace('"13.0"', '"13.1"'), change)


# --- the text of a review ---------------------------------------------------------------------------------------------


def test_what_is_true_of_several_images_is_said_once():
    builds = [built("2.98.0", "13.0")]
    changes = weighed(torch("2.98.0"), builds=builds).changes
    both = (*changes, msgspec.structs.replace(changes[0], recipe="other"))
    text = review.text(review.Review(day="2026-11-26", changes=both))
    assert "- made CUDA 13.0, other CUDA 13.0: torch 2.98.0 is a new minor release for CUDA 13.0.\n" in text
    assert text.count("new minor release") == 1


def test_the_text_of_a_review_has_all_of_it_and_nothing_else():
    builds = [built("2.98.0", "13.0"), built("2.99.0", "13.0", sm=SM[1:]), built("2.99.1", "13.2")]
    result = weighed(torch("2.98.0"), torch("2.99.0"), torch("2.99.1"), builds=builds)
    locks = {
        "made CUDA 13.0": review.LockChange(
            bytes_before=3 * 10**9, bytes_after=29 * 10**8, moved=(("torch", "2.12.1", "2.98.0"), ("six", "1.0", ""))
        )
    }
    whole = review.text(
        review.Review(
            day="2026-11-26",
            changes=result.changes,
            held=result.held,
            facts=tuple(builds[:1]),
            by_hand=("CUDA 13.5 is on the index",),
            unanswered=("PyTorch: no answer",),
            locks=locks,
            tried=True,
        )
    )
    for words in (
        "1 variant changes, 1 is new, 1 release is held back, 1 torch was measured.",
        "| made CUDA 13.0 | 2.12.1 → 2.98.0 | 2.8.1 | - | - | 580.65.06 | 3.00 GB → 2.90 GB |",
        "| made CUDA 13.2, new | 2.99.1 |",
        "- made CUDA 13.0: torch 2.12.1 → 2.98.0 and six 1.0 gone.",
        "- made CUDA 13.0: no torch 2.99.0: it has no code for T4 (sm_75)",
        "- torch 2.98.0: CUDA 13.0, code for 7.5, 8.0",
        "- CUDA 13.5 is on the index.",
        "- PyTorch: no answer.",
    ):
        assert words in whole
    assert review.text(review.Review(day="2026-11-26")) == "# Update of 2026-11-26\n\nNothing is new.\n"
    checked = review.text(review.Review(day="2026-11-26", changes=result.changes))
    assert "Nothing was written." in checked


# --- other platforms --------------------------------------------------------------------------------------------------

ARM_SM = ("8.0", "9.0", "10.0", "11.0", "12.0")


def aarch64(version):
    return wheel(version, platform="manylinux_2_28_aarch64")


def on_both(version):
    return ListedRelease(version=version, files=(wheel(version), aarch64(version)), uploaded="2026-11-01")


def ported_lock(torch="2.12.1"):
    """The lock for arm64 of the variant for 13.0."""
    return {"13.0": {ARM64.name: lock_of(packages=(locked_wheel("torch", torch),))}}


def lock_of(**more):
    return Lock(
        recipe="made", cuda="13.0", candidate="pypi", torch_cuda="13.0", python="3.11", created=1, request_sha256="",
        base=bookworm(), **more,
    )  # fmt: skip


def weighed_for_arm(*torches, builds=(), ported=(), locks=None):
    known = {ARM64.name: (*facts.builds_for(ARM64), *ported)}
    return weigh(recipe_of(), news(*torches, builds=builds)._replace(ported=known), None, locks or ported_lock())


def arm_build(version, cuda, **more):
    return msgspec.structs.replace(built(version, cuda, **{"sm": ARM_SM, **more}), source=aarch64(version))


def test_variant_with_a_lock_for_another_platform_gets_a_torch_that_has_a_build_for_both():
    result = weighed_for_arm(on_both("2.99.0"), builds=[built("2.99.0", "13.0")], ported=[arm_build("2.99.0", "13.0")])
    assert only(result.changes).platforms == ("linux/arm64",)
    without = weighed(on_both("2.99.0"), builds=[built("2.99.0", "13.0")])
    assert only(without.changes).platforms == ()


@pytest.mark.parametrize(
    ("release", "ported", "reason"),
    [
        (torch("2.99.0"), [], "it has no wheel for arm64, Python 3.11 and glibc 2.36"),
        (on_both("2.99.0"), [], "its wheel for arm64 was not measured"),
        (on_both("2.99.0"), [arm_build("2.99.0", "13.2")], "its wheel for arm64 has CUDA 13.2"),
        (on_both("2.99.0"), [arm_build("2.99.0", "13.0", glibc="2.39")], "its wheel for arm64 needs glibc 2.39"),
        (
            on_both("2.99.0"),
            [arm_build("2.99.0", "13.0", sm=("8.0", "9.0", "12.0"))],
            "its wheel for arm64 has no code for GB200 (sm_100), which that of torch 2.12.1 runs on",
        ),
    ],
    ids=["no-wheel", "not-measured", "other-cuda", "glibc", "lost-gpu"],
)
def test_torch_that_another_platform_of_the_variant_cannot_have_is_held_back(release, ported, reason):
    result = weighed_for_arm(release, builds=[built("2.99.0", "13.0")], ported=ported)
    assert result.changes == ()
    assert reason in "; ".join(only(result.held).reasons)


def test_new_variant_is_made_without_a_platform_that_its_torch_has_no_build_for():
    ported = [arm_build("2.99.0", "13.2")]
    change = only(weighed_for_arm(on_both("2.99.0"), builds=[built("2.99.0", "13.2")], ported=ported).changes)
    assert (change.kind, change.platforms) == ("new", ("linux/arm64",))
    change = only(weighed_for_arm(torch("2.99.0"), builds=[built("2.99.0", "13.2")]).changes)
    assert (change.kind, change.platforms) == ("new", ())
    assert "it is not made for arm64: it has no wheel for arm64, Python 3.11 and glibc 2.36" in change.why


def test_lock_for_another_platform_with_an_older_torch_than_the_recipes_is_made_again():
    locks = ported_lock("2.11.0")
    change = only(weighed_for_arm(on_both("2.12.1"), locks=locks).changes)
    assert (change.kind, change.torch, change.platforms) == ("renew", "2.12.1", ("linux/arm64",))
    assert change.why == ("the lock for arm64 has torch 2.11.0, and the recipe 2.12.1",)
    assert weighed_for_arm(torch("2.12.1"), locks=locks).changes == (), "there is no wheel of it"
    assert weighed_for_arm(on_both("2.12.1")).changes == ()
