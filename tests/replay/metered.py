"""Long sessions with the usage of each call, as Claude Code records them and in the neutral format.

What the provider counted is worked out here in its own way: a token is a piece of a word, a number or a sign, and the
cache is that of the protocol servers. Nothing of it comes from the replay that is to be checked against it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tests.replay.sessions import START, Session
from tests.servers.cache import CacheUse, PromptCache, Segment
from tui_agent.storage.recordings.recording import CLEARED

MODEL = "claude-opus-4-7"
SYSTEM_TOKENS = 14_200
"""System prompt, tools and project instructions, which no line of a recording says."""
MINIMUM = 1_024

_PIECES = re.compile(r"[A-Za-z]{1,6}|\d{1,3}|_|[^\w\s]|\s{2,}|\w")


def pieces(text: str) -> int:
    """The tokens of a text."""
    return len(_PIECES.findall(text))


@dataclass
class Provider:
    """Answers the calls of one session: what is in the prompt, what the cache makes of it, when it is compacted.

    `compact_at`, and `clear_at`, where all results but the newest three are cleared, once, are in tokens; `hour`:
    entries live for an hour; `warm`: another session has sent the system prompt.
    """

    compact_at: int = 10**9
    clear_at: int = 10**9
    hour: bool = False
    warm: bool = False
    now: float = START
    prompt: list[Segment] = field(default_factory=list)
    compactions: int = 0
    results: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = PromptCache(lambda: self.now)
        system = [self._marked(Segment(b"system", SYSTEM_TOKENS))]
        if self.warm:
            self.cache.use_marked(MODEL, system, MINIMUM)
        self.prompt = system

    def say(self, text: str) -> None:
        self.prompt.append(Segment(text.encode(), pieces(text)))

    def call(self, now: float) -> CacheUse:
        self.now = now
        return self.cache.use_marked(MODEL, [*self.prompt[:-1], self._marked(self.prompt[-1])], MINIMUM)

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.prompt)

    def clear(self) -> list[str]:
        """Clear the results that are due; returns the ids of their calls."""
        ids = list(self.results)[:-3] if self.tokens >= self.clear_at else []
        for call_id in ids:
            self.prompt[self.results[call_id]] = Segment(CLEARED.encode(), pieces(CLEARED))
        self.clear_at = 10**9 if ids else self.clear_at
        return ids

    def compact(self, summary: str) -> None:
        """The summary is asked for at the end of the prompt; then only it is left."""
        self.say("Write a summary.")
        self.cache.use_marked(MODEL, [*self.prompt[:-1], self._marked(self.prompt[-1])], MINIMUM)
        del self.prompt[1:]
        self.say(summary)
        self.compactions += 1

    def _marked(self, segment: Segment) -> Segment:
        return Segment(segment.data, segment.tokens, "1h" if self.hour else "5m")


def neutral_lines(session: Session, provider: Provider, *, beside: bool = False) -> Iterator[dict[str, Any]]:
    """The session in the neutral format, with usage and compactions.

    `beside`: `input_tokens` counts neither what was read nor what was written.
    """
    asked = 0.0
    for line in session.lines():
        if line["role"] == "assistant":
            if cleared := provider.clear():
                yield {"role": "cleared", "ids": cleared, "time": asked}
            if provider.tokens >= provider.compact_at:
                summary = " ".join(session.memory.seen[-200:])
                provider.now = asked
                provider.compact(summary)
                yield {"role": "compaction", "text": summary, "time": asked}
            use = provider.call(asked)
            texts = _texts(line)
            output = sum(map(pieces, texts)) + 60
            total = use.uncached if beside else use.total
            usage = {"input_tokens": total, "cache_read_tokens": use.read, "cache_write_tokens": use.written}
            yield {**line, "model": MODEL, "usage": {**usage, "output_tokens": output}}
            for text in texts:
                provider.say(text)
        else:
            yield line
            if line["role"] == "tool":
                provider.results[str(line["tool_call_id"])] = len(provider.prompt)
            provider.say(str(line["text"]))
            asked = cast(float, line["time"])


def claude_code_lines(session: Session, provider: Provider) -> Iterator[dict[str, Any]]:
    """The same as Claude Code writes it: a line for each block of an answer, each with the usage of the call."""
    for number, line in enumerate(neutral_lines(session, provider), 1):
        head = {"uuid": f"u{number}", "timestamp": datetime.fromtimestamp(line["time"], UTC).isoformat()}
        match line["role"]:
            case "compaction":
                yield {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}, **head}
                content = line["text"]
                yield {**_said("user", content), "isCompactSummary": True, **head, "uuid": f"s{number}"}
            case "cleared":
                named = {"trigger": "auto", "compactedToolIds": line["ids"]}
                yield {"type": "system", "subtype": "microcompact_boundary", "microcompactMetadata": named, **head}
            case "assistant":
                blocks: list[dict[str, Any]] = [{"type": "text", "text": line["text"]}]
                blocks += [
                    {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
                    for call in line.get("tool_calls", ())
                ]
                usage = _claude_usage(line["usage"], hour=provider.hour)
                for index, block in enumerate(blocks):
                    said = _said("assistant", [block], id=f"msg_{number}", model=MODEL, usage=usage)
                    yield {**said, **head, "uuid": f"u{number}.{index}"}
            case "tool":
                result = {"type": "tool_result", "tool_use_id": line["tool_call_id"], "content": line["text"]}
                yield {**_said("user", [result]), **head}
            case _:
                yield {**_said("user", line["text"]), **head}


def write(path: Path, lines: Iterator[dict[str, Any]]) -> Path:
    """Write the lines as a file."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def _texts(line: dict[str, Any]) -> list[str]:
    return [line["text"], *(f"{call['name']} {json.dumps(call['args'])}" for call in line.get("tool_calls", ()))]


def _said(role: str, content: object, **more: object) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": content, **more}}


def _claude_usage(usage: dict[str, int], *, hour: bool) -> dict[str, Any]:
    written = usage["cache_write_tokens"]
    lived = "ephemeral_1h_input_tokens" if hour else "ephemeral_5m_input_tokens"
    return {
        "input_tokens": usage["input_tokens"] - usage["cache_read_tokens"] - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage["cache_read_tokens"],
        "output_tokens": usage["output_tokens"],
        "cache_creation": {lived: written},
    }
