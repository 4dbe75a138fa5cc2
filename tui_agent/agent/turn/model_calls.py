"""The calls of a turn's model: made to fit the window, sent, received, and entered in the log.

A provider's limit is a pause: everything so far is in the log, so that Esc, a crash or the end of the program lose
nothing.
"""

import asyncio
import time
from contextlib import aclosing
from typing import NamedTuple

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.events import Emit
from tui_agent.agent.extensions.hooks import Hooks
from tui_agent.agent.history.as_events import answered
from tui_agent.agent.record import CallAccount, Record
from tui_agent.agent.turn.guards import Guards, probably_cached
from tui_agent.agent.turn.planning import Planning
from tui_agent.agent.turn.steps import StepRunner
from tui_agent.agent.turn.toolbox import Interceptors, Toolbox
from tui_agent.context.cache_watch import CacheWatch
from tui_agent.context.requests import Prepared
from tui_agent.conversation.blocks import Text, ToolCall, valid_text
from tui_agent.conversation.entries import AnyEntry, Message, Partial, Usage
from tui_agent.conversation.profile import FREE, MILLION, ModelProfile
from tui_agent.models import base
from tui_agent.models.base import Timings
from tui_agent.models.call_repair import repaired_answer, valid_blocks
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.usage import UsageTracker, cost_of
from tui_agent.system.durable import to_completion
from tui_agent.text import clock_text, money_text

PARTIAL_EVERY_S = 1.0
"""Seconds between two saves of text that is still streaming."""

LONGEST_SHOWN_WAIT_S = 400 * 86_400.0
"""Seconds until a reset that are told as a time; more are no time that a person waits for."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 15.0, 60.0
"""The first and the longest pause if the provider does not say how long to wait; each is twice the one before."""
MOST_SHORT = 12
"""The most pauses in a turn that are shorter than `LONGEST_PAUSE_S`, or as long because nothing was said."""
_CHECKED_EVERY_S = 20.0


class TurnParts(NamedTuple):
    """What a turn needs; all of it belongs to the agent and outlives the turn."""

    record: Record
    active: ActiveModel
    toolbox: Toolbox
    tracker: UsageTracker
    steps: StepRunner
    guards: Guards
    caches: CacheWatch
    planning: Planning
    offered: OfferedTools | None
    hooks: Hooks
    interceptors: Interceptors = Interceptors()


class StreamedReply(msgspec.Struct):
    """The answer that has streamed in so far; `completed` once it is complete."""

    completed: base.Completed | None = None
    text: str = ""
    saved: int = 0
    restart: bool = False
    saved_at: float = msgspec.field(default_factory=time.monotonic)
    began: float = msgspec.field(default_factory=time.monotonic)
    first: float = 0.0

    @property
    def timings(self) -> Timings:
        """The call's timings, estimated from the time of its first event, for servers that do not report them."""
        first = self.first or time.monotonic()
        return Timings(first - self.began, time.monotonic() - first)


class LimitPauses:
    """The pauses of a turn at its provider's limits; `minutes`: the most in all."""

    def __init__(self, minutes: float) -> None:
        self._left_s = 60.0 * minutes
        self._short = 0

    def next(self, error: base.ModelError) -> float | None:
        """How many seconds to wait before the next try; None if that would be more than allowed."""
        pause = error.retry_after
        if pause is None:
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._short)
        if pause <= LONGEST_PAUSE_S:
            self._short += 1
        if pause > self._left_s or self._short > MOST_SHORT:
            return None
        self._left_s -= pause
        return pause


class ModelCalls:
    """The model calls of one turn. `made`: how many were answered; `answer` and `stop_reason`: the newest answer's."""

    def __init__(self, parts: TurnParts, emit: Emit) -> None:
        self._record, self._active, self._tracker = parts.record, parts.active, parts.tracker
        self._steps, self._guards, self._caches = parts.steps, parts.guards, parts.caches
        self._engine = self._record.engine
        self._account = CallAccount(self._record, self._tracker)
        self._emit = emit
        self._reply = StreamedReply()
        self._fallbacks = list(self._engine.settings.model.fallbacks)
        self._pauses = LimitPauses(self._engine.settings.model.wait_for_reset)
        self._recoveries = 0
        self._picture_refused = False
        self._announced = 0
        self.made = 0
        self.answer, self.stop_reason = "", "end_turn"

    async def ask(self) -> base.Completed:
        """Ask the model; if the request turns out not to fit, shrink it and ask again, within limits.

        Raises `ModelError`, `StorageError`.
        """
        while True:
            await self._make_fit()
            await self._tell_of_cold_cache()
            try:
                answered = await self._send(await self._steps.compute(self._engine.request))
                if news := self._active.take_news():
                    self._emit(news)
                return answered
            except base.ContextOverflow as overflow:
                shorter_answer = self._learn_limit(overflow)
                if isinstance(overflow, base.RequestTooLarge):
                    self._engine.learn_too_many_bytes()
                # A request that a bound of ours forbids is refused once, and then sent as small as it can be.
                self._recoveries += not overflow.bound
                if self._recoveries > self._engine.settings.compaction.max_compaction_recoveries:
                    raise
                if shorter_answer and self._engine.fits:
                    continue
                if not await self._steps.run(self._engine.recover(), self._emit) and not overflow.bound:
                    raise
            except base.ToolsRefused:
                if self._record.view.prefix is None or not self._record.view.prefix.tools:
                    raise
                await self._active.introduce()
                if news := self._active.take_news():
                    self._emit(news)
            except base.PictureRefused as refused:
                # First smaller pictures, then none, so this loop ends.
                again, self._picture_refused = self._picture_refused, True
                if not await self._steps.run(self._engine.give_way(refused.pictures, others=again), self._emit):
                    raise
            except (base.RateLimited, base.Overloaded) as error:
                await self._discard_reply()
                if not (await self._hand_over(error) or await self._wait(error)):
                    raise

    async def break_off(self) -> None:
        """End a call that was not answered: save the text streamed so far, and count what it cost."""
        await self._account.broke_off()
        self._engine.meter.forget_refusal()
        if self._reply.text.strip():
            await self._record.append(cut_short(self._reply.text, self._active.profile.name))
            self.answer = self._reply.text

    async def _make_fit(self) -> None:
        """Make the next request as small as it has to be. Raises `ContextOverflow` if it cannot be."""
        if not self._engine.fits:
            await self._steps.run(self._engine.recover(), self._emit)
        if not self._engine.fits:
            # As small as it can be: a bound that is still too high does not keep it from being tried.
            self._engine.meter.forget_bound()
        budget, tokens = self._engine.budget, self._engine.tokens
        if not budget.fits(tokens):
            size = f"The next request has about {tokens:,} tokens; {self._active.profile.id} takes"
            room = f"{budget.limit:,} (its window of {budget.window:,} less {budget.reserve:,} for the answer)"
            raise base.ContextOverflow(f"{size} {room}.", tokens=tokens, limit=budget.limit)

    async def _tell_of_cold_cache(self) -> None:
        """Say, once for each answer, what a call with an expired cache costs."""
        last = self._record.view.last_call
        if last is not None and last.seq != self._announced:
            cold = await self._steps.compute(self._engine.cold_send)
            if cold is not None:
                self._announced = last.seq
                self._tell("info", "The cache is cold", cold.text())

    def _tell(self, level: str, title: str, text: str = "", hint: str = "") -> None:
        self._emit(events.Notice(level=level, title=title, text=text, hint=hint))

    # A provider's limit

    async def _hand_over(self, error: base.ModelError) -> bool:
        """Go on with the next fallback whose key is there, and tell what that costs; False if there is none."""
        active, catalogue = self._active, catalogue_of(self._engine.settings)
        before = active.profile.name
        while self._fallbacks:
            name = self._fallbacks.pop(0)
            title = f"{name} cannot go on for {before}"
            try:
                if str(catalogue.resolve(name)) == before:
                    continue
                if (missing := catalogue.missing_key(name)) is not None:
                    self._tell("warning", title, f"It needs a key: {missing}.")
                    continue
                await active.take_over(name)
            except base.UnknownModel as unknown:
                self._tell("warning", title, unknown.message)
                continue
            self._note(error, handed_to=active.profile.name)
            price = _price_of_reading(active.profile, self._engine.tokens)
            self._tell(
                "warning",
                f"{active.profile.name} goes on for {before}",
                f"{error.happened.rstrip('.')}.{reset_of(error)} {price}",
                f"/model {before} goes back to it; model.fallbacks says who goes on.",
            )
            self._emit(active.changed)
            return True
        return False

    async def _wait(self, error: base.ModelError) -> bool:
        """Wait until the limit resets; False if that would be longer than the settings allow."""
        pause = self._pauses.next(error)
        if pause is None:
            return False
        self._note(error, retry_s=pause)
        until = time.time() + pause
        for sharing in self._guards.ceiling.sharing:
            await sharing.limited(self._active.profile, until)
        self._emit(events.Retrying(attempt=1, delay_s=pause, kind=error.kind, message=error.happened, until=until))
        # Also if the machine is suspended meanwhile.
        while (left := until - time.time()) > 0:  # noqa: ASYNC110 (a clock is no event)
            await asyncio.sleep(min(left, _CHECKED_EVERY_S))
        return True

    def _note(self, error: base.ModelError, **more: object) -> None:
        self._record.note("error", {"kind": error.kind, "message": error.message, **more})

    def _learn_limit(self, overflow: base.ContextOverflow) -> bool:
        """Adopt the limit that the provider's error states, and tell the user if it is lower than was known.

        True if that means asking for a shorter answer from now on.
        """
        before, reserve = self._engine.window.tokens, self._engine.budget.reserve
        self._engine.learn_limit(overflow.limit, overflow.tokens, bound=overflow.bound)
        after = self._engine.window.tokens
        if after < before:
            self._tell(
                "warning",
                f"{self._active.profile.id} takes {after:,} tokens, not {before:,}",
                "The request was too long for it. It is made to fit and sent again; nothing is lost.",
                "From now on that is taken to be its window. /context shows what fits.",
            )
        return self._engine.budget.reserve < reserve

    # A call

    async def _send(self, prepared: Prepared) -> base.Completed:
        profile = self._active.profile
        ceiling, last = self._guards.ceiling, self._record.view.last_call
        if blind := ceiling.unwatched(profile):
            self._tell("warning", "The cost ceiling is blind", blind)

        def waits(why: str) -> None:
            self._tell("info", "The call waits for those of other sessions", why)

        async with ceiling.turn_to_call(profile, prepared.tokens, probably_cached(last, profile), waits):
            self._emit(events.ModelCallStarted(model=profile.name, tokens=prepared.tokens))
            self._caches.sends(
                profile.name,
                prepared.request,
                self._engine.cache.state,
                edits=self._record.view.edits,
                last=last.usage if last is not None else None,
            )
            self._reply = StreamedReply()
            try:
                await self._listen(prepared)
            finally:
                # A complete answer counts, its cost and its calls, whatever stops the turn now.
                completed = self._reply.completed
                if completed is not None:
                    completed = await to_completion(self._enter(completed, prepared, last))
        if completed is None:
            raise base.ModelError(f"{profile.name} ended its answer without completing it.")
        return completed

    async def _enter(self, completed: base.Completed, prepared: Prepared, last: Message | None) -> base.Completed:
        """Append a complete answer; `last`: the call before. Returns it with its calls as they will be run."""
        profile, duration_ms = self._active.profile, int(1000 * (time.monotonic() - self._reply.began))
        await self._time(completed, prepared, last.usage if last is not None else None)
        cost = cost_of(completed, profile)
        missed = self._caches.answered(
            completed.usage,
            self._engine.model.rates(completed.usage.input_tokens),
            reason=completed.cache_miss,
            answer=completed.answer_id,
        )
        if missed is not None:
            self._record.note("cache_miss", {**structs.asdict(missed), "text": missed.text()})
        completed = repaired_answer(completed, prepared.request.tools, in_text=profile.loose_calls)
        completed = structs.replace(completed, blocks=valid_blocks(completed.blocks, self._record.view))
        message = Message(
            role="assistant",
            blocks=completed.blocks,
            model=profile.name,
            prefix_hash=prepared.prefix_hash,
            usage=completed.usage,
            cost_usd=cost,
            stop_reason=completed.stop_reason,
            duration_ms=duration_ms,
        )
        # This is the whole answer, so no partial one remains to be saved, and its usage is no longer to be added.
        self._reply = StreamedReply()
        self._account.answered()
        self._tracker.record(profile.name, completed.usage, cost)
        message = structs.replace(message, seq=await self._record.append(message))
        self.made += 1
        event = answered(message)
        before = f"{self.answer}\n\n" if self.stop_reason == "paused" else ""
        self.stop_reason, self.answer = message.stop_reason, before + event.text
        self._emit(event)
        calls = any(isinstance(block, ToolCall) for block in message.blocks)
        if message.stop_reason == "end_turn" and not (self.answer.strip() or calls):
            if self.made > 1:
                # After tool calls some models have nothing to add.
                hint = "what it did is shown above; ask it to sum up"
                self._tell("info", "The model ended without a word", hint=hint)
            else:
                hint = "send the message again, or try another model with /model"
                self._tell("warning", "The model answered nothing", hint=hint)
        self._emit(
            events.ContextChanged(
                tokens=self._engine.tokens,
                window=self._engine.window.tokens,
                measured=self._engine.meter.measured,
                cost_usd=self._tracker.session.known_cost_usd,
                turn_cost_usd=self._tracker.turn.known_cost_usd,
                reading=self._active.speed.reading,
                writing=self._active.speed.writing,
            )
        )
        return completed

    async def _time(self, completed: base.Completed, prepared: Prepared, last: Usage | None) -> None:
        """Measure the model's speed by a call; `last`: the usage of the call before."""
        if not self._active.profile.local:
            return
        usage, kept, cold = completed.usage, 0, self._engine.cache.state.cold
        if not usage.input_tokens:
            # The server reports no usage: estimate it. How much it had cached is known only if everything was new.
            written = self._engine.meter.tokens_of_text(self._record.view, self._reply.text, "prose")
            usage = Usage(input_tokens=prepared.tokens if cold else 0, output_tokens=written)
        elif last is not None and not cold and self._engine.meter.measured:
            kept = last.input_tokens + last.output_tokens
        await self._active.took(completed.timings or self._reply.timings, usage, kept)

    async def _listen(self, prepared: Prepared) -> None:
        request = structs.replace(prepared.request, follows=self._caches.follows(self._active.profile.name))
        async with aclosing(stream_with_retries(self._active.model, request)) as stream:
            async for event in stream:
                self._reply.first = self._reply.first or time.monotonic()
                match event:
                    case base.TextDelta():
                        self._reply.text += valid_text(event.text)
                        self._emit(event)
                        if time.monotonic() - self._reply.saved_at >= PARTIAL_EVERY_S:
                            reply, name = self._reply, self._active.profile.name
                            piece = Partial(text=reply.text[reply.saved :], model=name, restart=reply.restart)
                            reply.saved, reply.restart, reply.saved_at = len(reply.text), False, time.monotonic()
                            await self._record.append(piece)
                    case base.ReasoningDelta() | base.ToolCallDelta():
                        self._emit(event)
                    case base.Metered():
                        self._account.used_so_far(self._active.profile, event)
                    case base.ModelRetrying():
                        await self._discard_reply()
                        error, delay_s = event.error, event.delay_s
                        self._note(error, attempt=event.attempt, retry_s=delay_s)
                        again = events.Retrying(
                            attempt=event.attempt,
                            retries=event.retries,
                            delay_s=delay_s,
                            kind=error.kind,
                            message=error.happened,
                        )
                        self._emit(again)
                    case base.Completed():
                        self._account.used_so_far(self._active.profile, event)
                        self._reply.completed = event
                        return

    async def _discard_reply(self) -> None:
        """Make the text streamed so far void, also after a restart; what it cost counts."""
        if self._reply.saved:
            await self._record.append(Partial(text="", model=self._active.profile.name, restart=True))
        self._reply = StreamedReply()
        await self._account.broke_off()


def reset_of(error: base.ModelError) -> str:
    """A sentence, after a space, on when a provider's limit resets; empty if it did not say."""
    resets = error.retry_after or 0.0
    return f" It resets at {clock_text(time.time() + resets)}." if 0 < resets < LONGEST_SHOWN_WAIT_S else ""


def _price_of_reading(profile: ModelProfile, tokens: int) -> str:
    """A sentence on what it costs that a model reads the conversation once without a cache."""
    rates = profile.rates(tokens)
    if rates is None and (profile.local or profile.prices == FREE):
        return "Handing over costs nothing."
    if rates is None:
        return "What handing over costs is not known."
    cost = tokens * max(1.0, rates.write) * rates.input_usd / MILLION
    return f"Handing over costs about {money_text(cost)}: {tokens:,} tokens, once without a cache."


def cut_short(text: str, model: str) -> AnyEntry:
    return Message(role="assistant", blocks=(Text(text),), model=model, stop_reason="interrupted")
