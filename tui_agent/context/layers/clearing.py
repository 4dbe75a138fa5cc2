"""Clearing: replaces old tool results by placeholders.

It acts above a threshold, earlier if the freed tokens pay for the invalidated cache, or at once if the cache is cold
anyway. It always clears a batch that frees a good share of the window, so that while the threshold stays exceeded it
does not act on every call (docs/context.md, "Layers" and "Cost").
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from msgspec import structs

from tui_agent.context.budget import Threshold
from tui_agent.context.counting import estimate
from tui_agent.context.economics import LayerPreview, Situation, clearing_size, layer_preview, pays_or_waits
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import AnyContextEntry, Cleared
from tui_agent.conversation.sizes import Size, size_of_text
from tui_agent.conversation.view import LiveResult, View
from tui_agent.settings import Clearing as ClearingSettings

ARGUMENTS_SHOWN = 160
"""Characters of a call's arguments in its placeholder."""

STARTS = 16
"""How many different starts of a batch are compared."""

PLACEHOLDER_TOKENS = 50
"""Approximate tokens of a placeholder."""

REPEATABLE = frozenset({"read_file", "list_dir", "glob", "grep", "fetch_url"})
"""Tools whose calls can simply be repeated."""

Stays: TypeAlias = Callable[[ToolCall], bool]


class Clearing:
    """The layer. `never`: tells which calls' results are never cleared."""

    name = "clearing"

    def __init__(self, settings: ClearingSettings, never: "Stays", *, on: bool = True) -> None:
        self.never = never
        self._settings = settings
        self._on = on
        self._next_look = NextLook()

    def plan(self, view: View, situation: Situation) -> Cleared | None:
        """The clearing that is due now."""
        if not self._on:
            return None
        threshold = situation.limits.clear
        return plan_clearing(view, situation, self._settings, threshold, never=self.never, next_look=self._next_look)

    def asked_for(
        self, view: View, situation: Situation, *, keep: int | None = None, only: Collection[int] | None = None
    ) -> Cleared | None:
        """Clear all old results except the newest `keep` (default: from the settings), or `only` these, however little
        that frees.
        """
        settings = self._settings if keep is None else structs.replace(self._settings, keep=keep)
        threshold = situation.limits.clear
        return plan_clearing(view, situation, settings, threshold, never=self.never, force=True, only=only)

    def preview(self, view: View, here: Situation) -> LayerPreview:
        """What it would do now, from running sizes and prices alone."""
        settings, rates = self._settings, here.rates
        protected = protected_tokens(settings, here.budget.window)
        before = view.before_tail(lambda size: here.tokens_of(size) <= protected)
        frees = here.tokens_of(before.results) - before.result_count * PLACEHOLDER_TOKENS
        if frees <= 0 or view.live_count() <= settings.keep:
            return LayerPreview(why=f"nothing to clear yet: the newest {settings.keep} results, pins and the tail stay")
        least, tail = smallest_batch(settings, here.budget.window), here.mixed_tokens_of(before.tail)
        why = ""
        if frees < least:
            why = f"not before {least:,} tokens can be freed in one batch"
        elif _is_priced(here, settings) and here.cold:
            why = "now: the cache is cold, so clearing costs nothing"
        elif settings.by_price and (needed := clearing_size(rates, tail, here.growth)) is not None:
            why = pays_or_waits(frees, max(least, needed))
        written = 0.0 if here.cold or rates is None else max(0.0, rates.write - rates.read) * tail
        return layer_preview(frees, written, rates, why)


class Batch(NamedTuple):
    """Results to clear, oldest first, with their placeholders.

    freed: tokens by which the request shrinks. tail: tokens after the first of them that stay.
    """

    results: tuple[int, ...]
    texts: tuple[str, ...]
    freed: int
    tail: int

    def entry(self, situation: Situation, reason: str) -> Cleared:
        """The entry, with the request's size in tokens before and after."""
        return Cleared(
            results=self.results,
            texts=self.texts,
            reason=reason,
            before=situation.tokens,
            after=max(0, situation.tokens - self.freed),
        )


@dataclass(slots=True)
class NextLook:
    """When to examine the results again, so that a clearing that does not pay yet is not computed at every call.

    Owned by the caller, one for each conversation. `tokens`: the size that all results must reach first.
    """

    tokens: float = 0.0
    seen: float = 0.0

    def waits(self, everything: float) -> bool:
        """Whether it is too early, with results of `everything` tokens in view. Any edit of the view ends the wait."""
        if everything < self.seen:
            self.tokens = 0.0
        self.seen = everything
        return everything < self.tokens

    def missed(self, shortfall: float) -> None:
        """Note that `shortfall` tokens were missing: the next look is due half way there."""
        self.tokens = self.seen + shortfall / 2


def stays(settings: ClearingSettings, folders: Iterable[str] = ()) -> Stays:
    """A function that tells which calls' results are never cleared: those of the tools named in the settings, reads of
    a skill (``SKILL.md``), and reads below `folders` (of memory and skills).
    """
    names = frozenset(settings.never_clear)
    signs = ("SKILL.md", *(f"{folder.rstrip('/')}/" for folder in folders if folder.strip("/")))

    def decide(call: ToolCall) -> bool:
        if call.name in names:
            return True
        if call.name != "read_file":
            return False
        return any(map(call.arguments.__contains__, signs))

    return decide


def plan_clearing(
    view: View,
    situation: Situation,
    settings: ClearingSettings,
    threshold: Threshold,
    *,
    never: Stays | None = None,
    force: bool = False,
    next_look: NextLook | None = None,
    only: Collection[int] | None = None,
) -> Cleared | None:
    """The clearing that is due now, or None.

    `never`: see `stays`. `force`: clear all old results, however small, even in the protected tail; pins, the newest
    results and those of `never` stay. `next_look`: makes most calls independent of the number of results. `only`: clear
    no other results.
    """
    next_look = next_look or NextLook()
    if not force and not _may_be_due(view, situation, settings, threshold, next_look):
        return None
    found = candidates(view, situation, settings, never=never, force=force)
    if only is not None:
        found = [each for each in found if each.seq in only]
    if not found:
        next_look.missed(smallest_batch(settings, situation.budget.window))
        return None
    if force:
        return _batch(found, situation).entry(situation, "asked for")
    if _is_priced(situation, settings):
        if situation.cold:
            return _large_enough(_batch(found, situation), situation, settings, "cache is cold: clearing is free")
        early = _paying(found, situation, settings, next_look)
        if early is not None:
            return early
    if threshold.reached(situation.tokens):
        reason = f"the view passed {threshold.tokens:,} tokens ({threshold.source})"
        return _large_enough(_batch(found, situation), situation, settings, reason)
    return None


class Candidate(NamedTuple):
    """A result that may be cleared, its placeholder, the size that frees, and the size of what follows it."""

    seq: int
    text: str
    freed: Size
    after: Size


def candidates(
    view: View,
    situation: Situation,
    settings: ClearingSettings,
    *,
    never: Stays | None = None,
    force: bool = False,
) -> list[Candidate]:
    """The results that may be cleared, oldest first."""
    never = never or stays(settings)
    protected = 0 if force else protected_tokens(settings, situation.budget.window)
    given_back = set() if force else _restored_by_user(view.context_entries())
    found: list[Candidate] = []
    for result in view.live_results()[settings.keep :]:
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


def smallest_batch(settings: ClearingSettings, window: int) -> int:
    """The fewest tokens that a clearing must free."""
    return max(1, round(window * settings.min_batch_share))


def placeholder(result: LiveResult) -> str:
    """The text in place of a cleared result: what it was, and how to get it back."""
    call, artifact = result.call, result.artifact
    told = call.arguments if len(call.arguments) <= ARGUMENTS_SHOWN else f"{call.arguments[:ARGUMENTS_SHOWN]}..."
    what = f"[cleared] {call.name} {told}: {result.size.characters:,} characters."
    if artifact is not None:
        path = artifact.path.replace("\\", "\\\\").replace('"', '\\"')
        return f'{what} The whole is kept: read_file(path="{path}").'
    if call.name in REPEATABLE:
        return f"{what} Call it again to see it as it is now, or recall it as it was."
    return f"{what} Use recall with words from it to see it again."


def _is_priced(situation: Situation, settings: ClearingSettings) -> bool:
    return settings.by_price and situation.rates is not None and situation.rates.read > 0


def _may_be_due(
    view: View, situation: Situation, settings: ClearingSettings, threshold: Threshold, next_look: NextLook
) -> bool:
    """Whether to examine the results one by one: all of them together would be enough for a batch."""
    everything = situation.tokens_of(view.sizes()["results"])
    waits = next_look.waits(everything)
    if everything < smallest_batch(settings, situation.budget.window):
        return False
    if threshold.reached(situation.tokens):
        return True
    return _is_priced(situation, settings) and (situation.cold or (not waits and situation.growth > 0))


def _paying(
    found: list[Candidate], situation: Situation, settings: ClearingSettings, next_look: NextLook
) -> Cleared | None:
    """The largest batch that pays for the cache it invalidates, of several with ever later starts."""
    smallest = smallest_batch(settings, situation.budget.window)
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
    next_look.missed(shortfall)
    return None


def _large_enough(batch: Batch, situation: Situation, settings: ClearingSettings, reason: str) -> Cleared | None:
    if batch.freed < smallest_batch(settings, situation.budget.window):
        return None
    return batch.entry(situation, reason)


def _batch(found: list[Candidate], situation: Situation) -> Batch:
    freed = [each.freed for each in found]
    size = Size(sum(one.ascii for one in freed), sum(one.other for one in freed), sum(one.images for one in freed))
    later = size.minus(found[0].freed)
    return Batch(
        tuple(each.seq for each in found),
        tuple(each.text for each in found),
        situation.tokens_of(size),
        max(0, situation.tokens_of(found[0].after.minus(later))),
    )


def _restored_by_user(entries: Collection[tuple[AnyContextEntry, bool]]) -> set[int]:
    """Results whose clearing the user has undone: they are not cleared again automatically."""
    return {seq for entry, counts in entries if isinstance(entry, Cleared) and not counts for seq in entry.results}
