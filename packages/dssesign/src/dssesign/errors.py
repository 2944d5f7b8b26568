"""The faults of keys, as values, and what reading any other document raises."""

import binascii
from enum import StrEnum

import msgspec

#: what is no document of its kind raises one of these: text that is no UTF-8, brackets within brackets without end and
#: damaged base64, too
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error)


class KeyFault(StrEnum):
    """A reason why a key cannot be used."""

    PASSWORD = "it does not open with this password"
    FORM = "it is damaged, of another kind, or locked as no cosign does it"


class UnusableKeyError(Exception):
    """A key that cannot be used, for this fault."""

    def __init__(self, fault: KeyFault) -> None:
        super().__init__(fault)
        self.fault = fault
