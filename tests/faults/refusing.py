"""A program that runs another one whose system calls fail as on a file server: python -m tests.faults.refusing A,B …

A seccomp filter answers them, which children inherit: classic BPF, seccomp(2). For root, who needs no `no_new_privs`
(with it the programs that map subordinate ids would not work).
"""

import ctypes
import errno
import os
import struct
import sys

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARGUMENTS = 0, 16  #: offsets in struct seccomp_data
_SET_SECCOMP, _FILTER = 22, 2
_TMPFILE = 0o20000000  #: the bit of O_TMPFILE that is not O_DIRECTORY
#: x86-64: number, what one argument must be (argument, test, value; None: anything), error
_CALLS = {
    "tmpfile": (257, (2, _JUMP_SET, _TMPFILE), errno.EOPNOTSUPP),  # openat
    "range": (326, None, errno.EXDEV),  # copy_file_range
    "allocate": (285, None, errno.EOPNOTSUPP),  # fallocate
    "flock": (73, None, errno.ENOLCK),
    "sync": (74, None, errno.ESTALE),  # fsync
    "quota": (74, None, errno.EDQUOT),  # fsync: NFS tells only then
    "broken": (74, None, errno.EIO),  # fsync
    "rename": (82, None, errno.ESTALE),
    "create": (257, (2, _JUMP_SET, os.O_CREAT), errno.EDQUOT),  # openat
    "folder": (83, None, errno.EDQUOT),  # mkdir
    "write": (1, (0, _JUMP_ABOVE, 3), errno.EDQUOT),  # not to the standard streams
}
#: what NFS version 3 and 4 lack
NFS = ("tmpfile", "range", "allocate")


def program(names):
    """The filter: for each call a test of its number, one of its argument, and the error."""
    code = []
    for number, where, error in (_CALLS[name] for name in names):
        code.append((_LOAD, 0, 0, _NUMBER))
        if where is None:
            code += [(_JUMP_EQUAL, 0, 1, number)]
        else:
            argument, test, value = where
            code += [(_JUMP_EQUAL, 0, 3, number), (_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (test, 0, 1, value)]
        code.append((_RETURN, 0, 0, _ERRNO | error))
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def main(names, *command):
    code = b"".join(struct.pack("HBBI", *line) for line in program(names.split(",")))
    text = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(filter_, len(filter_))):
        sys.exit(f"refusing: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
