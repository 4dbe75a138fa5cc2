"""What a summary is written from and checked against: the turns as text, as facts, and as an archive."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.context.compaction.extract import extract
from tui_agent.context.compaction.facts import Fact, Source, collect, missing
from tui_agent.context.compaction.forms import CHECKPOINT, Prompts, Questions, body_of, cut, questions
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.economics import Situation
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Boundary, Checkpointed, Digested, Message, Summarized
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.view import Group, View
from tui_agent.system.lenient import strings_in
from tui_agent.text import code_block

OPEN: Final = "<transcript>"
CLOSE: Final = "</transcript>"

_SPEAKERS: Final = {"tool_summary": "digest of earlier results", "user_shell": "the user's own command"}

PASTE_CHARS: Final = 1_500
"""A user's text with more characters than this is taken for a paste."""
WORDS_PER_TOKEN: Final = 0.6
NOTES_SHARE: Final = 2
"""A merge reads summaries of at most 1/`NOTES_SHARE` of the history budget."""
_EXTRACT_CHARS: Final = 8_000


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is written from and checked against.

    parts: the transcript for a separate model, one part for each group, oldest first. notes: existing summaries of all
    of it; empty: there are none. depth: through how many summaries the oldest of them has passed. standing: the
    summaries in view that a merge replaces. questions: the instructions. extract: the text made without a model.
    archive: the turns as Markdown, to be saved.
    """

    parts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    depth: int = 0
    standing: tuple[str, ...] = ()
    questions: Questions
    extract: str
    facts: tuple[Fact, ...]
    archive: str

    def with_newer(self, merge: Plan, newer: Plan, text: str) -> "Material":
        """This material of `merge`, completed with the text of the `newer` summary if the merge includes that."""
        if merge.last < newer.last:
            return self
        body = (body_of(text),)
        return structs.replace(self, notes=self.notes and self.notes + body, standing=self.standing + body)


def material_of(plan: Plan, view: View, here: Situation, prompts: Prompts) -> Material:
    """The material of a planned summary. Reads everything that leaves the view: slow for a long span."""
    parts, asked = questions_of(plan, view, here, prompts)
    notes = _notes(plan, view, here) if plan.boundaries else ()
    # One that the provider signs stands for what earlier ones have replaced, too.
    replaced = view.originals(plan.first, plan.last) if plan.through else plan.leaving
    return Material(
        parts=parts,
        # Leave out the appended facts: they are collected from the turns again.
        notes=tuple(body_of(entry.text) for entry in notes),
        depth=max((entry.depth for entry in notes), default=0),
        standing=tuple(body_of(entry.text) for entry in plan.boundaries),
        questions=asked,
        extract=extract(
            plan.form,
            plan.leaving,
            note=plan.subject if plan.form is CHECKPOINT else "",
            limit=max(400, min(_EXTRACT_CHARS, plan.replaced)),
        ),
        facts=missing(collect(fact_sources(replaced)), "\n".join(_staying(plan, view))),
        # Merged turns were archived when they left the view.
        archive="" if plan.boundaries else archive(view, plan.leaving),
    )


def _staying(plan: Plan, view: View) -> Iterator[str]:
    """The texts that stay in view beside the summary: what they say need not be said again."""
    yield plan.state
    if not plan.through:
        yield from (each.text for each in view.boundaries() if each not in plan.boundaries)
    yield from (source.text for source in fact_sources(group for group in view.groups() if group.first > plan.last))


def questions_of(plan: Plan, view: View, here: Situation, prompts: Prompts) -> tuple[tuple[str, ...], Questions]:
    """The input for a summary's writer: the parts and questions of a `Material`."""
    stays = "None of the messages above stays in view."
    if plan.kept is not None and (opening := transcript([plan.kept], result_chars=80)):
        words = cut(" ".join(opening[0].split()), 120).replace("\n", " ")
        stays = f"The messages from this one on stay in view word for word, so do not repeat them: {words}"
    if view.boundaries() and not plan.boundaries:
        stays += " Earlier summaries stay in view as they are, so do not repeat them either."
    length = max(60, int(plan.writes * WORDS_PER_TOKEN))
    asked = questions(prompts, plan.form, words=length, focus=plan.subject, kept=stays)
    return transcript(plan.leaving, result_chars=here.settings.compaction.summary_result_chars), asked


def _notes(plan: Plan, view: View, here: Situation) -> tuple[Boundary, ...]:
    """The summaries and records that a merge is made from, oldest first; none if they do not cover all of the turns.

    The log has those written from the turns themselves even if an earlier merge replaced them. They would be read again
    with every merge, ever more of them: once they take more than half of the history budget, the earlier merge stands
    for the turns that it covers.
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
    tokens = sum(here.mixed_tokens_of(size_of_text(each.text)) for each in chosen)
    merged = max((each for each in plan.boundaries if each.depth > 1), key=lambda each: each.last, default=None)
    if merged is not None and here.budget.limit and tokens > here.budget.history // NOTES_SHARE:
        chosen = [merged, *(each for each in chosen if each.first > merged.last)]
    groups = [group for group in plan.leaving if group.first <= end]
    all_covered = all(any(entry.first <= group.first <= entry.last for entry in chosen) for group in groups)
    enough = len(chosen) > (plan.last == end)
    return tuple(chosen) if all_covered and enough else ()


def transcript(groups: Iterable[Group], *, result_chars: int) -> tuple[str, ...]:
    """Each group as text, with results and arguments of calls cut to `result_chars` characters."""
    return tuple(text for group in groups if (text := _group_text(group, result_chars)))


def as_material(parts: Sequence[str]) -> str:
    """Parts of a transcript, wrapped in tags that tell the model they are material, not a request."""
    inside = "\n\n".join(parts).replace(CLOSE, "</ transcript>")
    return f"{OPEN}\n{inside}\n{CLOSE}"


def fact_sources(groups: Iterable[Group]) -> list[Source]:
    """The full text of each speaker in the groups; for a tool call, the texts in its arguments.

    For the user only pastes: their shorter texts are kept word for word anyway.
    """
    sources: list[Source] = []
    for group in groups:
        for segment in group.segments:
            for block in segment.blocks:
                match block:
                    case Text() if group.kind == "tool_summary":
                        sources.append(Source("assistant", block.text))
                    case Text() if group.kind:
                        sources.append(Source("tool", block.text))
                    case Text() if group.role == "assistant" or len(block.text) > PASTE_CHARS:
                        sources.append(Source(group.role, block.text))
                    case ToolCall():
                        sources.append(Source("assistant", "\n".join(strings_in(block.arguments))))
                    case ToolResult():
                        sources.append(Source("tool", block.text))
                    case Text() | Reasoning() | Image():
                        pass
    return sources


def archive(view: View, groups: Sequence[Group]) -> str:
    """The groups' full entries in the log as Markdown, with a heading for each message."""
    parts = [f"## Entries {groups[0].first} to {groups[-1].last}"] if groups else []
    for group in groups:
        for seq in dict.fromkeys((group.first, *group.results.values())):
            parts += _archived(seq, view)
    return "\n\n".join(parts) + "\n\n" if parts else ""


def _group_text(group: Group, limit: int) -> str:
    names: dict[str, str] = {}
    lines: list[str] = []
    for segment in group.segments:
        for block in segment.blocks:
            match block:
                case Text():
                    lines.append(f"[{_speaker(group)}]\n{block.text.strip()}")
                case ToolCall():
                    names[block.id] = block.name
                    lines.append(f"[assistant calls {block.name}]\n{cut(block.arguments, limit)}")
                case ToolResult():
                    failed = ", failed" if block.is_error else ""
                    lines.append(f"[result of {names.get(block.call_id, 'a call')}{failed}]\n{cut(block.text, limit)}")
                case Image():
                    lines.append(f"[{_speaker(group)} shows an image]")
                case Reasoning():
                    pass
    return "\n".join(lines)


def _speaker(said: Group | Message) -> str:
    return _SPEAKERS.get(said.kind, "program") if said.kind else said.role


def _archived(seq: int, view: View) -> list[str]:
    """An entry in full, with its heading."""
    entry, message = view.log[seq], view.log.message(seq)
    title, parts = _SPEAKERS["tool_summary"], [entry.text] if isinstance(entry, Digested) else []
    if message is not None:
        results = (view.call(block.call_id) for block in message.blocks if isinstance(block, ToolResult))
        called = ", ".join(call.name for call in results if call)
        title = f"result of {called}" if message.kind == "tool_result" else _speaker(message)
        parts = [text for text in map(_block_text, message.blocks) if text]
        if message.artifact is not None:
            parts.append(f"(whole text: {message.artifact.path})")
    when = datetime.fromtimestamp(entry.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return [f"### {seq} · {title} · {when}", *parts]


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return f"calls `{block.name}`\n\n{code_block(block.arguments)}"
        case ToolResult():
            failed = "failed\n\n" if block.is_error else ""
            return failed + code_block(block.text) + "\n\n(an image)" * len(block.images)
        case Image():
            return "(an image)"
        case Reasoning():
            return ""
