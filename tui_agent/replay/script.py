"""Preparing a recording for replays: its calls in order, each with what arrived before it and what it needs.

What all policies share is computed once: the tokens of each message, and the exact names and numbers that it mentions.
A call needs those that its answer uses and that first occurred in an earlier tool result. Mentions are identified by
numbers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from tui_agent.context.compaction.extract import command_of
from tui_agent.context.compaction.facts import count_mentions, mentions
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.sizes import TextSize, size_of_block, size_of_text, size_of_tools
from tui_agent.conversation.states import NO_OUTPUT
from tui_agent.storage.recordings.recording import Recording
from tui_agent.system.lenient import object_in, strings_in

CHARS_PER_TOKEN = 2.9
"""ASCII characters per token in coding sessions; other characters count as 1.5 tokens each."""
IMAGE_TOKENS = 1_200
ASSUMED_FIXED = 8_000
"""Tokens of system prompt and tools if the recording does not have them."""
ASSUMED_GAP_S, ASSUMED_PAUSE_S = 20.0, 600.0
ASSUMED_COLD_SHARE = 0.03
"""If the recording has no times: the share of calls, each after a user message, before which a pause is assumed that is
so long (`ASSUMED_PAUSE_S`) that the cache has expired; between other calls pass `ASSUMED_GAP_S` seconds."""
SHORTEST_COMMAND = 8
"""Characters of the shortest command whose survival is counted."""
PAGING_TOOLS = frozenset(("read_file", "recall"))
"""Tools of this program whose results are pages of limited size."""


@dataclass(frozen=True, slots=True)
class MeasuredSizes:
    """Sizes derived from a recording's usage: tokens of system prompt and tools, `Script.factor`, tokens of each block.

    `surprises` gives for a call, by its answer's number in the log, how many tokens its new content had more than the
    factor predicts.
    """

    fixed: int
    factor: float
    sizes: Mapping[Block, int] = field(default_factory=dict)
    surprises: Mapping[int, int] = field(default_factory=dict)

    @property
    def chars_per_token(self) -> float:
        return CHARS_PER_TOKEN / self.factor


@dataclass(frozen=True, slots=True, eq=False)
class RecordedMessage:
    """A recorded user message, answer or tool result. `index` numbers them from 0.

    `mentions` are those in its `text` that some call needs. `call` is the call of a result; `is_page`: it is one page
    of a larger text, limited by its tool.
    """

    index: int
    message: Message
    tokens: int
    text: str
    mentions: frozenset[int]
    call: ToolCall | None = None
    is_page: bool = False

    @property
    def is_result(self) -> bool:
        return self.call is not None


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """One call of the model: what arrived since the last one, the answer, and its time in seconds.

    `output` is the tokens of the answer, including reasoning; `needed` are mentions, `again` the commands that it runs
    and an earlier call ran. `starts_turn`: a user message arrived.
    """

    number: int
    arrived: tuple[RecordedMessage, ...]
    answer: RecordedMessage
    output: int
    time: float
    needed: frozenset[int]
    starts_turn: bool
    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """All calls. `fixed` is the size of system prompt and tools in tokens, `assumed` lists what is not recorded.

    `factor` is the ratio of counted tokens to those that `CHARS_PER_TOKEN` gives, except for pictures; `sizes` are the
    tokens of blocks that are known more exactly. `numbers` are the mentions that some call needs; `sources` are the
    results that contain each, oldest first.
    """

    calls: tuple[RecordedCall, ...]
    prefix: Prefix
    fixed: int
    assumed: tuple[str, ...]
    factor: float = 1.0
    sizes: Mapping[Block, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    sources: dict[int, tuple[RecordedMessage, ...]] = field(default_factory=dict)
    _in_blocks: dict[Block, frozenset[int]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(message.tokens for call in self.calls for message in (*call.arrived, call.answer))

    def tokens_of(self, block: Block) -> int:
        known = self.sizes.get(block)
        return block_tokens((block,), self.factor) if known is None else known

    def mentions_in(self, text: str) -> frozenset[int]:
        """The needed mentions in a text that is not in the recording, such as a summary."""
        return frozenset(self.numbers[each] for each in mentions(text) if each in self.numbers)

    @property
    def kinds(self) -> dict[int, str]:
        """What each needed mention is: a path, a name, a number, …"""
        return {
            number: next((fact.kind for fact in count_mentions(text)), "name") for text, number in self.numbers.items()
        }

    def mentions_of(self, block: Block) -> frozenset[int]:
        """The needed mentions in a recorded block."""
        known = self._in_blocks.get(block)
        if known is None:
            known = self._in_blocks[block] = self.mentions_in(text_of((block,)))
        return known


def tokens_of(size: TextSize, factor: float = 1.0) -> int:
    """The tokens of a size, as billed for every policy; `factor` is that of `Script`."""
    text = (size.ascii / CHARS_PER_TOKEN + size.other * 1.5) * factor
    return math.ceil(text) + round(size.images * IMAGE_TOKENS)


def text_tokens(*texts: str, factor: float = 1.0) -> int:
    return tokens_of(size_of_text(*texts), factor)


def block_tokens(blocks: Iterable[Block], factor: float = 1.0) -> int:
    """The sum of the tokens of these blocks, each counted alone."""
    return sum(tokens_of(size_of_block(block), factor) for block in blocks)


def make_script(recording: Recording, measured: MeasuredSizes | None = None) -> Script:
    """The script of a recording, with the sizes `measured` in it; if None, with estimated sizes."""
    factor, sizes = (measured.factor, measured.sizes) if measured else (1.0, dict[Block, int]())
    messages = [_without_reasoning(message) for message in recording.messages]
    texts = [text_of(message.blocks) for message in messages]
    used = set().union(
        *(mentions(text) for text, message in zip(texts, messages, strict=True) if message.role == "assistant")
    )
    found = [mentions(text) & used for text in texts]
    needs, numbers = _needs(messages, found)
    calls, ours = _calls_answered(messages), recording.format == "session"
    recorded = [
        RecordedMessage(
            index,
            message,
            sum(sizes.get(block) or block_tokens((block,), factor) for block in map(_sent, message.blocks)),
            text,
            frozenset(numbers[name] for name in names if name in numbers),
            call,
            is_page=ours and call is not None and call.name in PAGING_TOOLS,
        )
        for index, (message, text, names, call) in enumerate(zip(messages, texts, found, calls, strict=True))
    ]
    sources: dict[int, list[RecordedMessage]] = {}
    for message in recorded:
        if message.is_result:
            for mention in message.mentions:
                sources.setdefault(mention, []).append(message)
    prefix, fixed, assumed = _prefix(recording, measured)
    if not recording.timed:
        cold = f"{ASSUMED_COLD_SHARE:.0%} of the calls after a pause of {ASSUMED_PAUSE_S / 60:.0f} minutes"
        assumed = (*assumed, f"no times recorded: {ASSUMED_GAP_S:.0f} s between calls, {cold}")
    # As recorded, else estimated; reasoning is billed as output.
    outputs = [
        (message.usage.output_tokens if message.usage is not None else 0) or block_tokens(_as_texts(message), factor)
        for message in recording.messages
    ]
    return Script(
        calls=tuple(_model_calls(recorded, outputs, needs, recording.timed)),
        prefix=prefix,
        fixed=fixed,
        assumed=assumed,
        factor=factor,
        sizes=sizes,
        numbers=numbers,
        sources={mention: tuple(results) for mention, results in sources.items()},
    )


def _without_reasoning(message: Message) -> Message:
    """The message without its reasoning, which is billed as output but not kept in the prompt."""
    if not any(isinstance(block, Reasoning) for block in message.blocks):
        return message
    kept = tuple(block for block in message.blocks if not isinstance(block, Reasoning))
    return msgspec.structs.replace(message, blocks=kept or (Text("(thinking)"),))


def _sent(block: Block) -> Block:
    """The block as a client sends it: not every provider accepts a result without a text."""
    empty = isinstance(block, ToolResult) and not block.text.strip() and not block.images
    return msgspec.structs.replace(block, text=NO_OUTPUT) if empty else block


def _as_texts(message: Message) -> Iterator[Block]:
    return (Text(block.text) if isinstance(block, Reasoning) else block for block in message.blocks)


def text_of(blocks: Iterable[Block]) -> str:
    """The blocks as one text; for calls, the name and the strings in the arguments."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case Text() | ToolResult():
                parts.append(block.text)
            case ToolCall():
                parts += [block.name, *strings_in(block.arguments)]
            case Reasoning() | Image():
                pass
    return "\n".join(parts)


def commands_of(*calls: ToolCall) -> Iterator[str]:
    """The shell commands that these calls run; not the shortest, such as ``ls``."""
    commands = (command_of(object_in(call.arguments)) for call in calls)
    return (command for command in commands if len(command) >= SHORTEST_COMMAND)


def _needs(messages: list[Message], found: list[set[str]]) -> tuple[list[frozenset[int]], dict[str, int]]:
    """The mentions that each message needs, and the numbers of all needed mentions."""
    first_in_result: dict[str, bool] = {}
    numbers: dict[str, int] = {}
    needs: list[frozenset[int]] = []
    for message, names in zip(messages, found, strict=True):
        if message.role == "assistant":
            wanted = sorted(name for name in names if first_in_result.get(name))
            needs.append(frozenset(numbers.setdefault(name, len(numbers)) for name in wanted))
        else:
            needs.append(frozenset())
        for name in names:
            first_in_result.setdefault(name, message.kind == "tool_result")
    return needs, numbers


def _calls_answered(messages: list[Message]) -> list[ToolCall | None]:
    """For each message the call that it answers; None if it is not a result."""
    calls: dict[str, ToolCall] = {}
    answered: list[ToolCall | None] = []
    for message in messages:
        calls.update({block.id: block for block in message.blocks if isinstance(block, ToolCall)})
        results = [block for block in message.blocks if isinstance(block, ToolResult) and message.kind == "tool_result"]
        answered.append(calls.get(results[0].call_id) if results else None)
    return answered


def _prefix(recording: Recording, measured: MeasuredSizes | None) -> tuple[Prefix, int, tuple[str, ...]]:
    if recording.prefix is not None:
        size = size_of_text(recording.prefix.system).plus(size_of_tools(recording.prefix.tools))
        fixed = measured.fixed if measured else tokens_of(size)
        return Prefix(system=recording.prefix.system, tools=recording.prefix.tools), fixed, ()
    fixed = measured.fixed if measured else ASSUMED_FIXED
    schema = "x" * round(fixed * CHARS_PER_TOKEN / (measured.factor if measured else 1.0))
    prefix = Prefix(system="", tools=(ToolDefinition("tools", "", schema),))
    assumed = () if measured else (f"no system prompt recorded: {fixed:,} tokens of it and of tools",)
    return prefix, fixed, assumed


def _model_calls(
    messages: list[RecordedMessage], outputs: list[int], needs: list[frozenset[int]], timed: bool
) -> Iterator[RecordedCall]:
    arrived: list[RecordedMessage] = []
    number, clock, due = 0, 0.0, 0.0
    ran: set[str] = set()
    for message in messages:
        if message.message.role != "assistant":
            arrived.append(message)
            continue
        number += 1
        starts_turn = any(not each.is_result and each.message.kind != "notice" for each in arrived)
        if timed:
            clock = max([clock, *(each.message.time for each in arrived)]) if arrived else message.message.time
        else:
            clock += ASSUMED_GAP_S
            due += ASSUMED_COLD_SHARE
            if starts_turn and number > 1 and due >= 1:
                clock, due = clock + ASSUMED_PAUSE_S, due - 1
        ran_here = [block for block in message.message.blocks if isinstance(block, ToolCall)]
        commands = tuple(dict.fromkeys(commands_of(*ran_here)))
        again = tuple(command for command in commands if command in ran)
        ran.update(commands)
        output = outputs[message.index]
        yield RecordedCall(number, tuple(arrived), message, output, clock, needs[message.index], starts_turn, again)
        arrived = []
