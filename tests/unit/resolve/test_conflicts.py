"""Reasons why packages cannot be added to a stack: conflicting requirements, and CUDA versions that fit."""

from pathlib import Path
from unittest import mock

import msgspec
import pytest
from packaging.requirements import Requirement

from graphcrate.compat.facts import names
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.requirements.expected import compared
from graphcrate.compat.variants.catalog import read_lock
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError
from graphcrate.model.recipe import Additions, Channel, Expected
from graphcrate.resolve.additions.conflicts import Conflicts
from graphcrate.resolve.additions.obstacles import Clause, Obstacle
from graphcrate.resolve.additions.refusals import refuse_traps, refuse_twice, without_lacking
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.user_indexes import UserIndexes
from graphcrate.resolve.stack.locks import ResolveContext
from tests import ROOT
from tests.made import RECIPES

PYG = RECIPES["pyg"]
#: what cugraph-pyg-cu12 was to bring to pyg for CUDA 12.8
RAFT = Clause("libraft-cu12==26.6.0", Requirement("nvidia-nvjitlink-cu12<13,>=12.9"))


class Index:
    """Releases of some packages, all of them wheels for every Python."""

    sources = None

    def __init__(self, **versions):
        self.versions = versions

    def releases(self, name):
        for version in self.versions.get(name, ()):
            file = f"{name}-{version}-py3-none-any.whl"
            yield Offer(name, version, Channel.PYPI, Link(name=file, url=f"https://host.example/{file}"))

    def unanswered(self, name):
        return None

    def elsewhere(self, name):
        return None


@pytest.fixture
def conflicts(monkeypatch):
    """Conflicts of pyg for a CUDA version, by its committed lock, with these packages."""

    monkeypatch.setattr(Sources, "user", UserIndexes(default=""))

    def make(cuda, *packages, **typed):
        words = {"words": packages, **typed}
        request = BuildRequest(name="pyg", cuda=cuda, additions=Additions(packages=packages), **words)
        ctx = Context(root=ROOT, environment={})
        variant = PYG.variant(cuda)
        context = ResolveContext(
            recipe=PYG, variant=variant, request=request.own_sources, ctx=ctx, next_steps=NextSteps(request)
        )
        found = (read_lock(ctx, PYG, variant, candidate) for candidate in variant.candidates)
        stack = next(lock for lock in found if lock)
        staying = {one.name: one for one in stack.packages if one.name.startswith(("torch", "nvidia-"))}
        made = Conflicts(context, stack, staying, Index(numpy=("1.26.4", "2.4.0"), setuptools=("69.5.1", "84.0")))
        made.asked = [Requirement(one) for one in packages if not own_packages.is_local(one)]
        return made

    return make


def test_conflict_with_the_stack_names_requirement_and_a_fitting_cuda(conflicts):
    made = conflicts("12.8", "cugraph-pyg-cu12")
    older = Clause("libraft-cu12==25.2.0", Requirement("nvidia-nvjitlink-cu12<12.7,>=12.6.80"))
    error = made.refusal(made.against([Clause("x==1", Requirement("numpy>=1.26")), older]))
    assert "libraft-cu12==25.2.0 needs nvidia-nvjitlink-cu12>=12.6.80,<12.7" in error.what
    assert "the stack has nvidia-nvjitlink-cu12 12.8." in error.what
    assert "\n" not in error.what
    assert error.next_step.startswith("make image CUDA=12.6 WITH=cugraph-pyg-cu12 ")


@pytest.mark.parametrize(
    ("wanted", "cause", "step"),
    [
        ("numpy>=2", "numpy<2 is the stack's: torch 2.0.1 was built for", "make image CUDA=12.6 'WITH=numpy>=2' "),
        ("torch>=2.2", "torch 2.0.1", "make image CUDA=12.1    (CUDA 12.1 has torch 2.3.1)"),
        ("torch==2.1.0", "torch 2.0.1", "(nearest are torch 2.0.1, CUDA=11.8 and torch 2.3.1, CUDA=12.1)"),
        ("torch>=99", "torch 2.0.1", "no CUDA version of pyg has torch>=99"),
    ],
)  # fmt: skip
def test_requested_package_against_a_stack_pin_is_refused(conflicts, wanted, cause, step):
    made = conflicts("11.8", wanted)
    clause = made.against([Clause("", Requirement("einops")), Clause("", Requirement(wanted))])
    error = made.refusal(clause)
    assert f"{wanted} cannot be added to pyg for CUDA 11.8" in error.what
    assert cause in error.cause
    assert step in error.next_step


def test_what_has_the_files_of_the_stacks_own_nccl_is_against_it(conflicts):
    """xgboost 3.2.0 at CUDA 11.8: nvidia-nccl-cu12 has the same nccl.h, which showed when a layer was written."""
    made = conflicts("11.8", "xgboost")
    made.offers = Index(**{"nvidia-nccl-cu12": ("2.32.3",), "nvidia-nvjitlink-cu12": ("12.9",)})
    assert "nvidia-nccl-cu12<0" in made.of_other_cuda()
    error = made.refusal(made.against([Clause("xgboost==3.2.0", Requirement("nvidia-nccl-cu12"))]))
    assert "it needs nvidia-nccl-cu12, and the stack has nvidia-nccl-cu11 2.14.3" in error.what
    assert error.next_step.startswith("make image CUDA=12.1 WITH=xgboost ")
    assert not made.is_against(Clause("x==1", Requirement("nvidia-nvjitlink-cu12"))), "nothing of the stack is there"


def test_requested_package_against_a_recipe_requirement_is_refused(conflicts):
    made = conflicts("12.1", "numpy>=2")
    error = made.refusal(made.against([Clause("", Requirement("numpy>=2"))]))
    assert "numpy<2 is the stack's: the recipe pyg asks for it at CUDA 12.1" in error.cause


def test_fitting_requirements_have_no_conflict(conflicts):
    made = conflicts("11.8")
    assert (
        made.against(Clause("a", Requirement(one)) for one in ("torch>=2.0", "numpy>=1.20", "setuptools", "x")) is None
    )


def test_unexplained_conflict_quotes_uv(conflicts):
    text = " error: No solution found\n  cause: Because a depends on b==1 and c depends on b==2"
    error = conflicts("11.8", "a").unexplained(text)
    assert error.what.splitlines()[1:] == [
        "    error: No solution found",
        "    cause: Because a depends on b==1 and c depends on b==2",
    ]


B = Clause("a==1.0", Requirement("b>=2"))
OBSTACLES = {
    "bound": Obstacle("bound", RAFT),
    "python": Obstacle("python", Clause("", Requirement("b==2")), "Python>=3.14"),
    **{kind: Obstacle(kind, B, "cp38") for kind in ("source", "absent", "wheels", "version")},
}


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ("bound", "libraft-cu12==26.6.0 needs nvidia-nvjitlink-cu12>=12.9,<13"),
        ("source bound", "libraft-cu12==26.6.0 needs nvidia-nvjitlink-cu12>=12.9,<13"),
        ("bound python", "b==2 needs Python>=3.14"),
        ("source", "a==1.0 needs b>=2, which is there as source only"),
        ("absent", "a==1.0 needs b>=2, which no index has"),
        ("wheels", "a==1.0 needs b>=2, whose wheels are for other versions of Python"),
        ("version", "a==1.0 needs b>=2, which no release is"),
        ("", "another package is against it"),
    ],
)
def test_obstacles_give_one_clause_as_reason(conflicts, kinds, reason):
    assert conflicts("12.8").reason([OBSTACLES[kind] for kind in kinds.split()]) == reason


def test_release_that_the_users_own_index_lacks_is_not_laid_to_another_package(conflicts, monkeypatch):
    """An index of the user's goes first, so what the public one has newer is not taken: nothing is against it."""
    monkeypatch.setattr(Sources, "user", UserIndexes(default="", extra=("http://127.0.0.1:1/simple",)))
    words = "an index that is asked first has no such release, or another package is against it"
    assert conflicts("12.8").reason([]) == words


def test_reason_of_a_numpy_conflict_is_the_stack_build(conflicts):
    clause = Clause("", Requirement("numpy>=2"))
    assert "was built for numpy 1" in conflicts("11.8").reason([Obstacle("bound", clause)])


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        (Obstacle("wheels", Clause("", Requirement("x")), "cp38"), "x has wheels, none for Python 3.11: cp38"),
        (Obstacle("python", B, "Python>=3.14"), "a==1.0 needs b>=2, which needs Python>=3.14, and the image has 3.11"),
        (OBSTACLES["version"], "a==1.0 needs b>=2, which matches none of its releases"),
    ],
)
def test_package_without_a_usable_release_is_refused_with_existing_ones(conflicts, obstacle, words):
    error = conflicts("11.8", "a").without_release(obstacle)
    assert words in error.what
    assert error.next_step


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        (Clause("", Requirement("tqmd")), "the package index has no tqmd; did you mean tqdm?"),
        (Clause("a==1", Requirement("nowhere")), "the package index has no nowhere, which a==1 needs"),
    ],
)
def test_package_missing_from_the_index_is_refused(conflicts, clause, words):
    assert words in conflicts("11.8").absent(clause).what


def test_misspelt_package_is_asked_for_by_its_near_name_in_the_command_that_was_typed(conflicts):
    error = conflicts("11.8", "tqmd").absent(Clause("", Requirement("tqmd")))
    assert error.next_step.startswith("make image CUDA=11.8 WITH=tqdm ")


def test_version_that_no_index_has_is_not_laid_to_the_stack(conflicts):
    made = conflicts("11.8")
    made._releases["numpy"] = tuple(mock.Mock(version=version) for version in ("1.25.2", "2.0.0"))
    assert [
        made.is_against(Clause("", Requirement(f"numpy=={version}"))) for version in ("1.2", "1.25.2", "2.0.0")
    ] == [
        False,
        False,
        True,
    ]


# Names


def test_trap_name_such_as_cv2_is_refused_with_the_right_command(conflicts):
    made = conflicts("11.8", "cv2", "sklearn==0.0", "einops>=0.7")
    with pytest.raises(ResolutionError) as caught:
        refuse_traps(made._context, made._stack, made._context.next_steps.typed.additions.packages, Index())
    assert {"opencv-python-headless", "scikit-learn"} <= set(caught.value.what.split())
    # scikit-learn is in the stack
    assert caught.value.next_step.startswith("make image CUDA=11.8 'WITH=opencv-python-headless einops>=0.7' ")


def test_trap_name_in_a_requirements_file_is_refused_with_the_right_name(conflicts):
    made = conflicts("11.8", "cv2", words=(), requirements=(Path("r.txt"),))
    with pytest.raises(ResolutionError) as caught:
        refuse_traps(made._context, made._stack, ["cv2"], Index())
    assert caught.value.next_step.startswith("write opencv-python-headless")


@pytest.mark.parametrize("package", ["bs4", "apex==0.1", "torch-sparse", "/home/me/cv2", "opencv-python", "igraph"])
def test_package_that_is_no_trap_is_accepted(conflicts, package):
    made = conflicts("11.8", package)
    refuse_traps(made._context, made._stack, [package], Index())


@pytest.mark.parametrize(
    "name", ["apex", "apex>=0.1", "PIL", "yaml", "skimage", "graph_tool", "pyg-lib", "torchsparse"]
)
def test_trap_names_have_a_next_step(conflicts, name):
    made = conflicts("11.8", name)
    with pytest.raises(ResolutionError) as caught:
        refuse_traps(made._context, made._stack, [name], Index())
    assert caught.value.next_step


def test_trap_rows_have_a_replacement_or_a_next_step():
    for one in names.traps():
        assert bool(one.instead) != bool(one.next), one.name
        assert names.trap(one.name.upper().replace("-", "_")) == one
    assert names.package_of("cv2.dnn") == "opencv-python-headless"
    assert names.package_of("torchdata.datapipes") == ""


def test_two_packages_with_one_import_folder_are_refused():
    refuse_twice({"torch-geometric", "opencv-python", "pillow"}, "pyg")
    with pytest.raises(ResolutionError, match="pyg-nightly and torch-geometric each bring the folder torch_geometric"):
        refuse_twice({"torch-geometric", "pyg-nightly"}, "pyg")


@pytest.mark.parametrize(
    ("wheels", "step"),
    [
        (
            ("numpy-1.22.4-cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",),
            "make image STACK=glt CUDA=11.7 WITH=karateclub    (for its Python 3.9 there is numpy 1.22.4; "
            "it is without torch-cluster, torch-spline-conv, torchaudio and torchvision)",
        ),
        (
            ("numpy-1.22.4-cp310-cp310-manylinux_2_17_x86_64.whl", "numpy-1.22.4.tar.gz"),
            "take the source of karateclub",
        ),
    ],
    ids=["a stack with Python 3.9", "none"],
)
def test_what_another_python_has_a_wheel_of_names_the_nearest_stack_with_it(conflicts, wheels, step):
    """karateclub needs numpy before 1.23, which has no wheel for Python 3.11."""
    known = conflicts("11.8", "karateclub")
    known.offers = Index()
    listed = [
        Offer("numpy", "1.22.4", Channel.PYPI, Link(name=name, url=f"https://host.example/{name}")) for name in wheels
    ]
    known.offers.releases = lambda name: listed
    known.asked = [Requirement("karateclub")]
    error = known.without_wheel(Clause("karateclub==1.3.3", Requirement("numpy<1.23.0")), "3.11")
    assert "it needs numpy<1.23.0, of which there is no wheel for Python 3.11" in error.what
    assert error.next_step.startswith(step)


def test_release_of_a_file_without_a_wheel_names_the_command_that_takes_the_stacks(conflicts):
    made = conflicts("12.1", "numpy==1.20", words=(), requirements=(Path("r.txt"),))
    error = made.without_wheel(Clause("", Requirement("numpy==1.20")), "3.11")
    assert error.next_step.startswith("make image CUDA=12.1 WITH=numpy REQUIREMENTS=r.txt")


def test_file_of_many_packages_is_named_in_the_command_for_another_cuda(conflicts):
    packages = ("numpy>=2", *(f"package-{number}" for number in range(40)))
    made = conflicts("12.1", *packages, words=(), requirements=(Path("r.txt"),))
    error = made.refusal(Clause("", Requirement("numpy>=2")))
    assert error.next_step.startswith("make image CUDA=12.6 REQUIREMENTS=r.txt")


def test_pin_of_a_lock_that_no_release_is_names_it_and_the_command_without_it(conflicts):
    made = conflicts("11.8", "e3nn", words=(), requirements=(Path("uv.lock"),))
    obstacle = Obstacle("version", Clause("", Requirement("e3nn")), "the newest is 0.6.0")
    error = made.without_release(obstacle, [Requirement("e3nn==0.5.4")])
    assert "e3nn==0.5.4 matches none of its releases: the newest is 0.6.0" in error.what
    assert error.next_step.startswith("make image CUDA=11.8 WITH=e3nn REQUIREMENTS=uv.lock    takes another version")


def test_pin_of_a_lock_that_the_stack_is_against_names_the_cuda_that_has_it(conflicts):
    made = conflicts("12.1", "numpy", words=(), requirements=(Path("uv.lock"),))
    obstacle = Obstacle("version", Clause("", Requirement("numpy")), "the newest is 2.5.5")
    error = made.without_release(obstacle, [Requirement("numpy==2.4.2")])
    assert error.what == "numpy==2.4.2 cannot be added to pyg for CUDA 12.1, which has numpy<2"
    assert error.next_step.startswith("make image CUDA=12.6 REQUIREMENTS=uv.lock")


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ({"lightning": ["datasets<5.1"]}, "lightning==2.6 needs datasets<5.1"),
        ({"datasets": ["fsspec<2026.2"]}, "datasets==5.2.0 needs fsspec<2026.2, and fsspec 2026.9 is taken"),
        ({"lightning": ["datasets>=5"]}, ""),
    ],
)
def test_package_for_which_an_older_release_is_taken_is_named(conflicts, monkeypatch, needs, why):
    made = conflicts("11.8", "datasets", "lightning")
    made.offers.versions |= {"datasets": ("5.0.1", "5.2.0"), "lightning": ("2.6",), "fsspec": ("2026.9",)}
    monkeypatch.setattr(made, "prefetch", lambda releases: None)
    monkeypatch.setattr(made, "needs", lambda release: [Requirement(text) for text in needs.get(release.name, ())])
    pinned = [made.releases(name)[0] for name in ("datasets", "lightning", "fsspec")]
    assert made.rival(Requirement("datasets==5.2.0"), pinned) == why


PYG_LIB = Additions(packages=("pyg_lib", "einops"), expected=(Expected(name="pyg-lib", where="r.txt:3", binding=True),))


def test_pyg_lib_of_a_file_is_passed_over_with_its_line_where_no_place_has_it(conflicts):
    stack = conflicts("11.8")._stack
    assert [package.name for package in stack.missing] == ["pyg-lib"]
    assert without_lacking(stack, PYG_LIB, Index()).packages == ("einops",)
    (line,) = compared(PYG_LIB.expected, stack)
    assert line.startswith("r.txt:3: pyg-lib is passed over, as no package index has pyg-lib: PYG_LIB=git or PYG_LIB=")


def test_pyg_lib_that_was_typed_or_that_an_index_has_is_not_passed_over(conflicts):
    stack = conflicts("11.8")._stack
    typed = msgspec.structs.replace(PYG_LIB, expected=(Expected(name="pyg-lib", where="r.txt:3"),))
    assert without_lacking(stack, typed, Index()) == typed
    assert without_lacking(stack, PYG_LIB, Index(**{"pyg-lib": ("0.2.0",)})) == PYG_LIB
