"""Converting the agent's events to updates of the protocol. All text is cleaned: a client may be a terminal."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from acp.helpers import (
    image_block,
    plan_entry,
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message,
    update_user_message_text,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    PlanEntryStatus,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from tui_agent.acp.calls import locations_of, output_content, result_content, title_of
from tui_agent.agent import events
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.tasks import TodoList, TodoState
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.system.lenient import object_in
from tui_agent.text import StreamCleaner, clean, clock_text, one_line, wait_text

Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)

_STATES: dict[TodoState, PlanEntryStatus] = {"pending": "pending", "in_progress": "in_progress", "done": "completed"}


class Translator:
    """Converts the events of one conversation to updates. `replaying`: user messages are included."""

    def __init__(self, folder: Path, *, replaying: bool = False) -> None:
        self._folder = folder
        self._replaying = replaying
        self._said, self._thought = StreamCleaner(), StreamCleaner()
        self._streamed = False
        self._arguments: dict[str, str] = {}

    def updates(self, event: events.AgentEvent) -> Iterator[Update]:
        """The updates for an event; most events have none."""
        match event:
            case events.UserMessage() if self._replaying:
                yield from _of_user(event)
            case events.ModelCallStarted():
                self._said, self._thought, self._streamed = StreamCleaner(), StreamCleaner(), False
            case events.TextDelta():
                yield from self._text(self._said.feed(event.text))
            case events.ReasoningDelta():
                if thought := self._thought.feed(event.text):
                    yield update_agent_thought_text(thought)
            case events.AssistantMessage():
                yield from self._answer(event)
            case events.ToolStarted():
                yield self._started(event)
            case events.ToolProgress() if event.call_id in self._arguments:
                content = output_content("run_command", event.text)
                yield update_tool_call(event.call_id, status="in_progress", content=content)
            case events.ToolFinished():
                yield self._finished(event)
            case events.ContextChanged() if event.window > 0:
                yield usage(event.tokens, event.window, event.cost_usd)
            case _:
                if remark := _remark(event):
                    yield update_agent_thought_text(remark)

    def is_known(self, call_id: str) -> bool:
        """Whether this call has been sent to the client."""
        return call_id in self._arguments

    def _text(self, text: str) -> Iterator[Update]:
        if text:
            self._streamed = True
            yield update_agent_message_text(text)

    def _answer(self, event: events.AssistantMessage) -> Iterator[Update]:
        if self._streamed and not self._replaying:
            yield from self._text(self._said.finish())
            return
        if self._replaying and event.reasoning:
            yield update_agent_thought_text(clean(event.reasoning))
        if event.text:
            yield update_agent_message_text(clean(event.text))

    def _started(self, event: events.ToolStarted) -> ToolCallStart:
        self._arguments[event.call_id] = event.arguments
        return start_tool_call(
            event.call_id,
            title_of(event.name, event.arguments),
            kind=facts_of(event.name).kind,
            status="pending",
            locations=locations_of(event.name, event.arguments, self._folder),
            raw_input=object_in(event.arguments),
        )

    def _finished(self, event: events.ToolFinished) -> ToolCallProgress:
        arguments = self._arguments.get(event.call_id, "{}")
        return update_tool_call(
            event.call_id,
            status="completed" if event.status == "ok" else "failed",
            content=result_content(event.name, arguments, event.text, event.diff, self._folder),
        )


def plan(todo: TodoList) -> AgentPlanUpdate:
    """The task list as an update."""
    return update_plan(plan_entry(one_line(item.text), status=_STATES[item.state]) for item in todo.items)


def usage(tokens: int, window: int, cost_usd: float | None, stats: ContextStats | None = None) -> UsageUpdate:
    """An update on the tokens in the context window and the session's cost; with `stats` also on how it was reduced."""
    update = UsageUpdate(session_update="usage_update", used=tokens, size=window)
    if cost_usd is not None:
        update.cost = Cost(amount=cost_usd, currency="USD")
    if stats is not None:
        update.field_meta = {"tui-agent": {"context": stats.figures}}
    return update


def remark(title: str, *texts: str) -> str:
    """A message of the program, as a paragraph among the model's thoughts; what follows a list is one of its own."""
    between = "\n\n" if any("\n" in text for text in texts[:-1]) else " "
    return f"**{one_line(title)}** {between.join(clean(text) for text in texts if text)}".rstrip() + "\n\n"


def _remark(event: events.AgentEvent) -> str:
    match event:
        case events.Notice():
            return remark(f"{event.title}{':' if event.text or event.hint else ''}", event.text, event.hint)
        case events.CustomEntry():
            return remark(f"{event.name}:", event.text or event.data)
        case events.Alert():
            return remark("Watchdog:", event.text, event.hint)
        case events.Retrying():
            again = f"What came of this answer so far is void; asking again in {wait_text(event.delay_s)}"
            again += f", at {clock_text(event.until)}." if event.until else "."
            return remark("Trying again:", event.message, again)
        case events.ContextStep() if event.error:
            return remark(f"Context ({event.step}) unchanged:", event.error)
        case events.ContextStep():
            sizes = f"{event.before:,} → {event.after:,} tokens." if event.before != event.after else ""
            return remark(f"Context, {event.step}:", sizes, event.reason)
        case _:
            return ""


def _of_user(event: events.UserMessage) -> Iterator[Update]:
    if event.kind:
        # A command of the user's own, which was shown as a call.
        return
    if event.text:
        yield update_user_message_text(clean(event.typed or event.text))
    for image in event.images:
        if image.data:
            yield update_user_message(image_block(image.data, image.media_type))
