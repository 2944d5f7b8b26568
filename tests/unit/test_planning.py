"""Plans: grouping into layers, environment, labels, tags."""

import pytest

from graphcrate.compat import planning, recipes
from graphcrate.model.lock import DebianBase, Lock, LockedFile, LockedPackage
from graphcrate.model.plan import ConfigStep, FilesStep, WheelsStep, content_id
from graphcrate.model.recipe import Channel
from tests import ROOT

RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")


def package(name, version="1.0", size=1000):
    file = LockedFile(name=f"{name}-{version}-py3-none-any.whl", size=size, sha256=f"{abs(hash(name)):064x}"[:64])
    return LockedPackage(name=name, version=version, channel=Channel.PYPI, file=file)


def lock(*packages, cuda="11.8", torch="2.0.1"):
    members = [package("torch", torch, 619_000_000), package("torch-geometric", "2.3.1", 600_000), *packages]
    return Lock(
        recipe="pyg",
        cuda=cuda,
        candidate="compatible",
        torch_cuda="11.7",
        python="3.11",
        created=1_700_000_000,
        request_sha256="0" * 64,
        base=DebianBase(suite="bookworm", packages=()),
        packages=tuple(sorted(members, key=lambda member: member.name)),
    )


def plan_of(value, cuda="11.8", candidate=1, examples=None):
    chosen = RECIPE.variant(cuda).candidates[candidate]
    return planning.make_plan(RECIPE, value, chosen, examples=examples or {})


def test_tag_says_stack_and_tells_the_compatible_one():
    assert plan_of(lock()).tag == "2.3.1-torch2.0.1-cu118-py311-compat"
    assert plan_of(lock(torch="2.0.1+cu118"), candidate=0).tag == "2.3.1-torch2.0.1-cu118-py311"


def test_large_wheels_are_layers_of_their_own_and_small_ones_are_grouped_by_how_often_they_change():
    value = lock(
        package("nvidia-cudnn-cu11", size=550_000_000), package("nvidia-nvtx-cu11"), package("numpy"), package("pip")
    )
    titles = [step.title for step in plan_of(value).steps if isinstance(step, WheelsStep)]
    assert titles == [
        "nvidia-cudnn-cu11 1.0", "CUDA libraries", "torch 2.0.1", "torch and libraries", "tools", "PyG family",
    ]  # fmt: skip


def test_every_package_is_in_exactly_one_layer():
    value = lock(*(package(f"library-{number}", size=40_000_000) for number in range(80)))
    plan = plan_of(value)
    members = [member.name for step in plan.steps if isinstance(step, WheelsStep) for member in step.packages]
    assert sorted(members) == [member.name for member in value.packages]
    assert len(plan.steps) <= planning.MOST_LAYERS


def test_environment_of_the_contracts():
    environment = plan_of(lock()).config.environment
    assert environment["PATH"].startswith("/opt/venv/bin:")
    assert environment["PYTHONNOUSERSITE"] == "1"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert environment["NVIDIA_REQUIRE_CUDA"] == "cuda>=11.0"
    assert environment["PYTORCH_VERSION"] == "2.0.1"
    assert environment["LANG"] == "C.UTF-8"
    assert "LD_LIBRARY_PATH" not in environment


def test_a_cpu_image_asks_for_no_gpu():
    environment = plan_of(lock(cuda="cpu"), cuda="cpu", candidate=0).config.environment
    assert not [name for name in environment if name.startswith("NVIDIA")]


def test_labels_name_the_lock_and_the_versions():
    value = lock()
    labels = plan_of(value).config.labels
    assert labels["graphcrate.lock.sha256"] == value.sha256
    assert labels["graphcrate.torch"] == "2.0.1"
    assert labels["graphcrate.torch_geometric"] == "2.3.1"
    assert labels["org.opencontainers.image.version"] == "2.3.1-torch2.0.1-cu118-py311-compat"


def test_profile_puts_the_path_back_and_examples_ship():
    plan = plan_of(lock(), examples={"examples/dna.py": "#!/usr/bin/env python\n", "suites/README.md": "text\n"})
    files = {file.path: file for step in plan.steps if isinstance(step, FilesStep) for file in step.files}
    assert "/opt/venv/bin" in files["/etc/profile.d/graphcrate.sh"].content
    assert files["/opt/venv/bin/python"].link == "/usr/bin/python3.11"
    assert files["/opt/graphcrate/examples/dna.py"].mode == 0o755
    assert files["/opt/graphcrate/suites/README.md"].mode == 0o644


def test_content_id_follows_the_content():
    assert content_id(plan_of(lock())) == content_id(plan_of(lock()))
    assert content_id(plan_of(lock())) != content_id(plan_of(lock(package("numpy"))))


def test_config_comes_last():
    assert isinstance(plan_of(lock()).steps[-1], ConfigStep)


@pytest.mark.parametrize(("cuda", "label"), [("11.8", "cu118"), ("13.0", "cu130"), ("cpu", "cpu")])
def test_cuda_label(cuda, label):
    assert planning.cuda_label(cuda) == label
