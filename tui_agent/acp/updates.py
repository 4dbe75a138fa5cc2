"""Converting the agent's events to updates of the protocol: also tool calls as editors show them, with kind, title,
files, diffs and output, and the model's questions as forms. All text is cleaned: a client may be a terminal.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from acp.helpers import (
    image_block,
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
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
    ContentToolCallContent,
    Cost,
    CurrentModeUpdate,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    FileEditToolCallContent,
    PlanEntryStatus,
    SessionInfoUpdate,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from tui_agent.agent import events
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.tasks import TodoList, TodoState
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.system.lenient import object_in
from tui_agent.text import StreamCleaner, call_summary, clean, clock_text, code_block, one_line, wait_text
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.visible import visible, visible_line

Content: TypeAlias = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

MAX_CHARS: Final = 20_000
"""The most characters of a result that are sent to an editor; the conversation has all of it."""

_CHOICE: Final = "choice"
_WORDS: Final = "words"
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def title_of(tool: str, arguments: str) -> str:
    """A call on one line."""
    line = call_summary(arguments)
    if facts_of(tool).kind == "execute" and line:
        return line
    return one_line(f"{facts_of(tool).title} {line}".strip())


def title_of_question(question: PermissionQuestion) -> str:
    """The title of a question, on one line."""
    if question.kind == "call" and question.call_id:
        return title_of(question.tool, question.arguments)
    return one_line(question.preview.title)


def path_of(arguments: str, folder: Path) -> str:
    """The absolute path that a call is about; empty if it is about none."""
    named = object_in(arguments).get("path")
    return str(folder / named) if isinstance(named, str) and named and "\0" not in named else ""


def locations_of(tool: str, arguments: str, folder: Path) -> list[ToolCallLocation]:
    """The files that a call is about, for editors that follow along."""
    path = path_of(arguments, folder)
    if not path or facts_of(tool).kind not in ("read", "edit"):
        return []
    offset = object_in(arguments).get("offset")
    return [ToolCallLocation(path=path, line=offset - 1 if isinstance(offset, int) and offset > 0 else None)]


def question_content(question: PermissionQuestion, folder: Path) -> list[Content]:
    """What the user sees before they allow a call: all of it, in its visible form. Tabs stay, editors show them."""
    shown = question.preview
    content: list[Content] = []
    if shown.command:
        content.append(_text(code_block(visible(shown.command, tabs=False), "sh")))
    if shown.diff:
        diff = visible_diff(shown.diff)
        content += list(edits(diff, path_of(question.arguments, folder))) or [_text(code_block(diff, "diff"))]
    shown_text = shown.text or ("" if shown.command or shown.diff else question.arguments)
    if shown_text:
        shown_text = visible(shown_text, tabs=False)
        content.append(_text(code_block(shown_text) if question.kind == "call" else shown_text))
    for change in shown.changes:
        content += [_text(code_block(visible_diff(change.diff), "diff")), _text(visible_line(change.title))]
    return [*content, *([_text(clean(question.reason))] if question.reason else [])]


def result_content(tool: str, arguments: str, text: str, diff: str, folder: Path) -> list[Content]:
    """The result of a call: its diff if it has one, else its text."""
    if diff and (found := list(edits(visible_diff(diff), path_of(arguments, folder)))):
        return list(found)
    return output_content(tool, text)


def output_content(tool: str, text: str) -> list[Content]:
    """A tool's text result, formatted so that its lines are kept."""
    text = clean(text)
    left_out = len(text) - MAX_CHARS
    if left_out > 0:
        text = f"{text[:MAX_CHARS]}\n… {left_out:,} more characters"
    return [_text(fenced(text, "console" if facts_of(tool).kind == "execute" else ""))] if text.strip() else []


def edits(diff: str, path: str) -> Iterator[FileEditToolCallContent]:
    """The hunks of a unified diff of visible text, each as its text before and after. A diff may be cut off."""
    sides: dict[str, list[str]] = {"-": [], "+": []}
    made, last = False, ""
    for line in [*diff.split("\n")[2:], "@@ -1 +1 @@"] if path else ():
        if hunk := _HUNK.match(line):
            if sides["-"] or sides["+"]:
                yield tool_diff_content(path, "".join(sides["+"]), None if made else "".join(sides["-"]))
            sides, made = {"-": [], "+": []}, hunk[1] == "0"
        elif line.startswith("\\"):
            for sign in last.replace(" ", "-+"):
                sides[sign][-1] = sides[sign][-1].removesuffix("\n")
        elif (last := line[:1]) in ("-", "+", " ") and line:
            for sign in last.replace(" ", "-+"):
                sides[sign].append(f"{line[1:]}\n")


def fenced(text: str, language: str = "") -> str:
    """A text as a Markdown code block, with a fence that does not occur in it."""
    return code_block(clean(text).rstrip(), language)


def visible_diff(diff: str) -> str:
    """A unified diff with the visible form of each line after its sign; tabs stay, editors show them."""
    return "\n".join(line[:1] + visible(line[1:], tabs=False) for line in diff.split("\n"))


def _text(text: str) -> ContentToolCallContent:
    return tool_content(text_block(text))


def form(question: PermissionQuestion, session: str) -> ElicitationFormSessionMode:
    """The form for a question: its choices, if any, and a text field."""
    choices = [one_line(choice) for choice in question.choices]
    fields = {
        _WORDS: ElicitationStringPropertySchema(type="string", title="In your own words" if choices else "Answer")
    }
    if choices:
        fields = {_CHOICE: ElicitationStringPropertySchema(type="string", title="Answer", enum=choices), **fields}
    schema = ElicitationSchema(type="object", properties={**fields}, required=None if choices else [_WORDS])
    scope = ElicitationFormSessionMode(session_id=session, requested_schema=schema)
    if question.call_id:
        scope.tool_call_id = question.call_id
    return scope


def answer_in_form(content: Mapping[str, object] | None) -> PermissionAnswer:
    """The answer in a filled-in form; the text field takes precedence over a choice."""
    given = {name: str(getattr(value, "root", value) or "").strip() for name, value in (content or {}).items()}
    said = given.get(_WORDS) or given.get(_CHOICE) or ""
    return PermissionAnswer(allowed=bool(said), choice=said)


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
