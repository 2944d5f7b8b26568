"""Singularity image files and squashfs, read and written in Python: no engine, no root, no mount.

`images` makes, lists and extracts whole images; it is what `python -m sifsquash` calls. Below it:

- `sif`: a SIF's bytes before its root file system; `squashfs`: reading; `folder`: what a folder holds, as inodes.
- `packer` cuts files into compressed blocks; `writer` writes what describes them.
- `values` and `errors` are what all of them speak of; `bounds` says how much of an image is read.
"""
