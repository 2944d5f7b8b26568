"""Reading uv's pylock.toml."""

import pytest

from graphcrate.model.errors import ResolutionError
from graphcrate.resolve.pinning import parse_pylock
from graphcrate.resolve.target import Target

BOOKWORM = Target("3.11", "2.36")
TEXT = """lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "Torch_Geometric"
version = "2.7.0"
wheels = [{ url = "https://f.test/ab/torch_geometric-2.7.0-py3-none-any.whl", size = 5, hashes = { sha256 = "aa" } }]

[[packages]]
name = "numpy"
version = "1.26.4"
marker = "sys_platform == 'linux' and platform_machine == 'x86_64'"
wheels = [
    { url = "https://f.test/numpy-1.26.4-cp312-cp312-manylinux2014_x86_64.whl", hashes = { sha256 = "01" } },
    { url = "https://f.test/numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl", hashes = { sha256 = "02" } },
]

[[packages]]
name = "colorama"
version = "0.4"
marker = "sys_platform == 'win32'"
wheels = [{ url = "https://f.test/colorama-0.4-py3-none-any.whl", hashes = { sha256 = "03" } }]

[[packages]]
name = "torch"
version = "2.13.0+cpu"
archive = { path = "/w/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", hashes = { sha256 = "04" } }

[[packages]]
name = "six"
version = "1.0"
wheels = [{ path = "/w h/six-1.0-py3-none-any.whl", hashes = { sha256 = "05" } }]
"""


def test_the_fitting_wheel_of_each_package():
    found = {package.name: package for package in parse_pylock(TEXT, BOOKWORM)}
    assert list(found) == ["torch-geometric", "numpy", "torch", "six"]
    assert (found["torch-geometric"].link.size, found["torch-geometric"].link.sha256) == (5, "aa")
    assert found["numpy"].link.sha256 == "02"
    assert found["torch"].link is None
    assert found["torch"].version == "2.13.0+cpu"
    assert found["six"].link.url == "file:///w%20h/six-1.0-py3-none-any.whl"


def test_a_package_without_a_fitting_wheel_is_named():
    with pytest.raises(ResolutionError, match=r"numpy 1\.26\.4 has no wheel for Python 3\.9"):
        parse_pylock(TEXT, Target("3.9", "2.31"))
