"""The offline model's summaries: the requested sections, filled with extracts from the messages."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.request import RequestMessage
from tui_agent.models.offline.commands import Command, Step, Verb

_ASKED = (
    ("Current state", "Files & changes", "Exact next steps"),
    ("Task", "Files & changes", "Where we are"),
    ("Session intent", "Key decisions", "Next steps"),
)
"""Headings that appear together only in a request for a summary."""
_WRITTEN = ("[Previous conversation summary]", "[Completed task]")
"""How an earlier summary begins."""
_NOTE = re.compile(r"\[[A-Za-z][^\]\n]{3,}\]|<user-command>")
"""How texts begin that the program writes with role user."""
_HEADING = re.compile(r"^# +(.+?)(?: +[—–-] .*|:.*)?$", re.MULTILINE)
_PATH = re.compile(r"(?<![\w/.:])(?:[\w.\-]+/)*[\w\-]+\.[A-Za-z][A-Za-z0-9]{0,5}\b")
_ERROR = re.compile(r"[^\n]*\b(?:[A-Z]\w*(?:Error|Exception)|FAILED|failed|error:)[^\n]*")
_CONTINUE = re.compile(r"^- continue: (?P<tool>\w+) (?P<arguments>\{.*\})$", re.MULTILINE)
_VERB_OF: dict[str, Verb] = {
    "read_file": "read",
    "list_dir": "list",
    "glob": "glob",
    "grep": "grep",
    "write_file": "write",
    "edit_file": "replace",
    "run_command": "run",
    "fetch_url": "fetch",
    "recall": "recall",
    "mark_task_done": "done",
    "todo": "todo",
}
_MOST = 12
_WIDTH = 300


class _Facts(NamedTuple):
    requests: list[str]
    answers: list[str]
    changed: list[str]
    read: list[str]
    commands: list[str]
    errors: list[str]
    steps: list[str]
    last: list[str]


def requested_sections(system: str, messages: Sequence[RequestMessage]) -> tuple[str, ...]:
    """The headings of the summary that the newest message or the system prompt asks for; empty if neither does."""
    newest = messages[-1] if messages else None
    asking = [block.text for block in newest.blocks if isinstance(block, Text)][-1:] if newest else []
    for text in (*asking, system):
        if _asks(text):
            return tuple(dict.fromkeys(match[1].strip() for match in _HEADING.finditer(text)))
    return ()


def is_note(text: str) -> bool:
    """Whether a text with role user is by the program, such as a summary, and so not a request of the user."""
    return _NOTE.match(text) is not None


def before_asking(messages: Sequence[RequestMessage]) -> tuple[RequestMessage, ...]:
    """The messages without the request for a summary at their end."""
    if not messages or not requested_sections("", messages):
        return tuple(messages)
    blocks = list(messages[-1].blocks)
    del blocks[max(index for index, block in enumerate(blocks) if isinstance(block, Text))]
    return (*messages[:-1], *([RequestMessage(messages[-1].role, tuple(blocks))] if blocks else ()))


def _asks(text: str) -> bool:
    """Whether a text asks for a summary. An earlier summary, known by its bracketed title, has the same headings."""
    headings = {match[1].strip() for match in _HEADING.finditer(text)}
    return any(headings.issuperset(form) for form in _ASKED) and not text.startswith(_WRITTEN)


def summarise(sections: Sequence[str], messages: Sequence[RequestMessage], remaining: Sequence[Command]) -> str:
    """A summary with exactly these sections. `remaining` are the commands that have not run yet."""
    facts = _facts(before_asking(messages))
    parts = [f"# {section}\n\n{_bullets(_lines_for(section, facts, remaining))}" for section in sections]
    return "\n\n".join(parts)


def left_to_do(text: str) -> tuple[Step, ...]:
    """The commands that a summary by this model lists as left to do, one step each."""
    found = (match for match in _CONTINUE.finditer(text) if match["tool"] in _VERB_OF)
    return tuple(
        (Command(_VERB_OF[match["tool"]], _subject(match), match["tool"], match["arguments"]),) for match in found
    )


def _subject(match: re.Match[str]) -> str:
    given = _arguments(ToolCall("", match["tool"], match["arguments"]))
    return given.command or given.query or (given.pattern if match["tool"] in {"grep", "glob"} else given.path)


def _lines_for(section: str, facts: _Facts, remaining: Sequence[Command]) -> list[str]:
    name = section.lower()
    to_do = [f"continue: {command.tool} {command.arguments}" for command in remaining]
    if "file" in name or "artifact" in name:
        changed = [f"changed: {path}" for path in facts.changed]
        return changed + [f"seen: {path}" for path in facts.read if path not in facts.changed]
    if "technical" in name or "decision" in name:
        return facts.commands + facts.errors
    if "strategy" in name or "approach" in name:
        return facts.steps
    if "next" in name or "verification" in name:
        return facts.last + (to_do or ["Nothing is left of the last request; wait for the user's next one."])
    if "where we are" in name:
        return facts.answers[-3:] or facts.last
    return [f"The user asked: {request}" for request in facts.requests] + facts.answers[-1:]


def _facts(messages: Sequence[RequestMessage]) -> _Facts:
    facts = _Facts([], [], [], [], [], [], [], [])
    calls: dict[str, ToolCall] = {}
    for message in messages:
        for block in message.blocks:
            match block:
                case Text(text=text) if message.role == "user":
                    if not _asks(text) and not is_note(text):
                        facts.requests.append(_flat(text))
                    facts.read.extend(_PATH.findall(text))
                case Text(text=text):
                    facts.answers.append(f"The answer was: {_flat(text)}")
                case ToolCall():
                    calls[block.id] = block
                    _note_call(block, facts)
                case ToolResult():
                    _note_result(calls.get(block.call_id), block, facts)
                case _:
                    continue
    return _Facts(*(list(dict.fromkeys(lines))[-_MOST:] for lines in facts))


def _note_call(call: ToolCall, facts: _Facts) -> None:
    given = _arguments(call)
    facts.steps.append(_flat(f"{call.name} {given.path or given.command or given.pattern or given.query}"))
    if given.path and given.path != ".":
        (facts.changed if call.name in {"write_file", "edit_file"} else facts.read).append(given.path)


def _note_result(call: ToolCall | None, result: ToolResult, facts: _Facts) -> None:
    name = call.name if call else "a tool"
    outcome = "failed" if result.is_error else "gave"
    lines = [line for line in result.text.splitlines() if line.strip()]
    told = _flat(f"{name} {outcome}: {(lines or ['nothing'])[0]}")
    if call and call.name == "run_command":
        facts.commands.append(_flat(f"`{_arguments(call).command}` {outcome}: {' / '.join(lines[-3:])}"))
    facts.errors.extend(_flat(line) for line in _ERROR.findall(result.text)[:3])
    facts.last[:] = [told]


def _arguments(call: ToolCall) -> "_Arguments":
    try:
        return msgspec.json.decode(call.arguments, type=_Arguments)
    except msgspec.MsgspecError:
        # The arguments, by another model, have unexpected types: leave them out of the summary.
        return _Arguments()


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- (nothing)"


def _flat(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _WIDTH else f"{flat[:_WIDTH]}…"


class _Arguments(msgspec.Struct, frozen=True):
    path: str = ""
    command: str = ""
    pattern: str = ""
    query: str = ""
