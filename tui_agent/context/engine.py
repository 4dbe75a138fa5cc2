"""The context engine: the owner of a conversation's view, token meter and model facts, and of the context work on it.

Before every model call it decides what context work to do, at the moments when that costs least; between those, a
request only grows, byte for byte. The engine is pure: to write, save or ask a model it yields an effect (`effects`),
which its caller carries out. Its parts get data, and return decisions: none of them holds the engine.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import structs

from tui_agent.context import changes
from tui_agent.context.before_expiry import ExpirySummary, worth_writing
from tui_agent.context.cache_life import Pauses
from tui_agent.context.cache_watch import ColdCache
from tui_agent.context.changes import PreviewedStep, StepPreview, preview_change
from tui_agent.context.compaction.draft import Draft, accept_anew
from tui_agent.context.compaction.forms import Prompts
from tui_agent.context.compaction.plan import Plan, plan_asked_for, plan_compaction, plan_merge, rebased, with_state
from tui_agent.context.compaction.state import where_things_are
from tui_agent.context.compaction.writing import Order, Writers, enter_draft, failed, heard
from tui_agent.context.counting import Ratios
from tui_agent.context.deferring import found_tools
from tui_agent.context.economics import Situation, StepPrice, step_price
from tui_agent.context.effects import (
    Append,
    AwaitWriting,
    NotYet,
    Refusal,
    StepDone,
    StepName,
    Steps,
    StepStarted,
    WriteInBackground,
    expect,
    step_of,
)
from tui_agent.context.forecast import Forecast, StepAhead, begun_summary, forecast, step_due
from tui_agent.context.known import KnownContext
from tui_agent.context.layers.clearing import ClearingLayer, never_cleared
from tui_agent.context.layers.compaction import CheckpointLayer, CompactionLayer, task_done
from tui_agent.context.layers.digests import DigestLayer, DigestPlan, write_digest
from tui_agent.context.layers.due import Decision, Due, Layer, Layers
from tui_agent.context.layers.episodes import EpisodeLayer
from tui_agent.context.layers.shortening import OVERFLOW_STEPS, TOO_LARGE, shrink, without_refused
from tui_agent.context.requests import running
from tui_agent.context.stats import ContextStats, stats_of
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import AnyContextEntry, Cleared, Shortened, UnattributedCall, Words
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.view import View
from tui_agent.settings import Settings


class _InBackground(msgspec.Struct, eq=False):
    """A summary written in the background; `draft` is set once it is complete, to be entered before the next call.

    merged: the oldest summaries merged into one, entered together with it so that the cache is lost only once.
    """

    plan: Plan
    draft: Draft | None = None
    merged: Draft | None = None


class ContextEngine(KnownContext):
    """Decides on context work for one conversation, whose view, token meter and model facts it owns (`KnownContext`).

    never_clear: folders (of memory and skills); results of reading their files are never cleared. checkpoints: the
    model can declare tasks done. thread: the name of the history to which replaced turns go. more: custom layers, asked
    after the built-in ones. running: returns the command lines running in the background, by process id.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        view: View | None = None,
        model: ModelProfile | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        never_clear: Collection[str] = (),
        checkpoints: bool = True,
        thread: str = "main",
        more: Sequence[Layer] = (),
        pauses: Pauses | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        settings, prompts = settings or Settings(), Prompts.shipped()
        super().__init__(
            settings, view=view, model=model, ratios=ratios, task_threshold=task_threshold, pauses=pauses, clock=clock
        )
        self.running: Callable[[], Mapping[int, str]] = dict
        self.layers = Layers(
            CheckpointLayer(on=checkpoints),
            ClearingLayer(never_cleared(settings.clearing, never_clear)),
            CompactionLayer(),
            DigestLayer(prompts.digest),
            EpisodeLayer(),
        )
        self.more = tuple(more)
        self.writers = Writers(prompts, f"conversation_history/{thread}.md")
        self._thread = thread
        self._summary: _InBackground | None = None
        self._kept_after = 0

    def turn_ended(self) -> None:
        self.backoff = self.backoff.turn_ended()

    # Before a call

    def prepare(self, *, between_turns: bool = False) -> Steps[None]:
        """Do all context work that is due before the next call, in one pass.

        A summary is written in the background, and entered before the first call after it is done; this waits for it
        only if the next request does not fit or has passed a price cliff, and for the record of a task that the model
        has declared done. Until then the other layers leave the entries it replaces alone.
        """
        waited = 0.0 if self._can_go_out else (yield from self._await_summary())
        if self._summary is None and not waited:
            yield from self._do_what_is_due(between_turns=between_turns)
        else:
            yield from self.settle(waited_s=waited)
        for layer in self.more:
            yield from self._carry_out(layer.plan(self.view, self.situation(between_turns=between_turns)))

    def _do_what_is_due(self, *, between_turns: bool) -> Steps[None]:
        due = self._decide(self._before_a_call(between_turns=between_turns))
        if (yield from self._carry_out(due.summary, due.here)):
            return
        yield from self._carry_out(due.digest)
        yield from self._carry_out(due.cleared)
        yield from self._carry_out(due.folded)

    @property
    def _can_go_out(self) -> bool:
        """Whether the next request fits, at the price that the model usually has."""
        return self.fits and not 0 < self.thresholds.cliff < self.tokens

    def _before_a_call(self, *, between_turns: bool) -> Situation:
        return structs.replace(
            self.situation(between_turns=between_turns),
            in_background=self.settings.compaction.background and self._can_go_out,
            task_done=task_done(self.view) if between_turns else None,
        )

    def _decide(self, here: Situation) -> Due:
        call = self.view.last_call
        kept = call is not None and call.seq == self._kept_after and self.fits
        return Due(here) if kept else self.layers.due(self.view, here)

    def _carry_out(self, decision: Decision | None, here: Situation | None = None) -> Steps[bool]:
        """Do what a layer has decided; False if nothing came of it. `here`: the situation it was decided in."""
        match decision:
            case None:
                return False
            case NotYet():
                self.learn_least_results(decision)
                return False
            case Refusal():
                return False
            case DigestPlan():
                yield StepStarted("digest", self.tokens, decision.reason)
                digest = yield from write_digest(decision, self.situation())
                digest = structs.replace(digest, before=self.tokens)
                after = preview_change(self.view, [digest], self.situation()).after
                yield from self.change(structs.replace(digest, after=after))
                return True
            case Plan() if here is not None and here.in_background:
                yield from self.write_in_background(decision)
                return True
            case Plan():
                began = self.clock()
                draft = yield from self._write(decision)
                if isinstance(draft, Draft):
                    yield from self.enter(draft, waited_s=self.clock() - began)
                    yield from self._merge()
                return isinstance(draft, Draft)
            case _:
                yield from self.change(decision)
                return True

    # If a request does not fit

    def recover(self) -> Steps[bool]:
        """Shrink the next request without asking a model; True if it is smaller now and fits.

        Waits for a summary that is being written, even if by our own count the request fits, and enters a finished one.
        """
        start = self.tokens
        waited = yield from self._await_summary()
        yield from self.settle(waited_s=waited)
        for step in OVERFLOW_STEPS:
            if self.tokens < start and self.fits:
                return True
            smaller = yield from shrink(step, self.view, self.situation(), self.layers.clearing)
            if isinstance(smaller, Plan):
                extract = self.writers.extract(self._with_state(smaller), self.view, self.situation())
                if isinstance(extract, Draft):
                    yield from self._enter(extract)
            elif smaller is not None:
                yield from self.change(smaller)
        return self.tokens < start

    def give_way(self, refused: Collection[Image], *, others: bool) -> Steps[bool]:
        """Shrink pictures, or replace them by notes, after the provider refused one; False if nothing changed.

        `refused`: those it named (empty: it may be any). `others`: it has refused one before in this turn.
        """
        entry = yield from without_refused(self.view, self.situation(), refused, others=others)
        if entry is not None:
            yield from self.change(entry)
        return entry is not None

    # Steps that the user asks for

    def change(self, entry: AnyContextEntry) -> Steps[StepDone]:
        """Append a context entry, and report the step."""
        if isinstance(entry, Cleared | Shortened):
            entry = structs.replace(entry, **_saved(changes.clearing_price(self.view, self.situation(), entry)))
        seq = expect(int, (yield Append((entry,))))
        done = step_of(self.view.context_entry(seq))
        yield done
        return done

    def clear_results(self) -> Steps[StepDone | Refusal]:
        """Clear all old results now, however small they are."""
        before = self.tokens
        cleared = self.layers.clearing.asked_for(self.view, self.situation(between_turns=True))
        if cleared is not None:
            return (yield from self.change(cleared))
        if not self.fits and (yield from self.recover()):
            return StepDone("shortened", before, self.tokens, TOO_LARGE)
        return self._nothing_to_clear()

    def _nothing_to_clear(self) -> Refusal:
        keep = self.settings.clearing.keep
        return Refusal(f"There is nothing to clear: the newest {keep} results and pins stay.")

    def clear_items(self, items: Sequence[int]) -> Steps[StepDone | Refusal]:
        """Clear these results now, even the newest."""
        cleared = self.layers.clearing.asked_for(self.view, self.situation(), keep=0, only=items)
        why = (
            "Only a tool result that is shown whole, is not pinned, and is larger than its placeholder can be cleared."
        )
        return (yield from self._change_asked_for(cleared or Refusal(why)))

    def pin(self, items: Sequence[int], *, pinned: bool = True) -> Steps[StepDone | Refusal]:
        """Pin messages or results, each with its group, or unpin them."""
        plan = changes.plan_pin if pinned else changes.plan_unpin
        return (yield from self._change_asked_for(plan(self.view, items, self.situation())))

    def restore(self, items: Sequence[int], texts: Sequence[str] = ()) -> Steps[StepDone | Refusal]:
        """Restore messages or results to full text; `texts`: see `changes.plan_restore`."""
        plan = changes.plan_restore(self.view, items, self.situation(), texts=texts)
        return (yield from self._change_asked_for(plan))

    def edit_words(self, edits: Sequence[Words]) -> Steps[StepDone | Refusal]:
        """Change the kept words of the user's messages; an empty text drops those of a message."""
        return (yield from self._change_asked_for(changes.plan_words(self.view, edits, self.situation())))

    def undo(self, target: int | None = None) -> Steps[StepDone | Refusal]:
        """Undo a context step, by default the newest."""
        return (yield from self._change_asked_for(changes.plan_undo(self.view, self.situation(), target=target)))

    def _change_asked_for(self, plan: AnyContextEntry | Refusal) -> Steps[StepDone | Refusal]:
        return plan if isinstance(plan, Refusal) else (yield from self.change(plan))

    def compact(self, step: Literal["compact", "checkpoint"] = "compact", subject: str = "") -> Steps[StepDone]:
        """Write a summary or completion record and enter it without review.

        If nothing can be summarised and the request does not fit, shrink it as `recover` does.
        """
        name: StepName = "summary" if step == "compact" else "checkpoint"
        before = self.tokens
        draft = yield from self.draft(step, subject)
        if isinstance(draft, Draft):
            result = yield from self.enter(draft)
            yield from self._merge()
            # Free the turns one by one: freeing all of a long conversation at once would block every thread.
            parts: list[object] = [*draft.plan.leaving, *draft.material.parts]
            del draft
            while parts:
                parts.pop()
            return result
        if step == "compact" and not self.fits and (yield from self.recover()):
            return StepDone(name, before, self.tokens, draft.reason, text=draft.reason)
        return StepDone(name, before, before, "asked for", error=draft.reason)

    # Writing summaries

    def draft(self, step: Literal["compact", "checkpoint"], subject: str = "") -> Steps[Draft | Refusal]:
        """Write a summary or completion record without changing the conversation."""
        plan = plan_asked_for(self.view, self.situation(between_turns=True), step, subject)
        return plan if isinstance(plan, Refusal) else (yield from self._write(plan, asked=True))

    def _write(self, plan: Plan, *, asked: bool = False) -> Steps[Draft | Refusal]:
        """Write the text of a plan. If one that the user did not ask for (`asked`) fails, the next one backs off."""
        reply = yield from self._heard(plan, asked=asked)
        if isinstance(reply, Refusal):
            return reply
        yield StepStarted(reply.step, reply.before, reply.reason, reply.first, reply.last, reply.writes)
        return (yield from self._written(self._order(self._with_state(reply)), asked=asked))

    def _heard(self, plan: Plan, *, asked: bool) -> Steps[Plan | Refusal]:
        reply = yield from heard(plan, asked=asked)
        if isinstance(reply, Refusal) and not asked:
            self.backoff = self.backoff.failed()
        return reply

    def _order(self, plan: Plan) -> Order:
        """Collect what the summary of `plan` is written from, at this moment."""
        here, hours = self.situation(), self.next_hours
        if plan.through:
            request = self.requests.to_be_signed(self.view, here, hours, plan.last)
        else:
            request = running(self.view, here, hours)
        return self.writers.order(plan, self.view, here, request)

    def _written(self, order: Order, *, asked: bool) -> Steps[Draft | Refusal]:
        refused = ""
        draft: Draft | Refusal | None = None
        if order.plan.through:
            draft = yield from self.writers.signed(order)
            if isinstance(draft, Refusal) and not draft.final:
                refused, again = draft.reason, self._plan_by_us(order.plan, asked=asked)
                if isinstance(again, Plan):
                    order, draft = self._order(again), None
        if draft is None:
            draft = yield from self.writers.write(order)
        if isinstance(draft, Refusal):
            if not asked and not draft.final:
                self.backoff = self.backoff.failed()
            yield failed(order.plan, draft)
            return draft
        if refused:
            draft = structs.replace(draft, failures=(f"signed: {refused}", *draft.failures))
        later = range(order.seen + 1, len(self.view.log) + 1)
        unchanged = all(isinstance(self.view.log[seq], UnattributedCall) for seq in later)
        return structs.replace(draft, seen=len(self.view.log) if unchanged else order.seen)

    def _plan_by_us(self, plan: Plan, *, asked: bool) -> Plan | Refusal:
        """The plan to write ourselves what the provider would not."""
        again = plan_compaction(
            self.view, self.situation(), focus=plan.subject, asked=asked, reason=plan.reason, by_provider=False
        )
        if isinstance(again, Refusal):
            return again
        again = self._with_state(again)
        if self._summary is not None and self._summary.plan is plan:
            self._summary.plan = again
        return again

    def write_in_background(self, plan: Plan) -> Steps[None]:
        """Start writing a summary in the background, and merging the oldest ones if there would be too many.

        Their input is collected now.
        """
        reply = yield from self._heard(plan, asked=False)
        if isinstance(reply, Refusal):
            return
        orders, merge = [self._order(self._with_state(reply))], None
        if not reply.boundaries and not reply.through:
            merge = plan_merge(self.view, self.situation(), coming=reply)
        if merge is not None:
            orders.append(self._order(merge))
        yield WriteInBackground(self._background(orders))
        yield from self.settle()

    def _background(self, orders: Sequence[Order]) -> Steps[None]:
        """Closing this generator early cancels the writing and leaves nothing behind."""
        summary = self._summary = _InBackground(orders[0].plan)
        drafts: list[Draft] = []
        try:
            for order in orders:
                plan = order.plan
                yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes, True)
                if drafts:
                    newer = drafts[0]
                    order = order._replace(material=order.material.with_newer(plan, newer.plan, newer.text))
                draft = yield from self._written(order, asked=bool(plan.boundaries))
                if not isinstance(draft, Draft):
                    break
                drafts.append(draft)
            summary.draft, summary.merged = (*drafts, None, None)[:2]
        finally:
            if summary.draft is None and self._summary is summary:
                self._summary = None

    def _await_summary(self) -> Steps[float]:
        """Wait for the summary that is being written, if any; returns the seconds waited."""
        if self._summary is None or self._summary.draft is not None:
            return 0.0
        began = self.clock()
        yield AwaitWriting()
        return max(self.clock() - began, 1e-3)

    def settle(self, *, waited_s: float = 0.0) -> Steps[None]:
        """Enter the summary that was written in the background, if there is one.

        If the entries it replaces have changed since, it is dropped. A turn has waited `waited_s` seconds for it.
        """
        summary = self._summary
        if summary is None or summary.draft is None:
            return
        try:
            now = self.current(summary.draft)
            if isinstance(now, Refusal):
                plan, tokens, spent = summary.plan, self.tokens, summary.draft.spent_usd
                yield StepDone(plan.step, tokens, tokens, plan.reason, error=now.reason, cost_usd=spent)
            else:
                yield from self.enter(now, waited_s=waited_s, merged=summary.merged)
        finally:
            self._summary = None

    @property
    def writing(self) -> Plan | None:
        """The plan of the summary that is being written in the background or waits to be entered."""
        return self._summary.plan if self._summary is not None else None

    @property
    def written(self) -> bool:
        """Whether a summary that was written in the background waits to be entered."""
        return self._summary is not None and self._summary.draft is not None

    def still_holds(self) -> bool:
        """Whether the summary that is being written could still be entered. Reads everything it replaces."""
        return self._summary is None or isinstance(rebased(self._summary.plan, self.view, self.situation()), Plan)

    def _with_state(self, plan: Plan) -> Plan:
        known = (where_things_are(self.view, self.running(), self.budget.window), found_tools(self.view))
        state = "\n\n".join(text for text in known if text)
        return with_state(plan, state, self.view, self.meter.mixed_tokens_of(self.view))

    # Entering summaries

    def current(self, draft: Draft, text: str | None = None) -> Draft | Refusal:
        """The draft for the present view, with another `text` if given; a refusal if it no longer applies."""
        seen, plan = len(self.view.log), draft.plan
        if draft.seen == seen and text is None:
            return draft
        if draft.seen != seen:
            present = rebased(plan, self.view, self.situation())
            if isinstance(present, Refusal):
                return present
            plan = self._with_state(present)
        tokens_of = self.meter.mixed_tokens_of(self.view)
        now = accept_anew(plan, draft, draft.text if text is None else text, tokens_of=tokens_of)
        return now if isinstance(now, Refusal) else structs.replace(now, seen=seen)

    def enter(
        self, draft: Draft, text: str | None = None, *, waited_s: float = 0.0, merged: Draft | None = None
    ) -> Steps[StepDone]:
        """Enter a draft, with another text if given, together with other context work that is due.

        The cache after a boundary is lost, so clearing old results and entering `merged` summaries is free at that
        moment. `waited_s`: how many seconds a turn has waited for the text.
        """
        now = self.current(draft, text)
        if isinstance(now, Refusal):
            return StepDone(draft.plan.step, self.tokens, self.tokens, "asked for", error=now.reason)
        result = yield from self._enter(now, waited_s=waited_s)
        if now.plan.boundaries or now.boundary.signed:
            return result  # the reasoning behind a signed summary stays only if what is kept stays as it is
        if merged is not None:
            yield from self.enter(merged)
        here = structs.replace(self.situation(), cold=True, kept_from=now.plan.kept_from)
        digest, cleared = self.layers.digests.plan(self.view, here), self.layers.clearing.plan(self.view, here)
        yield from self._carry_out(digest)
        yield from self._carry_out(cleared)
        yield from self._carry_out(self.layers.episodes.plan(self.view, here))
        return result

    def _merge(self) -> Steps[None]:
        """Merge the oldest summaries if all together have grown too large, while what follows them is not in the cache
        anyway; after a summary that was written in the background, the next one does it. If it fails they stay.
        """
        plan = plan_merge(self.view, self.situation())
        merge = (yield from self._write(plan, asked=True)) if plan is not None else None
        if isinstance(merge, Draft):
            yield from self._enter(merge)

    def _enter(self, draft: Draft, *, waited_s: float = 0.0) -> Steps[StepDone]:
        here, without = self.situation(), draft.plan.without_usd
        tail = max(0, draft.after - here.budget.fixed)
        then = structs.replace(here, cold=True, kept=0) if without else here
        price = step_price(then, after=draft.after, tail=tail, renews=not draft.boundary.signed)
        if price is not None and without:
            price = structs.replace(price, before=without)
        boundary = structs.replace(draft.boundary, waited_s=waited_s, **_saved(price))
        result = yield from enter_draft(
            draft, boundary, self.view, self._thread, self.renewed_prefix if here.new_prefix else None
        )
        self.backoff = self.backoff.succeeded()
        return result

    # Previews and figures

    def preview(self, step: PreviewedStep, subject: str = "") -> StepPreview | Refusal:
        """Preview a step's effects and cost: exact for clearing, estimated for a summary. Copies the view."""
        here = self.situation(between_turns=True)
        if step == "clear":
            cleared = self.layers.clearing.asked_for(self.view, here)
            return self._nothing_to_clear() if cleared is None else changes.preview_clearing(self.view, here, cleared)
        plan = plan_asked_for(self.view, here, step, subject)
        if isinstance(plan, Refusal):
            return plan
        return changes.preview_plan(self.view, here, plan, self.writers.usd(plan, self.view, here))

    def preview_draft(self, draft: Draft) -> StepPreview:
        """Preview the effects and cost of entering a written summary. Copies the view."""
        return changes.preview_draft(self.view, self.situation(between_turns=True), draft)

    def forecast(self, *, between_turns: bool = True) -> Forecast:
        """What the next call costs, the step that is taken before it, and the one that comes next.

        `between_turns`: the user is about to speak; else a turn runs.
        """
        here = self._before_a_call(between_turns=between_turns)
        if self._summary is not None:
            step: StepAhead | None = begun_summary(self._summary.plan)
        else:
            step = step_due(self._decide(here), self.view, self.writers)
        return forecast(self.view, here, self.cache.state, step)

    def cold_send(self) -> ColdCache | None:
        """The warning if the next request has a cold cache; None if there is nothing to warn of."""
        if not self.cache.state.cold or self.view.last_call is None:
            return None
        seen = self.forecast(between_turns=False)
        cost = seen.cost_if_cold(self.settings.context.cold_notice_usd)
        if cost is None:
            return None
        compaction = self.preview("compact")
        price = None if isinstance(compaction, Refusal) else compaction.price
        return ColdCache(seen.tokens, cost, seen.cache.reason, price)

    def summary_before_expiry(self) -> ExpirySummary | None:
        """The summary that costs less now than reading what it replaces anew, once the cache has expired."""
        if self._summary is not None:
            return None
        here = self.situation(between_turns=True)
        return worth_writing(self.view, here, self.layers, self.writers, self.pauses)

    def keep_as_it_is(self) -> None:
        """Let nothing leave the view by itself before the next answer, unless the request does not fit."""
        call = self.view.last_call
        self._kept_after = call.seq if call is not None else 0

    def stats(self, *, between_turns: bool = True) -> ContextStats:
        """How full the window is, what comes next, and what was done; the caller adds costs and models."""
        ahead = self.forecast(between_turns=between_turns)
        seen = stats_of(self.view, self.meter, self.limits(), self.model.name, ahead)
        return structs.replace(seen, cache_until=self.cache.until if self.model.cache != "none" else 0.0)


def _saved(price: StepPrice | None) -> dict[str, float]:
    """The fields of an entry on what it saves, in USD."""
    if price is None or price.in_seconds:
        return {}
    return {"saved_usd": round(price.before - price.call, 6), "saving_usd": round(price.saving, 6)}
