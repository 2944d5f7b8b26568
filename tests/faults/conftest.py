"""The small project that every row starts from: built once for a worker, copied for each row."""

import contextlib
import dataclasses
import re
import tempfile
from pathlib import Path

import pytest

from graphcrate.host.disk.trees import discard
from tests.engines.fault_proxy import FaultProxy
from tests.engines.workplace import Workplace
from tests.faults import project
from tests.unit.registry_server import RegistryServer
from tests.unit.wheel_server import WheelServer


@dataclasses.dataclass
class Origin:
    """The place of inputs and outputs, and the image as it is without a fault."""

    root: Path
    registry: RegistryServer
    door: FaultProxy  #: before the registry: what the project knows as its address
    index: WheelServer
    place: Workplace
    report: dict

    @property
    def digest(self):
        return self.report["digest"]

    @property
    def tag(self):
        return self.report["tag"]

    @contextlib.contextmanager
    def failing(self, decide):
        """Let requests to the registry fail as `decide` says."""
        self.door.counts.clear()
        self.door.seen.clear()
        self.door.faults.clear()
        self.door.received, self.door.decide = 0, decide
        try:
            yield self.door
        finally:
            self.door.decide = lambda seen: ""


@pytest.fixture(scope="session")
def origin():
    with contextlib.ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="graphcrate-faults-", ignore_cleanup_errors=True))
        )
        root.chmod(0o755)
        registry, index = stack.enter_context(RegistryServer(strict=True)), stack.enter_context(WheelServer())
        door = stack.enter_context(FaultProxy(registry.host))
        project.fill_index(index)
        project.fill_registry(registry)
        place = project.make_project(root / "origin", index.url("/simple"), f"{door.address}/faults/base:1")
        project.lock(place)
        report = project.report(place, place.run(*project.IMAGE, "--json"))
        yield Origin(root, registry, door, index, place, report)


@pytest.fixture
def scratch(origin, request):
    """An empty folder, removed after the row."""
    folder = origin.root / re.sub(r"\W+", "-", request.node.name)
    folder.mkdir()
    yield folder
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        assert f" {folder}" not in line, f"a row left a mount: {line}"
    discard(folder, print)


@pytest.fixture
def cold(origin, scratch):
    """The project with its lock and an empty cache."""
    return project.copy(origin.place, scratch)


@pytest.fixture
def warm(origin, scratch):
    """The project with its lock, its image and all that the cache has; it may be changed."""
    return project.copy(origin.place, scratch, warm=True)
