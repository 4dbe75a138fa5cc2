"""Putting a recording together message by message, so that it is one a model could have been sent."""

import msgspec

from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Message, tool_result
from tui_agent.replay.recording import Problem


class Gathering:
    """Messages in the order of a conversation. Owns what the lines read so far have said.

    The model's message stays open until something else is said: its results are held back, since a streamed answer may
    be recorded in several lines with the first results between them.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.problems: list[Problem] = []
        self.timed = False
        self.model = ""
        self._blocks: list[Block] = []
        self._results: list[Message] = []
        self._names: dict[str, str] = {}
        self._calls: dict[str, bool] = {}
        self._answer_id = ""
        self._answer_time = 0.0

    def problem(self, line: int, why: str) -> None:
        """This line is left out."""
        self.problems.append(Problem(line, why))

    def user(self, line: int, blocks: list[Block], time: float) -> None:
        """The user says something."""
        said = [block for block in blocks if not isinstance(block, Text) or block.text.strip()]
        if not said:
            self.problem(line, "a user's message without text")
            return
        self._close()
        self._seen(time)
        self.messages.append(Message(role="user", blocks=tuple(said), time=time))

    def answer(self, line: int, blocks: list[Block], time: float, *, answer_id: str = "", model: str = "") -> None:
        """The model says something; lines with the same `answer_id` (not empty) are one message."""
        self._seen(time)
        self.model = self.model or model
        if not (answer_id and answer_id == self._answer_id and self._blocks):
            self._close()
            self._answer_id, self._answer_time = answer_id, time
        for block in blocks:
            if isinstance(block, ToolCall):
                if self._in_open(self._names.get(block.id, "")):
                    self.problem(line, "a call that was already made")
                    continue
                block = self._named(block)
            self._blocks.append(block)

    def result(self, line: int, result: ToolResult, time: float) -> None:
        """A tool answers."""
        result = msgspec.structs.replace(result, call_id=self._names.get(result.call_id, result.call_id))
        answered = self._calls.get(result.call_id)
        if answered is None:
            self.problem(line, "a result of a call that was not made")
        elif answered:
            self.problem(line, "a second result of one call")
        elif not self._in_open(result.call_id):
            self.problem(line, "a result long after its call")
        else:
            self._calls[result.call_id] = True
            self._seen(time)
            self._results.append(_timed(tool_result(result), time))

    def finish(self) -> tuple[Message, ...]:
        """All messages; times that are missing are those of the message before."""
        self._close()
        if not self.timed:
            return tuple(self.messages)
        found, latest = [], next((message.time for message in self.messages if message.time), 0.0)
        for message in self.messages:
            latest = max(latest, message.time)
            found.append(_timed(message, latest))
        return tuple(found)

    def _named(self, call: ToolCall) -> ToolCall:
        """The call with an id that no earlier one has: some recordings count anew in each answer."""
        name, number = call.id, 1
        while name in self._calls:
            number += 1
            name = f"{call.id}#{number}"
        self._names[call.id] = name
        self._calls[name] = False
        return msgspec.structs.replace(call, id=name)

    def _in_open(self, call_id: str) -> bool:
        return any(isinstance(block, ToolCall) and block.id == call_id for block in self._blocks)

    def _close(self) -> None:
        spoken = [block for block in self._blocks if not isinstance(block, Text) or block.text.strip()]
        if spoken:
            self.messages.append(Message(role="assistant", blocks=tuple(spoken), time=self._answer_time))
            self.messages += self._results
        self._blocks, self._results, self._answer_id = [], [], ""

    def _seen(self, time: float) -> None:
        self.timed = self.timed or time > 0


def text_block(text: str) -> Text:
    """A text from outside as a block."""
    return Text(valid_text(text))


def _timed(message: Message, time: float) -> Message:
    return msgspec.structs.replace(message, time=time)
