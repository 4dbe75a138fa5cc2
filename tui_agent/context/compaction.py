"""Compaction: which turns become one summary, how it is asked for, and what is accepted as one.

A plan fixes the first and last entry it covers, so what arrives while the summary is being written is untouched. A cut
falls between two groups. The newest turns stay word for word, and with them what the model has not seen yet. Earlier
summaries and records are summarised along. Pins stay and are shown after the summary; the system prompt is no part of
the turns, so a summary can lose neither.

The newest request of the user stays word for word too: where it lies before the cut (a long tool loop), the accepted
entries bring it back after the summary.

The order of a compaction, for who runs it: `plan_compaction`; have the summary written, by the steps of
`summarising.attempts`; `accept`; write `archive` to its file; append the entries together. After a turn the trigger
only sets a pending flag, and the next run does the work before anything else, so a turn's end is never held up; inside
a turn the check is made before every model call.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from tui_agent.context.handover import (
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
from tui_agent.context.refusal import Refusal
from tui_agent.context.situation import Situation
from tui_agent.context.spans import Scale, Span, span_before, start_by_messages, start_by_tokens
from tui_agent.context.summary.extract import extract
from tui_agent.context.summary.facts import Facts, Source, collect, listing, missing
from tui_agent.context.summary.rendering import archive, cut, fact_sources, transcript
from tui_agent.context.thresholds import keep_tokens
from tui_agent.conversation.entries import Boundary, Checkpointed, Restored, Summarized, Usage
from tui_agent.conversation.groups import Group
from tui_agent.conversation.sizes import Size
from tui_agent.conversation.view import View
from tui_agent.settings import Compaction

LONGEST_SUMMARY: Final = 3_000
SHORTEST_GAIN: Final = 200
GAIN_SHARE: Final = 0.05
TRIGGER_SHARE: Final = 0.1
LARGEST_GAIN_ASKED: Final = 10_000
WORDS_PER_TOKEN: Final = 0.6

_EXTRACT_CHARS: Final = 8_000
_LEAST_LETTERS: Final = 20


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction, decided but for its text.

    Entries `first` to `last` are replaced; `kept_from` is the first entry kept (0: none is). `parts` is the transcript
    for a separate model, oldest first, one part for each earlier summary and each group; `questions` are the
    instructions. `archive` is the Markdown to keep of the turns. In tokens: `replaced` is what the covered turns take
    now, `before` the whole request now and `after` what is expected. `brought_back` are entries shown again after the
    summary. `subject` is the focus of a summary, or the note of a record.
    """

    form: Form
    first: int
    last: int
    kept_from: int
    brought_back: tuple[int, ...]
    parts: tuple[str, ...]
    questions: Questions
    extract: str
    facts: Facts
    archive: str
    replaced: int
    before: int
    after: int
    subject: str
    reason: str

    @property
    def step(self) -> str:
        """``summary`` or ``checkpoint``."""
        return "checkpoint" if self.form is CHECKPOINT else "summary"


class Accepted(NamedTuple):
    """The entries of an accepted summary, to be appended together.

    `text` is the boundary's without its first line and its path: what there is to edit. `after` is counted, no longer
    expected. `facts_missing` is how many facts the written text lacked, of which `facts_appended` now stand below it;
    `sections_added` are the sections it lacked.
    """

    boundary: Summarized | Checkpointed
    entries: tuple[Summarized | Checkpointed | Restored, ...]
    text: str
    after: int
    facts_missing: int
    facts_appended: int
    sections_added: tuple[str, ...]


class Author(NamedTuple):
    """Who wrote a summary, and what that took. `model` is empty for the extract."""

    model: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None


EXTRACTED: Final = Author()


def expected_summary(replaced: int) -> int:
    """The tokens a summary of `replaced` tokens is asked to stay below, its facts aside."""
    return min(LONGEST_SUMMARY, replaced // 4)


def plan_compaction(
    view: View,
    situation: Situation,
    settings: Compaction,
    prompts: Prompts,
    *,
    trigger: int | None,
    focus: str = "",
    asked: bool = False,
    keep: int | None = None,
    reason: str = "",
) -> CompactionPlan | Refusal:
    """The compaction of this moment.

    `trigger` is the size, in tokens, at which compactions happen; None: tokens are unknown, so messages are counted.
    `asked`: the user wants it now, so of a short conversation no more than a quarter is kept, and any gain will do; by
    itself a compaction must free 5% of the window (at most 10,000 tokens and a tenth of the trigger), or it would soon
    be due again. `keep` overrides what is kept, as
    the recovery from an overflow does.
    """
    groups, boundaries = view.groups(), view.boundaries()
    weigh = Scale(situation.tokens_of)
    if trigger is None and keep is None:
        start = start_by_messages(groups, settings.keep_recent)
    else:
        if keep is None:
            keep = keep_tokens(settings, situation.budget, trigger or 0)
        if asked:
            keep = min(keep, sum(weigh.group(group) for group in groups) // 4)
        start = start_by_tokens(groups, keep, weigh)
    span = span_before(groups, boundaries, start)
    least = SHORTEST_GAIN if asked else _smallest_gain(situation.budget.window, trigger)
    form = OUTLINE if settings.handover == "outline" else FIVE
    return plan_summary(
        view, situation, settings, prompts, span=span, form=form, subject=focus, least_gain=least, reason=reason
    )


def plan_summary(
    view: View,
    situation: Situation,
    settings: Compaction,
    prompts: Prompts,
    *,
    span: Span,
    form: Form,
    subject: str,
    least_gain: int,
    reason: str,
) -> CompactionPlan | Refusal:
    """The plan that replaces a span by one text, if that frees at least `least_gain` tokens."""
    brought_back = () if form is CHECKPOINT else span.brought_back
    leaving = [group for group in span.covered if not group.pinned and group.first not in brought_back]
    if not leaving and len(span.boundaries) < 2:
        return Refusal("There is nothing to summarise: all that is in view is new, pinned, or a summary already.")
    weigh = Scale(situation.tokens_of)
    replaced = sum(map(weigh.group, leaving)) + sum(weigh.text(boundary.text) for boundary in span.boundaries)
    summary = expected_summary(replaced)
    expected = summary + min(settings.facts_tokens, (replaced - summary) // 4)
    if replaced - expected < least_gain:
        freed = max(0, replaced - expected)
        return Refusal(f"A summary would free about {freed:,} of {situation.tokens:,} tokens, too few to be worth it.")
    parts, sources = told(span.boundaries, leaving, settings.summary_result_chars)
    words = max(60, int(summary * WORDS_PER_TOKEN))
    note = subject if form is CHECKPOINT else ""
    return CompactionPlan(
        form=form,
        first=span.first,
        last=span.last,
        kept_from=span.kept[0].first if span.kept else 0,
        brought_back=brought_back,
        parts=parts,
        questions=questions(prompts, form, words=words, focus=subject, kept=_what_stays(span.kept)),
        extract=extract(
            form,
            leaving,
            earlier=[body_of(boundary.text) for boundary in span.boundaries],
            note=note,
            limit=max(400, min(_EXTRACT_CHARS, replaced)),
        ),
        facts=collect(sources),
        archive=archive(view, leaving),
        replaced=replaced,
        before=situation.tokens,
        after=situation.tokens - replaced + expected,
        subject=subject,
        reason=reason,
    )


def accept(
    plan: CompactionPlan,
    text: str,
    settings: Compaction,
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
    body = completed(plan.form, text, plan.extract)
    weigh = Scale(tokens_of)
    bare = weigh.text(framed(plan.form, body, "", path))
    if bare >= plan.replaced:
        return Refusal(f"The summary takes {bare:,} tokens, the turns it replaces only {plan.replaced:,}.")
    lost = missing(plan.facts, body)
    room = min(settings.facts_tokens, (plan.replaced - bare) // 2)
    shown = listing(lost, limit=room, tokens_of=tokens_of, where=path)
    size = weigh.text(framed(plan.form, body, shown, path))
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
    plan: CompactionPlan, accepted: Accepted, text: str, *, tokens_of: Callable[[Size], int]
) -> Accepted | Refusal:
    """An accepted summary with the text a person gave it, or the same text on `plan` as it is now; or why not.

    The text is taken as it is: nobody knows better than who edits it what the model needs, so no section and no fact
    is put back that they took out. It is still rejected where it is empty or frees nothing, and the facts that it lacks
    are counted.
    """
    text, before = text.strip(), accepted.boundary
    if not text:
        return Refusal("The summary is empty.")
    size = Scale(tokens_of).text(framed(plan.form, text, "", before.path))
    if size >= plan.replaced:
        return Refusal(f"The summary takes {size:,} tokens, the turns it replaces only {plan.replaced:,}.")
    author = Author(before.model, before.usage, before.cost_usd)
    facts, reason = (accepted.facts_missing, accepted.facts_appended), before.reason
    if text != accepted.text:
        facts, reason = (missing(plan.facts, text).total, 0), f"{plan.reason}, edited"
    plan = msgspec.structs.replace(plan, reason=reason)
    return _accepted(
        plan, text, path=before.path, author=author, size=size, facts=facts, sections_added=accepted.sections_added
    )


def _accepted(
    plan: CompactionPlan,
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
    entries: tuple[Summarized | Checkpointed | Restored, ...] = (boundary,)
    if plan.brought_back:
        why = "The newest request stays word for word."
        back = Restored(
            items=plan.brought_back, texts=("",) * len(plan.brought_back), reason=why, before=after, after=after
        )
        entries += (back,)
    return Accepted(boundary, entries, text, after, *facts, sections_added)


def _smallest_gain(window: int, trigger: int | None) -> int:
    """The tokens a compaction must free that nobody asked for."""
    most = min(LARGEST_GAIN_ASKED, int(window * GAIN_SHARE), int((trigger or window) * TRIGGER_SHARE))
    return max(SHORTEST_GAIN, most)


def told(
    boundaries: Sequence[Boundary], groups: Sequence[Group], result_chars: int
) -> tuple[tuple[str, ...], list[Source]]:
    """What is summarised, in order: as text for a summariser, and as sources of facts."""
    parts: list[str] = []
    sources: list[Source] = []
    for piece in sorted([*boundaries, *groups], key=lambda piece: (piece.first, isinstance(piece, Group))):
        if isinstance(piece, Group):
            parts += transcript([piece], result_chars=result_chars)
            sources += fact_sources([piece])
        else:
            name = "record of a finished task" if isinstance(piece, Checkpointed) else "handover written earlier"
            parts.append(f"[{name}]\n{body_of(piece.text)}")
            sources.append(Source("summary", piece.text))
    return tuple(parts), sources


def _what_stays(kept: Sequence[Group]) -> str:
    opening = transcript(kept[:1], result_chars=80)
    if not opening:
        return "None of the messages above stays in view."
    words = cut(" ".join(opening[0].split()), 120).replace("\n", " ")
    return f"The messages from this one on stay in view word for word, so do not repeat them: {words}"


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


def _boundary(plan: CompactionPlan, text: str, path: str, author: Author, after: int) -> Summarized | Checkpointed:
    build = Checkpointed if plan.form is CHECKPOINT else Summarized
    boundary = build(
        first=plan.first,
        last=plan.last,
        text=text,
        path=path,
        model=author.model,
        usage=author.usage,
        cost_usd=author.cost_usd,
        reason=plan.reason,
        before=plan.before,
        after=after,
    )
    match boundary:
        case Checkpointed():
            return msgspec.structs.replace(boundary, note=plan.subject)
        case Summarized():
            return msgspec.structs.replace(boundary, focus=plan.subject)
