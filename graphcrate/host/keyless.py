"""Signing without a key, with sigstore's public services: an identity (a CI job's, or a person's in a browser) gets a
certificate for minutes, and a public log keeps what was signed.

What is signed thus is public for ever: the statement's digest and the identity. Imports late: sigstore takes seconds.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphcrate.errors import GraphcrateError, IntegrityError, NetworkError, UsageError

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.oidc import IdentityToken
    from sigstore.verify.verifier import Verifier


def sign(statements: Sequence[bytes], *, browser: bool) -> tuple[bytes, ...]:
    """A sigstore bundle (JSON) for each in-toto statement, under the identity that is found here.

    `browser`: a person may be asked to log in. Raises UsageError where nobody is, NetworkError.
    """
    from sigstore.dsse import Statement
    from sigstore.sign import SigningContext

    with _explained():
        token = _ambient()
        if token is None and not browser:
            raise UsageError(
                "there is no identity to sign with",
                cause="This is no CI job with an identity token, and no terminal with a browser.",
                next_step="give the job `permissions: id-token: write` (GitHub Actions), or sign with a key file",
            )
        trusted = _trusted()
        context = SigningContext.from_trust_config(trusted)
        with context.signer(token or _logged_in(trusted)) as signer:
            return tuple(signer.sign_dsse(Statement(data)).to_json().encode() for data in statements)


class Checker:
    """Checks bundles of one identity. Sigstore's keys are fetched when the first of them has a certificate."""

    def __init__(self, identity: str, issuer: str, *, offline: bool = False) -> None:
        """`identity` as `issuer` vouches for it. `offline`: go by the keys that the library brings."""
        self._identity, self._issuer, self._offline = identity, issuer, offline

    def check(self, bundle: bytes) -> tuple[str, bytes]:
        """The media type and bytes of what the bundle holds, signed by the identity.

        Raises IntegrityError for anything else, NetworkError.
        """
        from sigstore.errors import Error, VerificationError
        from sigstore.models import Bundle
        from sigstore.verify.policy import Identity

        try:
            with _explained("verify where those can be reached"):
                found = Bundle.from_json(bundle)
                return self._verifier.verify_dsse(found, Identity(identity=self._identity, issuer=self._issuer))
        except (VerificationError, ValueError, Error) as error:
            raise IntegrityError(f"the bundle is not signed by {self._identity}: {error}") from error

    @functools.cached_property
    def _verifier(self) -> "Verifier":
        from sigstore.verify.verifier import Verifier

        return Verifier(trusted_root=_trusted(self._offline).trusted_root)


def _ambient() -> "IdentityToken | None":
    """The identity of the CI job that this runs in, if it is one."""
    from sigstore.oidc import IdentityToken, detect_credential

    token = detect_credential()
    return IdentityToken(token) if token else None


def _logged_in(trusted: "ClientTrustConfig") -> "IdentityToken":
    from sigstore.oidc import Issuer

    return Issuer(trusted.signing_config.get_oidc_url()).identity_token()


def _trusted(offline: bool = False) -> "ClientTrustConfig":
    """Sigstore's keys and addresses, which it publishes signed (TUF)."""
    from sigstore.models import ClientTrustConfig

    return ClientTrustConfig.production(offline)


@contextlib.contextmanager
def _explained(instead: str = "sign with a key file instead: --key cosign.key") -> Iterator[None]:
    import requests
    from sigstore import errors, oidc
    from tuf.api.exceptions import DownloadError

    unreachable = (errors.NetworkError, errors.TUFError, DownloadError, requests.RequestException)
    try:
        yield
    except (errors.VerificationError, GraphcrateError):
        raise
    except (oidc.IdentityError, oidc.IssuerError, oidc.ExpiredIdentity) as error:
        raise UsageError(
            f"the identity to sign with is refused: {error}",
            cause="The CI job may not ask for a token (`permissions: id-token: write`), or the log-in was broken off.",
            next_step="sign with a key file instead: --key cosign.key",
        ) from error
    except Exception as error:
        # refusals of its services are exceptions of private modules, which have no parent of their own
        if not isinstance(error, (*unreachable, OSError)) and "sigstore._internal" not in type(error).__module__:
            raise
        raise NetworkError(
            f"sigstore's public services cannot be reached, or refuse: {_words(error)}",
            cause="This network has no way to *.sigstore.dev, or a proxy is in between.",
            next_step=instead,
        ) from error


def _words(error: BaseException) -> str:
    """What the error says first, and what its deepest cause does."""
    said: list[str] = []
    found: BaseException | None = error
    while found is not None:
        said += str(found).strip().splitlines()[:1]
        found = found.__cause__ or found.__context__
    return ": ".join(dict.fromkeys((*said[:1], *said[-1:]))) or type(error).__name__
