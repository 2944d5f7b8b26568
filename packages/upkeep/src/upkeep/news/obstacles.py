"""Obstacles to a variant's newer torch: GPUs and features that are lost, packages and platforms that lack it. Pure."""

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import driver_table, facts, glt, gpu_table, pairs, suites, toolkits
from graphcrate.compat.facts.facts import TorchBuild, numbers
from graphcrate.compat.facts.gpu_table import models_named
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.words import listed
from upkeep.news.followed import Followed, News
from upkeep.releases import ListedRelease


def torch_obstacles(
    line: Followed, cuda: str, release: ListedRelease, news: News, before: TorchBuild | None
) -> Iterator[str]:
    """Yield the reasons why a variant does not get a torch. `before`: facts of the torch that it would replace."""
    variant, target = line.variant, line.target()
    if not release.fits(target):
        yield f"it has no wheel for Python {variant.python} and glibc {target.glibc}"
    if cuda == variant.cuda:
        for platform in map(platform_named, line.ported):
            yield from against_port(line, cuda, release, news, platform)
    if cuda == "cpu":
        return
    if not driver_table.oldest_driver(cuda):
        yield f"which driver CUDA {cuda} needs is not known: compat/data/drivers.toml has no row for it"
    build = news.build(release.version, cuda)
    if build is None:
        yield "its wheel was not measured"
        return
    if build.glibc and facts.is_older(target.glibc, build.glibc):
        yield f"it needs glibc {build.glibc}, and {suites.of_base(variant.base) or 'the base'} has {target.glibc}"
    if line.variant.extensions and not toolkits.options(cuda):
        yield f"no toolkit is known that compiles extensions for CUDA {cuda}: compat/data/toolkits.toml"
    if cuda == variant.cuda:
        yield from unaccompanied(line, release, news, DEFAULT).values()
    if before is not None:
        if lost := models_without(before, build):
            yield f"it has no code for {models_named(lost)}, which torch {before.torch} runs on"
        newest = numbers(build.compile_python)
        if newest and newest < numbers(variant.python) <= numbers(before.compile_python):
            yield f"its torch.compile takes no Python after {build.compile_python}, and this is {variant.python}"
    yield from _graphlearn(line, str(release.number), cuda)


def against_port(line: Followed, cuda: str, release: ListedRelease, news: News, platform: Platform) -> tuple[str, ...]:
    """Return the reasons why a variant's image for another platform cannot have a torch."""
    target, build = line.target(platform), news.build(release.version, cuda, platform)
    if not release.fits(target):
        return (f"it has no wheel for {platform.title}, Python {target.python} and glibc {target.glibc}",)
    if build is None:
        others = [other.cuda for other in news.ported.get(platform.name, ()) if other.torch == str(release.number)]
        return (f"its wheel for {platform.title} " + (f"has CUDA {others[0]}" if others else "was not measured"),)
    reasons = []
    if build.glibc and facts.is_older(target.glibc, build.glibc):
        reasons.append(f"its wheel for {platform.title} needs glibc {build.glibc}, and the base has {target.glibc}")
    absent = unaccompanied(line, release, news, platform) if cuda == line.variant.cuda else {}
    reasons += [f"for {platform.title}: {reason}" for reason in absent.values()]
    lock = line.ported[platform.name]
    torch = lock.package("torch")
    before = news.build(torch.version, lock.torch_cuda, platform) if torch else None
    models = models_without(before, build) if before else ()
    lost = [model for model in models if gpu_table.host_platform(model) == platform]
    if before and lost:
        reasons.append(
            f"its wheel for {platform.title} has no code for {models_named(lost)}, which that of "
            f"torch {before.torch} runs on"
        )
    return tuple(reasons)


def unaccompanied(line: Followed, release: ListedRelease, news: News, platform: Platform) -> dict[str, str]:
    """Return requirements of a variant, torchvision and torchaudio, that have no release for a torch, each with why."""
    target = line.target(platform)
    allowed = {(asked := Requirement(text)).name: asked for text in pairs.constraints(release.version)}
    absent = {}
    for text in line.variant.requirements:
        name = str(canonicalize_name(Requirement(text).name))
        offered = news.companions.get(name, ())
        if name not in allowed or not offered:
            continue
        if not any(allowed[name].specifier.contains(str(other.number)) and other.fits(target) for other in offered):
            newest = offered[-1].version
            absent[text] = f"{allowed[name]} goes with torch {release.version}, and the index ends with {newest}"
    return absent


def _graphlearn(line: Followed, torch: str, cuda: str) -> Iterator[str]:
    """Yield the reasons why the graphlearn-torch of a recipe does not work with a torch."""
    variant = line.variant
    written = map(Requirement, (*line.recipe.requirements, *variant.requirements))
    asked = next((each for each in written if canonicalize_name(each.name) == glt.NAME), None)
    if asked is None:
        return
    fitting = [
        release.version
        for release in glt.releases()
        if asked.specifier.contains(release.version)
        and not glt.judge(release.version, torch, cuda, variant.python, ("torch-sparse", "torch-scatter")).reasons
    ]
    if not fitting:
        known = listed(release.version for release in glt.releases() if asked.specifier.contains(release.version))
        yield f"graphlearn-torch {known or str(asked.specifier)} does not work with it: compat/data/glt.toml"


def _runs(build: TorchBuild, capability: str) -> bool:
    """Return whether a torch has code for a GPU, or PTX that a driver compiles for it."""
    by_ptx = any(facts.compiles_for(ptx, capability) for ptx in build.ptx or ())
    return facts.has_code(build.sm, capability) or by_ptx


def models_without(first: TorchBuild, other: TorchBuild) -> tuple[str, ...]:
    """Return the GPU models of lists that the first runs on and the other does not."""
    return tuple(
        model
        for model, capability in gpu_table.gpus().items()
        if _runs(first, capability) and not _runs(other, capability)
    )
