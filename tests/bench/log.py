"""What a long log costs: folding it, and loading it from disk."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.report import Figure
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, Prefix, tool_result, user_message
from tui_agent.conversation.view import View
from tui_agent.storage.log import LogStore

MESSAGES = 10_000
SMALL = 100


def long_log(messages: int) -> View:
    """A coding session: a prompt, three steps with a result each, an answer; results of about 3 KB."""
    view = View()
    body = "\n".join(f"{number:>4}\tdef function_{number}(value: int) -> int:" for number in range(60))

    def add(entry: AnyEntry) -> None:
        view.apply(view.log.stamp(entry, float(len(view.log))))

    add(Prefix(system="rules " * 500))
    number = 0
    while len(view.log) <= messages:
        add(user_message(f"prompt {number}: please look at the next file and mend it"))
        for _ in range(3):
            number += 1
            call = ToolCall(f"call-{number}", "read_file", json.dumps({"path": f"src/module_{number}.py"}))
            blocks = (Text("I look at it."), call)
            add(Message(role="assistant", blocks=blocks, model="offline:offline", prefix_hash=view.prefix_hash()))
            add(tool_result(ToolResult(call.id, body)))
        add(Message(role="assistant", blocks=(Text("Done. " * 40),), model="offline:offline"))
    return view


def figures() -> list[Figure]:
    """Fold and load of 10,000 messages; one append and request at 10,000 against 100."""
    entries = list(long_log(MESSAGES).log)
    folding = statistics.median(_timed(lambda: View(entries).messages()) for _ in range(3))
    loading = statistics.median(asyncio.run(_load(entries)) for _ in range(3))
    large, small = _append(MESSAGES), _append(SMALL)
    return [
        Figure(f"fold of {MESSAGES:,} messages to a request", folding, "s"),
        Figure(f"load of {MESSAGES:,} messages to a ready view", loading, "s", 0.5),
        Figure(f"append and request at {MESSAGES:,} messages", 1000 * large, "ms", 2),
        Figure(f"the same against {SMALL} messages", large / small, "x"),
    ]


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def _load(entries: list[AnyEntry]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        store = await LogStore.open(Path(folder) / "session")
        await store.load()
        await store.append(entries)
        await store.close()
        began = time.perf_counter()
        store = await LogStore.open(Path(folder) / "session")
        View(await store.load()).messages()
        took = time.perf_counter() - began
        await store.close()
        return took


def _append(messages: int) -> float:
    view = long_log(messages)
    view.messages()
    times = []
    for number in range(50):
        began = time.perf_counter()
        view.apply(view.log.stamp(user_message(f"more {number}"), 0.0))
        view.messages()
        view.sizes()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
