"""What may differ between the embedded build, `docker build` and `apptainer build` of one lock, each with its reason.

Whatever is not here is a difference. Each was seen between real artifacts; docs/decisions/equality.md tells how.
"""

from graphcrate.model.tree import Allowance, Aspect

_PRESENCE: tuple[Aspect, ...] = ("only in the first", "only in the second")
_PACKAGES = "/opt/venv/lib/python*/site-packages"

ALLOWANCES = (
    Allowance(
        reason="Apptainer's own files, by which it starts the image",
        patterns=(
            *("/.singularity.d", "/.singularity.d/**", "/singularity", "/environment"),
            *("/.exec", "/.run", "/.shell", "/.test"),
        ),
        aspects=(*_PRESENCE, "content"),
        forms=("sif",),
    ),
    Allowance(
        reason="Apptainer and podman make or empty them: the machine's own are mounted there",
        patterns=("/etc/resolv.conf", "/etc/hosts"),
        aspects=(*_PRESENCE, "content", "mode"),
        forms=("sif", "podman", "archive"),
    ),
    Allowance(
        reason="devices, which a build without root cannot make; the machine's own /dev is mounted there",
        patterns=("/dev/*",),
        aspects=(*_PRESENCE, "kind"),
        forms=("sif",),
    ),
    Allowance(
        reason="bytecode of the same source by the same Python (equal headers); its reference marks may differ",
        patterns=(f"{_PACKAGES}/**/*.pyc",),
        aspects=("content",),
        same="bytecode",
    ),
    Allowance(
        reason="RECORD lists what its installer added; all other rows agree",
        patterns=(f"{_PACKAGES}/*.dist-info/RECORD",),
        aspects=("content",),
        same="record",
    ),
    Allowance(
        reason="the installer's notes about itself and where the wheel came from",
        patterns=tuple(
            f"{_PACKAGES}/*.dist-info/{name}" for name in ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
        ),
        aspects=(*_PRESENCE, "content"),
    ),
    Allowance(
        reason="launchers, which each installer words in its own way; the same Python, module and function",
        patterns=("/opt/venv/bin/*",),
        aspects=("content",),
        same="launcher",
    ),
    Allowance(
        reason="uv makes pip's launcher under the name of the image's Python too",
        patterns=("/opt/venv/bin/pip3.*",),
        aspects=_PRESENCE,
    ),
    Allowance(
        reason="podman and buildah label what they build",
        patterns=("label io.buildah.version",),
        aspects=("setting",),
        forms=("podman", "archive", "docker"),
    ),
)
