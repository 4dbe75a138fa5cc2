"""Sessions that grow call by call, with a provider that counts in its own way."""

import json

from tui_agent.context.budget import Budget, Thresholds, thresholds
from tui_agent.context.counting import estimate
from tui_agent.context.economics import Situation
from tui_agent.context.effects import Append, BeforeSummary, StepStarted, WriteInBackground, step_of
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    Cleared,
    Digested,
    Message,
    ModelSwitched,
    Prefix,
    Usage,
    tool_result,
)
from tui_agent.conversation.profile import Rates
from tui_agent.conversation.sizes import TextSize
from tui_agent.conversation.view import View
from tui_agent.settings import ClearingSettings, CompactionSettings

MODEL = "anthropic:claude-opus-5-5"


class Session:
    """A log that grows; every verb answers with the number of its newest entry."""

    def __init__(self, system: str = "s" * 3_000) -> None:
        self.view = View()
        self.calls = 0
        self.add(ModelSwitched(model=MODEL))
        self.add(Prefix(system=system))

    def add(self, entry: AnyEntry, time: float | None = None) -> int:
        self.view.apply(self.view.log.stamp(entry, float(len(self.view.log)) if time is None else time))
        return len(self.view.log)

    def answer(self, usage: Usage | None = None, *, text: str = "", call: str = "", **arguments: object) -> int:
        blocks: list[Block] = [Text(text)] if text else []
        if call:
            self.calls += 1
            blocks.append(ToolCall(f"c{self.calls}", call, json.dumps(arguments)))
        return self.add(Message(role="assistant", blocks=tuple(blocks), model=self.view.model, usage=usage))

    def result(self, text: str, artifact: Artifact | None = None) -> int:
        return self.add(tool_result(ToolResult(self.view.unanswered()[0].id, text), artifact=artifact))

    def step(self, text: str, call: str = "read_file", artifact: Artifact | None = None, **arguments: object) -> int:
        self.answer(None, text="", call=call, **(arguments or {"path": f"f{self.calls}.py"}))
        return self.result(text, artifact)


def tokens_of(size: TextSize) -> int:
    return estimate(size)


def tokens(view: View) -> int:
    return sum(estimate(size) for size in view.sizes().values())


def situation(
    view: View,
    budget: Budget,
    *,
    cold: bool = False,
    between_turns: bool = False,
    rates: Rates | None = None,
    growth: float = 0.0,
    limits: Thresholds | None = None,
) -> Situation:
    """The moment before the next call of a view that was never measured, under the settings as they come."""
    return Situation(
        budget=budget,
        limits=limits or thresholds(budget, ClearingSettings(), CompactionSettings(), tier="frontier"),
        tokens=tokens(view),
        growth=growth,
        growth_of_all=growth,
        cold=cold,
        between_turns=between_turns,
        rates=rates,
        small_rates=None,
        tokens_of=tokens_of,
        mixed_tokens_of=tokens_of,
        whole_tokens_of=tokens,
    )


def comes(engine: ContextEngine, *, between_turns: bool = False) -> str:
    """The step that is done first before the next call; empty where nothing is due. Changes nothing."""
    steps = engine.prepare(between_turns=between_turns)
    first = next(steps, None)
    if isinstance(first, BeforeSummary):
        first = next(steps, None)
    steps.close()
    match first:
        case WriteInBackground():
            started = next(first.steps)
            first.steps.close()
            assert isinstance(started, StepStarted)
            return started.step
        case StepStarted():
            return first.step
        case Append((Cleared() | Digested() as entry,)):
            return step_of(entry).step
        case _:
            assert first is None, first
            return ""
