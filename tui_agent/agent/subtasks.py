"""Subtasks: questions answered in separate conversations, on a cheaper model.

A subtask sees only its own system prompt and prompt, and has its own record. Its calls count in the session's totals
as they happen, pass the session's permission gate and stop at the session's cost ceiling.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import NamedTuple, Protocol

import msgspec

from tui_agent.agent import events
from tui_agent.agent.history.as_events import replay
from tui_agent.conversation.entries import AnyEntry, Usage
from tui_agent.durable import to_completion
from tui_agent.models.base import ModelError
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.errors import StorageError
from tui_agent.text import counted, money_text
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import NobodyToAsk
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec

__all__ = [
    "Conversation",
    "OpenSubtask",
    "SubtaskResult",
    "SubtaskRunner",
    "SubtaskSpec",
    "branch_prefix",
    "past_progress",
]

PARALLEL = 4
"""How many subtasks of a session run at the same time."""

SPARE_STEPS = 2
"""A subtask is told to wrap up when this many model calls are left."""

WRAP_UP = "[notice] You have one call left. Answer the question now with what you have found, and say what is missing."

CALLS_LISTED = 100
"""How many of a subtask's newest calls its progress lists."""

_SHOWN = 400
_WAITING = "waiting: other subtasks are running"


class Conversation(Protocol):
    """The part of `Agent` that a subtask uses."""

    def run(self, prompt: str = "") -> AsyncGenerator[events.AgentEvent, None]:
        """Run a turn; see `Agent.run`."""
        ...

    async def queue(self, text: str) -> int:
        """Queue a text for the next step; see `Agent.queue`."""
        ...

    def interrupt(self) -> bool:
        """Stop the turn; see `Agent.interrupt`."""
        ...


class Known(Protocol):
    """A subtask's identity and cost. `id`: of its record. `model`: ``provider:id``."""

    @property
    def id(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def cost_usd(self) -> float | None:
        """Its cost so far in USD; None if prices are unknown."""
        ...


class OpenSubtask(Known, Protocol):
    """A subtask whose conversation is ready to run."""

    @property
    def conversation(self) -> Conversation: ...

    async def close(self) -> None:
        """Write pending entries and close its record. Raises `StorageError`."""
        ...


Opener = Callable[[SubtaskSpec, str, Ask], Awaitable[OpenSubtask]]
"""Opens the conversation of a subtask, given its branch and the `Ask` for its calls."""


class SubtaskRunner:
    """Runs the subtasks of one session, at most `parallel` at a time.

    `ask`: the session's. `past`: reads the last progress of a call's subtask from its record.
    """

    def __init__(
        self, opener: Opener, ask: Ask, past: Callable[[str], Awaitable[str]], parallel: int = PARALLEL
    ) -> None:
        self._open = opener
        self.past = past
        self._ask = ask
        self._slots = asyncio.Semaphore(parallel)

    async def run(self, spec: SubtaskSpec, progress: Callable[[str], None], call_id: str = "") -> SubtaskResult:
        """Run a subtask to its end; see `tools.subtasks.Subtasks`."""
        if self._slots.locked():
            progress(_WAITING)
        async with self._slots:
            asking = _Asking(self._ask, spec, call_id)
            try:
                subtask = await self._open(spec, branch_prefix(call_id) + secrets.token_hex(2), asking)
            except (ModelError, StorageError) as error:
                return SubtaskResult("", "", spec.model, Usage(), 0.0, 0, error.message)
            try:
                result = await _followed(subtask, spec, progress)
            finally:
                await to_completion(subtask.close())
        if asking.unasked is not None:
            raise asking.unasked
        return result


def branch_prefix(call_id: str) -> str:
    """The prefix of the branch names of a call's subtasks, by which their records can be found."""
    return hashlib.sha256(call_id.encode()).hexdigest()[:8]


def past_progress(subtask_id: str, entries: Iterable[AnyEntry]) -> str:
    """The last progress text of a subtask, from its record."""
    path = list(entries)
    past, tracker = list(replay(path)), UsageTracker()
    tracker.record_log(path)
    models = [event.model for event in past if isinstance(event, events.AssistantMessage)]
    story = _Story(_Past(subtask_id, models[-1] if models else "no model", tracker.session.known_cost_usd))
    for event in past:
        story.take(event)
    story.end()
    return story.shown()


class _Past(NamedTuple):
    id: str
    model: str
    cost_usd: float | None


class _Asking:
    """Asks the user a subtask's questions on behalf of the call it works for."""

    def __init__(self, ask: Ask, spec: SubtaskSpec, call_id: str) -> None:
        self._ask = ask
        self._spec = spec
        self._call_id = call_id
        self.unasked: NobodyToAsk | None = None

    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        reason = f"{question.reason} ({self._spec.title})"
        try:
            return await self._ask(
                msgspec.structs.replace(question, call_id=self._call_id or question.call_id, reason=reason)
            )
        except NobodyToAsk as refusal:
            self.unasked = refusal
            raise


async def _followed(subtask: OpenSubtask, spec: SubtaskSpec, progress: Callable[[str], None]) -> SubtaskResult:
    """Run a subtask to its end and report its progress; near its limit of steps tell it to wrap up, at it stop it."""
    story = _Story(subtask)
    conversation = subtask.conversation
    progress(story.shown())
    try:
        async with aclosing(conversation.run(spec.prompt)) as stream:
            async for event in stream:
                if story.take(event):
                    progress(story.shown())
                if isinstance(event, events.AssistantMessage) and event.stop_reason == "tool_calls":
                    await _bound(story, spec, conversation)
    except asyncio.CancelledError:
        story.end("stopped")
        progress(story.shown())
        raise
    return story.result()


async def _bound(story: "_Story", spec: SubtaskSpec, conversation: Conversation) -> None:
    """Tell the subtask to wrap up, or stop it, if its steps run out."""
    cost = story.cost_usd
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

    def __init__(self, subtask: Known) -> None:
        self._subtask = subtask
        self._calls: list[str] = []
        self._doing = "starting"
        self._over = False
        self._text = ""
        self._usage = Usage()
        self.steps = 0
        self.error = ""

    @property
    def cost_usd(self) -> float | None:
        """Its cost so far in USD; None if prices are unknown."""
        return self._subtask.cost_usd

    def take(self, event: events.AgentEvent) -> bool:
        """Take in an event; True if `shown` changes."""
        match event:
            case events.ModelCallStarted():
                self._doing = "thinking"
            case events.AssistantMessage():
                self.steps += 1
                self._usage += event.usage
                self._text = event.text or self._text
                self._doing = "working"
            case events.ToolStarted():
                self._calls.append(f"{event.name} {_short(event.arguments)}")
            case events.PermissionAsked():
                self._doing = "waiting for your answer"
            case events.Retrying():
                self._doing = event.sentence
            case events.TurnFailed():
                self.error = event.message
            case events.TurnFinished():
                self._finished(event)
            case _:
                return False
        return True

    def _finished(self, event: events.TurnFinished) -> None:
        self._text = event.text or self._text
        self.end()
        if self.error:
            return
        if event.stop_reason == "interrupted":
            self.error = "It was interrupted."
        elif event.stop_reason != "end_turn":
            self.error = f"Its answer is incomplete ({event.stop_reason})."
        elif not event.text.strip():
            self.error = "It gave no answer."

    def end(self, how: str = "done") -> None:
        """Mark it as ended."""
        self._doing, self._over = how, True

    def shown(self) -> str:
        """The progress text: a status line, its newest calls and, once it has ended, the id of its record."""
        cost = self._subtask.cost_usd
        figures = [self._subtask.model, self._doing, f"{self._usage.input_tokens + self._usage.output_tokens:,} tokens"]
        if cost is not None:
            figures.append(money_text(cost))
        hidden = len(self._calls) - CALLS_LISTED
        earlier = [f"… {counted(hidden, 'call')} before"] if hidden > 0 else []
        record = [f"log {self._subtask.id}"] if self._over else []
        return "\n".join([" · ".join(figures), *earlier, *self._calls[-CALLS_LISTED:], *record])

    def result(self) -> SubtaskResult:
        """The result of the subtask."""
        return SubtaskResult(
            id=self._subtask.id,
            text=self._text,
            model=self._subtask.model,
            usage=self._usage,
            cost_usd=self._subtask.cost_usd,
            steps=self.steps,
            error=self.error,
        )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
