"""Lines that users of a published image type, by runtime. Pure."""

from graphcrate.compat.facts import addresses
from graphcrate.compat.plan.image_config import EXAMPLES
from graphcrate.model.runtime import RUNTIMES
from ociregistry.reference import Reference


def pulling(
    image: Reference, name: str, *, inside: Reference | None = None, plain_http: bool = False, on_gpus: bool = True
) -> dict[str, str]:
    """Return what users of a published image type, by runtime. `inside`: its address in the cloud's own network.

    `plain_http`: the registry has no TLS, which each runtime has to be told; `on_gpus`: else Docker needs no toolkit.
    """
    values = {"image": image, "enroot": image.enroot, "host": image.host, "name": name, "examples": EXAMPLES}
    values["gpus"] = "--gpus all " if on_gpus else ""
    lines = {
        program: (typed.without_tls if plain_http else typed.line).format(**values)
        for runtime in RUNTIMES.values()
        for program, typed in runtime.published.items()
    }
    if inside:  # what DSW and DLC take as an image's address
        lines["pai"] = str(inside)
        if addresses.accelerates(image.host):
            lines["pai-accelerated"] = f"{inside}_accelerated    (where the repository makes accelerated images)"
    return lines
