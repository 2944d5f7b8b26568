"""The sandbox's filter of calls, run by a small machine for classic BPF."""

import enum
import errno
import functools
import itertools
import struct
from pathlib import Path

import pytest

from nsbox import namespaces, seccomp
from nsbox.needs import CAPABILITIES, Needs
from nsbox.syscalls import ALLOWED, ASKED, IGNORED, MACHINES, REFUSED, TRACING, syscall_numbers


class Step(enum.Enum):
    """Needs such as graphcrate's."""

    INSTALL = Needs("dpkg", changes_root=True, ignored_owners=True, set_user_id=True)
    BUILD = Needs("compilers")
    SMOKE = Needs("tests", internet=True, tracing=True)
    RUN = Needs("a user's program", capabilities=tuple(CAPABILITIES), internet=True, tracing=True)


program = functools.cache(seccomp.program)
X86, ARM = "x86_64", "aarch64"
ALLOW, ASK = seccomp.RETURN_ALLOW, seccomp.RETURN_ASK
FILE, FIFO, DISK = 0o100644, 0o010644, 0o060666
CREATE, READ = 0o101, 0


def answer(step, call, *arguments, machine=X86, arch=None, kernel=(6, 1), asking=False):
    """Return what the kernel would do: ALLOW, ASK, or the number of an error."""
    code = program(step.value, machine, kernel, asking=asking)
    number = call if isinstance(call, int) else known(machine)[call]
    words = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number, arch or MACHINES[machine].audit, 0, *words)
    value, at = 0, 0
    while True:
        operation, yes, no, constant = struct.unpack_from("=HBBI", code, 8 * at)
        at += 1
        if operation == seccomp.LOAD:
            (value,) = struct.unpack_from("=I", data, constant)
        elif operation == seccomp.AND:
            value &= constant
        elif operation == seccomp.JUMP:
            at += constant
        elif operation == seccomp.RETURN:
            return constant if constant in (ALLOW, ASK) else constant & 0xFFFF
        else:
            tests = {seccomp.EQUAL: value == constant, seccomp.AT_LEAST: value >= constant}
            at += yes if tests.get(operation, bool(value & constant)) else no


@functools.cache
def known(machine):
    return {
        name: number
        for table in (ALLOWED, REFUSED, TRACING, ASKED)
        for name, number in syscall_numbers(table, MACHINES[machine]).items()
    }


def of_linux(machine):
    """Name → number by the kernel's own headers, of Linux 6.1."""
    text = Path(__file__).with_name("syscalls_of_linux.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    column = 1 + [X86, ARM].index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


#: calls of kernels after 6.1: both processors have one number for each since 5.1
LATER = {"fchmodat2": 452, "futex_wake": 454, "futex_wait": 455, "futex_requeue": 456, "mseal": 462}
#: calls that exist and that the sandbox has none of, on both processors: see `nsbox.syscalls`
NONE_OF = {
    *("clone3", "openat2", "memfd_secret", "io_pgetevents", "io_uring_enter", "io_uring_register", "io_uring_setup"),
    *("process_mrelease", "set_mempolicy_home_node"),
}


@pytest.mark.parametrize("machine", [X86, ARM])
def test_syscall_numbers_are_those_of_the_kernels_headers(machine):
    headers = of_linux(machine) | LATER
    assert known(machine) == {name: headers[name] for name in known(machine)}
    assert namespaces.SYS_PIVOT_ROOT[machine] == headers["pivot_root"]
    assert namespaces.SYS_SECCOMP[machine] == headers["seccomp"]


def test_syscalls_of_aarch64_are_judged_or_left_out_on_purpose():
    assert of_linux(ARM).keys() - known(ARM).keys() == NONE_OF


def test_filter_of_each_processor_refuses_the_other_ones_calls():
    for machine, other in ((X86, ARM), (ARM, X86)):
        number = known(machine)["read"]
        assert answer(Step.RUN, number, machine=machine) == ALLOW
        assert answer(Step.RUN, number, machine=machine, arch=MACHINES[other].audit) == errno.ENOSYS


@pytest.mark.parametrize("machine", [X86, ARM])
def test_syscall_is_in_one_table_with_a_unique_number(machine):
    tables = [syscall_numbers(table, MACHINES[machine]) for table in (ALLOWED, REFUSED, TRACING, ASKED)]
    assert sum(map(len, tables)) == len(known(machine)) == len(set(known(machine).values()))
    assert set(IGNORED.split()) <= set(known(X86))


@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize("step", Step)
def test_syscall_gets_its_tables_answer_and_unknown_ones_enosys(step, machine):
    ignored = set(IGNORED.split()) if step is Step.INSTALL else set()
    for name in syscall_numbers(ALLOWED, MACHINES[machine]):
        assert answer(step, name, machine=machine) == (0 if name in ignored else ALLOW), name
    for name in syscall_numbers(REFUSED, MACHINES[machine]):
        assert answer(step, name, machine=machine) == errno.EPERM, name
    for number in {*range(600), 0x40000000, 0x40000001, 0xFFFFFFFF} - set(known(machine).values()):
        assert answer(step, number, machine=machine) == errno.ENOSYS, number


def test_syscall_of_another_abi_is_enosys():
    i386, x32_write = 0x40000003, 0x40000001
    assert answer(Step.RUN, 4, arch=i386) == errno.ENOSYS
    assert answer(Step.RUN, x32_write) == errno.ENOSYS
    assert answer(Step.RUN, 1, arch=MACHINES[ARM].audit) == errno.ENOSYS
    assert seccomp.program(Step.RUN.value, "riscv64", (6, 1)) == b""


NEW_USER, THREAD = 0x10000000, 0x3D0F00
BY_ARGUMENTS = [
    ("clone", (THREAD,), ALLOW),
    ("clone", (NEW_USER | 17,), errno.EPERM),
    ("unshare", (0x200,), ALLOW),  # its own folder
    ("unshare", (NEW_USER,), errno.EPERM),
    ("unshare", (0x80,), errno.EPERM),  # time
    ("socket", (1, 1, 0), ALLOW),
    ("socket", (16, 3, 0), ALLOW),
    ("socket", (16, 3, 9), errno.EAFNOSUPPORT),  # audit
    ("socket", (17, 3, 0), errno.EAFNOSUPPORT),  # packets
    ("socket", (38, 5, 0), errno.EAFNOSUPPORT),  # the kernel's cryptography
    ("socket", (40, 1, 0), errno.EAFNOSUPPORT),  # the hypervisor
    ("socketpair", (1, 1, 0), ALLOW),
    ("socketpair", (2, 1, 0), errno.EAFNOSUPPORT),
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), errno.EPERM),
    ("ioctl", (0, 1 << 32 | 0x5412), errno.EPERM),  # the kernel reads 32 bits of it
    ("ioctl", (0, 0x541C), errno.EPERM),
    ("ioctl", (0, 0x541D), errno.EPERM),  # TIOCCONS: what the console says comes here
    ("ioctl", (0, 0x5423), errno.EPERM),  # TIOCSETD: line disciplines are the kernel's worst-kept code
    ("personality", (0xFFFFFFFF,), ALLOW),
    ("personality", (0x0040000,), errno.EPERM),
    ("open", (0, READ, 0o4755), ALLOW),  # no file is made: the mode is what was in the register
    ("open", (0, CREATE, 0o644), ALLOW),
    ("mknod", (0, FIFO), ALLOW),
    ("mknod", (0, FILE), ALLOW),
    ("mknod", (0, DISK), errno.EPERM),
    ("mknodat", (0, 0, 0o020666), errno.EPERM),
    ("mkdir", (0, 0o2755), ALLOW),  # the kernel leaves that bit out
    ("open", (0, READ, 0o2755), ALLOW),
]


@pytest.mark.parametrize(("call", "arguments", "expected"), BY_ARGUMENTS)
def test_syscall_arguments_decide_the_answer(call, arguments, expected):
    assert answer(Step.RUN, call, *arguments) == expected


#: call → its arguments for a mode
MAKING = {
    "open": lambda mode: (0, CREATE, mode),
    "openat": lambda mode: (0, 0, CREATE, mode),
    "creat": lambda mode: (0, mode),
    "mknod": lambda mode: (0, FILE | mode),
    "mknodat": lambda mode: (0, 0, FILE | mode),
}
SETTING = {
    "chmod": lambda mode: (0, mode),
    "fchmod": lambda mode: (0, mode),
    "fchmodat": lambda mode: (0, 0, mode),
    "fchmodat2": lambda mode: (0, 0, mode),
}
INSIDE = (Step.BUILD, Step.SMOKE, Step.RUN)


@pytest.mark.parametrize("mode", [0o4755, 0o4000, 0o6755, 0o2755, 0o2644])
@pytest.mark.parametrize("call", MAKING)
def test_file_with_setuid_or_setgid_is_made_in_the_install_step_only(call, mode):
    for step, asking in itertools.product(INSIDE, (False, True)):
        assert answer(step, call, *MAKING[call](mode), asking=asking) == errno.EPERM
    assert answer(Step.INSTALL, call, *MAKING[call](mode)) in (ALLOW, 0)


@pytest.mark.parametrize("machine", [X86, ARM])
@pytest.mark.parametrize("call", SETTING)
def test_chmod_to_setuid_is_refused_and_to_setgid_is_asked_for_outside_the_install_step(call, machine):
    """A filter does not see whether a path leads to a folder, which may hand its group on."""
    if call not in known(machine):
        return
    for step in INSIDE:
        ask = functools.partial(answer, step, call, machine=machine)
        for asking in (False, True):
            assert (
                ask(*SETTING[call](0o4755), asking=asking) == ask(*SETTING[call](0o6755), asking=asking) == errno.EPERM
            )
            assert ask(*SETTING[call](0o1777), asking=asking) == ALLOW
        assert ask(*SETTING[call](0o2755)) == errno.EPERM
        assert ask(*SETTING[call](0o2755), asking=True) == ASK
    for mode in (0o4755, 0o2755):
        assert answer(Step.INSTALL, call, *SETTING[call](mode), machine=machine) == ALLOW


def test_filter_asks_on_kernels_that_can_and_in_no_step_that_may_set_any_mode():
    assert program(Step.RUN.value, X86, (4, 18), asking=True) == b""
    assert program(Step.RUN.value, X86, (5, 0), asking=True) != b""
    assert program(Step.INSTALL.value, X86, (6, 1), asking=True) == b""
    assert {number for call in SETTING if (number := known(ARM).get(call))} == set(seccomp.asked(ARM))
    assert seccomp.asked(X86)[known(X86)["fchmodat2"]] == (0, 1, 2, 3)
    assert seccomp.asked("riscv64") == {}


def test_inet_sockets_and_ptrace_are_refused_in_the_build_step():
    for family in (2, 10):
        assert answer(Step.BUILD, "socket", family, 1, 0) == errno.EAFNOSUPPORT
        assert answer(Step.INSTALL, "socket", family, 1, 0) == errno.EAFNOSUPPORT
        assert answer(Step.SMOKE, "socket", family, 1, 0) == ALLOW
    for call in syscall_numbers(TRACING, MACHINES[X86]):
        assert answer(Step.BUILD, call) == errno.EPERM
        assert answer(Step.RUN, call) == ALLOW
        assert answer(Step.RUN, call, kernel=(4, 4)) == errno.EPERM  # there a tracer could change a call that passed


def test_chown_in_the_install_step_is_ignored_with_success():
    for call in IGNORED.split():
        assert answer(Step.INSTALL, call) == 0
        assert call.startswith("mknod") or answer(Step.RUN, call) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_has_the_machines_audit_number_and_the_program_inside_its_call_numbers(machine):
    code = program(Step.RUN.value, machine, (6, 1))
    assert struct.pack("=HBBI", seccomp.EQUAL, 1, 0, MACHINES[machine].audit) in code
    # The program that enters the box imports nothing of ours, so it has two numbers of its own.
    assert namespaces.SYS_SECCOMP[machine] == known(machine)["seccomp"]
    assert namespaces.SYS_PIVOT_ROOT[machine] == known(machine)["pivot_root"]
