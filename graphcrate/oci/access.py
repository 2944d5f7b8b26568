"""A repository of a registry as this user reaches it: logins, which token servers may see them, whether it has TLS."""

import functools
from collections.abc import Callable, Mapping, Sequence

from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.net import Client
from graphcrate.oci import credentials
from graphcrate.oci.registry import Repository
from ociregistry.credentials import Credential
from ociregistry.reference import Reference

Find = Callable[[Reference, Mapping[str, str]], Credential | None]


def repository(
    reference: Reference,
    ctx: Context,
    *,
    find: Find = credentials.find,
    writes: bool = False,
    mount_from: Sequence[str] = (),
    pause: Callable[[float], None] = settings.wait,
) -> Repository:
    """The reference's repository. `find`: which login of this person's is for it; `pause`: waits between tries."""
    return Repository(
        Client(ctx.environment, note=ctx.progress.note, sleep=pause),
        reference,
        functools.partial(find, reference, ctx.environment),
        writes=writes,
        mount_from=mount_from,
        trusted_realms=credentials.trusted_realms(ctx.environment),
        plain_http=credentials.is_plain(reference.host, ctx.environment),
    )
