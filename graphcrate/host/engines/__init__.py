"""Clients of container engines: whether one is here, and how it is called.

`docker_engine` speaks to a Docker daemon by its SDK, `oci_engine` runs docker and podman, `apptainer_client` runs
Apptainer and SingularityCE through spython's client (`spython_client`). What is asked of them is in `engines/`.
"""
