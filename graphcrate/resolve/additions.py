"""A person's packages on top of a stack: torch, CUDA and what is compiled for them stay, everything else may move.

uv sees what stays as empty wheels of those names and versions, and keeps the other versions of the stack's lock where
nothing is against them. So a package that wants another torch is refused with who wants what, and an image with one
more package shares its layers with the stack's own.
"""

import difflib
import hashlib
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat import own, toolkits
from graphcrate.host import settings
from graphcrate.host.cache import kept
from graphcrate.inputs.wheels import project
from graphcrate.inputs.wheels.sdist import SdistMetadata, build_requires, compiled_sources, read_sdist
from graphcrate.model.errors import IntegrityError, LockedError, ResolutionError
from graphcrate.model.lock import Added, Compilation, Lock, LockedPackage, encode
from graphcrate.model.recipe import Additions, Channel, Variant
from graphcrate.resolve import built_for, fetch
from graphcrate.resolve.base import lock_base, lock_compiler
from graphcrate.resolve.channels import Link
from graphcrate.resolve.extensions import TOOLS, Means, lock_compilation, means_for
from graphcrate.resolve.locks import Resolution, ResolveContext
from graphcrate.resolve.offers import Offer, Offers
from graphcrate.resolve.pinning import constraints_of, lock_offer, lock_offers, resolve_pins
from graphcrate.resolve.resolver import PYG, lock_back_end, lock_sdist
from graphcrate.resolve.target import project_and_version, target_of

#: Raise it whenever the same additions would be resolved otherwise.
RULES = 3
_STAYS = re.compile(rf"torch|triton|{PYG}|(nvidia|cuda)-.*")
#: of uv's words: a package that is there as source only
_SOURCE_ONLY = re.compile(r"Wheels are required for `([^`]+)`")
_ABSENT = re.compile(r"Because (\S+) was not found in the package registry")
#: what uv says around its explanation, and advice that is about uv's options
_UV_WORDS = re.compile(r"^(error: .*\n|  cause: |hint: Wheels are.*\n?)", re.M)
#: what people add most, for the nearest name
WELL_KNOWN = (
    "accelerate", "datasets", "deepspeed", "dgl", "einops", "faiss-cpu", "fastapi", "flask", "graphviz", "h5py",
    "hydra-core", "ipykernel", "jupyterlab", "lightning", "matplotlib", "mlflow", "mpi4py", "networkx", "numba",
    "numpy", "omegaconf", "opencv-python-headless", "optuna", "pandas", "peft", "pillow", "polars", "pyarrow",
    "pytorch-lightning", "pyyaml", "ray", "rdkit", "scikit-learn", "scipy", "seaborn", "sentencepiece",
    "tensorboard", "timm", "tokenizers", "torchaudio", "torchdata", "torchmetrics", "torchvision", "tqdm",
    "transformers", "wandb", "xgboost",
)  # fmt: skip
_MOST_TURNS = 12  #: of uv, each with one more sdist


def add(
    context: ResolveContext,
    resolution: Resolution,
    additions: Additions,
    committed: Lock | None,
    *,
    fresh: bool = False,
) -> Resolution:
    """The resolution with the additions' packages in its lock, which says which those are.

    `committed`: the lock beside a person's recipe; it and the cache's are taken as long as they answer the same
    request, but for `fresh`. Raises ResolutionError for what contradicts the stack or does not exist, NetworkError,
    BuildError for a project that cannot be made a wheel, LockedError when only committed locks may answer.
    """
    ctx, stack, only_committed = context.ctx, resolution.lock, context.request.locked
    offers = Offers.of_lock(context.sources, stack)
    packages = own.wanted_packages(additions)
    local = [_store_local(package, offers, context) for package in packages if own.is_local(package)]
    named = [package for package in packages if not own.is_local(package)]
    # By what the stack is, not by what it was asked for: the same request is locked anew with other packages.
    asked = [RULES, stack.contents_sha256, stack.candidate, additions.constraints, sorted(additions.apt), sorted(named)]
    asked.append(sorted(one.file.sha256 for one in local))
    if additions.channels:  # by name: an address may hold a password
        asked.append([source.title for source in context.sources.user.further])
    digest = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
    record = ctx.cache.path("resolutions", f"{digest}.json")
    if not fresh:
        for lock in (committed, None if only_committed else kept(record, Lock)):
            if lock is not None and lock.request_sha256 == digest:
                return msgspec.structs.replace(resolution, lock=_compiled_as(stack, lock))
    if only_committed:
        is_other = "the lock beside your recipe answers other packages, or another stack"
        raise LockedError(
            is_other if committed else "what you add to the stack is not locked",
            cause="LOCKED=yes (--locked) builds from committed locks alone.",
            next_step="./build.py lock ./mine.toml    (a recipe of your own has its lock beside it)",
        )
    ctx.progress.note("resolving the packages on top of the stack")
    lock = _Resolver(context, resolution, additions, local, named, offers).lock(digest)
    ctx.cache.keep(record, encode(lock))
    return msgspec.structs.replace(resolution, lock=_compiled_as(stack, lock))


def _compiled_as(stack: Lock, lock: Lock) -> Lock:
    """The lock with the compiler and toolkit of today's request (GPUs, a devel image), which the stack's lock has."""
    compilation = stack.compilation
    if lock.compilation and any(one.compiled and one.name in lock.additions.packages for one in lock.packages):
        # With the Debian packages that were added.
        compilation = msgspec.structs.replace(compilation or lock.compilation, base=lock.compilation.base)
    return msgspec.structs.replace(lock, compilation=compilation)


class _Resolver:
    """One resolution of additions."""

    def __init__(
        self,
        context: ResolveContext,
        resolution: Resolution,
        additions: Additions,
        local: Sequence[LockedPackage],
        named: Sequence[str],
        offers: Offers,
    ) -> None:
        self._context, self._candidate, self._stack = context, resolution.candidate, resolution.lock
        self._additions, self._offers, self._cache = additions, offers, context.ctx.cache
        self._given = local
        self._local = {one.name: one for one in local if not one.compiled}
        self._target = target_of(context.variant.base, context.variant.python)
        self._staying = {one.name: one for one in self._stack.packages if _stays(one)}
        self._title = f"{self._stack.recipe} for CUDA {self._stack.cuda}"
        self._asked = [one for one in map(Requirement, named) if not self._stays_for(one)]
        self._with_cuda = False  #: whether something with CUDA sources is compiled
        self._sdists = {one.name: self._lock_source(one) for one in local if one.compiled}
        self._by_source = {*self._sdists}  #: packages that are there as source only

    def lock(self, digest: str) -> Lock:
        """The stack's lock with what was asked for, and all that it needs."""
        stack, ctx = self._stack, self._context.ctx
        with self._cache.folder() as stays, self._cache.folder() as sources:
            self._sources = sources
            for one in self._sdists.values():
                _stand_in(sources, one.name, one.version)
            self._stays = [f"{name} @ {_stand_in(stays, name, one.version)}" for name, one in self._staying.items()]
            pinned, notes = self._pinned()
        there = {one.name: one for one in stack.packages}
        new = [one for one in pinned if one.name not in there or there[one.name].version != one.version]
        wheels = lock_offers((one for one in new if one.name not in self._sdists), self._offers.sources)
        sdists = [self._sdists[one.name] for one in new if one.name in self._sdists]
        packages = {one.name: one for one in (*wheels, *sdists, *self._local.values())}
        links = {one.name: one.link for one in new}
        _check_hashes(packages.values(), self._additions.hashes)
        built_for.check(packages.values(), links, self._offers, ctx.progress)
        moved = tuple(sorted(name for name in packages if name in there))
        notes += [f"{name} {packages[name].version} instead of the stack's {there[name].version}" for name in moved]
        variant = own.with_apt(self._context.variant, self._additions)
        base = lock_base(ctx, variant) if self._additions.apt else stack.base
        return msgspec.structs.replace(
            stack,
            created=int(settings.now()),
            request_sha256=digest,
            base=base,
            compilation=self._compilation(variant),
            packages=tuple(sorted({**there, **packages}.values(), key=lambda one: one.name)),
            notes=(*stack.notes, *notes),
            added=Added(
                packages=tuple(sorted(packages)),
                asked=tuple(dict.fromkeys([*map(_name, self._asked), *(one.name for one in self._given)])),
                moved=moved,
            ),
        )

    def _stays_for(self, wanted: Requirement) -> bool:
        """Whether it is of what stays. Raises ResolutionError where another version is asked for."""
        staying = self._staying.get(_name(wanted))
        if staying and not wanted.specifier.contains(Version(staying.version).public, prereleases=True):
            raise self._refusal(f"{wanted} is asked for, and {self._title} has {staying.name} {staying.version}")
        return staying is not None

    def _refusal(self, what: str) -> ResolutionError:
        return ResolutionError(
            what,
            cause=f"torch {self._staying['torch'].version}, CUDA and what is compiled for them stay as they are.",
            next_step="./build.py list    (stacks with other versions), or ask for another version of the package",
        )

    def _pinned(self) -> tuple[tuple[Offer, ...], list[str]]:
        """What uv chooses, and what is to be known of it."""
        newest = {_name(one): version for one in self._asked if (version := self._newest(one))}
        for _ in range(_MOST_TURNS):
            try:
                pinned = self._ask_uv()
            except ResolutionError as error:
                if self._take_source(error):
                    continue
                raise self._explained(error) from error
            chosen = {one.name: one.version for one in pinned}
            older, retry = [], False
            for name, version in newest.items():
                have = chosen.get(name)
                if have and Version(have) < version and name not in self._sdists:
                    try:
                        self._ask_uv(f"{name}=={version}")
                    except ResolutionError as error:
                        retry = self._take_source(error) or retry
                        older.append(f"{name} {have}, not {version}: {_first_reason(error)}")
            if retry or self._take_requirements(pinned):
                continue
            return pinned, older
        raise ResolutionError("the packages need one another in too many ways", next_step="pin them: package==1.2")

    def _ask_uv(self, *more: str) -> tuple[Offer, ...]:
        lines = [*self._context.recipe.requirements, *self._context.variant.requirements, *map(str, self._asked)]
        for one in self._sdists.values():
            lines += [f"{one.name}=={one.version}", *read_sdist(self._stored(one), one.file.name).requires]
        local = [f"{one.name} @ {self._stored(one).absolute().as_uri()}" for one in self._local.values()]
        return resolve_pins(
            [*(one for one in lines if _name(Requirement(one)) not in self._staying), *self._stays, *local, *more],
            self._target,
            self._offers,
            constraints=[*constraints_of(self._staying["torch"].version), *self._additions.constraints],
            preferred=[one for one in self._stack.packages if one.name not in self._staying],
            wheels=self._sources,
        )

    def _stored(self, package: LockedPackage) -> Path:
        return self._cache.file(package.file.sha256, package.file.name)

    def _newest(self, wanted: Requirement) -> Version | None:
        """The newest final release that was not excluded; None for a package of which the version is given."""
        if any(part.operator in ("==", "===") for part in wanted.specifier):
            return None
        releases = self._offers.releases(_name(wanted))
        fitting = {Version(one.version) for one in releases if one.is_sdist or self._target.rank(one.link.name)}
        return max(wanted.specifier.filter(one for one in fitting if not one.is_prerelease), default=None)

    def _take_source(self, error: ResolutionError) -> bool:
        """Let uv choose among the sdists of a package that has no wheels. False where that is not what failed."""
        new = {str(canonicalize_name(name)) for name in _SOURCE_ONLY.findall(error.what)} - self._by_source
        self._by_source |= new
        for name in new:
            for one in self._sdists_of(name):
                _stand_in(self._sources, name, one.version)
        return bool(new)

    def _sdists_of(self, name: str) -> list[Offer]:
        return [one for one in self._offers.releases(name) if one.is_sdist and one.link.sha256]

    def _take_requirements(self, pinned: Sequence[Offer]) -> bool:
        """Lock the sdists that uv chose; True where there are new ones, whose own requirements count from now on."""
        new = False
        for one in pinned:
            known = self._sdists.get(one.name)
            if one.name in self._by_source and (known is None or known.version != one.version):
                sdist = next(sdist for sdist in self._sdists_of(one.name) if sdist.version == one.version)
                self._sdists[one.name] = self._lock_source(lock_offer(sdist, self._offers.sources))
                new = True
        return new

    def _lock_source(self, package: LockedPackage) -> LockedPackage:
        """An sdist with its back-end, or one to be compiled with what that needs beside the lock's tools."""
        path = self._stored(package)
        if not (sources := compiled_sources(path)):
            return lock_sdist(package, self._offers)
        about = read_sdist(path, path.name)
        if obstacle := self._obstacle(about):
            raise ResolutionError(
                f"{package.name} {package.version} is there as source only, and has to be compiled ({sources[0]})",
                cause=obstacle,
                next_step=f"bring a wheel of it (--with ./{package.name}-….whl), or ask for another version",
            )
        self._with_cuda = self._with_cuda or any(name.endswith(".cu") for name in sources)
        there = {*self._staying, *(_name(Requirement(tool)) for tool in TOOLS)}
        needed = [one for one in about.build_requires if _name(Requirement(one)) not in there]
        constraints = constraints_of(self._staying["torch"].version)
        pinned = resolve_pins(
            needed, self._target, self._offers, constraints=constraints, preferred=self._stack.packages
        )
        build = lock_offers((one for one in pinned if one.name not in there), self._offers.sources)
        return msgspec.structs.replace(package, build=build)

    def _obstacle(self, about: SdistMetadata) -> str:
        """Why an sdist cannot be compiled; empty where it can."""
        if not about.is_setup:
            return "Only what setuptools builds by a setup.py is compiled."
        try:
            self._means()
        except ResolutionError as error:
            return error.what
        return ""

    def _means(self) -> Means:
        return means_for(self._context.variant, self._candidate, self._offers.sources.request)

    def _compilation(self, variant: Variant) -> Compilation | None:
        """With what the additions are compiled: what the stack has, or the compiler alone where no CUDA is wanted."""
        compilation = self._stack.compilation
        if not any(one.compiled for one in self._sdists.values()):
            return compilation
        ctx = self._context.ctx
        if compilation is None:
            means = self._means()
            if not self._with_cuda:
                means = msgspec.structs.replace(means, option=None, architectures=())
            elif means.option and not means.architectures:  # a stack that has nothing to compile names none
                torch, cuda = self._staying["torch"].version, self._candidate.torch_cuda
                found = toolkits.architectures_of(torch, cuda, means.option.version)
                means = msgspec.structs.replace(means, architectures=found)
            return lock_compilation(means, variant, self._stack.packages, self._offers, ctx)
        if not self._additions.apt:
            return compilation
        base = lock_compiler(ctx, variant, compilation.base.suite, compilation.compiler)
        return msgspec.structs.replace(compilation, base=base)

    def _explained(self, error: ResolutionError) -> ResolutionError:
        """uv's explanation without its own advice; for a name that no index has, the nearest that we know."""
        text = "\n".join(error.what.splitlines()[1:])
        what = f"these packages cannot be added to {self._title}"
        if absent := _ABSENT.search(text):
            name = absent[1]
            near = difflib.get_close_matches(name, {*WELL_KNOWN, *(one.name for one in self._stack.packages)}, n=3)
            return ResolutionError(
                f"{what}: the package index has no {name}" + (f"; did you mean {' or '.join(near)}?" if near else ""),
                next_step="look the name up where the package is documented: it may differ from what is imported",
            )
        return self._refusal(f"{what}\n{_UV_WORDS.sub('', text).rstrip()}")


def _check_hashes(packages: Iterable[LockedPackage], hashes: Mapping[str, Sequence[str]]) -> None:
    """Raises IntegrityError for a file that a requirements file with hashes does not name."""
    for one in packages:
        known = hashes.get(one.name)
        if known and one.channel is Channel.PYPI and one.file.sha256 not in known:
            raise IntegrityError(
                f"{one.file.name} has sha256 {one.file.sha256}, which your requirements do not name",
                cause="The index has another file of that version than when the hashes were written, or a newer one.",
                next_step=f"write the hashes of {one.name} again, or take them out: the lock has its own",
            )


def _name(wanted: Requirement) -> str:
    return str(canonicalize_name(wanted.name))


def _stays(package: LockedPackage) -> bool:
    """torch, CUDA, PyG, and what is compiled against torch or comes from a channel of its own."""
    return package.compiled or package.channel is not Channel.PYPI or bool(_STAYS.fullmatch(package.name))


def _stand_in(folder: Path, name: str, version: str) -> str:
    """Write an empty wheel of this name and version; its address."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path.as_uri()


def _first_reason(error: ResolutionError) -> str:
    """The sentence of uv's explanation that says who wants what, on one line."""
    text = " ".join(error.what.split())
    found = re.search(r"Because (.*?)(?:, we can conclude|\.$|\. And)", text)
    return found[1] if found else "another package is against it"


def _store_local(package: str, offers: Offers, context: ResolveContext) -> LockedPackage:
    """A wheel file, a project's folder or a commit, in the cache: as a wheel, or as an sdist to be compiled."""
    sources = offers.sources
    environment = settings.select_for_child(context.ctx.environment, project.GIT_VARIABLES)
    note = context.ctx.progress.note

    def back_end(folder: Path) -> Sequence[Path]:
        wheels = lock_back_end(build_requires(folder), package, offers)
        for one in wheels:
            fetch.fetch_one(one, offers)
        return [sources.cache.file(one.file.sha256, one.file.name) for one in wheels]

    if package.startswith("/") and package.endswith(".whl"):
        path = Path(package)
    elif package.startswith("/"):
        path = project.of_folder(Path(package), back_end, sources.cache, environment, note)
    else:
        path = project.of_commit(package, back_end, sources.cache, environment, note)
    target, known = target_of(context.variant.base, context.variant.python), project_and_version(path.name)
    is_sdist = path.suffix != ".whl"
    if known is None or not (is_sdist or target.rank(path.name)):
        raise ResolutionError(
            f"{path} is not for this image, which has Python {target.python} and glibc {target.glibc}",
            cause="Its name says for which Python and system a wheel was built.",
            next_step=f"bring a wheel for cp{target.python.replace('.', '')}, or its project's folder",
        )
    file = fetch.store_unhashed(Link(name=path.name, url=path.absolute().as_uri()), sources.client, sources.cache)
    return LockedPackage(name=str(known[0]), version=str(known[1]), channel=Channel.LOCAL, file=file, compiled=is_sdist)
