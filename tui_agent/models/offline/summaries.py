"""The offline model's summaries: the requested sections, filled with extracts from the messages."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.request import RequestMessage
from tui_agent.models.offline.commands import OfflineCommand, Step
from tui_agent.regex import regex
from tui_agent.system.lenient import decoded

_ASKED = (
    ("Current state", "Files & changes", "Exact next steps"),
    ("Task", "Files & changes", "Where we are"),
    ("Session intent", "Key decisions", "Next steps"),
)
"""Headings that appear together only in a request for a summary."""
_WRITTEN = ("[Previous conversation summary]", "[Completed task]")
"""How an earlier summary begins."""
_NOTE = regex(r"\[[A-Za-z][^\]\n]{3,}\]|<user-command>")
"""How texts begin that the program writes with role user."""
_HEADING = regex(r"^# +(.+?)(?: +[—–-] .*|:.*)?$", re.MULTILINE)
_PATH = regex(r"(?<![\w/.:])(?:[\w.\-]+/)*[\w\-]+\.[A-Za-z][A-Za-z0-9]{0,5}\b")
_ERROR = regex(r"[^\n]*\b(?:[A-Z]\w*(?:Error|Exception)|FAILED|failed|error:)[^\n]*")
_CONTINUE = regex(r"^- continue: (?P<tool>\w+) (?P<arguments>\{.*\})$", re.MULTILINE)
_VERB_OF = {
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
_LIMIT = regex(r"^- At most (\d+) words\b", re.MULTILINE)
_MOST, _WIDTH = 12, 300


class Request(NamedTuple):
    """A request for a summary: its headings (none: it is not one), and the most words (0: no limit is named)."""

    sections: tuple[str, ...]
    words: int = 0


class _Arguments(msgspec.Struct, frozen=True):
    path: str = ""
    command: str = ""
    pattern: str = ""
    query: str = ""


def requested(system: str, messages: Sequence[RequestMessage]) -> Request:
    """The summary that the newest message or the system prompt asks for."""
    newest = messages[-1] if messages else None
    asking = [block.text for block in newest.blocks if isinstance(block, Text)][-1:] if newest else []
    asked = next((text for text in (*asking, system) if _asks(text)), "")
    limit = _LIMIT.search(asked)
    sections = dict.fromkeys(match[1].strip() for match in _HEADING.finditer(asked))
    return Request(tuple(sections), int(limit[1]) if limit is not None else 0)


def is_note(text: str) -> bool:
    """Whether a text with role user is by the program, such as a summary, and so not a request of the user."""
    return _NOTE.match(text) is not None


def before_asking(messages: Sequence[RequestMessage]) -> tuple[RequestMessage, ...]:
    """The messages without the request for a summary at their end."""
    if not messages or not requested("", messages).sections:
        return tuple(messages)
    blocks = list(messages[-1].blocks)
    del blocks[max(index for index, block in enumerate(blocks) if isinstance(block, Text))]
    return (*messages[:-1], *([RequestMessage(messages[-1].role, tuple(blocks))] if blocks else ()))


def _asks(text: str) -> bool:
    """Whether a text asks for a summary. An earlier summary, known by its bracketed title, has the same headings."""
    headings = {match[1].strip() for match in _HEADING.finditer(text)}
    return any(headings.issuperset(form) for form in _ASKED) and not text.startswith(_WRITTEN)


def summarise(asked: Request, messages: Sequence[RequestMessage], remaining: Sequence[OfflineCommand]) -> str:
    """A summary with exactly these sections. `remaining` are the commands that have not run yet."""
    facts = _facts(before_asking(messages))
    to_do = [f"continue: {command.tool} {command.arguments}" for command in remaining]
    found: dict[str, list[str]] = {}
    for section in asked.sections:
        name = section.lower()
        if "file" in name or "artifact" in name:
            lines = [f"changed: {path}" for path in facts["changed"]]
            lines += [f"seen: {path}" for path in facts["read"] if path not in facts["changed"]]
        elif "technical" in name or "decision" in name:
            lines = facts["commands"] + facts["errors"]
        elif "strategy" in name or "approach" in name:
            lines = facts["steps"]
        elif "next" in name or "verification" in name:
            lines = facts["results"][-1:]
            lines += to_do or ["Nothing is left of the last request; wait for the user's next one."]
        elif "where we are" in name:
            lines = facts["answers"][-3:] or facts["results"][-1:]
        else:
            lines = [f"The user asked: {request}" for request in facts["requests"]] + facts["answers"][-1:]
        found[section] = list(lines)
    if asked.words:
        # Forecasts expect two thirds of the tokens, and paths and commands have more of them in a word than prose has.
        sections = [lines for lines in found.values() if not set(to_do).intersection(lines)]
        words = [sum(len(line.split()) for line in lines) for lines in sections]
        # The oldest line of the longest section goes first.
        while sum(words) > asked.words // 2:
            longest = max(range(len(sections)), key=words.__getitem__)
            words[longest] -= len(sections[longest].pop(0).split())
    parts = (
        f"# {section}\n\n" + ("\n".join(f"- {line}" for line in lines) or "- (nothing)")
        for section, lines in found.items()
    )
    return "\n\n".join(parts)


def left_to_do(text: str) -> tuple[Step, ...]:
    """The commands that a summary by this model lists as left to do, one step each."""
    found: list[Step] = []
    for match in _CONTINUE.finditer(text):
        tool, given = match["tool"], _arguments(match["arguments"])
        subject = given.command or given.query or (given.pattern if tool in {"grep", "glob"} else given.path)
        if tool in _VERB_OF:
            found.append((OfflineCommand(_VERB_OF[tool], subject, tool, match["arguments"]),))
    return tuple(found)


def _facts(messages: Sequence[RequestMessage]) -> dict[str, list[str]]:
    facts: defaultdict[str, list[str]] = defaultdict(list)
    calls: dict[str, ToolCall] = {}
    for message in messages:
        for block in message.blocks:
            match block:
                case Text(text=text) if message.role == "user":
                    if not _asks(text) and not is_note(text):
                        facts["requests"].append(_flat(text))
                    facts["read"] += _PATH.findall(text)
                case Text(text=text):
                    facts["answers"].append(f"The answer was: {_flat(text)}")
                case ToolCall(name=name):
                    calls[block.id], given = block, _arguments(block.arguments)
                    facts["steps"].append(
                        _flat(f"{name} {given.path or given.command or given.pattern or given.query}")
                    )
                    if given.path and given.path != ".":
                        facts["changed" if name in {"write_file", "edit_file"} else "read"].append(given.path)
                case ToolResult():
                    call = calls.get(block.call_id)
                    outcome = "failed" if block.is_error else "gave"
                    lines = [line for line in block.text.splitlines() if line.strip()] or ["nothing"]
                    facts["results"].append(_flat(f"{call.name if call else 'a tool'} {outcome}: {lines[0]}"))
                    if call and call.name == "run_command":
                        outcome_line = f"`{_arguments(call.arguments).command}` {outcome}: {' / '.join(lines[-3:])}"
                        facts["commands"].append(_flat(outcome_line))
                    facts["errors"] += [_flat(line) for line in _ERROR.findall(block.text)[:3]]
    return defaultdict(list, {name: list(dict.fromkeys(lines))[-_MOST:] for name, lines in facts.items()})


def _arguments(arguments: str) -> _Arguments:
    return decoded(arguments, _Arguments) or _Arguments()  # another model's may have unexpected types


def _flat(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _WIDTH else f"{flat[:_WIDTH]}…"
