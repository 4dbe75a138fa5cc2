"""Clearing: replaces old tool results by placeholders.

It acts above a threshold, earlier if the freed tokens pay for the invalidated cache, or at once if the cache is cold
anyway. It always clears a batch that frees a good share of the window, so that while the threshold stays exceeded it
does not act on every call (docs/context.md, "Layers" and "Cost").
"""

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

import msgspec

from tui_agent.context.counting import estimate
from tui_agent.context.cutting import quoted
from tui_agent.context.economics import Situation, clearing_size
from tui_agent.context.effects import NotYet
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import Cleared
from tui_agent.conversation.sizes import TextSize, size_of_text, total_size
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.conversation.view import LiveResult, View
from tui_agent.settings import ClearingSettings

ARGUMENTS_SHOWN = 160
"""Characters of a call's arguments in its placeholder."""

STARTS = 16
"""How many different starts of a batch are compared."""

LEAST_BATCH = 200
"""Tokens that a batch must free however small the window: fewer are not worth a changed prefix."""

PLACEHOLDER_TOKENS = 50
"""Approximate tokens of a placeholder."""

NeverCleared: TypeAlias = Callable[[ToolCall], bool]


def never_cleared(settings: ClearingSettings, folders: Iterable[str] = ()) -> NeverCleared:
    """A function that says which calls' results are never cleared: those of the tools named in the settings, reads of
    a skill (``SKILL.md``), and reads below `folders` (of memory and skills).
    """
    names = frozenset(settings.never_clear)
    signs = ("SKILL.md", *(f"{folder.rstrip('/')}/" for folder in folders if folder.strip("/")))
    return lambda call: (
        call.name in names or (call.name == "read_file" and any(map(call.arguments.__contains__, signs)))
    )


class Candidate(msgspec.Struct, frozen=True):
    """A result that may be cleared, its placeholder, the size that frees, and the size of what follows it."""

    seq: int
    text: str
    freed: TextSize
    after: TextSize


class ClearingBatch(msgspec.Struct, frozen=True):
    """Results to clear, oldest first. freed: tokens by which the request shrinks. tail: tokens after the first of them
    that stay.
    """

    found: list[Candidate]
    freed: int
    tail: int

    def entry(self, situation: Situation, reason: str) -> Cleared:
        """The entry, with the request's size in tokens before and after."""
        return Cleared(
            results=tuple(each.seq for each in self.found),
            texts=tuple(each.text for each in self.found),
            reason=reason,
            before=situation.tokens,
            after=max(0, situation.tokens - self.freed),
        )


class ClearingLayer(msgspec.Struct, frozen=True):
    """The layer. `never`: says which calls' results are never cleared (default: those named in the settings)."""

    never: NeverCleared | None = None

    def plan(self, view: View, situation: Situation) -> Cleared | NotYet | None:
        """The clearing that is due now, or the tokens of all results before which none can pay."""
        settings = situation.settings.clearing
        if situation.settings.context.preset not in ("layered", "digest"):
            return None
        threshold, everything = situation.limits.clear, situation.tokens_of(view.sizes()["results"])
        smallest, passed = smallest_batch(settings, situation), threshold.reached(situation.tokens)
        priced = settings.by_price and situation.rates is not None and situation.rates.read > 0
        may_pay = priced and (situation.cold or (everything >= situation.least_results and situation.growth > 0))
        if everything < smallest or not (passed or may_pay):
            return None
        found = self.candidates(view, situation)
        if not found:
            return NotYet(everything + smallest / 2)
        batch, missing = _batch(found, situation), None
        if priced and situation.cold:
            reason = "cache is cold: clearing is free"
            return batch.entry(situation, reason) if batch.freed >= smallest else None
        if priced:
            paying = _paying(found, situation, smallest)
            if isinstance(paying, Cleared):
                return paying
            missing = NotYet(everything + paying / 2) if paying is not None else None
        if passed and batch.freed >= smallest and threshold_decides(situation):
            return batch.entry(situation, f"the view passed {threshold.tokens:,} tokens ({threshold.source})")
        return missing

    def asked_for(
        self,
        view: View,
        situation: Situation,
        *,
        keep: int | None = None,
        only: Collection[int] | None = None,
        reason: str = "asked for",
    ) -> Cleared | None:
        """Clear all old results except the newest `keep` (default: from the settings), or `only` these, however little
        that frees.
        """
        found = self.candidates(view, situation, force=True, keep=keep)
        found = [each for each in found if only is None or each.seq in only]
        return _batch(found, situation).entry(situation, reason) if found else None

    def candidates(
        self, view: View, situation: Situation, *, force: bool = False, keep: int | None = None
    ) -> list[Candidate]:
        """The results that may be cleared, oldest first: not pins, the newest `keep` results and those never cleared.

        `force`: also results in the protected tail, and those that the user restored.
        """
        settings, never = situation.settings.clearing, self.never or never_cleared(situation.settings.clearing)
        protected = 0 if force else protected_tokens(settings, situation.budget.window)
        # Results whose clearing the user has undone are not cleared again automatically.
        undone = (entry for entry, counts in view.context_entries() if isinstance(entry, Cleared) and not counts)
        given_back = set() if force else {seq for entry in undone for seq in entry.results}
        found: list[Candidate] = []
        for result in view.live_results()[settings.keep if keep is None else keep :]:
            if result.pinned or result.seq in given_back or never(result.call):
                continue
            if result.state == "restored" and not force:
                continue
            if protected and situation.tokens_of(result.after) < protected:
                continue
            protected = 0
            text = placeholder(result)
            freed = result.size.minus(size_of_text(text))
            if estimate(freed) > 0:
                found.append(Candidate(result.seq, text, freed, result.after))
        found.reverse()
        return found


def protected_tokens(settings: ClearingSettings, window: int) -> int:
    """Tokens at the end of the conversation in which nothing is cleared."""
    return min(settings.protect_tokens, int(window * settings.protect_share)) if window else settings.protect_tokens


def smallest_batch(settings: ClearingSettings, here: Situation) -> int:
    """The fewest tokens that a clearing must free: a share of the request at which a summary is due or, while the cache
    is cold and clearing costs nothing, of the next one if that is smaller.
    """
    share, most = settings.min_batch_share, here.limits.compact.tokens or here.budget.window or here.tokens
    return max(LEAST_BATCH, round((min(most, here.tokens) if here.cold else most) * share)) if share else 1


def placeholder(result: LiveResult) -> str:
    """The text in place of a cleared result: what it was, and how to get it back."""
    call, artifact = result.call, result.artifact
    shown = call.arguments if len(call.arguments) <= ARGUMENTS_SHOWN else f"{call.arguments[:ARGUMENTS_SHOWN]}..."
    what = f"[cleared] {call.name} {shown}: {result.size.characters:,} characters."
    if artifact is not None:
        return f"{what} The whole is kept: read_file(path={quoted(artifact.path)})."
    if facts_of(call.name).repeatable:
        return f"{what} Call it again to see it as it is now, or recall it as it was."
    return f"{what} Use recall with words from it to see it again."


def _paying(found: list[Candidate], situation: Situation, smallest: int) -> Cleared | float | None:
    """The largest batch that pays for the cache it invalidates, of several with ever later starts; else how many tokens
    were missing; None if that cannot be said.
    """
    shortfall = float(smallest)
    for start in range(0, len(found), max(1, len(found) // STARTS)):
        batch = _batch(found[start:], situation)
        needed = clearing_size(situation.rates, batch.tail, situation.growth)
        if needed is None:
            return None
        if batch.freed >= max(smallest, needed):
            reason = f"it pays: {batch.freed:,} freed tokens outweigh writing {batch.tail:,} anew"
            return batch.entry(situation, f"{reason} (from {needed:,.0f} on)")
        shortfall = min(shortfall, max(smallest, needed) - batch.freed)
    return shortfall


def threshold_decides(here: Situation) -> bool:
    """Whether passing the threshold is reason enough to clear: where prices do not say when it pays, or no summary
    comes by itself, which is the better way to make room.
    """
    rates, compact = here.rates, here.limits.compact
    priced = here.settings.clearing.by_price and rates is not None and rates.read > 0 and here.growth_of_all > 0
    return not priced or not here.settings.compaction.auto or here.resting or compact.rests


def _batch(found: list[Candidate], situation: Situation) -> ClearingBatch:
    size = total_size(each.freed for each in found)
    later = size.minus(found[0].freed)
    return ClearingBatch(found, situation.tokens_of(size), max(0, situation.tokens_of(found[0].after.minus(later))))
