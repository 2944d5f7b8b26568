"""The plan as lines for people: the candidate, the base, the packages, what is compiled and fetched."""

from collections.abc import Sequence

from graphcrate.compat import fallback
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.report import Outcome
from graphcrate.model.words import size


def plan_lines(title: str, lock: Lock, outcomes: Sequence[Outcome], meaning: str, to_fetch: int) -> list[str]:
    """The plan for people: what was chosen and why, what will be in the image, from where, how many bytes."""
    lines = [f"plan for {title}"]
    for outcome in outcomes:
        if outcome.chosen:
            lines.append(f"  candidate {outcome.candidate}: chosen" + (f": {meaning}" if meaning else ""))
            torch = lock.package("torch")
            limits = fallback.limits(torch.version if torch else "", lock.torch_cuda, lock.cuda)
            lines += [f"    it {limit}" for limit in limits]
        else:
            fix = f" ({outcome.fix})" if outcome.fix else ""
            lines.append(f"  candidate {outcome.candidate}: out: {outcome.constraint}{fix}")
    if isinstance(lock.base, DebianBase):
        total = sum(package.file.size for package in lock.base.packages)
        lines.append(f"  base      Debian {lock.base.suite}, {len(lock.base.packages)} packages, {size(total)}")
    else:
        lines.append(f"  base      {lock.base.reference}@{lock.base.digest}")
    for channel in dict.fromkeys(package.channel for package in lock.packages):
        members = [package for package in lock.packages if package.channel is channel]
        total = sum(package.file.size for package in members)
        largest = sorted(members, key=lambda package: -package.file.size)[:4]
        names = ", ".join(f"{package.name} {package.version}" for package in largest)
        more = f" and {len(members) - len(largest)} more" if len(members) > len(largest) else ""
        lines.append(f"  {channel.value:9} {len(members)} packages, {size(total)}: {names}{more}")
    lines += _compiled_lines(lock)
    for missing in lock.missing:
        cost = f"; without it: {missing.cost}" if missing.cost else ""
        lines.append(f"  missing   {missing.name}: {missing.reason}{cost}")
    lines += [f"  note      {note}" for note in lock.notes]
    lines.append(f"  to fetch  {size(to_fetch)} of {size(lock.download_bytes)}")
    return lines


def _compiled_lines(lock: Lock) -> list[str]:
    """What of the packages comes as source and is compiled, with what and for which GPUs."""
    compiled = [f"{package.name} {package.version}" for package in lock.packages if package.compiled]
    if not compiled or lock.compilation is None:
        return []
    compilation = lock.compilation
    nvcc = f" and nvcc {compilation.toolkit.version}" if compilation.toolkit else ""
    gpus = f" for {', '.join(compilation.architectures)}" if compilation.architectures else " for the CPU"
    return [f"  compile   {', '.join(compiled)}{gpus}, with {compilation.compiler}{nvcc}"]
