"""Folding episodes: in place of the calls of a piece of work that the model has closed stay its conclusion, which is an
argument of the closing call, and pointers to what was done. What was said without a call stays where it is.

As with clearing, an episode is folded when that pays for what is lost behind it, the cache and bound thinking.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.context.changes import preview_change
from tui_agent.context.compaction.extract import pointers
from tui_agent.context.economics import Situation, clearing_size
from tui_agent.context.layers.clearing import LEAST_BATCH
from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolResult
from tui_agent.conversation.entries import Shortened
from tui_agent.conversation.sizes import total_size
from tui_agent.conversation.tasks import Episode, episodes
from tui_agent.conversation.view import Group, View
from tui_agent.text import counted

POINTERS_CHARS: Final = 1_000
"""Characters of the files and commands that stay of an episode."""


class EpisodeLayer(msgspec.Struct, frozen=True):
    """The layer. `closed`: finds the closed episodes in a view."""

    closed: Callable[[View], Sequence[Episode]] = lambda view: episodes(view)[0]

    def plan(self, view: View, situation: Situation) -> Shortened | None:
        """The fold that is due now, of as many closed episodes as pay together. Those that were folded before stay as
        the user left them.
        """
        if not (found := self.closed(view)) or situation.settings.context.preset == "off":
            return None
        entries = (entry for entry, _ in view.context_entries())
        folded = {closed for entry in entries if isinstance(entry, Shortened) for closed in entry.episodes}
        waiting = [each for each in found if each.closed not in folded]
        groups = view.groups() if waiting else []
        folds = (_fold(waiting[start:], groups, view, situation) for start in range(len(waiting)))
        return next((fold for fold in folds if fold is not None), None)


def _fold(found: Sequence[Episode], groups: Sequence[Group], view: View, here: Situation) -> Shortened | None:
    """The fold of these episodes, if it pays."""
    inside = [(each, leaving) for each in found if (leaving := [group for group in groups if _leaves(group, each)])]
    if not inside:
        return None
    gone = {group.first: group for _, leaving in inside for group in leaving}
    first, last = min(gone), max(each.closed for each, _ in inside)
    after = total_size(group.size for group in groups if group.first > first)
    freed = here.mixed_tokens_of(total_size(group.size for group in gone.values())) - len(inside) * POINTERS_CHARS // 4
    tail = max(0, here.mixed_tokens_of(after) - freed)
    rates, cleared = here.rates, here.cleared
    cached = not here.cold and (rates is not None or here.model.cache != "none")
    free = not cached or (cleared is not None and cleared.results[0] < first)
    thinking = here.mixed_tokens_of(view.reasoning_after(last)) if here.model.bound_reasoning and rates else 0
    again = thinking * rates.output if rates is not None else 0.0
    needed = clearing_size(rates, 0 if free else tail, here.growth_of_all, writing=again)
    if needed is None and not free and not here.limits.clear.reached(here.tokens):
        return None
    if freed < max(LEAST_BATCH, needed or 0.0):
        return None
    blocks = dict.fromkeys(gone, tuple[Block, ...]()) | {
        each.pointers: _with_pointers(view, each) for each, _ in inside
    }
    lost = "no cache is lost by it" if free else f"{freed:,} freed tokens outweigh writing {tail:,} anew"
    entry = Shortened(
        items=tuple(blocks),
        blocks=tuple(blocks.values()),
        episodes=tuple(each.closed for each, _ in inside),
        reason=f"{', '.join(f'“{each.name}”' for each, _ in inside)} is finished, and it pays: {lost}",
        before=here.tokens,
    )
    return structs.replace(entry, after=preview_change(view, [entry], here).after)


def _leaves(group: Group, episode: Episode) -> bool:
    """Whether a group is a step of the episode, with calls that all have their results, and not pinned."""
    within = episode.first <= group.first < episode.closed and group.role == "assistant"
    return within and bool(group.results and group.fingerprints) and not (group.pinned or group.open)


def _with_pointers(view: View, episode: Episode) -> tuple[Block, ...]:
    """What stands from now on where the episode was closed."""
    steps = [group for group in view.originals(episode.first, episode.closed - 1) if group.role == "assistant"]
    calls = counted(sum(len(group.results) for group in steps), "call")
    text = f"[{calls} of “{episode.name}” left the view; recall finds them by their words.]"
    text = "\n".join(filter(None, (text, pointers(steps, limit=POINTERS_CHARS))))
    message = view.log.message(episode.pointers)
    shown = message.blocks if message is not None else ()
    if any(isinstance(each, ToolResult) for each in shown):
        return tuple(structs.replace(each, text=text) for each in shown if isinstance(each, ToolResult))
    return (*(each for each in shown if not isinstance(each, Reasoning)), Text(text))
