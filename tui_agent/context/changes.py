"""Changes of the view that users ask for (pin, restore, undo), and previews of these and of any other step.

A preview applies the very entry that would be appended to a copy of the view, so it is exact, and a change that would
not fit is refused.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import Plan, rewritten_by
from tui_agent.context.compaction.words import words_to_keep
from tui_agent.context.counting import estimate
from tui_agent.context.economics import Situation, StepPrice, step_price
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import (
    AnyContextEntry,
    Checkpointed,
    Cleared,
    Digested,
    Pinned,
    Restored,
    Shortened,
    Summarized,
    Undone,
    Words,
    WordsEdited,
)
from tui_agent.conversation.items import Item
from tui_agent.conversation.sizes import size_of_block, total_size
from tui_agent.conversation.view import View
from tui_agent.conversation.wire import write_opaque

PreviewedStep: TypeAlias = Literal["compact", "clear", "checkpoint"]
EntryT = TypeVar("EntryT", Pinned, Restored, Undone, WordsEdited)


class ChangePreview(msgspec.Struct, frozen=True):
    """The effects of entries, in tokens of the next request.

    leaving, returning: items, in their present state, of which less or more would be shown. rewritten: tokens after the
    first change, whose cache is lost. reasoning_dropped: the number of reasoning blocks that could no longer be sent
    back; thinking_calls: that of the calls they belong to. scale: as in `ContextStats`.
    """

    before: int
    after: int
    leaving: tuple[Item, ...]
    returning: tuple[Item, ...]
    rewritten: int
    reasoning_dropped: int
    thinking_calls: int = 0
    scale: float = 1.0

    @property
    def freed(self) -> int:
        """By how many tokens the next request shrinks."""
        return self.before - self.after


class StepPreview(msgspec.Struct, frozen=True):
    """The preview of a step. `exact`: counted rather than estimated. `price` None: unknown."""

    step: PreviewedStep
    preview: ChangePreview
    exact: bool
    price: StepPrice | None
    reason: str


def preview_change(view: View, entries: Sequence[AnyContextEntry], situation: Situation) -> ChangePreview:
    """Compare the view with `entries` appended with the present one. Copies the view: slow for a long one."""
    then = view_with(view, entries)
    now, later = situation.whole_tokens_of(view), situation.whole_tokens_of(then)
    changed = view.changed_items(then)
    return ChangePreview(
        before=situation.tokens,
        after=max(0, situation.tokens - now + later),
        leaving=tuple(old for old, new in changed if _weight(new) < _weight(old)),
        returning=tuple(old for old, new in changed if _weight(new) > _weight(old)),
        rewritten=sum(
            situation.mixed_tokens_of(total_size(map(size_of_block, message.blocks)))
            for message in then.messages_after_shared(view)
        ),
        reasoning_dropped=max(0, then.reasoning_dropped() - view.reasoning_dropped()),
        thinking_calls=max(0, then.calls_without_reasoning() - view.calls_without_reasoning()),
        scale=situation.tokens / max(1, estimate(total_size(view.sizes().values()))),
    )


def view_with(view: View, entries: Sequence[AnyContextEntry]) -> View:
    then = view.copy()
    time = view.log[len(view.log)].time if len(view.log) else 0.0
    for entry in entries:
        then.apply(then.log.stamp(entry, time))
    return then


def preview_clearing(view: View, here: Situation, cleared: Cleared) -> StepPreview:
    seen = structs.replace(preview_change(view, [cleared], here), after=cleared.after)
    return StepPreview("clear", seen, True, clearing_price(view, here, cleared), cleared.reason)


def clearing_price(view: View, here: Situation, cleared: Cleared | Shortened) -> StepPrice | None:
    """What a clearing, or the fold of an episode, costs and saves; None if prices are unknown, or the request would
    not fit without it.
    """
    if isinstance(cleared, Shortened):
        fold = preview_change(view, [cleared], here) if cleared.episodes else None
        return step_price(here, after=fold.after, tail=fold.rewritten) if fold is not None else None
    leaving = frozenset(cleared.results)
    changed = [result.after for result in view.live_results() if result.seq in leaving]
    if not changed:
        return None
    # Newest first: the last one is the first that changes.
    tail = here.mixed_tokens_of(changed[-1]) - (cleared.before - cleared.after)
    return step_price(here, after=cleared.after, tail=max(0, tail))


def preview_plan(view: View, here: Situation, plan: Plan, writing: float | None) -> StepPreview:
    """The estimated effects and cost of a summary or completion record before it is written.

    `writing`: what writing it costs in USD; None if unknown.
    """
    kind = Checkpointed if plan.step == "checkpoint" else Summarized
    signed = write_opaque(signed="") if plan.through else ""
    boundary = kind(
        first=plan.first, last=plan.last, text=".", signed=signed, through=plan.through, carried=plan.carried
    )
    seen, price = preview_change(view, [boundary], here), None
    rewritten = rewritten_by(plan, view, here)
    seen = structs.replace(seen, after=plan.likely_after, rewritten=rewritten)
    if writing is not None or (here.rates is not None and here.rates.input_s):
        price = step_price(here, after=seen.after, tail=rewritten, writing=writing or 0.0, renews=not plan.through)
    return StepPreview("checkpoint" if plan.step == "checkpoint" else "compact", seen, False, price, plan.reason)


def preview_draft(view: View, here: Situation, draft: Draft) -> StepPreview:
    seen = structs.replace(preview_change(view, draft.entries, here), before=draft.before, after=draft.after)
    price = None
    if draft.spent_usd is not None:
        renews = not draft.boundary.signed
        price = step_price(here, after=seen.after, tail=seen.rewritten, writing=draft.spent_usd, renews=renews)
    return StepPreview("checkpoint" if draft.step == "checkpoint" else "compact", seen, True, price, draft.plan.reason)


def plan_pin(view: View, items: Sequence[int], situation: Situation) -> Pinned | Refusal:
    """The entry that pins `items` with their groups; all pins together may take a share of the history."""
    if unknown := [seq for seq in items if view.item(seq) is None]:
        return Refusal(f"There is no message {_listed(unknown)} in this conversation.")
    if not items:
        return Refusal("There is nothing to pin.")
    entry = Pinned(items=tuple(items), reason="by hand")
    then = view_with(view, [entry])
    pinned = situation.mixed_tokens_of(then.pinned_size())
    share = situation.settings.context.pins_share
    allowed = int(situation.budget.history * share)
    if situation.budget.limit and pinned > allowed:
        return Refusal(
            f"All pins together would take {pinned:,} tokens; they may take {allowed:,}, {share:.0%} of the room for"
            " the conversation. Unpin something first, or pin a smaller part."
        )
    return _fitting(entry, view, situation, "Pinned")


def plan_unpin(view: View, items: Sequence[int], situation: Situation) -> Pinned | Refusal:
    """The entry that unpins `items`; those covered by a boundary leave the view again."""
    if not any(item.pinned for seq in items if (item := view.item(seq)) is not None):
        return Refusal("None of these is pinned.")
    entry = Pinned(items=tuple(items), pinned=False, reason="by hand")
    return _fitting(entry, view, situation, "Unpinned")


def plan_restore(
    view: View, items: Sequence[int], situation: Situation, *, texts: Sequence[str] = ()
) -> Restored | Refusal:
    """The entry that restores `items` to full text; those covered by a boundary return with their groups.

    `texts`: for each item the full text, read from its file, if the log has only a part of it, else empty; without
    `texts`, all are restored as the log has them.
    """
    wanted: dict[int, str] = {}
    for seq, text in zip(items, texts or [""] * len(items), strict=True):
        item = view.item(seq)
        if item is None:
            return Refusal(f"There is no message {seq} in this conversation.")
        if text or item.state not in ("verbatim", "restored", "preview"):
            wanted[seq] = text
        if item.state in ("summarized", "checkpointed"):
            wanted.setdefault(item.group, "")
    if not wanted:
        return Refusal("All of it is in view already.")
    entry = Restored(items=tuple(wanted), texts=tuple(wanted.values()), reason="The user brought it back.")
    return _fitting(entry, view, situation, "Brought back")


def plan_words(view: View, edits: Sequence[Words], situation: Situation) -> WordsEdited | Refusal:
    """The entry that changes the kept words of the user's messages; an empty text drops those of a message."""
    last = max((boundary.last for boundary in view.boundaries()), default=0)
    said = {each.seq: each for each in view.said() if each.seq <= last}
    unknown = [each.seq for each in edits if each.seq not in said]
    if unknown:
        return Refusal(f"Message {_listed(unknown)} is none whose words are kept with a summary; /words lists those.")
    changed = {each.seq: Words(each.seq, each.text, said[each.seq].time) for each in edits}
    wanted = [changed.get(each.seq, each) for each in said.values()]
    words = words_to_keep([each for each in wanted if each.text], view.groups(), situation, last=last)
    reason = "The user changed what is kept of their words."
    return _fitting(
        WordsEdited(edits=tuple(changed.values()), words=words, reason=reason), view, situation, "Changed so"
    )


def plan_undo(view: View, situation: Situation, *, target: int | None = None) -> Undone | Refusal:
    """The entry that undoes context entry `target`.

    None: the newest summary, record, clearing, digest, shortening or edit of the user's words.
    """
    entries = {entry.seq: (entry, counts) for entry, counts in view.context_entries()}
    if target is None:
        steps = [
            seq
            for seq, (entry, counts) in entries.items()
            if counts and isinstance(entry, Summarized | Checkpointed | Cleared | Digested | Shortened | WordsEdited)
        ]
        if not steps:
            return Refusal("There is no step of the context to undo. /unpin takes a pin back.")
        target = steps[-1]
    if target not in entries:
        return Refusal(f"Entry {target} is no context step of this conversation.")
    if not entries[target][1]:
        return Refusal(f"Step {target} is undone already.")
    step, call = entries[target][0], view.last_call
    entry = _fitting(Undone(target=target, reason="by hand"), view, situation, "Undone")
    if isinstance(entry, Undone) and step.before and call is not None and max(call.seq, *entries) == target:
        # Nothing was measured or changed since: exactly what the step freed comes back.
        return structs.replace(entry, after=max(0, entry.before + step.before - step.after))
    return entry


def undone_by_user(view: View) -> bool:
    """Whether the user undid the newest summary or record; automatic compaction then rests until the limit."""
    newest = next(
        (counts for entry, counts in reversed(view.context_entries()) if isinstance(entry, Summarized | Checkpointed)),
        True,
    )
    return not newest


def _fitting(entry: EntryT, view: View, situation: Situation, done: str) -> EntryT | Refusal:
    """The entry with its figures filled in, or a refusal if the request would exceed the limit."""
    preview = preview_change(view, [entry], situation)
    limit = situation.budget.limit
    if limit and preview.after > limit and preview.after > preview.before:
        return Refusal(
            f"{done}, the next request would take {preview.after:,} tokens; at most {limit:,} can be sent."
            " Compact or clear something else first."
        )
    return structs.replace(entry, before=preview.before, after=preview.after)


def _weight(item: Item) -> float:
    return item.size.characters + item.size.images


def _listed(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs))
