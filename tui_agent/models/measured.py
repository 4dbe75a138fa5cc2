"""Estimates a request's size from the previous request, whose tokens the server counted."""

from typing import NamedTuple

import msgspec

from tui_agent.conversation.request import ModelRequest
from tui_agent.models.token_bounds import beyond_ascii, most_tokens


class KnownSize(msgspec.Struct, frozen=True):
    """A request's size: `tokens` were counted with the previous request, `rest` are the bytes added since, without
    pictures.
    """

    tokens: int
    rest: int


class MeasuredRequest(NamedTuple):
    """A request with a known number of tokens. `size`: its bytes, without pictures; `body`: all of them, if they were
    given.
    """

    request: ModelRequest
    size: int
    tokens: int
    body: bytes = b""


PREFIX_TOKENS_PER_BYTE = 0.3
"""Tokens per byte of a system prompt and tool definitions, which are prose and JSON: ours have 0.23 to 0.25 with the
tokenizers of Llama 2 and 3, Mistral, Qwen 2.5 and Gemma 2.
"""
MARGIN = 1.15
"""How much denser a request may be than the last one that was counted, kind by kind of text."""


class LastMeasured:
    """Remembers the newest request with a known number of tokens."""

    def __init__(self) -> None:
        self._last: MeasuredRequest | None = None

    def take(self, request: ModelRequest, size: int, tokens: int, body: bytes = b"") -> None:
        """Remember the tokens of a request of `size` bytes."""
        if not request.one_off:
            self._last = MeasuredRequest(request, size, tokens, body)

    def known(self, request: ModelRequest, size: int) -> KnownSize:
        """What is known about a request of `size` bytes; nothing if it does not continue the last one."""
        if self._last is None:
            return KnownSize(0, size)
        last, last_size, tokens, _ = self._last
        before, here = last.messages, request.messages
        continues = (
            size >= last_size
            and 0 < len(before) <= len(here)
            and here[0] is before[0]
            and here[len(before) - 1] is before[-1]
            and (request.system, request.tools) == (last.system, last.tools)
        )
        return KnownSize(tokens, size - last_size) if continues else KnownSize(0, size)

    def at_most(self, request: ModelRequest, size: int, body: bytes) -> int:
        """An upper estimate of the tokens of a request of `size` bytes, from what was counted before.

        Takes a tenth of a second for half a megabyte: call it in a thread.
        """
        last, known = self._last, self.known(request, size)
        if known.tokens and last is not None and last.body:
            # What was added stands at the end, behind messages whose bytes stay the same.
            added = max(0, len(body) - len(last.body))
            return known.tokens + most_tokens(body[len(body) - added :])
        if last is not None and last.body:
            measured = min(1.0, MARGIN * last.tokens / max(1, most_tokens(last.body)))
            return round(measured * most_tokens(body))
        prefix = request.system.encode(errors="replace") + msgspec.json.encode(request.tools)
        said = most_tokens(body) - most_tokens(prefix)
        return round(PREFIX_TOKENS_PER_BYTE * len(prefix) + beyond_ascii(prefix) + max(0, said))
