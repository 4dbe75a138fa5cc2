"""What the user asks of the context: the same steps, whenever they want, and what each would do before it is done."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tui_agent.context import pricing
from tui_agent.context.checkpoints import plan_checkpoint
from tui_agent.context.compaction import Accepted, CompactionPlan, expected_summary, plan_compaction
from tui_agent.context.handover import CHECKPOINT
from tui_agent.context.manager import ContextManager, ModelFacts
from tui_agent.context.refusal import Refusal
from tui_agent.context.steering import Preview, plan_pin, plan_restore, plan_undo, plan_unpin, what_if
from tui_agent.conversation.entries import Checkpointed, Cleared, Pinned, Restored, Summarized, Undone
from tui_agent.conversation.view import View

PreviewedStep: TypeAlias = Literal["compact", "clear", "checkpoint"]


class Outlook(NamedTuple):
    """What a step would do, before it is done. `exact`: counted, else expected; `payback` None: prices are unknown."""

    step: PreviewedStep
    preview: Preview
    exact: bool
    payback: pricing.Payback | None
    reason: str


class Asked:
    """Plans what the user asks for, with the figures of `manager`."""

    def __init__(self, manager: ContextManager) -> None:
        self._manager = manager

    def compaction(
        self, view: View, model: ModelFacts, now: float, *, focus: str = "", reason: str = "asked for by the user"
    ) -> CompactionPlan | Refusal:
        """A compaction now, whatever the thresholds say."""
        limits = self._manager.thresholds(view, model)
        here = self._manager.situation(view, model, now, between_turns=True)
        return plan_compaction(
            view,
            self._manager.summarising(view, here),
            self._manager.settings.compaction,
            self._manager.prompts,
            trigger=limits.compact.tokens or None,
            focus=focus,
            asked=True,
            reason=reason,
        )

    def checkpoint(
        self, view: View, model: ModelFacts, now: float, *, note: str = "", reason: str = "asked for by the user"
    ) -> CompactionPlan | Refusal:
        """A completion record now."""
        here = self._manager.situation(view, model, now, between_turns=True)
        manager = self._manager
        here = manager.summarising(view, here)
        return plan_checkpoint(view, here, manager.settings.compaction, manager.prompts, note=note, reason=reason)

    def clear_results(self, view: View, model: ModelFacts, now: float) -> Cleared | Refusal:
        """Clear all old results now, however little they are."""
        here = self._manager.situation(view, model, now, between_turns=True)
        return self._manager.forced_clearing(view, here, keep=self._manager.settings.clearing.keep) or Refusal(
            f"There is nothing to clear: the newest {self._manager.settings.clearing.keep} results and pins stay."
        )

    def clear_items(self, view: View, items: Sequence[int], model: ModelFacts, now: float) -> Cleared | Refusal:
        """Clear these results now, also the newest."""
        here = self._manager.situation(view, model, now, between_turns=True)
        return self._manager.forced_clearing(view, here, keep=0, only=items) or Refusal(
            "Only a tool result that is shown whole, is not pinned, and is larger than its placeholder can be cleared."
        )

    def pin(self, view: View, items: Sequence[int], pinned: bool) -> Callable[[ModelFacts, float], Pinned | Refusal]:
        """Pin items, or take their pins off."""

        def plan(model: ModelFacts, now: float) -> Pinned | Refusal:
            here = self._manager.situation(view, model, now, between_turns=True)
            if pinned:
                return plan_pin(view, items, here, share=self._manager.settings.context.pins_share)
            return plan_unpin(view, items, here)

        return plan

    def restore(
        self, view: View, items: Sequence[int], texts: Sequence[str]
    ) -> Callable[[ModelFacts, float], Restored | Refusal]:
        """Show items whole again; `texts` has what the log holds only in part."""
        return lambda model, now: plan_restore(
            view, items, self._manager.situation(view, model, now, between_turns=True), texts=texts
        )

    def undo(self, view: View, target: int | None) -> Callable[[ModelFacts, float], Undone | Refusal]:
        """Undo a step, by default the newest."""
        return lambda model, now: plan_undo(
            view, self._manager.situation(view, model, now, between_turns=True), target=target
        )

    def preview(
        self, view: View, model: ModelFacts, now: float, step: PreviewedStep, *, focus: str = ""
    ) -> Outlook | Refusal:
        """What a step would do and cost; exact for clearing, expected for a summary."""
        here = self._manager.situation(view, model, now, between_turns=True)
        if step == "clear":
            cleared = self.clear_results(view, model, now)
            if isinstance(cleared, Refusal):
                return cleared
            seen = what_if(view, [cleared], here)._replace(after=cleared.after)
            payback = None
            if here.rates is not None:
                payback = pricing.clearing_payback(here.rates, freed=seen.freed, tail=seen.rewritten, cold=here.cold)
            return Outlook(step, seen, True, payback, cleared.reason)
        plan = (
            self.compaction(view, model, now, focus=focus) if step == "compact" else self.checkpoint(view, model, now)
        )
        if isinstance(plan, Refusal):
            return plan
        expected = _stand_in(plan)
        seen = what_if(view, [expected], here)._replace(after=plan.after)
        payback = None
        if here.rates is not None:
            writing = here.rates.output * expected_summary(plan.replaced)
            reading = plan.before * (1.0 if here.cold else here.rates.read)
            payback = pricing.compaction_payback(
                here.rates,
                freed=seen.freed,
                keep=seen.rewritten,
                summary=expected_summary(plan.replaced),
                summariser_usd=(reading + writing) * here.rates.input_usd / pricing.MILLION,
                cold=here.cold,
            )
        return Outlook(step, seen, False, payback, plan.reason)

    def drafted(
        self,
        view: View,
        model: ModelFacts,
        now: float,
        plan: CompactionPlan,
        accepted: Accepted,
        *,
        spent_usd: float | None,
    ) -> Outlook:
        """What entering a written summary would do; `spent_usd` is what writing it has cost, None where not known."""
        here = self._manager.situation(view, model, now, between_turns=True)
        seen = what_if(view, accepted.entries, here)._replace(before=plan.before, after=accepted.after)
        payback = None
        if here.rates is not None and spent_usd is not None:
            payback = pricing.compaction_payback(
                here.rates,
                freed=seen.freed,
                keep=seen.rewritten,
                summary=0,
                summariser_usd=spent_usd,
                cold=here.cold,
            )
        step: PreviewedStep = "checkpoint" if plan.form is CHECKPOINT else "compact"
        return Outlook(step, seen, True, payback, plan.reason)


def _stand_in(plan: CompactionPlan) -> Summarized | Checkpointed:
    """An entry that covers what the plan covers, with a text of no size."""
    kind = Checkpointed if plan.form is CHECKPOINT else Summarized
    return kind(first=plan.first, last=plan.last, text=".")
