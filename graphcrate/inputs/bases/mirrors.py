"""The servers of a suite's packages: what `debroot.mirrors` finds, for the distributions that `compat` knows."""

import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from debroot import mirrors
from debroot.mirrors import Archives, DebianMirror
from graphcrate.compat.facts import suites
from graphcrate.compat.facts.suites import Distribution
from patienthttp.errors import is_loopback


def archives(environment: Mapping[str, str], folder: Path = mirrors.APT, *, suite: str = "") -> Archives:
    """The servers that this environment, and this machine's sources in `folder`, name. docs/settings.md has the names.

    They are of the distribution of `suite`, and so are the variables.
    """
    distribution = suites.distribution_of(suite)
    return mirrors.archives(environment, distribution, _suites_of(distribution), folder)


def plain(servers: Archives) -> tuple[str, ...]:
    """The hosts, beyond this machine, that are asked for lists without TLS: the line may hold back what is new."""
    mains = (mirror.main for mirror in servers.listing)
    hosts = (urllib.parse.urlsplit(main).hostname or "" for main in mains if main.startswith("http:"))
    return tuple(dict.fromkeys(host for host in hosts if not is_loopback(host)))


def own_mirror(environment: Mapping[str, str], folder: Path = mirrors.APT, *, suite: str = "") -> DebianMirror | None:
    """The first mirror that a variable or this machine's own sources, in `folder`, name; None where neither does."""
    distribution = suites.distribution_of(suite)
    named = mirrors.of_variables(environment, distribution)
    return named[0] if named else mirrors.of_machine(folder, distribution, _suites_of(distribution))


def _suites_of(distribution: Distribution) -> list[str]:
    return [name for name, row in suites.known().items() if row.distribution == distribution.name]
