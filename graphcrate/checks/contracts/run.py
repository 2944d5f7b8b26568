"""Judge an image of any form and origin by the contracts of runtimes. Pure."""

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Sequence
from types import ModuleType

from graphcrate.checks import contracts
from graphcrate.checks.contracts import contents, fabric, gpu, start
from graphcrate.checks.contracts.check import Check, asked_by
from graphcrate.model.contract import ContractFinding, Host, ImageView
from graphcrate.model.runtime import RUNTIMES, RuntimeName


def _modules() -> Iterator[ModuleType]:
    """Modules with checks: of every runtime, then those that a runtime's module has, which is named like it."""
    yield from (start, contents, gpu, fabric)
    names = {module.name for module in pkgutil.iter_modules(contracts.__path__)}
    for runtime in RUNTIMES:
        if runtime in names:
            yield importlib.import_module(f"{contracts.__name__}.{runtime}")


#: Every check, in the order in which findings are shown.
CHECKS = tuple(check for module in _modules() for check in vars(module).values() if type(check) is Check)
#: what a reader of an image has to look for
ASKED = asked_by(CHECKS)


def judge(
    view: ImageView, host: Host, runtimes: Sequence[RuntimeName], only: Collection[str] = ()
) -> tuple[ContractFinding, ...]:
    """Every finding for these runtimes; a check that several of them share is made once. `only`: checks, else all."""
    chosen = tuple(runtime for runtime in RUNTIMES if runtime in runtimes)
    checks = (check for check in CHECKS if not only or check.id in only)
    return tuple(check.find(view, host, chosen) for check in checks if set(check.runtimes) & set(chosen))


def targets(view: ImageView) -> tuple[RuntimeName, ...]:
    """The runtimes that an artifact can be meant for."""
    return tuple(name for name, runtime in RUNTIMES.items() if view.form in runtime.opens)
