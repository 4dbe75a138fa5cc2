"""Renders groups of a conversation as text: for the summarising model, for finding facts, and for the archive."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from tui_agent.context.compaction.facts import Source
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Digested, Message
from tui_agent.conversation.groups import Group
from tui_agent.conversation.view import View

OPEN: Final = "<transcript>"
CLOSE: Final = "</transcript>"

_SPEAKERS: Final = {"tool_summary": "digest of earlier results", "user_shell": "the user's own command"}
_BACKTICKS: Final = re.compile(r"`{3,}")

PASTE_CHARS: Final = 1_500
"""A user's text with more characters than this is taken for a paste."""


def cut(text: str, limit: int) -> str:
    """`text`, or if it is longer than `limit` characters its two ends, with a count of what was left out."""
    if len(text) <= limit:
        return text
    mark = f"\n[… {len(text) - limit:,} characters …]\n"
    tail = max(0, (limit - len(mark)) // 3)
    head = max(0, limit - len(mark) - tail)
    return text[:head] + mark + (text[-tail:] if tail else "") if head else text[:limit]


def transcript(groups: Iterable[Group], *, result_chars: int) -> tuple[str, ...]:
    """Each group as text, with results and arguments of calls cut to `result_chars` characters."""
    return tuple(text for group in groups if (text := _group_text(group, result_chars)))


def material(parts: Sequence[str]) -> str:
    """Parts of a transcript, wrapped in tags that tell the model they are material, not a request."""
    inside = "\n\n".join(parts).replace(CLOSE, "</ transcript>")
    return f"{OPEN}\n{inside}\n{CLOSE}"


def fact_sources(groups: Iterable[Group]) -> list[Source]:
    """The full text of each speaker in the groups; for a tool call, the texts in its arguments.

    For the user only pastes: their shorter texts are kept word for word anyway.
    """
    sources: list[Source] = []
    for group in groups:
        for segment in group.segments:
            for block in segment.blocks:
                match block:
                    case Text() if group.kind == "tool_summary":
                        sources.append(Source("assistant", block.text))
                    case Text() if group.kind:
                        sources.append(Source("tool", block.text))
                    case Text() if group.role == "assistant" or len(block.text) > PASTE_CHARS:
                        sources.append(Source(group.role, block.text))
                    case ToolCall():
                        sources.append(Source("assistant", "\n".join(strings_in(block.arguments))))
                    case ToolResult():
                        sources.append(Source("tool", block.text))
                    case Text() | Reasoning() | Image():
                        pass
    return sources


def strings_in(arguments: str) -> list[str]:
    """The strings and numbers in a call's JSON arguments."""
    found: list[str] = []
    waiting: list[object] = [msgspec.json.decode(arguments)]
    while waiting:
        match waiting.pop():
            case str(text):
                found.append(text)
            case dict() as members:
                waiting.extend(reversed(members.values()))
            case list() as members:
                waiting.extend(reversed(members))
            case bool() | None:
                pass
            case number:
                found.append(str(number))
    return found


def archive(view: View, groups: Sequence[Group]) -> str:
    """The groups' full entries in the log as Markdown, with a heading for each message."""
    parts = [f"## Entries {groups[0].first} to {groups[-1].last}"] if groups else []
    for group in groups:
        for seq in (group.first, *group.results.values()):
            entry = view.log[seq]
            parts += [f"### {seq} · {_title(entry, view)} · {_clock(entry.time)}", *_whole(entry, view)]
    return "\n\n".join(parts) + "\n\n" if parts else ""


def _group_text(group: Group, limit: int) -> str:
    names: dict[str, str] = {}
    lines: list[str] = []
    for segment in group.segments:
        for block in segment.blocks:
            match block:
                case Text():
                    lines.append(f"[{_speaker(group)}]\n{block.text.strip()}")
                case ToolCall():
                    names[block.id] = block.name
                    lines.append(f"[assistant calls {block.name}]\n{cut(block.arguments, limit)}")
                case ToolResult():
                    failed = ", failed" if block.is_error else ""
                    lines.append(f"[result of {names.get(block.call_id, 'a call')}{failed}]\n{cut(block.text, limit)}")
                case Image():
                    lines.append(f"[{_speaker(group)} shows an image]")
                case Reasoning():
                    pass
    return "\n".join(lines)


def _speaker(group: Group) -> str:
    return _SPEAKERS.get(group.kind, "program") if group.kind else group.role


def _title(entry: AnyEntry, view: View) -> str:
    match entry:
        case Message(kind="tool_result"):
            calls = [view.call(block.call_id) for block in entry.blocks if isinstance(block, ToolResult)]
            return "result of " + ", ".join(call.name for call in calls if call)
        case Digested():
            return _SPEAKERS["tool_summary"]
        case _:
            message = view.log.message(entry.seq)
            kind = message.kind if message is not None else ""
            return _SPEAKERS.get(kind, "program") if kind else message.role if message is not None else "user"


def _whole(entry: AnyEntry, view: View) -> list[str]:
    if isinstance(entry, Digested):
        return [entry.text]
    message = view.log.message(entry.seq)
    parts = [_block_text(block) for block in message.blocks] if message is not None else []
    if message is not None and message.artifact is not None:
        parts.append(f"(whole text: {message.artifact.path})")
    return [part for part in parts if part]


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return f"calls `{block.name}`\n\n{_fenced(block.arguments)}"
        case ToolResult():
            failed = "failed\n\n" if block.is_error else ""
            return failed + _fenced(block.text) + "\n\n(an image)" * len(block.images)
        case Image():
            return "(an image)"
        case Reasoning():
            return ""


def _fenced(text: str) -> str:
    fence = "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(text))])
    return f"{fence}\n{text}\n{fence}"


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
