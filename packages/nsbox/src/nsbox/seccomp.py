"""The filter of calls that the kernel applies to a step: which calls exist inside, written as a program of classic BPF.

Pure: from a step's needs to bytes; `namespaces` hands them to the kernel. An allow-list, see
`syscalls`."""

import errno
import struct
from collections.abc import Callable, Iterable, Sequence

from nsbox.needs import Needs
from nsbox.syscalls import ALLOWED, ASKED, IGNORED, MACHINES, REFUSED, TRACING, Machine, syscall_numbers

#: the first kernel whose filters see what a tracer makes of a call
SAFE_TRACING = (4, 8)
#: CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. The first is a signal's bit in clone(2).
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
NEW_TIME = 0x80
#: what types at a terminal for its owner, takes it, its console or its line discipline:
#: TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD
TERMINAL = (0x5412, 0x541C, 0x541D, 0x5423)
#: Linux, its 32-bit form, each with old release numbers, and "which is it?"
PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
O_CREAT, O_TMPFILE = 0x40, 0x400000
S_ISUID, S_ISGID, S_IFMT, S_IFCHR, S_IFBLK = 0o4000, 0o2000, 0o170000, 0o020000, 0o060000
#: the first kernel whose filters can have another process answer a call (seccomp_unotify(2))
ASKING = (5, 0)
#: calls that set a mode of what is there: the arguments with descriptor, path, mode and flags (-1: none)
SET_MODE = {
    "chmod": (-1, 0, 1, -1),
    "fchmod": (0, -1, 1, -1),
    "fchmodat": (0, 1, 2, -1),
    "fchmodat2": (0, 1, 2, 3),
}
LONGEST_JUMP = 255

#: code, jump if true, jump if not, constant
Rule = tuple[int, int, int, int]
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, JUMP, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x05, 0x06
RETURN_ALLOW, RETURN_ERRNO, RETURN_ASK = 0x7FFF0000, 0x00050000, 0x7FC00000


def program(needs: Needs, machine: str, kernel: tuple[int, ...], *, asking: bool = False) -> bytes:
    """The filter for a step on this machine, as uname(1) names it, and kernel ((5, 10)). Empty for an unknown one.

    `asking`: calls that `asked` names are left to the process that started the step; else they are refused. Empty
    where the kernel cannot, or where the step has none.
    """
    row = MACHINES.get(machine)
    if row is None or (asking and (kernel < ASKING or needs.set_user_id)):
        return b""
    answers = _answers(needs, row, kernel, asking)
    rules = [
        (LOAD, 0, 0, 4),  # the architecture: i386's calls have other numbers
        (EQUAL, 1, 0, row.audit),
        _refuse(errno.ENOSYS),
        (LOAD, 0, 0, 0),  # the call's number
        *_tree(_ranges(answers)),
    ]
    return b"".join(struct.pack("=HBBI", *rule) for rule in rules)


def asked(machine: str) -> dict[int, tuple[int, ...]]:
    """Number of each call of `SET_MODE` that this machine has → its arguments."""
    numbers = syscall_numbers(ASKED, MACHINES[machine]) if machine in MACHINES else {}
    return {numbers[name]: arguments for name, arguments in SET_MODE.items() if name in numbers}


def _answers(needs: Needs, machine: Machine, kernel: tuple[int, ...], asking: bool) -> dict[int, tuple[Rule, ...]]:
    """Number of a call → what is done about it."""
    tracing = needs.tracing and kernel >= SAFE_TRACING
    alike = {
        ALLOWED: _allow(),
        REFUSED: _refuse(errno.EPERM),
        TRACING: _allow() if tracing else _refuse(errno.EPERM),
    }
    answers: dict[str, Sequence[Rule]] = {
        name: [rule] for table, rule in alike.items() for name in syscall_numbers(table, machine)
    }
    answers |= {name: answer(needs) for name, answer in _BY_ARGUMENTS.items()}
    if not needs.set_user_id:
        answers |= {name: _setting(mode, asking) for name, (_, _, mode, _) in SET_MODE.items()}
    if needs.ignored_owners:
        answers |= {name: [_refuse(0)] for name in IGNORED.split()}
    tables = [syscall_numbers(table, machine) for table in (ALLOWED, REFUSED, TRACING, ASKED)]
    return {number: tuple(answers[name]) for table in tables for name, number in table.items()}


def _allow() -> Rule:
    return (RETURN, 0, 0, RETURN_ALLOW)


def _refuse(number: int) -> Rule:
    return (RETURN, 0, 0, RETURN_ERRNO | number)


def _argument(index: int) -> Rule:
    """Load the lower half of an argument: all of those here are 32 bits wide for the kernel, too."""
    return (LOAD, 0, 0, 16 + 8 * index)


def _refused_values(index: int, values: Iterable[int]) -> list[Rule]:
    tests = [(EQUAL, 0, 1, value) for value in values]
    rules = [_argument(index)]
    for test in tests:
        rules += [test, _refuse(errno.EPERM)]
    return [*rules, _allow()]


def _only_values(index: int, values: Iterable[int], number: int, then: Sequence[Rule] = ()) -> list[Rule]:
    """Go on with `then` for one of the values; an error for others."""
    values = list(values)
    tests: list[Rule] = [(EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [_argument(index), *tests, _refuse(number), *(then or [_allow()])]


def _without_bits(index: int, bits: int, then: Sequence[Rule] = ()) -> list[Rule]:
    return [_argument(index), (ANY_BIT, 0, 1, bits), _refuse(errno.EPERM), *(then or [_allow()])]


def _mode(index: int) -> Callable[[Needs], list[Rule]]:
    """No set-user-ID and no set-group-ID file: one that root left in a folder of the host would make its finder root.

    A new folder's mode has neither: the kernel takes the second from the folder above (mkdir(2)).
    """
    return lambda needs: [_allow()] if needs.set_user_id else _without_bits(index, S_ISUID | S_ISGID)


def _setting(index: int, asking: bool) -> list[Rule]:
    """The mode of something that may be a folder, which no filter sees: those of a group's disk have set-group-ID."""
    answer = (RETURN, 0, 0, RETURN_ASK) if asking else _refuse(errno.EPERM)
    return _without_bits(index, S_ISUID, [(ANY_BIT, 0, 1, S_ISGID), answer, _allow()])


def _opening(flags: int) -> Callable[[Needs], list[Rule]]:
    """The mode behind the flags counts only where a file is made."""

    def answer(needs: Needs) -> list[Rule]:
        return [_argument(flags), (ANY_BIT, 1, 0, O_CREAT | O_TMPFILE), _allow(), *_mode(flags + 1)(needs)]

    return answer


def _node(index: int) -> Callable[[Needs], list[Rule]]:
    """FIFOs, sockets and files, but no devices."""

    def answer(needs: Needs) -> list[Rule]:
        kind: list[Rule] = [_argument(index), (AND, 0, 0, S_IFMT)]
        for device in (S_IFCHR, S_IFBLK):
            kind += [(EQUAL, 0, 1, device), _refuse(errno.EPERM)]
        return [*kind, *_mode(index)(needs)]

    return answer


def _sockets(needs: Needs) -> list[Rule]:
    """Of netlink only what lists the interfaces (getifaddrs)."""
    routes: list[Rule] = [
        (EQUAL, 1, 0, AF_NETLINK),
        _allow(),
        *_only_values(2, [NETLINK_ROUTE], errno.EAFNOSUPPORT),
    ]
    families = [AF_UNIX, *((AF_INET, AF_INET6) if needs.internet else ()), AF_NETLINK]
    return _only_values(0, families, errno.EAFNOSUPPORT, routes)


_BY_ARGUMENTS: dict[str, Callable[[Needs], list[Rule]]] = {
    "clone": lambda _: _without_bits(0, NAMESPACES),
    "unshare": lambda _: _without_bits(0, NAMESPACES | NEW_TIME),
    "socket": _sockets,
    "socketpair": lambda _: _only_values(0, [AF_UNIX], errno.EAFNOSUPPORT),
    "ioctl": lambda _: _refused_values(1, TERMINAL),
    "personality": lambda _: _only_values(0, PERSONALITIES, errno.EPERM),
    "open": _opening(1),
    "openat": _opening(2),
    "creat": _mode(1),
    **dict.fromkeys(SET_MODE, lambda _: [_allow()]),  # of a step that may set any; see `_answers`
    "mknod": _node(1),
    "mknodat": _node(2),
}


def _ranges(answers: dict[int, tuple[Rule, ...]]) -> list[tuple[int, tuple[Rule, ...]]]:
    """First number of each run of calls with the same answer, in order; calls that are in no table do not exist."""
    absent = (_refuse(errno.ENOSYS),)
    ranges = [(0, answers.get(0, absent))]
    for number in range(1, max(answers) + 2):
        if (answer := answers.get(number, absent)) != ranges[-1][1]:
            ranges.append((number, answer))
    return ranges  # the last one reaches to the end: x32's numbers, 0x40000000 and above, too


def _tree(ranges: Sequence[tuple[int, tuple[Rule, ...]]]) -> list[Rule]:
    """Search by halves: some eight comparisons for any call."""
    if len(ranges) == 1:
        return list(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _tree(ranges[:middle]), _tree(ranges[middle:])
    first = ranges[middle][0]
    if len(below) <= LONGEST_JUMP:
        return [(AT_LEAST, len(below), 0, first), *below, *above]
    return [(AT_LEAST, 0, 1, first), (JUMP, 0, 0, len(below)), *below, *above]
