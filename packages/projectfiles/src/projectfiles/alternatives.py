"""One PEP 440 specifier for versions of which any will do: `1.10.*` or `1.11.*` is `>=1.10,<1.12`. Pure.

Conda (`|`) and Poetry (`||`) have alternatives, and requirements of the package index have none. Releases between two
of them are excluded release by release (`!=2.0.*`), where that ends.
"""

import functools
import operator
import re
from collections.abc import Iterable

from packaging.ranges import VersionRange
from packaging.specifiers import Specifier, SpecifierSet

_FINAL = re.compile(r"\d+(\.\d+)*")


def any_of(specifiers: Iterable[str]) -> str | None:
    """Return the specifier that takes the final releases that one of these takes; None where PEP 440 has none.

    A single one comes back as it was written. Raise InvalidSpecifier.
    """
    written = list(dict.fromkeys(specifiers))
    if len(written) == 1:
        SpecifierSet(written[0])
        return written[0]
    taken = functools.reduce(operator.or_, map(_range, written)).to_specifier_set()
    return None if taken is None else _plain(map(str, taken))


def _range(specifier: str) -> VersionRange:
    return functools.reduce(operator.and_, map(_range_of_part, SpecifierSet(specifier)), VersionRange.full())


def _range_of_part(part: Specifier) -> VersionRange:
    """The versions of `>=1.5` with its pre-releases, as `<1.5` excludes them: nothing is left between the two."""
    if part.operator == ">=" and _FINAL.fullmatch(part.version):
        return ~SpecifierSet(f"<{part.version}").to_range()
    return SpecifierSet(str(part)).to_range()


def _plain(parts: Iterable[str]) -> str:
    """Write `>=1.10` for `>=1.9,!=1.9.*`, the same final releases; bounds go before exclusions."""
    written = set(parts)
    for lower in [part for part in written if part.startswith(">=")]:
        excluded = f"!={lower.removeprefix('>=')}.*"
        if excluded in written:
            *first, last = lower.removeprefix(">=").split(".")
            written = written - {lower, excluded} | {f">={'.'.join([*first, str(int(last) + 1)])}"}
    return ",".join(sorted(written, key=lambda part: ((">", "<", "=", "~", "!").index(part[0]), part)))
