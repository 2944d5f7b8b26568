"""Settings of make: a misspelt one is refused with the nearest, and what programs read from the environment passes."""

import subprocess

import pytest

from tests import ROOT


def make(*words):
    """What make would do; nothing is done."""
    done = subprocess.run(["make", "-n", "list", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("CUDDA=12.1", "CUDDA is not a setting; the nearest is CUDA."),
        ("cuda=12.1", "cuda is not a setting; the nearest is CUDA."),
        ("FLAVOR=devel", "FLAVOR is not a setting; the nearest is FLAVOUR."),
        ("QUX=1", "QUX is not a setting. There are AGAIN ALLOW_CPU_ONLY"),
    ],
)
def test_a_misspelt_setting_is_refused(word, what):
    code, text = make(word)
    assert code == 2
    assert what in text


def test_settings_and_the_environments_variables_pass():
    words = ("CUDA=11.8", "WITH=dgl==2.1 x>=3", "SLIM=yes", "PYTHON=python3", "DEBIAN_MIRROR=http://x", "https_proxy=y")
    assert make(*words)[0] == 0
