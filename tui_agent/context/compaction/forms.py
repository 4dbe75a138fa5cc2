"""The forms of a summary: its sections, its first line, and the instructions that ask a model for one.

The form with five sections is a handover to a teammate, the outline is its short version, and the one with six sections
is the record of a finished task (docs/context.md, "Summaries"). A model's text is brought into its form here: echoes of
the instructions are removed, headings normalised, and missing sections filled from the extract.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from tui_agent.context.compaction.facts import without_listing
from tui_agent.regex import regex
from tui_agent.system.resources import prompt_text

SUMMARY_PREFIX: Final = "[Previous conversation summary]"
RECORD_PREFIX: Final = "[Completed task]"
ARCHIVE_LINE: Final = "The turns in full: "
NOTHING: Final = "(nothing)"
"""What stands in a section without content."""

_HEADING: Final = regex(r"^\s{0,3}(?:#{1,6}\s+|\*\*)(?:\d+[.)]\s*)?(.+?)\s*(?:\*\*)?:?\s*$")


class SummaryForm(msgspec.Struct, frozen=True):
    """A kind of summary: its first line, and its sections in order."""

    name: Literal["five", "outline", "checkpoint"]
    prefix: str
    sections: tuple[str, ...]


FIVE: Final = SummaryForm(
    "five",
    SUMMARY_PREFIX,
    ("Current state", "Files & changes", "Technical context", "Strategy & approach", "Exact next steps"),
)
OUTLINE: Final = SummaryForm("outline", SUMMARY_PREFIX, ("Session intent", "Key decisions", "Artifacts", "Next steps"))
CHECKPOINT: Final = SummaryForm(
    "checkpoint",
    RECORD_PREFIX,
    (
        "Task",
        "Files & changes",
        "Technical context",
        "Strategy & approach",
        "Verification & next steps",
        "Where we are",
    ),
)


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts for a model; each field is the prompt file of that name.

    summarizer: the system prompt of a separate model. same_prefix: wraps a form as a user message at the end of the
    running request. summary_merge: asks for one summary made from several. The forms describe the sections. The
    placeholders are ``{form}``, ``{focus}``, ``{kept}``, ``{words}`` and ``{characters}``.
    """

    summarizer: str
    same_prefix: str
    summary_merge: str
    summary_five: str
    summary_outline: str
    checkpoint: str
    digest: str

    @classmethod
    def shipped(cls) -> "Prompts":
        """The prompts that come with the package. Reads files."""
        return cls(**{name: prompt_text(name) for name in cls.__struct_fields__})

    def form(self, form: SummaryForm) -> str:
        return {"five": self.summary_five, "outline": self.summary_outline, "checkpoint": self.checkpoint}[form.name]


class Questions(NamedTuple):
    """The instructions for one summary, for each way of asking. `merging` replaces `separate` when merging parts."""

    separate: str
    merging: str
    same_prefix: str


def questions(prompts: Prompts, form: SummaryForm, *, words: int, focus: str, kept: str) -> Questions:
    """The instructions for a summary of at most `words` words. `kept`: what stays in view word for word."""
    wanted = f"The user asks to keep above all: {focus.strip()}" if focus.strip() else ""
    asked = {"form": prompts.form(form).strip(), "focus": wanted, "kept": kept, "words": str(words)}
    return Questions(*(fill(text, asked) for text in (prompts.summarizer, prompts.summary_merge, prompts.same_prefix)))


def cut(text: str, limit: int) -> str:
    """`text`, or if it is longer than `limit` characters its two ends, with a count of what was left out."""
    if len(text) <= limit:
        return text
    mark = f"\n[… {len(text) - limit:,} characters …]\n"
    tail = max(0, (limit - len(mark)) // 3)
    head = max(0, limit - len(mark) - tail)
    return text[:head] + mark + (text[-tail:] if tail else "") if head else text[:limit]


def fill(template: str, values: dict[str, str]) -> str:
    """`template` with each ``{name}`` replaced; inserted text is not expanded again. Runs of empty lines become one."""
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
    text = pattern.sub(lambda found: values[found[0][1:-1]], template)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def sections(form: SummaryForm, text: str) -> dict[str, str]:
    """The sections of `text` that belong to `form`, by their normalised headings; text before them under ``""``."""
    proper = {_plain(name): name for name in form.sections}
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        match = _HEADING.match(line)
        name = proper.get(_plain(match[1])) if match else None
        if name is None:
            found[current].append(line)
        else:
            current = name
            found.setdefault(name, [])
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def compose(form: SummaryForm, bodies: dict[str, str]) -> str:
    """A text of exactly the form's sections, in order."""
    return "\n\n".join(f"# {name}\n{bodies.get(name) or NOTHING}" for name in form.sections)


def completed(form: SummaryForm, text: str, extract: str) -> str:
    """`text` in its form; missing or empty sections are taken from `extract`, a text of the same form.

    Text before the first section is put at the start of that section.
    """
    bodies = sections(form, without_listing(_without_frame(form, text)))
    spare = sections(form, extract)
    first = form.sections[0]
    bodies[first] = "\n\n".join(part for part in (bodies.pop("", ""), bodies.get(first, "")) if part)
    return compose(form, {name: bodies.get(name) or spare.get(name, "") for name in form.sections})


def joined(form: SummaryForm, texts: Sequence[str]) -> str:
    """Consecutive summaries as one text, section by section; the next steps of earlier ones have been overtaken."""
    found = [sections(form, text) for text in texts]
    for earlier in found[:-1]:
        earlier.pop(form.sections[-1], None)
    bodies: dict[str, str] = {}
    for name in ("", *form.sections):
        told = dict.fromkeys(each.get(name, "") for each in found)
        bodies[name] = "\n\n".join(text for text in told if text not in ("", NOTHING))
    return "\n\n".join(filter(None, (bodies.pop(""), compose(form, bodies))))


def framed(form: SummaryForm, body: str, path: str) -> str:
    """The whole text of a boundary: first line, sections and facts, and the path of the full turns."""
    return "\n\n".join(filter(None, (form.prefix, body, f"{ARCHIVE_LINE}{path}" if path else "")))


def body_of(text: str) -> str:
    """A boundary's sections only, without first line, facts and path."""
    for form in (FIVE, CHECKPOINT):
        text = text.removeprefix(form.prefix)
    return without_listing(_without_path(text)).strip()


def _without_frame(form: SummaryForm, text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text[text.index("\n") + 1 : -3].strip()
    return _without_path(text.removeprefix(form.prefix)).strip()


def _without_path(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(ARCHIVE_LINE))


def _plain(heading: str) -> str:
    return " ".join(re.sub(r"[^\w]+", " ", heading.replace("&", " and ").casefold()).split())
