"""The locks under images/: each is proved by its image, answers its recipe, names no address, compiles as asked."""

import re

import pytest

from graphcrate.compat.facts import facts, standard_library, together
from graphcrate.compat.variants import explain
from graphcrate.compat.variants.ported import on_platform
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.lock import DebianBase, DebianToolkit, decode_lock, encode, platform_of
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.platform import DEFAULT
from graphcrate.resolve.sources.channels import names_of
from graphcrate.resolve.stack.extensions import choose_compiler
from graphcrate.resolve.stack.locks import request_digest
from graphcrate.smoke.suites import START
from tests import ROOT
from tests.made import RECIPES


def opened():
    """(path, lock, variant, candidate) of each."""
    for path in sorted((ROOT / "images").glob("*/*/*.lock.json")):
        lock = decode_lock(path.read_bytes())
        variant = RECIPES[lock.recipe].variant(lock.cuda)
        yield path, lock, variant, next(one for one in variant.candidates if one.name == lock.candidate)


def test_a_committed_lock_answers_its_recipe():
    assert list(opened())
    for path, lock, variant, candidate in opened():
        digest = request_digest(RECIPES[lock.recipe], variant, candidate)
        assert lock.request_sha256 == digest, f"./build.py lock {path}"
        assert path.read_bytes() == encode(lock), path
        assert b"://" not in encode(lock), path


def test_a_committed_lock_is_of_the_day_of_its_recipe_and_its_packages_fit():
    for path, lock, variant, _ in opened():
        assert lock.as_of == variant.exclude_newer, f"./build.py lock {path}"
        assert together.broken({package.name: package.version for package in lock.packages}) == (), path


LOCKS = [
    pytest.param(path, lock, variant, candidate, id=f"{lock.recipe} {lock.cuda} {lock.candidate}")
    for path, lock, variant, candidate in opened()
]


@pytest.mark.parametrize(("path", "lock", "variant", "candidate"), LOCKS)
def test_a_committed_lock_carries_the_proof_of_its_own_image(path, lock, variant, candidate):
    """`./build.py matrix NAME --cuda VERSION` builds, audits and tests it, and writes what it found."""
    proof = decode_proof(path.with_name(path.name.replace(".lock.", ".proof.")).read_bytes())
    assert (proof.recipe, proof.cuda, proof.candidate) == (lock.recipe, lock.cuda, lock.candidate)
    assert proof.lock_sha256 == lock.sha256, "the lock was changed since: build it first"
    # where wheels bring files that run by themselves, `start` runs, too
    assert {suite.suite for suite in proof.suites} - {START} == set(variant.smoke or RECIPES[lock.recipe].smoke)
    assert re.fullmatch("sha256:[0-9a-f]{64}", proof.digest)
    assert re.fullmatch("[0-9a-f]{40}[+]?", proof.commit)
    predicted = explain.by_capability(RECIPES[lock.recipe], variant, candidate)
    assert proof.gpus == {name: verdict.status for name, verdict in predicted.items()}
    assert lock.drifted == ()


def test_base_of_a_committed_lock_has_the_modules_of_python_that_its_packages_import():
    """pip did not start in glt for CUDA 11.6 and 11.7: Debian has distutils in a package of its own."""
    for path, lock, *_ in opened():
        debians = {package.name for package in lock.base.packages}
        for package in lock.packages:
            assert not standard_library.lacked(package.name, lock.python, debians), (path, package.name)


def test_a_committed_lock_says_where_debian_has_each_package_and_since_when():
    for path, lock, _, _ in opened():
        debian = [lock.base, *([lock.compilation.base, lock.compilation.toolkit] if lock.compilation else [])]
        for one in debian:
            if isinstance(one, DebianBase | DebianToolkit):
                assert re.fullmatch(r"\d{8}T\d{6}Z", one.listed), path
                assert all(package.path.endswith(f"/{package.file.name}") for package in one.packages), path


def test_the_torch_of_every_committed_lock_is_known_by_its_bytes():
    for path, lock, _, _ in opened():
        build = facts.torch_build(lock.package("torch").version, lock.torch_cuda)
        assert build is not None, path
        assert (build.known, build.source.startswith(f"torch-{build.torch}-")) == ("measured", True), path
        assert facts.numbers(lock.python) >= facts.numbers(build.python.removeprefix(">="))[:2], path
        pinned = dict(pin.split("==") for pin in build.pins)
        assert {name: lock.package(name).version for name in pinned} == pinned, path


def test_what_is_compiled_is_compiled_as_the_recipe_says():
    for path, lock, variant, candidate in opened():
        assert any(package.compiled for package in lock.packages) == (lock.compilation is not None), path
        if lock.compilation is None:
            continue
        choice = choose_compiler(variant, candidate, SourceOptions())
        assert lock.compilation.architectures == variant.architectures, path
        assert (lock.compilation.compiler, lock.compilation.toolkit.version) == (choice.compiler, choice.option.version)
        assert {"pip", "setuptools", "wheel", "ninja"} <= {tool.name for tool in lock.compilation.tools}, path
        # The image's own base with more: a compiler must not meet another libc than the image has.
        assert isinstance(lock.base, DebianBase), path
        assert set(lock.base.packages) <= set(lock.compilation.base.packages), path


def test_a_committed_lock_of_another_platform_answers_its_recipe_on_that_platform():
    """One of an older recipe is left aside by a build, which locks again: an update renews the default platform's."""
    found = sorted((ROOT / "images").glob("*/*/*/*.lock.json"))
    assert found
    for path in found:
        lock = decode_lock(path.read_bytes())
        assert lock.platform.architecture == path.parent.name, path
        assert path.read_bytes() == encode(lock), path
        assert b"://" not in encode(lock), path
        variant = RECIPES[lock.recipe].variant(lock.cuda)
        from_source = {package.name for package in lock.packages if package.is_sdist}
        assert from_source <= set(names_of(variant.extensions)), path
        candidate = next(one for one in variant.candidates if one.name == lock.candidate)
        ported = on_platform(variant, lock.platform)
        if lock.package("torch").version == candidate.torch:
            assert lock.request_sha256 == request_digest(RECIPES[lock.recipe], ported, candidate), path
        if lock.compilation is not None:
            is_compiled_across(lock, choose_compiler(ported, candidate, SourceOptions()))


def is_compiled_across(lock, choice):
    compilation = lock.compilation
    assert compilation.architectures == choice.architectures == ("9.0", "10.0"), "GH200, and GB200 with GB300"
    assert (compilation.compiler, compilation.toolkit.version) == (choice.compiler, choice.option.version)
    assert compilation.crossed.platform == lock.platform.name
    headers = [*compilation.crossed.headers]
    assert [(each.name, each.architecture) for each in headers] == [("libpython3.11-dev", lock.platform.debian)]
    assert all(each.path.endswith(f"/{each.file.name}") for each in headers)
    assert platform_of(compilation.base) is DEFAULT, "compilers run here"
    here = {each.name for each in compilation.toolkit.wheels if each.file.name.endswith(f"_{DEFAULT.machine}.whl")}
    assert here == set(choice.option.programs), "libraries and headers are of the image's platform"
