"""Additions of graphcrate to nsbox: GPUs, networks, steps and words; more is in tests/engines/test_sandbox_run.py."""

from pathlib import Path

import pytest

from graphcrate.host import process
from graphcrate.host.sandbox import gpu, sandbox
from graphcrate.host.sandbox.steps import Step
from graphcrate.model.errors import HostError
from nsbox import box
from nsbox.box import Bind
from nsbox.errors import NotIsolatedError, WorkingFolderError
from tests.made import refused


def test_machine_without_isolation_is_an_error_that_names_engines():
    refusal = NotIsolatedError("nothing can be isolated", cause="It is 0.", next_step="sysctl -w a=1")
    with refused(HostError, "no command can be run inside the image", "It is 0.", "sysctl -w a=1", "ENGINE=docker"):
        raise sandbox.explain(refusal)
    with refused(HostError, "cannot be entered", "cd /tmp"):
        raise sandbox.explain(WorkingFolderError("it cannot be entered", next_step="cd /tmp"))


def test_folder_without_a_root_and_bind_of_nothing_are_refused(tmp_path):
    with refused(HostError, "is not a root file system", "bases"):
        sandbox.run_in(tmp_path, sandbox.Exec(["true"]))
    with refused(HostError, "does not exist"):
        sandbox.check(tmp_path, [Bind(tmp_path / "absent", "/data")])


def test_steps_that_change_the_root_or_have_capabilities():
    assert [step for step in Step if step.value.changes_root or step.value.ignored_owners] == [Step.INSTALL]
    assert [step for step in Step if step.value.capabilities] == [Step.RUN]


def test_sandbox_without_network_has_localhost_in_hosts_only():
    assert sandbox.network_files(network=False) == {
        "/etc/hosts": "127.0.0.1\tlocalhost graphcrate\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    }


def test_gpu_binds_are_devices_libraries_and_programs():
    host = gpu.HostGpu(("/dev/nvidia0",), {"libcuda.so.1": "/l/libcuda.so.535"}, {"nvidia-smi": "/b/nvidia-smi"})
    assert sandbox.gpu_binds(host) == [
        Bind(Path("/dev/nvidia0"), "/dev/nvidia0", read_only=False),
        Bind(Path("/l/libcuda.so.535"), "/.graphcrate/nvidia/lib/libcuda.so.1"),
        Bind(Path("/b/nvidia-smi"), "/usr/bin/nvidia-smi"),
    ]


@pytest.fixture
def ordered(tmp_path, monkeypatch):
    """The orders of a command's process, by options of `Exec`."""
    (tmp_path / "proc").mkdir()

    def orders(**options):
        told = []
        monkeypatch.setattr(
            box, "start_one", lambda orders, start: (told.append(orders), (process.Completed(0, ()), None))[1]
        )
        sandbox.run_in(tmp_path, sandbox.Exec(["true"], **options))
        return told[0]

    return orders


def test_sandbox_command_gets_gpus_only_on_request(ordered, tmp_path, monkeypatch):
    places = [tmp_path / name for name in ("nvidia0", "libcuda.so.535", "nvidia-smi")]
    for path in places:
        path.touch()
    device, library, program = map(str, places)
    host = gpu.HostGpu((device,), {"libcuda.so.1": library}, {"nvidia-smi": program})
    monkeypatch.setattr(gpu, "detect", lambda: host)
    told = ordered(gpu=True)
    assert {(source, read_only) for source, _, read_only in told["binds"]} == {
        (device, False),
        (library, True),
        (program, True),
    }
    assert gpu.LIBRARIES + "/lib" in f"{told['environment']['LD_LIBRARY_PATH']}/lib"
    without = ordered()
    assert (without["binds"], "LD_LIBRARY_PATH" in without["environment"]) == ([], False)


def test_sandbox_with_network_gets_hosts_and_resolv_conf(ordered):
    shared = [Path(name) for name in ("/etc/hosts", "/etc/resolv.conf")]
    files = ordered(network=True)["files"]
    for path in shared:
        if path.is_file():
            assert files[str(path)] == path.read_text(errors="replace")
    assert "localhost" in ordered()["files"]["/etc/hosts"]
    assert "/etc/resolv.conf" not in ordered()["files"]
    assert ordered(step=Step.INSTALL, network=True)["files"] == {}, "a tree in the making keeps its own"
