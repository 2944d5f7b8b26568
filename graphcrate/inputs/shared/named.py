"""Find the shared cache that a command or the environment names, with its keys.

Light to import, as most builds have none.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.inputs.shared.site_cache import SiteCache

#: the variables that stand for the options, for commands that have none
PLACES, TRUST, KEY, SHARE = (
    "GRAPHCRATE_REMOTE_CACHE",
    "GRAPHCRATE_CACHE_TRUST",
    "GRAPHCRATE_CACHE_KEY",
    "GRAPHCRATE_CACHE_CHECK",
)


def shared_cache(options: SourceOptions, ctx: Context, *, gives: bool = True) -> "SiteCache | None":
    """Return the shared cache of a build; None where none is named. `gives`: what is made is signed by a key, if named.

    Raises UsageError for an invalid place, key or number, and for a cache that nothing could come of.
    """
    environment = ctx.environment
    named = options.cache or tuple(environment.get(PLACES, "").split())
    if not named:
        return None
    from graphcrate.host.disk import key_files
    from graphcrate.inputs.shared import places
    from graphcrate.inputs.shared.site_cache import SiteCache

    trust = options.cache_trust or tuple(Path(text).expanduser() for text in environment.get(TRUST, "").split())
    key = options.cache_key or (Path(environment[KEY]).expanduser() if environment.get(KEY) else None)
    if trust and not gives and not options.cache_key:
        key = None  # reading asks for no password
    known = [places.parse(text, ctx) for text in named]
    if not trust and key is None:
        raise UsageError(
            f"the shared cache {known[0].name} has no key to check it by",
            cause="Whoever may write to it could put any program into the image: an entry counts by its signature.",
            next_step=f"{command(ETC, cache_trust='cosign.pub')}    (the public key of who fills it)",
        )
    if key is not None and not any(place.is_writable for place in known):
        raise UsageError(
            f"{known[0].name} is a web server, which is read alone",
            next_step="name a registry or a folder first, or leave the key out",
        )
    return SiteCache(
        known,
        [key_files.read_public(path) for path in trust],
        key_files.read_private(key, environment, _asked_once) if key else None,
        _share(options.cache_check or environment.get(SHARE, "")),
        ctx,
    )


@functools.cache
def _asked_once(prompt: str) -> str | None:
    """Ask for a key's password once in a run: `matrix` builds for hours, at night."""
    from graphcrate.host.sandbox.attach import ask_password

    return ask_password(prompt)


def _share(text: str) -> int:
    if text and (not text.isdecimal() or int(text) < 1):
        raise UsageError(f"{text!r} is not one in how many entries to check", next_step=command(ETC, cache_check="20"))
    return int(text or 0)
