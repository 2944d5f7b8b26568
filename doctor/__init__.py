"""Looks at the machine, or the container, that it runs on: what a CUDA + PyTorch + PyG image will meet there, and why.

Runs anywhere: Python 3.6 or newer, the standard library alone, any user, nothing written. `examples/doctor.py`, which
is in every image, is all of this in one file (`make doctor.py` writes it): modules import from each other
by name alone, and a name at the top of a module is there once in the whole package.
"""
