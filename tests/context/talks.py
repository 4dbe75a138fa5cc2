"""Conversations to decide about, and the moments to decide in."""

import json
from collections.abc import Callable

from tui_agent.context.budget import Budget
from tui_agent.context.compaction import Accepted, CompactionPlan, accept
from tui_agent.context.counting import estimate
from tui_agent.context.handover import Prompts
from tui_agent.context.refusal import Refusal
from tui_agent.context.situation import Situation
from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, Prefix, tool_result, user_message
from tui_agent.conversation.sizes import Size
from tui_agent.conversation.view import View
from tui_agent.resources import prompt_text
from tui_agent.settings import Compaction

PROMPTS = Prompts(**{name: prompt_text(name) for name in Prompts.__struct_fields__})
COMPACTION = Compaction()
ARCHIVE = "conversation_history/main.md"

SUMMARY = """# Current state
The parser is being repaired.

# Files & changes
Nothing to add here yet.

# Technical context
Plain Python.

# Strategy & approach
Small steps.

# Exact next steps
1. Go on.
"""


class Talk:
    """A conversation that grows, one verb a call; each returns the number of its first entry."""

    def __init__(self, system: str = "rules") -> None:
        self.view = View()
        self.calls = 0
        self.add(Prefix(system=system))

    def add(self, entry: AnyEntry) -> int:
        self.view.apply(self.view.log.stamp(entry, float(len(self.view.log))))
        return len(self.view.log)

    def ask(self, text: str) -> int:
        return self.add(user_message(text))

    def say(self, text: str) -> int:
        return self.add(Message(role="assistant", blocks=(Text(text),)))

    def call(self, name: str = "read_file", said: str = "", **arguments: object) -> tuple[int, str]:
        self.calls += 1
        call = ToolCall(f"c{self.calls}", name, json.dumps(arguments))
        blocks: tuple[Block, ...] = (Text(said), call) if said else (call,)
        return self.add(Message(role="assistant", blocks=blocks)), call.id

    def tool(
        self, text: str, name: str = "read_file", *, failed: bool = False, said: str = "", **arguments: object
    ) -> int:
        step, call = self.call(name, said, **arguments)
        self.add(tool_result(ToolResult(call, text, is_error=failed)))
        return step

    def apply(self, outcome: Accepted | Refusal) -> Accepted:
        assert isinstance(outcome, Accepted), outcome
        for entry in outcome.entries:
            self.add(entry)
        return outcome

    @property
    def shown(self) -> str:
        return shown(self.view)


def shown(view: View) -> str:
    """All the model reads, as one text."""
    texts: list[str] = []
    for message in view.messages():
        for block in message.blocks:
            if isinstance(block, Text | ToolResult):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                texts.append(block.arguments)
    return "\n".join(texts)


def total(view: View) -> int:
    size = Size()
    for part in view.sizes().values():
        size = size.plus(part)
    return estimate(size)


def situation(view: View, *, window: int = 200_000, tokens_of: Callable[[Size], int] = estimate) -> Situation:
    fixed = estimate(view.sizes()["system"].plus(view.sizes()["tools"]))
    return Situation(
        budget=Budget(window, fixed, window // 8),
        tokens=total(view),
        growth=1_000.0,
        cold=False,
        between_turns=True,
        rates=None,
        tokens_of=tokens_of,
    )


def accepted(plan: CompactionPlan | Refusal, text: str = SUMMARY, *, settings: Compaction = COMPACTION) -> Accepted:
    assert isinstance(plan, CompactionPlan), plan
    outcome = accept(plan, text, settings, path=ARCHIVE, tokens_of=estimate)
    assert isinstance(outcome, Accepted), outcome
    return outcome
