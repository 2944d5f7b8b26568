"""Clients of container engines: whether one is here, and how it is called. What is asked of them is in `engines/`.

engines/ ──docker_engine──▶ a Docker daemon, by its SDK
         ──oci_engine──▶ docker, podman
         ──apptainer_client──spython_client──▶ Apptainer, SingularityCE
"""
