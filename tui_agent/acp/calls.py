"""Tool calls as shown by editors: kind, title, files, diffs, output; and the model's questions as forms."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    FileEditToolCallContent,
    TerminalToolCallContent,
    ToolCallLocation,
)

from tui_agent.conversation.tool_facts import facts_of
from tui_agent.system.lenient import object_in
from tui_agent.text import call_summary, clean, code_block, one_line
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
    return one_line(f"{tool} {line}".strip())


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
