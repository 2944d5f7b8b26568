"""Reports: what was decided, built and observed. Written beside the image, printed by `--json`."""

from typing import Any, Literal

import msgspec

from graphcrate.model.contract import ContractFinding
from graphcrate.model.lock import Drift
from graphcrate.model.recipe import Additions
from graphcrate.model.values import AnyDigest, AnyFileName, AnySha256, Digest, FileName, ImageName, Size


class BuildParameters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user's request: the external parameters of the build's provenance. Empty is "not said"."""

    recipe: FileName
    variant: str  #: its CUDA version
    candidate: str = ""
    platform: str = ""  #: empty for the default one, too
    target: str = ""
    gpus: tuple[str, ...] = ()
    driver: str = ""
    channel: str = ""
    extensions: Literal["", "auto", "wheels", "source", "none"] = ""
    toolkit: str = ""
    pyg_lib: str = ""  #: where its sources were, as far as another machine has it: "git"
    flavour: str = ""  #: "devel": with compiler and toolkit
    additions: Additions | None = None  #: the user's own; of projects and wheels the names
    slim: Literal["", "yes", "all"] = ""  #: cut to the GPUs


class CandidateOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one candidate. `constraint` says what put it out; empty for the chosen one."""

    candidate: str
    chosen: bool
    constraint: str = ""
    fix: str = ""


class PackageBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one package (or "debian", "bytecode", "files") has in a layer, uncompressed."""

    name: str
    version: str
    bytes: Size


class CutFile(msgspec.Struct, frozen=True, kw_only=True):
    """A library whose code for other GPUs was overwritten by zeros (SLIM)."""

    package: str  #: normalised name
    path: str
    bytes: Size  #: zeros
    packed: Size  #: what it takes in the layer, to a megabyte
    before: Size  #: what it takes in the wheel
    whole: Size = 0  #: fat binaries that stayed whole, since nothing tells their modules apart


class StartUp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Start-up code of an image, run before any line of a program: a file, or a variable of the environment."""

    path: str  #: absolute, or the variable's name
    by: str  #: who runs it, and when: "Python, when it starts"
    package: str = ""  #: that brought it, where one did

    @property
    def sentence(self) -> str:
        """Say what it is, of whom, and who runs it."""
        return f"{self.path}{f' ({self.package})' if self.package else ''} is run by {self.by}"


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a package in the folder of another one, which may load it. Normalised names."""

    package: str
    path: str  #: below site-packages
    other: str


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A layer blob in the cache. `diff_id` and `digest` with `sha256:` before the hex; sizes in bytes."""

    title: str
    digest: Digest
    diff_id: Digest
    size: Size
    unpacked_size: Size  #: of the uncompressed tar
    media_type: str = "application/vnd.oci.image.layer.v1.tar+gzip"
    owners: tuple[PackageBytes, ...] = ()
    cut: tuple[CutFile, ...] = ()
    starts: tuple[StartUp, ...] = ()  #: what of it runs by itself
    replaces: tuple[str, ...] = ()  #: "/path (whose it was)": files of layers below that files of a recipe stand for


class SmokeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a suite inside an image, on a GPU or `cpu`. What follows `reason` is empty if not observed."""

    suite: FileName
    status: Literal["passed", "failed", "skipped"]
    device: str
    seconds: float
    metrics: dict[str, Any] = {}
    reason: str = ""  #: of a failure: which layer of the stack, and what was seen
    layer: str = ""  #: of a failure: the layer at fault, of `smoke.verdict.LAYERS`; empty where nothing tells
    driver: str = ""  #: version of the NVIDIA driver of the machine that it ran on
    runtime: str = ""  #: what ran the image: graphcrate (no engine), docker, podman, apptainer, singularity-ce, pyxis…
    runtime_version: str = ""
    node: str = ""  #: in Slurm: where it ran
    partition: str = ""  #: in Slurm
    job: str = ""  #: in Slurm: its id
    remembered: str = ""  #: when it ran, if it was not run again (ISO 8601, UTC): docs/decisions/remembered-passes.md
    image: str = ""  #: digest of the very thing that it ran in, as in SuiteClaim; empty in reports of older versions
    layout: str = ""  #: digest of the manifest that `image` was made from, or is; empty where that is not known


class SuiteClaim(msgspec.Struct, frozen=True, kw_only=True):
    """That an image passes a suite on a kind of node, under a runtime: all of it is the same where a pass counts."""

    image: AnyDigest  #: digest of the artifact, with `sha256:`; empty where nothing stands for its bytes
    suite: FileName
    version: str  #: of how the suite is run and judged (`smoke.version_of`); its program is in the image
    device: str  #: "2 x Tesla V100-SXM3-32GB", "cpu AMD EPYC 7742": models and how many of them it may see
    driver: str  #: version of the NVIDIA driver; empty on a CPU, which needs none
    runtime: str  #: as in SmokeReport
    runtime_version: str


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was shown once: when (ISO 8601, UTC), and the report of that run."""

    claim: SuiteClaim
    when: str
    report: SmokeReport
    format: Literal[2] = 2


class SharedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a build that a site's shared cache had: `bytes` of it came from there, the others were here."""

    title: str  #: "torch-scatter", "the image"
    place: str  #: as it was named
    bytes: Size
    maker: str  #: who made it, and when
    seconds: float = 0.0  #: that making it took; 0: not known


class OwnTests(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tests of a user's additions to an image: packages are imported, shell commands end with 0."""

    imports: tuple[str, ...] = ()  #: normalised names of distributions
    commands: tuple[str, ...] = ()
    minutes: int = 10  #: the limit of each command

    def __bool__(self) -> bool:
        return bool(self.imports or self.commands)


class UpstreamSuite(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a package's own tests, which ran inside the image."""

    title: str  #: as users call it: "PyG"
    version: str
    passed: Size
    ran: Size  #: passed or failed
    what: str = "tests"

    @property
    def sentence(self) -> str:
        """Describe how much passed: "PyG 2.3.1: 3,649 of 3,665 of its own tests"."""
        return f"{self.title} {self.version}: {self.passed:,} of {self.ran:,} of its own {self.what}"


class UpstreamResults(msgspec.Struct, frozen=True, kw_only=True):
    """Results of `make test-upstream` for an image: upstream.json beside its report."""

    digest: Digest  #: of the image; pytest was in layers above it
    device: str
    date: str  #: UTC, ISO 8601
    suites: tuple[UpstreamSuite, ...]
    format: Literal[1] = 1


class PackageLine(msgspec.Struct, frozen=True, kw_only=True):
    """A package in the image."""

    name: str
    version: str
    channel: str
    index: AnyFileName = ""  #: as in LockedPackage


ArtifactKind = Literal["layout", "docker", "podman", "sif", "sqsh", "registry"]


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A builder's result. `digest` of manifest (layout), image (docker, podman) or file (sif) with `sha256:`."""

    engine: str  #: embedded, docker, podman, apptainer; pyxis for what it alone opens; `engines.table` has its runner
    kind: ArtifactKind
    reference: str
    digest: ImageName
    overlay: str = ""  #: of a sif: path of the delta that goes over it, whose hash `digest` is then
    bytes: Size  #: compressed (layout, sif); as the engine counts it (docker, podman)
    log: str = ""  #: path of the whole output of the build; empty: it has none
    notes: tuple[str, ...] = ()  #: what the image has otherwise than the lock says

    @property
    def layout(self) -> str:
        """Path of the OCI layout; empty for another kind."""
        return self.reference if self.kind == "layout" else ""

    @property
    def location(self) -> str:
        """Return what our commands read it by: a path, or the name in an engine's store."""
        return f"{self.kind}:{self.reference}" if self.kind in ("docker", "podman") else self.reference


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """An audit in numbers, and its findings that break; all of it is in audit.json beside the report."""

    binaries: Size
    fail: Size
    warn: Size
    note: Size
    failures: tuple[str, ...] = ()  #: "package file: what"
    packages: tuple[str, ...] = ()  #: of Debian, which bring libraries that are missing
    allowed: tuple[str, ...] = ()  #: as `failures`, of what the recipe allows, and why
    #: compute capability ("7.0") → "native", "jit" (the driver compiles PTX), "fails" or "unknown"; of older reports {}
    gpus: dict[str, str] = {}


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """A fall-back: an image whose torch was built for another CUDA version than its variant is for (`-compat`)."""

    meaning: str  #: the recipe's words for it
    limits: tuple[str, ...]  #: where it runs and where not, as clauses: "has no code for H100 (sm_90)"
    no_code: tuple[str, ...]  #: GPU models that its torch has no code for
    preferred: str = ""  #: candidate that was built for the variant's CUDA version; empty: the recipe has none
    torch: str = ""  #: of that candidate
    channel: str = ""  #: that has it
    gains: tuple[str, ...] = ()  #: of `no_code`, those that the preferred torch has code for


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """A build's report, as `image --json` prints it and `report.json` holds it.

    `bytes`: the sum of compressed blobs.
    """

    name: FileName
    tag: FileName
    digest: Digest
    artifact: Artifact
    layout: str  #: path of the OCI layout; empty for an engine's image
    bytes: Size
    candidate: str
    torch: str
    torch_cuda: str
    cuda: str
    python: str
    packages: tuple[PackageLine, ...]
    smoke: SmokeReport | None
    seconds: float
    suites: tuple[SmokeReport, ...] = ()  #: every suite that ran; `smoke` is the recipe's first
    outcomes: tuple[CandidateOutcome, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[LayerRecord, ...] = ()
    lock_sha256: AnySha256 = ""
    drift: tuple[Drift, ...] = ()  #: Debian packages of the day of the build in place of those of the committed lock
    unfixed: tuple[str, ...] = ()  #: suites whose packages were taken without the list of their security updates
    contracts: tuple[ContractFinding, ...] = ()  #: what the runtimes' contracts found; none: not asked
    audit: Audited | None = None  #: None: not asked
    fallback: Fallback | None = None  #: None: its torch was built for the CUDA version that the image is for
    asked: BuildParameters | None = None  #: what the user asked for; None: of a version that did not note it
    own: OwnTests = OwnTests()  #: tests beside the recipe's suites
    #: what runs by itself in it, but for what is known to do no harm; None: of a version that did not look
    starts: tuple[StartUp, ...] | None = None
    beside: tuple[Beside, ...] = ()  #: what its packages put into each other's folders, the first file of each
    build_key: str = ""  #: content id of the plan and of the builder's format; equal: nothing to do
    shared: tuple[SharedPart, ...] = ()  #: what came from shared caches
    short: AnyFileName = ""  #: tag that the newest image of its kind goes by: "cu118"; empty: of an older version

    @property
    def image(self) -> str:
        """Return the user's name for it: `name:tag` of a layout, else where the image is."""
        return f"{self.name}:{self.tag}" if self.layout else self.artifact.location

    @property
    def failed(self) -> bool:
        """Return whether the audit or a test has something against it."""
        return bool(self.audit and self.audit.fail) or any(suite.status == "failed" for suite in self.suites)

    @property
    def passed(self) -> bool:
        """Return whether it was tested, and nothing failed."""
        return bool(self.suites) and not self.failed

    def is_from_below(self, suite: SmokeReport) -> bool:
        """Return whether a result is that of the stack's image below this one. Older versions noted no image."""
        return suite.image not in ("", self.artifact.digest)

    @property
    def reference(self) -> str:
        """Return what the next command takes: `name:tag@digest` of a layout, `name:tag` in a store, a file's path."""
        return f"{self.image}@{self.digest}" if self.layout else self.artifact.reference
