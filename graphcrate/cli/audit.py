"""The command `audit`: arguments → `auditing`. `cli` registers it."""

from pathlib import Path
from typing import Annotated

import typer

from graphcrate.cli.options import Gpus, joined

Names = Annotated[
    list[str],
    typer.Argument(help="An image (as for `check`), wheels, or a folder of installed packages.", metavar="REF|WHEEL…"),
]
Base = Annotated[str, typer.Option(help="Image or root file system that wheels or a folder of packages lie in.")]
Target = Annotated[str, typer.Option(help="A machine of targets/, dgx2 say: its GPUs.")]
Output = Annotated[Path, typer.Option(help="Where images are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def audit(
    names: Names,
    base: Base = "",
    gpu: Gpus = None,
    target: Target = "",
    output: Output = Path("dist"),
    as_json: Json = False,
) -> None:
    """Read programs, libraries and GPU code of an image or of wheels; say what will not load or run. Runs nothing."""
    from graphcrate.checks import wording
    from graphcrate.checks.audit import run as auditing
    from graphcrate.cli import tables
    from graphcrate.cli.config import here
    from graphcrate.compat import explain
    from graphcrate.compat.facts import gpu_models
    from graphcrate.compat.targets import Said
    from graphcrate.model.errors import AuditError

    ctx = here()
    named = joined(gpu) or ""
    gpus = gpu_models(named) if named else ()
    if target:
        gpus = explain.find_target(ctx, Said(target=target, gpu=named)).gpus or ()
    found = auditing.run(names, ctx, base=base, gpus=gpus, output=output)
    tables.write(found, wording.audit(found), as_json=as_json)
    if failures := wording.count(one.severity for one in found.findings).get("fail"):
        raise AuditError(f"{failures} of the findings keep {found.subject} from working")
