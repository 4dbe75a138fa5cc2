"""Models that are scripted in the test itself, for what no protocol server can make an SDK do."""

from collections.abc import AsyncIterator, Callable

from typing_extensions import override

from tui_agent.conversation.blocks import Block, Text, ToolCall
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import Completed, Model, StreamEvent, TextDelta

Stream = Callable[[ModelRequest], AsyncIterator[StreamEvent]]

PROFILE = ModelProfile(provider="test", id="scripted", window=100_000, max_output=4_000, source="provider")


class Scripted(Model):
    """Answers each request by `streams` in turn, the last one for all that follow; keeps the requests."""

    def __init__(self, *streams: Stream, profile: ModelProfile = PROFILE) -> None:
        self._streams = streams
        self._profile = profile
        self.requests: list[ModelRequest] = []
        self.closed = False

    @property
    @override
    def profile(self) -> ModelProfile:
        return self._profile

    @override
    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        return self._streams[min(len(self.requests), len(self._streams)) - 1](request)

    @override
    async def describe(self) -> ModelProfile:
        return self._profile

    @override
    async def close(self) -> None:
        self.closed = True


class Silent(Scripted):
    """Is never asked; only its profile counts."""

    def __init__(self, profile: ModelProfile) -> None:
        super().__init__(profile=profile)


def answers(*blocks: Block, usage: Usage = Usage(input_tokens=100, output_tokens=10)) -> Stream:  # noqa: B008 (immutable)
    """One whole answer, whose texts are streamed first."""

    async def stream(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        for block in blocks:
            if isinstance(block, Text) and block.text:
                yield TextDelta(block.text)
        calls = any(isinstance(block, ToolCall) for block in blocks)
        yield Completed(blocks, usage, "tool_calls" if calls else "end_turn")

    return stream
