"""The verdict on a question within milliseconds: by the same functions as `explain` and the begin of `image`."""

from typing import NamedTuple

import msgspec

from buildsite.states import for_user
from graphcrate.compat.variants import catalog, explain
from graphcrate.compat.variants.choice import select_variant
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.model.answer import Answer
from graphcrate.model.command import Command
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.recipe import Additions
from graphcrate.remote.questions import Question


class SiteVerdict(NamedTuple):
    """The answer to a question: a request that may be planned, or why nothing can be, and what does run."""

    explanation: explain.Explanation | None  #: None where the machine itself is not understood
    request: BuildRequest | None
    refusal: GraphcrateError | None
    cuda: str = ""  #: that was chosen, or asked for

    @property
    def answer(self) -> Answer:
        """Return what `explain` prints."""
        return explain.answer(self.explanation) if self.explanation else Answer(())

    @property
    def command(self) -> Command | None:
        """Return the command that makes the same at a shell."""
        return self.request.command() if self.request else None


def judge(question: Question, ctx: Context) -> SiteVerdict:
    """Judge a question as `image` does before it resolves anything, with `explain`'s table beside it."""
    explanation = None
    try:
        recipe = catalog.find_recipe(ctx, question.stack)
        target = catalog.find_target(ctx, question.machine)
        explanation = explain.explain(recipe, target, question.machine, question.cuda or None, today=settings.today())
        typed = question.request(",".join(target.gpus or ()).lower())
        judged = msgspec.structs.replace(typed, machine=question.machine, additions=Additions())
        choice = select_variant(judged, ctx)
    except GraphcrateError as refusal:
        return SiteVerdict(explanation, None, for_user(refusal), question.cuda)
    return SiteVerdict(explanation, typed, None, choice.variant.cuda)
