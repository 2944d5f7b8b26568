"""A repository of a registry as `ociregistry` has it, whose failures are errors of ours here."""

from graphcrate.host.net import HttpError
from graphcrate.host.parallel import parallel
from graphcrate.oci import refusals
from ociregistry import repository
from ociregistry.errors import RegistryError, RegistryFailure
from patienthttp import errors


class Repository(repository.Repository):
    """One repository of a registry. Safe from many threads."""

    parallel = staticmethod(parallel)

    def error(self, failure: RegistryFailure) -> RegistryError:
        return refusals.error(failure)

    def unanswered(self, error: errors.HttpError) -> HttpError:
        ours = HttpError.of_theirs(error)
        cause, next_step = refusals.reworded(
            ours.failure, self.host, writes=self.writes, has_answered=self.has_answered
        )
        ours.cause, ours.next_step = ours.cause or cause, next_step or ours.next_step
        return ours
