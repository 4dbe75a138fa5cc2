"""The conversation as JSON lines in the form of Claude Code's session files, for hooks, whose `transcript_path` it is.

It is a copy that is brought up to date when a hook runs; the log is what counts (docs/formats.md).
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tui_agent.agent.extensions.claude_forms import arguments_for_claude, names_of
from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Usage
from tui_agent.conversation.log import Log
from tui_agent.system.durable import write_file
from tui_agent.system.lenient import object_in
from tui_agent.version import __version__

FILE: Final = "transcript.jsonl"
_ENDED: Final = {"tool_calls": "tool_use", "max_tokens": "max_tokens", "refusal": "refusal"}


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
