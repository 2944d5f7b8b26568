"""Names that lead to no GPU: the faults, and the error that holds one with its facts."""

from enum import StrEnum


class NameFault(StrEnum):
    """A reason why a name or a list leads to no GPU."""

    FOREIGN = "another maker's"
    UNKNOWN = "unknown"
    SEVERAL = "a generation of several architectures"
    SLICE = "a slice of a GPU"
    NONE = "a list without a name"
    LONG = "too long for a list"


class GpuNameError(ValueError):
    """A name that leads to no GPU. `name`: this one, of a list.

    `maker`: what another maker's is ("a GPU of AMD's"); `instead`: what to take for that, or empty; `near`: models with
    similar names; `architectures`: those of a generation ("sm_80").
    """

    def __init__(
        self,
        fault: NameFault,
        what: str,
        *,
        name: str,
        maker: str = "",
        instead: str = "",
        near: tuple[str, ...] = (),
        architectures: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what)
        self.fault, self.what, self.name = fault, what, name
        self.maker, self.instead, self.near, self.architectures = maker, instead, near, architectures
