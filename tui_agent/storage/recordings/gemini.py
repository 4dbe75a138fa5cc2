"""Session files of Gemini CLI: one JSON document, or JSON lines since 2026.

The format is that of its `chatRecordingTypes.ts` and `chatRecordingService.ts`: messages of type `user` and `gemini`,
the calls of an answer with their results inside it, and the tokens of its call, of which `input` counts what was read
from the cache. In JSON lines a message is written again, whole, whenever it grows; `$rewindTo` takes back what follows
a message, and a `$set` with `messages` puts other ones in place of all. Messages of the types `info`, `error` and
`warning` were shown to the user alone.
"""

import re
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall
from tui_agent.conversation.entries import Outcome, Usage
from tui_agent.storage.recordings.fields import Json, blocks_of, picture, words
from tui_agent.storage.recordings.recording import UNUSABLE, ConversationBuilder, RecordingReader

_EXIT_CODE: Final = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)


class _Record(msgspec.Struct):
    """A line, or the document: a message has an `id` and a `type`."""

    id: str = ""
    type: str = ""
    messages: list[msgspec.Raw] | None = None
    set: "_Record | None" = msgspec.field(default=None, name="$set")
    rewind_to: str | None = msgspec.field(default=None, name="$rewindTo")


class GeminiReader(RecordingReader):
    def __init__(self, builder: ConversationBuilder) -> None:
        super().__init__(builder)
        self._messages: dict[str, tuple[int, Json]] = {}
        """The newest form of each message, by its id, with the number of its line."""

    @override
    def take(self, number: int, line: bytes) -> None:
        record = msgspec.json.decode(line, type=_Record)
        if record.rewind_to is not None:
            ids = list(self._messages)
            since = ids.index(record.rewind_to) if record.rewind_to in ids else 0
            for name in ids[since:]:
                del self._messages[name]
            self.left += len(ids) - since
        elif record.id and record.type:
            self._note(number, Json.decode(line))
        elif (messages := (record.set or record).messages) is not None:
            self._messages.clear()
            self.builder.each(messages, self._note)

    def _note(self, number: int, message: Json) -> None:
        self._messages[message["id"].text] = (number, message)

    @override
    def finish(self) -> None:
        for number, message in self._messages.values():
            try:
                self._add(number, message)
            except UNUSABLE as error:
                self.builder.problem(number, str(error))

    def _add(self, number: int, message: Json) -> None:
        time, content, builder = message["timestamp"].seconds, message["content"], self.builder
        if message["type"].text == "user":
            blocks = blocks_of(content, _block)
            if blocks or isinstance(content.value, str):
                builder.user(number, blocks, time)
        elif message["type"].text == "gemini":
            calls = message["toolCalls"]
            thoughts = (f"**{each['subject'].text}**\n{each['description'].text}" for each in message["thoughts"])
            blocks = [*map(Reasoning, thoughts), *blocks_of(content, _block)]
            blocks += [ToolCall(call["id"].text, call["name"].text, call["args"].arguments) for call in calls]
            usage = builder.usage(number, message["tokens"], _used)
            builder.answer(number, blocks, time, model=message["model"].text, usage=usage)
            for call in calls:
                if call["result"]:
                    self._result(number, call, time)

    def _result(self, number: int, call: Json, time: float) -> None:
        blocks = blocks_of(call["result"], _block)
        exit_code = _EXIT_CODE.search(words(blocks)) if call["name"].text == "run_shell_command" else None
        self.builder.result(
            number,
            call["id"].text,
            blocks,
            call["timestamp"].seconds or time,
            is_error=call["status"].text in ("error", "cancelled"),
            outcome=Outcome(exit_code=int(exit_code[1]) if exit_code else None),
        )


def _used(tokens: Json) -> Usage:
    given, thoughts = tokens["input"].count, tokens["thoughts"].count
    if not given:
        return Usage()
    output = tokens["output"].count + thoughts
    return Usage(given + tokens["tool"].count, tokens["cached"].count, 0, output, thoughts)


def _block(part: Json) -> Block:
    if inline := part["inlineData"]:
        return picture(inline["mimeType"].text, inline["data"].text)
    return Text(part["text"].text or _answered(part["functionResponse"]["response"]))


def _answered(response: Json) -> str:
    """What a function responded: its output or error; any other form as it stands."""
    said = response.loose["output"].text or response.loose["error"].text
    return said or (msgspec.json.encode(response.value).decode() if response else "")
