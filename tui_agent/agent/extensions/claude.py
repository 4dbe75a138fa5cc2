"""What is read and written as Claude Code does: names of tools and arguments, for extensions that were written for it;
permission rules, of its own settings and of Gemini CLI's; and its session files.

The conversation is written as JSON lines in the form of its session files for hooks, whose `transcript_path` it is: a
copy that is brought up to date when a hook runs; the log is what counts (docs/formats.md).
"""

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Usage
from tui_agent.conversation.log import Log
from tui_agent.conversation.tool_facts import TOOL_FACTS, facts_of
from tui_agent.settings.servers import plain_json
from tui_agent.settings.trust import CLAUDE_FOLDER
from tui_agent.system.durable import write_file
from tui_agent.system.lenient import object_in
from tui_agent.system.regular import read_bytes
from tui_agent.text import expanded
from tui_agent.tools.base import ToolOutput
from tui_agent.tools.gate.rules import SHELL, Rule, RuleError
from tui_agent.version import __version__

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
        fields["file_path"] = str(folder / expanded(path))
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


_FILES: Final = ("settings.json", "settings.local.json")
_MOST_BYTES: Final = 1_000_000


class NoSuchToolError(ValueError):
    """A rule is for a tool that there is not here."""


class ClaudeRules(NamedTuple):
    """What is asked about and what is refused, in our form; and sentences about rules that cannot be used."""

    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def tightening_rules(project: Path, user: Path | None) -> ClaudeRules:
    """The rules that refuse or ask in the `.claude/` of a project and of the user, if their home is given. Those that
    allow something are not read.

    Reads files, and raises nothing.
    """
    found: dict[str, list[str]] = {"ask": [], "deny": []}
    problems: list[str] = []
    # A path that begins with one slash is from the root of the project, or from the folder of the user's settings.
    places = [(project / CLAUDE_FOLDER / name, "(./") for name in _FILES]
    places += [(user / CLAUDE_FOLDER / _FILES[0], f"(~/{CLAUDE_FOLDER}/")] if user is not None else []
    for path, root in places:
        for kind, given in _rules_in(path):
            text = re.sub(r"\(/(?!/)", root, given)
            try:
                found[kind] += [rule.text for rule in rules_of(text, kind)]
            except NoSuchToolError:
                continue
            except (RuleError, ValueError) as error:
                problems.append(f"{path}: permissions.{kind}: {given[:200]}: {error}")
    return ClaudeRules(
        tuple(dict.fromkeys(found["ask"])), tuple(dict.fromkeys(found["deny"])), tuple(dict.fromkeys(problems))
    )


def _rules_in(path: Path) -> Iterator[tuple[str, str]]:
    try:
        document = json.loads(plain_json(read_bytes(path, _MOST_BYTES).decode("utf-8-sig")))
    except (OSError, ValueError, RecursionError):
        return  # a file of hooks that cannot be read is named where these are
    section = document.get("permissions") if isinstance(document, dict) else None
    for kind in ("ask", "deny"):
        listed = section.get(kind) if isinstance(section, dict) else None
        yield from ((kind, each) for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str))


def rules_of(text: str, kind: str) -> list[Rule]:
    """A rule of another agent in our form. Raises ValueError or RuleError with the reason why there is none."""
    return [Rule.read(rule.text) for rule in _rules(text, kind)]


def _rules(text: str, kind: str) -> list[Rule]:
    parts = re.fullmatch(r"(?P<tool>[\w*-]+)(?:\((?P<pattern>.*)\))?", text.strip(), re.DOTALL)
    if parts is None:
        raise ValueError("it is not a rule")
    tool, pattern = parts["tool"], parts["pattern"] or ""
    if tool.startswith("mcp__") and not pattern:
        return [Rule.read(tool if tool.count("__") > 1 else f"{tool}__*")]
    if tool in ("Edit", "Write", "MultiEdit", "write_file", "replace"):
        return [Rule(each, path) for path in _paths(pattern, kind) for each in ("edit_file", "write_file")]
    if (ours := OURS.get(tool.lower(), tool)) in ("read_file", "fetch_url", "web_search", "glob", "grep", "list_dir"):
        if ours == "fetch_url":
            domain = pattern.removeprefix("domain:")
            return [Rule(ours, f"https://{domain}/*" if domain else "")]
        return [Rule(ours, path) for path in _paths(pattern, kind)]
    if tool not in ("Bash", "run_shell_command", "ShellTool"):
        raise NoSuchToolError("there is no such tool here, or it never asks")
    if not pattern and kind == "allow":
        raise ValueError("it would let every command run; choose a mode instead")
    if pattern and tool != "Bash":
        pattern = f"{pattern} *"  # Gemini CLI's name the beginning of a command
    pattern = f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern
    rule = Rule.read(f"{SHELL}({pattern})" if pattern else SHELL)
    if kind == "allow" and rule.is_idle:
        raise ValueError(
            "a rule with * is accepted for commands that are known to change nothing; others need all words"
        )
    return [rule]


def _paths(pattern: str, kind: str) -> list[str]:
    """A pattern for paths, as git ignores them, in our form, in which ``*`` matches any text. Raises ValueError."""
    if pattern.startswith("/") and not pattern.startswith("//"):
        raise ValueError("it is relative to the folder of those settings")
    # Without a slash before its end, a pattern counts in every folder.
    floats = pattern.startswith("**/") or "/" not in pattern.removesuffix("/")
    body = pattern.removeprefix("**/").removeprefix("./").removeprefix("/")
    body = f"{body}*" if body.endswith("/") else body
    found = [body] if "/**/" not in body else [body.replace("/**/", "/"), body.replace("/**/", "/*/")]
    found = [re.sub(r"\*\*(?:/\*)?", "*", each) for each in found]
    if kind != "allow" and (last := found[0].rpartition("/")[2]) and not re.search(r"[.*]", last):
        found += [f"{each}/*" for each in found]  # it may be a folder
    if floats and body and not body.startswith("*"):
        found += [f"*/{each}" for each in found]
    return list(dict.fromkeys(found))


TRANSCRIPT: Final = "transcript.jsonl"
_ENDED: Final = {"tool_calls": "tool_use", "paused": "pause_turn", "max_tokens": "max_tokens", "refusal": "refusal"}


class HookTranscript:
    """The file of one conversation, whose log `log` returns."""

    def __init__(self, file: Path, session: str, folder: Path, log: Callable[[], Log]) -> None:
        self.file = file
        self._session, self._folder, self._log = session, folder, log
        self._lock = asyncio.Lock()
        self._count = self._newest = 0
        self._parent: str | None = None

    async def update(self) -> None:
        """Add what is new; write all of it again if the conversation continues on another branch. Raises OSError."""
        async with self._lock:
            log = self._log()
            path = log.path()
            goes_on = 0 < self._count <= len(path) and path[self._count - 1].seq == self._newest
            if not goes_on:
                self._count, self._parent = 0, None
            new = list(path[self._count :])
            if not new and goes_on:
                return
            said = (log.message(entry.seq) for entry in new)
            lines = (line for message in said if message is not None for line in self._lines(message))
            # Without spaces, as Claude Code writes it: hooks search it for '"role":"assistant"'.
            text = "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)
            await asyncio.to_thread(self._write, text, anew=not goes_on)
            self._count, self._newest = len(path), new[-1].seq if new else 0

    def _write(self, text: str, *, anew: bool) -> None:
        data = text.encode(errors="replace")
        if anew:
            write_file(self.file, data, durable=False)
            return
        with self.file.open("ab") as stream:
            stream.write(data)

    def _lines(self, entry: Message) -> Iterator[dict[str, object]]:
        if not entry.agent_visible:
            return
        for number, block in enumerate(entry.blocks):
            name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._session}/{entry.seq}/{number}"))
            content = _content(block, self._folder)
            message: dict[str, object] = {"role": entry.role, "content": [content]}
            if entry.role == "assistant":
                message |= {"id": f"msg_{entry.seq}", "type": "message", "model": entry.model.partition(":")[2]}
                message |= {"stop_reason": _ENDED.get(entry.stop_reason, entry.stop_reason or "end_turn")}
                message |= {"usage": _usage(entry.usage)} if entry.usage is not None else {}
            elif isinstance(block, Text):
                message["content"] = block.text
            line: dict[str, object] = {
                "parentUuid": self._parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": str(self._folder),
                "sessionId": self._session,
                "version": __version__,
                "type": entry.role,
                "message": message,
                "uuid": name,
                "timestamp": datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="milliseconds"),
            }
            if entry.role == "user" and entry.kind not in ("", "tool_result", "user_shell"):
                line["isMeta"] = True
            yield line
            self._parent = name


def _content(block: Block, folder: Path) -> dict[str, object]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Reasoning():
            return {"type": "thinking", "thinking": block.text, "signature": ""}
        case ToolCall():
            given = arguments_for_claude(block.name, object_in(block.arguments), folder)
            return {"type": "tool_use", "id": block.id, "name": names_of(block.name)[0], "input": given}
        case ToolResult():
            fields = {"type": "tool_result", "tool_use_id": block.call_id, "content": block.text}
            return {**fields, "is_error": True} if block.is_error else {**fields}
        case _:
            return {"type": "text", "text": "[a picture]"}


def _usage(usage: Usage) -> dict[str, int]:
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": max(0, usage.input_tokens - cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
