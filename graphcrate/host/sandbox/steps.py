"""Steps that run in the sandbox, and the needs of each: a closed set."""

import enum

from nsbox.needs import CAPABILITIES, Needs


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
