"""The requests of a conversation, and what of the last one the next depends on: cache breakpoints and lifetime."""

from typing import Final

import msgspec
from msgspec import structs

from tui_agent.context.cache_life import Pauses
from tui_agent.context.economics import Situation
from tui_agent.context.layers.clearing import protected_tokens
from tui_agent.conversation.request import CacheHours, ModelRequest, RequestMessage
from tui_agent.conversation.view import View

LONGEST_ANSWER: Final = 16_384
"""The longest answer to ask for if the window is unknown, in tokens."""


class Prepared(msgspec.Struct, frozen=True):
    """The next request, of about `tokens` tokens. `prefix_hash`: to store with the answer."""

    request: ModelRequest
    tokens: int
    prefix_hash: str


class Requests:
    """Makes the requests of one conversation. hours: what the last one asked to keep for an hour."""

    def __init__(self) -> None:
        self.hours: CacheHours = ""
        self._sent = 0
        self._edge: tuple[int, int] | None = None
        self._paused = -1

    def prepare(self, view: View, here: Situation, hours: CacheHours) -> Prepared:
        """The next request, with cache breakpoints at the edge of the protected tail and at the end of the last
        request.
        """
        request, self.hours = running(view, here, hours), hours
        messages = len(request.messages)
        edges = {self._protected_edge(view, here, messages), self._sent - 1}
        self._sent = messages
        edges = {edge for edge in edges if 0 <= edge < messages - 1}
        request = structs.replace(request, cache_edges=tuple(sorted(edges)))
        return Prepared(request, here.tokens, view.prefix_hash())

    def to_be_signed(self, view: View, here: Situation, hours: CacheHours, last: int) -> ModelRequest:
        """The request that asks the provider to summarise everything up to entry `last`."""
        messages = view.until(last).messages
        edge = self._protected_edge(view, here, len(messages) + 1)
        edges = (edge,) if 0 <= edge < len(messages) - 1 else ()
        return structs.replace(_request(view, here, hours, messages), summarize="", cache_edges=edges)

    def other_model(self) -> None:
        """Another model answers from now on, which has seen no request."""
        self._sent = 0

    def learn_pause(self, pauses: Pauses, view: View, tokens: int, now: float) -> None:
        """Take in, once for each answer, how long after it the next one is asked for, with `tokens` tokens."""
        call = view.last_call
        seq = call.seq if call is not None else 0
        if seq == self._paused:
            return
        self._paused = seq
        if call is None:
            pauses.learn(None, tokens, tokens)
            return
        used = call.usage
        before = used.input_tokens + used.output_tokens if used is not None else tokens
        added = tokens if view.edits_since_call else max(0, tokens - before)
        pauses.learn(max(0.0, now - view.last_read(call)), tokens, added)

    def _protected_edge(self, view: View, here: Situation, messages: int) -> int:
        """The index of the last message before the protected tail, in which nothing is cleared; -1: there is none.

        It stays where the last edit left it: the part before it is read from the cache by every call, which keeps it
        cached, while a moving breakpoint would be written again each time.
        """
        if self._edge is None or self._edge[0] != view.edits or self._edge[1] >= messages:
            protected = protected_tokens(here.settings.clearing, here.budget.window)
            tail = view.before_tail(lambda size: here.mixed_tokens_of(size) <= protected)
            self._edge = (view.edits, tail.messages - 1)
        return self._edge[1]


def running(view: View, here: Situation, hours: CacheHours) -> ModelRequest:
    """The next request, without breakpoints inside the conversation."""
    return _request(view, here, hours, tuple(view.messages()))


def _request(view: View, here: Situation, hours: CacheHours, messages: tuple[RequestMessage, ...]) -> ModelRequest:
    prefix = view.prefix
    tools = prefix.tools if prefix else ()
    return ModelRequest(
        system=prefix.system if prefix else "",
        tools=tools if here.model.defers_tools else tuple(tool for tool in tools if not tool.deferred),
        messages=messages,
        max_tokens=here.budget.reserve or LONGEST_ANSWER,
        cache_hours=hours,
    )
