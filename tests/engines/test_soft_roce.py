"""libibverbs of a real image and an RDMA device that the kernel plays: rxe (RoCE) or siw (iWARP) over its own link."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import program
from tests.engines.workplace import call

LINK = "graphcrate0"
#: type of a link → its module
MODULES = {"rxe": "rdma_rxe", "siw": "siw"}
NEITHER = "this kernel has no rdma_rxe nor siw module"
#: what NCCL asks libibverbs first
LIST = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype, verbs.ibv_get_device_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
number = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(number))
print(*(verbs.ibv_get_device_name(devices[at]).decode() for at in range(number.value)))
"""

pytestmark = [pytest.mark.slow, pytest.mark.engine("root", "ip", "rdma", "apptainer build")]


def there(module):
    """Return whether this kernel has a module, as a file or in itself."""
    folder = Path("/lib/modules", os.uname().release)
    return Path("/sys/module", module).exists() or any(folder.rglob(f"{module}.ko*"))


@contextlib.contextmanager
def soft_device(kind):
    """An RDMA device of this kind over a link of its own; its name."""
    subprocess.run(["modprobe", MODULES[kind]], check=False, capture_output=True)  # in itself: nothing to load
    call("ip", "link", "add", LINK, "type", "dummy")
    try:
        call("ip", "address", "add", "192.0.2.1/32", "dev", LINK)  # of documentation (RFC 5737)
        call("ip", "link", "set", LINK, "up")
        call("rdma", "link", "add", f"{kind}_graphcrate", "type", kind, "netdev", LINK)
        yield f"{kind}_graphcrate"
    finally:
        call("ip", "link", "delete", LINK)  # and the device with it


def kinds():
    """Those that this kernel has no module for are skipped, before an image is made."""
    for kind, module in MODULES.items():
        reason = f"this kernel has no {module}" if any(map(there, MODULES.values())) else NEITHER
        yield pytest.param(kind, marks=pytest.mark.skipif(not there(module), reason=reason))


@pytest.mark.parametrize("kind", [*kinds()])
def test_libibverbs_of_an_image_lists_the_device_that_the_kernel_plays(small_sif, kind):
    """Its provider, too, has to be one that libibverbs of the image takes."""
    run = [program("singularity"), "exec", small_sif, "python", "-c", LIST]
    with soft_device(kind) as device:
        assert device in call(*run).split()
