"""graphcrate: container images for CUDA + PyTorch + PyG, from a recipe to a tested image."""

__version__ = "0.1.0"
