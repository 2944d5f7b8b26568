"""An image as its difference to a SIF: the real Apptainer shows both as the whole, to root and to a plain user."""

import json
import os
import shlex
import shutil
import subprocess

import pytest

from graphcrate.model.errors import UsageError
from tests.engines.conftest import as_user
from tests.engines.workplace import call, small_stack

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("apptainer build", "user namespaces")]

SHOW = "import tabulate, torch; print('whole', torch.ones(2).sum().item())"


@pytest.fixture(scope="module")
def more(workplace, built_image):
    """The report of the small image with a package added."""
    return workplace.run("image", *small_stack(), "--with", "tabulate", "--no-smoke", "--json").json


def test_a_package_over_the_stack_s_sif_is_small_and_imports(
    workplace, built_image, small_sif, more, apptainer, plain_user, scratch
):
    base, delta = scratch / "torch.sif", scratch / "torch.delta.sqsh"
    zstd = ("--compression", "zstd")
    shutil.copyfile(small_sif, base)
    stack, image = f"torch:{built_image.report['tag']}", f"torch:{more['tag']}"
    done = workplace.run("convert", image, "--to", "delta", "--over", stack, *zstd, "--output", delta, "--json")
    assert done.json["size"] < base.stat().st_size / 50
    line = done.err.partition("to start it: ")[2].splitlines()[0]
    assert line.startswith(f"singularity run --nv --overlay {delta}:ro ")
    run = ("exec", "--overlay", f"{delta}:ro", base, "python", "-c", SHOW)
    for path in (scratch, base, delta):
        path.chmod(path.stat().st_mode | 0o055)
    assert "whole 2.0" in call("apptainer", *run, environment=apptainer)
    home = {"PATH": os.environ["PATH"], "HOME": plain_user.pw_dir, "TMPDIR": plain_user.pw_dir}
    assert "whole 2.0" in call(*as_user(plain_user, "apptainer", *run), environment=home, folder=plain_user.pw_dir)
    assert "No module named 'tabulate'" in call(
        "apptainer", "exec", base, "sh", "-c", f'python -c "{SHOW}" 2>&1 || true', environment=apptainer
    )
    assert json.loads(done.out)["layout"] == more["digest"]
    other = scratch / "other.sif"
    workplace.run("convert", image, "--to", "sif", *zstd, "--output", other).ok()
    refused = subprocess.run(
        ["apptainer", "exec", "--overlay", f"{delta}:ro", other, "true"],
        env=apptainer,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, "next:  graphcrate convert torch:" in refused.stderr) == (UsageError.exit_code, True)
    assert "whole 2.0" in workplace.run("run", delta, "--", "python", "-c", SHOW).ok().out
    workplace.run("check", delta, "--runtime", "apptainer").ok()
    base.unlink()
    gone = workplace.run("run", delta, "--", "true")
    assert "of which no SIF is here" in gone.err


def test_a_site_s_folder_has_a_base_once_and_deltas_that_start_as_printed(
    workplace, built_image, more, plain_user, scratch
):
    site, image = scratch / "images", f"torch:{more['tag']}"
    workplace.run("test", image).ok()
    delta = ("--as", "delta", "--over", f"torch:{built_image.report['tag']}")
    done = workplace.run("publish", image, "--to", site, *delta).ok()
    first = site / f"torch-{more['tag']}.delta.sqsh"
    for number in range(4):
        shutil.copy(first, site / f"user{number}.delta.sqsh")
    line = shlex.split(done.err.partition("singularity: ")[2].splitlines()[0])
    home = {"PATH": os.environ["PATH"], "HOME": plain_user.pw_dir, "TMPDIR": plain_user.pw_dir}
    words = [*line[: line.index("python")], "python", "-c", SHOW]
    command = as_user(plain_user, "apptainer", *words[1:])
    assert "whole 2.0" in call(*command, environment=home, folder=plain_user.pw_dir)
    prune = ("publish", "--to", site, "--prune")
    (base,) = workplace.run(*prune, "--json").json
    assert (len(base["deltas"]), base["prunable"]) == (5, False)
    workplace.run("check", site / "user3.delta.sqsh", "--runtime", "apptainer").ok()
    os.utime(base["path"], (0, 0))
    assert "(removed)" not in workplace.run(*prune, "--yes").ok().out, "five deltas need it"
    for path in site.glob("*.delta.sqsh"):
        path.unlink()
    assert workplace.run(*prune).ok().out.endswith("no delta  (prunable)\n")
    assert workplace.run(*prune, "--yes").ok().out.endswith("no delta  (removed)\n")
    assert list((site / "bases").iterdir()) == []
