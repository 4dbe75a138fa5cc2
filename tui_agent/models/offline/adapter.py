"""The offline model: it needs no key and no network, but calls the real tools.

Its answer depends only on the request, so equal requests get equal answers. Its window is small on purpose, to
demonstrate context management.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import FREE, ModelProfile, Prices
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.sizes import TextSize, size_of_block, size_of_text, size_of_tools
from tui_agent.models.base import (
    Completed,
    ContextOverflow,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from tui_agent.models.offline import configured_delay
from tui_agent.models.offline.answers import Done, answer, plan_text
from tui_agent.models.offline.commands import OfflineCommand, Step, parse
from tui_agent.models.offline.summaries import before_asking, is_note, left_to_do, requested, summarise
from tui_agent.regex import regex

WINDOW: Final = 32_768
DEMO: Final = "demo"
"""The id of the demonstration's model."""
DEMO_PRICES: Final = Prices(4.0, 20.0, cache_read=0.2, cache_write=5.0)
"""Those of Claude Opus 5.5 (platform.claude.com, pricing)."""

_TOKENS_PER_ASCII = 0.33
_TOKENS_PER_OTHER = 1.5
_TOKENS_PER_IMAGE = 1_500
_MAX_OUTPUT = 8_192
_CHUNK = regex(r"\s*\S{1,24}\s?\S{0,8}", re.DOTALL)
_DATA = regex(r"\n\n<(standard_input\w*)>\n.*\n</\1>", re.DOTALL)
"""Data that was piped in with a prompt, which must not be read as commands."""
_INTERRUPTED = "[interrupted"
_CONTINUE = regex(r"\s*(?:please )?(?:continue|go on|carry on|resume)\b.{0,20}\s*", re.IGNORECASE)


class OfflineModel:
    """A deterministic model that understands simple commands.

    `delay_s`: seconds before each streamed piece (default: `TUI_AGENT_OFFLINE_DELAY_S`, else 0). `window`: in tokens,
    counted as 0.33 for each ASCII character and 1.5 for each other. It has no cache, so its usage reports none.

    `priced`: it is the demonstration's model, which reports a cache and prices as Claude Opus 5.5 has them.
    """

    def __init__(self, *, delay_s: float | None = None, window: int = WINDOW, priced: bool = False) -> None:
        self._delay_s = configured_delay() if delay_s is None else delay_s
        self._profile = ModelProfile(
            provider="offline",
            id=DEMO if priced else "offline",
            window=window,
            max_output=_MAX_OUTPUT,
            prices=DEMO_PRICES if priced else FREE,
            cache="marked" if priced else "none",
            images=False,
            source="provider",
        )
        self._cached: Sequence[RequestMessage] | None = None
        self._cached_at = 0.0

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def describe(self) -> ModelProfile:
        """Return the profile, which never changes."""
        return self._profile

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Answer in small pieces. Raises `ContextOverflow` if the request is larger than the window."""
        size = tokens_in(request)
        if size > self._profile.window:
            raise ContextOverflow(
                f"The request has about {size:,} tokens; the offline model's window holds {self._profile.window:,}.",
                tokens=size,
                limit=self._profile.window,
            )
        blocks, stop_reason = _cut(_reply(request), request.max_tokens or _MAX_OUTPUT)
        call_index = 0
        for block in blocks:
            if isinstance(block, ToolCall):
                await asyncio.sleep(self._delay_s)
                yield ToolCallDelta(call_index, block.name, len(block.arguments))
                call_index += 1
                continue
            for piece in _pieces(block):
                await asyncio.sleep(self._delay_s)
                yield piece
        yield Completed(blocks, self._usage(request, size, blocks), stop_reason, self._profile.id)

    def _usage(self, request: ModelRequest, size: int, blocks: Sequence[Block]) -> Usage:
        usage = _usage(size, blocks)
        if self._profile.cache == "none":
            return usage
        before, now = self._cached, time.monotonic()
        if before is None:  # the session goes on: all before its newest message was sent a moment ago
            before = request.messages[:-1]
        elif now - self._cached_at > self._profile.cache_ttl_s:
            before = ()
        self._cached, self._cached_at = request.messages, now
        pairs = zip(before, request.messages, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        read = tokens_in(msgspec.structs.replace(request, messages=request.messages[:same])) if before else 0
        return msgspec.structs.replace(usage, cache_read_tokens=read, cache_write_tokens=size - read)


def tokens_in(request: ModelRequest) -> int:
    """The whole prompt's size in tokens, by this model's count."""
    size = size_of_text(request.system).plus(size_of_tools(request.tools))
    for message in request.messages:
        for block in message.blocks:
            size = size.plus(size_of_block(block))
    return _tokens(size)


_Results: TypeAlias = dict[tuple[str, str], list[ToolResult]]
"""Results by their calls' tool and arguments."""


class _Turn(msgspec.Struct, frozen=True):
    """The steps that the request asks for, and the results so far."""

    steps: tuple[Step, ...]
    results: _Results

    def done(self) -> tuple[tuple[Done, ...], ...]:
        """The commands of each step, each with its result; without one, it has not run or needs no tool."""
        waiting = {key: list(results) for key, results in self.results.items()}

        def result_of(command: OfflineCommand) -> ToolResult | None:
            results = waiting.get((command.tool, command.arguments)) if command.tool else None
            return results.pop(0) if results else None

        return tuple(tuple(Done(command, result_of(command)) for command in step) for step in self.steps)

    def left(self) -> list[tuple[OfflineCommand, ...]]:
        """The commands of each unfinished step that have not run yet."""
        left = [tuple(one.command for one in step if one.command.tool and one.result is None) for step in self.done()]
        return [step for step in left if step]


def _reply(request: ModelRequest) -> tuple[tuple[Block, ...], StopReason]:
    asked = requested(request.system, request.messages)
    if asked.sections:
        left = _turn(before_asking(request.messages), request.tools).left()
        remaining = [command for step in left for command in step]
        return (Text(summarise(asked, request.messages, remaining)),), "end_turn"
    turn = _turn(request.messages, request.tools)
    left, total = turn.left(), sum(len(step) for step in turn.steps)
    if not left:
        thought = (
            f"The request has {total} plain command{'s' if total != 1 else ''}; all are done. I report what came back."
        )
        if not total:
            thought = "The request holds no plain command, so all I can say is what I am."
        return (Reasoning(thought), Text(answer([one for step in turn.done() for one in step]))), "end_turn"
    to_do, plan = sum(map(len, left)), plan_text(left[0])
    thought = f"Plain commands in the request: {total}, still to do: {to_do}. Next: {plan}"
    identity = blake2b(msgspec.json.encode((request.system, request.messages)), digest_size=6).hexdigest()
    calls = (
        ToolCall(f"call_{identity}_{index}", command.tool, command.arguments) for index, command in enumerate(left[0])
    )
    return (Reasoning(thought), Text(plan), *calls), "tool_calls"


def _turn(messages: Sequence[RequestMessage], tools: Sequence[ToolDefinition]) -> _Turn:
    """What the user asked for since the last finished answer, and the results of the calls since.

    If the user interrupted the work, only what they say afterwards counts; "continue" repeats the interrupted calls and
    does the rest.
    """
    texts: list[str] = []
    calls: dict[str, tuple[str, str]] = {}
    results: _Results = {}
    stopped: list[tuple[str, str]] = []
    was_stopped = False
    for message in messages:
        if message.role == "assistant":
            made = {block.id: (block.name, block.arguments) for block in message.blocks if isinstance(block, ToolCall)}
            if not made:
                texts, results, stopped, was_stopped = [], {}, [], False
            calls |= made
            continue
        for block in message.blocks:
            if isinstance(block, ToolResult) and (call := calls.get(block.call_id)):
                results.setdefault(call, []).append(block)
                if block.is_error and f"\n{_INTERRUPTED}" in f"\n{block.text}":
                    stopped.append(call)
            elif isinstance(block, Text) and not block.text.startswith(_INTERRUPTED):
                if (was_stopped or stopped) and not _CONTINUE.fullmatch(block.text):
                    texts, results = [], {}
                elif stopped:
                    results = {key: found for key, found in results.items() if key not in stopped}
                stopped, was_stopped = [], False
                texts.append(block.text)
            else:
                was_stopped = was_stopped or isinstance(block, Text)
    return _Turn(tuple(step for text in texts for step in _steps(text, tools)), results)


def _steps(text: str, tools: Sequence[ToolDefinition]) -> tuple[Step, ...]:
    """The steps a user's text asks for; of a summary or other note by the program, only those listed as left to do."""
    return left_to_do(text) if is_note(text) else parse(_DATA.sub("", text), tools)


def _cut(reply: tuple[tuple[Block, ...], StopReason], max_tokens: int) -> tuple[tuple[Block, ...], StopReason]:
    """The reply, cut to the output limit; calls that do not fit are dropped."""
    blocks, stop_reason = reply
    kept: list[Block] = []
    left = max_tokens
    for block in blocks:
        size = _tokens(size_of_block(block))
        if size <= left:
            kept.append(block)
            left -= size
            continue
        if isinstance(block, Text | Reasoning) and (text := _shortened(block.text, left)):
            kept.append(msgspec.structs.replace(block, text=text))
        return tuple(kept), "max_tokens"
    return tuple(kept), stop_reason


def _shortened(text: str, tokens: int) -> str:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _tokens(size_of_text(text[:middle])) <= tokens else (low, middle - 1)
    return text[:low]


def _pieces(block: Block) -> Iterator[StreamEvent]:
    if isinstance(block, Text | Reasoning):
        make = TextDelta if isinstance(block, Text) else ReasoningDelta
        start = 0
        for match in _CHUNK.finditer(block.text):
            yield make(block.text[start : match.end()])
            start = match.end()
        if start < len(block.text):
            yield make(block.text[start:])


def _usage(input_tokens: int, blocks: Sequence[Block]) -> Usage:
    sizes = [(block, _tokens(size_of_block(block))) for block in blocks]
    return Usage(
        input_tokens=input_tokens,
        output_tokens=sum(size for _, size in sizes),
        reasoning_tokens=sum(size for block, size in sizes if isinstance(block, Reasoning)),
    )


def _tokens(size: TextSize) -> int:
    return round(size.ascii * _TOKENS_PER_ASCII + size.other * _TOKENS_PER_OTHER) + round(
        size.images * _TOKENS_PER_IMAGE
    )
