"""Estimates a request's size from the previous request, whose tokens the server counted."""

from typing import NamedTuple

import msgspec

from tui_agent.conversation.request import ModelRequest


class Known(NamedTuple):
    """A request's size: `tokens` were counted with the previous request, `rest` are the bytes added since, without
    pictures.
    """

    tokens: int
    rest: int


DENSE_TOKENS_PER_BYTE = 0.4
"""Tokens per byte of a dense text (numbers, names, code), for an upper estimate of what no server has counted."""
PREFIX_TOKENS_PER_BYTE = 0.3
"""The same for a system prompt and tool definitions, which are prose and JSON: ours have 0.23 to 0.25 with the
tokenizers of Llama 2 and 3, Mistral, Qwen 2.5 and Gemma 2.
"""
MARGIN = 1.15
"""How much denser a request may be than the last one that was counted."""


class LastMeasured:
    """Remembers the newest request with a known number of tokens."""

    def __init__(self) -> None:
        self._last: tuple[ModelRequest, int, int] | None = None

    def take(self, request: ModelRequest, size: int, tokens: int) -> None:
        """Remember the tokens of a request of `size` bytes."""
        if not request.one_off:
            self._last = (request, size, tokens)

    def known(self, request: ModelRequest, size: int) -> Known:
        """What is known about a request of `size` bytes; nothing if it does not continue the last one."""
        if self._last is None:
            return Known(0, size)
        last, last_size, tokens = self._last
        before, here = last.messages, request.messages
        continues = (
            size >= last_size
            and 0 < len(before) <= len(here)
            and here[0] is before[0]
            and here[len(before) - 1] is before[-1]
            and (request.system, request.tools) == (last.system, last.tools)
        )
        return Known(tokens, size - last_size) if continues else Known(0, size)

    def at_most(self, request: ModelRequest, size: int) -> int:
        """An upper estimate of the tokens of a request of `size` bytes, from what was counted before."""
        known = self.known(request, size)
        if known.tokens:
            return known.tokens + int(DENSE_TOKENS_PER_BYTE * known.rest)
        if self._last is not None:
            _, last_size, tokens = self._last
            return int(min(DENSE_TOKENS_PER_BYTE, MARGIN * tokens / last_size) * size)
        prefix = min(size, len(request.system.encode()) + len(msgspec.json.encode(request.tools)))
        return int(PREFIX_TOKENS_PER_BYTE * prefix + DENSE_TOKENS_PER_BYTE * (size - prefix))
