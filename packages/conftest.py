"""Tests of the libraries run in this repository as graphcrate's unit tests do: no process, no further than loopback."""

from tests import examples
from tests.unit.conftest import registry, server, stay_inside, tmp_path_factory

__all__ = ["examples", "registry", "server", "stay_inside", "tmp_path_factory"]
