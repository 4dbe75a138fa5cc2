"""What the user may do to the view: pin, bring back, undo, and look before it happens.

Each is answered by folding the log with the entry that would be appended, so a preview is what will be, and nothing
that would not fit is done.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec import structs

from tui_agent.context.refusal import Refusal
from tui_agent.context.situation import Situation
from tui_agent.context.spans import Scale
from tui_agent.conversation.entries import (
    AnyContextEntry,
    Checkpointed,
    Cleared,
    Digested,
    Pinned,
    Restored,
    Summarized,
    Undone,
)
from tui_agent.conversation.sizes import NOTHING
from tui_agent.conversation.view import Item, View

EntryT = TypeVar("EntryT", Pinned, Restored, Undone)


class Preview(NamedTuple):
    """What entries would do, in tokens of the next request.

    `leaving` are the items of which less would be shown than now, `returning` those of which more would, as they are
    now. `rewritten` is what follows the first change: a provider's cache of it is lost. `reasoning_dropped` counts the
    reasoning blocks that could no longer be sent back.
    """

    before: int
    after: int
    leaving: tuple[Item, ...]
    returning: tuple[Item, ...]
    rewritten: int
    reasoning_dropped: int

    @property
    def freed(self) -> int:
        return self.before - self.after


def what_if(view: View, entries: Sequence[AnyContextEntry], situation: Situation) -> Preview:
    """The view with `entries` appended, against the view as it is. Folds the whole log."""
    then = imagined(view, entries)
    messages_now, messages_then = view.messages(), then.messages(view.policy)
    weigh = Scale(situation.tokens_of)
    now, later = _total(view, situation), _total(then, situation)
    items_then = {item.seq: item for item in then.items()}
    changed = [(item, items_then[item.seq]) for item in view.items() if item.seq in items_then]
    same = 0
    for ours, theirs in zip(messages_now, messages_then, strict=False):
        if ours != theirs:
            break
        same += 1
    rest = messages_then[same:] if same < len(messages_now) else []
    return Preview(
        before=situation.tokens,
        after=max(0, situation.tokens - now + later),
        leaving=tuple(old for old, new in changed if new.size.characters < old.size.characters),
        returning=tuple(old for old, new in changed if new.size.characters > old.size.characters),
        rewritten=sum(weigh.blocks(message.blocks) for message in rest),
        reasoning_dropped=max(0, then.reasoning_dropped() - view.reasoning_dropped()),
    )


def imagined(view: View, entries: Sequence[AnyContextEntry]) -> View:
    """Another view of the same log with `entries` appended. The view itself is untouched."""
    then = View(view.log)
    time = view.log[len(view.log)].time if len(view.log) else 0.0
    for entry in entries:
        then.apply(then.log.stamp(entry, time))
    return then


def plan_pin(view: View, items: Sequence[int], situation: Situation, *, share: float) -> Pinned | Refusal:
    """The entry that pins `items`, each with its whole group; all pins together stay within `share` of the history."""
    known = {item.seq for item in view.items()}
    if unknown := sorted(set(items) - known):
        return Refusal(f"There is no message {_listed(unknown)} in this conversation.")
    if not items:
        return Refusal("There is nothing to pin.")
    entry = Pinned(items=tuple(items), reason="The user pinned it.")
    then = imagined(view, [entry])
    pinned = _pinned_tokens(then, situation)
    allowed = int(situation.budget.history * share)
    if situation.budget.limit and pinned > allowed:
        return Refusal(
            f"All pins together would take {pinned:,} tokens; they may take {allowed:,}, {share:.0%} of the room for"
            " the conversation. Unpin something first, or pin a smaller part."
        )
    return _fitting(entry, view, situation, "Pinned")


def plan_unpin(view: View, items: Sequence[int], situation: Situation) -> Pinned | Refusal:
    """The entry that takes the pins off `items`; what a boundary covers leaves the view again."""
    pinned = {item.seq for item in view.items() if item.pinned}
    if not pinned.intersection(items):
        return Refusal("None of these is pinned.")
    entry = Pinned(items=tuple(items), pinned=False, reason="The user unpinned it.")
    return _fitting(entry, view, situation, "Unpinned")


def plan_restore(
    view: View, items: Sequence[int], situation: Situation, *, texts: Sequence[str] = ()
) -> Restored | Refusal:
    """The entry that shows `items` whole again; what a boundary covers comes back with its whole group.

    `texts` has the whole text of each result that the log holds only in part (read from its file by the caller), empty
    for the others; none at all: as they stand in the log.
    """
    known = {item.seq: item for item in view.items()}
    if unknown := sorted(set(items) - set(known)):
        return Refusal(f"There is no message {_listed(unknown)} in this conversation.")
    wanted: dict[int, str] = {}
    for seq, text in zip(items, texts or [""] * len(items), strict=True):
        item = known[seq]
        if text or item.state not in ("verbatim", "restored", "preview"):
            wanted[seq] = text
        if item.state in ("summarized", "checkpointed"):
            wanted.setdefault(item.group, "")
    if not wanted:
        return Refusal("All of it is in view already.")
    entry = Restored(items=tuple(wanted), texts=tuple(wanted.values()), reason="The user brought it back.")
    return _fitting(entry, view, situation, "Brought back")


def plan_undo(view: View, situation: Situation, *, target: int | None = None) -> Undone | Refusal:
    """The entry that undoes context entry `target` (None: the newest summary, record, clearing or digest)."""
    entries = {entry.seq: (entry, counts) for entry, counts in view.context_entries()}
    if target is None:
        steps = [
            seq
            for seq, (entry, counts) in entries.items()
            if counts and isinstance(entry, Summarized | Checkpointed | Cleared | Digested)
        ]
        if not steps:
            return Refusal("There is nothing to undo.")
        target = steps[-1]
    if target not in entries:
        return Refusal(f"Entry {target} is no context step of this conversation.")
    if not entries[target][1]:
        return Refusal(f"Step {target} is undone already.")
    entry = Undone(target=target, reason="The user undid it.")
    return _fitting(entry, view, situation, "Undone")


def resting_after_undo(view: View) -> bool:
    """Whether the user undid the newest summary or record: automatic compaction then rests until the limit."""
    newest = next(
        (counts for entry, counts in reversed(view.context_entries()) if isinstance(entry, Summarized | Checkpointed)),
        True,
    )
    return not newest


def _fitting(entry: EntryT, view: View, situation: Situation, done: str) -> EntryT | Refusal:
    """The entry with its figures, unless the request would grow past the limit."""
    preview = what_if(view, [entry], situation)
    limit = situation.budget.limit
    if limit and preview.after > limit and preview.after > preview.before:
        return Refusal(
            f"{done}, the next request would take {preview.after:,} tokens; at most {limit:,} can be sent."
            " Compact or clear something else first."
        )
    return structs.replace(entry, before=preview.before, after=preview.after)


def _total(view: View, situation: Situation) -> int:
    total = NOTHING
    for size in view.sizes().values():
        total = total.plus(size)
    return situation.tokens_of(total)


def _pinned_tokens(view: View, situation: Situation) -> int:
    total = NOTHING
    for item in view.items():
        if item.pinned:
            total = total.plus(item.size)
    return situation.tokens_of(total)


def _listed(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs))
