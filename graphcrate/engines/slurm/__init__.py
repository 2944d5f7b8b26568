"""Slurm: submit jobs, read what its commands print, and what runs on the node."""
