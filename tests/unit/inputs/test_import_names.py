"""Wheels that own one module are refused before any is installed."""

import pytest

from graphcrate.inputs.wheels.layer import Claims
from graphcrate.model.errors import BuildError
from tests.made import refused


@pytest.mark.parametrize("stranger", ["torch/part/__init__.py", "torch/part.abi3.so", "torch/part.pyc", "torch.py"])
def test_wheels_that_own_one_module_are_refused_with_what_to_leave_out(stranger):
    claims = Claims()
    for owner, file in (("torch", "torch/__init__.py"), ("torch", "torch/part.py"), ("evil", stranger)):
        claims.claim(f"{owner} 1.0", f"/opt/venv/lib/python3.11/site-packages/{file}", file)
    with refused(BuildError, "own the module torch", "leave one of them out"):
        claims.check_names()
