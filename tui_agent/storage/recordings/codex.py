"""Session files of codex ("rollouts"): JSON lines with a `type` and a `payload`.

The format is not documented by its maker; this reads what its files hold: `response_item` lines are what was said to
the model and by it, an item each; the items up to the first result or word of the user are one answer. `compacted`
lines hold a summary of all before, `turn_context` names the model, and of `event_msg` lines a `token_count` holds what
the newest call used, a `thread_rolled_back` how many turns were taken back. A `token_count` stands after the items of
its answer (since the middle of 2026 also after their results) or, in files of 2025, before them; one that only tells
new limits repeats the last. Files of its first year have the items without the envelope. What codex tells the model of
itself (rules, the folder, the sandbox) is left out: it holds there alone. The output of a command is JSON with
`metadata`, or begins with lines that say its exit code, how long it took and how many lines there were before it was
cut.
"""

import re
from contextlib import suppress
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import Outcome, Usage
from tui_agent.storage.recordings.fields import Json, blocks_of, picture_at, words
from tui_agent.storage.recordings.recording import UNUSABLE, ConversationBuilder, RecordingReader

ENVELOPES: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
ITEMS: Final = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})
OWN_WORDS: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<skills_instructions>",
    "# AGENTS.md instructions",
)
"""How texts begin that codex writes with role user."""

_FACTS: Final = {
    "exit_code": re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,9})$", re.MULTILINE),
    "wall_time": re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds$", re.MULTILINE),
    "line_count": re.compile(r"^Total output lines: (\d{1,9})$", re.MULTILINE),
}
"""What the lines before a command's output say."""


class CodexReader(RecordingReader):
    def __init__(self, builder: ConversationBuilder) -> None:
        super().__init__(builder)
        self._model = ""
        self._answer = 0
        self._speaking = False
        """Whether the newest item is part of an answer, which the next one may be as well."""
        self._uncounted = False
        """Whether it is still to be told what the newest answer used."""
        self._total: object = None
        self._early: Usage | None = None
        """What the answer used that comes next."""

    @override
    def take(self, number: int, line: bytes) -> None:
        record, builder = Json.decode(line), self.builder
        time, payload = record["timestamp"].seconds, record["payload"]
        match record["type"].text:
            case "response_item":
                self._item(number, payload, time)
            case "compacted":
                self._speaking = self._uncounted = False
                builder.compaction(number, _summary(payload), time)
            case "turn_context" | "session_meta":
                self._model = payload["model"].text or self._model
                builder.system = builder.system or payload["base_instructions"]["text"].text
            case "event_msg" if payload["type"].text == "thread_rolled_back":
                self._speaking = self._uncounted = False
                builder.take_back(payload["num_turns"].count)
            case "event_msg" if used := payload["info"]["last_token_usage"]:
                self._use(number, payload["info"]["total_token_usage"].value, _used(used), time)
            case kind if kind in ITEMS:
                self._item(number, record, time)

    def _item(self, number: int, item: Json, time: float) -> None:
        call, role = item["call_id"].text or item["id"].text, item["role"].text
        match item["type"].text:
            case "message" if role == "user":
                blocks = blocks_of(item["content"], _block)
                said = [block for block in blocks if not _is_own(block)]
                if said or not blocks:
                    self._speaking, self._uncounted, self._early = False, False, None
                    self.builder.user(number, said, time)
            case "message" if role == "assistant":
                self._say(number, blocks_of(item["content"], _block), time)
            case "reasoning":
                text = words(blocks_of(item["summary"], _block), "\n\n")
                self._say(number, [Reasoning(text)] if text else [], time)
            case "function_call":
                self._say(number, [ToolCall(call, item["name"].text, _as_object(item["arguments"].text))], time)
            case "custom_tool_call":
                self._say(number, [ToolCall(call, item["name"].text, _wrapped(item["input"].text))], time)
            case "local_shell_call":
                self._say(number, [ToolCall(call, "local_shell", item["action"].arguments)], time)
            case "function_call_output" | "custom_tool_call_output":
                self._speaking = False
                self._result(number, call, item["output"], time)
            case _:
                pass  # what the provider did by itself, such as a search, has no result to pair it with

    def _say(self, number: int, blocks: list[Block], time: float) -> None:
        if blocks:
            self._answer += not self._speaking
            self._uncounted = self._early is None and (self._uncounted or not self._speaking)
            self._speaking, usage, self._early = True, self._early, None
            self._tell(number, blocks, time, usage)

    def _tell(self, number: int, blocks: list[Block], time: float, usage: Usage | None) -> None:
        self.builder.answer(number, blocks, time, answer_id=str(self._answer), model=self._model, usage=usage)

    def _use(self, number: int, total: object, usage: Usage, time: float) -> None:
        if total is not None and total == self._total:
            return
        self._total = total
        if self._speaking or self._uncounted:
            self._uncounted = False
            self._tell(number, [], time, usage)
        else:
            self._early = usage

    def _result(self, number: int, call: str, output: Json, time: float) -> None:
        failed = False
        if isinstance(output.value, dict):
            failed = output["success"].value is False
            output = output["content"] if output["content"].value else output["output"]
        blocks = blocks_of(output, _block)
        text, exit_code, took, lines = words(blocks), None, 0.0, 0
        inner = Json(None)
        with suppress(*UNUSABLE):
            inner = Json.decode(text)
        if isinstance(inner.value, dict | list | str):
            ended = inner.loose["metadata"]
            exit_code, took = ended["exit_code"].exit_code, ended["duration_seconds"].seconds
        else:
            head = text.partition("Output:\n")[0]
            code, wall_time, total = (pattern.search(head) for pattern in _FACTS.values())
            exit_code, took = int(code[1]) if code else None, float(wall_time[1]) if wall_time else 0.0
            lines = int(total[1]) if total else 0
        outcome, duration = Outcome(exit_code=exit_code, line_count=lines), round(took * 1000)
        self.builder.result(number, call, blocks, time, is_error=failed, outcome=outcome, duration_ms=duration)


def is_codex(line: bytes) -> bool:
    record = Json.decode(line).loose
    kind = record["type"].text
    return (kind in ENVELOPES and bool(record["payload"])) or kind in ITEMS


def _is_own(block: Block) -> bool:
    return isinstance(block, Text) and block.text.lstrip().startswith(OWN_WORDS)


def _summary(record: Json) -> str:
    if (text := record["message"].text).strip():
        return text
    blocks = [block for item in record["replacement_history"] for block in blocks_of(item["content"], _block)]
    return words((block for block in blocks if not _is_own(block)), "\n\n")


def _used(record: Json) -> Usage:
    return Usage(
        record["input_tokens"].count,
        record["cached_input_tokens"].count,
        output_tokens=record["output_tokens"].count,
        reasoning_tokens=record["reasoning_output_tokens"].count,
    )


def _block(part: Json) -> Block | None:
    if part["type"].text == "input_image":
        return picture_at(part["image_url"].text)
    return Text(part["text"].text)


def _as_object(text: str) -> str:
    """The arguments of a call; a text that is no JSON object as one that holds it."""
    try:
        return Json(text).arguments
    except (ValueError, RecursionError):
        return _wrapped(text)


def _wrapped(text: str) -> str:
    return msgspec.json.encode({"input": valid_text(text)}).decode()
