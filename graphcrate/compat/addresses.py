"""Addresses of PyTorch's and PyG's channels and of Alibaba Cloud's registries, as their manuals give them."""

import re

PYTORCH = "https://download.pytorch.org/whl"
PYG = "https://data.pyg.org/whl"
#: hosts of registries (help centre: "Terms", "Exclusive domain names of Personal Edition instances"): a region's own,
#: an Enterprise instance's, a Personal one's since 2024-09
_ALIBABA = (
    re.compile(r"(registry)(\.[a-z0-9-]+(?:\.cr)?\.aliyuncs\.com)", re.ASCII),
    re.compile(r"([a-z0-9-]+-registry)(\.[a-z0-9-]+\.cr\.aliyuncs\.com)", re.ASCII),
    re.compile(r"(crpi-[a-z0-9]+)(\.[a-z0-9-]+\.personal\.cr\.aliyuncs\.com)", re.ASCII),
)


def cuda_label(cuda: str) -> str:
    """`cu118` for "11.8", `cpu` for "cpu"."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def pyg_page(torch: str, torch_cuda: str) -> str:
    """Name of PyG's links page: `torch-2.0.0+cu118.html`, whatever the patch release."""
    major, minor = torch.split(".")[:2]
    return f"torch-{major}.{minor}.0+{cuda_label(torch_cuda)}.html"


def pytorch_index(torch_cuda: str) -> str:
    """PyTorch's own index for one CUDA version."""
    return f"{PYTORCH}/{cuda_label(torch_cuda)}"


def pyg_links(torch: str, torch_cuda: str) -> str:
    """PyG's page of wheels for one torch and CUDA version."""
    return f"{PYG}/{pyg_page(torch, torch_cuda)}"


def alibaba_registry(region: str, instance: str = "") -> str:
    """Host of Alibaba Cloud's registry: of a named instance (`crpi-…`: Personal Edition), else the region's own."""
    if not instance:
        return f"registry.{region}.aliyuncs.com"
    if instance.startswith("crpi-"):
        return f"{instance}.{region}.personal.cr.aliyuncs.com"
    return f"{instance}-registry.{region}.cr.aliyuncs.com"


def inside_vpc(host: str) -> str:
    """The same registry's host in its region's network, free of charge for PAI; empty where it has no such host."""
    found = next(filter(None, (pattern.fullmatch(host) for pattern in _ALIBABA)), None)
    return f"{found[1]}-vpc{found[2]}" if found else ""
