"""One turn: ask the model, run the tools it calls, and repeat until it calls no more."""

import asyncio
import time
import traceback
from collections.abc import Sequence

from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.events import Emit
from tui_agent.agent.extensions.hooks import MOST_STOPS, HookAnswer, HookBlocked
from tui_agent.agent.history.as_events import said
from tui_agent.agent.turn.guards import not_done
from tui_agent.agent.turn.hints import HINTS, unanswered
from tui_agent.agent.turn.model_calls import ModelCalls, TurnParts, cut_short, reset_of
from tui_agent.agent.turn.toolbox import NOT_APPROVED, value_of
from tui_agent.context.effects import WriteInBackground
from tui_agent.conversation.blocks import Text, ToolCall, text_in
from tui_agent.conversation.entries import Delivered, Message, ModeChanged, Withdrawn, delivered, notice, queued_of
from tui_agent.conversation.file_changes import files_since
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.models.base import ModelError
from tui_agent.storage.errors import StorageError
from tui_agent.system.durable import to_completion
from tui_agent.text import error_text
from tui_agent.tools.gate.permissions import NobodyToAsk

AGAIN = "[the user sent the newest message above once more]"

UNEXPECTED_HINT = "Send the message again. `tui-agent trace SESSION` shows what happened, for a report of the fault."


class Turn:
    """One turn of a conversation, from the user's words to the final answer. Runs once."""

    def __init__(self, parts: TurnParts, emit: Emit) -> None:
        self._record, self._active, self._toolbox, self._tracker, self._steps, self._guards = parts[:6]
        self._planning = parts.planning
        self._offered, self._hooks, self._interceptors = parts.offered, parts.hooks, parts.interceptors
        self._kept_going = self._queued_as = 0
        self._from_hooks: list[Message] | None = None
        self._engine = self._record.engine
        self._emit = emit
        self._calls = ModelCalls(parts, emit)
        self._ended = ""
        """How it ended, if not with the model's last answer: ``error`` or ``interrupted``."""
        self._started = time.monotonic()

    @property
    def failed(self) -> bool:
        return self._ended == "error"

    @property
    def answered(self) -> bool:
        """Whether it ended with an answer that the model meant to be its last."""
        return not self._ended and self._calls.stop_reason == "end_turn"

    def _tell(self, level: str, title: str, text: str = "", hint: str = "") -> None:
        self._emit(events.Notice(level=level, title=title, text=text, hint=hint))

    async def run(self, prompt: Message | None, waits: int = 0) -> None:
        """Run to the end. Errors become events, and the last event is `TurnFinished`. A cancellation is raised, after
        the log was made valid.

        `waits`: instead of a `prompt`, the number of the entry as which it is queued.
        """
        self._queued_as = waits
        before = len(self._record.view.log)
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
            self._ended = "interrupted"
            raise
        finally:
            self._tracker.end_turn()
            self._engine.turn_ended()
            try:
                await to_completion(self._record.flush())
            except StorageError as error:
                self._tell("warning", "The end of the turn is not stored", error.message, error.hint)
            finally:
                self._record.telemetry.turn_ended(self._ended or self._calls.stop_reason)
                self._emit(
                    events.TurnFinished(
                        stop_reason=self._ended or self._calls.stop_reason,
                        text=self._calls.answer,
                        steps=self._calls.made,
                        usage=self._tracker.turn.usage,
                        cost_usd=self._tracker.turn.known_cost_usd,
                        duration_ms=int(1000 * (time.monotonic() - self._started)),
                        files=len(files_since(self._record.view.log, before + 1).files),
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
            self._ended = "error"
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
        self._guards.before_call(self._calls.made)
        if (watch := self._guards.watch) is not None and watch.escalation:
            larger, watch.escalation = watch.escalation, ""
            await self._active.take_over(larger)
            self._emit(self._active.changed)
        await self._steps.run(self._engine.prepare(), self._emit)
        await self._record.append(*_of_hook(await self._hooks.begin_step(self._emit)))
        if (before_model := self._interceptors.before_model) is not None:
            prepared = await self._steps.compute(self._engine.request)
            if addition := await value_of(before_model(prepared.request)):
                await self._record.append(notice(addition))
        completed = await self._calls.ask()
        await self._guards.after_call(self._active.profile, self._record, self._emit)
        calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
        await self._toolbox.run(calls, self._emit)
        if ended := self._toolbox.take_end():
            raise HookBlocked(ended)
        delivered = await self._deliver()
        return bool(calls) or delivered or completed.stop_reason == "paused"

    # Before the first call

    async def _begin(self, prompt: Message | None) -> None:
        """Prepare the log for the first call: introduce the model, complete what a crash left open, do the context
        work that is due, and take in the user's words.
        """
        await self._active.introduce()
        if news := self._active.take_news():
            self._emit(news)
        partial = self._record.view.partial
        if partial.strip():
            await self._record.append(cut_short(partial, self._record.view.model))
        await self._record.answer_open_calls(self._toolbox.left_open)
        await self._record.append(*_of_hook(await self._hooks.begin_turn(self._emit)))
        if prompt is not None:
            said = await self._ask_hooks(prompt)
            if said.ended or said.refused:
                raise _PromptRefused(said.ended or said.refused)
            self._from_hooks = _of_hook(said)
        try:
            self._guards.ceiling.check()
        except ModelError:
            await self._take_in(prompt)
            raise
        for warning in self._engine.warnings():
            self._tell("warning", "A context layer rests", warning)
        steps = self._engine.prepare(between_turns=True)
        first = await self._steps.start(steps, self._emit)
        if prompt is not None and first is not None and not isinstance(first, WriteInBackground):
            # Context work that takes a while comes first; meanwhile the user's words are safe on disk.
            self._queued_as = await self._record.append(queued_of(prompt))
            prompt = None
        if first is not None:
            await self._steps.run(steps, self._emit, first)
        await self._take_in(prompt)

    async def _ask_hooks(self, prompt: Message) -> HookAnswer:
        return await self._hooks.fire("UserPromptSubmit", {"prompt": text_in(prompt.blocks)}, self._emit)

    async def _goes_on_for_hooks(self) -> bool:
        """Ask the user's hooks whether the turn may end; True if one of them wants it to go on."""
        if self._kept_going >= MOST_STOPS:
            return False
        fields = {"stop_hook_active": self._kept_going > 0, "last_assistant_message": self._calls.answer}
        said = await self._hooks.may_end(fields, self._emit)
        if said.ended:
            self._tell("info", "A hook ended the turn", said.ended, "")
        if not said.refused or said.ended:
            return False
        self._kept_going += 1
        await self._record.append(notice(f"[a hook of the user has you go on] {said.refused}", "hook"))
        return True

    async def _take_in(self, prompt: Message | None) -> None:
        delivered = await self._deliver()
        if prompt is not None:
            await self._take_in_prompt(prompt, self._from_hooks or [])
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
            if queued.seq == self._queued_as and self._from_hooks is not None:
                needed = True
                await self._take_in_prompt(whole, self._from_hooks, queued.seq)
                continue
            answer = await self._ask_hooks(whole)
            if not (answer.ended or answer.refused):
                needed = True
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
        text = text_in(whole.blocks)
        fitted = await self._steps.run(self._engine.fitted(whole), self._emit)
        because: list[Message | ModeChanged] = [*hooks, *await self._planning.news(whole.typed or text)]
        read = await self._offered.resources(text) if self._offered is not None else ()
        because += [notice(each, "resource") for each in read]
        withdrawn = (Withdrawn(queued=queued),) if queued else ()
        before = self._record.view.unanswered_prompt() if queued in (0, self._queued_as) else None
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

    # How it ends

    async def _leave(self, answer: str = INTERRUPTED) -> None:
        """Make the log valid: save the text streamed so far, and answer calls that were not run with `answer`."""
        await self._calls.break_off()
        await self._record.answer_open_calls(answer)

    async def _interrupted(self) -> None:
        self._ended = "interrupted"
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
        message = f"{error.message.rstrip('.')}.{resets}" if (resets := reset_of(error)) else error.message
        self._fail(error.kind, message, retryable=error.retryable, hint=HINTS.get(error.kind, ""))

    def _fail(self, kind: str, message: str, *, retryable: bool, hint: str) -> None:
        self._ended = "error"
        self._emit(events.TurnFailed(kind=kind, message=message, retryable=retryable, hint=hint))


class _PromptRefused(HookBlocked):
    """The user's prompt did not enter the conversation."""


def _of_hook(answer: HookAnswer) -> list[Message]:
    return [notice(f"[a hook of the user says] {answer.context}", "hook")] if answer.context else []
