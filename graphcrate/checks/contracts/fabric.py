"""Contract between an image and the network between its nodes: what NCCL opens to use it."""

import re

from graphcrate.artifacts.tree.binaries import RELEASES
from graphcrate.checks.contracts.check import absent, check, failed, passed, unknown, warned
from graphcrate.checks.contracts.view import distribution
from graphcrate.compat.facts import suites
from graphcrate.compat.facts.fabrics import Fabric, fabrics
from graphcrate.compat.facts.facts import is_older
from graphcrate.compat.facts.verbs import INSTALL
from graphcrate.model.contract import CheckVerdict, Host, ImageView, Verbs
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.words import joined, listed

_PLUGIN = re.compile(r".*/libnccl-net(-[^/]+)?\.so")
_TCP = "ranks on several nodes talk TCP"


@check("libraries of the network between nodes", *RUNTIMES, files=RELEASES, matching=_PLUGIN.pattern)
def fabric(view: ImageView, host: Host) -> CheckVerdict:
    """NCCL opens libibverbs.so.1 when it starts and looks its symbols up by name, and this a provider for the node's
    card; where one is not there or cannot be loaded, NCCL says so in a line of its debug log and uses TCP, ten times
    slower and more. Read from NCCL's bytes and theirs.
    Source: NCCL, misc/ibvsymbols.cc; NCCL #952, container-toolkit #1877, horovod #759; rdma-core, libibverbs.md
    """
    network, verbs = fabrics().get(host.fabric), view.verbs
    if view.cuda == "cpu":
        return passed("no CUDA in the image")
    if not (view.cuda or view.torch):
        return absent(view, passed("no CUDA and no torch found"))
    if network is not None and not (network.providers or network.plugin):
        return passed(f"{network.title}: TCP is all that its nodes have")
    if network is not None and not network.providers:
        return _by_plugin(view, host, network)
    if not verbs.library:
        return absent(view, _lacking("no libibverbs.so.1", INSTALL, network))
    if verbs.fault:
        return absent(view, _lacking(f"libibverbs.so.1 cannot be loaded: {verbs.fault}", INSTALL, network))
    if verbs.absent:
        what = f"libibverbs.so.1 does not define {joined(verbs.absent)}, which NCCL looks up"
        return _lacking(what, "a base with a newer rdma-core, or the libibverbs that its distribution has", network)
    usable = {name for name, fault in verbs.providers.items() if not fault}
    if network is not None and not usable.intersection(network.providers):
        return absent(view, _without_provider(view, network))
    if not usable:
        what = "libibverbs.so.1, and no provider for any card"
        faults = "".join(f"; {fault}" for fault in dict.fromkeys(verbs.providers.values()))
        return absent(view, _lacking(f"{what}{faults}", INSTALL, network))
    if network is None:
        which = "for which cards, a target's fabric tells"
        return passed(f"{_library(verbs)}, {len(usable)} providers; {which}{_without(verbs)}")
    if network.plugin:
        return _by_plugin(view, host, network)
    return passed(
        f"{network.title}: {_library(verbs)}, {listed(sorted(usable.intersection(network.providers)))}{_without(verbs)}"
    )


def _library(verbs: Verbs) -> str:
    """Name what was looked at of libibverbs."""
    return f"libibverbs.so.1 with all {verbs.needed} symbols that NCCL needs" if verbs.nccl else "libibverbs.so.1"


def _without(verbs: Verbs) -> str:
    """Say what NCCL does without, after a verdict that all else is there."""
    return f"; NCCL does without {listed(verbs.lost)}" if verbs.lost else ""


def _without_provider(view: ImageView, network: Fabric) -> CheckVerdict:
    """The verdict on an image that has no provider for the cards of this network, or one that cannot be loaded."""
    faults = {name: view.verbs.providers[name] for name in network.providers if name in view.verbs.providers}
    if not view.verbs.providers:
        return _lacking("libibverbs.so.1, and no provider for any card", INSTALL, network)
    if faults:
        name, fault = next(iter(faults.items()))
        return _lacking(f"the provider {name} cannot be loaded: {fault}", INSTALL, network)
    return failed(f"no provider for {network.title} ({listed(network.providers)}): {_TCP}", _newer(view))


def _by_plugin(view: ImageView, host: Host, network: Fabric) -> CheckVerdict:
    """The verdict on an image for a network that NCCL reaches by a plugin alone, which is mostly the site's.

    Its libfabric was linked on the nodes and asks for versions of their C library, as everything does that is.
    """
    has_own = any(fact.real == "file" and _PLUGIN.fullmatch(path) for path, fact in view.files.items())
    if has_own and not host.plugin:  # a folder that is bound in comes before what the image has
        return passed(f"{network.title}: NCCL's plugin is in the image")
    whose = f"the site's plugin ({host.plugin})" if host.plugin else "the site's plugin"
    version = view.c_library.version if view.c_library else ""
    if version and host.glibc and is_older(version, host.glibc):
        what = f"{whose} was linked with the host's glibc {host.glibc}, and this image has {version}"
        return warned(f"{network.title}: {what}: it may not load, and nothing is used instead", _with_glibc(host.glibc))
    if not host.plugin:
        return unknown(
            f"{network.title}: NCCL reaches it by a plugin (libnccl-net.so), which the image does not have",
            "bind the site's plugin in; with NCCL_NET='AWS Libfabric' a job without it fails instead of using TCP",
        )
    if not (version and host.glibc):
        seen = f"{network.title}: {whose} is bound in; whether glibc {version} serves it is not known"
        return unknown(" ".join(seen.split()), "--glibc VERSION    (ldd --version on the host shows it)")
    return passed(f"{network.title}: {whose} is bound in; the image's glibc {version} serves it")


def _with_glibc(version: str) -> str:
    """The oldest base with such a C library."""
    for suite, base in suites.bases().items():
        if not is_older(base.glibc, version):
            return f"a base of {suites.titled(suite)}, with glibc {base.glibc}"
    return f"a base with glibc {version} or newer"


def _lacking(what: str, fix: str, network: Fabric | None) -> CheckVerdict:
    """Return a failure where the nodes have such a network, a warning where their network is not known."""
    what = f"{what}: {_TCP}"
    return warned(what, fix) if network is None else failed(f"{network.title}: {what}", fix)


def _newer(view: ImageView) -> str:
    """Name what brings more providers."""
    suite = distribution(view).get("VERSION_CODENAME", "")
    rows = list(suites.bases())
    if suite in rows and rows.index(suite) + 1 < len(rows):
        return f"a base of {suites.titled(rows[rows.index(suite) + 1])}, whose ibverbs-providers has more"
    return "a base with a newer rdma-core"
