"""What a summary is written from and checked against."""

from typing import Final

import msgspec
from msgspec import structs

from tui_agent.context.compaction.extract import extract
from tui_agent.context.compaction.facts import Facts, collect
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.compaction.questions import CHECKPOINT, Prompts, Questions, body_of, questions
from tui_agent.context.compaction.rendering import archive, cut, fact_sources, transcript
from tui_agent.conversation.entries import Boundary, Checkpointed, Summarized
from tui_agent.conversation.view import View
from tui_agent.settings import Compaction

WORDS_PER_TOKEN: Final = 0.6
_EXTRACT_CHARS: Final = 8_000


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

    def with_newer(self, merge: Plan, newer: Plan, text: str) -> "Material":
        """This material of `merge`, completed with the text of the `newer` summary if the merge includes that."""
        if not self.notes or merge.last < newer.last:
            return self
        return structs.replace(self, notes=(*self.notes, body_of(text)))


def material_of(plan: Plan, view: View, settings: Compaction, prompts: Prompts) -> Material:
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


def asked_of(plan: Plan, view: View, settings: Compaction, prompts: Prompts) -> tuple[tuple[str, ...], Questions]:
    """The input for a summary's writer: the parts and questions of a `Material`."""
    stays = "None of the messages above stays in view."
    if plan.kept is not None and (opening := transcript([plan.kept], result_chars=80)):
        words = cut(" ".join(opening[0].split()), 120).replace("\n", " ")
        stays = f"The messages from this one on stay in view word for word, so do not repeat them: {words}"
    if view.boundaries() and not plan.boundaries:
        stays += " Earlier summaries stay in view as they are, so do not repeat them either."
    length = max(60, int(plan.writes * WORDS_PER_TOKEN))
    asked = questions(prompts, plan.form, words=length, focus=plan.subject, kept=stays)
    return transcript(plan.leaving, result_chars=settings.summary_result_chars), asked


def _notes(plan: Plan, view: View) -> tuple[str, ...]:
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
    all_covered = all(any(entry.first <= group.first <= entry.last for entry in chosen) for group in groups)
    enough = len(chosen) > (plan.last == end)
    # Leave out the appended facts: they are collected from the turns again.
    return tuple(body_of(entry.text) for entry in chosen) if all_covered and enough else ()
