"""Docker, Podman, Apptainer, pyxis, Slurm and our own sandbox: find them, build with them, run in them."""
