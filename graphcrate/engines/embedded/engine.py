"""Our own builder as one of the engines: its layers come from wheels, its images are in the image's own folder.

Light to import: an image that is there unchanged needs its key alone.
"""

from collections.abc import Mapping
from pathlib import Path

from graphcrate.compat.plan import planning
from graphcrate.engines import backend
from graphcrate.engines.backend import BuildOrder, Built
from graphcrate.model.plan import Plan
from graphcrate.model.report import BuildReport
from graphcrate.oci.layout import is_whole


class EmbeddedEngine(backend.Engine):
    """graphcrate's own builder."""

    def check(self, environment: Mapping[str, str]) -> str:
        """Nothing: it is always there. What a base needs of this machine shows when it is prepared."""
        return ""

    def folder(self, image: Path) -> Path:
        """See `Engine.folder`."""
        return image

    def key(self, plan: Plan) -> str:
        """See `planning.build_key`."""
        return planning.build_key(plan)

    def exists(self, report: BuildReport, folder: Path, environment: Mapping[str, str]) -> bool:
        """Return whether the layout is there with all its blobs, and the report is of this folder."""
        return is_whole(folder / "oci", report.digest) and (report.name, report.tag) == folder.parts[-2:]

    def build(self, order: BuildOrder) -> Built:
        """Build the plan's image as a layout, with its layers. Raises as `engines.embedded.build.build_layout`."""
        from graphcrate.engines.embedded import build

        layout = build.build_layout(order)
        return Built(build.artifact(layout), layout.records)


EMBEDDED = EmbeddedEngine("embedded")
