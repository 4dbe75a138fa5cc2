"""What a summary or completion record replaces, decided before its text is written. Plans are pure: they read the view.

A plan fixes the first and last entry it covers, so entries that arrive while the summary is being written are not
affected. A cut is between two groups, never between a prompt and what came because of it, such as a hook's text, and
never after something that the model has not seen: a running or just finished tool step and a new prompt always stay.
Pins are shown after the summary, and the system prompt is not part of the turns, so a summary can lose neither. The
newest request always stays in view: if it is before the cut, as in a long tool loop, it is restored after the summary,
with what came because of it.

Each summary covers turns that none covered before; earlier summaries stay as they are. When all together become too
large, the oldest are merged into one. A merge is made from texts that were each written from the turns themselves, and
is checked against the turns: as long as these texts are short enough to be read, nothing is summarised more than twice.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import structs

from tui_agent.context.budget import keep_tokens
from tui_agent.context.compaction.forms import CHECKPOINT, FIVE, OUTLINE, SummaryForm
from tui_agent.context.compaction.words import words_to_keep
from tui_agent.context.economics import (
    Situation,
    expected_summary,
    facts_limit,
    longest_summary,
    signing_extra,
    summaries_limit,
)
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Boundary, Restored, Words
from tui_agent.conversation.log import because_of
from tui_agent.conversation.request import takes_signed, words_block
from tui_agent.conversation.sizes import TextSize, size_of_text, total_size
from tui_agent.conversation.view import Group, View

NOTHING_TO_SUMMARISE: Final = "There is nothing to summarise: all that is in view is new, pinned, or a summary already."
CHANGED: Final = (
    "What this summary was to replace has changed since it was written: it was summarised, cleared, pinned, restored"
    " or left behind. Have a new one written."
)
MERGED_SHARE: Final = 4
"""A merge takes at most 1/`MERGED_SHARE` of the limit on all summaries, and its facts as much again."""
SHORTEST_GAIN: Final = 200
"""The fewest tokens that a summary must free."""
GAIN_SHARE: Final = 0.05
TRIGGER_SHARE: Final = 0.1
MAX_REQUIRED_GAIN: Final = 10_000
KEPT_THINKING_SHARE: Final = 0.03
"""What keeping thinking may cost more, as a share of what the calls cost that filled the window (docs/context.md)."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A summary or completion record, before its text is written. Sizes are in tokens.

    Entries `first` to `last` are replaced: the groups in `leaving` and the earlier `boundaries`. `kept`: the first
    group that stays; None: none does. `replaced`: their present size; `before`, `after`: the present and the expected
    request.
    `brought_back`: entries restored after the summary; `lapsed`: entries that had restored earlier requests. `words`:
    the user's kept words, `words_growth` tokens more than shown now. `state`: the text on where things are,
    `state_growth` tokens more than now. `writes`: the length to ask for; `facts_limit`: the most that missing facts add
    to it. `subject`: the focus of a summary, or the note of a record.

    `through`: the prefix hash of the request up to entry `last`, if the provider is to write and sign the summary;
    empty: we have it written. A signed summary stands for everything from the start, earlier summaries included, and
    all of the user's words and the state is new. `left_out`: messages of the user that `words` leave out; `carried`,
    `depth`: see `Summarized`. `words_growth` includes what is carried. `without_usd`: what the next call costs without
    it, if the cache will be gone by then; 0: the cache stays, or the conversation went on.
    """

    form: SummaryForm
    first: int
    last: int
    boundaries: tuple[Boundary, ...] = ()
    leaving: tuple[Group, ...]
    kept: Group | None = None
    brought_back: tuple[int, ...] = ()
    lapsed: tuple[int, ...] = ()
    words: tuple[Words, ...] = ()
    words_growth: int = 0
    state: str = ""
    state_growth: int = 0
    writes: int = 0
    facts_limit: int = 0
    replaced: int = 0
    before: int = 0
    after: int = 0
    subject: str = ""
    reason: str = ""
    through: str = ""
    left_out: int = 0
    carried: tuple[int, ...] = ()
    depth: int = 1
    without_usd: float = 0.0

    @property
    def step(self) -> Literal["summary", "checkpoint"]:
        return "checkpoint" if self.form is CHECKPOINT else "summary"

    @property
    def kept_from(self) -> int:
        """The first kept entry; 0: none is kept."""
        return self.kept.first if self.kept is not None else 0

    @property
    def growth(self) -> int:
        """By how many tokens the user's words and the state grow."""
        return self.words_growth + self.state_growth

    @property
    def summary(self) -> int:
        """The expected size of the summary with its facts."""
        return self.after - self.before + self.replaced - self.growth

    @property
    def likely_after(self) -> int:
        """The likely size of the request: `after` has the longest text that is accepted, this two thirds of it, which
        is off by a factor of two at most for any text that takes a third; and the facts, which take their room.
        """
        return self.after - max(0, min(self.summary, self.writes)) // 3

    @property
    def facts(self) -> int:
        """The tokens that facts are expected to take."""
        return max(0, self.summary - self.writes)


def plan_compaction(
    view: View,
    here: Situation,
    *,
    focus: str = "",
    asked: bool = False,
    keep: int | None = None,
    reason: str = "",
    by_provider: bool = True,
) -> Plan | Refusal:
    """Plan a summary of everything since the last one, except the newest turns; where no threshold in tokens is known,
    messages are counted.

    `by_provider`: if possible, plan one that the provider writes and signs.

    `asked`: the user asked for it, so at most a quarter of a short conversation is kept, and any gain is enough.
    `keep`: overrides how much is kept, for the recovery from an overflow.
    """
    groups, settings, trigger = view.groups(), here.settings.compaction, here.limits.compact.tokens
    sizes = [here.mixed_tokens_of(group.size) for group in groups]
    start = len(groups)
    if not trigger and keep is None:
        messages = 0
        while start:
            group = groups[start - 1]
            messages += 1 + sum(each.blocks for each in group.fingerprints if each.role != group.role)
            if messages > settings.keep_recent and start < len(groups):
                break
            start -= 1
    else:
        if keep is None:
            keep = keep_tokens(settings, here.budget, trigger)
        left = min(keep, sum(sizes) // 4) if asked else keep
        while start and sizes[start - 1] <= left:
            start -= 1
            left -= sizes[start]
    edge = max((boundary.last for boundary in view.boundaries()), default=0)
    begin = sum(group.first <= edge for group in groups)
    cut = max(begin, _with_its_prompt(view, groups, min(start, _first_unseen(groups))))
    least = SHORTEST_GAIN if asked else smallest_gain(here)
    wanted = _wanted(here, _form(here), focus, reason)
    ours = _plan(wanted, view, here, groups, groups[begin:cut], least_gain=least)
    keeps_thinking = settings.by_provider and here.model.signs_summaries and here.model.bound_reasoning
    opaque = settings.opaque_items and here.model.compacts
    if not (by_provider and (keeps_thinking or opaque)):
        return ours
    signed = None
    while signed is None and cut > begin:
        # The provider summarises whole messages, so what follows must begin a message of its own.
        last = groups[cut].first - 1 if cut < len(groups) else groups[-1].last
        if view.until(last).whole:
            signed = _plan_signed(wanted, view, here, last, least_gain=least)
            break
        cut -= 1
    if signed is None:
        return ours
    if isinstance(signed, Plan) and isinstance(ours, Plan) and not opaque and not _pays(signed, ours, view, here):
        return ours
    return signed


def _wanted(here: Situation, form: SummaryForm, subject: str, reason: str) -> Plan:
    """A plan of which only the wishes are known."""
    facts = here.settings.compaction.facts_tokens
    return Plan(form=form, first=0, last=0, leaving=(), facts_limit=facts, subject=subject, reason=reason)


def _form(here: Situation) -> SummaryForm:
    return OUTLINE if here.settings.compaction.handover == "outline" else FIVE


def _pays(signed: Plan, ours: Plan, view: View, here: Situation) -> bool:
    """Whether what the provider takes more than we do is at most the price of the thinking that only it keeps, and a
    small share of what the calls cost that filled the window: thinking is worth more than its tokens.
    """
    rates, thinking = here.rates, here.mixed_tokens_of(view.reasoning_after(signed.last))
    then = here.model.rates(ours.likely_after) or rates
    if rates is None or then is None or not rates.input_usd:
        return True
    extra = signing_extra(here, rates, replaced=signed.replaced, replaced_by_us=ours.replaced)
    # Facts stand behind either. What comes after a summary may cost less per token than what comes before it.
    after, after_ours = signed.likely_after - signed.facts, ours.likely_after - ours.facts
    later = thinking * then.output - then.write * (after - (after_ours - thinking))
    if thinking:
        calls = ours.replaced / max(1.0, here.growth_of_all)
        spent = ours.replaced * then.write + calls * then.read * (here.tokens - ours.replaced / 2)
        later += KEPT_THINKING_SHARE * spent
    return extra * rates.input_usd <= later * then.input_usd


def _plan_signed(wanted: Plan, view: View, here: Situation, last: int, *, least_gain: int) -> Plan | Refusal | None:
    """Plan a summary of everything up to entry `last` that the provider writes and signs; None if that is impossible.

    The provider accepts it in place of exactly what it summarised, so nothing may be shown in between: pinned groups
    and a newest request with pictures are carried behind the kept messages.
    """
    groups, until, boundaries = view.groups(), view.until(last), view.boundaries()
    covered = [group for group in groups if group.first <= last]
    edge = max((each.last for each in boundaries), default=0)
    newest = next((group for group in reversed(groups) if group.starts_turn), None)
    if not until.whole or not covered:
        return None
    said = [each for each in view.said() if each.seq <= last]
    before = [group for each in boundaries if each.carried for group in view.originals(each.first, each.last)]
    again = {seq for each in boundaries for seq in each.carried}
    request = newest.first if newest is not None else said[-1].seq if said else 0
    carried = [
        group
        for group in (*(each for each in before if each.first in again), *covered)
        if group.pinned or (group.first == request and group.size.images > 0)
    ]
    carries = {group.first for group in carried}
    # The newest request is among the words whole, unless it is carried; the others as far as they fit.
    said = [each for each in said if each.seq not in carries]
    words = words_to_keep(said, groups, here, last=last, whole={newest.first} if newest is not None else ())
    left_out = len(said) - len(words)
    plan = structs.replace(
        wanted,
        first=min([covered[0].first, *(each.first for each in boundaries)]),
        last=last,
        leaving=tuple(group for group in covered if group.first > edge and group.first not in carries),
        kept=next((group for group in groups if group.first > last), None),
        words=words,
        words_growth=here.mixed_tokens_of(
            total_size([size_of_text(words_block(words, left_out=left_out)), *(group.size for group in carried)])
        ),
        through=until.prefix_hash,
        left_out=left_out,
        carried=tuple(group.first for group in carried),
        depth=1 + max((each.depth for each in boundaries), default=0),
    )
    return _measured(plan, here, here.mixed_tokens_of(until.size), least_gain=least_gain)


def facts_room(limit: int, freed: int) -> int:
    """The most tokens that facts take of the `freed` ones. On recorded sessions they nearly always take all of it."""
    return max(0, min(limit, freed // 2))


def _measured(plan: Plan, here: Situation, replaced: int, *, least_gain: int) -> Plan | Refusal:
    """`plan` with its figures, if it frees at least `least_gain` tokens; `replaced`: the tokens that leave."""
    # The provider's count of the whole request may be lower than our estimate of this part.
    replaced = min(here.tokens, replaced)
    # A summary that the provider signs stands alone.
    if plan.through:
        writes, facts = expected_summary(replaced), plan.facts_limit
    else:
        writes = expected_summary(replaced, longest_summary(here))
        facts = min(plan.facts_limit, facts_limit(here))
    room = replaced - writes - plan.words_growth
    expected = writes + min(facts, max(0, room) // 4) + plan.words_growth
    if replaced - expected < least_gain:
        freed = max(0, replaced - expected)
        return Refusal(f"A summary would free about {freed:,} of {here.tokens:,} tokens, too few to be worth it.")
    after = here.tokens - room + facts_room(facts, room)
    return structs.replace(plan, writes=writes, facts_limit=facts, replaced=replaced, before=here.tokens, after=after)


def rewritten_by(plan: Plan, view: View, here: Situation) -> int:
    """The tokens of the request after `plan` that are new to the cache: all behind the prefix and earlier summaries."""
    before = [size_of_text(each.text) for each in view.boundaries() if each.last < plan.first]
    return max(0, plan.likely_after - here.budget.fixed - sum(here.mixed_tokens_of(size) for size in before))


def smallest_gain(here: Situation) -> int:
    """The fewest tokens that an automatic compaction must free, or it would soon be due again: 5% of the window, but
    at most 10,000, a tenth of the trigger, and a tenth of what the fixed part leaves.
    """
    window = here.budget.window
    tenth = min(here.limits.compact.tokens or window, window - here.budget.fixed) * TRIGGER_SHARE
    return max(SHORTEST_GAIN, min(MAX_REQUIRED_GAIN, int(window * GAIN_SHARE), int(tenth)))


def plan_checkpoint(
    view: View, here: Situation, *, step: int | None = None, note: str = "", reason: str = ""
) -> Plan | Refusal:
    """Plan the record of the task that ended with the step starting at entry `step`; None: it ended just now.

    Pins stay, and so does a running tool step with everything after it.
    """
    groups = view.groups()
    start = max((boundary.last for boundary in view.boundaries()), default=0)
    task = [group for group in groups if group.first > start and (step is None or group.first <= step)]
    task = task[: next((index for index, group in enumerate(task) if group.open), len(task))]
    if not any(group.role == "assistant" for group in task):
        return Refusal("There is no finished work since the last checkpoint or summary.")
    return _plan(_wanted(here, CHECKPOINT, note, reason), view, here, groups, task, least_gain=SHORTEST_GAIN)


def plan_asked_for(view: View, here: Situation, step: Literal["compact", "checkpoint"], subject: str) -> Plan | Refusal:
    """Plan a summary (with the focus `subject`) or completion record (with that note) for the user."""
    if step == "checkpoint":
        return plan_checkpoint(view, here, note=subject, reason="asked for")
    return plan_compaction(view, here, focus=subject, asked=True, reason="asked for")


def _first_unseen(groups: Sequence[Group]) -> int:
    """The index of the first group the model has not seen: a running or just finished tool step, or a new prompt."""
    for index in range(len(groups) - 1, -1, -1):
        if groups[index].role == "assistant":
            calls = groups[index].open or len(groups[index].fingerprints) > 1
            return index if calls else index + 1
    return 0


def _with_its_prompt(view: View, groups: Sequence[Group], cut: int) -> int:
    """`cut`, or the index before it from which a prompt stays together with what came because of it and precedes it."""
    if cut == len(groups):
        return cut
    first = groups[cut].first
    prompt = max(first, because_of(view.log[first]))
    return bisect_left(groups, view.log.group_start(prompt), hi=cut, key=lambda group: group.first)


def _restored_with(prompt: int, groups: Iterable[Group], view: View) -> tuple[int, ...]:
    """The user's message `prompt` and, of `groups`, what came because of it: what has to be in view together."""
    return tuple(
        group.first
        for group in groups
        if not group.pinned and (group.first == prompt or (group.kind and because_of(view.log[group.first]) == prompt))
    )


def _plan(
    wanted: Plan,
    view: View,
    here: Situation,
    groups: Sequence[Group],
    covered: Sequence[Group],
    *,
    least_gain: int,
    back: tuple[int, ...] | None = None,
) -> Plan | Refusal:
    """Plan replacing `covered`, of the `groups` in view, by one text, if that frees at least `least_gain` tokens.

    `back`: the entries of the newest request to restore, if these are known.
    """
    if not covered:
        return Refusal(NOTHING_TO_SUMMARISE)
    summarises = wanted.form is not CHECKPOINT
    kept = [group for group in groups if group.first > covered[-1].first]
    # A group is covered whole, even if its results came after the cut.
    last = max(each.last for each in covered)
    last = min(last, kept[0].first - 1) if kept else last
    if back is None:
        newest = next((group for group in reversed(covered) if group.starts_turn), None)
        hides = summarises and newest is not None and not newest.pinned and not any(each.starts_turn for each in kept)
        back = _restored_with(newest.first, covered, view) if newest is not None and hides else ()
    leaving = tuple(group for group in covered if not group.pinned and group.first not in back)
    if not leaving:
        return Refusal(NOTHING_TO_SUMMARISE)
    earlier, lapsed = [group for group in groups if group.first < covered[0].first], list[Restored]()
    if summarises and any(group.starts_turn for group in (*covered, *kept)):
        prompts = [group.first for group in earlier if group.starts_turn and not group.pinned]
        requests = {seq for prompt in prompts for seq in _restored_with(prompt, earlier, view)}
        lapsed = [
            entry
            for entry, counts in view.context_entries()
            if counts and isinstance(entry, Restored) and entry.items and requests.issuperset(entry.items)
        ]
    leaves = [*(group.first for group in leaving), *(seq for entry in lapsed for seq in entry.items)]
    shown = {group.first: here.mixed_tokens_of(group.size) for group in (*leaving, *earlier)}
    words, growth = _words(view, here, groups, last, set(leaves))
    plan = structs.replace(
        wanted,
        first=covered[0].first,
        last=last,
        leaving=leaving,
        kept=kept[0] if kept else None,
        brought_back=back,
        lapsed=tuple(entry.seq for entry in lapsed),
        words=words,
        words_growth=growth,
    )
    return _measured(plan, here, sum(shown[seq] for seq in leaves), least_gain=least_gain)


def _words(
    view: View, here: Situation, groups: Sequence[Group], last: int, hidden: Collection[int]
) -> tuple[tuple[Words, ...], int]:
    """The user's kept words up to entry `last`, and by how many tokens they exceed the ones shown now, once those of
    `groups` that start with the entries in `hidden` leave the view.
    """
    said, now = view.said(), view.shown_words()
    words = words_to_keep(said, groups, here, last=last)
    covered = {each.seq for each in said if each.seq <= last}
    gone = covered.difference(group.first for group in groups).union(covered.intersection(hidden))
    shown = [each for each in words if each.seq in gone]
    after = words_block(shown, left_out=len(gone) - len(shown))
    before = words_block(now.words, left_out=now.left_out)
    return words, here.mixed_tokens_of(size_of_text(after)) - here.mixed_tokens_of(size_of_text(before))


def with_state(plan: Plan, state: str, view: View, tokens_of: Callable[[TextSize], int]) -> Plan:
    """`plan` with the text on where things are; a merge has it only if it includes the newest summary."""
    newest = max(view.boundaries(), key=lambda each: each.first, default=None)
    if plan.boundaries and newest not in plan.boundaries:
        return plan
    before = tokens_of(size_of_text(newest.state)) if newest is not None and not plan.through else 0
    growth = tokens_of(size_of_text(state)) - before
    return structs.replace(plan, state=state, state_growth=growth, after=plan.after + growth - plan.state_growth)


def plan_merge(view: View, here: Situation, *, coming: Plan | None = None) -> Plan | None:
    """Plan merging the oldest summaries if all together exceed their budget, including `coming`, which is about to be
    written. The newest stays as it is, unless there are only two.
    """
    shown = sorted(view.boundaries(), key=lambda each: each.first)
    if any(takes_signed(each.signed, here.model.name, signs=here.model.signs_summaries) for each in shown):
        return None  # the next signed summary stands for all of them
    sizes = [here.mixed_tokens_of(size_of_text(each.text)) for each in shown]
    budget = summaries_limit(here)
    if coming is None:
        if len(shown) < 2 or sum(sizes) <= budget:
            return None
        return merge_of(shown[:-1] if len(shown) > 2 else shown, view, here)
    # Summaries of one conversation are of similar size.
    size = max(coming.summary, *sizes, 0)
    if not shown or sum(sizes) + size <= budget:
        return None
    alone = len(shown) == 1 or 2 * size > budget
    return merge_of(shown, view, here, newer=coming if alone else None)


def merge_of(merged: Sequence[Boundary], view: View, here: Situation, *, newer: Plan | None = None) -> Plan:
    """Plan merging these summaries, and the `newer` one that is entered before it, into one."""
    budget = summaries_limit(here)
    first, last = min(each.first for each in merged), max(each.last for each in merged)
    leaving = tuple(group for group in view.originals(first, last) if not group.pinned)
    replaced, count = sum(here.mixed_tokens_of(size_of_text(each.text)) for each in merged), len(merged)
    if newer is not None:
        last, leaving = newer.last, (*leaving, *newer.leaving)
        replaced, count = replaced + newer.summary, count + 1
    # Small enough that the next summary does not trigger another merge.
    writes = min(replaced // 2, budget // MERGED_SHARE)
    facts = facts_room(min(facts_limit(here), budget // MERGED_SHARE), replaced - writes)
    groups = view.groups()
    newest = next((group for group in reversed(groups) if group.starts_turn), None)
    back: tuple[int, ...] = ()
    if newest is not None and first <= newest.first <= last and not newest.pinned:
        back = _restored_with(newest.first, (group for group in groups if first <= group.first <= last), view)
    return Plan(
        form=_form(here),
        first=first,
        last=last,
        boundaries=tuple(merged),
        leaving=leaving,
        brought_back=back,
        writes=writes,
        facts_limit=facts,
        replaced=replaced,
        before=here.tokens,
        after=here.tokens - replaced + writes + facts,
        reason=f"all summaries together passed {budget:,} tokens: the oldest {count} become one",
    )


def rebased(plan: Plan, view: View, here: Situation) -> Plan | Refusal:
    """`plan` with the figures of the present `view`; a refusal if it no longer applies.

    The conversation may go on while a summary waits to be accepted. Its plan applies as long as everything it replaces
    is still shown as when it was summarised.
    """
    now: Plan | Refusal | None
    if plan.boundaries:
        within = [each for each in view.boundaries() if plan.first <= each.first and each.last <= plan.last]
        if not all(each in within for each in plan.boundaries):
            return Refusal(CHANGED)
        now = merge_of(within, view, here)
        read = {(each.first, each.last) for each in plan.leaving}
        # A request that was restored meanwhile, or is no longer, is among the user's kept words anyway.
        same = all(each.starts_turn or (each.first, each.last) in read for each in now.leaving)
    elif plan.through:
        now = _plan_signed(plan, view, here, plan.last, least_gain=-here.tokens)
        same = (
            isinstance(now, Plan)
            and (now.through, now.carried) == (plan.through, plan.carried)
            and (now.kept is not None or plan.kept is None)
        )
    else:
        groups = view.groups()
        covered = [group for group in groups if plan.first <= group.first <= plan.last]
        now = _plan(plan, view, here, groups, covered, least_gain=-here.tokens, back=plan.brought_back)
        same = (
            isinstance(now, Plan)
            and [*map(_identity, now.leaving)] == [*map(_identity, plan.leaving)]
            and not any(plan.first <= each.first <= plan.last for each in view.boundaries())
        )
    if not same or not isinstance(now, Plan):
        return Refusal(CHANGED)
    return now if plan.boundaries else structs.replace(now, leaving=plan.leaving)


def _identity(group: Group) -> tuple[int, int, tuple[bytes, ...]]:
    return group.first, group.last, tuple(each.digest for each in group.fingerprints)
