"""The texts of the offline model's answers, which only quote results and say what the model is."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tui_agent.conversation.blocks import ToolResult
from tui_agent.models.offline.commands import Command
from tui_agent.text import counted

ABOUT = (
    "I am tui-agent's **offline model**: a small program that reads plain commands, not a language model. "
    "I cannot answer open questions, but I call the real tools.\n\n"
    "What I understand, one or several at once:\n\n"
    "- `read pyproject.toml and README.md`, `summarise README.md`\n"
    "- `find TODO in src`, `glob **/*.py`, `list src`\n"
    '- `write "text" to notes.txt`, `replace "a" with "b" in file.py`\n'
    "- `run pytest -q`, `fetch https://…`, `recall words`, `mark task done`\n"
    '- `todo "[x] read it", "[>] mend it", "run the tests"`\n'
    '- `find tools for issues`, `call NAME word="value"`, `run agent NAME: read calc.py`\n\n'
    "For a real model, enter a key with `/key`, or choose one with `/model`."
)

_SHOWN_LINES = 8
_SHOWN_WIDTH = 160
_NUMBERED = re.compile(r"^ *\d+(?:\t|→|│|\||: ?)", re.MULTILINE)
_MATCH = re.compile(r"\s*\d+:")
_NOTICE = re.compile(r"\n?\[[^\n]*\]\s*\Z")
_EXIT = re.compile(r"\[(exit code -?\d+|ended by signal \d+)[^\]]*\]|\b(exit code:? -?\d+)")
_REFUSALS = {
    "The user declined": "you said no",
    "The session is in plan mode": "plan mode only reads and searches",
}
"""What to tell the user about a call that was not carried out, by the start of its result, which is for models."""
_TIMED_OUT = re.compile(r"timed out[^\n\]]*", re.IGNORECASE)


class Done(NamedTuple):
    """A finished command, with its call's result if it needed a tool."""

    command: Command
    result: ToolResult | None = None


def answer(done: Sequence[Done]) -> str:
    """A short Markdown answer, made only from the results."""
    if not done:
        return ABOUT
    parts = [_about(item) for item in done]
    return parts[0] if len(parts) == 1 else "\n\n".join(f"{number}. {part}" for number, part in enumerate(parts, 1))


def plan_text(commands: Sequence[Command]) -> str:
    """The text before the calls."""
    told = [
        _INTENTIONS.get(command.verb, command.verb.capitalize()).format(_code(command.subject)) for command in commands
    ]
    return f"{' · '.join(told)}."


_INTENTIONS = {
    "read": "Reading {}",
    "summarise": "Reading {} to summarise it",
    "list": "Listing {}",
    "glob": "Looking for files {}",
    "grep": "Searching for {}",
    "write": "Writing {}",
    "replace": "Editing {}",
    "run": "Running {}",
    "fetch": "Fetching {}",
    "recall": "Recalling {}",
    "remember": "Noting {}",
    "done": "Marking the task as done",
    "todo": "Keeping the task list",
    "ask": "Asking about {}",
    "plan": "Submitting a plan",
    "research": "Researching {}",
    "tools": "Looking for tools for {}",
    "call": "Calling {}",
    "agent": "Having the agent {} do it",
}


def _about(item: Done) -> str:
    command, result = item
    subject = _code(command.subject)
    if command.missing:
        return f"I could not {command.verb} {subject}: {command.missing}."
    if result is None:
        return (
            ABOUT
            if command.verb == "help"
            else f"About {subject} I can only think with the tools: name a file to read."
        )
    if refusal := _refusal(result):
        return f"{_INTENTIONS[command.verb].format(subject)} was not done: {refusal}."
    if result.is_error and command.verb != "run":
        # The sentences after the first are advice for a model.
        told = re.split(r"(?<=[.!?])\s+(?=[A-Z])", _first_line(result.text))[0]
        return f"{_INTENTIONS[command.verb].format(subject)} **failed**: {told}"
    if result.text.startswith("[cleared]") or result.text.startswith("[archived"):
        return f"{_INTENTIONS[command.verb].format(subject)} is done; its result has left the view."
    body = _NUMBERED.sub("", _NOTICE.sub("", result.text)) if command.verb in {"read", "summarise"} else result.text
    lines = [line for line in body.splitlines() if line.strip()]
    match command.verb:
        case "read":
            size = f"{counted(len(body.splitlines()), 'line')}, {len(body):,} characters on this page"
            return f"{subject}: {size}.\n\n{_fence(body.splitlines())}"
        case "summarise":
            return f"{subject}, in its own words:\n\n{summary_of(body)}"
        case "list":
            return f"{subject} holds {counted(len(lines), 'entry', 'entries')}:\n\n{_fence(lines)}"
        case "glob":
            found = [] if _none_found(result.text) else [line for line in lines if not line.startswith("[")]
            return f"{counted(len(found), 'file')} for {subject}{_listed(found)}"
        case "grep":
            found = [] if _none_found(result.text) else [line for line in lines if not line.startswith("[")]
            # Matches are listed under their file's name, each with its line number.
            matches = sum(bool(_MATCH.match(line)) for line in found) or len(found)
            return f"{counted(matches, 'line')} for {subject}{_listed(found)}"
        case "run":
            return _about_run(subject, result)
        case "write" | "replace" | "remember" | "done" | "todo":
            return f"{subject}: {_first_line(result.text)}"
        case _:
            return f"{subject}:\n\n{_fence(lines)}"


def _refusal(result: ToolResult) -> str:
    if not result.is_error:
        return ""
    return next((told for beginning, told in _REFUSALS.items() if result.text.startswith(beginning)), "")


def _about_run(subject: str, result: ToolResult) -> str:
    ended = _EXIT.search(result.text)
    outcome = next((group for group in ended.groups() if group), "") if ended else ""
    late = _TIMED_OUT.search(result.text)
    outcome = late[0].strip() if late and not outcome else outcome
    if not outcome:
        outcome = "failed" if result.is_error else "done"
    lines = [line for line in _NOTICE.sub("", result.text).splitlines() if line.strip()]
    told = f"\n\n{_fence(lines[-_SHOWN_LINES:])}" if lines else " It printed nothing."
    return f"{subject}: **{outcome}**.{told}"


def summary_of(text: str, most: int = 8) -> str:
    """Headings, definitions and first sentences of `text`, in order, as a list."""
    picked: list[str] = []
    fresh = True
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped:
            fresh = True
            continue
        heading = re.match(r"#{1,6}\s+(.*)", stripped)
        definition = re.match(
            r"(?:async\s+)?(?:def|class|function|fn|func|struct|interface)\s+\w+|\[[\w.\-]+\]$", stripped
        )
        if heading:
            picked.append(f"**{heading[1]}**")
        elif definition:
            picked.append(_code(stripped[:_SHOWN_WIDTH]))
        elif fresh and re.match(r"[\"'\w*`(]", stripped):
            sentence = re.split(r"(?<=[.!?])\s", stripped)[0]
            picked.append(sentence[:_SHOWN_WIDTH])
        fresh = bool(heading)
    shown = "\n".join(f"- {line}" for line in picked[:most]) or "- (it is empty)"
    left = len(picked) - most
    return f"{shown}\n- … and {left} more" if left > 0 else shown


def _none_found(text: str) -> bool:
    return bool(re.match(r"\[?no (?:match|file|result)", text.strip(), re.IGNORECASE)) or not text.strip()


def _listed(lines: Sequence[str]) -> str:
    return f":\n\n{_fence(lines)}" if lines else "."


def _fence(lines: Sequence[str]) -> str:
    shown = [line if len(line) <= _SHOWN_WIDTH else f"{line[:_SHOWN_WIDTH]}…" for line in lines[:_SHOWN_LINES]]
    if len(lines) > _SHOWN_LINES:
        shown.append(f"… {len(lines) - _SHOWN_LINES} more")
    fence = "```"
    while any(fence in line for line in shown):
        fence += "`"
    return "\n".join((fence, *shown, fence))


def _code(text: str) -> str:
    flat = " ".join(text.split())
    flat = flat if len(flat) <= _SHOWN_WIDTH else f"{flat[:_SHOWN_WIDTH]}…"
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "(no text)")
