"""Subtasks: questions answered in separate conversations, on a cheaper model.

A subtask sees only its own system prompt and prompt, and has its own record. Its calls count in the session's totals
as they happen, pass the session's permission gate and stop at the session's cost ceiling.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from typing import Protocol

import msgspec

from tui_agent.agent import events
from tui_agent.agent.history.as_events import replay
from tui_agent.conversation.entries import AnyEntry, Usage
from tui_agent.models.base import ModelError
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.errors import StorageError
from tui_agent.text import money_text, one_line
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion, SubtaskProgress
from tui_agent.tools.gate.permissions import NobodyToAsk
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec

PARALLEL = 4
"""How many subtasks of a session run at the same time."""

SPARE_STEPS = 2
"""A subtask is told to wrap up when this many model calls are left."""

WRAP_UP = "[notice] You have one call left. Answer the question now with what you have found, and say what is missing."

CALLS_LISTED = 100
"""How many of a subtask's newest calls its progress lists."""

_SHOWN = 400
_WAITING = SubtaskProgress("", "waiting: other subtasks are running")


class SubtaskHost(Protocol):
    """The part of `Agent` that a subtask uses."""

    @property
    def tracker(self) -> UsageTracker: ...

    def run(self, prompt: str = "") -> events.EventStream: ...

    async def queue(self, text: str) -> int: ...

    def interrupt(self) -> bool: ...


class OpenSubtask(msgspec.Struct, frozen=True):
    """A subtask whose conversation is ready to run. `id`: of its record. `model`: ``provider:id``."""

    id: str
    model: str
    conversation: SubtaskHost


Opener = Callable[[SubtaskSpec, str, Ask], AbstractAsyncContextManager[OpenSubtask]]
"""A context with the conversation of a subtask, given its branch and the `Ask` for its calls; at its end the record is
complete. Raises `StorageError`, `UnknownModel`, and ToolFailure for an unknown tool."""


class SubtaskRunner:
    """Runs the subtasks of one session, at most `PARALLEL` at a time. `ask`: the session's.

    It is made before the tools that use it, and these before the agent whose `opener` it gets.
    """

    opener: Opener

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._slots = asyncio.Semaphore(PARALLEL)

    async def run(
        self, spec: SubtaskSpec, progress: Callable[[SubtaskProgress], None], call_id: str = ""
    ) -> SubtaskResult:
        """Run a subtask to its end; see `tools.subtasks.Subtasks`."""
        unasked: list[NobodyToAsk] = []

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            reason = f"{question.reason} ({spec.title})"
            asked = msgspec.structs.replace(question, call_id=call_id or question.call_id, reason=reason)
            try:
                return await self._ask(asked)
            except NobodyToAsk as refusal:
                unasked.append(refusal)
                raise

        if self._slots.locked():
            progress(_WAITING)
        async with self._slots, AsyncExitStack() as opened:
            opening = self.opener(spec, branch_prefix(call_id) + secrets.token_hex(2), ask)
            try:
                subtask = await opened.enter_async_context(opening)
            except (ModelError, StorageError) as error:
                return SubtaskResult("", "", spec.model, Usage(), 0.0, 0, error.message)
            result = await _followed(subtask, spec, progress)
        if unasked:
            raise unasked[-1]
        return result


def branch_prefix(call_id: str) -> str:
    """The prefix of the branch names of a call's subtasks, by which their records can be found."""
    return hashlib.sha256(call_id.encode()).hexdigest()[:8]


def past_progress(subtask_id: str, entries: Iterable[AnyEntry]) -> SubtaskProgress:
    """How a subtask stood at its end, from its record."""
    path = list(entries)
    past, tracker = list(replay(path)), UsageTracker()
    tracker.record_log(path)
    models = [event.model for event in past if isinstance(event, events.AssistantMessage)]
    story = _Story(subtask_id, models[-1] if models else "no model", tracker)
    for event in past:
        story.take(event)
    return story.stands("done")


async def _followed(
    subtask: OpenSubtask, spec: SubtaskSpec, progress: Callable[[SubtaskProgress], None]
) -> SubtaskResult:
    """Run a subtask to its end and report its progress; near its limit of steps tell it to wrap up, at it stop it."""
    conversation = subtask.conversation
    story = _Story(subtask.id, subtask.model, conversation.tracker)
    progress(story.stands())
    try:
        async with aclosing(conversation.run(spec.prompt)) as stream:
            async for event in stream:
                if story.take(event):
                    progress(story.stands())
                if isinstance(event, events.AssistantMessage) and event.stop_reason in ("tool_calls", "paused"):
                    await _bound(story, spec, conversation)
    except asyncio.CancelledError:
        progress(story.stands("stopped"))
        raise
    return story.result()


async def _bound(story: "_Story", spec: SubtaskSpec, conversation: SubtaskHost) -> None:
    """Tell the subtask to wrap up, or stop it, if its steps run out."""
    cost = conversation.tracker.session.known_cost_usd
    if spec.budget_usd and cost is not None and cost >= spec.budget_usd:
        story.error = (
            f"It was stopped: it has cost {money_text(cost)}, and its budget is {money_text(spec.budget_usd)}."
        )
        conversation.interrupt()
    elif story.steps >= spec.steps:
        story.error = f"It was stopped after {story.steps} model calls."
        conversation.interrupt()
    elif story.steps == spec.steps - SPARE_STEPS:
        # The turn may have ended meanwhile.
        with suppress(RuntimeError):
            await conversation.queue(WRAP_UP)


class _Story:
    """The progress of a subtask, from its events."""

    def __init__(self, subtask_id: str, model: str, tracker: UsageTracker) -> None:
        self._id, self._model, self._tracker = subtask_id, model, tracker
        self._calls: list[tuple[str, str]] = []
        self._doing, self._over = "starting", False
        self._text = ""
        self._usage = Usage()
        self.steps = 0
        self.error = ""

    def take(self, event: events.AgentEvent) -> bool:
        """Take in an event; True if the subtask stands differently now."""
        match event:
            case events.ModelCallStarted():
                self._doing = "thinking"
            case events.AssistantMessage():
                self.steps += 1
                self._usage += event.usage
                self._text = event.text or self._text
                self._doing = "working"
            case events.ToolStarted():
                self._calls.append((event.name, one_line(event.arguments, _SHOWN)))
            case events.PermissionAsked():
                self._doing = "waiting for your answer"
            case events.Retrying():
                self._doing = event.sentence
            case events.TurnFailed():
                self.error = event.message
            case events.TurnFinished():
                self._text = event.text or self._text
                self._doing, self._over = "done", True
                if event.stop_reason == "interrupted":
                    self.error = self.error or "It was interrupted."
                elif event.stop_reason != "end_turn":
                    self.error = self.error or f"Its answer is incomplete ({event.stop_reason})."
                elif not event.text.strip():
                    self.error = self.error or "It gave no answer."
            case _:
                return False
        return True

    def stands(self, ended: str = "") -> SubtaskProgress:
        """How it stands now. `ended`: how it has ended."""
        return SubtaskProgress(
            model=self._model,
            doing=ended or self._doing,
            tokens=self._usage.input_tokens + self._usage.output_tokens,
            cost_usd=self._tracker.session.known_cost_usd,
            calls=tuple(self._calls[-CALLS_LISTED:]),
            earlier=max(0, len(self._calls) - CALLS_LISTED),
            log=self._id if ended or self._over else "",
        )

    def result(self) -> SubtaskResult:
        return SubtaskResult(
            id=self._id,
            text=self._text,
            model=self._model,
            usage=self._usage,
            cost_usd=self._tracker.session.known_cost_usd,
            steps=self.steps,
            error=self.error,
        )
