"""A summary made without a model: files touched, commands, failures and how each answer begins, quoted from the turns.

It is used when every other writer fails, and to fill a section that a model's summary left out. The user's words are
kept with every summary, so they are not repeated here.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from tui_agent.context.compaction.forms import SummaryForm, compose, cut
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.view import Group
from tui_agent.regex import regex
from tui_agent.system.lenient import object_in

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
COMMAND_KEYS: Final = ("command", "cmd")
"""Names of arguments that hold a command line."""
CHANGES: Final = regex(r"write|edit|patch|create|replace|insert|delete|move", re.IGNORECASE)
"""Matches the names of tools that change files."""
_LIST_ITEM: Final = regex(r"\s*(?:\d+[.)]|[-*•])\s")
_SAID_CHARS: Final = 2_000
_LINE_CHARS: Final = 300


def extract(form: SummaryForm, groups: Sequence[Group], *, note: str = "", limit: int) -> str:
    """A text with exactly the form's sections, of about `limit` characters at most without headings.

    `note`: the description given when the task was declared done.
    """
    found = _findings(groups)
    topics = {_TOPICS[name] for name in form.sections}
    if "technical" not in topics:
        found["files"] = found["technical"] + found["files"]
    if "where" not in topics:
        found["state"] += found["where"]
    if note.strip():
        found["state"].append(f"- Said when it was done: {cut(note.strip(), _SAID_CHARS)}")
    share = max(120, limit // len(form.sections))
    return compose(form, {name: "\n".join(_newest(found[_TOPICS[name]], share)) for name in form.sections})


def pointers(groups: Sequence[Group], *, limit: int) -> str:
    """The files and commands of these groups, a line each: the newest that fit into about `limit` characters."""
    found = _findings(groups)
    return "\n".join(_newest([*found["files"], *found["technical"]], limit))


def _findings(groups: Sequence[Group]) -> dict[Topic, list[str]]:
    """The lines on each topic, oldest first."""
    changed: dict[str, None] = {}
    read: dict[str, None] = {}
    commands, errors, openings, spoken = list[str](), list[str](), list[str](), ""
    for group in groups:
        calls: dict[str, ToolCall] = {}
        for block in (block for segment in group.segments for block in segment.blocks):
            if isinstance(block, Text) and group.role == "assistant":
                spoken = block.text
                if opening := spoken.strip().partition("\n\n")[0]:
                    openings.append(f"- {cut(opening, _LINE_CHARS)}")
            elif isinstance(block, ToolCall):
                calls[block.id] = block
                given, paths = object_in(block.arguments), changed if CHANGES.search(block.name) else read
                for path in (given.get(key) for key in PATH_KEYS):
                    if isinstance(path, str) and path:
                        paths.pop(path, None)
                        paths[path] = None
            elif isinstance(block, ToolResult):
                call = calls.get(block.call_id)
                command, last = command_of(object_in(call.arguments)) if call else "", _last_lines(block.text)
                if command:
                    ended = "failed" if block.is_error else "gave"
                    commands.append(f"- `{cut(command, _LINE_CHARS)}` {ended}: {last}")
                elif block.is_error:
                    errors.append(f"- {call.name if call else 'a call'} failed: {last}")
    steps = [cut(line.strip(), _LINE_CHARS) for line in spoken.splitlines() if _LIST_ITEM.match(line)]
    return {
        "state": [],
        "files": [f"- read {path}" for path in read if path not in changed] + [f"- changed {path}" for path in changed],
        "technical": commands + errors,
        "strategy": openings,
        "next": steps or ["1. Go on with the user's newest request above."],
        "where": [f"- Said last: {cut(spoken.strip(), _SAID_CHARS)}"] if spoken.strip() else [],
    }


def command_of(given: dict[str, object]) -> str:
    """The command line among a call's arguments; empty if there is none. Of a list, such as ``["sh", "-c", "ls"]``, it
    is the last member.
    """
    found = next((given[key] for key in COMMAND_KEYS if given.get(key)), "")
    found = found[-1] if isinstance(found, list) else found
    return found.strip() if isinstance(found, str) else ""


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
