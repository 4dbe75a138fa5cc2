"""Clearing old tool results: which ones, when, and what stands in their place.

It happens above a threshold, or earlier where the freed tokens pay for the cache they invalidate, or at once where the
cache is cold anyway. Always in one batch that frees a fair share of the window, so that a threshold that stays exceeded
does not clear call by call (README, reference: layers, cost).
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tui_agent.context.counting import estimate
from tui_agent.context.pricing import clearing_size
from tui_agent.context.situation import Situation
from tui_agent.context.thresholds import Threshold
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import AnyContextEntry, Artifact, Cleared
from tui_agent.conversation.sizes import Size, size_of_text
from tui_agent.conversation.view import LiveResult, View
from tui_agent.settings import Clearing

ARGUMENTS_SHOWN = 160
"""Characters of a call's arguments that its placeholder repeats."""

STARTS = 16
"""How many places to begin a batch at are weighed against each other."""

AGAIN = frozenset({"read_file", "list_dir", "glob", "grep", "fetch_url"})
"""Tools that can simply be called again."""

Stays: TypeAlias = Callable[[ToolCall], bool]
Locate: TypeAlias = Callable[[Artifact], str]


class Batch(NamedTuple):
    """Results to clear, oldest first, and what stands in each one's place.

    `freed` is what the request loses by it, `tail` what follows the first of them and stays, both in tokens.
    """

    results: tuple[int, ...]
    texts: tuple[str, ...]
    freed: int
    tail: int

    def entry(self, situation: Situation, reason: str) -> Cleared:
        """The decision, with the view's size in tokens before and after."""
        return Cleared(
            results=self.results,
            texts=self.texts,
            reason=reason,
            before=situation.tokens,
            after=max(0, situation.tokens - self.freed),
        )


@dataclass(slots=True)
class Watch:
    """When to look again, so that a clearing that does not pay yet is not worked out at every call.

    Owned by the caller, one for each conversation. `tokens` is how large all results must have become.
    """

    tokens: float = 0.0
    seen: float = 0.0

    def waits(self, everything: float) -> bool:
        """Whether it is too early, with results of `everything` tokens in view; any edit ends the wait."""
        if everything < self.seen:
            self.tokens = 0.0
        self.seen = everything
        return everything < self.tokens

    def missed(self, shortfall: float) -> None:
        """A look found `shortfall` tokens too few: the next one is due half way there."""
        self.tokens = self.seen + shortfall / 2


def stays(settings: Clearing, folders: Iterable[str] = ()) -> Stays:
    """Which calls' results are never cleared: those of the tools named in the settings, reads of a skill
    (``SKILL.md``), and reads of anything below `folders` (the memory's and the skills').
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


def plan(
    view: View,
    situation: Situation,
    settings: Clearing,
    threshold: Threshold,
    *,
    never: Stays | None = None,
    locate: Locate | None = None,
    force: bool = False,
    watch: Watch | None = None,
    only: Collection[int] | None = None,
) -> Cleared | None:
    """The clearing that is due now, or None.

    `never`: see `stays`; `locate` says under which path the model can read an artifact. `force` clears all that is old,
    however little it is, also in the protected tail; pins, the newest results and what never is cleared stay. With a
    `watch` the cost of most calls does not depend on the number of results. `only`: nothing but these results.
    """
    watch = watch or Watch()
    if not force and not _may_be_due(view, situation, settings, threshold, watch):
        return None
    found = candidates(view, situation, settings, never=never, locate=locate, force=force)
    if only is not None:
        found = [each for each in found if each.seq in only]
    if not found:
        watch.missed(smallest_batch(settings, situation.budget.window))
        return None
    if force:
        return _batch(found, situation).entry(situation, "asked for by the user")
    if _is_priced(situation, settings):
        if situation.cold:
            return _large_enough(_batch(found, situation), situation, settings, "cache is cold: clearing is free")
        early = _paying(found, situation, settings, watch)
        if early is not None:
            return early
    if threshold.reached(situation.tokens):
        reason = f"the view passed {threshold.tokens:,} tokens ({threshold.source})"
        return _large_enough(_batch(found, situation), situation, settings, reason)
    return None


class Candidate(NamedTuple):
    """A result that may be cleared, what would stand in its place, what that frees, and what follows it."""

    seq: int
    text: str
    freed: Size
    after: Size


def candidates(
    view: View,
    situation: Situation,
    settings: Clearing,
    *,
    never: Stays | None = None,
    locate: Locate | None = None,
    force: bool = False,
) -> list[Candidate]:
    """The results that may be cleared, oldest first."""
    never = never or stays(settings)
    protected = 0 if force else protected_tokens(settings, situation.budget.window)
    given_back = set() if force else _given_back(view.context_entries())
    found: list[Candidate] = []
    for result in view.live_results()[settings.keep :]:
        if result.pinned or result.seq in given_back or never(result.call):
            continue
        if result.state == "restored" and not force:
            continue
        if protected and situation.tokens_of(result.after) < protected:
            continue
        protected = 0
        text = placeholder(result, locate)
        freed = result.size.minus(size_of_text(text))
        if estimate(freed) > 0:
            found.append(Candidate(result.seq, text, freed, result.after))
    found.reverse()
    return found


def protected_tokens(settings: Clearing, window: int) -> int:
    """The tokens at the end of the conversation in which nothing is cleared."""
    return min(settings.protect_tokens, int(window * settings.protect_share)) if window else settings.protect_tokens


def smallest_batch(settings: Clearing, window: int) -> int:
    """The tokens a clearing must free at least."""
    return max(1, round(window * settings.min_batch_share))


def placeholder(result: LiveResult, locate: Locate | None = None) -> str:
    """What stands in a cleared result's place: what it was, and how to get it back."""
    call, artifact = result.call, result.artifact
    told = call.arguments if len(call.arguments) <= ARGUMENTS_SHOWN else f"{call.arguments[:ARGUMENTS_SHOWN]}..."
    what = f"[cleared] {call.name} {told}: {result.size.characters:,} characters."
    if artifact is not None:
        path = (locate(artifact) if locate else artifact.path).replace("\\", "\\\\").replace('"', '\\"')
        return f'{what} The whole is kept: read_file(path="{path}").'
    if call.name in AGAIN:
        return f"{what} Call it again to see it as it is now, or recall it as it was."
    return f"{what} Use recall with words from it to see it again."


def _is_priced(situation: Situation, settings: Clearing) -> bool:
    return settings.by_price and situation.rates is not None and situation.rates.read > 0


def _may_be_due(view: View, situation: Situation, settings: Clearing, threshold: Threshold, watch: Watch) -> bool:
    """Whether it is worth looking at the results one by one: all of them together would make a batch."""
    everything = situation.tokens_of(view.sizes()["results"])
    waits = watch.waits(everything)
    if everything < smallest_batch(settings, situation.budget.window):
        return False
    if threshold.reached(situation.tokens):
        return True
    return _is_priced(situation, settings) and not waits and (situation.cold or situation.growth > 0)


def _paying(found: list[Candidate], situation: Situation, settings: Clearing, watch: Watch) -> Cleared | None:
    """The largest batch that pays for the cache it invalidates, of a few that begin ever later."""
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
    watch.missed(shortfall)
    return None


def _large_enough(batch: Batch, situation: Situation, settings: Clearing, reason: str) -> Cleared | None:
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


def batch_of(found: list[Candidate], situation: Situation) -> Batch | None:
    """All these results as one batch, for a preview."""
    return _batch(found, situation) if found else None


def _given_back(entries: Collection[tuple[AnyContextEntry, bool]]) -> set[int]:
    """Results whose clearing the user has undone: they are not cleared again unasked."""
    return {seq for entry, counts in entries if isinstance(entry, Cleared) and not counts for seq in entry.results}
