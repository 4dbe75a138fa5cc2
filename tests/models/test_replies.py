"""What is read of each provider's stream, event by event, against what was read of it before.

In `replies.txt` a line with # names the protocol and the case, one with > is an event of the stream; below it stands
what was read of it, and behind = the whole answer. After a change that is meant: ``.venv/bin/python -m
tests.models.test_replies`` writes the answers anew; look at what changed.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import fields

from tui_agent.models.adapter import Reply
from tui_agent.models.anthropic.reply import AnthropicReply
from tui_agent.models.base import ModelError
from tui_agent.models.errors import ServerRefusedError
from tui_agent.models.gemini.reply import GeminiReply
from tui_agent.models.ollama.reply import OllamaReply
from tui_agent.models.openai.chat_reply import ChatReply
from tui_agent.models.openai.responses_reply import ResponsesReply

KEPT: Final = Path(__file__).with_name("replies.txt")
TAKEN: Final = frozenset({"taken"})


REPLIES: Final[dict[str, Callable[[], Reply]]] = {
    "anthropic": lambda: AnthropicReply("asked", TAKEN),
    "gemini": lambda: GeminiReply("gemini-3-asked", TAKEN),
    "gemini-2.5": lambda: GeminiReply("gemini-2.5-asked", TAKEN),
    "chat": lambda: ChatReply("asked", TAKEN, 10),
    "responses": lambda: ResponsesReply("asked", TAKEN, "openai:asked"),
    "ollama": lambda: OllamaReply("asked", TAKEN, 10),
}


def _read(given: list[str]) -> Iterator[str]:
    reply: Reply | None = None
    for line in given:
        if line.startswith("# "):
            if reply is not None:
                yield from _whole(reply)
            reply = REPLIES[line.split()[1].rstrip(":")]()
        assert reply is not None
        yield line
        if line.startswith("> "):
            before = reply.complete, reply.started
            try:
                events = reply.read(line[2:].encode())
            except ServerRefusedError as error:
                yield f"  refused {_shown(error.refusal)}"
                continue
            yield from (f"  {_shown(event)}" for event in events)
            if (reply.complete, reply.started) != before:
                yield f"  {'complete' if reply.complete else 'started'}"
    if reply is not None:
        yield from _whole(reply)


def _shown(value: object) -> str:
    """What differs from the defaults of a record."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    if not isinstance(value, Struct):
        return repr(value)
    told = {each.name: getattr(value, each.name) for each in fields(value) if getattr(value, each.name) != each.default}
    return f"{type(value).__name__}({', '.join(f'{name}={_shown(each)}' for name, each in told.items())})"


def _whole(reply: Reply) -> Iterator[str]:
    try:
        yield f"= {_shown(reply.completed())}"
    except ModelError as error:
        yield f"= {type(error).__name__}: {error.message}"
    yield ""


def _written() -> str:
    given = [line for line in KEPT.read_text("utf-8").splitlines() if line[:2] in ("# ", "> ")]
    return re.sub(r"call_[0-9a-f]{8,}", "call_new", "".join(f"{line}\n" for line in _read(given)))


def test_of_each_stream_is_read_what_was_read_of_it() -> None:
    assert _written().splitlines() == KEPT.read_text("utf-8").splitlines()


if __name__ == "__main__":
    KEPT.write_text(_written(), "utf-8")
