"""Needs of a program in a box: all else is closed to it."""

from typing import NamedTuple

#: numbers of the capabilities that a program may have (include/uapi/linux/capability.h)
CAPABILITIES = {"chown": 0, "dac_override": 1, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6, "setuid": 7}


class Needs(NamedTuple):
    """The rights of a program in a box beyond computing, and reading and writing its own files."""

    who: str  #: in words
    capabilities: tuple[str, ...] = ()
    internet: bool = False  #: sockets of TCP and UDP; where to, says the network namespace
    tracing: bool = False  #: may reach into its own other processes
    changes_root: bool = False  #: writes the root file system itself
    ignored_owners: bool = False  #: calls that change owners succeed and do nothing
    set_user_id: bool = False  #: may make files set-user-ID
