"""Steps that run in the sandbox, and the needs of each: a closed set."""

import enum
from typing import NamedTuple

#: numbers of the capabilities that any step has (include/uapi/linux/capability.h)
CAPABILITIES = {"chown": 0, "dac_override": 1, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6, "setuid": 7}


class Needs(NamedTuple):
    """A step's needs. All else is closed to it."""

    who: str  #: in words
    capabilities: tuple[str, ...] = ()
    internet: bool = False  #: sockets of TCP and UDP; where to, says the network namespace
    tracing: bool = False  #: may reach into its own other processes
    changes_root: bool = False  #: writes the root file system itself
    ignored_owners: bool = False  #: calls that change owners succeed and do nothing
    set_user_id: bool = False  #: may make files set-user-ID


class Step(enum.Enum):
    """A step and its needs."""

    #: One owner, whose files all of them are: what scripts ask for beyond is noted and ignored.
    INSTALL = Needs(
        "dpkg and the packages' maintainer scripts", changes_root=True, ignored_owners=True, set_user_id=True
    )
    BUILD = Needs("sdists, compilers, toolkits, bytecode, questions to a base's Python")
    #: torch.distributed talks to itself over loopback, CUDA memory goes from process to process.
    SMOKE = Needs("smoke tests and imports of what was compiled", internet=True, tracing=True)
    #: Of what Docker gives, all but net_raw, net_bind_service, mknod, audit_write, setfcap, setpcap and sys_chroot.
    RUN = Needs("the command `run`", capabilities=tuple(CAPABILITIES), internet=True, tracing=True)
