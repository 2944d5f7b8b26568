"""What a person asks for: the command that asks it again, and the provenance that it becomes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from graphcrate.compat.request import BuildRequest


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        ({}, "make image CUDA=11.8"),
        ({"name": "glt", "gpu": "v100,a100"}, "make image STACK=glt CUDA=11.8 GPU=v100,a100"),
        ({"target": "dgx2", "driver": "535"}, "make image CUDA=11.8 TARGET=dgx2 DRIVER=535"),
        ({"channel": "pytorch", "engine": "docker"}, "make image CUDA=11.8 CHANNEL=pytorch ENGINE=docker"),
        ({"mirror": "https://me:secret@host:1/simple"}, "make image CUDA=11.8 MIRROR=https://host:1/simple"),
        ({"extensions": "none", "toolkit": "pypi"}, "make image CUDA=11.8 EXTENSIONS=none TOOLKIT=pypi"),
        ({"wheels": Path("a b"), "devel": True}, "make image CUDA=11.8 'WHEELS=a b' FLAVOUR=devel"),
        ({"rerun": True, "gpu": "t4"}, "./build.py image pyg --cuda 11.8 --gpu t4 --rerun"),
        (
            {"name": "torch", "output": Path("a b"), "smoke": False, "device": "cpu"},
            "./build.py image torch --cuda 11.8 --output 'a b' --no-smoke --device cpu",
        ),
    ],
)
def test_the_command_of_a_request_has_all_its_settings(request_, command):
    assert BuildRequest(**{"name": "pyg", "cuda": "11.8", **request_}).command() == command


def test_provenance_is_enough_to_ask_again():
    asked = {"gpu": "v100,a100", "driver": "535", "target": "dgx2", "channel": "pypi", "toolkit": "pypi", "devel": True}
    request = BuildRequest(name="glt", cuda="11.7", extensions="source", slim="yes", **asked)
    report = SimpleNamespace(name="glt", cuda="11.7", candidate="pypi")
    assert BuildRequest.again(request.asked(report)) == request
