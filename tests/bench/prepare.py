"""What the context engine costs before a model call, and how long it holds up the event loop, while a conversation
grows.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from tests.bench.log import MESSAGES, SMALL, long_log
from tests.bench.report import Figure
from tui_agent.agent.agent import Agent
from tui_agent.context.economics import ModelFacts, Rates
from tui_agent.context.effects import MemoryHost
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Usage, tool_result, user_message
from tui_agent.settings import Compaction, Settings

MODEL = ModelFacts(
    name="offline:offline",
    window=200_000_000,
    tier="frontier",
    prices=((0, Rates(input_usd=4.0, output=5.0, read=0.05, write=1.25)),),
)
"""A window in which nothing is due: what is measured is the looking, not a step."""

TURNS = 5_000
ROUNDS = 5
TICK_S = 0.001
HELD_MS = 16.0
"""How long a key press may wait."""


def figures() -> list[Figure]:
    """A look at 10,000 messages, inside a tool loop and between turns, against 100; and the longest the event loop is
    held up by any step at 5,000 turns and some 900,000 tokens.
    """
    found: list[Figure] = []
    for name, between_turns in (("inside a loop", False), ("between turns", True)):
        large, small = (_look(messages, between_turns=between_turns) for messages in (MESSAGES, SMALL))
        found += [
            Figure(f"prepare at {MESSAGES:,} messages, {name}", 1000 * large, "ms", 2),
            Figure(f"the same against {SMALL} messages", large / small, "x", 2),
        ]
    held = asyncio.run(_held())
    return found + [
        Figure(f"loop held by {name}, {TURNS:,} turns", 1000 * longest, "ms", HELD_MS) for name, longest in held.items()
    ]


def _look(messages: int, *, between_turns: bool) -> float:
    engine = ContextEngine(Settings(compaction=Compaction(thrift=1e9)), view=long_log(messages), model=MODEL)
    host = MemoryHost(engine)
    times: list[float] = []
    for number in range(60):
        used = Usage(input_tokens=engine.tokens, output_tokens=20)
        call = ToolCall(f"more-{number}", "read_file", '{"path":"a.py"}')
        engine.extend([Message(role="assistant", blocks=(call,), model=engine.view.model, usage=used)])
        engine.extend([tool_result(ToolResult(call.id, "a line of the file\n" * 40))])
        began = time.perf_counter()
        host.run(engine.prepare(between_turns=between_turns))
        engine.request()
        times.append(time.perf_counter() - began)
        if host.done:
            raise ValueError("a step is due, so this would not measure the looking alone")
    return statistics.median(times[5:])


async def _held() -> dict[str, float]:
    """The longest time between two ticks of the event loop during each step, in seconds: the median of a few rounds."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        async with Agent("offline", context=_long_engine()) as agent:
            await agent.connect()
            await asyncio.to_thread(agent.engine.view.sizes)
            for name, step in _steps(agent).items():
                found.setdefault(name, []).append(await _longest_block(step))
    return {name: statistics.median(times) for name, times in found.items()}


def _steps(agent: Agent) -> dict[str, Callable[[], Awaitable[object]]]:
    prompts = agent.prompts()

    async def opened() -> object:
        return agent.overview()

    return {
        "the panel": opened,
        "a preview of /compact": lambda: agent.preview("compact"),
        "a preview of /clear-results": lambda: agent.preview("clear"),
        "pin": lambda: agent.pin([prompts[5][0]]),
        "/compact": lambda: agent.compact("the steps"),
        "undo": agent.undo,
        "/clear-results": agent.clear_results,
        "rewind": lambda: agent.rewind(prompts[-10][0]),
    }


async def _longest_block(step: Callable[[], Awaitable[object]]) -> float:
    longest, last, over = 0.0, time.perf_counter(), False

    async def tick() -> None:
        nonlocal longest, last
        while not over:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            longest, last = max(longest, now - last - TICK_S), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(5 * TICK_S)
    longest = 0.0
    await step()
    await asyncio.sleep(2 * TICK_S)
    over = True
    await ticking
    return longest


def _long_engine() -> ContextEngine:
    engine = ContextEngine(Settings(compaction=Compaction(thrift=0)))
    engine.extend([ModelSwitched(model="offline:offline"), Prefix(system="rules\n" * 500)])
    for number in range(TURNS):
        path, call = f"src/module_{number}.py", f"c{number}"
        arguments = f'{{"path":"{path}"}}'
        said = (Text("I look at it."), ToolCall(call, "read_file", arguments))
        engine.extend(
            [
                user_message(f"please do step {number} of {path} " + "x" * 60),
                Message(role="assistant", model="offline:offline", blocks=said),
                tool_result(ToolResult(call, f"line of code number {number} in {path} value={7 * number}\n" * 6)),
                Message(
                    role="assistant", model="offline:offline", blocks=(Text(f"Done with {number}: " + "word " * 20),)
                ),
            ]
        )
    return engine
