"""Choose the variant of a recipe that runs on a target, and explain the others, by `compat.variants.rules`.

`make image` without CUDA takes what `explain` calls chosen, and refuses by the same verdicts what cannot run.
"""

import datetime
import difflib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import facts, glt, suites, toolkits, torch_compile
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants import catalog, ported, rules, targets
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.compat.variants.rules import Judgement, Reason, Software, Status
from graphcrate.compat.variants.targets import MachineRequest, NodeFabric, Partition, Target
from graphcrate.host.context import Context
from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.audit import GpuVerdict
from graphcrate.model.command import Setting, command, filled, setting
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import CandidateOutcome

#: what is built where neither a CUDA version nor a machine is named
USUAL_CUDA = "11.8"
_USUAL = "the default where no machine is named, which runs on most"
_WORDS = {
    "native": "runs natively", "jit": "runs, slow first start", "unknown": "not known", "rejected": "does not run",
}  # fmt: skip
_STYLES = {"rejected": "red", "unknown": "dim", "jit": "yellow", "native": "green"}


class Judgements(NamedTuple):
    """The verdict of an image that is built for the target's GPUs, and of the one for no GPU in particular."""

    built: Judgement
    plain: Judgement

    @property
    def is_only_built(self) -> bool:
        """Return whether it runs where it was built for these GPUs, and not else."""
        return self.built.accepted and not self.plain.accepted


class ExplainRow(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of a variant, judged. `command` builds its image for the target.

    `plain`: the status of the image that is built for no GPU in particular.
    `support`: that its base gets no security updates any more, and which variant's does; empty where it gets some.
    """

    recipe: str
    cuda: str
    candidate: str
    torch: str
    torch_geometric: str
    verdict: Judgement
    plain: Status
    chosen: bool
    command: str
    base: str = ""  #: its Debian, where one is known
    support: str = ""
    python: str = ""
    exclude_newer: str = ""  #: the day as of which its packages are


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`explain --json`: the newest first. `asked`: the CUDA version that was asked about."""

    target: Target
    name: str
    asked: str
    rows: tuple[ExplainRow, ...]


class VariantChoice(NamedTuple):
    """The result of choosing: the variant's candidates that run on the machine, and those that are out."""

    recipe: Recipe
    variant: Variant
    gpu: str  #: "v100,a100"; empty: no GPU, or none was named
    usable: tuple[Candidate, ...]
    out: tuple[CandidateOutcome, ...] = ()


def find_target(ctx: Context, described: MachineRequest) -> Target:
    """Join what was said of the machine with the target that it names. Raises UsageError, RecipeError."""
    if not described.target:
        return targets.merge_target(described, Target())
    paths = {path.stem: path for path in sorted((ctx.root / "targets").glob("*.toml"))}
    path = Path(described.target) if described.target.endswith(".toml") else paths.get(described.target.lower())
    if path is None or not path.is_file():
        near = difflib.get_close_matches(described.target.lower(), paths, n=2, cutoff=0.3)
        raise UsageError(
            f"there is no target {described.target!r}" + (f"; the nearest is {' or '.join(near)}" if near else ""),
            next_step=f"choose one of: {', '.join(paths)}    (or the path of a .toml like those in targets/)",
        )
    return targets.merge_target(described, targets.load(path))


class SlurmPartition(NamedTuple):
    """A partition of Slurm, and the network between its nodes where that is known."""

    name: str
    partition: Partition
    fabric: NodeFabric | None


def find_partition(ctx: Context, name: str, target: str) -> SlurmPartition | None:
    """Find a partition of Slurm in the target that is named, or in any; without a name, a target's only one.

    Raises UsageError, RecipeError.
    """
    names = [target] if target else [path.stem for path in sorted((ctx.root / "targets").glob("*.toml"))]
    for target_name in names:
        machine = find_target(ctx, MachineRequest(target=target_name))
        known = machine.partitions
        chosen = next(iter(known)) if target and not name and len(known) == 1 else name
        if chosen in known:
            return SlurmPartition(chosen, known[chosen], machine.fabric)
    return None


def select_variant(request: BuildRequest, ctx: Context) -> VariantChoice:
    """Choose what a request amounts to, for its platform. Raises UsageError, RecipeError, ResolutionError."""
    chosen = _for_machine(request, ctx)
    platform = _platform_of(request, chosen.gpu)
    if platform == DEFAULT:
        return chosen
    variant, usable, out = ported.port(chosen.recipe, chosen.variant, chosen.usable, platform, request)
    return chosen._replace(variant=variant, usable=usable, out=(*chosen.out, *out))


def _platform_of(request: BuildRequest, gpus: str) -> Platform:
    """Return the platform of an image: as asked for, else of the machines of its GPUs. Raises UsageError."""
    models = facts.gpu_models(gpus) if gpus else ()
    platform = platform_named(request.platform) if request.platform else facts.machine_platform(models)
    others = [model for model in models if (facts.host_platform(model) or platform) != platform]
    if platform is None or others:
        each = ", ".join(f"{model}: {other.name}" for model in models if (other := facts.host_platform(model)))
        raise UsageError(
            f"no image is for {' and '.join(models)}"
            + (f" and for {platform.name}" if platform else "")
            + f": machines with them are of another kind ({each})",
            next_step=_of_each_kind(request, models),
        )
    return platform


def _of_each_kind(request: BuildRequest, models: Sequence[str]) -> str:
    """Say what to type for GPUs whose machines are of several platforms: an image for each."""
    if not request.machine.gpu:
        return "a target whose GPUs are in machines of one kind    (targets/)"
    kinds = dict[Platform, list[str]]()
    for model in models:
        if host := facts.host_platform(model):
            kinds.setdefault(host, []).append(model.lower())
    machines = (msgspec.structs.replace(request.machine, gpu=",".join(gpus)) for gpus in kinds.values())
    alone = (msgspec.structs.replace(request, machine=machine, platform="") for machine in machines)
    several = "    (one tag of a registry can have both)" if len(kinds) > 1 else ""
    return "; then ".join(str(each.command()) for each in alone) + several


def _for_machine(request: BuildRequest, ctx: Context) -> VariantChoice:
    """Choose the CUDA version, the GPUs and the candidates of a request, with a note of what was chosen.

    Raises UsageError, RecipeError, ResolutionError where nothing runs.
    """
    cuda, machine = request.cuda, request.machine
    again = lambda cuda: msgspec.structs.replace(request, cuda=cuda).command()  # noqa: E731
    if machine == MachineRequest():
        if cuda is None:
            ctx.progress.note(
                f"CUDA {USUAL_CUDA}: {_USUAL}; {setting(gpu='…')} or {setting(target='…')} takes the newest that runs "
                "there"
            )
        recipe, variant = catalog.find_variant(ctx, request.name, cuda or USUAL_CUDA, again)
        return VariantChoice(recipe, variant, "", variant.candidates)
    recipe = catalog.find_recipe(ctx, request.name)
    explanation = explain(recipe, find_target(ctx, machine), machine, own=request.recipe)
    if was_chosen := cuda is None:
        row = chosen_row(explanation)
        if row is None:
            raise nothing_runs(explanation)
        cuda = row.cuda
        ctx.progress.note(f"CUDA {cuda} for {_machine(explanation)}: the newest of {row.recipe} that runs there")
        for line in _details(row, row.cuda, explanation.target.gpus or ()):
            ctx.progress.note(f"  {line}")
    recipe, variant = catalog.find_variant(ctx, request.name, cuda, again)
    usable, out = _usable(variant, explanation)
    if not was_chosen:
        verdicts = {row.candidate: row.verdict for row in explanation.rows if row.cuda == cuda}
        for line in verdicts[usable[0].name].lost:
            ctx.progress.note(line)
    return VariantChoice(recipe, variant, ",".join(explanation.target.gpus or ()).lower(), usable, out)


def _usable(variant: Variant, explanation: Explanation) -> tuple[tuple[Candidate, ...], tuple[CandidateOutcome, ...]]:
    """The variant's candidates that run on that machine, and what became of the others. Raises UsageError for none."""
    verdicts = {row.candidate: row.verdict for row in explanation.rows if row.cuda == variant.cuda}
    out = tuple(
        CandidateOutcome(
            candidate=candidate.name, chosen=False, constraint=verdict.reasons[0].what, fix=verdict.reasons[0].fix
        )
        for candidate in variant.candidates
        if not (verdict := verdicts[candidate.name]).accepted
    )
    if fitting := tuple(candidate for candidate in variant.candidates if verdicts[candidate.name].accepted):
        return fitting, out
    row = chosen_row(explanation)
    accepted = dict.fromkeys(row.cuda for row in explanation.rows if row.verdict.accepted)
    others = f"    (what runs there: {', '.join(sorted(accepted, key=numbers))})"
    first = next(iter(verdicts.values())).reasons[0]
    raise UsageError(
        f"CUDA {variant.cuda} of {explanation.rows[0].recipe} does not run on {_machine(explanation)}",
        cause="; ".join(dict.fromkeys(outcome.constraint for outcome in out)),
        next_step=row.command + others if row else _apart(explanation.target) or _step(first),
    )


def explain(
    recipe: Recipe,
    target: Target,
    machine: MachineRequest,
    cuda: str | None = None,
    today: datetime.date | None = None,
    own: Path | None = None,
) -> Explanation:
    """Judge every candidate, the newest first. `cuda`: the version that was asked about.

    `today`: say which bases get no security updates any more. `own`: the user's own recipe, for the commands.

    Chosen is the newest that runs, by machine code or by PTX, else the newest of unknown verdict; without a GPU the
    variant for the CPU, a tenth of the size; without a word on the machine the usual one.
    """
    rows = [row for variant in recipe.variants for row in _rows(recipe, variant, target, machine, own)]
    rows.sort(key=_age, reverse=True)  # stable: candidates stay in the recipe's order
    if today:
        rows = [_with_support(row, rows, today) for row in rows]
    accepted = [row for row in rows if row.verdict.accepted]
    if target.gpus == ():
        accepted = [row for row in accepted if row.cuda == "cpu"] or accepted
    if machine == MachineRequest():
        accepted = [row for row in accepted if row.cuda == USUAL_CUDA] or accepted
    chosen = next(iter([row for row in accepted if row.verdict.status != "unknown"] or accepted), None)
    return Explanation(
        target=target,
        name=machine.target,
        asked=cuda or "",
        rows=tuple(msgspec.structs.replace(row, chosen=row is chosen) for row in rows),
    )


def chosen_row(explanation: Explanation) -> ExplainRow | None:
    """Return the row that `make image` would build; None where nothing runs."""
    return next((row for row in explanation.rows if row.chosen), None)


def nothing_runs(explanation: Explanation) -> ResolutionError:
    """Return the error where every candidate is rejected: it names the oldest, which requires the least."""
    oldest = min((row for row in explanation.rows if row.cuda != "cpu"), key=_age, default=explanation.rows[-1])
    reason = oldest.verdict.reasons[0]
    return ResolutionError(
        f"nothing of {oldest.recipe} runs on {_machine(explanation)}",
        cause=f"The oldest, CUDA {oldest.cuda}: {reason.what}.",
        next_step=_apart(explanation.target) or _step(reason),
    )


def _step(reason: Reason) -> str:
    """Say what to do where nothing of a recipe runs: for a GPU that none of its torches has code for, other recipes."""
    of_gpu = reason.rule.startswith("GPU code")
    return f"{command('list', gpus=True)}    (what other stacks run there; {reason.fix})" if of_gpu else reason.fix


def _apart(target: Target) -> str:
    """Say what to do where no torch has code for all GPUs together."""
    gpus = target.gpus or ()
    one_each = "(one image for each GPU: nothing of this recipe runs on all)"
    return f"{command('image', '…', gpu=gpus[0].lower())}    {one_each}" if len(gpus) > 1 else ""


def _with_support(row: ExplainRow, rows: Sequence[ExplainRow], today: datetime.date) -> ExplainRow:
    """The row with what is to be said of its base."""
    its_standing = suites.standing(row.base, today)
    if its_standing is None or its_standing.state != "ended" or not row.verdict.accepted:
        return row
    newer = on_newer_base(row.cuda, rows, today)
    support = f"{suites.titled(row.base)}: {suites.described(row.base, today)}"
    return msgspec.structs.replace(row, support=f"{support}; on a newer one: {newer.command}" if newer else support)


def on_newer_base(cuda: str, rows: Sequence[ExplainRow], today: datetime.date) -> ExplainRow | None:
    """Of the rows that run, the nearest to this CUDA version whose base gets security updates; newer ones first."""
    fitting = [
        row
        for row in rows
        if row.verdict.accepted
        and (row.cuda == "cpu") == (cuda == "cpu")
        and (its_standing := suites.standing(row.base, today))
        and its_standing.has_updates
    ]
    above = [row for row in fitting if numbers(row.cuda) > numbers(cuda)]
    nearest = min(above, key=lambda row: numbers(row.cuda), default=None)
    return nearest or max(fitting, key=lambda row: numbers(row.cuda), default=None)


#: a table of GPUs asks for those of one recipe some hundred times
_wish = functools.lru_cache(maxsize=1024)(Requirement)


def stack_of(
    recipe: Recipe,
    variant: Variant,
    candidate: Candidate,
    gpus: Sequence[str] | None,
    platform: Platform = DEFAULT,
) -> Software:
    """Return an image's software, with extensions compiled for these GPUs (none named: for those of the recipe)."""
    requirements = [_wish(text) for text in (*recipe.requirements, *variant.requirements, *variant.extensions)]
    pins = (bounds for wish in requirements if canonicalize_name(wish.name) == glt.NAME for bounds in wish.specifier)
    architectures, nvcc, impossible = toolkits.of_machines(variant.architectures, platform), "", ""
    options = toolkits.options(candidate.torch_cuda, platform) if variant.extensions else ()
    if options:
        nvcc = options[0].version
        try:
            if gpus:
                architectures = toolkits.to_compile(facts.architectures_for(",".join(gpus)), nvcc)[0]
        except UsageError as error:
            impossible = error.what
    return Software(
        torch=candidate.torch,
        torch_cuda=candidate.torch_cuda,
        python=variant.python,
        suite=variant.base.suite,
        extensions=tuple(_wish(text).name for text in variant.extensions),
        architectures=architectures,
        nvcc=nvcc,
        impossible=impossible,
        torch_geometric=variant.torch_geometric,
        glt=next((pin.version for pin in pins if pin.operator == "=="), ""),
        packages=tuple(canonicalize_name(requirement.name) for requirement in requirements),
        platform=platform.name,
    )


def by_capability(
    recipe: Recipe, variant: Variant, candidate: Candidate, *, named: bool = False
) -> Mapping[str, GpuVerdict]:
    """Judge what the listed GPUs run of the published image, or (`named`) of one for that GPU, by capability."""
    verdicts = {}
    for capability, models in facts.models_by_capability().items():
        stack = stack_of(recipe, variant, candidate, models[:1] if named else None)
        verdicts[capability] = rules.gpu_code(stack, models[0])
    return verdicts


def _rows(
    recipe: Recipe, variant: Variant, target: Target, machine: MachineRequest, own: Path | None
) -> Iterator[ExplainRow]:
    gpu = ",".join(facts.gpu_models(machine.gpu)).lower() if machine.gpu and not machine.target else ""
    machine = MachineRequest(target=machine.target, gpu=gpu, driver=machine.driver)
    platform = facts.machine_platform(target.gpus or ()) or DEFAULT
    named = "" if platform == DEFAULT else platform.name
    request = BuildRequest(name=recipe.name, cuda=variant.cuda, platform=named, machine=machine, recipe=own)
    for candidate in candidates_of(variant):
        judged = judge_target(recipe, variant, candidate, target, platform)
        yield ExplainRow(
            recipe=recipe.name,
            cuda=variant.cuda,
            candidate=candidate.name,
            torch=candidate.torch,
            torch_geometric=variant.torch_geometric,
            verdict=judged.built,
            plain=judged.plain.status,
            chosen=False,
            command=str(request.command()),
            base=suites.of_base(variant.base),
            python=variant.python,
            exclude_newer=variant.exclude_newer,
        )


def candidates_of(variant: Variant) -> tuple[Candidate, ...]:
    """The variant's candidates; of one that is not available a nameless one."""
    return variant.candidates or (Candidate(name="", channels=(), torch="", torch_cuda=variant.cuda),)


def judge_target(
    recipe: Recipe, variant: Variant, candidate: Candidate, target: Target, platform: Platform = DEFAULT
) -> Judgements:
    """Judge both images of a candidate: what `make image GPU=…` makes for the target's GPUs, and without GPU=."""
    if refusal := variant.unavailable:
        reason = Reason(rule="recipe", what=refusal.why, source="", fix=filled(refusal.instead))
        verdict = Judgement(status="rejected", reasons=(reason,))
        return Judgements(verdict, verdict)
    verdict = rules.judge(stack_of(recipe, variant, candidate, target.gpus, platform), target)
    plain = rules.judge(stack_of(recipe, variant, candidate, None, platform), target) if target.gpus else verdict
    if verdict.accepted and plain.status != verdict.status:
        setting = _setting(target)
        without = f"without {setting} it {_WORDS[plain.status]}"
        note = f"{without if plain.accepted else f'only when built for it ({setting})'}: {plain.reasons[0].what}"
        verdict = msgspec.structs.replace(verdict, notes=(*verdict.notes, note))
    return Judgements(verdict, plain)


def _age(row: ExplainRow) -> tuple[bool, tuple[int, ...], tuple[int, ...]]:
    """Grows with how new a row is; what is for the CPU comes last."""
    return row.cuda != "cpu", numbers(row.torch), numbers(row.cuda)


def _machine(explanation: Explanation) -> str:
    """ "dgx2: V100 (sm_70), driver 450.80.02, Linux 3.10"."""
    target = explanation.target
    parts = [rules.capability_name(model) for model in target.gpus or ()]
    parts = parts or ["no GPU" if target.gpus == () else "a GPU that was not named"]
    known = {"driver": " or ".join(map(_shown, target.drivers)), "Linux": target.kernel, "glibc": target.glibc}
    parts += [f"{name} {value}" for name, value in known.items() if value]
    parts += [f"{name} {version}".strip() for name, version in target.runtimes.items()]
    return f"{explanation.name}: {', '.join(parts)}" if explanation.name else ", ".join(parts)


def _shown(driver: str) -> str:
    """Return a driver's version; of the first with a CUDA version also that, which users know from nvidia-smi."""
    cuda = facts.newest_cuda(driver)
    return f"{driver} (nvidia-smi: CUDA {cuda})" if cuda and facts.own_driver(cuda) == driver else driver


def answer(explanation: Explanation, *, verbose: bool = False) -> Answer:
    """Word each candidate, the newest first, below what was asked and the answer to it.

    `verbose`: with fix and source of each that does not run, not only of what was asked about.
    """
    opening = [f"{explanation.rows[0].recipe} on {_machine(explanation)}"]
    entries, on_cpu = [], explanation.target.gpus == ()
    for row in explanation.rows:
        if row.cuda == "cpu" and explanation.target.gpus and not row.chosen and explanation.asked != "cpu":
            continue  # a user who names a GPU does not ask for these
        native_cpu = row.verdict.status == "native" and (on_cpu or row.cuda == "cpu")
        words = "runs on the CPU" if native_cpu else _WORDS[row.verdict.status]
        if row.chosen:
            headline = f"chosen, {words}"
        else:
            apart = row.verdict.accepted and row.plain == "rejected"
            too = f"{words} too" + (f", when built for it ({_setting(explanation.target)})" if apart else "")
            headline = f"{words}: {row.verdict.reasons[0].what}" if row.verdict.reasons else too
        by = f" ({row.candidate})" if row.candidate not in ("", "pypi", "pytorch") else ""
        if row.chosen or row.cuda == explanation.asked:
            opening.append(f"CUDA {row.cuda}{by}: {headline}" + (f": {row.command}" if row.chosen else ""))
        pyg = f", PyG {row.torch_geometric}" if row.torch_geometric else ""
        torch = "torch of the folder" if row.torch == "*" else f"torch {row.torch}" if row.torch else "-"
        label = f"CUDA {row.cuda:4}  {torch}{pyg}{by}"
        style = "bold green" if row.chosen else _STYLES[row.verdict.status]
        is_told = verbose or row.chosen or row.verdict.accepted or row.cuda == explanation.asked
        details = [*_details(row, explanation.asked, explanation.target.gpus or ())] if is_told else []
        if row.chosen and explanation.asked == "" and explanation.target == Target():
            details.insert(0, _USUAL)
        if row.support and (row.chosen or row.cuda == explanation.asked):
            details.append(f"note: {row.support}")
        if (row.chosen or row.cuda == explanation.asked) and (no := torch_compile.refusal(row.torch, row.python)):
            details.append(f"note: {no}")
        if row.exclude_newer and (row.chosen or row.cuda == explanation.asked):
            details.append(f"note: packages as of {row.exclude_newer}")
        slims = facts.machine_platform(explanation.target.gpus or ()) == DEFAULT
        if row.chosen and explanation.target.gpus and slims and row.cuda != "cpu":
            details.append(f"smaller: {setting(slim='yes')}, with code for these GPUs alone (docs/slim.md)")
        entries.append(AnswerLine(label, headline, tuple(details), style))
    return Answer((Section(tuple(entries)),), opening=tuple(opening))


def _setting(target: Target) -> Setting:
    """Return the setting that builds an image for these GPUs: "GPU=p100"."""
    return setting(gpu=",".join(target.gpus or ()).lower())


def _details(row: ExplainRow, asked: str, gpus: Sequence[str]) -> Iterator[str]:
    """Fix and source of what rejects; of what is chosen, by what it runs and on which conditions."""
    verdict = row.verdict
    if verdict.accepted and not row.chosen:
        yield from (f"note: {what}" for what in verdict.lost if row.cuda == asked)
        return
    for reason in verdict.reasons:
        if row.chosen:
            yield f"{reason.rule}: {reason.what}"
        if reason.fix:
            yield f"fix: {reason.fix}"
        if reason.source:
            yield f"source: {reason.source}"
    if row.chosen and verdict.driver:
        yield f"with driver {facts.drivers_from(verdict.driver, gpus)}"
    yield from (f"assumed: {what}" for what in verdict.assumes)
    yield from (f"note: {what}" for what in (*verdict.lost, *verdict.notes))
