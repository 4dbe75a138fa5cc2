"""Session files of codex ("rollouts"): JSON lines with a `type` and a `payload`.

The format is not documented by its maker; this reads what its files hold: `response_item` lines are what was said to
the model and by it, an item each; the items up to the first result or word of the user are one answer. `compacted`
lines hold a summary of all before, `turn_context` names the model, and of `event_msg` lines a `token_count` holds what
the newest call used, a `thread_rolled_back` how many turns were taken back. A `token_count` stands after the items of
its answer or, in files of 2025, before them; one that only tells new limits repeats the last. Files of its first year
have the items without the envelope. What codex tells the model of itself (rules, the folder, the sandbox) is left out:
it holds there alone. The output of a command is JSON with `metadata`, or begins with lines that say its exit code, how
long it took and how many lines there were before it was cut.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Outcome, Usage
from tui_agent.storage.recordings.recording import UNUSABLE, ConversationBuilder, Count, arguments, picture, seconds

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


class _Line(msgspec.Struct):
    type: str | None = None
    timestamp: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"")


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""
    image_url: str = ""


class _Item(msgspec.Struct):
    type: str = ""
    role: str = ""
    content: list[_Part] | str | None = None
    summary: list[_Part] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = ""
    input: str = ""
    action: msgspec.Raw = msgspec.Raw(b"{}")
    output: msgspec.Raw = msgspec.Raw(b'""')


class _Ended(msgspec.Struct):
    exit_code: int | None = None
    duration_seconds: float = 0.0


class _Output(msgspec.Struct):
    content: str | list[_Part] = ""
    output: str = ""
    success: bool | None = None
    metadata: _Ended = msgspec.field(default_factory=_Ended)


class _Compacted(msgspec.Struct):
    message: str = ""
    replacement_history: list[_Item] | None = None


class _Instructions(msgspec.Struct):
    text: str = ""


class _Context(msgspec.Struct):
    model: str = ""
    base_instructions: _Instructions | None = None


class _Tokens(msgspec.Struct):
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_output_tokens: Count = 0


class _Info(msgspec.Struct):
    last_token_usage: _Tokens | None = None
    total_token_usage: _Tokens | None = None


class _Event(msgspec.Struct):
    type: str = ""
    info: _Info | None = None
    num_turns: Count = 0


_line = msgspec.json.Decoder(_Line)
_item = msgspec.json.Decoder(_Item)
_output = msgspec.json.Decoder(str | list[_Part] | _Output)
_compacted = msgspec.json.Decoder(_Compacted)
_context = msgspec.json.Decoder(_Context)
_event = msgspec.json.Decoder(_Event)


def is_codex(line: bytes) -> bool:
    """Whether a usable line is one of codex."""
    record = _line.decode(line)
    return (record.type in ENVELOPES and bool(bytes(record.payload))) or record.type in ITEMS


class CodexReader:
    """Reads a session file of codex into a conversation."""

    def __init__(self, builder: ConversationBuilder) -> None:
        self._builder = builder
        self._model = ""
        self._answer = 0
        self._speaking = False
        """Whether the newest item is part of an answer, which the next one may be as well."""
        self._total: _Tokens | None = None
        self._early: Usage | None = None
        """What the answer used that comes next."""

    def take(self, number: int, line: bytes) -> None:
        """Read one line. Raises what is in `UNUSABLE`."""
        record, builder = _line.decode(line), self._builder
        time = seconds(record.timestamp)
        match record.type:
            case "response_item":
                self._item(number, _item.decode(record.payload), time)
            case "compacted":
                self._speaking = False
                builder.compaction(number, _summary(_compacted.decode(record.payload)), time)
            case "turn_context" | "session_meta":
                context = _context.decode(record.payload)
                rules = context.base_instructions
                self._model = context.model or self._model
                builder.system = builder.system or (valid_text(rules.text) if rules else "")
            case "event_msg":
                self._event(number, _event.decode(record.payload), time)
            case kind if kind in ITEMS:
                self._item(number, _item.decode(line), time)
            case _:
                pass

    def finish(self) -> int:
        """The lines that were left out as abandoned."""
        return 0

    def _item(self, number: int, item: _Item, time: float) -> None:
        call = item.call_id or item.id or ""
        match item.type:
            case "message" if item.role == "user":
                blocks = _blocks(item.content)
                words = [block for block in blocks if not _is_own(block)]
                if words or not blocks:
                    self._speaking, self._early = False, None
                    self._builder.user(number, words, time)
            case "message" if item.role == "assistant":
                self._say(number, _blocks(item.content), time)
            case "reasoning":
                text = "\n\n".join(part.text for part in item.summary or () if part.text.strip())
                self._say(number, [Reasoning(valid_text(text))] if text else [], time)
            case "function_call":
                self._say(number, [ToolCall(call, item.name, _as_object(item.arguments))], time)
            case "custom_tool_call":
                self._say(number, [ToolCall(call, item.name, _wrapped(item.input))], time)
            case "local_shell_call":
                self._say(number, [ToolCall(call, "local_shell", arguments(item.action))], time)
            case "function_call_output" | "custom_tool_call_output":
                self._speaking = False
                self._result(number, call, item.output, time)
            case _:
                pass  # what the provider did by itself, such as a search, has no result to pair it with

    def _say(self, number: int, blocks: list[Block], time: float, usage: Usage | None = None) -> None:
        if blocks or usage:
            self._answer += not self._speaking
            self._speaking = True
            answer_id, usage = str(self._answer), usage or self._early
            self._early = None
            self._builder.answer(number, blocks, time, answer_id=answer_id, model=self._model, usage=usage)

    def _result(self, number: int, call: str, record: msgspec.Raw, time: float) -> None:
        output = _output.decode(record)
        failed, ended, lines = False, _Ended(), 0
        if isinstance(output, _Output):
            failed, output = output.success is False, output.content or output.output
        blocks = _blocks(output)
        text = "\n".join(block.text for block in blocks if isinstance(block, Text))
        images = tuple(block for block in blocks if isinstance(block, Image))
        try:
            inner = _output.decode(text)
            ended = inner.metadata if isinstance(inner, _Output) else ended
        except UNUSABLE:
            head = text.partition("Output:\n")[0]
            exit_code, wall_time, total = (pattern.search(head) for pattern in _FACTS.values())
            ended = _Ended(int(exit_code[1]) if exit_code else None, float(wall_time[1]) if wall_time else 0.0)
            lines = int(total[1]) if total else 0
        self._builder.result(
            number,
            ToolResult(call, text, is_error=failed, images=images),
            time,
            outcome=Outcome(exit_code=ended.exit_code, line_count=lines),
            duration_ms=round(ended.duration_seconds * 1000),
        )

    def _event(self, number: int, event: _Event, time: float) -> None:
        if event.type == "thread_rolled_back":
            self._speaking = False
            self._builder.take_back(event.num_turns)
        elif event.info is not None and event.info.last_token_usage is not None:
            used, total = event.info.last_token_usage, event.info.total_token_usage
            if total is not None and total == self._total:
                return
            self._total = total
            usage = Usage(
                used.input_tokens,
                used.cached_input_tokens,
                output_tokens=used.output_tokens,
                reasoning_tokens=used.reasoning_output_tokens,
            )
            if self._speaking:
                self._say(number, [], time, usage)
            else:
                self._early = usage


def _is_own(block: Block) -> bool:
    """Whether a text is one that codex writes itself."""
    return isinstance(block, Text) and block.text.lstrip().startswith(OWN_WORDS)


def _summary(record: _Compacted) -> str:
    if record.message.strip():
        return valid_text(record.message)
    blocks = [block for item in record.replacement_history or () for block in _blocks(item.content)]
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text) and not _is_own(block))


def _blocks(content: list[_Part] | str | None) -> list[Block]:
    parts: Sequence[_Part] = [_Part("text", content)] if isinstance(content, str) else content or ()
    blocks: list[Block] = []
    for part in parts:
        if part.type == "input_image":
            kind, comma, data = part.image_url.removeprefix("data:").partition(";base64,")
            blocks.append(picture(kind, data) if comma else picture("", ""))
        elif part.text.strip():
            blocks.append(Text(valid_text(part.text)))
    return blocks


def _as_object(text: str) -> str:
    """The arguments of a call; a text that is no JSON object as one that holds it."""
    try:
        return arguments(msgspec.Raw(msgspec.json.encode(valid_text(text))))
    except (ValueError, RecursionError):
        return _wrapped(text)


def _wrapped(text: str) -> str:
    return msgspec.json.encode({"input": valid_text(text)}).decode()
