"""Image references as `ociregistry` parses them, with an error of ours for what is none."""

from graphcrate.model.errors import UsageError
from ociregistry import reference
from ociregistry.errors import ReferenceFormError

EXAMPLE = "docker.io/library/python:3.11-slim"


def parse(text: str) -> reference.Reference:
    """Parse a reference (`ociregistry.reference.parse`). Raises UsageError that says which part is wrong."""
    try:
        return reference.parse(text)
    except ReferenceFormError as error:
        failure = error.failure
        raise UsageError(failure.what, cause=failure.cause, next_step=f"write it like {EXAMPLE}") from error
