"""The names that Claude Code has for our tools and their arguments, for extensions that were written for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.tool_facts import TOOL_FACTS, facts_of
from tui_agent.system.lenient import object_in
from tui_agent.tools.base import ToolOutput

OURS: Final[Mapping[str, str]] = {
    name.lower(): ours for ours, facts in reversed(list(TOOL_FACTS.items())) for name in facts.claude
}
"""Our tools by the names of Claude Code, in lower case."""

_BASH: Final = ("Bash",)
_WITHOUT: Final = frozenset(("description", "dangerouslyDisableSandbox"))
"""Arguments of Claude Code's Bash that say nothing to our tool."""
_REPLACED: Final = frozenset(("old", "new", "replace_all"))
"""Arguments of our `edit_file` that `edits` stands in place of."""


def names_of(tool: str) -> tuple[str, ...]:
    """All names of a tool: Claude Code's first, ours last."""
    return (*facts_of(tool).claude, tool)


def arguments_for_claude(tool: str, arguments: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Arguments of our tool in the form of Claude Code: its names, absolute paths of files, milliseconds."""
    form = facts_of(tool)
    fields = {form.arguments.get(name, name): value for name, value in arguments.items()}
    if isinstance(edits := fields.pop("edits", None), list):
        fields |= _edits_for_claude([_renamed(edit, form.arguments) for edit in edits])
    path = fields.get("file_path")
    if isinstance(path, str):
        fields["file_path"] = str(folder / Path(path).expanduser())
    timeout = fields.get("timeout")
    if form.claude == _BASH and isinstance(timeout, int):
        fields["timeout"] = 1_000 * timeout
    return fields


def arguments_from_claude(tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """The opposite of `arguments_for_claude`; arguments under our own names stay."""
    form = facts_of(tool)
    ours = {theirs: name for name, theirs in form.arguments.items()}
    fields = {ours.get(name, name): value for name, value in arguments.items()}
    if isinstance(edits := fields.get("edits"), list):
        fields["edits"] = [_renamed(edit, ours) for edit in edits]
        fields = {name: value for name, value in fields.items() if name not in _REPLACED}
    if form.claude != _BASH:
        return fields
    timeout = fields.get("timeout")
    if isinstance(timeout, int | float):
        fields["timeout"] = max(1, round(timeout / 1_000))
    return {name: value for name, value in fields.items() if name not in _WITHOUT}


def _edits_for_claude(edits: list[object]) -> dict[str, object]:
    """Several replacements as Claude Code's Edit has one: a hook that looks for something in the texts of an Edit finds
    it in each of them. The list stands beside them if it has more than one.
    """
    texts = {
        name: "\n".join(text for edit in edits if isinstance(edit, dict) and isinstance(text := edit.get(name), str))
        for name in ("old_string", "new_string")
    }
    everywhere = [edit["replace_all"] for edit in edits if isinstance(edit, dict) and edit.get("replace_all")]
    return {**texts, **({"replace_all": True} if everywhere else {}), **({"edits": edits} if len(edits) > 1 else {})}


def _renamed(edit: object, names: Mapping[str, str]) -> object:
    return {names.get(name, name): value for name, value in edit.items()} if isinstance(edit, dict) else edit


def call_for_claude(call: ToolCall, folder: Path) -> dict[str, object]:
    """A call as hooks are told of it: under the names of Claude Code, and as it is here beside them."""
    arguments = object_in(call.arguments)
    return {
        "tool_name": names_of(call.name)[0],
        "tool_input": arguments_for_claude(call.name, arguments, folder),
        "tool_use_id": call.id,
        "native_tool_name": call.name,
        "native_tool_input": arguments,
    }


def result_for_claude(call: ToolCall, output: ToolOutput, folder: Path, limit: int) -> dict[str, object]:
    """A result as hooks are told of it: the fields of Claude Code's tool, and `text`, which the model sees."""
    text, given = output.text[:limit], arguments_for_claude(call.name, object_in(call.arguments), folder)
    file, fields = given.get("file_path"), {"text": text, "is_error": output.is_error}
    match names_of(call.name)[0]:
        case "Bash":
            printed = "".join(text.splitlines(keepends=True)[: -output.outcome.notes or None])
            ran = {"stdout": printed, "stderr": "", "interrupted": output.outcome.timed_out, "isImage": False}
            return {**fields, **ran, "exit_code": output.outcome.exit_code}
        case "Read":
            lines = text.count("\n") + 1
            return {**fields, "type": "text", "file": {"filePath": file, "content": text, "numLines": lines}}
        case "Write":
            return {**fields, "filePath": file, "content": given.get("content"), "success": not output.is_error}
        case "Edit":
            changed = {"oldString": given.get("old_string"), "newString": given.get("new_string")}
            return {**fields, "filePath": file, **changed, "success": not output.is_error}
        case _:
            return {**fields, "content": [{"type": "text", "text": text}]}
