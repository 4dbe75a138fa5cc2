"""Conversations to decide about, and the moments to decide in."""

import json
from collections.abc import Callable
from typing import Any

from msgspec import structs

from tests.context import sessions
from tui_agent.context.budget import Budget, Threshold
from tui_agent.context.compaction.draft import Draft, accept
from tui_agent.context.compaction.forms import Prompts
from tui_agent.context.compaction.material import Material, material_of
from tui_agent.context.compaction.plan import Plan, plan_compaction
from tui_agent.context.counting import estimate
from tui_agent.context.economics import Situation
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, Prefix, tool_result, user_message
from tui_agent.conversation.sizes import TextSize, total_size
from tui_agent.conversation.view import View
from tui_agent.settings import CompactionSettings, Settings

PROMPTS = Prompts.shipped()
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


FILLER = "a line of output that says little and is long enough\n"


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

    def apply(self, outcome: Draft | Refusal) -> Draft:
        assert isinstance(outcome, Draft), outcome
        for entry in outcome.entries:
            self.add(entry)
        return outcome

    @property
    def shown(self) -> str:
        return shown(self.view)


def long_talk(turns: int = 12, lines: int = 60) -> Talk:
    talk = Talk()
    for turn in range(turns):
        talk.ask(f"Please look at step {turn}.")
        talk.tool(FILLER * lines + f"value_{turn} = {turn}", path=f"src/part_{turn}.py")
        talk.say(f"Step {turn} is fine.")
    return talk


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
    size = TextSize()
    for part in view.sizes().values():
        size = size.plus(part)
    return estimate(size)


def situation(
    view: View,
    *,
    window: int = 200_000,
    tokens_of: Callable[[TextSize], int] = estimate,
    settings: CompactionSettings | None = None,
    trigger: int = 0,
) -> Situation:
    """The moment between two turns of a view whose whole is counted at once; summaries are due from `trigger` on."""
    budget = Budget(window, estimate(view.sizes()["system"].plus(view.sizes()["tools"])), window // 8)
    here = sessions.situation(view, budget, between_turns=True, growth=1_000.0)
    return structs.replace(
        here,
        limits=structs.replace(here.limits, compact=Threshold("compact", trigger)),
        settings=Settings(compaction=settings or CompactionSettings()),
        tokens=total(view),
        tokens_of=tokens_of,
        mixed_tokens_of=tokens_of,
        whole_tokens_of=lambda each: tokens_of(total_size(each.sizes().values())),
    )


def compaction(talk: Talk, *, trigger: int = 8_000, window: int = 20_000, **more: Any) -> Plan | Refusal:
    """The compaction of this moment, of a window in which it is soon due."""
    return plan_compaction(talk.view, situation(talk.view, window=window, trigger=trigger), **more)


def planned(outcome: Plan | Refusal) -> Plan:
    assert isinstance(outcome, Plan), outcome
    return outcome


def material(plan: Plan | Refusal, view: View, settings: CompactionSettings | None = None) -> Material:
    """What the summary of a plan is written from, with the prompts that are shipped."""
    return material_of(planned(plan), view, situation(view, settings=settings), PROMPTS)


def accepted(
    plan: Plan | Refusal, view: View, text: str = SUMMARY, *, settings: CompactionSettings | None = None
) -> Draft:
    made = material(plan, view, settings)
    outcome = accept(planned(plan), made, text, path=ARCHIVE, tokens_of=estimate)
    assert isinstance(outcome, Draft), outcome
    return outcome
