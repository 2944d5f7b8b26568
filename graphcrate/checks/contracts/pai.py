"""What Alibaba PAI wants of an image, beyond what Docker does: DSW notebooks and DLC jobs."""

from graphcrate.checks.contracts.check import absent, check, passed, warned
from graphcrate.model.contract import Host, ImageView, Verdict

_SERVERS = ("jupyterlab", "notebook", "jupyter-server")


@check(
    "a notebook server",
    "pai",
    reason="Users of PAI DSW open the image as a notebook; DLC jobs do without.",
    source="PAI DSW on custom images; what it requires is nowhere written down",
)
def notebook(view: ImageView, host: Host) -> Verdict:
    for name in _SERVERS:
        if name in view.distributions:
            return passed(f"{name} {view.distributions[name]}")
    for name in ("jupyter", "jupyter-lab", "jupyter-notebook"):
        if name in view.programs:
            return passed(view.programs[name])
    return absent(view, warned("none in the image", "pip install jupyterlab, where it shall open in DSW"))


CHECKS = (notebook,)
