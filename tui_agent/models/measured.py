"""What is known of a request's size by the one before it: nearly all of it was counted then."""

from typing import NamedTuple

from tui_agent.conversation.request import ModelRequest


class Known(NamedTuple):
    """`tokens` of a request were counted; `rest` are the bytes that came since, pictures left out."""

    tokens: int
    rest: int


class LastMeasured:
    """The newest request whose tokens are known."""

    def __init__(self) -> None:
        self._last: tuple[ModelRequest, int, int] | None = None

    def take(self, request: ModelRequest, size: int, tokens: int) -> None:
        """A request of so many bytes has so many tokens."""
        if not request.one_off:
            self._last = (request, size, tokens)

    def known(self, request: ModelRequest, size: int) -> Known:
        """What is known of a request of `size` bytes: all of it is new where it does not continue the last one."""
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
