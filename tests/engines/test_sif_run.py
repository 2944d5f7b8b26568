"""A real image as a SIF, run as it is on a cluster: by a plain user, from a home full of other packages."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import program
from tests.engines.conftest import as_user
from tests.engines.test_doctor import findings
from tests.engines.workplace import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.engine("mmdebstrap", "apptainer build", "useradd", "squashfuse", "setpriv"),
]

PROGRAM = """\
import os, sys
import numpy, torch
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
for _ in range(60):
    optimizer.zero_grad()
    loss = (layer(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
assert loss < 0.1, loss
assert torch.__file__.startswith("/opt/venv/"), torch.__file__
assert numpy.__file__.startswith("/opt/venv/"), numpy.__file__
print("trained in", os.getcwd(), "as", os.getuid(), "with", sys.argv[1:])
"""


@pytest.fixture
def user(plain_user):
    """A plain user whose home has a torch and a numpy of its own that do not work."""
    packages = Path(plain_user.pw_dir, ".local", "lib", "python3.11", "site-packages")
    for name in ("torch", "numpy"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text("raise SystemExit('this is the one in ~/.local')\n")
        (packages / f"{name}-1.0.dist-info").mkdir()
    subprocess.run(["chown", "-R", plain_user.pw_name, plain_user.pw_dir], check=True)
    return plain_user


def singularity(user, folder, *words, code=0, **variables):
    """stdout of `singularity` as this user calls it in a folder."""
    environment = {"PATH": os.environ["PATH"], "HOME": user.pw_dir, "USER": user.pw_name, **variables}
    command = as_user(user, program("singularity"), "--silent", *words)
    return call(*command, folder=folder, environment=environment, code=code)


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ((), {}),
        ((), {"PYTHONUSERBASE": "/nowhere", "CONDA_PREFIX": "/conda"}),
        (("--cleanenv",), {}),
        (("--no-home",), {}),
        (("--nv",), {}),
        (("--containall", "--bind", "{folder}:/work", "--pwd", "/work"), {}),
    ],
)
def test_a_plain_user_runs_a_program_of_the_working_folder(small_sif, user, scratch, options, variables):
    """Also where the folder cannot be written to."""
    (scratch / "dna.py").write_text(PROGRAM)
    scratch.chmod(0o555)
    options = [option.format(folder=scratch) for option in options]
    said = singularity(user, scratch, "run", *options, small_sif, "python", "dna.py", "7", **variables)
    where = "/work" if "/work" in options else scratch
    assert said == f"trained in {where} as {user.pw_uid} with ['7']\n"


#: Apptainer 1.5's `set_default_ld_library_path` (internal/pkg/util/fs/files/action_script.sh), which runs in the image
RULE_OF_1_5 = r"""dirs=$( (/sbin/ldconfig -Nv | /bin/sed '/^\t/d;s/:.*//') 2>/dev/null); echo $dirs"""


def test_a_plain_user_trains_by_the_search_path_that_apptainer_1_5_sets_with_nv(small_sif, user, scratch):
    (scratch / "dna.py").write_text(PROGRAM)
    (scratch / "libs").mkdir()
    # a host's, that does not fit
    shutil.copy("/usr/lib/x86_64-linux-gnu/libz.so.1", scratch / "libs" / "libstdc++.so.6")
    bound = {"APPTAINER_CONTAINLIBS": f"{scratch}/libs/libstdc++.so.6"}  # as --nv binds the driver's
    found = singularity(user, scratch, "exec", small_sif, "sh", "-c", RULE_OF_1_5).split()
    assert [path for path in found if path.endswith("lib/x86_64-linux-gnu")]
    run = ("exec", small_sif, "python", "dna.py")
    with_1_4 = {"APPTAINERENV_LD_LIBRARY_PATH": "/.singularity.d/libs"}
    assert "trained" not in singularity(user, scratch, *run, code=1, **bound, **with_1_4)
    with_1_5 = {"APPTAINERENV_LD_LIBRARY_PATH": ":".join([*found, "/.singularity.d/libs"])}
    assert "trained" in singularity(user, scratch, *run, **bound, **with_1_5)


@pytest.mark.engine("/usr/share/lmod/lmod/libexec/lmod")
def test_module_loaded_by_lmod_trains_by_its_python_and_explains_pip(workplace, small_sif, user, scratch):
    (scratch / "dna.py").write_text(PROGRAM)
    script = workplace.run("job", small_sif, "--runtime", "module", "--name", "torch/2.0").ok().out
    (scratch / "module.sh").write_text(script)
    said = call("sh", "-c", 'sh module.sh "$1" 2>&1', "sh", scratch / "modules", folder=scratch)
    printed = said.strip().removeprefix("next: ")
    assert printed == f"module use {scratch}/modules; module load torch/2.0"
    typed = f"""
        . /usr/share/lmod/lmod/init/sh
        {printed}
        python dna.py 7
        torchrun --nproc-per-node 1 dna.py 8
        pip install einops || echo "pip: $?"
        module unload torch
        command -v pip3 torchrun
    """
    environment = {"PATH": os.environ["PATH"], "HOME": user.pw_dir, "USER": user.pw_name}
    said = call(*as_user(user, "/bin/sh", "-c", typed), folder=scratch, environment=environment, code=None)
    by_python, by_torchrun, pip, *left = said.splitlines()
    assert [by_python, by_torchrun] == [f"trained in {scratch} as {user.pw_uid} with ['{word}']" for word in (7, 8)]
    assert pip == "pip: 2"
    assert not [line for line in left if str(scratch) in line]


@pytest.mark.engine("runc", "unsquashfs")
def test_oci_bundle_trains_under_runc_by_a_plain_user(workplace, small_sqsh, user, scratch):
    (scratch / "dna.py").write_text(PROGRAM)
    image = scratch / "torch.sqsh"
    os.link(small_sqsh, image)
    script = workplace.run("job", image, "--runtime", "oci", "--name", "gnn", "--command", "python dna.py 7").ok().out
    (scratch / "oci.sh").write_text(script)
    environment = {"PATH": os.environ["PATH"], "HOME": user.pw_dir, "XDG_RUNTIME_DIR": user.pw_dir}
    for words in (("sh", "oci.sh", f"{user.pw_dir}/gnn"), ("runc", "run", "--bundle", f"{user.pw_dir}/gnn", "gnn")):
        said = call(*as_user(user, program(words[0]), *words[1:]), folder=scratch, environment=environment)
    assert said == "trained in /work as 0 with ['7']\n"  # root there is this user outside


@pytest.mark.engine("ch-run", "unsquashfs")
def test_charliecloud_folder_trains_by_a_plain_user_in_the_working_folder(workplace, small_sqsh, user, scratch):
    (scratch / "dna.py").write_text(PROGRAM)
    image = scratch / "torch.sqsh"
    os.link(small_sqsh, image)
    asked = ("job", image, "--runtime", "charliecloud", "--mount", f"{scratch}:/data/more")
    (scratch / "charliecloud.sh").write_text(workplace.run(*asked).ok().out)
    environment = {"PATH": os.environ["PATH"], "HOME": user.pw_dir, "USER": user.pw_name, "LD_LIBRARY_PATH": "/none"}

    def typed(*words, folder=scratch):
        return call(*as_user(user, program(words[0]), *words[1:]), folder=folder, environment=environment)

    typed("sh", "charliecloud.sh", unpacked := f"{user.pw_dir}/gnn")
    typed("sh", "charliecloud.sh", unpacked)
    run = f"{unpacked}/run"
    assert typed(run, "python", "dna.py", "7") == f"trained in {scratch} as {user.pw_uid} with ['7']\n"
    assert "dna.py" in typed(run, "ls", "/data/more", folder="/")
    assert typed(run, "printenv", "PYTHONNOUSERSITE") == "1\n"
    assert "LD_LIBRARY_PATH" not in typed(run, "env")


@pytest.mark.engine("podman", "runc", "root")
def test_podman_hpc_job_trains_by_what_it_hands_on_to_podman(workplace, built_image, podman, scratch):
    """podman-hpc takes its modules' options out (`--gpu`), and gives podman all others (click_passthrough.py)."""
    (scratch / "dna.py").write_text(PROGRAM)
    client = scratch / "podman-hpc"
    client.write_text(
        '#!/bin/sh\nfor word do shift; [ "$word" = --gpu ] || set -- "$@" "$word"; done\nexec podman "$@"\n'
    )
    client.chmod(0o755)
    archive = scratch / "torch.tar"
    workplace.run("convert", built_image.layout, "--to", "docker", "--output", archive).ok()
    loaded = call("podman", "load", "--quiet", "--input", archive, environment=podman).split()[-1]
    typed = ("job", loaded, "--runtime", "podman-hpc", "--gpus", "1", "--mount", f"{scratch}:/data")
    script = workplace.run(*typed, "--command", "python /data/dna.py $RANK").ok().out
    environment = {**podman, "PATH": f"{scratch}:{podman['PATH']}", "RANK": "3"}
    said = call("bash", "-c", script, folder=scratch, environment=environment)
    assert said == f"trained in {scratch} as 0 with ['3']\n"


def test_apptainer_test_prints_the_torch_version(small_sif, built_image):
    assert call("apptainer", "--silent", "test", small_sif).strip() == built_image.report["torch"]


def test_the_doctor_sees_whether_the_users_packages_stay_out_and_a_small_shared_memory(small_sif, user, scratch):
    def doctor(*options, python="python", code=0, **variables):
        command = ("exec", *options, small_sif, python, "/opt/graphcrate/examples/doctor.py", "--json")
        return findings(singularity(user, user.pw_dir, *command, code=code, **variables))

    found = doctor()
    assert found["container"]["seen"] == "in a container: apptainer"
    assert found["user-site"]["status"] == found["imports"]["status"] == "ok"
    found = doctor(python="/usr/bin/python3", code=None, APPTAINERENV_PYTHONNOUSERSITE="")
    assert found["user-site"]["status"] == "warn"
    assert "numpy" in found["user-site"]["seen"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "none", scratch], check=True)
    found = doctor("--bind", f"{scratch}:/dev/shm", code=7)
    assert (found["shm"]["status"], found["shm"]["seen"]) == ("fail", "/dev/shm: 1 MiB free of 1 MiB")
