"""``/memory``: the notes about the project, and what came up in sessions and could become one.

Nothing that is proposed is written before the user was shown just what would change.
"""

import asyncio
import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from tui_agent.agent.commands.command import CommandReply, number_of, refused
from tui_agent.text import one_line, short_path
from tui_agent.tools.base import ToolFailure
from tui_agent.visible import visible

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.briefing.briefing import SectionReader
    from tui_agent.agent.inbox import Kind, MemoryProposals, Proposal
    from tui_agent.tools.notes.memory import Notes

Where: TypeAlias = Literal["agents", "memory", "skill"]
_USAGE: Final = (
    "/memory NUMBER [agents|memory|skill] shows what would be written, /memory take NUMBER … writes it, "
    "/memory drop NUMBER proposes it no more. /memory NAME shows a note, /memory edit NAME TEXT changes it, "
    "/memory forget NAME removes it."
)
_NOTES: "Final[Mapping[Kind, tuple[str, str]]]" = {
    "command": ("commands", "Commands that worked in several sessions"),
    "steps": ("procedures", "Commands that were run one after another in several sessions"),
    "file": ("where-to-begin", "Files that several sessions began by reading"),
    "said": ("wishes", "What the user has said in several sessions, or to correct the model"),
    "correction": ("wishes", "What the user has said in several sessions, or to correct the model"),
    "model": ("facts", "What sessions have shown of this project"),
}
"""The note for each kind of proposal, and its description."""
_HEADING: Final = "## From earlier sessions"


async def notes_and_proposals(agent: "Agent", argument: str) -> CommandReply:
    verb, _, rest = argument.partition(" ")
    try:
        if verb in ("take", "drop"):
            return await asyncio.to_thread(_decided, agent, verb, rest)
        if verb in ("edit", "forget"):
            return await asyncio.to_thread(_changed, agent, verb, rest)
        if number_of(verb) is not None:
            return await asyncio.to_thread(_shown, agent, argument)
        if argument:
            return await asyncio.to_thread(_note, _notes(agent), argument)
        return CommandReply("Memory", await asyncio.to_thread(_listed, agent))
    except ToolFailure as failure:
        return refused(one_line(failure.why, 300), failure.instead or _USAGE)
    except OSError as error:
        return refused("Nothing was written", f"{error.filename}: {error.strerror}")


def _listed(agent: "Agent") -> str:
    knowledge = agent.briefing.knowledge
    lines = [knowledge.memory_text() if knowledge is not None else "There are no notes."]
    if tokens := agent.context.stats().memory:
        lines.append(f"Their index takes {tokens:,} tokens of each request.")
    found = _proposals(agent)
    if found:
        lines += ["", "Came up in sessions of this project, and not written down yet:"]
        lines += [f"{number}. {_line(each)} ({each.source})" for number, each in enumerate(found, 1)]
    return "\n".join([*lines, "", _USAGE])


def _line(proposal: "Proposal") -> str:
    said = one_line(proposal.text.replace("\n", "; then "), 300)
    by_kind = {"model": said, "command": f"`{said}` works", "steps": f"`{said}`", "file": f"begins by reading {said}"}
    return by_kind.get(proposal.kind, f"you: “{said}”")


class _Change(NamedTuple):
    """What a proposal would write: a file, and its text before (None: there is none) and after."""

    where: Where
    path: Path
    before: str | None
    after: str
    note: str = ""

    @property
    def diff(self) -> str:
        before, after = (self.before or "").splitlines(), self.after.splitlines()
        return "\n".join(unified_diff(before, after, "before", short_path(self.path), lineterm=""))


def _change(agent: "Agent", argument: str) -> "tuple[Proposal, _Change]":
    """The proposal of this number, and what it would write where. Raises ToolFailure."""
    word, _, named = argument.strip().partition(" ")
    number, found = number_of(word), _proposals(agent)
    if number is None or not 1 <= number <= len(found):
        raise ToolFailure(f"There is no proposal {one_line(word, 20)}.", "/memory lists them.")
    proposal = found[number - 1]
    usual: Where = {"steps": "skill", "command": "agents", "file": "agents"}.get(proposal.kind, "memory")  # type: ignore[assignment]
    where = next((each for each in get_args(Where) if each == (named.strip() or usual)), None)
    if where is None:
        raise ToolFailure(f"{one_line(named, 40)} is no place for it.", "agents, memory and skill are.")
    if where == "memory":
        note, described = _NOTES[proposal.kind]
        file = _notes(agent).file(note)
        old = _body(file)
        return proposal, _Change(where, file, old, "\n".join(filter(None, (old, _written(proposal)))), described)
    root = _knowledge(agent).root
    if where == "skill":
        commands = proposal.text.split("\n")
        name = re.sub(r"[^a-z0-9]+", "-", " ".join(commands[-1].split()[:3]).lower()).strip("-")[:40] or "steps"
        steps = "\n".join(f"{number}. `{command}`" for number, command in enumerate(commands, 1))
        described = f"How to do what ends with {one_line(commands[-1], 80)}"
        text = f"---\nname: {name}\ndescription: {described!r}\n---\n\nRun these in this order:\n\n{steps}\n"
        path = root / ".agents/skills" / name / "SKILL.md"
        return proposal, _Change(where, path, _text(path), text)
    names = agent.settings.context.instruction_files
    path = next((root / name for name in names if (root / name).is_file()), root / next(iter(names), "AGENTS.md"))
    old = _text(path)
    parts = [(old or "").rstrip("\n"), "" if _HEADING in (old or "") else f"\n{_HEADING}\n", _written(proposal)]
    return proposal, _Change(where, path, old, "\n".join(part for part in parts if part).lstrip("\n") + "\n")


def _written(proposal: "Proposal") -> str:
    match proposal.kind:
        case "command":
            return f"- This works: `{proposal.text}`"
        case "steps":
            return "- One after another: " + ", ".join(f"`{command}`" for command in proposal.text.split("\n"))
        case "file":
            return f"- Read `{proposal.text}` first."
        case _:
            return f"- {proposal.text}"


def _shown(agent: "Agent", argument: str) -> CommandReply:
    proposal, change = _change(agent, argument)
    _inbox(agent).show(proposal.key, change.diff)
    source = f"From {proposal.source}. /memory take {argument} writes it."
    return CommandReply(f"What would be written to {short_path(change.path)}", f"{visible(change.diff)}\n{source}")


def _decided(agent: "Agent", verb: str, argument: str) -> CommandReply:
    proposal, change = _change(agent, argument)
    if verb == "drop":
        _inbox(agent).decide(proposal.key)
        return CommandReply("It is proposed no more", one_line(proposal.text, 300))
    if not _inbox(agent).was_shown(proposal.key, change.diff):
        shown = _shown(agent, argument)
        return shown._replace(title=f"Read it first: {shown.title}", failed=True)
    _write(agent, change)
    _inbox(agent).decide(proposal.key)
    undo = f"/memory forget {change.path.stem} takes it back" if change.where == "memory" else "Your editor changes it"
    return CommandReply(f"Written to {short_path(change.path)}", f"{undo}; the model is told with your next message.")


def _write(agent: "Agent", change: _Change) -> None:
    from tui_agent.tools.files.confined import write_atomically
    from tui_agent.tools.threads import Cancellation

    if change.where == "memory":
        _notes(agent).write(change.path.stem, change.note, change.after, Cancellation())
        return
    if _text(change.path) != change.before:
        raise ToolFailure(f"{short_path(change.path)} has changed meanwhile.", "/memory shows it again.")
    write_atomically(change.path, change.after.encode(), Cancellation())


def _changed(agent: "Agent", verb: str, rest: str) -> CommandReply:
    from tui_agent.tools.threads import Cancellation

    notes, (name, _, text) = _notes(agent), rest.strip().partition(" ")
    found = next((note for note in notes.listed() if note.name == name), None)
    if found is None:
        raise ToolFailure(f"There is no note {one_line(name, 60)}.", "/memory lists them.")
    if verb == "forget":
        notes.remove(name, Cancellation())
        return CommandReply(f"The note {name} is gone", "The model is told with your next message.")
    if not text.strip():
        return CommandReply(f"{short_path(found.file)} is the note", "Change it there, or give its new text.")
    notes.write(name, found.description, text, Cancellation())
    return CommandReply(f"The note {name} is changed", "The model is told with your next message.")


def _note(notes: "Notes", name: str) -> CommandReply:
    text = _text(notes.file(name))
    if text is None:
        raise ToolFailure(f"There is no note {one_line(name, 60)}.", _USAGE)
    return CommandReply(f"The note {name}", visible(text))


def _body(file: Path) -> str | None:
    """The text of a note, without its front matter."""
    from tui_agent.tools.notes.front_matter import split_front_matter

    text = _text(file)
    return None if text is None else split_front_matter(text)[1].strip()


def _text(path: Path) -> str | None:
    """The text of a file; None if there is none. Raises OSError, and ToolFailure for what is no text."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ToolFailure(f"{short_path(path)} is no text in UTF-8.") from error


def _proposals(agent: "Agent") -> "list[Proposal]":
    return agent.inbox.proposals(_knowledge(agent).written_down()) if agent.inbox is not None else []


def _inbox(agent: "Agent") -> "MemoryProposals":
    if agent.inbox is None:
        raise ToolFailure("This session proposes nothing to remember.")
    return agent.inbox


def _notes(agent: "Agent") -> "Notes":
    return _knowledge(agent).notes


def _knowledge(agent: "Agent") -> "SectionReader":
    if agent.briefing.knowledge is None:
        raise ToolFailure("This session keeps no notes.")
    return agent.briefing.knowledge
