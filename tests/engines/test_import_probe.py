"""bench/import_probe.py with this machine's own Python: what loads, what does not, what crashes, what never ends."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec._core
import pytest

pytestmark = pytest.mark.engine("sh")

PROBE = Path(__file__).resolve().parents[2] / "bench" / "import_probe.py"


@pytest.fixture
def probed(tmp_path):
    """Runs the probe with these orders on a folder with modules of every kind."""
    site = tmp_path / "site"
    site.mkdir()
    real = Path(msgspec._core.__file__)
    (site / "real.so").write_bytes(real.read_bytes())
    (site / "half.so").write_text("no library at all" * 100)
    modules = {
        "works": "print('a word')",
        "breaks": "try:\n    import nowhere\nexcept ImportError as error:\n    raise RuntimeError('no') from error",
        "crashes": "import ctypes\nctypes.string_at(0)",
        "leaves": "import os\nos._exit(3)",
        "hangs": "import time\ntime.sleep(600)",
        "exits": "raise SystemExit(1)",
    }
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)

    def run(first, imports, files, seconds=3):
        orders, found = tmp_path / "orders.json", tmp_path / "found.json"
        told = {"site": str(site), "first": first, "imports": imports, "files": files, "seconds": seconds}
        orders.write_text(json.dumps(told))
        command = [sys.executable, str(PROBE), str(orders), str(found)]
        subprocess.run(command, check=True, timeout=600, env={"PYTHONPATH": str(site)})
        return json.loads(found.read_text())

    return run


def test_each_import_and_library_has_an_outcome_of_its_own(probed):
    found = probed("", ["works", "breaks", "crashes", "leaves", "exits", "hangs"], ["real.so", "half.so"])
    imports = found["imports"]
    assert imports["works"] == {"ok": True, "error": "", "signal": 0, "said": ["a word"]}
    assert imports["breaks"]["error"] == "RuntimeError: no | from ModuleNotFoundError: No module named 'nowhere'"
    assert (imports["crashes"]["error"], imports["crashes"]["signal"]) == ("ended by SIGSEGV", 11)
    assert imports["leaves"]["error"] == "ended with exit code 3"
    assert imports["exits"]["error"] == "SystemExit: 1"
    assert imports["hangs"]["signal"] == 14
    assert found["files"]["real.so"]["ok"]
    assert not found["files"]["half.so"]["ok"]
    assert "invalid ELF header" in found["files"]["half.so"]["error"]
    files = probed("crashes", ["works"], ["real.so", "half.so"])["files"]  # where what comes before them crashes
    assert (files["real.so"]["ok"], files["real.so"]["after"], files["half.so"]["ok"]) == (True, "works", False)


def test_a_library_that_only_its_package_makes_ready_counts_as_good(probed, tmp_path):
    (tmp_path / "site" / "prepares.py").write_text(
        "from pathlib import Path\n"
        "site = Path(__file__).parent\n"
        "if (site / 'seen').exists():\n"  # when it is imported for its own sake, nothing is ready yet
        "    (site / 'later.so').write_bytes((site / 'real.so').read_bytes())\n"
        "(site / 'seen').touch()\n"
    )
    found = probed("works", ["prepares"], ["later.so", "real.so"])["files"]
    assert (found["later.so"]["ok"], found["later.so"]["after"]) == (True, "prepares")
    assert found["real.so"]["after"] == "works"
