"""A summary from plan to entry: which turns one text replaces, what it is made of, and what is accepted as one.

A plan fixes the first and last entry it covers, so what arrives while the summary is being written is untouched. Pins
stay and are shown after the summary; the system prompt is no part of the turns, so a summary can lose neither. The
user's own words follow the newest summary. The newest request stays where it stood, too: where that is before the cut
(a long tool loop), the accepted entries bring it back.

Each summary covers turns that none covered before, and earlier ones stay as they are. When they have become too large
together, the oldest are replaced by one. It is put together from texts that were each written from the turns
themselves, never from an earlier merge, and checked by what the turns say: nothing goes through more than two texts.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import structs

from tui_agent.context.economics import Situation, expected_summary
from tui_agent.context.effects import Refusal
from tui_agent.context.summary.extract import extract
from tui_agent.context.summary.facts import Facts, collect, listing, missing
from tui_agent.context.summary.questions import (
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
from tui_agent.context.summary.rendering import archive, cut, fact_sources, transcript
from tui_agent.context.summary.spans import Scale, Span
from tui_agent.context.summary.words import kept_words, words_limit
from tui_agent.conversation.entries import Boundary, Checkpointed, Restored, Summarized, Undone, Usage, Words
from tui_agent.conversation.groups import Group
from tui_agent.conversation.request import words_block
from tui_agent.conversation.sizes import Size
from tui_agent.conversation.view import View
from tui_agent.settings import Compaction

NOTHING_TO_SUMMARISE: Final = "There is nothing to summarise: all that is in view is new, pinned, or a summary already."
SUMMARIES_SHARE: Final = 10
"""The summaries together take at most one part in so many of the window."""
MERGED_SHARE: Final = 4
"""A merge takes at most one part in so many of what the summaries together may take, and its facts as much again."""
SHORTEST_GAIN: Final = 200
"""Tokens that a summary must free at least."""
WORDS_PER_TOKEN: Final = 0.6

_EXTRACT_CHARS: Final = 8_000
_LEAST_LETTERS: Final = 20


class SummaryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One summary or completion record, decided but for its text.

    Entries `first` to `last` are replaced: the groups in `leaving` and the earlier `boundaries`. `kept` is the first
    group that stays (None: none does). In tokens: `replaced` is what they take now, `before` the whole request now and
    `after` what is expected. `brought_back` are entries shown again after the summary, `lapsed` are those that brought
    back earlier requests. `words` are kept of the user's own, at most `words_limit` tokens of them, `words_growth` more
    than are shown now; `state` tells where things are, in `state_growth` tokens more than now. The text is asked to
    take `writes` tokens, and facts that it lacks get `facts_limit` more at most. `subject` is the focus of a summary,
    or the note of a record.
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
        """The tokens that what stands beside the summary takes more than now."""
        return self.words_growth + self.state_growth

    @property
    def kept_from(self) -> int:
        """The first entry kept; 0: none is."""
        return self.kept.first if self.kept is not None else 0


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is written from and checked by.

    `parts` is the transcript for a separate model, oldest first, one part for each group; `notes` are texts that stand
    for all of it already, each written from the turns themselves (empty: there are none);
    `questions` are the instructions; `extract` is the text that needs no model; `archive` is the Markdown to keep of
    the turns.
    """

    parts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    questions: Questions
    extract: str
    facts: Facts
    archive: str


class Accepted(NamedTuple):
    """The entries of an accepted summary, to be appended together.

    `text` is the boundary's without its first line and its path: what there is to edit. `after` is counted, no longer
    expected. `facts_missing` is how many facts the written text lacked, of which `facts_appended` now stand below it;
    `sections_added` are the sections it lacked.
    """

    boundary: Boundary
    entries: tuple[Summarized | Checkpointed | Restored | Undone, ...]
    text: str
    after: int
    facts_missing: int
    facts_appended: int
    sections_added: tuple[str, ...]


class Author(NamedTuple):
    """Who wrote a summary, and what that took. `model` is empty for the extract.

    `depth` is 2 where parts were put together: what it says has gone through two texts.
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
    """The plan that replaces a span by one text, if that frees at least `least_gain` tokens."""
    if not span.covered:
        return Refusal(NOTHING_TO_SUMMARISE)
    brought_back = () if form is CHECKPOINT else span.brought_back
    leaving = [group for group in span.covered if not group.pinned and group.first not in brought_back]
    lapsed, again = _lapsed(view, span)
    if not leaving:
        return Refusal(NOTHING_TO_SUMMARISE)
    tokens_of = situation.mixed_tokens_of
    # A provider may have counted less than these are estimated at.
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


def telling(plan: SummaryPlan, state: str, view: View, tokens_of: Callable[[Size], int]) -> SummaryPlan:
    """`plan` with where things are; a merge leaves that to the newest summary, unless it takes that one in too."""
    newest = max(view.boundaries(), key=lambda each: each.first, default=None)
    if plan.boundaries and newest not in plan.boundaries:
        return plan
    weigh = Scale(tokens_of).text
    growth = weigh(state) - (weigh(newest.state) if newest is not None else 0)
    return structs.replace(plan, state=state, state_growth=growth)


def plan_merge(
    view: View, situation: Situation, settings: Compaction, *, coming: SummaryPlan | None = None
) -> SummaryPlan | None:
    """The plan that replaces the oldest summaries by one, where all together pass their budget (see `Material`), with
    what `coming` will be, which is about to be written. The newest stays as it is, unless it is one of two.
    """
    weigh = Scale(situation.mixed_tokens_of)
    shown = sorted(view.boundaries(), key=lambda each: each.first)
    sizes, budget = [weigh.text(each.text) for each in shown], summaries_limit(settings, situation.budget.window)
    if coming is None:
        if len(shown) < 2 or sum(sizes) <= budget:
            return None
        return merge_of(shown[:-1] if len(shown) > 2 else shown, view, situation, settings)
    # Texts of one conversation are about as large as each other.
    size = max(_size_of(coming), *sizes, 0)
    if not shown or sum(sizes) + size <= budget:
        return None
    alone = len(shown) == 1 or 2 * size > budget
    return merge_of(shown, view, situation, settings, newer=coming if alone else None)


def _size_of(plan: SummaryPlan) -> int:
    """The tokens that the summary of `plan` is expected to take."""
    return plan.after - plan.before + plan.replaced - plan.growth


def summaries_limit(settings: Compaction, window: int) -> int:
    """The tokens that all summaries together may take; `window` 0: unknown."""
    return min(settings.summaries_tokens, window // SUMMARIES_SHARE) if window else settings.summaries_tokens


def merge_of(
    merged: Sequence[Boundary],
    view: View,
    situation: Situation,
    settings: Compaction,
    *,
    newer: SummaryPlan | None = None,
) -> SummaryPlan:
    """The plan that replaces these summaries, and the `newer` one that comes before it, by one."""
    weigh = Scale(situation.mixed_tokens_of)
    budget = summaries_limit(settings, situation.budget.window)
    first, last = min(each.first for each in merged), max(each.last for each in merged)
    leaving = tuple(group for group in view.originals(first, last) if not group.pinned)
    replaced, count = sum(weigh.text(each.text) for each in merged), len(merged)
    if newer is not None:
        last, leaving = newer.last, (*leaving, *newer.leaving)
        replaced, count = replaced + _size_of(newer), count + 1
    # Few enough that the next summary brings about no other merge.
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
    """What the summary of `plan` is written from. Reads all that leaves the view: slow for a long span."""
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
        # What is merged was archived when it left the view.
        archive="" if plan.boundaries else archive(view, plan.leaving),
    )


def asked_of(
    plan: SummaryPlan, view: View, settings: Compaction, prompts: Prompts
) -> tuple[tuple[str, ...], Questions]:
    """What the writer of a summary is told and asked: the parts of a `Material`, and its questions."""
    asked = questions(
        prompts,
        plan.form,
        words=max(60, int(plan.writes * WORDS_PER_TOKEN)),
        focus=plan.subject,
        kept=_what_stays(plan.kept, earlier=bool(view.boundaries()) and not plan.boundaries),
    )
    return transcript(plan.leaving, result_chars=settings.summary_result_chars), asked


def _notes(plan: SummaryPlan, view: View) -> tuple[str, ...]:
    """The summaries and records that were written from the turns of a merge themselves, oldest first.

    The log has them also where an earlier merge took their place, so nothing ever goes through more than two texts.
    Empty where some of the turns are in none of them.
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
    # Facts are looked for in the turns again: what was appended of them need not be told.
    return tuple(body_of(entry.text) for entry in chosen) if told and enough else ()


def noted(material: Material, merge: SummaryPlan, newer: SummaryPlan, text: str) -> Material:
    """The material of `merge`, once the text of the `newer` summary is written, which it takes in or leaves alone."""
    if not material.notes or merge.last < newer.last:
        return material
    return structs.replace(material, notes=(*material.notes, body_of(text)))


def rebased(plan: SummaryPlan, view: View, situation: Situation, settings: Compaction) -> SummaryPlan | Refusal:
    """`plan` with the figures of `view` as it is now; refused where it no longer holds.

    While a summary waits to be accepted the conversation may go on. Its plan holds as long as all that it replaces is
    still shown as it was when it was summarised.
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
    # A request that was shown again meanwhile, or no longer is, stands among the user's own words.
    same = all(each.starts_turn or (each.first, each.last) in told for each in now.leaving)
    return now if same else Refusal(CHANGED)


def _words(
    view: View, last: int, hidden: Collection[int], limit: int, tokens_of: Callable[[Size], int]
) -> tuple[tuple[Words, ...], int]:
    """The user's own words up to entry `last`, and how many tokens more they take than those that are shown now, once
    what starts with the entries in `hidden` leaves the view.
    """
    words = kept_words(view.said(), last=last, limit=limit, tokens_of=tokens_of)
    stays = {group.first for group in view.groups()}.difference(hidden)
    weigh = Scale(tokens_of).text
    return words, weigh(words_block(words, stays)) - weigh(words_block(view.shown_words()))


def _lapsed(view: View, span: Span) -> tuple[tuple[int, ...], list[Group]]:
    """The entries that brought back an earlier request, now that it is no longer the newest, and what they show."""
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
    """The entries for a summary that was written, completed and checked; or why it is rejected.

    `path` is where the plan's archive is to be written, relative to the session's folder. Facts take at most half
    of what the summary frees.
    """
    if complaint := _unusable(text):
        return Refusal(complaint)
    body = completed(plan.form, text, material.extract)
    weigh = Scale(tokens_of)
    bare = weigh.text(framed(plan.form, body, "", path)) + plan.growth
    if bare >= plan.replaced:
        return Refusal(f"The summary takes {bare:,} tokens, the turns it replaces only {plan.replaced:,}.")
    lost = missing(material.facts, f"{body}\n{words_block(plan.words)}")
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
    """An accepted summary with the text a person gave it, or the same text on `plan` as it is now; or why not.

    The text is taken as it is: nobody knows better than who edits it what the model needs, so no section and no fact
    is put back that they took out. It is still rejected where it is empty or frees nothing, and the facts that it lacks
    are counted.
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
    """Why a text cannot be a summary; empty when it can."""
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
