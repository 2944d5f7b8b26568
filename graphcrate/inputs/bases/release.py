"""Release files fetched: each holds by itself (`debroot.release`), and is no older than the newest that was seen.

That one is kept in the cache, as it was signed.
"""

from collections.abc import Mapping

from debroot.errors import ListError
from debroot.release import SignedRelease, SuiteSource, check_dates, check_suite, field_of, moment_of, verified
from graphcrate.compat.facts import suites
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.host.net import Client
from graphcrate.inputs.bases.debroot_errors import translated
from graphcrate.inputs.bases.mirrors import archives
from graphcrate.model.limits import RELEASE
from patienthttp.errors import redacted
from patienthttp.retry import TRIES


def fetched(source: SuiteSource, ctx: Context, client: Client, tries: int = TRIES) -> SignedRelease:
    """Fetch a suite's Release file; if a newer one was seen earlier, that one counts, with a note.

    Raises HttpError, and IntegrityError for one that is not signed, of another suite, or of another time.
    """
    document = client.request("GET", f"{source.url}/InRelease", tries=tries, limit=RELEASE).body
    suite = source.suite.partition("-")[0]
    with translated(suite):
        release = SignedRelease.checked(document, source, settings.now(), suites.distribution_of(suite))
        # What names a day asks for the lists of then, and what was seen since is of no matter to it.
        return release if source.as_of else SignedRelease(source.url, _newest(document, release.text, source, ctx))


def names_a_day(environment: Mapping[str, str], suite: str) -> bool:
    """Return whether the mirrors whose lists count are asked for those of a day."""
    return any(SuiteSource(mirror.main, suite).as_of for mirror in archives(environment, suite=suite).listing)


def _newest(document: bytes, text: str, source: SuiteSource, ctx: Context) -> str:
    """The text of the newest Release file seen of a suite, this one or an earlier one. Raises ListError.

    A mirror may lag behind another; it must not take back in silence what a lock was already made of.
    """
    record = ctx.cache.path("bases", "releases", source.suite)
    with ctx.cache.exclusively(f"release-{source.suite}"):
        before = _kept(kept_bytes(record) or b"", source)
        if before and (moment_of(before, "Date") or 0.0) > (moment_of(text, "Date") or 0.0):
            check_dates(before, source, settings.now())
            ctx.progress.warn(
                f"{redacted(source.url)}: its lists, of {field_of(text, 'Date')}, are older than those seen before, of "
                f"{field_of(before, 'Date')}, which count"
            )
            return before
        if before != text:
            ctx.cache.keep(record, document)
    return text


def _kept(document: bytes, source: SuiteSource) -> str:
    """The text of the Release file in the cache; empty without one that is signed, and of this suite."""
    try:
        text = verified(document, source.url, suites.distribution_of(source.suite.partition("-")[0]))
        check_suite(text, source)
    except ListError:
        return ""
    return text if moment_of(text, "Date") else ""
