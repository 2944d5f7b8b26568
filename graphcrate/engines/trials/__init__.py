"""Test an image's suites with any runner: locate the artifact, run it here or as jobs of Slurm, show the results."""
