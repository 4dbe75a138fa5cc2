"""A summary from plan to entry: which turns it replaces, the material it is written from, and checking its text.

A plan fixes the first and last entry it covers, so entries that arrive while the summary is being written are not
affected. Pins are shown after the summary, and the system prompt is not part of the turns, so a summary can lose
neither. The user's own words follow the newest summary. The newest request always stays in view: if it is before the
cut, as in a long tool loop, the accepted entries restore it.

Each summary covers turns that none covered before; earlier summaries stay as they are. When all together become too
large, the oldest are merged into one. A merge is made from texts that were each written from the turns themselves,
never from an earlier merge, and is checked against the turns: nothing is summarised more than twice.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import structs

from tui_agent.context.compaction.extract import extract
from tui_agent.context.compaction.facts import Facts, collect, listing, missing
from tui_agent.context.compaction.questions import (
    CHECKPOINT,
    FIVE,
    OUTLINE,
    Form,
    Prompts,
    Questions,
    body_of,
    completed,
    framed,
    questions,
    sections,
)
from tui_agent.context.compaction.rendering import archive, cut, fact_sources, transcript
from tui_agent.context.compaction.spans import Scale, Span
from tui_agent.context.compaction.words import kept_words, words_limit
from tui_agent.context.economics import Situation, expected_summary
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Boundary, Checkpointed, Restored, Summarized, Undone, Usage, Words
from tui_agent.conversation.groups import Group
from tui_agent.conversation.request import words_block
from tui_agent.conversation.sizes import Size
from tui_agent.conversation.view import View
from tui_agent.settings import Compaction

NOTHING_TO_SUMMARISE: Final = "There is nothing to summarise: all that is in view is new, pinned, or a summary already."
SUMMARIES_SHARE: Final = 10
"""All summaries together take at most 1/`SUMMARIES_SHARE` of the window."""
MERGED_SHARE: Final = 4
"""A merge takes at most 1/`MERGED_SHARE` of the limit on all summaries, and its facts as much again."""
SHORTEST_GAIN: Final = 200
"""The fewest tokens that a summary must free."""
WORDS_PER_TOKEN: Final = 0.6

_EXTRACT_CHARS: Final = 8_000
_LEAST_LETTERS: Final = 20


class SummaryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A summary or completion record, before its text is written. Sizes are in tokens.

    Entries `first` to `last` are replaced: the groups in `leaving` and the earlier `boundaries`. `kept`: the first
    group that stays; None: none does. `replaced`: their present size; `before`, `after`: the present and the expected
    request.
    `brought_back`: entries restored after the summary; `lapsed`: entries that had restored earlier requests. `words`:
    the user's kept words, at most `words_limit` tokens, `words_growth` more than shown now. `state`: the text on where
    things are, `state_growth` tokens more than now. `writes`: the length to ask for; `facts_limit`: the most that
    missing facts add to it. `subject`: the focus of a summary, or the note of a record.
    """

    form: Form
    first: int
    last: int
    boundaries: tuple[Boundary, ...]
    leaving: tuple[Group, ...]
    kept: Group | None
    brought_back: tuple[int, ...]
    lapsed: tuple[int, ...]
    words: tuple[Words, ...]
    words_limit: int
    words_growth: int
    state: str = ""
    state_growth: int = 0
    writes: int
    facts_limit: int
    replaced: int
    before: int
    after: int
    subject: str
    reason: str

    @property
    def step(self) -> Literal["summary", "checkpoint"]:
        return "checkpoint" if self.form is CHECKPOINT else "summary"

    @property
    def growth(self) -> int:
        """By how many tokens the user's words and the state grow."""
        return self.words_growth + self.state_growth

    @property
    def kept_from(self) -> int:
        """The first kept entry; 0: none is kept."""
        return self.kept.first if self.kept is not None else 0


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is written from and checked against.

    parts: the transcript for a separate model, one part for each group, oldest first. notes: existing summaries of all
    of it, each written from the turns themselves; empty: there are none. questions: the instructions. extract: the text
    made without a model. archive: the turns as Markdown, to be saved.
    """

    parts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    questions: Questions
    extract: str
    facts: Facts
    archive: str


class Accepted(NamedTuple):
    """The entries of an accepted summary, to be appended together.

    text: of the boundary, without its first line and path, for editing. after: the exact size of the next request.
    facts_missing: how many facts the written text lacked; facts_appended: how many of them were appended.
    sections_added: the sections it lacked.
    """

    boundary: Boundary
    entries: tuple[Summarized | Checkpointed | Restored | Undone, ...]
    text: str
    after: int
    facts_missing: int
    facts_appended: int
    sections_added: tuple[str, ...]


class Author(NamedTuple):
    """Who wrote a summary, with usage and cost. model: empty for the extract.

    depth: how many times its content was summarised; 2 if it was put together from parts.
    """

    model: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    depth: int = 1


EXTRACTED: Final = Author()

CHANGED: Final = (
    "What this summary was to replace has changed since it was written: it was summarised, cleared, pinned, restored"
    " or left behind. Have a new one written."
)


def plan_summary(
    view: View,
    situation: Situation,
    settings: Compaction,
    *,
    span: Span,
    form: Form,
    subject: str,
    least_gain: int,
    reason: str,
) -> SummaryPlan | Refusal:
    """Plan replacing a span by one text, if that frees at least `least_gain` tokens."""
    if not span.covered:
        return Refusal(NOTHING_TO_SUMMARISE)
    brought_back = () if form is CHECKPOINT else span.brought_back
    leaving = [group for group in span.covered if not group.pinned and group.first not in brought_back]
    lapsed, again = _lapsed(view, span)
    if not leaving:
        return Refusal(NOTHING_TO_SUMMARISE)
    tokens_of = situation.mixed_tokens_of
    # The provider's count of the whole request may be lower than our estimate of this part.
    replaced = min(situation.tokens, _tokens_replaced([*leaving, *again], tokens_of))
    summary = expected_summary(replaced)
    limit = words_limit(settings.user_words_tokens, situation.budget.window)
    hidden = {group.first for group in (*leaving, *again)}
    words, growth = _words(view, span.last, hidden, limit, tokens_of)
    expected = summary + min(settings.facts_tokens, max(0, replaced - summary - growth) // 4) + growth
    if replaced - expected < least_gain:
        freed = max(0, replaced - expected)
        return Refusal(f"A summary would free about {freed:,} of {situation.tokens:,} tokens, too few to be worth it.")
    return SummaryPlan(
        form=form,
        first=span.first,
        last=span.last,
        boundaries=(),
        leaving=tuple(leaving),
        kept=span.kept[0] if span.kept else None,
        brought_back=brought_back,
        lapsed=lapsed,
        words=words,
        words_limit=limit,
        words_growth=growth,
        writes=summary,
        facts_limit=settings.facts_tokens,
        replaced=replaced,
        before=situation.tokens,
        after=situation.tokens - replaced + expected,
        subject=subject,
        reason=reason,
    )


def with_state(plan: SummaryPlan, state: str, view: View, tokens_of: Callable[[Size], int]) -> SummaryPlan:
    """`plan` with the text on where things are; a merge has it only if it includes the newest summary."""
    newest = max(view.boundaries(), key=lambda each: each.first, default=None)
    if plan.boundaries and newest not in plan.boundaries:
        return plan
    weigh = Scale(tokens_of).text
    growth = weigh(state) - (weigh(newest.state) if newest is not None else 0)
    return structs.replace(plan, state=state, state_growth=growth)


def plan_merge(
    view: View, situation: Situation, settings: Compaction, *, coming: SummaryPlan | None = None
) -> SummaryPlan | None:
    """Plan merging the oldest summaries if all together exceed their budget, including `coming`, which is about to be
    written. The newest stays as it is, unless there are only two.
    """
    weigh = Scale(situation.mixed_tokens_of)
    shown = sorted(view.boundaries(), key=lambda each: each.first)
    sizes, budget = [weigh.text(each.text) for each in shown], summaries_limit(settings, situation.budget.window)
    if coming is None:
        if len(shown) < 2 or sum(sizes) <= budget:
            return None
        return merge_of(shown[:-1] if len(shown) > 2 else shown, view, situation, settings)
    # Summaries of one conversation are of similar size.
    size = max(_size_of(coming), *sizes, 0)
    if not shown or sum(sizes) + size <= budget:
        return None
    alone = len(shown) == 1 or 2 * size > budget
    return merge_of(shown, view, situation, settings, newer=coming if alone else None)


def _size_of(plan: SummaryPlan) -> int:
    """The expected size of a planned summary in tokens."""
    return plan.after - plan.before + plan.replaced - plan.growth


def summaries_limit(settings: Compaction, window: int) -> int:
    """The most tokens that all summaries together may take; `window` 0: unknown."""
    return min(settings.summaries_tokens, window // SUMMARIES_SHARE) if window else settings.summaries_tokens


def merge_of(
    merged: Sequence[Boundary],
    view: View,
    situation: Situation,
    settings: Compaction,
    *,
    newer: SummaryPlan | None = None,
) -> SummaryPlan:
    """Plan merging these summaries, and the `newer` one that is entered before it, into one."""
    weigh = Scale(situation.mixed_tokens_of)
    budget = summaries_limit(settings, situation.budget.window)
    first, last = min(each.first for each in merged), max(each.last for each in merged)
    leaving = tuple(group for group in view.originals(first, last) if not group.pinned)
    replaced, count = sum(weigh.text(each.text) for each in merged), len(merged)
    if newer is not None:
        last, leaving = newer.last, (*leaving, *newer.leaving)
        replaced, count = replaced + _size_of(newer), count + 1
    # Small enough that the next summary does not trigger another merge.
    writes = min(replaced // 2, budget // MERGED_SHARE)
    facts = min(settings.facts_tokens, budget // MERGED_SHARE, (replaced - writes) // 2)
    newest = next((group for group in reversed(view.groups()) if group.starts_turn), None)
    back = (newest.first,) if newest is not None and first <= newest.first <= last and not newest.pinned else ()
    return SummaryPlan(
        form=OUTLINE if settings.handover == "outline" else FIVE,
        first=first,
        last=last,
        boundaries=tuple(merged),
        leaving=leaving,
        kept=None,
        brought_back=back,
        lapsed=(),
        words=(),
        words_limit=0,
        words_growth=0,
        writes=writes,
        facts_limit=facts,
        replaced=replaced,
        before=situation.tokens,
        after=situation.tokens - replaced + writes + facts,
        subject="",
        reason=f"all summaries together passed {budget:,} tokens: the oldest {count} become one",
    )


def material_of(plan: SummaryPlan, view: View, settings: Compaction, prompts: Prompts) -> Material:
    """The material of a planned summary. Reads everything that leaves the view: slow for a long span."""
    parts, asked = asked_of(plan, view, settings, prompts)
    return Material(
        parts=parts,
        notes=_notes(plan, view) if plan.boundaries else (),
        questions=asked,
        extract=extract(
            plan.form,
            plan.leaving,
            note=plan.subject if plan.form is CHECKPOINT else "",
            limit=max(400, min(_EXTRACT_CHARS, plan.replaced)),
        ),
        facts=collect(fact_sources(plan.leaving)),
        # Merged turns were archived when they left the view.
        archive="" if plan.boundaries else archive(view, plan.leaving),
    )


def asked_of(
    plan: SummaryPlan, view: View, settings: Compaction, prompts: Prompts
) -> tuple[tuple[str, ...], Questions]:
    """The input for a summary's writer: the parts and questions of a `Material`."""
    asked = questions(
        prompts,
        plan.form,
        words=max(60, int(plan.writes * WORDS_PER_TOKEN)),
        focus=plan.subject,
        kept=_what_stays(plan.kept, earlier=bool(view.boundaries()) and not plan.boundaries),
    )
    return transcript(plan.leaving, result_chars=settings.summary_result_chars), asked


def _notes(plan: SummaryPlan, view: View) -> tuple[str, ...]:
    """The summaries and records written from the turns of a merge themselves, oldest first.

    The log has them even if an earlier merge replaced them, so nothing is ever summarised more than twice. Empty if
    they do not cover all of the turns.
    """
    end = max(each.last for each in plan.boundaries)
    written = [
        entry
        for entry, counts in view.context_entries()
        if counts and isinstance(entry, Summarized | Checkpointed) and entry.depth == 1 and plan.first <= entry.first
    ]
    chosen: list[Boundary] = []
    for entry in sorted(written, key=lambda each: (each.first, each.last)):
        if entry.last <= end and (not chosen or entry.first > chosen[-1].last):
            chosen.append(entry)
    groups = [group for group in plan.leaving if group.first <= end]
    told = all(any(entry.first <= group.first <= entry.last for entry in chosen) for group in groups)
    enough = len(chosen) > (plan.last == end)
    # Leave out the appended facts: they are collected from the turns again.
    return tuple(body_of(entry.text) for entry in chosen) if told and enough else ()


def noted(material: Material, merge: SummaryPlan, newer: SummaryPlan, text: str) -> Material:
    """The material of `merge`, completed with the text of the `newer` summary if the merge includes that."""
    if not material.notes or merge.last < newer.last:
        return material
    return structs.replace(material, notes=(*material.notes, body_of(text)))


def rebased(plan: SummaryPlan, view: View, situation: Situation, settings: Compaction) -> SummaryPlan | Refusal:
    """`plan` with the figures of the present `view`; a refusal if it no longer applies.

    The conversation may go on while a summary waits to be accepted. Its plan applies as long as everything it replaces
    is still shown as when it was summarised.
    """
    if plan.boundaries:
        return _merge_rebased(plan, view, situation, settings)
    tokens, tokens_of = situation.tokens, situation.mixed_tokens_of
    groups = view.groups()
    covered = [group for group in groups if plan.first <= group.first <= plan.last]
    leaving = [group for group in covered if not group.pinned and group.first not in plan.brought_back]
    same = [_digests(group) for group in leaving] == [_digests(group) for group in plan.leaving]
    if not same or any(plan.first <= each.first <= plan.last for each in view.boundaries()):
        return Refusal(CHANGED)
    lapsed = tuple(seq for seq in plan.lapsed if seq in view.active_steps())
    replaced = min(tokens, plan.replaced if lapsed == plan.lapsed else _tokens_replaced(leaving, tokens_of))
    again = {seq for each in lapsed if isinstance(back := view.context_entry(each), Restored) for seq in back.items}
    hidden = {group.first for group in leaving} | again
    words, growth = _words(view, plan.last, hidden, plan.words_limit, tokens_of)
    expected = plan.after - (plan.before - plan.replaced) - plan.words_growth + growth
    return structs.replace(
        plan,
        kept=next((group for group in groups if group.first > plan.last), None),
        lapsed=lapsed,
        words=words,
        words_growth=growth,
        replaced=replaced,
        before=tokens,
        after=tokens - replaced + expected,
    )


def _merge_rebased(plan: SummaryPlan, view: View, situation: Situation, settings: Compaction) -> SummaryPlan | Refusal:
    within = [each for each in view.boundaries() if plan.first <= each.first and each.last <= plan.last]
    if not all(each in within for each in plan.boundaries):
        return Refusal(CHANGED)
    now = merge_of(within, view, situation, settings)
    told = {(each.first, each.last) for each in plan.leaving}
    # A request that was restored meanwhile, or is no longer, is among the user's kept words anyway.
    same = all(each.starts_turn or (each.first, each.last) in told for each in now.leaving)
    return now if same else Refusal(CHANGED)


def _words(
    view: View, last: int, hidden: Collection[int], limit: int, tokens_of: Callable[[Size], int]
) -> tuple[tuple[Words, ...], int]:
    """The user's kept words up to entry `last`, and by how many tokens they exceed the ones shown now, once the groups
    that start with the entries in `hidden` leave the view.
    """
    said, groups, now = view.said(), view.groups(), view.shown_words()
    pinned = {group.first for group in groups if group.pinned}
    words = kept_words(said, last=last, limit=limit, tokens_of=tokens_of, pinned=pinned)
    gone = {each.seq for each in said if each.seq <= last}.difference(group.first for group in groups).union(hidden)
    shown = [each for each in words if each.seq in gone]
    left_out = len(gone.intersection(each.seq for each in said)) - len(shown)
    weigh = Scale(tokens_of).text
    before = weigh(words_block(now.words, left_out=now.left_out))
    return words, weigh(words_block(shown, left_out=left_out)) - before


def _lapsed(view: View, span: Span) -> tuple[tuple[int, ...], list[Group]]:
    """The entries that restored a request which is no longer the newest, and the groups they show."""
    if not any(group.starts_turn for group in (*span.covered, *span.kept)):
        return (), []
    requests = {group.first: group for group in span.earlier if group.starts_turn and not group.pinned}
    entries = [
        entry
        for entry, counts in view.context_entries()
        if counts and isinstance(entry, Restored) and entry.items and all(seq in requests for seq in entry.items)
    ]
    return tuple(entry.seq for entry in entries), [requests[seq] for entry in entries for seq in entry.items]


def accept(
    plan: SummaryPlan,
    material: Material,
    text: str,
    *,
    path: str,
    tokens_of: Callable[[Size], int],
    author: Author = EXTRACTED,
) -> Accepted | Refusal:
    """Complete and check a written summary; returns its entries, or why it is rejected.

    `path`: of the archive, relative to the session's folder. Facts take at most half of what the summary frees.
    """
    if complaint := _unusable(text):
        return Refusal(complaint)
    body = completed(plan.form, text, material.extract)
    weigh = Scale(tokens_of)
    bare = weigh.text(framed(plan.form, body, "", path)) + plan.growth
    if bare >= plan.replaced:
        return Refusal(f"The summary takes {bare:,} tokens, the turns it replaces only {plan.replaced:,}.")
    lost = missing(material.facts, "\n".join((body, *(each.text for each in plan.words))))
    room = min(plan.facts_limit, (plan.replaced - bare) // 2)
    shown = listing(lost, limit=room, tokens_of=tokens_of, where=path)
    size = weigh.text(framed(plan.form, body, shown, path)) + plan.growth
    if size >= plan.replaced:
        return Refusal(
            f"With its facts the summary takes {size:,} tokens, the turns it replaces only {plan.replaced:,}."
        )
    return _accepted(
        plan,
        f"{body}\n\n{shown}" if shown else body,
        path=path,
        author=author,
        size=size,
        facts=(lost.total, lost.total - missing(lost, shown).total),
        sections_added=_added(plan.form, text, body),
    )


def accept_anew(
    plan: SummaryPlan, facts: Facts, accepted: Accepted, text: str, *, tokens_of: Callable[[Size], int]
) -> Accepted | Refusal:
    """An accepted summary with a text that the user edited, or with the same text for the present `plan`; or why not.

    The text is taken as it is: the user knows best what the model needs, so sections and facts that they deleted are
    not restored. It is rejected if it is empty or frees nothing, and the facts that it lacks are counted.
    """
    text, before = text.strip(), accepted.boundary
    if not text:
        return Refusal("The summary is empty.")
    size = Scale(tokens_of).text(framed(plan.form, text, "", before.path)) + plan.growth
    if size >= plan.replaced:
        return Refusal(f"The summary takes {size:,} tokens, the turns it replaces only {plan.replaced:,}.")
    author = Author(before.model, before.usage, before.cost_usd, before.depth)
    lacking, reason = (accepted.facts_missing, accepted.facts_appended), before.reason
    if text != accepted.text:
        lacking, reason = (missing(facts, text).total, 0), f"{plan.reason}, edited"
    plan = structs.replace(plan, reason=reason)
    return _accepted(
        plan, text, path=before.path, author=author, size=size, facts=lacking, sections_added=accepted.sections_added
    )


def _accepted(
    plan: SummaryPlan,
    text: str,
    *,
    path: str,
    author: Author,
    size: int,
    facts: tuple[int, int],
    sections_added: tuple[str, ...],
) -> Accepted:
    after = plan.before - plan.replaced + size
    boundary = _boundary(plan, framed(plan.form, text, "", path), path, author, after)
    entries: tuple[Summarized | Checkpointed | Restored | Undone, ...] = (boundary,)
    if plan.brought_back:
        why = "The newest request stays word for word."
        back = Restored(
            items=plan.brought_back, texts=("",) * len(plan.brought_back), reason=why, before=after, after=after
        )
        entries += (back,)
    for seq in plan.lapsed:
        entries += (Undone(target=seq, reason="A newer request came since.", before=after, after=after),)
    return Accepted(boundary, entries, text, after, *facts, sections_added)


def _tokens_replaced(groups: Sequence[Group], tokens_of: Callable[[Size], int]) -> int:
    return sum(map(Scale(tokens_of).group, groups))


def _digests(group: Group) -> tuple[int, int, tuple[bytes, ...]]:
    return group.first, group.last, tuple(each.digest for each in group.fingerprints)


def _what_stays(kept: Group | None, *, earlier: bool) -> str:
    before = " Earlier summaries stay in view as they are, so do not repeat them either." if earlier else ""
    opening = transcript([kept] if kept is not None else (), result_chars=80)
    if not opening:
        return f"None of the messages above stays in view.{before}"
    words = cut(" ".join(opening[0].split()), 120).replace("\n", " ")
    return f"The messages from this one on stay in view word for word, so do not repeat them: {words}{before}"


def _unusable(text: str) -> str:
    """Why a text cannot be a summary; empty if it can."""
    if sum(character.isalpha() for character in text[:4_000]) < _LEAST_LETTERS:
        return "The summary is empty." if not text.strip() else "The summary says nothing."
    words = text.split()
    if len(words) > 200 and len(set(words)) * 20 < len(words):
        return "The summary repeats itself."
    return ""


def _added(form: Form, text: str, body: str) -> tuple[str, ...]:
    said, now = sections(form, text), sections(form, body)
    own_words_first = bool(said.get(""))
    return tuple(
        name
        for position, name in enumerate(form.sections)
        if now.get(name) and not said.get(name) and not (position == 0 and own_words_first)
    )


def _boundary(plan: SummaryPlan, text: str, path: str, author: Author, after: int) -> Summarized | Checkpointed:
    build = Checkpointed if plan.form is CHECKPOINT else Summarized
    boundary = build(
        first=plan.first,
        last=plan.last,
        text=text,
        path=path,
        model=author.model,
        usage=author.usage,
        cost_usd=author.cost_usd,
        words=plan.words,
        state=plan.state,
        depth=author.depth,
        reason=plan.reason,
        before=plan.before,
        after=after,
    )
    match boundary:
        case Checkpointed():
            return structs.replace(boundary, note=plan.subject)
        case Summarized():
            return structs.replace(boundary, focus=plan.subject)
