"""What a job asks of pyxis and enroot, and what it leaves of them."""

import pytest

from graphcrate.runners import pyxis


JOB = {"SLURM_JOB_ID": "7", "PATH": "/usr/bin", "MELLANOX_VISIBLE_DEVICES": "0", "SECRET": "1"}


@pytest.mark.parametrize(
    ("has_driver", "given", "expected"),
    [
        (False, {}, "void"),
        (False, {"NVIDIA_VISIBLE_DEVICES": "none"}, "none"),
        (True, {}, None),
        (True, {"NVIDIA_VISIBLE_DEVICES": "void"}, "void"),
    ],
)
def test_what_pyxis_is_told_of_gpus(tmp_path, monkeypatch, has_driver, given, expected):
    monkeypatch.setattr(pyxis, "DRIVER", tmp_path if has_driver else tmp_path / "nvidiactl")
    told = pyxis.variables_of({**JOB, **given})
    assert told.get("NVIDIA_VISIBLE_DEVICES") == expected
    assert told["MELLANOX_VISIBLE_DEVICES"] == "0"
    assert "SECRET" not in told
