"""The context for people: all steps and items, its size over time, and the effects of switching the model."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.history.as_events import step_event, text_of
from tui_agent.context.counting import estimate
from tui_agent.context.effects import step_of
from tui_agent.context.engine import ContextEngine
from tui_agent.context.stats import ContextStats, Mark, ModelUse, Subtasks, marks
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Delivered, Message, Queued, Words
from tui_agent.conversation.fold import MeasuredCall
from tui_agent.conversation.items import Item
from tui_agent.conversation.profile import MILLION, ModelProfile
from tui_agent.conversation.sizes import Category
from tui_agent.conversation.view import View
from tui_agent.models.usage import UsageTracker
from tui_agent.text import as_typed, call_summary, one_line
from tui_agent.tool_titles import tool_title

ITEM_NAMES: Final[dict[Category, str]] = {
    "user": "you",
    "notices": "notice",
    "assistant": "answer",
    "calls": "calls",
    "reasoning": "thought",
    "summaries": "summary",
    "system": "system",
    "tools": "tools",
}

ITEM_CHARS: Final = 34
"""Characters of an item's text on its line, so that the line fits 80 columns."""
EXCERPT_CHARS = 200
"""Characters at the start of an item's text that an excerpt is taken from."""


class Step(NamedTuple):
    """A past context step: what it did, when (seconds since the epoch), and whether it is still in force."""

    event: events.ContextStep
    time: float
    counts: bool


class Overview(NamedTuple):
    """Everything that the context panel shows.

    protected: tokens at the end in which nothing is cleared automatically. words: the user's kept words, oldest first.
    """

    stats: ContextStats
    items: Sequence[Item]
    steps: tuple[Step, ...]
    course: tuple[MeasuredCall, ...]
    protected: int
    words: tuple[Words, ...] = ()


class Fullness(NamedTuple):
    """How full the window is: tokens of the next request and of the window, and the layers in the order in which they
    start, each with the share of the window at which it does.
    """

    tokens: int
    window: int
    measured: bool
    starts: tuple[tuple[str, float], ...]


class SwitchOutlook(NamedTuple):
    """The effects of switching to another model.

    `tokens`: the estimated size of the request. Windows are in tokens, 0 if unknown. `fires`: the layer whose threshold
    the request would pass (``clear``, ``compact`` or ``limit``; empty: none). `cost_usd`: of the next request, with a
    cold cache; `call_usd`: of each later one, read from the cache; None if prices are unknown. `reasoning_dropped`:
    blocks of reasoning that only the present model accepts.
    """

    before: str
    after: str
    tokens: int
    window_before: int
    window_after: int
    marks: tuple[Mark, ...]
    fires: str
    cost_usd: float | None
    call_usd: float | None
    call_usd_before: float | None
    reasoning_dropped: int


def context_stats(engine: ContextEngine, tracker: UsageTracker) -> ContextStats:
    """A snapshot of the context, with the cost of the session."""
    subtasks = tracker.subtasks
    models = (
        ModelUse(
            model=name,
            calls=totals.calls,
            input_tokens=totals.usage.input_tokens,
            output_tokens=totals.usage.output_tokens,
            cost_usd=totals.known_cost_usd,
        )
        for name, totals in tracker.by_model().items()
    )
    return structs.replace(
        engine.stats(),
        cost_usd=tracker.session.known_cost_usd,
        turn_cost_usd=tracker.turn.known_cost_usd,
        cache_share=tracker.session.cache_share,
        subtasks=Subtasks(
            count=tracker.subtask_count,
            input_tokens=subtasks.usage.input_tokens,
            output_tokens=subtasks.usage.output_tokens,
            cost_usd=subtasks.known_cost_usd,
        ),
        models=tuple(models),
    )


def overview(engine: ContextEngine, tracker: UsageTracker) -> Overview:
    """The present context. Items are created on access, so this is cheap at any length."""
    view = engine.view
    entries = view.context_entries()
    return Overview(
        stats=context_stats(engine, tracker),
        items=view.outline(),
        steps=tuple(Step(step_event(step_of(entry)), entry.time, counts) for entry, counts in entries),
        course=view.measured_calls(),
        protected=engine.protected_tokens,
        words=view.words(),
    )


def fullness(engine: ContextEngine) -> Fullness:
    """How full the window is, in time proportional to what is new."""
    window, limits = engine.window.tokens, engine.thresholds
    layers = [each for each in (limits.clear, limits.compact) if window and each.tokens and not each.rests]
    return Fullness(
        tokens=engine.tokens,
        window=window,
        measured=engine.meter.measured,
        starts=tuple(sorted(((each.layer, each.tokens / window) for each in layers), key=lambda each: each[1])),
    )


def switch_outlook(engine: ContextEngine, other: ModelProfile) -> SwitchOutlook:
    """The effects of switching to the model `other`."""
    tokens, now = engine.tokens, engine.model
    window, limits = engine.thresholds_with(other)
    firing = [each for each in limits.all() if each.tokens and (each.layer == "limit" or not each.rests)]
    passed = [each.layer for each in firing if tokens >= each.tokens]
    rates, rates_before = other.rates(tokens), now.rates(tokens)
    return SwitchOutlook(
        before=now.name,
        after=other.name,
        tokens=tokens,
        window_before=engine.window.tokens,
        window_after=window.tokens,
        marks=marks(limits, window.tokens),
        fires=passed[-1] if passed else "",
        cost_usd=0.0 if other.local else tokens * max(1.0, rates.write) * rates.input_usd / MILLION if rates else None,
        call_usd=tokens * rates.read * rates.input_usd / MILLION if rates else None,
        call_usd_before=tokens * rates_before.read * rates_before.input_usd / MILLION if rates_before else None,
        reasoning_dropped=engine.view.reasoning_shown(),
    )


def excerpt(view: View, seq: int) -> str:
    """The beginning of a message or result, for people; untrusted text."""
    entry = _said(view, seq)
    if entry is None:
        return ""
    for block in entry.blocks:
        match block:
            case Text() if block.text.strip():
                return (as_typed(block.text) if entry.role == "user" else block.text)[:EXCERPT_CHARS]
            case ToolResult():
                call = view.call(block.call_id)
                asked = call_summary(call.arguments)[:EXCERPT_CHARS] if call is not None else ""
                return ": ".join(part for part in (asked, block.text[:EXCERPT_CHARS].strip()) if part)
            case ToolCall():
                return f"{block.name} {call_summary(block.arguments)}"[:EXCERPT_CHARS]
            case Image():
                return "[image]"
            case _:
                pass
    return "[reasoning]" if any(isinstance(block, Reasoning) for block in entry.blocks) else ""


def item_line(item: Item, excerpt: str) -> str:
    """An item on a line, without its number: kind, estimated tokens, state, and the start of its text."""
    state = ", ".join(filter(None, ("pinned" if item.pinned else "", "" if item.state == "verbatim" else item.state)))
    name = tool_title(one_line(item.name)) or ITEM_NAMES.get(item.category, item.category)
    begins = one_line(excerpt, ITEM_CHARS)
    return f"{name:<12}{estimate(item.full):>7,} tokens  {state and f'{state}  '}{begins}".rstrip()


def original(view: View, seq: int) -> str:
    """The full text of a message or result in the log; untrusted text."""
    entry = _said(view, seq)
    if entry is None:
        return ""
    parts = [text_of(entry.blocks, Reasoning), text_of(entry.blocks, Text)]
    for block in entry.blocks:
        match block:
            case ToolCall():
                parts.append(f"{block.name} {block.arguments}")
            case ToolResult():
                parts.append(block.text)
            case _:
                pass
    return "\n\n".join(part for part in parts if part)


def _said(view: View, seq: int) -> Message | None:
    if not 1 <= seq <= len(view.log):
        return None
    entry = view.log[seq]
    if isinstance(entry, Delivered):
        queued = view.log[entry.queued]
        return Message(role="user", blocks=queued.blocks) if isinstance(queued, Queued) else None
    return entry if isinstance(entry, Message) else None
