"""Sessions of opencode, as `opencode export` writes them: one JSON document with `info` and `messages`.

The form is that of the types in its SDK. A message has parts; an answer's are one or more steps, each a call of a model
that ends with a `step-finish`, whose tokens count what was read from the cache, what was written to it and what was
thought beside `input` and `output`. A tool's part holds its call and its result. A summary is an answer with `summary`,
to a message of the user's with a part `compaction`. What stands after `revert` was taken back. A result that was
cleared has the time of that (`compacted`) beside its own.
"""

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall
from tui_agent.conversation.entries import Outcome, Usage
from tui_agent.storage.recordings.fields import Json, blocks_of, picture_at, words
from tui_agent.storage.recordings.recording import (
    CLEARED,
    UNUSABLE,
    ConversationBuilder,
    RecordingReader,
    usage_of_uncached,
)

_MILLISECONDS = 1000


class _Document(msgspec.Struct):
    info: msgspec.Raw
    messages: list[msgspec.Raw]


class OpencodeReader(RecordingReader):
    """Reads an exported session of opencode into a conversation."""

    def __init__(self, builder: ConversationBuilder) -> None:
        super().__init__(builder)
        self._places: dict[str, int] = {}
        self._kept = ""
        """The message with which what a summary keeps begins; empty: it keeps nothing."""
        self._reverted = ""
        self._cleared: dict[str, float] = {}
        """When each result, by its call, was or will be cleared."""

    @override
    def take(self, number: int, line: bytes) -> None:
        document = msgspec.json.decode(line, type=_Document)
        self._reverted = Json.decode(document.info)["revert"]["messageID"].text
        self.builder.each(document.messages, self._message)

    def _message(self, number: int, message: Json) -> None:
        info, builder = message["info"], self.builder
        name, time = info["id"].text, info["time"]["created"].seconds / _MILLISECONDS
        if self.left or (name and name == self._reverted):
            self.left += 1
            return
        if due := [call for call, cleared in self._cleared.items() if cleared <= time]:
            builder.clearing(due, CLEARED, time)
            self._cleared = {call: cleared for call, cleared in self._cleared.items() if call not in due}
        match info["role"].text:
            case "user":
                compactions = [part for part in message["parts"] if part["type"].text == "compaction"]
                blocks = self._said(number, message["parts"])
                if compactions:
                    self._kept = compactions[0]["tail_start_id"].text
                elif blocks:
                    builder.user(number, blocks, time)
            case "assistant" if info["summary"].value is True:
                text, usage = words(self._said(number, message["parts"])), _used(info["tokens"])
                builder.compaction(number, text, time, usage=usage, kept=self._places.get(self._kept, -1))
            case "assistant":
                self._answer(number, info, list(message["parts"]), time)
            case role:
                builder.problem(number, f"unknown role {role[:40]!r}")
        self._places[name] = builder.place

    def _answer(self, number: int, info: Json, parts: list[Json], time: float) -> None:
        finishes = any(part["type"].text == "step-finish" for part in parts)
        step: list[Json] = []
        for part in [*parts, Json({"type": "step-finish", "tokens": None if finishes else info["tokens"].value})]:
            if part["type"].text != "step-finish":
                call = part["callID"].text
                if call and isinstance(part.value, dict) and any(each["callID"].text == call for each in step):
                    # Programs that redact sessions write the same word for every id.
                    part = Json(part.value | {"callID": f"{call}+{len(step)}"})
                step.append(part)
                continue
            usage = self.builder.usage(number, part["tokens"], _used)
            self.builder.answer(number, self._said(number, step), time, model=info["modelID"].text, usage=usage)
            for each in step:
                if each["type"].text == "tool" and each["state"]["status"].text in ("completed", "error"):
                    self._result(number, each["callID"].text, each["state"], time)
            step = []

    def _result(self, number: int, call: str, state: Json, time: float) -> None:
        failed = state["status"].text == "error"
        start, end = state["time"]["start"].seconds, state["time"]["end"].seconds
        if cleared := state["time"]["compacted"].seconds:
            self._cleared[call] = cleared / _MILLISECONDS
        self.builder.result(
            number,
            call,
            [Text(state["error" if failed else "output"].text), *blocks_of(state["attachments"], _block)],
            end / _MILLISECONDS or time,
            is_error=failed,
            outcome=Outcome(exit_code=state["metadata"].loose["exit"].exit_code),
            duration_ms=max(0, round(end - start)),
        )

    def _said(self, number: int, parts: Json | list[Json]) -> list[Block]:
        def read(part: Json) -> Block | None:
            try:
                return _block(part)
            except UNUSABLE as error:
                self.builder.problem(number, f"a part of it: {error}")
                return None

        return blocks_of(parts if isinstance(parts, Json) else Json([part.value for part in parts]), read)


def _used(tokens: Json) -> Usage:
    cache, reasoning = tokens["cache"], tokens["reasoning"].count
    output = tokens["output"].count + reasoning
    return usage_of_uncached(tokens["input"].count, cache["read"].count, cache["write"].count, output, reasoning)


def _block(part: Json) -> Block | None:
    match part["type"].text:
        case "text" if not part["ignored"].flag:
            return Text(part["text"].text)
        case "reasoning":
            return Reasoning(part["text"].text)
        case "tool":
            return ToolCall(part["callID"].text, part["tool"].text, part["state"]["input"].arguments)
        case "file" if part["mime"].text.startswith("image/"):
            return picture_at(part["url"].text)
        case _:
            return None
