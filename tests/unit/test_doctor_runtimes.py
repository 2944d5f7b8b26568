"""What the doctor says of Apptainer, enroot, pyxis, Slurm, Docker, and of the report as a whole."""

import json

import pytest

from doctor import __main__ as command
from doctor import survey as surveys
from doctor.enroot import judge_enroot, judge_slurm
from doctor.finding import numbers, ok, size, warn
from doctor.host import Done, Room
from doctor.page import page_lines
from doctor.singularity import judge_singularity, setting
from doctor.survey import cannot_work, survey
from tests.unit.made_up_host import GIB, MadeUp, by_id

SUID = "/usr/libexec/apptainer/bin/starter-suid"
CONFIGURATION = "/etc/apptainer/apptainer.conf"
LIBRARIES = {
    "/etc/apptainer/nvliblist.conf": "# libraries\nlibcuda.so\nlibnvidia-ml.so\n",
    CONFIGURATION: "allow setuid = yes\n",
}
APPTAINER = {"apptainer": "apptainer version 1.3.4-1.el8\n", "ldconfig": "", "fuse2fs": "", "fuse-overlayfs": ""}


def apptainer(tmp_path, files=None, programs=None, setuid=(), closed=(), uid=1000):
    host = MadeUp(tmp_path, {**LIBRARIES, **(files or {})}, {**APPTAINER, **(programs or {})}, uid=uid)
    host.setuid |= set(setuid)
    host.closed |= set(closed)
    return by_id(judge_singularity(host))


def test_with_its_setuid_part_and_none(tmp_path):
    assert by_id(judge_singularity(MadeUp(tmp_path / "none")))["singularity"].status == "note"
    found = apptainer(tmp_path, setuid=[SUID])
    assert found["singularity"].seen == "apptainer version 1.3.4-1.el8, /usr/bin/apptainer"
    assert found["start"].seen == f"by the set-uid program {SUID}"
    assert {each.status for each in found.values()} == {"ok"}


@pytest.mark.parametrize(
    ("setting", "fix"),
    [
        ({"/proc/sys/user/max_user_namespaces": "0\n"}, "user.max_user_namespaces=15000"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "kernel.unprivileged_userns_clone=1"),
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "restrict_unprivileged_userns=0"),
    ],
)
def test_without_any_way_to_start(tmp_path, setting, fix):
    found = apptainer(tmp_path / "bare", setting)["start"]
    assert found.status == "fail"
    assert fix in found.fix
    forbidden = apptainer(tmp_path / "no", {**setting, CONFIGURATION: "allow setuid = no\n"}, setuid=[SUID])["start"]
    assert "`allow setuid = no`" in forbidden.why
    assert apptainer(tmp_path / "root", setting, uid=0)["start"].status != "fail"


def test_by_user_namespaces_it_needs_squashfuse_and_fuse(tmp_path):
    fuse = {"/dev/fuse": ""}
    assert apptainer(tmp_path / "all", fuse, {"squashfuse": ""})["mount"].status == "ok"
    assert "apt-get install squashfuse" in apptainer(tmp_path / "none", fuse)["mount"].fix
    assert "missing" in apptainer(tmp_path / "no-fuse", {}, {"squashfuse": ""})["mount"].seen
    assert "closed" in apptainer(tmp_path / "closed", fuse, {"squashfuse": ""}, closed=["/dev/fuse"])["mount"].seen
    old = {**fuse, "/proc/sys/kernel/osrelease": "3.10.0-1160.el7\n"}
    assert apptainer(tmp_path / "old", old, {"squashfuse": ""})["mount"].status == "warn"


@pytest.mark.parametrize(
    ("variables", "found", "fix"),
    [
        ({"SINGULARITYENV_PREPEND_PATH": "/sw/bin"}, "container-variables", "unset SINGULARITYENV_PREPEND_PATH"),
        ({"APPTAINERENV_PYTHONNOUSERSITE": ""}, "container-variables", "unset APPTAINERENV_PYTHONNOUSERSITE"),
        ({"APPTAINER_CLEANENV": "1"}, "container-switches", "unset APPTAINER_CLEANENV    in jobs"),
        ({"SINGULARITY_CONTAINALL": "1"}, "container-switches", "unset SINGULARITY_CONTAINALL    in jobs"),
        ({"APPTAINERENV_OMP_NUM_THREADS": "4", "APPTAINER_CLEANENV": "", "APPTAINER_CACHEDIR": "/x"}, "", ""),
    ],
)
def test_variables_that_every_container_gets(tmp_path, variables, found, fix):
    told = by_id(judge_singularity(MadeUp(tmp_path, LIBRARIES, APPTAINER, environment=variables)))
    asked = {name: each for name, each in told.items() if name.startswith("container-")}
    assert [(name, each.status, each.fix) for name, each in asked.items()] == ([(found, "warn", fix)] if found else [])


def test_what_nv_goes_by(tmp_path):
    without = {"/etc/apptainer/nvliblist.conf": "# libcuda.so\nlibnvidia-ml.so\n"}
    assert apptainer(tmp_path, without)["nv"].status == "fail"
    host = MadeUp(tmp_path / "gone", {CONFIGURATION: "mount home = no\n"}, APPTAINER)
    found = by_id(judge_singularity(host))
    assert found["nv"].seen == "/etc/apptainer/nvliblist.conf is missing"
    assert found["home"].status == "note"


def test_a_broken_installation_and_settings(tmp_path):
    broken = {"singularity": Done(127, "", "error while loading shared libraries: libseccomp.so.2\n")}
    assert "libseccomp" in by_id(judge_singularity(MadeUp(tmp_path, programs=broken)))["singularity"].why
    text = "# allow setuid = yes\nallow setuid = no\nmount home=yes\n"
    assert [setting(text, name, "x") for name in ("allow setuid", "mount home", "y")] == ["no", "yes", "x"]


# enroot

HOOKS = {"/etc/enroot/hooks.d/98-nvidia.sh": "", "/etc/enroot/hooks.d/50-slurm-pytorch.sh": ""}
ENROOT = {
    "enroot": "4.1.2\n",
    "nvidia-container-cli": "cli-version: 1.17.0\n",
    "unsquashfs": "unsquashfs version 4.5.1 (2022/03/17)\n",
}


def enroot(tmp_path, files=HOOKS, programs=ENROOT, has_gpu=True, **more):
    return by_id(judge_enroot(MadeUp(tmp_path, files, programs, **more), has_gpu))


def test_enroot_hooks(tmp_path):
    assert {each.status for each in enroot(tmp_path / "well").values()} == {"ok"}
    assert enroot(tmp_path / "none", {})["hook-nvidia"].status == "fail"
    assert enroot(tmp_path / "login", {}, has_gpu=False)["hook-nvidia"].status == "warn"
    assert "RANK" in enroot(tmp_path / "none", {})["hook-pytorch"].why
    without = enroot(tmp_path / "cli", programs={"enroot": "4.1.2"})["hook-nvidia"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in without.fix
    void = {**HOOKS, "/etc/enroot/enroot.conf": "NVIDIA_VISIBLE_DEVICES void\n"}
    for gpu, status in ((False, "ok"), (True, "fail")):
        told = enroot(tmp_path / f"void-{gpu}", void, {"enroot": "4.1.2"}, has_gpu=gpu)["hook-nvidia"]
        assert told.status == status
    assert enroot(tmp_path / "old", programs={**ENROOT, "enroot": "3.4.0"})["enroot"].status == "warn"


@pytest.mark.parametrize(("said", "status"), [("4.3 (2014/05/12)", "warn"), ("4.4 (2019/08/29)", "ok"), (None, "warn")])
def test_unsquashfs_reads_zstd(tmp_path, said, status):
    programs = {name: out for name, out in ENROOT.items() if name != "unsquashfs"}
    if said:
        programs["unsquashfs"] = f"unsquashfs version {said}\ncopyright …\n"
    found = enroot(tmp_path, programs=programs)["unsquashfs"]
    assert found.status == status
    assert ("--compression gzip" in found.fix) == (said is not None and status == "warn")


def test_enroot_folders(tmp_path):
    text = 'ENROOT_DATA_PATH   /run/enroot/$(id -u)/${USER}\nENROOT_CACHE_PATH "${HOME}/cache"\n# ENROOT_TEMP_PATH /x\n'
    files = {**HOOKS, "/etc/enroot/enroot.conf": text, "/proc/self/mounts": "tmpfs /run tmpfs rw 0 0\n"}
    found = enroot(tmp_path, files, rooms={"/run": Room(GIB, GIB)})["enroot-folders"]
    assert found.status == "warn"
    assert found.seen.startswith("ENROOT_DATA_PATH=/run/enroot/1000/alice: 1 GiB free, tmpfs")
    assert "it is memory" in found.why
    strange = {**HOOKS, "/etc/enroot/enroot.conf": "ENROOT_DATA_PATH $(somewhere)\n"}
    assert enroot(tmp_path / "strange", strange)["enroot-folders"].status == "note"


def test_credentials_twice_and_never_shown(tmp_path):
    text = "machine nvcr.io login $oauthtoken password hunter2\nmachine nvcr.io login me password hunter3\n"
    found = enroot(tmp_path, {**HOOKS, "/home/alice/.config/enroot/.credentials": text})["credentials"]
    assert found.status == "warn"
    assert "nvcr.io twice" in found.seen
    assert "hunter" not in " ".join(found)


# Slurm

SLURM = {
    "srun": {"--version": "slurm 22.05.8\n", "--help": "  --container-image=[USER@]…  pyxis\n"},
    "sinfo": "debug*|(null)|up\ndgx2|gpu:16|up\n",
}


def slurm(tmp_path, programs=SLURM, files=None, has_gpu=False, **variables):
    return by_id(judge_slurm(MadeUp(tmp_path, files, programs, environment=variables), has_gpu))


def test_slurm_and_pyxis(tmp_path):
    found = slurm(tmp_path)
    assert found["slurm"].seen == "slurm 22.05.8, partitions with GPUs: dgx2"
    assert found["pyxis"].status == "ok"
    assert "job" not in found
    silent = {**SLURM, "sinfo": Done(None, "", "")}
    assert "no word within 2 s" in slurm(tmp_path / "silent", silent)["slurm"].why
    broken = {"srun": Done(1, "", "srun: fatal: Could not establish a configuration source\n")}
    assert "configuration source" in slurm(tmp_path / "broken", broken)["slurm"].seen


@pytest.mark.parametrize(
    ("settings", "programs", "status"),
    [
        ("runtime_path=/scratch/pyxis", {}, "note"),
        ("use_squashfuse=1 container_scope=job", {}, "fail"),
        ("use_squashfuse=1", {"squashfuse": "0.5"}, None),
    ],
)
def test_how_pyxis_starts_a_squashfs(tmp_path, settings, programs, status):
    plugstack = {"/etc/slurm/plugstack.conf": f"# spank_pyxis.so old=1\nrequired /usr/lib/spank_pyxis.so {settings}\n"}
    found = slurm(tmp_path, {**SLURM, **programs}, plugstack)
    assert found["pyxis"].seen == "srun has --container-image: " + ", ".join(settings.split())
    assert (found["pyxis-squashfuse"].status if "pyxis-squashfuse" in found else None) == status


def test_pyxis_that_is_named_and_not_loaded(tmp_path):
    without = {**SLURM, "srun": {"--version": "slurm 22.05.8\n", "--help": "Usage: srun\n"}}
    plugstack = {"/etc/slurm/plugstack.conf.d/pyxis.conf": "required /usr/lib/spank_pyxis.so\n"}
    assert slurm(tmp_path, without, plugstack)["pyxis"].status == "fail"
    assert slurm(tmp_path / "none", without)["pyxis"].status == "note"


def test_a_job_that_asked_for_no_gpu(tmp_path):
    job = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "6"}
    assert slurm(tmp_path, has_gpu=True, **job)["job"].status == "warn"
    assert slurm(tmp_path, has_gpu=True, SLURM_JOB_GPUS="0,1", **job)["job"].seen == "job 7 with 6 cores, GPUs: 0,1"


# The report


def test_a_fault_of_the_doctors_own_is_a_finding(tmp_path, monkeypatch):
    def stumble(host):
        yield ok("first", "seen")
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(surveys, "judge_network", stumble)
    found = by_id(dict(survey(MadeUp(tmp_path)))["network"])
    assert found["doctor"].why == "ZeroDivisionError: oh"


def test_a_container_asks_for_runtimes_that_are_in_it_alone(tmp_path):
    report = survey(MadeUp(tmp_path / "host"))
    assert [area for area, _ in report] == ["GPU", "machine", "storage", "Apptainer", "enroot", "Slurm"]
    assert not any(finding.id == "doctor" for _, findings in report for finding in findings)
    areas = [area for area, _ in survey(MadeUp(tmp_path, {"/.dockerenv": ""}, {"srun": SLURM["srun"]}))]
    assert "Slurm" in areas
    assert "enroot" not in areas


@pytest.mark.parametrize(("files", "code"), [({}, 0), ({"/dev/shm": None}, 7)])
def test_the_command(tmp_path, files, code, monkeypatch, capsys):
    host = MadeUp(tmp_path)
    if "/dev/shm" in files:
        host.path("/dev/shm").rmdir()
    monkeypatch.setattr(command, "Host", lambda: host)
    assert command.main([]) == code
    assert capsys.readouterr().out.splitlines()[-1] == ("1 cannot work." if code else "No problem found.")
    assert command.main(["--json"]) == code
    told = json.loads(capsys.readouterr().out)["findings"]
    assert {"area", "id", "status", "seen", "why", "fix"} == set(told[0])


def test_wrong_usage_ends_with_2(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--imports", "--no-imports"])
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_the_page():
    report = [("GPU", [ok("a", "fine"), warn("b", "seen " * 30, "because", "do this")])]
    lines = list(page_lines(report, 80, colour=False))
    assert lines[:2] == ["GPU", "  ok    fine"]
    assert "        why: because" in lines
    assert "        fix: do this" in lines
    assert lines[-1] == "1 to look at."
    assert all(len(line) <= 80 for line in lines)
    assert not cannot_work(report)
    assert "\033[33mwarn" in "".join(page_lines(report, 80, colour=True))


def test_words():
    assert [size(count) for count in (0, 1023, 1 << 20, 1536 << 20)] == ["0 B", "1023 B", "1 MiB", "1.5 GiB"]
    texts = ("535.104.05", "v1.2-rc1", "3.10.0-1160.el7", "2.0.1+cu118", "x")
    assert [numbers(text) for text in texts] == [(535, 104, 5), (1, 2), (3, 10, 0), (2, 0, 1), ()]
