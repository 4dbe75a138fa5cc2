"""What a session knows before it begins: the project's instructions, its skills and its memory, as they are now.

The files belong to the user and may change at any time; they are read again only when something about them changed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tui_agent.agent.system_prompt import Sections, instruction_files, instructions
from tui_agent.context.counting import estimate
from tui_agent.conversation.sizes import size_of_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.memory import Notes
from tui_agent.tools.notes.skills import Skill, SkillFolder, find_skills, signature_of, skills_signature

_SKILLS = (
    "A skill is a folder with instructions for one kind of task. Here are their names, what they are for, and their "
    "files. When one fits the task, read its file with read_file before you begin, and follow it; the files it names "
    "lie beside it. Reading them never asks."
)
_MEMORY = (
    "Notes from earlier sessions in this project, kept in {folder}. This is their index, {index}. Read a note with "
    "read_file when it may matter (reading never asks); keep notes with the tool memory. A note may be out of date: "
    "what the files say now counts."
)


class Places(NamedTuple):
    """Where to look. `root` and `folder` bound the instruction files called `names` (none: an untrusted project)."""

    root: Path
    folder: Path
    names: Sequence[str]
    skills: tuple[SkillFolder, ...]
    notes: Notes


class IndexLimits(NamedTuple):
    """The most an index may take in the prompt, in tokens."""

    skills: int
    memory: int


class Knowledge:
    """Reads the sections, and keeps them while nothing changes. Its methods read files: call them off the event loop,
    one at a time.
    """

    def __init__(self, places: Places, limits: IndexLimits) -> None:
        self._places = places
        self._limits = limits
        self._seen: tuple[object, ...] = ()
        self._sections = Sections()
        self.own_memory = ""
        """The section on memory where the index is as the session's own tool left it; else empty."""

    def sections(self) -> Sections:
        """What there is now. Cheap while nothing has changed: then no file is read."""
        seen = self._signature()
        if seen != self._seen:
            self._sections = Sections(self._instructions(), self._skills(), self._memory())
            self.own_memory = self._sections.memory if self._places.notes.is_own else ""
            self._seen = seen
        return self._sections

    def skills(self) -> tuple[Skill, ...]:
        """Every skill there is, also those that cannot be used."""
        return find_skills(self._places.skills)

    def skills_text(self) -> str:
        """The skills for a person to read."""
        found = self.skills()
        looked = ", ".join(shown(str(folder.path)) for folder in self._places.skills)
        if not found:
            return f"There are no skills. They are looked for in: {looked}"
        lines = [
            f"{skill.name}\n  {f'cannot be used: {skill.problem}' if skill.problem else skill.description}\n"
            f"  {shown(str(skill.file))}"
            for skill in found
        ]
        return "\n".join([*lines, f"Looked in: {looked}"])

    def memory_text(self) -> str:
        """The notes for a person to read. A folder that cannot be read is said."""
        notes = self._places.notes
        try:
            listed = notes.listed()
        except ToolFailure as failure:
            return str(failure)
        if not listed:
            return f"There are no notes about this project yet. They will be in: {shown(str(notes.folder))}"
        lines = [f"{note.name}{' (the file is gone)' * note.missing}\n  {note.description}" for note in listed]
        return "\n".join([*lines, f"In {shown(str(notes.folder))}"])

    def _signature(self) -> tuple[object, ...]:
        places = self._places
        files = instruction_files(places.root, places.folder, places.names)
        return (
            *map(signature_of, files),
            *skills_signature(places.skills),
            signature_of(places.notes.index),
        )

    def _instructions(self) -> str:
        places = self._places
        return instructions(places.root, places.folder, places.names) if places.names else ""

    def _skills(self) -> str:
        usable = [skill for skill in self.skills() if not skill.problem]
        lines = [f"- {skill.name}: {skill.description} ({shown(str(skill.file))})" for skill in usable]
        return bounded(_SKILLS, lines, self._limits.skills, lambda left: f"[{left:,} more skills do not fit here.]")

    def _memory(self) -> str:
        notes = self._places.notes
        try:
            lines = [line.rstrip() for line in notes.look().strip().splitlines()]
        except ToolFailure as failure:
            lines = [f"[The index cannot be read: {failure}]"]
        index, folder = shown(str(notes.index)), shown(str(notes.folder))
        if not any(line and not line.startswith("#") for line in lines):
            return ""
        return bounded(
            _MEMORY.format(folder=folder, index=notes.index.name),
            lines,
            self._limits.memory,
            lambda left: f"[{left:,} more lines do not fit here: read {index}.]",
        )


def bounded(introduction: str, lines: Sequence[str], tokens: int, rest: Callable[[int], str]) -> str:
    """An index of at most `tokens` (estimated): the introduction, as many lines from the first on as fit, and what
    `rest` says of the number left out. Empty where there are no lines.
    """
    if not lines:
        return ""
    room = tokens - _tokens(f"{introduction}\n\n{rest(len(lines))}\n")
    kept: list[str] = []
    for line in lines:
        room -= _tokens(f"{line}\n")
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    text = "\n".join([introduction, "", *kept, *([rest(left)] if left else [])])
    return text if _tokens(text) <= tokens else ""


def _tokens(text: str) -> int:
    return estimate(size_of_text(text))
