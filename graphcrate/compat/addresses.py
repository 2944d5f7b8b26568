"""Addresses of PyTorch's and PyG's channels, as their manuals give them."""

PYTORCH = "https://download.pytorch.org/whl"
PYG = "https://data.pyg.org/whl"


def cuda_tag(torch: str, torch_cuda: str) -> str:
    """`cu118` or `cpu`: the local label of a torch version, else from the CUDA version it was built for."""
    _, _, label = torch.partition("+")
    if label:
        return label
    return "cpu" if torch_cuda == "cpu" else "cu" + torch_cuda.replace(".", "")


def pyg_page(torch: str, torch_cuda: str) -> str:
    """Name of PyG's links page: `torch-2.0.0+cu118.html`, whatever the patch release."""
    major, minor = torch.split(".")[:2]
    return f"torch-{major}.{minor}.0+{cuda_tag(torch, torch_cuda)}.html"


def pytorch_index(torch: str, torch_cuda: str) -> str:
    """PyTorch's own index for one CUDA version."""
    return f"{PYTORCH}/{cuda_tag(torch, torch_cuda)}"


def pyg_links(torch: str, torch_cuda: str) -> str:
    """PyG's page of wheels for one torch and CUDA version."""
    return f"{PYG}/{pyg_page(torch, torch_cuda)}"
