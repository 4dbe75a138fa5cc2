"""The events of a running agent, for front ends: typed, frozen, in the order they happen."""

from collections.abc import AsyncGenerator, Callable
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import NO_OUTCOME, Outcome, Usage
from tui_agent.models import base
from tui_agent.text import clock_text, wait_text
from tui_agent.tools.base import PermissionQuestion, SubtaskProgress

MoveReason: TypeAlias = Literal["rewind", "fork", "switch"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base class of events. In JSON, ``type`` has the snake-case name of the event."""


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    """A turn starts. `seq` is the newest entry of the log; everything the turn adds has a higher number."""

    seq: int
    text: str


class GoalCheck(Event, frozen=True, kw_only=True, tag="goal_check"):
    """The command of a goal (``/goal``) is run after a turn; a `Notice` or `TurnFailed` tells what came of it."""

    command: str


class UserMessage(Event, frozen=True, kw_only=True, tag="user_message"):
    """The user's message as it entered the conversation. `queued`: the number of the queued entry if it was delivered
    during a turn, else 0. `typed`: what they typed, if that is not the text. `kind` is ``user_shell`` for a command of
    theirs that had been queued; its output came with `ToolFinished`.
    """

    seq: int
    text: str
    typed: str = ""
    kind: str = ""
    images: tuple[Image, ...] = ()
    queued: int = 0


class ModelCallStarted(Event, frozen=True, kw_only=True, tag="model_call_started"):
    """A request is sent; `tokens` is its estimated size."""

    model: str
    tokens: int


TextDelta = base.TextDelta
ReasoningDelta = base.ReasoningDelta
ToolCallDelta = base.ToolCallDelta


class Retrying(Event, frozen=True, kw_only=True, tag="retrying"):
    """The model call failed and is repeated in `delay_s` seconds; discard the deltas of this call so far.

    `attempt`: the number of the failed call, from 1. `retries`: how often it is repeated at most; 0: unknown.
    `message`: what happened. `until`: the turn waits for a provider's limit until then, in seconds since 1970; 0: no.
    """

    attempt: int
    retries: int = 0
    delay_s: float
    kind: str
    message: str
    until: float = 0.0

    @property
    def sentence(self) -> str:
        """What happened and what is done about it, as a sentence without its full stop."""
        if self.until:
            return f"{self.message.rstrip('.')}; waiting until {clock_text(self.until)} ({wait_text(self.delay_s)})"
        count = f" ({self.attempt} of {self.retries})" if self.retries else ""
        return f"{self.message.rstrip('.')}; trying again in {max(1, round(self.delay_s))} s{count}"


class AssistantMessage(Event, frozen=True, kw_only=True, tag="assistant_message"):
    """The model's answer is complete and in the log; `reasoning` and `text` are complete."""

    seq: int
    model: str
    text: str
    reasoning: str
    usage: Usage
    cost_usd: float | None
    stop_reason: str
    duration_ms: int


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool_started"):
    """A tool call is about to run; it may still wait for a permission or for its turn. `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


class ToolProgress(Event, frozen=True, kw_only=True, tag="tool_progress"):
    """Live output of a running call: all that should be visible now, and how many lines came before it. `subtask`: how
    the subtask of the call stands, as data.
    """

    call_id: str
    text: str
    above: int = 0
    subtask: SubtaskProgress | None = None


class PermissionAsked(Event, frozen=True, kw_only=True, tag="permission_asked"):
    """A call waits for the user's decision; the question itself goes through the front end's `Ask`."""

    question: PermissionQuestion


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished"):
    """A call has its result, in the log. `text` is what the model sees; `size` is that of the raw result: characters,
    or bytes if it is in a file.

    `status`: ``ok``, ``error``, ``denied`` or ``interrupted``. `diff` and `summary` are for people, `outcome` are facts
    about the result. `evicted`: `text` is a preview, and the whole result is in the file `artifact`.
    """

    call_id: str
    name: str
    status: str
    text: str
    size: int
    tokens: int
    duration_ms: int = 0
    summary: str = ""
    diff: str = ""
    outcome: Outcome = NO_OUTCOME
    seq: int = 0
    artifact: str = ""
    evicted: bool = False


class ContextChanged(Event, frozen=True, kw_only=True, tag="context_changed"):
    """What fills the window, in tokens: after a model call (`measured`), or estimated.

    `reading` and `writing` are the speeds of a local model in tokens per second; 0: unknown.
    """

    tokens: int
    window: int
    measured: bool
    cost_usd: float | None
    turn_cost_usd: float | None
    reading: float = 0.0
    writing: float = 0.0


class ContextStepStarted(Event, frozen=True, kw_only=True, tag="context_step_started"):
    """A step that needs a model begins: ``summary``, ``checkpoint`` or ``digest``; `tokens` is the view's size now.

    `in_background`: it is written in the background; `ContextStep` tells when it is entered or has failed.
    """

    step: str
    tokens: int
    reason: str
    in_background: bool = False


class ContextStep(Event, frozen=True, kw_only=True, tag="context_step"):
    """The context was changed, or a step failed (`error`) and the view is unchanged.

    `step`: ``cleared``, ``digest``, ``summary``, ``checkpoint``, ``pinned``, ``unpinned``, ``restored``, ``shortened``,
    ``folded``, ``words`` or ``undone``. `before` and `after` are the view's size in tokens, `items` the number of
    messages or results it covers, `text` what is shown in their place, `seq` the entry to undo, `target` the entry that
    was undone. `cost_usd`: of writing the text. `saved_usd`: what it saved on the next call (negative: cost there),
    `saving_usd`: what it saves on each later one; 0 if unknown.
    """

    step: str
    seq: int
    before: int
    after: int
    items: int = 0
    reason: str = ""
    text: str = ""
    error: str = ""
    cost_usd: float | None = None
    saved_usd: float = 0.0
    saving_usd: float = 0.0
    target: int = 0


class BranchChanged(Event, frozen=True, kw_only=True, tag="head_moved"):
    """The conversation continues after entry `to`; what was shown after it belongs to another branch.

    `before` and `after` are the view's size in tokens.
    """

    seq: int
    to: int
    reason: MoveReason
    before: int
    after: int


class ModelChanged(Event, frozen=True, kw_only=True, tag="model_changed"):
    """The model was switched, or more is known about the current one."""

    model: str
    window: int
    tier: str


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """Something the user should know. `level`: ``info``, ``warning`` or ``error``. `hint` says what to do."""

    level: str
    title: str
    text: str = ""
    hint: str = ""


class CustomEntry(Event, frozen=True, kw_only=True, tag="custom"):
    """An entry of a host program's own: its name, its data as JSON text, and the text that the model is shown."""

    seq: int
    name: str
    data: str
    text: str = ""


class Alert(Event, frozen=True, kw_only=True, tag="alert"):
    """The watchdog thinks that the model is stuck: `signal` names the pattern, `text` is for people.

    `action`: ``warn`` (nothing else happens), ``ask`` (the turn waits for the user) or ``escalate`` (a larger model
    takes over).
    """

    signal: str
    text: str
    action: str
    hint: str = ""


class TurnFailed(Event, frozen=True, kw_only=True, tag="turn_failed"):
    """The turn ended in an error. Everything up to it is in the log; `hint` says what to do next. `questions` are those
    still open because nobody could answer them.
    """

    kind: str
    message: str
    retryable: bool
    hint: str = ""
    questions: tuple[PermissionQuestion, ...] = ()


class TurnFinished(Event, frozen=True, kw_only=True, tag="turn_finished"):
    """The turn is over, also after a failure or an interruption. `steps` is the number of model calls.

    `stop_reason`: ``end_turn``, ``max_tokens``, ``refusal``, ``interrupted``, ``error`` …; `text` is the final answer,
    `files` how many files its tools changed.
    """

    stop_reason: str
    text: str
    steps: int
    usage: Usage
    cost_usd: float | None
    duration_ms: int
    files: int = 0


class StepWords(msgspec.Struct, frozen=True):
    """The words for a context step: what was done, and to what; `counted`: with the number of things."""

    done: str
    things: str = ""
    counted: bool = False


STEPS: Final = {
    "cleared": StepWords("cleared", "results", counted=True),
    "digest": StepWords("digested", "results", counted=True),
    "summary": StepWords("summarised", "older turns"),
    "checkpoint": StepWords("recorded", "task"),
    "pinned": StepWords("pinned"),
    "unpinned": StepWords("unpinned"),
    "restored": StepWords("brought back"),
    "shortened": StepWords("shortened", "messages", counted=True),
    "folded": StepWords("folded", "episodes", counted=True),
    "words": StepWords("your words changed"),
    "undone": StepWords("undone"),
}
"""The context steps, by their names in `ContextStep`."""


def step_text(step: str, count: int | None = None) -> str:
    """A context step in words, such as ``3 results cleared``."""
    words = STEPS.get(step, StepWords(step))
    if count is None or not words.counted:
        return f"{words.things} {words.done}".lstrip()
    return f"{count:,} {words.things if count != 1 else words.things.removesuffix('s')} {words.done}"


AgentEvent: TypeAlias = (
    TurnStarted
    | GoalCheck
    | UserMessage
    | ModelCallStarted
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | Retrying
    | AssistantMessage
    | ToolStarted
    | ToolProgress
    | PermissionAsked
    | ToolFinished
    | ContextChanged
    | ContextStepStarted
    | ContextStep
    | BranchChanged
    | ModelChanged
    | Notice
    | CustomEntry
    | Alert
    | TurnFailed
    | TurnFinished
)


Emit: TypeAlias = Callable[[AgentEvent], None]
"""What is called with each event as it happens."""
EventStream: TypeAlias = AsyncGenerator[AgentEvent, None]

_encoder = msgspec.json.Encoder()


def encode(event: AgentEvent) -> bytes:
    """One line of JSON, without its newline."""
    return _encoder.encode(event)
