"""Hashes of pages beside those of witnesses (`compat.facts.witnesses`), for files of a stack's channels."""

import msgspec

from graphcrate.compat.facts import witnesses
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import IntegrityError
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources.failures import source_name
from graphcrate.resolve.sources.source import Link


def witnessed(link: Link, channel: Channel) -> Link:
    """Return the link with the hash of its witnesses, where its page states none.

    Files of the package index have theirs from the index, those of a folder are the user's. Raises IntegrityError for
    a page that states another hash.
    """
    known = witnesses.of(link.name) if channel in CHANNELS else None
    if known is None:
        return link
    if link.sha256 and link.sha256 != known.sha256:
        raise IntegrityError(
            f"{source_name(link.url)} has {link.name} by another hash than public locks\n"
            f"    the page: sha256 {link.sha256}\n"
            f"    {len(known.witnesses)} locks: sha256 {known.sha256}, in "
            + "\n        ".join(("", *known.witnesses)).lstrip(),
            cause="The page is wrong, or the file was replaced after those locks were made.",
            next_step=f"take another channel: {command('image', ETC, channel='pypi')}, or another mirror: "
            f"{command('image', ETC, mirror='sjtu')}",
        )
    return msgspec.structs.replace(link, sha256=known.sha256)


def note(link: Link) -> str:
    """Return a lock's note on where a file's hash is from; empty where its page alone says it."""
    known = witnesses.of(link.name)
    if known is not None and known.sha256 == link.sha256:
        return f"hash of {link.name}: {'page and witnesses' if link.is_hash_stated else 'witnesses only'}"
    return "" if link.is_hash_stated else f"the sha256 of {link.name} was taken from the file itself: no page states it"
