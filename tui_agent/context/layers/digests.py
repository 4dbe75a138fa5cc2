"""Digests: replaces the oldest tool results by one short text on all of them.

A digest may be due when more results are in view than the cutoff. Results that are pinned, restored, cleared or
archived already neither count nor are archived. It waits until what it frees pays for the cache it invalidates, as a
clearing does, or for a batch if prices are unknown; right after a summary it is due at once. Each archived result is
shown as a placeholder, so that its call stays answered.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tui_agent.context.compaction.forms import cut, fill
from tui_agent.context.compaction.material import as_material
from tui_agent.context.compaction.writing import answer_tokens, question
from tui_agent.context.economics import Situation, clearing_size
from tui_agent.context.effects import Answer, Steps
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import Digested
from tui_agent.conversation.sizes import TextSize, size_of_text, total_size
from tui_agent.conversation.states import result_of
from tui_agent.conversation.view import View
from tui_agent.settings.schema import DigestSettings

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


class DigestLayer(msgspec.Struct, frozen=True):
    """The layer. `prompt`: the prompt file ``digest``."""

    prompt: str

    def plan(self, view: View, situation: Situation) -> DigestPlan | None:
        if situation.settings.context.preset != "digest":
            return None
        settings, first = situation.settings.digests, situation.kept_from
        if first is not None:
            return plan_digest(view, settings, self.prompt, first=first, prefix=COMPACTION_PREFIX)
        plan = plan_digest(view, settings, self.prompt)
        return plan if plan is not None and _pays(plan, view, situation) else None


def _pays(plan: DigestPlan, view: View, here: Situation) -> bool:
    """Whether a digest now is cheaper than to wait for more results. While the cache is cold it always is."""
    if here.cold:
        return True
    archived = [result for result in view.live_results() if result.seq in plan.results]
    # The digest takes the place of the first of them.
    text = TextSize(ascii=plan.output_chars + len(PLACEHOLDER) * len(archived))
    size = total_size(result.size for result in archived)
    writing = 0.0
    if here.settings.digests.strategy == "llm" and here.rates is not None:
        by = here.small_rates or here.rates
        price = by.input_usd / here.rates.input_usd if here.rates.input_usd else 1.0
        read = here.mixed_tokens_of(size_of_text(plan.instruction, plan.material))
        writing = price * (read + by.output * here.mixed_tokens_of(TextSize(ascii=plan.output_chars)))
    tail = here.mixed_tokens_of(archived[-1].after.minus(size).plus(archived[-1].size))
    needed = clearing_size(here.rates, tail, here.growth, writing=writing)
    if needed is None:
        return len(archived) >= here.settings.digests.cutoff
    return here.tokens_of(size.minus(text)) >= needed


class _Result(msgspec.Struct, frozen=True):
    call: ToolCall
    text: str
    is_error: bool

    @property
    def title(self) -> str:
        arguments = cut(self.call.arguments, _ARGUMENTS_CHARS).replace("\n", " ")
        return f"{self.call.name} {arguments}{' failed' if self.is_error else ''}"


def plan_digest(
    view: View, settings: DigestSettings, prompt: str, *, first: int = 0, prefix: str = PREFIX
) -> DigestPlan | None:
    """Plan the digest that brings the number of visible results down to the cutoff; None if it is not above that.

    `prompt`: the prompt file ``digest``. Inside a compaction, `first` is the first kept entry and `prefix`
    `COMPACTION_PREFIX`.
    """
    live = [each for each in reversed(view.live_results()) if each.state in _VISIBLE and not each.pinned]
    visible = [each for each in live if each.seq >= first]
    excess = len(visible) - settings.cutoff
    if settings.strategy == "off" or excess <= 0:
        return None
    whole = ((each.call, result_of(view.log, each.seq, each.call.id)) for each in visible[:excess])
    results = [_Result(call, result.text, result.is_error) for call, result in whole]
    return DigestPlan(
        results=tuple(each.seq for each in visible[:excess]),
        prefix=prefix,
        instruction=fill(prompt, {"characters": str(settings.output_chars)}),
        material=_material(results, settings.input_chars),
        by_rule=cut("\n".join(_by_rule(results, settings.heuristic_chars)), settings.heuristic_chars),
        output_chars=settings.output_chars,
        reason=f"{len(visible)} tool results were in view, more than {settings.cutoff}.",
    )


def write_digest(plan: DigestPlan, here: Situation) -> Steps[Digested]:
    """Have the text of a digest written. If a model fails, it is made by rule."""
    text = ""
    if here.settings.digests.strategy == "llm":
        small = here.model.small
        writes = answer_tokens(small.window if small is not None else here.budget.window)
        tokens = (len(plan.instruction) + len(plan.material)) // 3
        answer = yield question(
            plan.instruction, plan.material, "digest", small=small is not None, writes=writes, tokens=tokens
        )
        text = answer.text if isinstance(answer, Answer) else ""
    return accept_digest(plan, text, before=here.tokens)


def accept_digest(plan: DigestPlan, text: str = "", *, before: int = 0) -> Digested:
    """The entry for a digest that a model wrote; without a usable text, for the one made by rule."""
    text = text.strip().removeprefix(plan.prefix).strip()
    usable = any(character.isalnum() for character in text)
    body = cut(text, plan.output_chars) if usable else plan.by_rule
    return Digested(
        results=plan.results, placeholder=PLACEHOLDER, text=f"{plan.prefix}\n{body}", reason=plan.reason, before=before
    )


def _material(results: list[_Result], limit: int) -> str:
    """All results in at most `limit` characters, including the frame; long ones share what short ones leave over."""
    titles = [f"[{result.title}]\n" for result in results]
    left = limit - len(as_material(())) - sum(len(title) + 2 for title in titles)
    room = dict(_shares((len(result.text) for result in results), max(0, left)))
    parts = [
        title + cut(result.text, room[index]) for index, (title, result) in enumerate(zip(titles, results, strict=True))
    ]
    return cut(as_material(parts), limit)


def _by_rule(results: list[_Result], limit: int) -> Iterable[str]:
    """One line for each result, with its head and tail; together they may still be too long."""
    share = max(_SHORTEST_LINE, limit // len(results))
    for result in results:
        text, room = " ".join(result.text.split()), max(_SHORTEST_LINE // 2, share - len(result.title) - 5)
        ends = text if len(text) <= room else f"{text[: room - room // 3 - 1]}…{text[-(room // 3) :]}"
        yield f"- {result.title}: {ends}"


def _shares(wanted: Iterable[int], room: int) -> Iterable[tuple[int, int]]:
    """How much of `room` each gets: small ones get all they want, the others share the rest evenly."""
    waiting = sorted((want, index) for index, want in enumerate(wanted))
    for position, (want, index) in enumerate(waiting):
        given = min(want, room // (len(waiting) - position))
        room -= given
        yield index, given
