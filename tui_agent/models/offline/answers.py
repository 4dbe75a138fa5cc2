"""The texts of the offline model's answers, which only quote results and say what the model is."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tui_agent.conversation.blocks import ToolResult
from tui_agent.models.offline.commands import OfflineCommand
from tui_agent.regex import regex
from tui_agent.text import code_block, counted

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
_NUMBERED = regex(r"^ *\d+(?:\t|→|│|\||: ?)", re.MULTILINE)
_NOTICE = regex(r"\n?\[[^\n]*\]\s*\Z")
_ENDED = regex(
    r"\[(exit code -?\d+|ended by signal \d+)[^\]]*\]|\b(exit code:? -?\d+)|(timed out[^\n\]]*)"
    r"|\[[^\]\n]*(in the background)",
    re.IGNORECASE,
)
_NONE_FOUND = regex(r"\s*(?:\[?no (?:match|file|result)|\Z)", re.IGNORECASE)
_DEFINITION = regex(r"(?:async\s+)?(?:def|class|function|fn|func|struct|interface)\s+\w+|\[[\w.\-]+\]$")
_EXAMPLE = regex(r"(?ms)^ *(```|~~~).*?(?:^ *\1|\Z)")
_ADVICE = regex(r"(?<=[.!?])\s+(?=[A-Z])")
_REFUSALS = {
    "The user declined": "you said no",
    "The session is in plan mode": "plan mode only reads and searches",
}
"""What to tell the user about a call that was not carried out, by the start of its result, which is for models."""
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
    "done": "Marking the task as done",
    "todo": "Keeping the task list",
    "ask": "Asking about {}",
    "plan": "Submitting a plan",
    "research": "Researching {}",
    "tools": "Looking for tools for {}",
    "call": "Calling {}",
    "agent": "Having the agent {} do it",
}


class Done(NamedTuple):
    """A finished command, with its call's result if it needed a tool."""

    command: OfflineCommand
    result: ToolResult | None = None


def answer(done: Sequence[Done]) -> str:
    """A short Markdown answer, made only from the results."""
    if not done:
        return ABOUT
    parts = [_about(command, result) for command, result in done]
    return parts[0] if len(parts) == 1 else "\n\n".join(f"{number}. {part}" for number, part in enumerate(parts, 1))


def plan_text(commands: Sequence[OfflineCommand]) -> str:
    """The text before the calls."""
    return f"{' · '.join(_INTENTIONS[command.verb].format(_code(command.subject)) for command in commands)}."


def _about(command: OfflineCommand, result: ToolResult | None) -> str:
    subject, verb = _code(command.subject), command.verb
    if command.missing:
        return f"I could not {verb} {subject}: {command.missing}."
    if result is None:
        extra = f"About {subject} I can only think with the tools: name a file to read."
        return ABOUT if verb == "help" else extra
    text, intention = result.text, _INTENTIONS[verb].format(subject)
    if result.is_error:
        for beginning, refusal in _REFUSALS.items():
            if text.startswith(beginning):
                return f"{intention} was not done: {refusal}."
        if verb != "run":
            # The sentences after the first are advice for a model.
            return f"{intention} **failed**: {_ADVICE.split(_first_line(text))[0]}"
    if text.startswith(("[cleared]", "[archived")):
        return f"{intention} is done; its result has left the view."
    lines = [line for line in text.splitlines() if line.strip()]
    found = [] if _NONE_FOUND.match(text) else [line for line in lines if not line.startswith("[")]
    listed = f":\n\n{_fence(found)}" if found else "."
    match verb:
        case "read" | "summarise":
            body = _NUMBERED.sub("", _NOTICE.sub("", text))
            if verb == "summarise":
                return f"{subject}, in its own words:\n\n{summary_of(body)}"
            size = f"{counted(len(body.splitlines()), 'line')}, {counted(len(body), 'character')} on this page"
            return f"{subject}: {size}.\n\n{_fence(body.splitlines())}"
        case "list":
            return f"{subject} holds {counted(len(lines), 'entry', 'entries')}:\n\n{_fence(lines)}"
        case "glob":
            return f"{counted(len(found), 'file')} for {subject}{listed}"
        case "grep":
            # Matches are listed under their file's name, each with its line number.
            matches = sum(bool(re.match(r"\s*\d+:", line)) for line in found) or len(found)
            return f"{counted(matches, 'line')} for {subject}{listed}"
        case "run":
            ended = _ENDED.search(text)
            outcome = next(filter(None, ended.groups())) if ended else "failed" if result.is_error else "done"
            printed = [line for line in _NOTICE.sub("", text).splitlines() if line.strip()][-_SHOWN_LINES:]
            extra = f"\n\n{_fence(printed)}" if printed else " It printed nothing."
            return f"{subject}: **{outcome.strip()}**.{extra}"
        case "write" | "replace" | "done" | "todo":
            return f"{subject}: {_first_line(text)}"
        case _:
            return f"{subject}:\n\n{_fence(lines)}"


def summary_of(text: str, most: int = 8) -> str:
    """Headings, definitions and first sentences of `text`, in order, as a list."""
    picked: list[str] = []
    fresh = True
    for line in map(str.strip, _EXAMPLE.sub("", text).splitlines()):
        heading = re.match(r"#{1,6}\s+(.*)", line)
        if heading:
            picked.append(f"**{heading[1]}**")
        elif _DEFINITION.match(line):
            picked.append(_code(line))
        elif fresh and re.match(r"[\"'\w*`(]", line):
            picked.append(re.split(r"(?<=[.!?])\s", line)[0][:_SHOWN_WIDTH])
        fresh = bool(heading) or not line
    shown = "\n".join(f"- {line}" for line in picked[:most]) or "- (it is empty)"
    return f"{shown}\n- … and {len(picked) - most} more" if len(picked) > most else shown


def _fence(lines: Sequence[str]) -> str:
    shown = [_cut(line) for line in lines[:_SHOWN_LINES]]
    if len(lines) > _SHOWN_LINES:
        shown.append(f"… {len(lines) - _SHOWN_LINES} more")
    return code_block("\n".join(shown))


def _code(text: str) -> str:
    flat = _cut(" ".join(text.split()))
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def _cut(line: str) -> str:
    return line if len(line) <= _SHOWN_WIDTH else f"{line[:_SHOWN_WIDTH]}…"


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "(no text)")
