"""A summary made without a model: files touched, commands, failures and how each answer begins, quoted from the turns.

It is used when every other writer fails, and to fill a section that a model's summary left out. The user's words are
kept beside every summary, so they are not repeated here.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.context.compaction.questions import Form, compose
from tui_agent.context.compaction.rendering import cut
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.groups import Group

Topic: TypeAlias = Literal["state", "files", "technical", "strategy", "next", "where"]

_TOPICS: Final[dict[str, Topic]] = {
    "Current state": "state",
    "Session intent": "state",
    "Task": "state",
    "Files & changes": "files",
    "Artifacts": "files",
    "Technical context": "technical",
    "Strategy & approach": "strategy",
    "Key decisions": "strategy",
    "Exact next steps": "next",
    "Next steps": "next",
    "Verification & next steps": "next",
    "Where we are": "where",
}
PATH_KEYS: Final = ("path", "file_path", "filename", "file", "notebook_path")
"""Names of arguments that hold the path of a file."""
CHANGES: Final = re.compile(r"write|edit|patch|create|replace|insert|delete|move", re.IGNORECASE)
"""Matches the names of tools that change files."""
_LIST_ITEM: Final = re.compile(r"\s*(?:\d+[.)]|[-*•])\s")
_SAID_CHARS: Final = 2_000
_LINE_CHARS: Final = 300


def extract(form: Form, groups: Sequence[Group], *, note: str = "", limit: int) -> str:
    """A text with exactly the form's sections, of about `limit` characters at most without headings.

    `note`: the description given when the task was declared done.
    """
    found = _Findings()
    for group in groups:
        found.take(group)
    share = max(120, limit // len(form.sections))
    bodies = {}
    for name in form.sections:
        topic = _TOPICS[name]
        lines = found.lines(topic, with_where=not any(_TOPICS[other] == "where" for other in form.sections))
        if topic == "files" and not any(_TOPICS[other] == "technical" for other in form.sections):
            lines = found.lines("technical") + lines
        if topic == "state" and note.strip():
            lines.append(f"- Said when it was done: {cut(note.strip(), _SAID_CHARS)}")
        bodies[name] = "\n".join(_newest(lines, share))
    return compose(form, bodies)


class _Findings:
    """The findings in the turns so far, each list oldest first."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        self.read: dict[str, None] = {}
        self.commands: list[str] = []
        self.errors: list[str] = []
        self.openings: list[str] = []
        self.spoken = ""

    def take(self, group: Group) -> None:
        calls: dict[str, ToolCall] = {}
        for segment in group.segments:
            for block in segment.blocks:
                match block:
                    case Text() if group.role == "assistant":
                        self._take_answer(block.text)
                    case ToolCall():
                        calls[block.id] = block
                        self._take_call(block)
                    case ToolResult():
                        self._take_result(calls.get(block.call_id), block)
                    case _:
                        pass

    def lines(self, topic: Topic, *, with_where: bool = False) -> list[str]:
        match topic:
            case "state":
                return self._last_words() if with_where else []
            case "files":
                read = [path for path in self.read if path not in self.changed]
                return [f"- read {path}" for path in read] + [f"- changed {path}" for path in self.changed]
            case "technical":
                return self.commands + self.errors
            case "strategy":
                return self.openings
            case "next":
                steps = [line.strip() for line in self.spoken.splitlines() if _LIST_ITEM.match(line)]
                return [cut(line, _LINE_CHARS) for line in steps] or ["1. Go on with the user's newest request above."]
            case "where":
                return self._last_words()

    def _last_words(self) -> list[str]:
        return [f"- Said last: {cut(self.spoken.strip(), _SAID_CHARS)}"] if self.spoken.strip() else []

    def _take_answer(self, text: str) -> None:
        self.spoken = text
        if opening := text.strip().partition("\n\n")[0]:
            self.openings.append(f"- {cut(opening, _LINE_CHARS)}")

    def _take_call(self, call: ToolCall) -> None:
        arguments = arguments_of(call)
        for key in PATH_KEYS:
            path = arguments.get(key)
            if isinstance(path, str) and path:
                paths = self.changed if CHANGES.search(call.name) else self.read
                paths.pop(path, None)
                paths[path] = None

    def _take_result(self, call: ToolCall | None, result: ToolResult) -> None:
        command = arguments_of(call).get("command") if call else None
        last = _last_lines(result.text)
        if isinstance(command, str):
            failed = "failed" if result.is_error else "gave"
            self.commands.append(f"- `{cut(command.strip(), _LINE_CHARS)}` {failed}: {last}")
        elif result.is_error:
            self.errors.append(f"- {call.name if call else 'a call'} failed: {last}")


def arguments_of(call: ToolCall) -> dict[str, object]:
    """A call's arguments by name; empty if they are not a JSON object."""
    decoded = msgspec.json.decode(call.arguments)
    return decoded if isinstance(decoded, dict) else {}


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text[-2_000:].splitlines() if line.strip()]
    return cut(" / ".join(lines[-2:]), _LINE_CHARS)


def _newest(lines: Iterable[str], limit: int) -> list[str]:
    """The newest lines that fit, in order and without duplicates; the very newest is cut to fit."""
    kept: list[str] = []
    for line in reversed(list(dict.fromkeys(lines))):
        room = limit - sum(len(other) + 1 for other in kept)
        if len(line) > room:
            if not kept and room > 0:
                kept.append(cut(line, room))
            break
        kept.append(line)
    kept.reverse()
    return kept
