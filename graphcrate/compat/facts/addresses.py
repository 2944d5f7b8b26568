"""Addresses of the channels of stacks and of Alibaba Cloud's registries, as their manuals give them."""

import re

from graphcrate.model.recipe import CHANNELS, Channel

#: channel → address that all its pages begin with
ROOTS = {channel: row.root for channel, row in CHANNELS.items()}
#: hosts of registries (help centre: "Terms", "Exclusive domain names of Personal Edition instances"): a region's own,
#: an Enterprise instance's, a Personal one's since 2024-09
_ENTERPRISE = re.compile(r"([a-z0-9-]+-registry)(\.[a-z0-9-]+\.cr\.aliyuncs\.com)", re.ASCII)
_ALIBABA = (
    re.compile(r"(registry)(\.[a-z0-9-]+(?:\.cr)?\.aliyuncs\.com)", re.ASCII),
    _ENTERPRISE,
    re.compile(r"(crpi-[a-z0-9]+)(\.[a-z0-9-]+\.personal\.cr\.aliyuncs\.com)", re.ASCII),
)


def cuda_label(cuda: str) -> str:
    """`cu118` for "11.8", `cpu` for "cpu"."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def channel_page(channel: Channel, torch: str, torch_cuda: str) -> str:
    """Name of a channel's page for one torch and CUDA version: `cu118`, `torch-2.0.0+cu118.html`."""
    return CHANNELS[channel].page.format(label=cuda_label(torch_cuda), series=".".join(torch.split(".")[:2]))


def channel_address(channel: Channel, torch: str, torch_cuda: str) -> str:
    """Address of a channel's page for one torch and CUDA version."""
    return f"{ROOTS[channel]}/{channel_page(channel, torch, torch_cuda)}"


def alibaba_registry(region: str, instance: str = "") -> str:
    """Host of Alibaba Cloud's registry: of a named instance (`crpi-…`: Personal Edition), else the region's own."""
    if not instance:
        return f"registry.{region}.aliyuncs.com"
    if instance.startswith("crpi-"):
        return f"{instance}.{region}.personal.cr.aliyuncs.com"
    return f"{instance}-registry.{region}.cr.aliyuncs.com"


def inside_vpc(host: str) -> str:
    """The same registry's host in its region's network, free of charge for PAI; empty where it has no such host."""
    match = next(filter(None, (pattern.fullmatch(host) for pattern in _ALIBABA)), None)
    return f"{match[1]}-vpc{match[2]}" if match else ""


def accelerates(host: str) -> bool:
    """Return whether it is a registry of Alibaba's that can make accelerated images: an Enterprise instance.

    Source: help centre, "Use an accelerated image in PAI": it adds "_accelerated" to the tag (in full mode for
    containerd alone "_containerd_accelerated") and takes gzip layers; document 2835665: it makes none of an image of
    several platforms.
    """
    return _ENTERPRISE.fullmatch(host) is not None
