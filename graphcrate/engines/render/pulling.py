"""What users of a published image type, by runtime. Pure. Sources: the runtimes' manuals; docs/runtimes.md."""

from graphcrate.oci.reference import Reference


def lines(reference: Reference, name: str, *, inside: Reference | None = None) -> dict[str, str]:
    """Runtime → command, for an image on a registry. `inside`: the same within the cloud's own network (PAI, ACR)."""
    address = str(reference)
    found = {
        "docker": f"docker run --gpus all --rm -it {address}",
        "singularity": f"singularity pull {name}.sif docker://{address}",
        "srun": f"srun --container-image='{reference.enroot}' python /opt/graphcrate/examples/torch_check.py",
        "enroot": f"enroot import --output {name}.sqsh 'docker://{reference.enroot}'",
    }
    if inside is not None:
        found["pai"] = str(inside)  # what DSW and DLC take as an image's address
    return found
