"""Fill a site's shared cache from this machine's."""

from pathlib import Path

from graphcrate.artifacts.reports import read_report
from graphcrate.assembly import site_images
from graphcrate.assembly.output import ImageFolders
from graphcrate.assembly.with_engine import EMBEDDED
from graphcrate.host.context import Context
from graphcrate.inputs.shared import stock
from graphcrate.inputs.shared.entry import COMPILED, IMAGE, tag
from graphcrate.inputs.shared.site_cache import SiteCache
from graphcrate.inputs.shared.stock import StockLine
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError


def push(shared: SiteCache, output: Path, ctx: Context) -> list[StockLine]:
    """Give what this cache has compiled, and the images in `output` that passed their tests; all that is there now.

    Raises UsageError without a key, NetworkError where the place fails.
    """
    if shared.signer is None:
        raise UsageError(
            "an entry is signed by who gives it, and no key was named",
            next_step=command("cache", "push", cache=shared.places[0].name, cache_key="cosign.key"),
        )
    wheels = sorted(ctx.cache.path(COMPILED, "all").parent.glob("*/*.whl"))
    shared.give(wheels)
    given = {tag(COMPILED, wheel.parent.name) for wheel in wheels}
    for path in sorted(output.glob("*/*/report.json")):
        report = None if path.parent.is_symlink() else read_report(path, ctx.progress.warn)
        if report is not None and EMBEDDED.exists(report, path.parent, ctx.environment):
            site_images.give(shared, report, ImageFolders(EMBEDDED, output), ctx)
            given.add(tag(IMAGE, report.build_key))
    shared.require_no_failure()
    return [line for line in stock.listed(shared) if line.tag in given]
