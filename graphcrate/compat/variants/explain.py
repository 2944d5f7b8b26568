"""Judge each candidate of a recipe for a target by `compat.variants.rules`, and word the verdicts."""

import datetime
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import driver_table, glt, gpu_table, suites, toolkits, torch_compile
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants import rules
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.compat.variants.rules import Judgement, Reason, Software, Status
from graphcrate.compat.variants.targets import MachineRequest, Target
from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.audit import GpuVerdict
from graphcrate.model.command import Setting, command, filled, setting
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Candidate, Recipe, Variant

#: what is built where neither a CUDA version nor a machine is named
USUAL_CUDA = "11.8"
USUAL = "the default where no machine is named, which runs on most"
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
    """Return the error where every candidate is rejected.

    It names the oldest, which requires the least: of those that another driver would run, where there are any.
    """
    rows = [row for row in explanation.rows if row.cuda != "cpu"] or explanation.rows
    oldest = min([row for row in rows if row.verdict.by_driver] or rows, key=_age)
    by_driver = f"CUDA {oldest.cuda} would run with another driver"
    which = by_driver if oldest.verdict.by_driver else f"The oldest, CUDA {oldest.cuda}"
    return ResolutionError(
        f"nothing of {oldest.recipe} runs on {machine_of(explanation)}",
        cause=f"{which}: {oldest.verdict.reasons[0].what}.",
        next_step=step_where_none_runs(explanation.target, oldest.verdict),
    )


def step_where_none_runs(target: Target, verdict: Judgement) -> str:
    """Say what to do where nothing of a recipe runs, by the verdict on what requires the least.

    Another driver where that helps; one image for each of several GPUs; for a GPU that none of the torches has code
    for, other recipes.
    """
    gpus, reason = target.gpus or (), verdict.reasons[0]
    if verdict.by_driver:
        return reason.fix
    if len(gpus) > 1:
        one_each = "(one image for each GPU: nothing of this recipe runs on all)"
        return f"{command('image', '…', gpu=gpus[0].lower())}    {one_each}"
    is_of_gpu = reason.rule.startswith("GPU code")
    return f"{command('list', gpus=True)}    (what other stacks run there; {reason.fix})" if is_of_gpu else reason.fix


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
                architectures = toolkits.to_compile(gpu_table.architectures_for(",".join(gpus)), nvcc)[0]
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
    for capability, models in gpu_table.models_by_capability().items():
        stack = stack_of(recipe, variant, candidate, models[:1] if named else None)
        verdicts[capability] = rules.gpu_code(stack, models[0])
    return verdicts


def _rows(
    recipe: Recipe, variant: Variant, target: Target, machine: MachineRequest, own: Path | None
) -> Iterator[ExplainRow]:
    gpu = ",".join(gpu_table.gpu_models(machine.gpu)).lower() if machine.gpu and not machine.target else ""
    machine = MachineRequest(target=machine.target, gpu=gpu, driver=machine.driver)
    platform = gpu_table.machine_platform(target.gpus or ()) or DEFAULT
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


def machine_of(explanation: Explanation) -> str:
    """ "dgx2: V100 (sm_70), driver 450.80.02, Linux 3.10"."""
    target = explanation.target
    parts = [gpu_table.capability_name(model) for model in target.gpus or ()]
    parts = parts or ["no GPU" if target.gpus == () else "a GPU that was not named"]
    known = {"driver": " or ".join(map(_shown, target.drivers)), "Linux": target.kernel, "glibc": target.glibc}
    parts += [f"{name} {value}" for name, value in known.items() if value]
    parts += [f"{name} {version}".strip() for name, version in target.runtimes.items()]
    return f"{explanation.name}: {', '.join(parts)}" if explanation.name else ", ".join(parts)


def _shown(driver: str) -> str:
    """Return a driver's version; of the first with a CUDA version also that, which users know from nvidia-smi."""
    cuda = driver_table.newest_cuda(driver)
    return f"{driver} (nvidia-smi: CUDA {cuda})" if cuda and driver_table.own_driver(cuda) == driver else driver


def answer(explanation: Explanation, *, verbose: bool = False) -> Answer:
    """Word each candidate, the newest first, below what was asked and the answer to it.

    `verbose`: with fix and source of each that does not run, not only of what was asked about.
    """
    shown = [row for row in explanation.rows if _is_shown(row, explanation)]
    opening = [f"{explanation.rows[0].recipe} on {machine_of(explanation)}"]
    for row in shown:
        if _is_asked_about(row, explanation):
            by_command = f": {row.command}" if row.chosen else ""
            opening.append(f"CUDA {row.cuda}{_channel_of(row)}: {_headline(row, explanation)}{by_command}")
    entries = tuple(_entry(row, explanation, verbose=verbose) for row in shown)
    return Answer((Section(entries),), opening=tuple(opening))


def _is_shown(row: ExplainRow, explanation: Explanation) -> bool:
    """Return whether a row is of use: a user who names a GPU does not ask for those of the CPU."""
    on_gpu = row.cuda != "cpu" or not explanation.target.gpus
    return on_gpu or row.chosen or explanation.asked == "cpu"


def _is_asked_about(row: ExplainRow, explanation: Explanation) -> bool:
    """Return whether a row answers the question: it is chosen, or of the CUDA version that was asked about."""
    return row.chosen or row.cuda == explanation.asked


def _channel_of(row: ExplainRow) -> str:
    """Return a candidate's name in brackets, where its channel is not one of the usual ones."""
    return f" ({row.candidate})" if row.candidate not in ("", "pypi", "pytorch") else ""


def _headline(row: ExplainRow, explanation: Explanation) -> str:
    """Word a row's verdict in one line."""
    on_cpu = row.cuda == "cpu" or explanation.target.gpus == ()
    words = "runs on the CPU" if on_cpu and row.verdict.status == "native" else _WORDS[row.verdict.status]
    if row.chosen:
        return f"chosen, {words}"
    if row.verdict.reasons:
        return f"{words}: {row.verdict.reasons[0].what}"
    if row.verdict.accepted and row.plain == "rejected":
        return f"{words} too, when built for it ({_setting(explanation.target)})"
    return f"{words} too"


def _entry(row: ExplainRow, explanation: Explanation, *, verbose: bool) -> AnswerLine:
    """Word a row: its software, its verdict, and the details of those that are told of."""
    pyg = f", PyG {row.torch_geometric}" if row.torch_geometric else ""
    torch = "torch of the folder" if row.torch == "*" else f"torch {row.torch}" if row.torch else "-"
    label = f"CUDA {row.cuda:4}  {torch}{pyg}{_channel_of(row)}"
    style = "bold green" if row.chosen else _STYLES[row.verdict.status]
    details = list[str]()
    if verbose or row.verdict.accepted or _is_asked_about(row, explanation):
        details += details_of(row, explanation.asked, explanation.target.gpus or ())
    if _is_asked_about(row, explanation):
        details += _notes(row)
    if row.chosen and explanation.asked == "" and explanation.target == Target():
        details.insert(0, USUAL)
    if row.chosen and _can_be_slim(row, explanation.target):
        details.append(f"smaller: {setting(slim='yes')}, with code for these GPUs alone (docs/slim.md)")
    return AnswerLine(label, _headline(row, explanation), tuple(details), style)


def _notes(row: ExplainRow) -> Iterator[str]:
    """Yield notes on an image of a row: on its base, on torch.compile, on the day of its packages."""
    if row.support:
        yield f"note: {row.support}"
    if no := torch_compile.refusal(row.torch, row.python):
        yield f"note: {no}"
    if row.exclude_newer:
        yield f"note: packages as of {row.exclude_newer}"


def _can_be_slim(row: ExplainRow, target: Target) -> bool:
    """Return whether an image of a row can have code for the target's GPUs alone."""
    gpus = target.gpus or ()
    return bool(gpus) and row.cuda != "cpu" and gpu_table.machine_platform(gpus) == DEFAULT


def _setting(target: Target) -> Setting:
    """Return the setting that builds an image for these GPUs: "GPU=p100"."""
    return setting(gpu=",".join(target.gpus or ()).lower())


def details_of(row: ExplainRow, asked: str, gpus: Sequence[str]) -> Iterator[str]:
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
        yield f"with driver {driver_table.drivers_from(verdict.driver, gpus)}"
    yield from (f"assumed: {what}" for what in verdict.assumes)
    yield from (f"note: {what}" for what in (*verdict.lost, *verdict.notes))
