"""The doctor in a real image: in our own sandbox, as a SIF, with a home that leaks, with too little /dev/shm."""

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from graphcrate.engines.runners import embedded
from graphcrate.host.cache import Cache
from graphcrate.host.sandbox import Bind, Exec
from graphcrate.oci.layout import read_layout
from tests.conftest import program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.engine("mmdebstrap", "apptainer build", "useradd", "squashfuse", "setpriv", "gcc"),
]

DOCTOR = "/opt/graphcrate/examples/doctor.py"
LACKS = (
    "int _ZN5torch3jit17parseSchemaOrNameERKSs(void);\nint f(void) { return "
    "_ZN5torch3jit17parseSchemaOrNameERKSs(); }\n"
)


@pytest.fixture(scope="module")
def inside(built_image, workplace):
    """The small image, unpacked for our own sandbox."""
    with embedded.unpacked(read_layout(built_image.layout), cache=Cache(workplace.cache)) as opened:
        yield opened


@pytest.fixture
def user(plain_user):
    """(uid, gid) of a plain user whose home has a numpy of its own."""
    home = Path(pwd.getpwuid(plain_user[0]).pw_dir)
    packages = home / ".local" / "lib" / "python3.11" / "site-packages"
    (packages / "numpy").mkdir(parents=True)
    (packages / "numpy-1.0.dist-info").mkdir()
    subprocess.run(["chown", "-R", f"{plain_user[0]}:{plain_user[1]}", home], check=True)
    yield plain_user
    shutil.rmtree(home)


def findings(text):
    """By id; of several with one the last."""
    return {each["id"]: each for each in json.loads(text)["findings"]}


def in_sandbox(inside, *options, **more):
    """Exit code and all that it said; what `run` returns has the last lines alone."""
    lines = []
    done = inside.run(Exec(["python", DOCTOR, *options], on_line=lines.append, **more))
    return done.returncode, "\n".join(lines)


def in_sif(user, sif, *options, python="python", **variables):
    become = [program("setpriv"), f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups"]
    command = [program("singularity"), "--silent", "exec", *options, sif, python, DOCTOR, "--json"]
    home = pwd.getpwuid(user[0]).pw_dir
    done = subprocess.run(
        [*become, *command],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": home, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, findings(done.stdout)


def test_every_image_has_it_and_it_finds_nothing_wrong(inside, built_image):
    code, text = in_sandbox(inside, "--json")
    found = findings(text)
    assert [each for each in found.values() if each["status"] == "fail"] == []
    assert code == 0
    assert f"torch {built_image.report['torch']}" in found["packages"]["seen"]
    assert found["imports"]["seen"].startswith("can be imported: torch")
    assert found["torch-gpu"]["status"] in ("ok", "note")
    assert found["python"]["seen"] == "/opt/venv/bin/python"
    assert "sandbox" in found["container"]["seen"]


def test_a_pythonpath_and_a_broken_extension(inside, scratch):
    (scratch / "source.c").write_text(LACKS)
    for name in ("networkx", "torch_scatter", "torch_cluster"):
        (scratch / name).mkdir()
        (scratch / f"{name}-1.0.dist-info").mkdir()
    library = scratch / "torch_scatter" / "_version.so"
    subprocess.run([program("gcc"), "-shared", "-fPIC", "-Wl,-z,now", "-o", library, scratch / "source.c"], check=True)
    load = "import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), '_version.so'))\n"
    (scratch / "torch_scatter" / "__init__.py").write_text(load)
    (scratch / "torch_cluster" / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (scratch / "networkx" / "__init__.py").write_text("")
    code, text = in_sandbox(inside, environment={"PYTHONPATH": "/leak"}, binds=[Bind(scratch, "/leak")])
    text = " ".join(text.split())
    assert code == 7
    assert "PYTHONPATH=/leak shadows networkx" in text
    assert "undefined symbol: torch::jit::parseSchemaOrName(std::string const&)" in text
    assert "torch_cluster crashes (SIGSEGV)" in text


def test_as_a_sif_the_users_packages_stay_out(small_sif, user):
    code, found = in_sif(user, small_sif)
    assert code == 0, [each for each in found.values() if each["status"] == "fail"]
    assert found["container"]["seen"] == "in a container: apptainer"
    assert found["user-site"]["status"] == "ok"
    assert found["imports"]["status"] == "ok"


def test_another_python_lets_them_in(small_sif, user):
    _, found = in_sif(user, small_sif, python="/usr/bin/python3", APPTAINERENV_PYTHONNOUSERSITE="")
    assert found["user-site"]["status"] == "warn"
    assert "numpy" in found["user-site"]["seen"]


def test_a_small_shared_memory_is_a_failure(small_sif, user, scratch):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "none", scratch], check=True)
    code, found = in_sif(user, small_sif, "--bind", f"{scratch}:/dev/shm")
    assert code == 7
    assert found["shm"]["status"] == "fail"
    assert found["shm"]["seen"] == "/dev/shm: 1 MiB free of 1 MiB"
