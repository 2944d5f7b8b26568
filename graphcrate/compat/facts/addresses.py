"""Addresses of the channels of stacks, of copies of the package index and of Alibaba Cloud's registries.

As their manuals give them.
"""

import re

from graphcrate.model.recipe import CHANNELS, Channel
from patienthttp.errors import host_of

#: channel → address that all its pages begin with
ROOTS = {channel: row.root for channel, row in CHANNELS.items()}
PYTORCH_FILES = "download-r2.pytorch.org"  #: host of the files that PyTorch's pages list
#: hosts of what a stack is made of; PyG's page had another name until 2021, which leads to today's
STACK_HOSTS = frozenset(
    {*(host_of(row.root) for row in CHANNELS.values() if not row.extensions), "pytorch-geometric.com", PYTORCH_FILES}
)
#: mirror → its copy of the public package index
INDEX_COPIES = {
    "sjtu": "https://mirror.sjtu.edu.cn/pypi/web/simple",
    "aliyun": "https://mirrors.aliyun.com/pypi/simple",
    "nju": "https://mirror.nju.edu.cn/pypi/web/simple",
    "tuna": "https://pypi.tuna.tsinghua.edu.cn/simple",
}
_LABEL = re.compile(r"cu(\d{1,2})(\d)(?![a-z0-9])|(?<![a-z])(cpu)(?![a-z0-9])")
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


def labelled_cuda(text: str) -> str:
    """Return the CUDA version, or "cpu", that a label in a text names, such as cu118; empty for none."""
    match = _LABEL.search(text)
    return "" if not match else match[3] or f"{match[1]}.{match[2]}"


def copied_index(address: str) -> str:
    """Return the name of the mirror whose copy of the package index has this address; empty for another's."""
    return next((name for name, root in INDEX_COPIES.items() if host_of(root) == host_of(address)), "")


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
