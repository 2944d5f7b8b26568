"""The printed job and a trial on a real Slurm with the real pyxis and enroot: two nodes, a plain user."""

import contextlib
import os
import subprocess

import pytest

from tests.engines.workplace import until

pytestmark = [pytest.mark.slow, pytest.mark.engine("pyxis", "slurm", "two hosts", "apptainer build")]

OPTIONS = ("--runtime", "pyxis", "--partition", "a100", "--nodes", "2", "--gpus", "2", "--per-gpu", "--time", "30")


@pytest.fixture
def desk(pyxis_site, plain_user, workplace, small_sqsh, scratch):
    """A function that submits the printed job of a command from the plain user's folder, which has `a.sqsh`."""
    os.link(small_sqsh, scratch / "a.sqsh")
    os.chown(scratch, plain_user.pw_uid, plain_user.pw_gid)

    def submit(command):
        text = workplace.run("job", "./a.sqsh", *OPTIONS, "--name", "job", "--command", command).out
        (scratch / "job.sbatch").write_text(text)
        code, said = pyxis_site.run("sbatch", "--parsable", "job.sbatch", folder=scratch)
        assert code == 0, said
        return said.strip()

    return submit


def ended(site, folder, job):
    """Wait for a job's end; its exit code, and what it printed on stdout and stderr."""
    return site.cluster.ended(job), (folder / f"{job}.out").read_text(), (folder / f"{job}.err").read_text()


@pytest.mark.parametrize("code", [0, 3])
def test_job_of_four_processes_ends_when_one_of_them_does(desk, pyxis_site, scratch, code):
    """The others would go on for ten minutes."""
    job = desk(f"sh -c 'echo $RANK of $WORLD_SIZE; test $RANK != 0 && exec sleep 600; exit {code}'")
    failed, out, err = ended(pyxis_site, scratch, job)
    assert sorted(out.splitlines()) == [f"{rank} of 4" for rank in range(4)]
    assert failed != 0
    assert ("First task exited 60s ago" in err) == (code == 0), err
    assert pyxis_site.containers() == []


@pytest.mark.parametrize("how", [(), ("--batch", "--signal=TERM")], ids=["plain", "with time"])
def test_cancelled_job_leaves_no_container_or_names_the_nodes(desk, pyxis_site, scratch, how):
    job = desk("sh -c 'echo begun; exec sleep 600'")
    until(lambda: (scratch / f"{job}.out").exists() and (scratch / f"{job}.out").read_text().count("begun") == 4, 300)
    assert len(pyxis_site.containers()) == 2
    code, said = pyxis_site.run("scancel", *how, job)
    assert code == 0, said
    _, _, err = ended(pyxis_site, scratch, job)
    by_hand = "srun --partition=a100 --nodelist=n[1-2] --ntasks-per-node=1 enroot remove --force"
    assert f"pyxis_{job}.0 may be left on n[1-2]: {by_hand} pyxis_{job}.0" in err
    if how or f"pyxis_{job}.0 is removed" in err:
        assert pyxis_site.containers() == []
    elif pyxis_site.containers():  # a slow disk: Slurm has killed what removed it
        code, said = pyxis_site.run(*by_hand.split(), f"pyxis_{job}.0")
        assert pyxis_site.containers() == [], said


@contextlib.contextmanager
def full_disks(site):
    """Give both nodes a disk of 60 MB for what enroot unpacks."""
    nodes = []
    for name in ("n1", "n2"):
        found = subprocess.run(["pgrep", "-f", f"slurmd -D -N {name}$"], check=True, capture_output=True).stdout
        nodes.append(["nsenter", f"--target={found.split()[0].decode()}", "--mount"])
    try:
        for node in nodes:
            mount = ("mount", "-t", "tmpfs", "-o", "size=60m,mode=1777", "tmpfs", "/var/lib/enroot")
            subprocess.run([*node, *mount], check=True)
        yield
    finally:
        for node in nodes:
            subprocess.run([*node, "umount", "/var/lib/enroot"], check=True)


def test_full_disks_of_both_nodes_are_named_in_one_line(desk, pyxis_site, scratch):
    from graphcrate.compat.facts import pyxis_log

    with full_disks(pyxis_site):
        _, _, err = ended(pyxis_site, scratch, desk("true"))
    assert pyxis_log.is_failed_start(err.splitlines())
    assert pyxis_log.why_not_started(err.splitlines()).startswith("n1, n2: no space left in /var/lib/enroot/user-")
