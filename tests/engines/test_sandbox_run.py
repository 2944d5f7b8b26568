"""Real sandboxes around a small root file system, in each of the ways that there are."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.model.errors import BuildError
from graphcrate.model.plan import ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import write_layout
from nsbox import box
from nsbox.box import Bind
from nsbox.errors import Failure
from tests.engines import tiny
from tests.engines.workplace import call, running, until

ENVIRONMENT = {"PATH": "/usr/bin"}
PROGRAMS = (
    *("sh", "cat", "chmod", "cut", "env", "getent", "grep", "head", "hostname", "ls", "mkdir"),
    *("rm", "setsid", "sleep", "sort", "tail", "touch", "wc"),
)
pytestmark = pytest.mark.engine("sh", "ldd", "user namespaces")


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A root file system of a few of the host's programs and the libraries that they are linked to."""
    root = tmp_path_factory.mktemp("template")
    for name in ("etc", "proc", "dev", "opt/deep", "work"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for place, path in tiny.programs(*PROGRAMS).items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / place)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files\n")
    (root / "opt/keep").write_text("kept\n")
    (root / "link").symlink_to("/opt/deep")
    return root


@pytest.fixture
def rootfs(template, tmp_path: Path):
    """A copy of it; `tmp_path` is closed to other users, as a home folder is."""
    return Path(shutil.copytree(template, tmp_path / "rootfs", symlinks=True))


@pytest.fixture(params=["user", "mount"])
def kind(request, monkeypatch):
    """Each way in turn, as if the others were forbidden."""
    if request.param != "user" and os.geteuid() != 0:
        pytest.skip("needs root")
    real = box.start_one

    def only(orders, run):
        if request.param != orders["kind"]:
            return None, Failure("unshare", 1, "forbidden by the test")
        return real(orders, run)

    monkeypatch.setattr(box, "start_one", only)
    return request.param


def shell(rootfs, script, **options):
    return run_in(rootfs, Exec(["sh", "-c", script], ENVIRONMENT, **options))


def snapshot(folder: Path):
    return {str(path): path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_exit_codes_lines_folders_and_nothing_of_the_hosts_environment(rootfs, kind):
    seen = []
    done = shell(rootfs, "echo out; echo err >&2; env | sort; exit 7", on_line=seen.append)
    assert done.returncode == 7
    assert done.lines[:2] == ("out", "err")
    assert set(done.lines[2:]) == {"HOME=/tmp/home", "PATH=/usr/bin", "PWD=/"}
    assert tuple(seen) == done.lines
    assert shell(rootfs, "kill -SEGV $$").returncode == 128 + signal.SIGSEGV
    done = run_in(rootfs, Exec(["no-such-program"], {**ENVIRONMENT, "LARGE": "\N{SNOWMAN}" * 30_000}))
    assert done.returncode == 127
    assert "no-such-program: cannot be run in the image" in done.lines[-1]
    script = "cd && pwd && touch a /tmp/b /dev/shm/c && echo x >/dev/null && head -c4 /dev/zero | wc -c"
    done = shell(rootfs, f"{script} && grep -c processor /proc/cpuinfo")
    assert (done.returncode, done.lines[:2]) == (0, ("/tmp/home", "4"))


def test_the_root_file_system_stays_as_it_is(rootfs, kind):
    before = snapshot(rootfs)
    script = "for place in / /etc /opt /opt/deep /usr; do touch $place/new && echo written; done; echo x >/opt/keep"
    done = shell(rootfs, f"{script}; rm -f /opt/keep; cat /opt/keep; mkdir /etc/passwd.d")
    assert snapshot(rootfs) == before
    assert "written" not in done.lines
    assert "kept" in done.lines


@pytest.mark.parametrize("step", Step)
def test_a_step_has_the_capabilities_of_its_row_and_gains_none(rootfs, kind, step):
    """Those of `run`: chown, dac_override, fowner, fsetid, kill, setgid, setuid."""
    lines = shell(rootfs, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status", step=step).lines
    told = {name: int(value, 16) for name, value in (line.split(":\t") for line in lines)}
    had = 0xFB if step is Step.RUN else 0
    assert (told["NoNewPrivs"], told["Seccomp"]) == (1, 2)
    assert {told[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {had}
    assert (told["CapInh"], told["CapAmb"]) == (0, 0)


def test_binds_where_the_image_has_nothing_something_or_a_link(rootfs, kind, tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "inside").write_text("folder's\n")
    file.write_text("file's\n")
    targets = ("/work", "/a/b/c", "/link/below", "/opt/deep")
    binds = [Bind(folder, target) for target in targets] + [Bind(file, "/etc/some/file"), Bind(file, "/opt/keep")]
    script = "cat /work/inside /a/b/c/inside /opt/deep/inside /etc/some/file /opt/keep; touch /work/new && echo written"
    before = snapshot(rootfs)
    done = shell(rootfs, script, binds=binds)
    assert done.lines[:5] == ("folder's",) * 3 + ("file's",) * 2
    assert "written" not in done.lines
    assert snapshot(rootfs) == before
    done = shell(rootfs, "echo result >new && pwd", cwd="/work", binds=[Bind(folder, "/work", read_only=False)])
    assert done.lines == ("/work",)
    assert (folder / "new").read_text() == "result\n"
    assert (folder / "new").stat().st_uid == os.geteuid()


def test_a_folder_bound_over_another_and_what_is_mounted_below_a_read_only_one(rootfs, kind, tmp_path):
    for name in ("etc", "data"):
        (tmp_path / name).mkdir()
    binds = [Bind(tmp_path / "etc", "/etc", read_only=False), Bind(tmp_path / "data", "/data")]
    done = shell(rootfs, "touch /etc/new; touch /data/new || echo refused", binds=binds)
    assert done.lines[-1] == "refused"
    assert (tmp_path / "etc/new").exists()
    if os.geteuid() == 0:
        program = "mkdir -p {0}/below && mount -t tmpfs none {0}/below && exec {1} -c {2}"
        code = f"""from pathlib import Path
from graphcrate.host.sandbox.sandbox import Exec, run_in
from nsbox.box import Bind
print(run_in(Path({str(rootfs)!r}), Exec(["sh", "-c", "touch /data/below/new || echo refused"], {ENVIRONMENT!r},
             [Bind(Path({str(tmp_path / "data")!r}), "/data")])).lines[-1])"""
        command = program.format(tmp_path / "data", sys.executable, shlex.quote(code))
        assert call("unshare", "--mount", "sh", "-c", command, environment={**os.environ}) == "refused\n"


@pytest.mark.parametrize("step", [Step.BUILD, Step.SMOKE, Step.RUN])
def test_a_folder_of_a_group_s_disk_keeps_its_bit_and_no_file_gets_it(rootfs, kind, step, tmp_path):
    (folder := tmp_path / "group").mkdir()
    folder.chmod(0o2775)
    script = (
        "mkdir below closed && chmod 755 below && chmod 2700 closed && touch file && chmod g+s file || echo refused"
    )
    done = shell(rootfs, script, cwd="/work", binds=[Bind(folder, "/work", read_only=False)], step=step)
    assert done.lines[-1] == "refused"
    modes = {path.name: path.stat().st_mode & 0o7777 for path in folder.iterdir()}
    assert modes == {"below": 0o2755, "closed": 0o2700, "file": 0o644}


def test_what_started_the_command_cannot_be_written_through_its_link(rootfs, kind):
    """CVE-2019-5736: a command that is a link to the program that starts it."""
    done = run_in(rootfs, Exec(["/proc/self/exe", "-c", ""], ENVIRONMENT))
    assert done.returncode != 125
    for name in ("exe", "mem", "root", "fd/0"):
        assert "Permission denied" in "".join(shell(rootfs, f"ls -lL /proc/1/{name}/; head -c1 /proc/1/{name}").lines)


def test_the_machine_s_settings_are_read_only(rootfs, kind):
    """As root they are the host's, in any namespace."""
    network = [{"network": True}, {}]
    places = "/proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/irq /sys/kernel"
    script = f"for place in {places}; do test -w $place && echo open; done; cat /proc/keys /proc/kallsyms | wc -c"
    for step in (Step.RUN, Step.SMOKE, Step.BUILD):
        for more in network:
            assert shell(rootfs, script, step=step, **more).lines == ("0",)


def test_neither_network_nor_processes_of_the_host_but_a_working_loopback(rootfs):
    devices = "cut -d: -f1 /proc/net/dev | tail -n +3; cat /sys/class/net/lo/flags; getent hosts $(hostname)"
    device, flags, name, processes = shell(rootfs, f"{devices}; ls -d /proc/[0-9]* | wc -l").lines
    assert device.strip() == "lo"
    assert int(flags, 16) & 1  # IFF_UP
    assert name.split()[0] in ("127.0.0.1", "::1")
    assert processes in ("2", "3", "4")


def test_nobody_survives_the_command_or_its_timeout(rootfs):
    marker = f"1000{os.getpid() % 100_000:05d}"
    assert shell(rootfs, f"setsid sleep {marker} & exit 0").returncode == 0
    assert not running("sleep", marker)
    with pytest.raises(BuildError, match="did not finish"):
        shell(rootfs, f"setsid sleep {marker} & sleep {marker}", timeout=1)
    until(lambda: not running("sleep", marker), 10)


def test_nobody_and_no_mount_survives_kill_9(rootfs, project):
    marker = f"3000{os.getpid() % 100_000:05d}"
    program = (
        f"from pathlib import Path; from graphcrate.host.sandbox.sandbox import Exec, run_in; "
        f"run_in(Path({str(rootfs)!r}), Exec(['sleep', '{marker}'], {ENVIRONMENT!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=project) as runner:
        until(lambda: running("sleep", marker), 10)
        runner.kill()
    until(lambda: not running("sleep", marker), 10)
    assert str(rootfs) not in Path("/proc/self/mounts").read_text()


def test_an_attached_command_has_this_process_s_streams(rootfs, project, kind):
    marker = f"6000{os.getpid() % 100_000:05d}"
    command = ["sh", "-c", f"cat; echo complaint >&2; sleep {marker} >/dev/null 2>&1 & exit 7"]
    program = (
        f"from pathlib import Path; from graphcrate.host.sandbox import sandbox; from nsbox import box; "
        f"real = box.start_one; "
        f"box.start_one = lambda orders, run: real(orders, run) if {kind!r} == orders['kind'] else "
        f"(None, box.Failure('unshare', 1, 'forbidden by the test')); "
        f"print(sandbox.run_in(Path({str(rootfs)!r}), sandbox.Exec({command!r}, {ENVIRONMENT!r}, attached=True)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=project,
        input="a line\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "a line\nCompleted(returncode=7, lines=())\n"
    assert done.stderr == "complaint\n"
    until(lambda: not running("sleep", marker), 10)


def test_the_command_run_has_the_folder_at_work_and_ends_as_the_command_does(tmp_path, project):
    with contextlib.closing(Cache(tmp_path / "made")) as cache:
        image = make_image(tiny.base(cache).layers, ConfigStep(environment={}, labels={}, command=("sh",)), 0)
        write_layout(tmp_path / "oci", image, cache.blob, "1.0")
    (tmp_path / "note").write_text("from here\n")
    environment = {**os.environ, "GRAPHCRATE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(project)}
    inside = ("sh", "-c", "cat /work/note; cp note new; exit 7")
    command = (sys.executable, "-m", "graphcrate.cli.main", "run", "oci", "--", *inside)
    assert call(*command, folder=tmp_path, environment=environment, code=7) == "from here\n"
    assert (tmp_path / "new").read_text() == "from here\n"
