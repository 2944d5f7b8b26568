"""Trials: what a REF is, which runner opens it, its suites here or as jobs of Slurm."""
