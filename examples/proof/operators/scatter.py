"""Reductions by group: scatter, segments by offsets (csr) and by sorted groups (coo), softmax and its kin."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from proof.operators.examiner import insist

if TYPE_CHECKING:
    from types import ModuleType

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor
    Results = Any  #: a tensor or several

ROWS, WIDTH, GROUPS = 40, 5, 7
EMPTY_GROUP = 3
REDUCTIONS = ("sum", "add", "mul", "mean", "min", "max")
SEGMENT_REDUCTIONS = tuple(name for name in REDUCTIONS if name != "mul")


def check(examiner: Examiner, library: ModuleType, extension: str) -> None:
    """Every operator of the family that `library` has."""
    groups = examiner.order(ROWS) % (GROUPS - 1)
    groups += (groups >= EMPTY_GROUP).long()  # one group has no member
    _scatter(examiner, library, extension, groups)
    _composites(examiner, library, extension, examiner.order(ROWS) % GROUPS)
    _segments(examiner, library, extension, groups.sort().values)
    _whole_numbers(examiner, library, extension, groups)


def members(torch: ModuleType, groups: Tensor, count: int) -> Tensor:
    """[count, rows]: whether a row belongs to a group."""
    return torch.arange(count).view(-1, 1) == groups.view(1, -1)


def dense(torch: ModuleType, reduce: str, source: Tensor, groups: Tensor, count: int = GROUPS) -> Tensor:
    """The reduction along the first dimension, by a mask over groups and rows; without members it is 0 (1 of mul)."""
    rows = source.flatten(1)
    if not len(rows):
        return rows.new_zeros((count, *source.shape[1:])) + source.sum()
    mask = members(torch, groups, count)
    if reduce in ("sum", "add"):
        found = mask.to(source.dtype) @ rows
    elif reduce == "mean":
        found = mask.to(source.dtype) @ rows / mask.sum(1).clamp(min=1).view(-1, 1)
    elif reduce == "mul":
        found = torch.where(mask.unsqueeze(-1), rows, rows.new_ones(())).prod(1)
    else:
        end = rows.new_tensor(float("inf") if reduce == "min" else float("-inf"))
        all_of = torch.where(mask.unsqueeze(-1), rows, end)
        best = all_of.amin(1) if reduce == "min" else all_of.amax(1)
        found = torch.where(mask.any(1).view(-1, 1), best, best.new_zeros(()))
    return found.view(count, *source.shape[1:])


def _pick(torch: ModuleType, found: Results, source: Tensor, dim: int = 0) -> Results:
    """Of a minimum or maximum, the values and the source's entries at the places it names."""
    if not isinstance(found, tuple):
        return found
    values, places = found
    count = source.size(dim)
    if not count:
        return values, torch.zeros_like(values)
    entries = source.gather(dim, places.clamp(max=count - 1))
    return values, torch.where(places < count, entries, torch.zeros_like(entries))


def _scatter(examiner: Examiner, library: ModuleType, extension: str, groups: Tensor) -> None:
    torch = examiner.torch

    def wanted(reduce: str, source: Tensor, groups: Tensor) -> Results:
        found = dense(torch, reduce, source, groups)
        return (found, found) if reduce in ("min", "max") else found

    for reduce in REDUCTIONS:
        single = getattr(library, f"scatter_{reduce}", None)
        for rows in (ROWS, 0):
            if reduce == "mul" and not rows:
                continue  # versions differ on the product of nothing
            if single is not None:

                def call(source: Tensor, groups: Tensor, single: Results = single) -> Results:
                    return _pick(torch, single(source, groups, 0, dim_size=GROUPS), source)

                examiner.compare(
                    f"{extension}.scatter_{reduce}",
                    call,
                    functools.partial(wanted, reduce),
                    [examiner.draw(rows, WIDTH)],
                    [groups[:rows]],
                )
            if hasattr(library, "scatter"):
                examiner.compare(
                    f"{extension}.scatter",
                    lambda source, groups, reduce=reduce: library.scatter(
                        source, groups, -1, dim_size=GROUPS, reduce=reduce
                    ),
                    lambda source, groups, reduce=reduce: dense(torch, reduce, source.t(), groups).t(),
                    [examiner.draw(WIDTH, rows)],
                    [groups[:rows]],
                )
    for reduce in ("sum", "mean"):  # registered for C++ and TorchScript; the Python functions go without them
        native = getattr(torch.ops.torch_scatter, f"scatter_{reduce}", None) if extension == "torch_scatter" else None
        if native is not None:
            examiner.compare(
                f"{extension}.ops.scatter_{reduce}",
                lambda source, groups, native=native: native(source, groups, 0, None, GROUPS),
                functools.partial(wanted, reduce),
                [examiner.draw(ROWS, WIDTH)],
                [groups],
            )
    if hasattr(library, "scatter_sum"):
        examiner.compare(
            f"{extension}.scatter_sum",
            lambda source, start, groups: library.scatter_sum(source, groups, 0, out=start.clone()),
            lambda source, start, groups: start + dense(torch, "sum", source, groups),
            [examiner.draw(ROWS, WIDTH), examiner.draw(GROUPS, WIDTH)],
            [groups],
        )


def _composites(examiner: Examiner, library: ModuleType, extension: str, groups: Tensor) -> None:
    torch = examiner.torch

    def softmax(source: Tensor, groups: Tensor) -> Tensor:
        powers = source.exp()
        return powers / dense(torch, "sum", powers, groups)[groups]

    def deviation(source: Tensor, groups: Tensor) -> Tensor:
        mean = dense(torch, "mean", source, groups)[groups]
        count = members(torch, groups, GROUPS).sum(1).double().view(-1, 1)
        return (dense(torch, "sum", (source - mean) ** 2, groups) / (count - 1 + 1e-6)).sqrt()

    references = {
        "scatter_softmax": softmax,
        "scatter_log_softmax": lambda source, groups: softmax(source, groups).log(),
        "scatter_logsumexp": lambda source, groups: dense(torch, "sum", source.exp(), groups).log(),
        "scatter_std": deviation,
    }
    for name, reference in references.items():
        operator = getattr(library, name, None)
        if operator is not None:
            examiner.compare(
                f"{extension}.{name}",
                lambda source, groups, operator=operator: operator(source, groups, 0, dim_size=GROUPS),
                reference,
                [examiner.draw(ROWS, WIDTH)],
                [groups],
            )


def _segments(examiner: Examiner, library: ModuleType, extension: str, groups: Tensor) -> None:
    torch = examiner.torch
    for rows in (ROWS, 0):
        members_of = groups[:rows]
        offsets = torch.zeros(GROUPS + 1, dtype=torch.long)
        offsets[1:] = members(torch, members_of, GROUPS).sum(1).cumsum(0)
        for form, where in (("csr", offsets), ("coo", members_of)):
            size = {"dim_size": GROUPS} if form == "coo" else {}
            _segments_of(examiner, library, extension, form, where, members_of, size)
        if not rows:
            continue
        for form, where in (("csr", offsets), ("coo", members_of)):
            gather = getattr(library, f"gather_{form}", None)
            if gather is not None:
                examiner.compare(
                    f"{extension}.gather_{form}",
                    lambda source, where, gather=gather: gather(source, where),
                    lambda source, where, by=members_of: source[by],
                    [examiner.draw(GROUPS, WIDTH)],
                    [where],
                )
        if hasattr(library, "segment_sum_csr"):  # rows of a batch share nothing but the dimension
            examiner.compare(
                f"{extension}.segment_sum_csr",
                lambda source, where: library.segment_sum_csr(source, where.expand(source.size(0), -1)),
                lambda source, where, by=members_of: torch.stack([dense(torch, "sum", each, by) for each in source]),
                [examiner.draw(3, ROWS, WIDTH)],
                [offsets.view(1, -1)],
            )


def _segments_of(
    examiner: Examiner,
    library: ModuleType,
    extension: str,
    form: str,
    where: Tensor,
    groups: Tensor,
    size: dict[str, int],
) -> None:
    torch = examiner.torch
    has_gradient = len(groups) > 0  # torch_scatter 2.1 divides by zero in the gradient of no rows: SIGFPE
    for reduce in SEGMENT_REDUCTIONS:
        single = getattr(library, f"segment_{reduce}_{form}", None)
        if single is not None:

            def wanted(source: Tensor, where: Tensor, reduce: str = reduce) -> Results:
                found = dense(torch, reduce, source, groups)
                return (found, found) if reduce in ("min", "max") else found

            examiner.compare(
                f"{extension}.segment_{reduce}_{form}",
                lambda source, where, single=single: _pick(torch, single(source, where, **size), source),
                wanted,
                [examiner.draw(len(groups), WIDTH)],
                [where],
                gradient=has_gradient,
            )
        general = getattr(library, f"segment_{form}", None)
        if general is not None:
            examiner.compare(
                f"{extension}.segment_{form}",
                lambda source, where, reduce=reduce, general=general: general(source, where, reduce=reduce, **size),
                lambda source, where, reduce=reduce: dense(torch, reduce, source, groups),
                [examiner.draw(len(groups), WIDTH)],
                [where],
                gradient=has_gradient,
            )


def _whole_numbers(examiner: Examiner, library: ModuleType, extension: str, groups: Tensor) -> None:
    torch = examiner.torch
    numbers = (examiner.draw(ROWS, WIDTH) * 100).long()

    def check_reduction(reduce: str) -> None:
        found = library.scatter(*examiner.here((numbers, groups)), 0, dim_size=GROUPS, reduce=reduce)
        insist(found.dtype == torch.int64, f"{reduce} of whole numbers gives {found.dtype}")
        wanted = dense(torch, reduce, numbers.double(), groups).long()
        insist(bool((found.cpu() == wanted).all()), f"{reduce} of whole numbers is wrong")

    if hasattr(library, "scatter"):
        for reduce in ("sum", "min", "max"):
            examiner.holds(f"{extension}.scatter", functools.partial(check_reduction, reduce))
