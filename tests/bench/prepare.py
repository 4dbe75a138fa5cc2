"""What the context engine costs before a model call, while a conversation grows."""

import statistics
import time

from tests.bench.log import MESSAGES, SMALL, long_log
from tests.bench.report import Figure
from tests.profiles import model_named
from tui_agent.context.effects import MemoryHost
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Usage, tool_result
from tui_agent.conversation.profile import Rates
from tui_agent.settings import CompactionSettings, Settings

MODEL = model_named(
    "offline:offline",
    window=200_000_000,
    tier="frontier",
    rates=Rates(input_usd=4.0, output=5.0, read=0.05, write=1.25),
)
"""A window in which nothing is due: what is measured is the looking, not a step."""


def figures() -> list[Figure]:
    """A look at 10,000 messages, inside a tool loop and between turns, against 100."""
    found: list[Figure] = []
    for name, between_turns in (("inside a loop", False), ("between turns", True)):
        large, small = (_look(messages, between_turns=between_turns) for messages in (MESSAGES, SMALL))
        found += [
            Figure(f"prepare at {MESSAGES:,} messages, {name}", 1000 * large, "ms", 2),
            Figure(f"the same against {SMALL} messages", large / small, "x", 2),
        ]
    return found


def _look(messages: int, *, between_turns: bool) -> float:
    engine = ContextEngine(Settings(compaction=CompactionSettings(thrift=1e9)), view=long_log(messages), model=MODEL)
    host = MemoryHost(engine)
    times: list[float] = []
    for number in range(60):
        used = Usage(input_tokens=engine.tokens, cache_read_tokens=engine.tokens, output_tokens=20)
        call = ToolCall(f"more-{number}", "read_file", '{"path":"a.py"}')
        engine.extend([Message(role="assistant", blocks=(call,), model=MODEL.name, usage=used)])
        engine.extend([tool_result(ToolResult(call.id, "a line of the file\n" * 40))])
        began = time.perf_counter()
        host.run(engine.prepare(between_turns=between_turns))
        engine.request()
        times.append(time.perf_counter() - began)
        if host.done:
            raise ValueError("a step is due, so this would not measure the looking alone")
    return statistics.median(times[5:])
