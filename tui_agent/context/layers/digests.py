"""Digests: replaces the oldest tool results by one short text on all of them.

A digest may be due when more results are in view than the cutoff. Results that are pinned, restored, cleared or
archived already neither count nor are archived. It waits until what it frees pays for the cache it invalidates, as a
clearing does, or for a batch if prices are unknown. Each archived result is shown as a placeholder, so that its call
stays answered.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from tui_agent.context.compaction.questions import fill
from tui_agent.context.compaction.rendering import cut, material
from tui_agent.context.economics import Situation, clearing_size
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Digested, Message
from tui_agent.conversation.sizes import Size, size_of_text, total_size
from tui_agent.conversation.view import LiveResult, View
from tui_agent.settings import Digests as DigestSettings

PLACEHOLDER: Final = "[archived: see digest]"
PREFIX: Final = "[Tool digest]"
COMPACTION_PREFIX: Final = "[Compaction tool digest]"

_VISIBLE: Final = ("verbatim", "preview")
_ARGUMENTS_CHARS: Final = 120
_SHORTEST_LINE: Final = 80


class DigestPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The results to archive, before the digest's text is written.

    instruction, material: system prompt and user message for a model. by_rule: the digest made without one. prefix: the
    digest's first line.
    """

    results: tuple[int, ...]
    prefix: str
    instruction: str
    material: str
    by_rule: str
    output_chars: int
    reason: str


class Digests:
    """The layer. `prompt`: the prompt file ``digest``."""

    name = "digests"

    def __init__(self, settings: DigestSettings, prompt: str, *, on: bool = True) -> None:
        self._settings = settings
        self._prompt = prompt
        self._on = on

    def plan(self, view: View, situation: Situation) -> DigestPlan | None:
        """The digest that is due now."""
        plan = self._plan(view, 0, PREFIX)
        return plan if plan is not None and self._pays(plan, view, situation) else None

    def _pays(self, plan: DigestPlan, view: View, here: Situation) -> bool:
        """Whether a digest now is cheaper than to wait for more results. While the cache is cold it always is."""
        if here.cold:
            return True
        archived = [result for result in view.live_results() if result.seq in plan.results]
        # The digest takes the place of the first of them.
        text = Size(ascii=plan.output_chars + len(PLACEHOLDER) * len(archived))
        size = total_size(result.size for result in archived)
        writing = 0.0
        if self._settings.strategy == "llm" and here.rates is not None:
            by = here.small_rates or here.rates
            price = by.input_usd / here.rates.input_usd if here.rates.input_usd else 1.0
            read = here.mixed_tokens_of(size_of_text(plan.instruction, plan.material))
            writing = price * (read + by.output * here.mixed_tokens_of(Size(ascii=plan.output_chars)))
        tail = here.mixed_tokens_of(archived[-1].after.minus(size).plus(archived[-1].size))
        needed = clearing_size(here.rates, tail, here.growth, writing=writing)
        if needed is None:
            return len(archived) >= self._settings.cutoff
        return here.tokens_of(size.minus(text)) >= needed

    def plan_after(self, view: View, first: int) -> DigestPlan | None:
        """The digest inside a compaction that keeps the entries from `first` on."""
        return self._plan(view, first, COMPACTION_PREFIX)

    def _plan(self, view: View, first: int, prefix: str) -> DigestPlan | None:
        if not self._on:
            return None
        plan = plan_digest(view, self._settings, self._prompt, first=first, prefix=prefix)
        return None if isinstance(plan, Refusal) else plan


class _Result(NamedTuple):
    call: ToolCall
    text: str
    is_error: bool


def plan_digest(
    view: View, settings: DigestSettings, prompt: str, *, first: int = 0, prefix: str = PREFIX
) -> DigestPlan | Refusal:
    """Plan the digest that brings the number of visible results down to the cutoff.

    `prompt`: the prompt file ``digest``. Inside a compaction, `first` is the first kept entry and `prefix`
    `COMPACTION_PREFIX`.
    """
    if settings.strategy == "off":
        return Refusal("Digests are off.")
    visible = [result for result in reversed(view.live_results()) if result.seq >= first and _counts(result)]
    excess = len(visible) - settings.cutoff
    if excess <= 0:
        return Refusal(f"{len(visible)} tool results are in view, {settings.cutoff} may be.")
    oldest = visible[:excess]
    results = [_result(view, live) for live in oldest]
    return DigestPlan(
        results=tuple(live.seq for live in oldest),
        prefix=prefix,
        instruction=fill(prompt, {"characters": str(settings.output_chars)}),
        material=_material(results, settings.input_chars),
        by_rule=cut("\n".join(_by_rule(results, settings.heuristic_chars)), settings.heuristic_chars),
        output_chars=settings.output_chars,
        reason=f"{len(visible)} tool results were in view, more than {settings.cutoff}.",
    )


def accept_digest(plan: DigestPlan, text: str = "", *, before: int = 0, after: int = 0) -> Digested:
    """The entry for a digest that a model wrote; without a usable text, for the one made by rule."""
    text = text.strip().removeprefix(plan.prefix).strip()
    usable = any(character.isalnum() for character in text)
    body = cut(text, plan.output_chars) if usable else plan.by_rule
    return Digested(
        results=plan.results,
        placeholder=PLACEHOLDER,
        text=f"{plan.prefix}\n{body}",
        reason=plan.reason,
        before=before,
        after=after,
    )


def _counts(result: LiveResult) -> bool:
    return result.state in _VISIBLE and not result.pinned


def _result(view: View, live: LiveResult) -> _Result:
    entry = view.log[live.seq]
    blocks = entry.blocks if isinstance(entry, Message) else ()
    for block in blocks:
        if isinstance(block, ToolResult) and block.call_id == live.call.id:
            return _Result(live.call, block.text, block.is_error)
    return _Result(live.call, "", False)


def _title(result: _Result) -> str:
    failed = " failed" if result.is_error else ""
    arguments = cut(result.call.arguments, _ARGUMENTS_CHARS).replace("\n", " ")
    return f"{result.call.name} {arguments}{failed}"


def _material(results: list[_Result], limit: int) -> str:
    """All results in at most `limit` characters, including the frame; long ones share what short ones leave over."""
    titles = [f"[{_title(result)}]\n" for result in results]
    left = limit - len(material(())) - sum(len(title) + 2 for title in titles)
    room = dict(_shares((len(result.text) for result in results), max(0, left)))
    parts = [
        title + cut(result.text, room[index]) for index, (title, result) in enumerate(zip(titles, results, strict=True))
    ]
    return cut(material(parts), limit)


def _by_rule(results: list[_Result], limit: int) -> list[str]:
    """One line for each result, with its head and tail; together they may still be too long."""
    share = max(_SHORTEST_LINE, limit // len(results))
    lines = []
    for result in results:
        title = _title(result)
        lines.append(
            f"- {title}: {_ends(' '.join(result.text.split()), max(_SHORTEST_LINE // 2, share - len(title) - 5))}"
        )
    return lines


def _ends(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - limit // 3 - 1]}…{text[-(limit // 3) :]}"


def _shares(wanted: Iterable[int], room: int) -> Iterable[tuple[int, int]]:
    """How much of `room` each gets: small ones get all they want, the others share the rest evenly."""
    waiting = sorted((want, index) for index, want in enumerate(wanted))
    for position, (want, index) in enumerate(waiting):
        given = min(want, room // (len(waiting) - position))
        room -= given
        yield index, given
