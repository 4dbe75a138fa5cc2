"""A session as a trajectory in the Agent Trajectory Interchange Format (ATIF) 1.8, Harbor's RFC 0001.

The steps are those of the conversation's branch, oldest first: the system prompt, what the user said, each answer with
its calls and their results, and, as steps of the system, what the program told the model and each change to the
context. What stands in the log of subtasks is embedded as trajectories of their own. Pictures are `data:` addresses.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from tui_agent.agent.subtasks import branch_prefix
from tui_agent.arguments import UsageError
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult, text_in
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Boundary,
    Message,
    ModelSwitched,
    Prefix,
    Undone,
    Usage,
    model_call,
    typed_in,
)
from tui_agent.conversation.log import Log
from tui_agent.reports.pages import step_line
from tui_agent.reports.sessions import folder_of
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.log import log_file, read_entries
from tui_agent.storage.recordings.reading import whole_text
from tui_agent.storage.sessions import files_folder, subtask_branch, subtask_folders
from tui_agent.version import __version__

VERSION: Final = "ATIF-v1.8"
Json: TypeAlias = dict[str, object]

_CONTEXTS_OWN: Final = frozenset({"tool_result_archived", "tool_summary", "summary", "checkpoint"})
"""Kinds of messages with which the context shows another one."""


def trajectory(home: Path, session: str) -> str:
    """The trajectory of a session or subtask (see `folder_of`) as JSON text. Blocks.

    Raises `UsageError` and `StorageError`.
    """
    folder = asyncio.run(folder_of(home, session))
    try:
        document = asyncio.run(_document(home, folder))
    except ValueError as error:
        raise UsageError(f"The log of session {session} is damaged: {error}.") from error
    return msgspec.json.format(msgspec.json.encode(document)).decode()


async def _document(home: Path, folder: Path) -> Json:
    entries = list(await asyncio.to_thread(lambda: list(read_entries(log_file(folder)))))
    subtasks = await asyncio.to_thread(subtask_folders, home, folder.name)
    steps = _Steps(Artifacts(files_folder(folder)), subtasks)
    log = Log(entries)
    shown = log.path()
    undone = {entry.target for entry in shown if isinstance(entry, Undone)}
    for number in shown.numbers:
        await steps.add(log.message(number) or entries[number - 1], undone)
    model = next((step["model_name"] for step in reversed(steps.steps) if "model_name" in step), None)
    left = len(entries) - len(shown.numbers)
    document: Json = {
        "schema_version": VERSION,
        "session_id": folder.name,
        "trajectory_id": folder.name,
        "agent": _without_empty(
            name="tui-agent",
            version=__version__,
            model_name=model,
            tool_definitions=[_definition(tool) for tool in steps.tools] or None,
        ),
        "steps": steps.steps,
        "final_metrics": _final(steps.steps, entries),
    }
    if left:
        document["notes"] = f"{left} entries of the log are on branches that were left, or hold nothing of a step."
    if subtasks:
        document["subagent_trajectories"] = [await _document(home, each) for each in subtasks]
    return document


class _Steps:
    """Puts the steps of a trajectory together, entry by entry."""

    def __init__(self, artifacts: Artifacts, subtasks: Sequence[Path]) -> None:
        self.steps: list[Json] = []
        self.tools: tuple[ToolDefinition, ...] = ()
        self._artifacts = artifacts
        self._subtasks = subtasks
        self._system = ""
        self._callers: dict[str, Json] = {}
        """The newest step that made a call, by the call's id."""
        self._places: dict[int, int] = {}
        """The number of the step at or before each entry."""

    async def add(self, entry: AnyEntry, undone: set[int]) -> None:
        """Add what one entry of the branch says."""
        match entry:
            case Prefix():
                self.tools = entry.tools
                if entry.system != self._system:
                    self._system = entry.system
                    self._step(entry, "system", entry.system)
            case Message() if entry.kind in _CONTEXTS_OWN:
                pass
            case Message():
                await self._message(await whole_text(entry, self._artifacts))
            case _ if isinstance(entry, AnyContextEntry):
                self._change(entry, undone)
            case ModelSwitched() if not self._callers and len(self.steps) < 2:
                pass  # each answer says whose it is; that one was chosen before the first is no event
            case _:
                if line := step_line(entry):
                    self._step(entry, "system", line)
        self._places[entry.seq] = len(self.steps)

    async def _message(self, message: Message) -> None:
        if message.role == "assistant":
            self._answer(message)
        elif message.kind == "tool_result":
            for block in message.blocks:
                if isinstance(block, ToolResult):
                    self._result(message, block)
        elif message.kind in ("", "user_shell"):
            step = self._step(message, "user", typed_in(message) or "" if message.kind else _content(message.blocks))
            ran = (block for block in message.blocks if isinstance(block, ToolResult))
            results = [_without_empty(content=_content_of(block)) for block in ran]
            if results:
                step["observation"] = {"results": results}
        elif message.agent_visible:
            self._step(message, "system", _content(message.blocks), extra={"kind": message.kind})

    def _answer(self, message: Message) -> None:
        calls = [block for block in message.blocks if isinstance(block, ToolCall)]
        reasoning = text_in(message.blocks, Reasoning)
        step = self._step(
            message,
            "agent",
            _content(message.blocks),
            model_name=message.model or None,
            reasoning_content=reasoning or None,
            tool_calls=[_call(call) for call in calls] or None,
            metrics=_metrics(message.usage, message.cost_usd) if message.usage is not None else None,
            llm_call_count=1 if message.usage is not None else None,
            extra={"stop_reason": message.stop_reason} if message.stop_reason else None,
        )
        self._callers.update((call.id, step) for call in calls)

    def _result(self, message: Message, block: ToolResult) -> None:
        step = self._callers.get(block.call_id)
        facts = _without_empty(
            is_error=block.is_error or None,
            exit_code=message.outcome.exit_code,
            duration_ms=message.duration_ms or None,
            stop_reason=message.stop_reason or None,
            diff=message.diff or None,
        )
        prefix = branch_prefix(block.call_id)
        of_call = [folder for folder in self._subtasks if subtask_branch(folder).startswith(prefix)]
        result = _without_empty(
            source_call_id=block.call_id if step is not None else None,
            content=_content_of(block),
            subagent_trajectory_ref=[{"trajectory_id": folder.name} for folder in of_call] or None,
            extra=facts or None,
        )
        if step is None:
            step = self._step(message, "system", "A result of a call that is not on this branch.")
        observation = step.setdefault("observation", {"results": []})
        if isinstance(observation, dict):
            observation["results"].append(result)

    def _change(self, entry: AnyContextEntry, undone: set[int]) -> None:
        kind = type(entry).__name__.lower()
        extra: Json = {"context_change": kind, "tokens_before": entry.before, "tokens_after": entry.after}
        text = getattr(entry, "text", "")
        if isinstance(entry, Boundary) and entry.seq not in undone:
            first, last = self._places.get(entry.first, 1), self._places.get(entry.last, 0)
            extra["compaction"] = {"first_step": first, "last_step": last, "text": text}
        step = self._step(entry, "system", step_line(entry), extra=extra)
        if text:
            step["observation"] = {"results": [{"content": text}]}

    def _step(self, entry: AnyEntry, source: str, message: object, **more: object) -> Json:
        step: Json = {"step_id": len(self.steps) + 1}
        if entry.time:
            step["timestamp"] = datetime.fromtimestamp(entry.time, UTC).isoformat().replace("+00:00", "Z")
        step |= {"source": source, "message": message, **_without_empty(**more)}
        self.steps.append(step)
        return step


def _without_empty(**fields: object) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _content(blocks: Sequence[Block]) -> str | list[Json]:
    """What a message says: its text or, with pictures, its parts."""
    texts = [block for block in blocks if isinstance(block, Text)]
    images = [block for block in blocks if isinstance(block, Image) and block.data]
    if not images:
        return text_in(texts)
    return [*map(_text, texts), *map(_picture, images)]


def _content_of(result: ToolResult) -> str | list[Json]:
    images = [image for image in result.images if image.data]
    return [_text(Text(result.text)), *map(_picture, images)] if images else result.text


def _text(block: Text) -> Json:
    return {"type": "text", "text": block.text}


def _picture(image: Image) -> Json:
    address = f"data:{image.media_type};base64,{image.data}"
    return {"type": "image", "source": {"media_type": image.media_type, "path": address}}


def _call(call: ToolCall) -> Json:
    call_fields: Json = {
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": msgspec.json.decode(call.arguments, type=dict[str, object]),
    }
    return call_fields | ({"extra": {"malformed": call.malformed}} if call.malformed else {})


def _definition(tool: ToolDefinition) -> Json:
    parameters = msgspec.json.decode(tool.schema, type=dict[str, object])
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _metrics(usage: Usage, cost_usd: float | None) -> Json:
    extra = _without_empty(
        cache_creation_input_tokens=usage.cache_write_tokens or None, reasoning_tokens=usage.reasoning_tokens or None
    )
    return _without_empty(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cost_usd=cost_usd,
        extra=extra or None,
    )


def _final(steps: Sequence[Json], entries: Sequence[AnyEntry]) -> Json:
    """Totals: the tokens of all steps; the cost of all calls in the log, also those of summaries and left branches."""
    calls = [call for call in map(model_call, entries) if call is not None]
    shown = [step["metrics"] for step in steps if isinstance(step.get("metrics"), dict)]
    prompt, completion, cached = (
        sum(metrics[name] for metrics in shown if isinstance(metrics, dict))
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    )
    elsewhere = sum(call.cost_usd or 0.0 for call in calls if call.purpose != "answer")
    return _without_empty(
        total_prompt_tokens=prompt,
        total_completion_tokens=completion,
        total_cached_tokens=cached,
        total_cost_usd=sum(call.cost_usd or 0.0 for call in calls) if calls else None,
        total_steps=len(steps),
        extra={"summaries_and_unfinished_usd": elsewhere} if elsewhere else None,
    )
