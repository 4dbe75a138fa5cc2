"""One turn: ask the model, run the tools it calls, and repeat until it calls no more."""

import asyncio
import time
import traceback
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.extensions.hooks import MOST_STOPS, HookBlocked, Hooks, Say
from tui_agent.agent.history.as_events import answered, said, text_of
from tui_agent.agent.record import CallAccount, Record
from tui_agent.agent.turn.guards import Guards, not_done
from tui_agent.agent.turn.hints import HINTS, unanswered
from tui_agent.agent.turn.limits import Limits, sleep_until
from tui_agent.agent.turn.planning import Planning
from tui_agent.agent.turn.steps import Emit, StepRunner
from tui_agent.agent.turn.toolbox import NOT_APPROVED, Interceptors, Toolbox, value_of
from tui_agent.context.cache_watch import CacheWatch
from tui_agent.context.effects import WriteInBackground
from tui_agent.context.engine import Prepared
from tui_agent.conversation.blocks import Text, ToolCall, valid_text
from tui_agent.conversation.entries import (
    AnyEntry,
    Delivered,
    Message,
    ModeChanged,
    Partial,
    Usage,
    Withdrawn,
    delivered,
    notice,
    queued_of,
)
from tui_agent.conversation.profile import FREE, MILLION, ModelProfile
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.durable import to_completion
from tui_agent.models.base import (
    Completed,
    ContextOverflow,
    Metered,
    ModelError,
    PictureRefused,
    ReasoningDelta,
    RequestTooLarge,
    Retrying,
    TextDelta,
    ToolCallDelta,
    ToolsRefused,
    UnknownModel,
)
from tui_agent.models.call_repair import as_meant, valid_blocks
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.speed import Timings
from tui_agent.models.usage import UsageTracker, cost_usd
from tui_agent.storage.errors import StorageError
from tui_agent.text import clock_text, error_text, money_text
from tui_agent.tools.gate.permissions import NobodyToAsk

PARTIAL_EVERY_S = 1.0
"""Seconds between two saves of text that is still streaming."""

LONGEST_TOLD_S = 400 * 86_400.0
"""Seconds until a reset that are told as a time; more are no time that a person waits for."""

AGAIN = "[the user sent the newest message above once more]"

UNEXPECTED_HINT = "Send the message again. `tui-agent trace SESSION` shows what happened, for a report of the fault."


class TooLarge(ContextOverflow):
    """The program refused a request that cannot fit. Unlike a provider's refusal, it reveals no limit."""


class Parts(NamedTuple):
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


@dataclass(slots=True)
class Reply:
    """The answer that has streamed in so far; `completed` once it is complete."""

    completed: Completed | None = None
    text: str = ""
    saved: int = 0
    restart: bool = False
    saved_at: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)
    first: float = 0.0

    @property
    def timings(self) -> Timings:
        """The call's timings, estimated from the time of its first event, for servers that do not report them."""
        first = self.first or time.monotonic()
        return Timings(first - self.began, time.monotonic() - first)


class Turn:
    """One turn of a conversation, from the user's words to the final answer. Runs once."""

    def __init__(self, parts: Parts, emit: Emit) -> None:
        self._record, self._active, self._toolbox, self._tracker, self._steps, self._guards = parts[:6]
        self._caches, self._planning = parts.caches, parts.planning
        self._offered, self._hooks, self._interceptors = parts.offered, parts.hooks, parts.interceptors
        self._told_to_go_on = self._waits = 0
        self._said_by_hooks: list[Message] | None = None
        self._engine = self._record.engine
        self._account = CallAccount(self._record, self._tracker)
        self._emit = emit
        self._reply = Reply()
        self._answer = ""
        self._stop_reason = "end_turn"
        self._calls = 0
        self._recoveries = 0
        self._limits = Limits(self._engine.settings.model)
        self._picture_refused = False
        self._announced = 0
        self._started = time.monotonic()

    @property
    def failed(self) -> bool:
        """Whether it ended in an error."""
        return self._stop_reason == "error"

    def _tell(self, level: str, title: str, text: str = "", hint: str = "") -> None:
        self._emit(events.Notice(level=level, title=title, text=text, hint=hint))

    async def run(self, prompt: Message | None, waits: int = 0) -> None:
        """Run to the end. Errors become events, and the last event is `TurnFinished`. A cancellation is raised, after
        the log was made valid.

        `waits`: instead of a `prompt`, the number of the entry as which it is queued.
        """
        self._waits = waits
        self._tracker.start_turn()
        try:
            await self._run(prompt)
        except StorageError as error:
            self._fail(error.kind, error.message, retryable=True, hint=error.hint)
        except Exception as error:
            self._record.note("error", {"kind": "internal", "traceback": traceback.format_exc()})
            message = (
                f"Something went wrong inside the program ({error_text(error, 300)}). Everything up to it is kept."
            )
            self._fail("internal", message, retryable=True, hint=UNEXPECTED_HINT)
        except (KeyboardInterrupt, SystemExit):
            self._stop_reason = "interrupted"
            raise
        finally:
            self._tracker.end_turn()
            self._engine.turn_ended()
            try:
                await to_completion(self._record.flush())
            except StorageError as error:
                self._tell("warning", "The end of the turn is not stored", error.message, error.hint)
            finally:
                self._emit(
                    events.TurnFinished(
                        stop_reason=self._stop_reason,
                        text=self._answer,
                        steps=self._calls,
                        usage=self._tracker.turn.usage,
                        cost_usd=self._tracker.turn.known_cost_usd,
                        duration_ms=int(1000 * (time.monotonic() - self._started)),
                    )
                )

    async def _run(self, prompt: Message | None) -> None:
        try:
            await self._begin(prompt)
            if prompt is None:
                said = (entry for entry in reversed(self._record.view.log.path()) if isinstance(entry, Message))
                newest = next(said, None)
                if newest is not None and newest.role == "assistant" and newest.stop_reason == "interrupted":
                    await self._record.append(notice("[the answer broke off here: go on]"))
            goes_on = self._record.view.ends_with == "user"
            while goes_on:
                goes_on = await self._step() or await self._goes_on_for_hooks()
        except asyncio.CancelledError:
            await to_completion(self._interrupted())
            raise
        except ModelError as error:
            await to_completion(self._failed(error))
        except NobodyToAsk as refusal:
            await to_completion(self._record.answer_open_calls(NOT_APPROVED))
            self._stop_reason = "error"
            self._emit(unanswered(refusal))
        except HookBlocked as blocked:
            refused = isinstance(blocked, _PromptRefused)
            outcome = "refuses what you sent" if refused else "ended the turn"
            hint = "It did not enter the conversation." if refused else "What was done until then is kept."
            self._fail(
                "hook", f"A hook {outcome}: {blocked}", retryable=False, hint=f"{hint} /extensions lists the hooks."
            )
        except StorageError:
            raise
        except Exception:
            await to_completion(self._leave())
            raise

    async def _step(self) -> bool:
        """One model call with its tool calls; True if the turn goes on."""
        self._guards.before_call(self._calls)
        if larger := self._guards.take_escalation():
            await self._active.take_over(larger)
            self._emit(self._active.changed)
        await self._steps.run(self._engine.prepare(), self._emit)
        await self._record.append(*_of_hook(await self._hooks.begin_step(self._emit)))
        if (before_model := self._interceptors.before_model) is not None:
            prepared = await self._steps.compute(self._engine.request)
            if addition := await value_of(before_model(prepared.request)):
                await self._record.append(notice(addition))
        completed = await self._ask_within_the_window()
        await self._guards.after_call(self._active.profile, self._record, self._emit)
        calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
        await self._toolbox.run(calls, self._emit)
        if ended := self._toolbox.take_end():
            raise HookBlocked(ended)
        delivered = await self._deliver()
        return bool(calls) or delivered

    # Before the first call

    async def _begin(self, prompt: Message | None) -> None:
        """Prepare the log for the first call: introduce the model, complete what a crash left open, do the context
        work that is due, and take in the user's words.
        """
        await self._active.introduce()
        self._tell_of_tools()
        partial = self._record.view.partial
        if partial.strip():
            await self._record.append(_cut_short(partial, self._record.view.model))
        await self._record.answer_open_calls()
        await self._record.append(*_of_hook(await self._hooks.begin_turn(self._emit)))
        if prompt is not None:
            said = await self._submitted(prompt)
            if said.ended or said.refused:
                raise _PromptRefused(said.ended or said.refused)
            self._said_by_hooks = _of_hook(said)
        try:
            self._guards.ceiling.check()
        except ModelError:
            await self._hear(prompt)
            raise
        for warning in self._engine.warnings():
            self._tell("warning", "A context layer rests", warning)
        steps = self._engine.prepare(between_turns=True)
        first = await self._steps.start(steps, self._emit)
        if prompt is not None and first is not None and not isinstance(first, WriteInBackground):
            # Context work that takes a while comes first; meanwhile the user's words are safe on disk.
            self._waits = await self._record.append(queued_of(prompt))
            prompt = None
        if first is not None:
            await self._steps.run(steps, self._emit, first)
        await self._hear(prompt)

    async def _submitted(self, prompt: Message) -> Say:
        """What the user's hooks say to a prompt."""
        return await self._hooks.fire("UserPromptSubmit", {"prompt": text_of(prompt.blocks, Text)}, self._emit)

    async def _goes_on_for_hooks(self) -> bool:
        """Ask the user's hooks whether the turn may end; True if one of them wants it to go on."""
        if self._told_to_go_on >= MOST_STOPS:
            return False
        fields = {"stop_hook_active": self._told_to_go_on > 0, "last_assistant_message": self._answer}
        said = await self._hooks.may_end(fields, self._emit)
        if said.ended:
            self._tell("info", "A hook ended the turn", said.ended, "")
        if not said.refused or said.ended:
            return False
        self._told_to_go_on += 1
        await self._record.append(notice(f"[a hook of the user has you go on] {said.refused}", "hook"))
        return True

    async def _hear(self, prompt: Message | None) -> None:
        """Take in queued texts, then `prompt`."""
        delivered = await self._deliver()
        if prompt is not None:
            await self._take_in_prompt(prompt, self._said_by_hooks or [])
        elif not delivered:
            entries = await self._planning.news("")
            await self._record.append(*entries)
            self._planning.entered(entries)

    async def _deliver(self) -> bool:
        """Deliver what the user sent meanwhile; True if any of it needs an answer."""
        needed = False
        for queued in self._record.view.queued():
            whole = delivered(queued, Delivered(queued=queued.seq))
            if queued.kind == "user_shell":
                seq = await self._record.append(Delivered(queued=queued.seq))
                self._emit(said(structs.replace(whole, seq=seq), queued.seq))
                continue
            needed = True
            if queued.seq == self._waits and self._said_by_hooks is not None:
                await self._take_in_prompt(whole, self._said_by_hooks, queued.seq)
                continue
            answer = await self._submitted(whole)
            if not (answer.ended or answer.refused):
                await self._take_in_prompt(whole, _of_hook(answer), queued.seq)
                continue
            await self._record.append(Withdrawn(queued=queued.seq), *_of_hook(answer))
            hint = "It did not enter the conversation; Up brings it back. /extensions lists the hooks."
            self._tell("warning", "A hook refuses what you sent", answer.ended or answer.refused, hint)
        return needed

    async def _take_in_prompt(self, whole: Message, hooks: Sequence[Message], queued: int = 0) -> None:
        """Enter what the user said, with all that comes because of it. `queued`: the number of the entry it waits as.

        What they said in vain before and now say again stands once: only what is new because of it is added.
        """
        text = text_of(whole.blocks, Text)
        fitted = await self._steps.run(self._engine.fitted(whole), self._emit)
        because: list[Message | ModeChanged] = [*hooks, *await self._planning.news(whole.typed or text)]
        read = await self._offered.resources(text) if self._offered is not None else ()
        because += [notice(each, "resource") for each in read]
        withdrawn = (Withdrawn(queued=queued),) if queued else ()
        before = self._record.view.unanswered_prompt() if queued in (0, self._waits) else None
        if before is not None and before.blocks == fitted.blocks:
            log, seq = self._record.view.log, before.seq
            stands = {each.blocks for each in log.path().after(log.group_start(seq) - 1).of(Message)}
            new = [each for each in because if isinstance(each, ModeChanged) or each.blocks not in stands]
            if self._went_on_since(seq):
                new.append(notice(AGAIN))
            await self._record.append(*withdrawn, *(structs.replace(each, because=seq) for each in new))
        elif queued and fitted is whole:
            seq = await self._record.append(Delivered(queued=queued), because=because)
        else:
            seq = await self._record.append(*withdrawn, fitted, because=because)
        self._planning.entered(because)
        self._emit(said(structs.replace(fitted, seq=seq), queued))

    def _went_on_since(self, prompt: int) -> bool:
        """Whether an answer began, or the user stopped it, since they last sent this prompt."""
        for entry in reversed(self._record.view.log.path().after(prompt)):
            if isinstance(entry, Message):
                if entry.role == "assistant" or entry.kind == "interrupted":
                    return True
                if entry.blocks == (Text(AGAIN),):
                    return False
        return False

    # A call

    async def _ask_within_the_window(self) -> Completed:
        """Ask the model; if the request turns out not to fit, shrink it and retry, within limits."""
        while True:
            try:
                if not self._engine.fits:
                    await self._steps.run(self._engine.recover(), self._emit)
                if not self._engine.fits:
                    # As small as it can be: a bound that is still too high does not keep it from being tried.
                    self._engine.meter.forget_bound()
                budget, tokens = self._engine.budget, self._engine.tokens
                if not budget.fits(tokens):
                    size = f"The next request has about {tokens:,} tokens; {self._active.profile.id} takes"
                    room = f"{budget.limit:,} (its window of {budget.window:,} less {budget.reserve:,} for the answer)"
                    raise TooLarge(f"{size} {room}.", tokens=tokens, limit=budget.limit)  # noqa: TRY301
                last = self._record.view.last_call
                if last is not None and last.seq != self._announced:
                    cold = await self._steps.compute(self._engine.cold_send)
                    if cold is not None:
                        # Once for each answer, what a call with an expired cache costs.
                        self._announced = last.seq
                        self._tell("info", "The cache is cold", cold.text())
                return await self._ask(await self._steps.compute(self._engine.request))
            except TooLarge:
                raise
            except ContextOverflow as overflow:
                shorter_answer = self._learn_limit(overflow)
                if isinstance(overflow, RequestTooLarge):
                    self._engine.learn_too_many_bytes()
                # A request that a bound of ours forbids is refused once, and then sent as small as it can be.
                self._recoveries += not overflow.bound
                if self._recoveries > self._engine.settings.compaction.max_compaction_recoveries:
                    raise
                if shorter_answer and self._engine.fits:
                    continue
                if not await self._steps.run(self._engine.recover(), self._emit) and not overflow.bound:
                    raise
            except ToolsRefused:
                if self._record.view.prefix is None or not self._record.view.prefix.tools:
                    raise
                await self._active.introduce()
                self._tell_of_tools()
            except PictureRefused as refused:
                # First smaller pictures, then none, so this loop ends.
                again, self._picture_refused = self._picture_refused, True
                if not await self._steps.run(self._engine.give_way(refused.pictures, others=again), self._emit):
                    raise
            except ModelError as error:
                if not self._limits.is_limit(error):
                    raise
                await self._discard_reply()
                if not (await self._hand_over(error) or await self._wait(error)):
                    raise

    async def _hand_over(self, error: ModelError) -> bool:
        """Go on with the next fallback whose key is there, and tell what that costs; False if there is none."""
        active, catalogue = self._active, catalogue_of(self._engine.settings)
        before = active.profile.name
        while name := self._limits.fallback():
            title = f"{name} cannot go on for {before}"
            try:
                if str(catalogue.resolve(name)) == before:
                    continue
                if (missing := catalogue.missing_key(name)) is not None:
                    self._tell("warning", title, f"It needs a key: {missing}.")
                    continue
                await active.take_over(name)
            except UnknownModel as unknown:
                self._tell("warning", title, unknown.message)
                continue
            self._note(error, handed_to=active.profile.name)
            price = _price_of_reading(active.profile, self._engine.tokens)
            self._tell(
                "warning",
                f"{active.profile.name} goes on for {before}",
                f"{error.happened.rstrip('.')}.{_reset_of(error)} {price}",
                f"/model {before} goes back to it; model.fallbacks says who goes on.",
            )
            self._emit(active.changed)
            return True
        return False

    async def _wait(self, error: ModelError) -> bool:
        """Wait until the limit resets; False if that would be longer than the settings allow."""
        pause = self._limits.pause(error)
        if pause is None:
            return False
        self._note(error, retry_s=pause)
        until = time.time() + pause
        self._emit(events.Retrying(attempt=1, delay_s=pause, kind=error.kind, message=error.happened, until=until))
        await sleep_until(until)
        return True

    def _note(self, error: ModelError, **more: object) -> None:
        self._record.note("error", {"kind": error.kind, "message": error.message, **more})

    def _learn_limit(self, overflow: ContextOverflow) -> bool:
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

    def _tell_of_tools(self) -> None:
        """Tell the user, once, that the model is given no tools, or not yet the one for their first agents."""
        if self._active.take_chat_news():
            self._tell(
                "warning",
                f"{self._active.profile.id} calls no tools",
                "It is asked without them: it answers from what is in the conversation, and changes nothing.",
                "Attach files with @, run commands with !, or choose a model that calls tools with /model.",
            )
        elif self._active.take_agent_news():
            self._tell(
                "info",
                "Your first agents wait",
                "A new tool in front of the conversation would cost its cache, so the model is told of them with the "
                "next summary, or sooner where that costs nothing.",
                "/compact writes a summary now; a new session has them at once.",
            )

    async def _ask(self, prepared: Prepared) -> Completed:
        profile = self._active.profile
        with self._guards.calling(profile, prepared.tokens, self._record, self._emit):
            self._emit(events.ModelCallStarted(model=profile.name, tokens=prepared.tokens))
            last = self._record.view.last_call
            self._caches.sends(
                profile.name,
                prepared.request,
                self._engine.cache,
                edits=self._record.view.edits,
                last=last.usage if last is not None else None,
            )
            self._reply = Reply()
            try:
                await self._listen(prepared)
            finally:
                # A complete answer counts, its cost and its calls, whatever stops the turn now.
                completed = self._reply.completed
                if completed is not None:
                    completed = await to_completion(self._enter(completed, prepared, last))
        if completed is None:
            raise ModelError(f"{profile.name} ended its answer without completing it.")
        return completed

    async def _enter(self, completed: Completed, prepared: Prepared, last: Message | None) -> Completed:
        """Append a complete answer; `last`: the call before. Returns it with its calls as they will be run."""
        profile, duration_ms = self._active.profile, int(1000 * (time.monotonic() - self._reply.began))
        await self._time(completed, prepared, last.usage if last is not None else None)
        cost = cost_usd(completed.usage, profile.prices)
        missed = self._caches.answered(
            completed.usage,
            self._engine.model.rates(completed.usage.input_tokens),
            reason=completed.cache_miss,
            answer=completed.answer_id,
        )
        if missed is not None:
            self._record.note("cache_miss", {**missed._asdict(), "text": missed.text()})
        completed = as_meant(completed, prepared.request.tools, in_text=profile.loose_calls)
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
        self._reply = Reply()
        self._account.answered()
        self._tracker.record(profile.name, completed.usage, cost)
        message = structs.replace(message, seq=await self._record.append(message))
        self._calls += 1
        event = answered(message)
        self._stop_reason, self._answer = message.stop_reason, event.text
        self._emit(event)
        calls = any(isinstance(block, ToolCall) for block in message.blocks)
        if message.stop_reason == "end_turn" and not (self._answer.strip() or calls):
            if self._calls > 1:
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

    async def _time(self, completed: Completed, prepared: Prepared, last: Usage | None) -> None:
        """Measure the model's speed by a call; `last`: the usage of the call before."""
        if not self._active.profile.local:
            return
        usage, kept, cold = completed.usage, 0, self._engine.cache.cold
        if not usage.input_tokens:
            # The server reports no usage: estimate it. How much it had cached is known only if everything was new.
            written = self._engine.meter.tokens_of_text(self._record.view, self._reply.text, "prose")
            usage = Usage(input_tokens=prepared.tokens if cold else 0, output_tokens=written)
        elif last is not None and not cold and self._engine.meter.measured:
            kept = last.input_tokens + last.output_tokens
        await self._active.took(completed.timings or self._reply.timings, usage, kept)

    async def _listen(self, prepared: Prepared) -> None:
        """Receive the answer into `_reply`."""
        request = structs.replace(prepared.request, follows=self._caches.newest)
        async with aclosing(stream_with_retries(self._active.model, request)) as stream:
            async for event in stream:
                self._reply.first = self._reply.first or time.monotonic()
                match event:
                    case TextDelta():
                        self._reply.text += valid_text(event.text)
                        self._emit(events.TextDelta(text=event.text))
                        if time.monotonic() - self._reply.saved_at >= PARTIAL_EVERY_S:
                            await self._save_partial()
                    case ReasoningDelta():
                        self._emit(events.ReasoningDelta(text=event.text))
                    case ToolCallDelta():
                        self._emit(events.ToolCallDelta(index=event.index, name=event.name, size=event.size))
                    case Metered():
                        self._account.used_so_far(self._active.profile, event.usage)
                    case Retrying():
                        await self._retrying(event)
                    case Completed():
                        self._account.used_so_far(self._active.profile, event.usage)
                        self._reply.completed = event
                        return

    async def _save_partial(self) -> None:
        reply = self._reply
        piece = Partial(text=reply.text[reply.saved :], model=self._active.profile.name, restart=reply.restart)
        reply.saved, reply.restart, reply.saved_at = len(reply.text), False, time.monotonic()
        await self._record.append(piece)

    async def _retrying(self, event: Retrying) -> None:
        error, attempt, delay_s = event.error, event.attempt, event.delay_s
        await self._discard_reply()
        fields = {"kind": error.kind, "message": error.message, "attempt": attempt, "retry_s": delay_s}
        self._record.note("error", fields)
        self._emit(
            events.Retrying(
                attempt=attempt, retries=event.retries, delay_s=delay_s, kind=error.kind, message=error.happened
            )
        )

    async def _discard_reply(self) -> None:
        """Make the text streamed so far void, also after a restart; what it cost counts."""
        if self._reply.saved:
            await self._record.append(Partial(text="", model=self._active.profile.name, restart=True))
        self._reply = Reply()
        await self._account.broke_off()

    # How it ends

    async def _leave(self, answer: str = INTERRUPTED) -> None:
        """Make the log valid: save the text streamed so far, and answer calls that were not run with `answer`."""
        await self._account.broke_off()
        if self._reply.text.strip():
            await self._record.append(_cut_short(self._reply.text, self._active.profile.name))
            self._answer = self._reply.text
        await self._record.answer_open_calls(answer)

    async def _interrupted(self) -> None:
        self._stop_reason = "interrupted"
        await self._leave()
        await self._record.append(notice("[interrupted by the user]", "interrupted"))

    async def _failed(self, error: ModelError) -> None:
        await self._leave(not_done(error))
        if news := self._guards.ceiling.take_news():
            await self._record.append(news)
        fields: dict[str, object] = {"kind": error.kind, "message": error.message}
        if error.__cause__ is not None:
            fields["traceback"] = "".join(traceback.format_exception(error.__cause__))
        self._record.note("error", fields)
        message = f"{error.message.rstrip('.')}.{resets}" if (resets := _reset_of(error)) else error.message
        self._fail(error.kind, message, retryable=error.retryable, hint=HINTS.get(error.kind, ""))

    def _fail(self, kind: str, message: str, *, retryable: bool, hint: str) -> None:
        self._stop_reason = "error"
        self._emit(events.TurnFailed(kind=kind, message=message, retryable=retryable, hint=hint))


def _reset_of(error: ModelError) -> str:
    """A sentence, after a space, on when a provider's limit resets; empty if it did not say."""
    resets = error.retry_after or 0.0
    return f" It resets at {clock_text(time.time() + resets)}." if 0 < resets < LONGEST_TOLD_S else ""


def _price_of_reading(profile: ModelProfile, tokens: int) -> str:
    """A sentence on what it costs that a model reads the conversation once without a cache."""
    rates = profile.rates(tokens)
    if rates is None and (profile.local or profile.prices == FREE):
        return "Handing over costs nothing."
    if rates is None:
        return "What handing over costs is not known."
    cost = tokens * max(1.0, rates.write) * rates.input_usd / MILLION
    return f"Handing over costs about {money_text(cost)}: {tokens:,} tokens, once without a cache."


class _PromptRefused(HookBlocked):
    """The user's prompt did not enter the conversation."""


def _of_hook(said: Say) -> list[Message]:
    return [notice(f"[a hook of the user says] {said.told}", "hook")] if said.told else []


def _cut_short(text: str, model: str) -> AnyEntry:
    return Message(role="assistant", blocks=(Text(text),), model=model, stop_reason="interrupted")
