"""A summary that was written and not yet entered into the conversation.

Until it is accepted nothing of it is in the log: whoever drops a draft, or is killed with one, has the view as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tui_agent.agent.summarizer import Written
from tui_agent.context.compaction import CompactionPlan, accept_anew
from tui_agent.context.refusal import Refusal
from tui_agent.conversation.sizes import Size


@dataclass(frozen=True, slots=True)
class Draft:
    """A written summary or completion record with the figures it would be entered with, counted and no longer expected.

    `seen` is the newest entry of the log these figures are of.
    """

    plan: CompactionPlan
    written: Written
    seen: int

    @property
    def step(self) -> str:
        """``summary`` or ``checkpoint``."""
        return self.plan.step

    @property
    def text(self) -> str:
        """What the model would be shown for the older turns, the facts in it; untrusted."""
        return self.written.accepted.text

    @property
    def before(self) -> int:
        """Tokens of the next request without it."""
        return self.plan.before

    @property
    def after(self) -> int:
        """Tokens of the next request with it."""
        return self.written.accepted.after

    @property
    def model(self) -> str:
        """Who wrote it; empty: nobody, it is an extract of the turns."""
        return self.written.accepted.boundary.model

    @property
    def failures(self) -> tuple[str, ...]:
        """What failed before it came about; untrusted text of providers."""
        return self.written.failures

    @property
    def spent_usd(self) -> float | None:
        """What writing it has cost, failures included; None where a price is not known."""
        return self.written.spent_usd

    @property
    def facts_appended(self) -> int:
        """How many names, numbers and demands that the writer left out stand below the text, verbatim."""
        return self.written.accepted.facts_appended

    @property
    def facts_left_out(self) -> int:
        """How many it lacks all the same: more than there is room for, or taken out by whoever edited it."""
        return self.written.accepted.facts_missing - self.facts_appended

    def told(self) -> dict[str, object]:
        """What the trace keeps of it, whether it is accepted or not."""
        return {
            "drafted": self.step,
            "before": self.before,
            "after": self.after,
            "how": self.written.how,
            "failures": self.failures,
            "cost_usd": self.spent_usd,
        }


def redrafted(
    draft: Draft, text: str, *, plan: CompactionPlan, seen: int, tokens_of: Callable[[Size], int]
) -> Draft | Refusal:
    """The draft with another text, or on another moment's `plan`; refused as `accept_anew` says."""
    accepted = accept_anew(plan, draft.written.accepted, text, tokens_of=tokens_of)
    if isinstance(accepted, Refusal):
        return accepted
    return replace(draft, plan=plan, written=draft.written._replace(accepted=accepted), seen=seen)
