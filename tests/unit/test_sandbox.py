"""What of the sandbox needs no process; the rest is in tests/engines/test_sandbox_run.py."""

import errno
import functools
import json
import sys
from pathlib import Path

import pytest

from graphcrate.host import attach, gpu, namespaces, process, sandbox
from graphcrate.model.errors import HostError

REFUSED = sandbox.Failure("user", "unshare", errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(
    ("restrictions", "sysctl"),
    [
        ({"kernel.unprivileged_userns_clone": "0"}, "sysctl -w kernel.unprivileged_userns_clone=1"),
        ({"user.max_user_namespaces": "0"}, "sysctl -w user.max_user_namespaces=15000"),
        (
            {"user.max_user_namespaces": "9", "kernel.apparmor_restrict_unprivileged_userns": "1"},
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_the_setting_that_forbids_is_named(restrictions, sysctl):
    error = sandbox.explain([REFUSED], 1000, restrictions)
    assert sysctl in error.next_step
    assert "administrator" in error.next_step
    assert "ENGINE=docker" in error.next_step


@pytest.mark.parametrize(
    ("uid", "seccomp", "cause"),
    [
        (0, "2", "a seccomp filter forbids user namespaces, and it has no CAP_SYS_ADMIN"),
        (0, "0", "a security policy forbids user namespaces, and it has no CAP_SYS_ADMIN"),
        (1000, "2", "a seccomp filter forbids user namespaces ("),
    ],
)
def test_a_container_that_forbids_namespaces_is_named_with_what_allows_them(uid, seccomp, cause):
    settings = {"user.max_user_namespaces": "0" if uid == 0 else "9", sandbox.SECCOMP: seccomp}
    error = sandbox.explain([REFUSED], uid, settings)
    assert cause in error.cause
    assert "Operation not permitted" in error.cause
    assert "--cap-add SYS_ADMIN" in error.next_step
    assert "ENGINE=docker" in error.next_step


def test_used_up_namespaces_are_told_from_forbidden_ones():
    used_up = sandbox.Failure("user", "unshare", errno.ENOSPC, "No space left on device")
    assert "in use" in sandbox.explain([used_up], 1000, {"user.max_user_namespaces": "100"}).cause


@pytest.mark.parametrize(
    ("what", "settings"),
    [
        ("[Errno 1] Operation not permitted: '/cache/root/proc'", {sandbox.SECCOMP: "2"}),
        ('[Errno 2] No such file or directory: "the user namespace\'s maps"', {}),
    ],
)
def test_a_machine_where_proc_cannot_be_mounted_is_named(what, settings):
    error = sandbox.explain([sandbox.Failure("user", "mount", errno.EPERM, what)], 1000, settings)
    assert "lets nobody mount one" in error.cause
    assert "systempaths=unconfined" in error.next_step


def test_missing_working_folder_is_not_blamed_on_the_machine():
    failure = sandbox.Failure("user", "chdir", errno.ENOENT, "No such file or directory: '/nowhere'")
    error = sandbox.explain([failure], 1000, {"user.max_user_namespaces": "0"})
    assert "/nowhere" in error.what
    assert "namespaces" not in str(error)


def test_folder_that_is_no_root_file_system_is_refused(tmp_path: Path):
    with pytest.raises(HostError, match="is not a root file system"):
        sandbox.check(tmp_path, [])


def test_bind_of_nothing_is_refused(tmp_path: Path):
    (tmp_path / "proc").mkdir()
    with pytest.raises(HostError, match="does not exist"):
        sandbox.check(tmp_path, [sandbox.Bind(tmp_path / "absent", "/data")])


def test_without_network_the_image_knows_itself_alone():
    assert sandbox.network_files(network=False) == {
        "/etc/hosts": "127.0.0.1\tlocalhost graphcrate\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    }


def test_gpu_comes_as_devices_and_libraries():
    host = gpu.HostGpu(("/dev/nvidia0",), {"libcuda.so.1": "/l/libcuda.so.535"}, {"nvidia-smi": "/b/nvidia-smi"})
    assert sandbox.gpu_binds(host) == [
        sandbox.Bind(Path("/dev/nvidia0"), "/dev/nvidia0", read_only=False),
        sandbox.Bind(Path("/l/libcuda.so.535"), "/.graphcrate/nvidia/lib/libcuda.so.1"),
        sandbox.Bind(Path("/b/nvidia-smi"), "/usr/bin/nvidia-smi"),
    ]


def test_links_are_followed_inside_the_new_root_only(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (root / "real").mkdir(parents=True)
    (root / "absolute").symlink_to("/real")
    (root / "up").symlink_to("../../../outside")
    (root / "loop").symlink_to("loop")
    made = namespaces.Root(str(root))
    assert made.make_room("/absolute/deep/file", folder=False) == f"{root}/real/deep/file"
    assert (root / "real/deep/file").is_file()
    assert made.make_room("/up/x", folder=True) == f"{root}/outside/x"
    assert not (outside / "x").exists()
    with pytest.raises(OSError, match="loop"):
        made.make_room("/loop/x", folder=True)


@pytest.mark.parametrize("attached", [True, False])
def test_orders_and_reasons_go_through_a_file_and_stdin_stays_the_commands(monkeypatch, attached):
    seen = []

    def program(argv, *, descriptors, **captured):
        assert argv[-1] == str(descriptors[0])
        assert bool(captured) is not attached
        monkeypatch.setattr(sys, "argv", argv[-2:])
        code = namespaces.main()
        return code if attached else process.Completed(code, ())

    def attempt(kind, orders):
        seen.append(orders)
        return (125, {"kind": kind, "stage": "unshare", "errno": 1, "what": "no"}) if kind == "user" else (7, None)

    monkeypatch.setattr(attach if attached else process, "run", program)
    monkeypatch.setattr(namespaces, "attempt", attempt)
    monkeypatch.setattr(namespaces, "die_with", lambda parent: None)
    monkeypatch.setattr(namespaces.os, "umask", lambda mode: 0)
    orders = {"argv": ["sh"], "environment": {"NAME": "\N{SNOWMAN}" * 100_000}, "parent": 1}
    run = sandbox._attached if attached else functools.partial(process.run, on_line=None, timeout=None)
    done, failures = sandbox._try(orders, ["user"], run)
    assert (done, failures) == (None, [sandbox.Failure("user", "unshare", 1, "no")])
    done, failures = sandbox._try(orders, ["user", "mount"], run)
    assert (done, failures) == (process.Completed(7, ()), [])
    assert seen[-1] == json.loads(json.dumps({**orders, "kinds": ["user", "mount"]}))
