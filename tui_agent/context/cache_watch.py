"""Warns before a call with a cold cache, and explains calls that read less from the cache than expected.

Reads are expected only of providers that charge for cache writes (Anthropic); others promise nothing.
"""

from typing import Literal, TypeAlias

import msgspec

from tui_agent.context.cache_life import CacheState
from tui_agent.context.economics import StepPrice
from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import MILLION, Rates
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.text import money_text

SLACK_SHARE, SLACK_TOKENS = 0.05, 1_024
"""A shortfall within these is no miss: the provider rounds to its smallest cacheable block."""

Part: TypeAlias = Literal["model", "expired", "system", "tools", "messages", "provider"]

WORDING: dict[Part, str] = {
    "model": "another model answered",
    "expired": "the cache had expired",
    "system": "the system prompt had changed",
    "tools": "the tools had changed",
    "messages": "earlier messages had changed",
    "provider": "the provider no longer had it, though nothing had changed",
}


class ColdCache(msgspec.Struct, frozen=True):
    """The next request has a cold cache: its size in `tokens`, its cost in USD, and `why`.

    compaction: the price of one first; None if it would free nothing.
    """

    tokens: int
    cost_usd: float
    why: str
    compaction: StepPrice | None = None

    def text(self) -> str:
        text = f"This call reads {self.tokens:,} tokens anew, about {money_text(self.cost_usd)}: {self.why}."
        if self.compaction is None:
            return text
        writing, then = money_text(self.compaction.writing), money_text(self.compaction.call)
        return f"{text} After a /compact of about {writing} it would be about {then}."


class CacheMiss(msgspec.Struct, frozen=True):
    """A call that read only `read` of the `expected` tokens that the call before had left in the cache.

    part: what changed, or that the cache expired. detail: more on that, if known. reason: the provider's own;
    empty if it gave none. cost_usd: the extra cost of the call.
    """

    part: Part
    expected: int
    read: int
    cost_usd: float
    detail: str = ""
    reason: str = ""

    def text(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        said = f"; the provider says: {self.reason}" if self.reason else ""
        return (
            f"{self.read:,} of {self.expected:,} cached tokens read, {money_text(self.cost_usd)} more: "
            f"{WORDING[self.part]}{more}{said}"
        )


class _Sent(msgspec.Struct):
    """A request that was sent; `left`: the tokens that it and its answer left in the cache."""

    model: str
    request: ModelRequest
    cache: CacheState
    edits: int
    left: int = 0


class CacheWatch:
    """Compares each request of a conversation, and what it read from the cache, with the one before.

    misses: since the program started, oldest first.
    """

    def __init__(self) -> None:
        self.misses: list[CacheMiss] = []
        self._newest = ""
        self._before: _Sent | None = None
        self._now: _Sent | None = None
        self._left_before = 0

    def sends(self, model: str, request: ModelRequest, cache: CacheState, *, edits: int, last: Usage | None) -> None:
        """Note a request. `edits`: the number of edits of the view so far; `last`: the usage of the last answer."""
        self._left_before = last.cache_read_tokens + last.cache_write_tokens if last is not None else 0
        self._now = _Sent(model, request, cache, edits)

    def answered(self, usage: Usage, rates: Rates | None, reason: str = "", answer: str = "") -> CacheMiss | None:
        """Note the answer; returns the cache miss, if there was one.

        `reason`: the provider's own for a miss. `answer`: its id of the answer.
        """
        self._newest = answer
        before, now, expected = self._before, self._now, self._left_before
        if now is None:
            return None
        self._before, self._now = now, None
        read = usage.cache_read_tokens
        if before is not None and before.edits != now.edits:
            # Tokens that a context step has removed are not in this request: no call pays for them any more.
            expected = min(expected, usage.input_tokens)
        if rates is None or rates.write <= 1 or read + max(SLACK_TOKENS, expected * SLACK_SHARE) >= expected:
            return None
        part, detail = _what_changed(before, now)
        more = (expected - read) * (rates.write - rates.read) * rates.input_usd / MILLION
        miss = CacheMiss(part, expected, read, max(0.0, more), detail, reason)
        self.misses.append(miss)
        return miss

    def follows(self, model: str) -> str:
        """The provider's id of the newest answer, if this model gave it: another's servers have no such answer."""
        return self._newest if self._before is not None and self._before.model == model else ""

    def report(self) -> list[str]:
        """Lines for people: how many calls missed, the reasons, and the newest miss; empty if there was none."""
        if not self.misses:
            return []
        count, cost = len(self.misses), sum(miss.cost_usd for miss in self.misses)
        reasons = dict.fromkeys(miss.part for miss in self.misses)
        listed = ", ".join(f"{sum(m.part == part for m in self.misses)} since {WORDING[part]}" for part in reasons)
        return [
            f"Missed caches: {count:,} call{'s' * (count > 1)}, {money_text(cost)} more ({listed})",
            f"The newest: {self.misses[-1].text()}",
        ]


def _what_changed(before: _Sent | None, now: _Sent) -> tuple[Part, str]:
    if before is not None and before.model != now.model:
        return "model", ""
    if before is None:
        # The first request of this process: only the log is known.
        return ("expired" if now.cache.cold else "provider"), (now.cache.reason if now.cache.cold else "")
    old, new = before.request, now.request
    if old.system != new.system:
        return "system", ""
    if _sent_tools(old) != _sent_tools(new):
        return "tools", _changed_tools(old, new)
    if (index := _first_changed(old.messages, new.messages)) is not None:
        why = "by a context step" if now.edits != before.edits else "by no context step"
        return "messages", f"{why}, from message {index + 1:,} of {len(old.messages):,} on"
    return ("expired", now.cache.reason) if now.cache.cold else ("provider", "")


def _sent_tools(request: ModelRequest) -> list[ToolDefinition]:
    """The tool definitions at the front of a request; deferred ones are not part of the cached prefix."""
    return [tool for tool in request.tools if not tool.deferred]


def _changed_tools(old: ModelRequest, new: ModelRequest) -> str:
    before, after = {tool.name: tool for tool in _sent_tools(old)}, {tool.name: tool for tool in _sent_tools(new)}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(names[:5]) if names else "their order"


def _first_changed(old: tuple[RequestMessage, ...], new: tuple[RequestMessage, ...]) -> int | None:
    """The index of the first changed message; None if messages were only added, or the last one extended."""
    for index, message in enumerate(old):
        if index >= len(new):
            return index
        if new[index] is message or new[index] == message:
            continue
        same_start = new[index].blocks[: len(message.blocks)] == message.blocks
        if index < len(old) - 1 or new[index].role != message.role or not same_start:
            return index
    return None
