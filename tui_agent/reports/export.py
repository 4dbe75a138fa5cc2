"""Exporting a whole session to a file: Markdown, HTML or JSON, by the file's suffix."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    ContextEntry,
    Custom,
    Message,
    ModelSwitched,
    Prefix,
    as_delivered,
    typed_in,
)
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.reports.pages import paired, session_page, step_line
from tui_agent.system.durable import write_file
from tui_agent.text import call_summary, clean, code_block, one_line, time_text

ENDINGS: Final = (".md", ".html", ".json")
NAME_WORDS: Final = 6
NAME_CHARACTERS: Final = 48
"""The most words and characters of the first message in a file's name."""
TITLE_CHARACTERS: Final = 120


def export(path: Path, name: str, entries: Sequence[AnyEntry]) -> int:
    """Write the session called `name` to `path`; returns the number of bytes. Blocks: call it in a thread.

    Raises `OSError`, and leaves no file behind then; `ValueError` for a suffix that is not in `ENDINGS`.
    """
    ending = path.suffix.lower()
    if ending == ".html":
        pieces = session_page(name, entries)
    elif ending == ".md":
        pieces = markdown(name, entries)
    elif ending == ".json":
        pieces = document(name, entries)
    else:
        raise ValueError("the name must end in .md, .html or .json")
    data = "".join(pieces).encode()
    write_file(path, data)
    return len(data)


def file_name(entries: Sequence[AnyEntry]) -> str:
    """A file name for this session, without suffix: the date of its start, and the user's first words."""
    day = time_text(entries[0].time, "%Y-%m-%d") if entries else "session"
    words = re.findall(r"\w+", _first_words(entries).lower())[:NAME_WORDS]
    return "-".join((day, *words))[:NAME_CHARACTERS].rstrip("-")


def _first_words(entries: Sequence[AnyEntry]) -> str:
    texts = (typed_in(entry) or "" for entry in entries if isinstance(entry, Message))
    return one_line(next((text for text in texts if text.strip()), ""), TITLE_CHARACTERS)


def document(name: str, entries: Sequence[AnyEntry]) -> Iterator[str]:
    """One JSON object: the session's name and all entries of its log, unchanged and of all branches."""
    yield msgspec.json.format(msgspec.json.encode({"session": name, "entries": entries})).decode() + "\n"


def markdown(name: str, entries: Sequence[AnyEntry]) -> Iterator[str]:
    """Messages, calls with their results, and changes to the context in their order; the system prompt comes last."""
    entries = list(as_delivered(entries))
    results, alone = paired(entries)
    begun = False
    yield f"# {_escaped(_first_words(entries) or one_line(name))}\n"
    yield f"\nSession {one_line(name)}{f', {time_text(entries[0].time)}' if entries else ''}\n"
    for entry in entries:
        if isinstance(entry, ModelSwitched) and not begun:
            # Each answer says whose it is; that one was chosen before the first is no event.
            continue
        begun = begun or isinstance(entry, Message)
        match entry:
            case Message(role="assistant"):
                yield f"\n## {one_line(entry.model) or 'The model'} · {time_text(entry.time)}\n"
                for block in entry.blocks:
                    if isinstance(block, ToolCall):
                        yield _called(block, results.get((entry.seq, block.id)))
                    else:
                        yield _answered(block)
            case Message(kind="tool_result" | "tool_result_archived"):
                if entry.seq in alone:
                    yield _folded("Result of a call", _result(entry))
            case Custom():
                yield f"\n## {one_line(entry.name)} · {time_text(entry.time)}\n"
                yield from map(_said, entry.blocks)
                yield f"\n{_fenced(entry.data)}\n"
            case Message(kind="user_shell"):
                yield from _ran(entry)
            case Message():
                title = "You" if entry.user_visible and not entry.kind else "Told to the model"
                yield f"\n## {title} · {time_text(entry.time)}\n"
                yield from map(_said, entry.blocks)
            case ContextEntry():
                line = step_line(entry)
                text = getattr(entry, "text", "")
                yield (
                    f"\n---\n\n*{line}*\n"
                    + (_folded("What stands there now", _fenced(text)) if text else "")
                    + "\n---\n"
                )
            case _:
                line = step_line(entry) if not isinstance(entry, Prefix) else ""
                yield f"\n*{line}*\n" if line else ""
    prompts = dict.fromkeys(entry.system for entry in entries if isinstance(entry, Prefix))
    yield from (_folded("System prompt", _fenced(system)) for system in prompts)


def _said(block: object) -> str:
    match block:
        case Text(text=text):
            return f"\n{clean(text)}\n"
        case Image(media_type=media_type):
            return f"\n*A picture ({media_type})*\n"
        case _:
            return ""


def _answered(block: object) -> str:
    match block:
        case Reasoning(text=text) if text.strip():
            return _folded("Reasoning", _fenced(text))
        case _:
            return _said(block)


def _called(call: ToolCall, entry: Message | None) -> str:
    """A call and what came of it, folded."""
    title = f"{facts_of(call.name).title} {call_summary(call.arguments)}"
    if entry is None:
        return _folded(f"{title} · no result", _fenced(call.arguments, "json"))
    failed = any(block.is_error for block in entry.blocks if isinstance(block, ToolResult))
    ended = entry.stop_reason or ("failed" if failed else "")
    return _folded(f"{title} · {ended}" if ended else title, f"{_fenced(call.arguments, 'json')}{_result(entry)}")


def _ran(entry: Message) -> Iterator[str]:
    """A command that the user ran, and its output."""
    yield f"\n## You · {time_text(entry.time)}\n"
    yield from (_called(block, entry) for block in entry.blocks if isinstance(block, ToolCall))


def _result(entry: Message) -> str:
    """What a call answered, and what it changed."""
    texts = (_fenced(block.text) for block in entry.blocks if isinstance(block, ToolResult))
    return f"{''.join(texts)}{_fenced(entry.diff, 'diff') if entry.diff else ''}"


def _folded(title: str, body: str) -> str:
    return f"\n<details><summary>{_escaped(one_line(title, 120))}</summary>\n{body}\n</details>\n"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _fenced(text: str, language: str = "") -> str:
    return f"\n{code_block(clean(text).rstrip(), language)}\n"
