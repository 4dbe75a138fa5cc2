"""A recording prepared for replaying: its calls in order, each with what arrived before it and what it needs.

What every policy shares is worked out once: how many tokens each piece takes, and which exact names and numbers it
mentions. A call needs those that its answer uses and that were first seen in an earlier tool result.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from tui_agent.context.summary.facts import mentions
from tui_agent.context.summary.rendering import strings_in
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.sizes import Size, size_of_block, size_of_text, size_of_tools
from tui_agent.replay.recording import Recording

CHARS_PER_TOKEN = 2.9
"""ASCII characters a token stands for in coding sessions; other characters count 1.5 tokens each."""
IMAGE_TOKENS = 1_200
ASSUMED_FIXED = 8_000
"""Tokens of system prompt and tools where the recording keeps none."""
ASSUMED_GAP_S, ASSUMED_PAUSE_S = 20.0, 600.0
ASSUMED_COLD_SHARE = 0.03
"""Where the recording keeps no times: seconds between calls, and the share of calls, each after a word of the user's,
before which so long a pause is made that the cache has run out."""


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """One piece of the conversation as recorded: the user's words, an answer, or one tool's result.

    `facts` are the numbers of those mentions in it that some call needs. `index` counts pieces from 0.
    """

    index: int
    message: Message
    tokens: int
    text: str
    facts: frozenset[int]
    call: ToolCall | None = None

    @property
    def is_result(self) -> bool:
        return self.call is not None


@dataclass(frozen=True, slots=True, eq=False)
class ModelCall:
    """One call: what arrived since the last one, the answer, and when it was sent (seconds).

    `output` is what the answer took, reasoning included; `needed` are mentions. `starts_turn`: the user has spoken.
    """

    number: int
    arrived: tuple[Said, ...]
    answer: Said
    output: int
    time: float
    needed: frozenset[int]
    starts_turn: bool


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """All calls. `sources` says which results hold a mention, oldest first; `names` what it is."""

    calls: tuple[ModelCall, ...]
    prefix: Prefix
    fixed: int
    assumed: tuple[str, ...]
    numbers: dict[str, int] = field(default_factory=dict)
    sources: dict[int, tuple[Said, ...]] = field(default_factory=dict)
    _blocks: dict[Block, frozenset[int]] = field(default_factory=dict)

    def facts_in(self, text: str) -> frozenset[int]:
        """The needed mentions in a text that is not of the recording, such as a summary."""
        return frozenset(self.numbers[each] for each in mentions(text) if each in self.numbers)

    def facts_of(self, block: Block) -> frozenset[int]:
        """The needed mentions in a block of the recording."""
        known = self._blocks.get(block)
        if known is None:
            known = self._blocks[block] = self.facts_in(spoken_text((block,)))
        return known


def tokens_of(size: Size) -> int:
    """The tokens of a raw size, as every policy is billed."""
    return math.ceil(size.ascii / CHARS_PER_TOKEN + size.other * 1.5) + round(size.images * IMAGE_TOKENS)


def text_tokens(text: str) -> int:
    """The tokens of a text."""
    return tokens_of(size_of_text(text))


def spoken_text(blocks: Iterable[Block]) -> str:
    """What is said in the blocks as one text: calls as their name and the texts of their arguments."""
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


def prepare(recording: Recording) -> Script:
    """The script of a recording."""
    messages = [_without_reasoning(message) for message in recording.messages]
    thought = [_reasoning_tokens(message) for message in recording.messages]
    texts = [spoken_text(message.blocks) for message in messages]
    used = set().union(*(mentions(text) for text, message in zip(texts, messages, strict=True) if _is_answer(message)))
    found = [mentions(text) & used for text in texts]
    needs, numbers = _needs(messages, found)
    pieces, calls_by_id = [], _calls_by_id(messages)
    for index, (message, text, names) in enumerate(zip(messages, texts, found, strict=True)):
        facts = frozenset(numbers[name] for name in names if name in numbers)
        tokens = sum(tokens_of(size_of_block(block)) for block in message.blocks)
        pieces.append(Said(index, message, tokens, text, facts, _call_of(message, calls_by_id)))
    sources: dict[int, list[Said]] = {}
    for piece in pieces:
        if piece.is_result:
            for fact in piece.facts:
                sources.setdefault(fact, []).append(piece)
    prefix, fixed, assumed = _prefix(recording)
    calls = tuple(_calls(pieces, thought, needs, recording.timed))
    if not recording.timed:
        cold = f"{ASSUMED_COLD_SHARE:.0%} of the calls after a pause of {ASSUMED_PAUSE_S / 60:.0f} minutes"
        assumed = (*assumed, f"no times recorded: {ASSUMED_GAP_S:.0f} s between calls, {cold}")
    return Script(calls, prefix, fixed, assumed, numbers, {fact: tuple(said) for fact, said in sources.items()})


def _is_answer(message: Message) -> bool:
    return message.role == "assistant"


def _without_reasoning(message: Message) -> Message:
    """The message without its reasoning, which is billed as output and never carried."""
    if not any(isinstance(block, Reasoning) for block in message.blocks):
        return message
    kept = tuple(block for block in message.blocks if not isinstance(block, Reasoning))
    return msgspec.structs.replace(message, blocks=kept or (Text("(thinking)"),))


def _reasoning_tokens(message: Message) -> int:
    if message.usage is not None and message.usage.reasoning_tokens:
        return message.usage.reasoning_tokens
    return sum(tokens_of(size_of_text(block.text)) for block in message.blocks if isinstance(block, Reasoning))


def _needs(messages: list[Message], found: list[set[str]]) -> tuple[list[frozenset[int]], dict[str, int]]:
    """What each message needs, and the numbers of all mentions that some message needs."""
    first_in_result: dict[str, bool] = {}
    numbers: dict[str, int] = {}
    needs: list[frozenset[int]] = []
    for message, names in zip(messages, found, strict=True):
        if _is_answer(message):
            wanted = sorted(name for name in names if first_in_result.get(name))
            needs.append(frozenset(numbers.setdefault(name, len(numbers)) for name in wanted))
        else:
            needs.append(frozenset())
        for name in names:
            first_in_result.setdefault(name, message.kind == "tool_result")
    return needs, numbers


def _calls_by_id(messages: list[Message]) -> dict[int, ToolCall]:
    """The call each result answers, by the index of the result."""
    open_calls: dict[str, ToolCall] = {}
    found: dict[int, ToolCall] = {}
    for index, message in enumerate(messages):
        for block in message.blocks:
            if isinstance(block, ToolCall):
                open_calls[block.id] = block
            elif isinstance(block, ToolResult) and block.call_id in open_calls:
                found[index] = open_calls[block.call_id]
    return {id(messages[index]): call for index, call in found.items()}


def _call_of(message: Message, calls: dict[int, ToolCall]) -> ToolCall | None:
    return calls.get(id(message)) if message.kind == "tool_result" else None


def _prefix(recording: Recording) -> tuple[Prefix, int, tuple[str, ...]]:
    if recording.prefix is not None:
        size = size_of_text(recording.prefix.system).plus(size_of_tools(recording.prefix.tools))
        return Prefix(system=recording.prefix.system, tools=recording.prefix.tools), tokens_of(size), ()
    schema = "x" * round(ASSUMED_FIXED * CHARS_PER_TOKEN)
    prefix = Prefix(system="", tools=(ToolDefinition("tools", "", schema),))
    return prefix, ASSUMED_FIXED, (f"no system prompt recorded: {ASSUMED_FIXED:,} tokens of it and of tools",)


def _calls(pieces: list[Said], thought: list[int], needs: list[frozenset[int]], timed: bool) -> Iterator[ModelCall]:
    arrived: list[Said] = []
    number, clock, due = 0, 0.0, 0.0
    for piece in pieces:
        if not _is_answer(piece.message):
            arrived.append(piece)
            continue
        number += 1
        starts_turn = any(not each.is_result for each in arrived)
        if timed:
            clock = max([clock, *(each.message.time for each in arrived)]) if arrived else piece.message.time
        else:
            clock += ASSUMED_GAP_S
            due += ASSUMED_COLD_SHARE
            if starts_turn and number > 1 and due >= 1:
                clock, due = clock + ASSUMED_PAUSE_S, due - 1
        output = piece.tokens + thought[piece.index]
        yield ModelCall(number, tuple(arrived), piece, output, clock, needs[piece.index], starts_turn)
        arrived = []
