"""The briefing: system prompt and tools at the start of a conversation, and notices of later changes.

The user's files may change at any time; they are read again only when they did. A conversation keeps the system prompt
it started with; a section that changes later reaches the model as a notice.
"""

import asyncio
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from tui_agent.agent.briefing.included import included, rules_in
from tui_agent.agent.briefing.tool_servers import OfferedTools, bounded
from tui_agent.agent.extensions.agents import INTRODUCTION, RUN_AGENT, own_agents
from tui_agent.agent.extensions.files import AGENTS, STYLES, ExtensionFolder, signature, style_text
from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import ToolDefinition, text_in, valid_text
from tui_agent.conversation.entries import Message, Prefix, notice
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import size_of_text, size_of_tools
from tui_agent.settings.brought import CLAUDE, INCLUDING, RULES
from tui_agent.settings.trust import CLAUDE_FOLDER
from tui_agent.system.regular import read_at_most
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.front_matter import split_front_matter
from tui_agent.tools.notes.memory import Notes
from tui_agent.tools.notes.skills import SkillFolder, find_skills, signature_of, skills_signature

OWN_INSTRUCTIONS = "AGENTS.md"
"""The file in the program's home with the user's own instructions."""
INSTRUCTIONS_LIMIT = 40_000
"""The most characters of one instruction file in the prompt."""
NEWS_LIMIT = 40_000
"""The most characters of one section in a notice."""
_MOST_READ = 4 * 1024 * 1024  # bytes read of an instruction file; `INSTRUCTIONS_LIMIT` characters of it are kept

BY_NEED: Final = (
    *("read_file", "run_command", "edit_file", "write_file", "recall"),
    *("grep", "glob", "submit_plan", "command_output", "stop_command", "todo", "list_dir", "ask_user"),
    *("mark_task_done", "fetch_url", "memory"),
)
"""The session's tools in the order in which a small window has room for them; the others come after these.

About as often as agents call them in 919 public recordings (55,854 calls): running 36%, reading 34%, editing 12%, grep
7%, task list and glob 4% each, writing 2%. Plan mode needs `submit_plan`, and what left the view `recall`.
"""
ALWAYS: Final = 5
"""How many of these are offered in any window."""
PREFIX_SHARE: Final = 0.45
"""The share of the window up to which system prompt and tools may take it; the rest is for the conversation."""

_NAMES = {
    "project-instructions": "The project's instructions",
    "skills": "The index of skills",
    "memory": "The index of memory",
    "tool-servers": "What the MCP servers offer",
    "agents": "The index of agents",
    "output-style": "The output style",
}
"""What the sections are called, by their tags, in their order."""
_CHANGED = "[notice] {name} changed while this conversation went on. Now it reads:\n\n"
_REMOVED = "[notice] {name}: gone. What this conversation was told of it no longer applies."


class PromptSections(NamedTuple):
    """The text of each section, without its tags; empty if absent."""

    instructions: str = ""
    skills: str = ""
    memory: str = ""
    servers: str = ""
    agents: str = ""
    style: str = ""


def instructions(root: Path, folder: Path, names: Sequence[str]) -> str:
    """The project's instructions, from its root down to `folder`; in each folder, the first existing file of `names`.

    Reads files: call it in a thread. The text names files that cannot be read.
    """
    sections: list[str] = []
    for found in _instruction_files(root, folder, names):
        real = found.resolve()
        if not real.is_relative_to(root.resolve()):
            text = f"(not read: it is a link that leads out of the project, to {shown(str(real), 300)})"
        else:
            text = _beginning(real)
        if text:
            sections.append(f"# {found.relative_to(root)}\n\n{text}")
            if found.name in INCLUDING:
                sections += _parts(real, found.name, included(real, root))
            if found.name == CLAUDE:
                place = found.parent.parent if found.parent.name == CLAUDE_FOLDER else found.parent
                sections += _rules(place, root)
    return "\n\n".join(sections)


def _rules(place: Path, root: Path) -> Iterator[str]:
    """The rules of Claude Code in a folder, up to the length of one file; of those for some paths, where they are."""
    left = INSTRUCTIONS_LIMIT
    for each in rules_in(place, root):
        keys, text = split_front_matter(_beginning(each))
        if paths := keys.get("paths"):
            text = f"(holds for {shown(paths, 300)}: read it before you change one of these)"
        elif len(text) > left:
            text = "(does not fit here: read it when it matters)"
        left -= len(text)
        yield f"# {shown(os.path.relpath(each, root), 300)}\n\n{text.strip()}"


def included_in_project(root: Path, folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of a project that its instruction files name, and that belong to them. Reads files."""
    files = (file for file in _instruction_files(root, folder, names) if file.name in INCLUDING)
    return list(dict.fromkeys(part for file in files for part in included(file, root)))


def _instruction_files(root: Path, folder: Path, names: Sequence[str]) -> Iterator[Path]:
    for place in reversed(_places(root, folder)):
        found = next((place / name for name in names if (place / name).is_file()), None)
        if found is not None:
            yield found


def _parts(file: Path, named: str, parts: Iterable[Path]) -> Iterator[str]:
    """The files that belong to an instruction file, up to the length of one."""
    left = INSTRUCTIONS_LIMIT
    for each in parts:
        text, title = _beginning(each), shown(os.path.relpath(each, file.parent), 300)
        fits = len(text) <= left
        yield f"# {title} (named in {named})\n\n{text if fits else '(does not fit here: read it when it matters)'}"
        left -= len(text) if fits else 0


def system_prompt(rules: str, sections: PromptSections, folder: Path, today: date) -> str:
    """The whole system prompt: the same bytes for the same arguments, so that caches hold."""
    facts = (
        f"Working folder: {folder}\nPlatform: {platform.system()} {platform.machine()}\nStarted on: {today:%Y-%m-%d}"
    )
    tagged = (_tagged(tag, text) for tag, text in zip(_NAMES, sections, strict=True) if text)
    return valid_text("\n\n".join([rules.strip(), *tagged, facts]))


def news(
    prompt: str, sections: PromptSections, noticed: Mapping[str, str], own_memory: str = ""
) -> tuple[Message, ...]:
    """Notices to bring a model with the system prompt `prompt` up to date with `sections`: one for each that differs.

    `noticed`: the newest notice about each section since that prompt, by its tag. `own_memory`: the memory section as
    the model itself left it, which is no news to it.
    """
    found: list[Message] = []
    for (tag, name), text in zip(_NAMES.items(), sections, strict=True):
        if tag == "memory" and text == own_memory != "":
            continue
        shown = text
        if len(text) > NEWS_LIMIT:
            # The digest tells long texts with the same beginning apart.
            digest = blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()
            left = f"[… {len(text) - NEWS_LIMIT:,} more characters: read the files. Version {digest}]"
            shown = f"{text[:NEWS_LIMIT]}\n{left}"
        now = valid_text(_CHANGED.format(name=name) + shown if text else _REMOVED.format(name=name))
        if tag in noticed:
            known = noticed[tag] == now
        else:
            known = valid_text(_tagged(tag, text)) in prompt if text else f"\n<{tag}>\n" not in prompt
        if not known:
            found.append(structs.replace(notice(now), about=tag))
    return tuple(found)


def memory_in(prompt: str) -> str:
    """The section of a system prompt that is the index of the notes; empty if there is none."""
    return prompt.partition("\n<memory>\n")[2].partition("\n</memory>")[0]


def _tagged(tag: str, text: str) -> str:
    return f"<{tag}>\n{text.replace(f'</{tag}', f'< /{tag}')}\n</{tag}>"


def _places(root: Path, folder: Path) -> list[Path]:
    return [place for place in (folder, *folder.parents) if place.is_relative_to(root)]


def _beginning(file: Path) -> str:
    """The part of an instruction file that enters the prompt."""
    try:
        with open_file(file) as stream:
            data = read_at_most(stream, _MOST_READ + 1)
    except ToolFailure as failure:
        return f"(could not be read: {failure.why})"
    text = data[:_MOST_READ].decode("utf-8", "replace").strip()
    if len(text) <= INSTRUCTIONS_LIMIT:
        return text
    more = len(text) - INSTRUCTIONS_LIMIT
    rest = f"{more:,} more characters" if len(data) <= _MOST_READ else f"more than {more:,} more characters"
    return f"{text[:INSTRUCTIONS_LIMIT]}\n[… {rest} in this file]"


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


class SectionReader(msgspec.Struct, eq=False):
    """Reads the sections, and caches them while nothing changes.

    Instruction files are called `names`, from `root` to `folder` (none in an untrusted project). Its methods read
    files: call them in a thread, one at a time.
    """

    root: Path
    folder: Path
    names: Sequence[str]
    skills: tuple[SkillFolder, ...]
    notes: Notes
    extensions: tuple[ExtensionFolder, ...] = ()
    """The folders of the user's own agents and styles."""
    style: str = ""
    """The name of the output style; can be set at any time."""
    skills_tokens: int = 2_000
    """The most tokens that the index of skills, and that of agents, may take in the prompt."""
    memory_tokens: int = 2_000
    own: Path | None = None
    """The file of the user's own instructions."""
    own_memory: str = ""
    """The memory section, if the index is as the session's own tool left it; else empty."""
    _included: tuple[Path, ...] = ()
    """The files that instruction files name."""
    _seen: tuple[object, ...] = ()
    _sections: PromptSections = PromptSections()

    def sections(self) -> PromptSections:
        """The present sections. Cheap while nothing has changed: no file is read then."""
        files = [place / name for place in _places(self.root, self.folder) for name in self.names]
        files += [self.own] if self.own is not None else []
        files += [place / RULES for place in _places(self.root, self.folder)] if self.names else []
        if self._signature(files) != self._seen:
            own = included(self.own) if self.own is not None else []
            rules = (rule for place in _places(self.root, self.folder) for rule in rules_in(place, self.root))
            self._included = (
                *own,
                *included_in_project(self.root, self.folder, self.names),
                *(rules if self.names else ()),
            )
            seen = self._signature(files)
            skills = [
                f"- {skill.name}: {skill.description} ({shown(str(skill.file))})"
                for skill in find_skills(self.skills)
                if skill.offered and not skill.problem
            ]
            agents = [f"- {each.name}: {each.description}" for each in own_agents(self.extensions) if not each.problem]
            self._sections = PromptSections(
                "\n\n".join(filter(None, (self._own(), instructions(self.root, self.folder, self.names)))),
                bounded(_SKILLS, skills, self.skills_tokens, lambda left: f"[{left:,} more skills do not fit here.]"),
                self._memory(),
                agents=bounded(
                    INTRODUCTION, agents, self.skills_tokens, lambda left: f"[{left:,} more agents do not fit here.]"
                ),
                style=style_text(self.extensions, self.style)[:INSTRUCTIONS_LIMIT],
            )
            self.own_memory = self._sections.memory if self.notes.is_own else ""
            self._seen = seen
        return self._sections

    def _signature(self, files: Sequence[Path]) -> tuple[object, ...]:
        return (
            *map(signature_of, (*files, *self._included)),
            *skills_signature(self.skills),
            signature_of(self.notes.index),
            *signature(self.extensions, AGENTS, STYLES),
            self.style,
        )

    def _own(self) -> str:
        """The user's own instructions, with the files that they name."""
        if self.own is None or not self.own.is_file() or not (text := _beginning(self.own)):
            return ""
        parts = _parts(self.own, OWN_INSTRUCTIONS, included(self.own))
        return "\n\n".join((f"# {OWN_INSTRUCTIONS} of the user, for every project\n\n{text}", *parts))

    def skills_text(self) -> str:
        found = find_skills(self.skills)
        looked = ", ".join(shown(str(folder.path)) for folder in self.skills)
        if not found:
            return f"There are no skills. They are looked for in: {looked}"
        lines = [
            f"{skill.name}\n  {f'cannot be used: {skill.problem}' if skill.problem else skill.description}\n"
            f"  {shown(str(skill.file))}"
            for skill in found
        ]
        return "\n".join([*lines, f"Looked in: {looked}"])

    def memory_text(self) -> str:
        """A listing of the notes, for people; it names a folder that cannot be read."""
        notes = self.notes
        try:
            listed = notes.listed()
        except ToolFailure as failure:
            return str(failure)
        if not listed:
            return f"There are no notes about this project yet. They will be in: {shown(str(notes.folder))}"
        lines = [f"{note.name}{' (the file is gone)' * note.missing}\n  {note.description}" for note in listed]
        return "\n".join([*lines, f"In {shown(str(notes.folder))}"])

    def written_down(self) -> str:
        """All that the project's instructions and the notes say."""
        notes = self.notes
        texts = [self.sections().instructions, self.sections().skills]
        with suppress(ToolFailure):
            for note in notes.listed():
                texts.append(note.description)
                with suppress(OSError):
                    texts.append(note.file.read_text(errors="replace"))
        return "\n".join(texts)

    def _memory(self) -> str:
        notes = self.notes
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
            self.memory_tokens,
            lambda left: f"[{left:,} more lines do not fit here: read {index}.]",
        )


class Briefing:
    """Owns the current prefix: system prompt and tools. A conversation keeps the one in its log until it is renewed.

    `write`: makes the system prompt from the sections. Without `knowledge` and `offered` the prefix never changes. The
    tool that runs the user's agents is offered only while there are agents; in a small window, with `by_need`, only
    the tools that are needed most.
    """

    def __init__(
        self,
        write: Callable[[PromptSections], str],
        tools: Sequence[ToolDefinition],
        knowledge: SectionReader | None = None,
        offered: OfferedTools | None = None,
        by_need: Sequence[str] = (),
    ) -> None:
        self._write = write
        self._by_need = by_need
        self._tools = tuple(tool for tool in tools if tool.name != RUN_AGENT)
        self._for_agents = tuple(tool for tool in tools if tool.name == RUN_AGENT)
        self.knowledge = knowledge
        self._offered = offered
        self._sections = PromptSections()
        self.prefix = Prefix(system=write(self._sections), tools=self._tools)
        """As of the last `refresh`."""
        self.left_out: tuple[str, ...] = ()
        """The tools for which the window had no room at the last `refresh`."""
        self.style = knowledge.style if knowledge is not None else ""
        """The name of the output style; empty: none. Setting it takes effect at the next `refresh`."""
        self._settled: tuple[PromptSections, int, int] | None = None

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The session's own tools that are offered, as of the last `refresh`."""
        own = (*self._tools, *(self._for_agents if self._sections.agents else ()))
        return tuple(tool for tool in own if tool.name not in self.left_out)

    def awaits_agents(self, begun: Prefix) -> bool:
        """Whether there are agents for which a conversation with the prefix `begun` has no tool."""
        offered = {tool.name for tool in begun.tools}
        return bool(self._sections.agents) and not offered.issuperset(tool.name for tool in self._for_agents)

    async def refresh(self, window: int) -> None:
        """Check files and servers for changes, for a model with a `window` in tokens. Cheap if none changed."""
        sections = PromptSections()
        if self.knowledge is not None:
            self.knowledge.style = self.style
            sections = await asyncio.to_thread(self.knowledge.sections)
        tools = (*self._tools, *(self._for_agents if sections.agents else ()))
        self.left_out = self._without_room(tools, sections, window) if self._by_need and window else ()
        tools = tuple(tool for tool in tools if tool.name not in self.left_out)
        if self._offered is not None:
            self._offered.look(window)
            sections = sections._replace(servers=self._offered.index)
            tools = (*tools, *self._offered.definitions)
        tools = tuple(sorted(tools, key=lambda tool: tool.name))
        if (sections, tools) != (self._sections, self.prefix.tools):
            self._sections = sections
            self.prefix = Prefix(system=self._write(sections), tools=tools)

    def _without_room(self, tools: Sequence[ToolDefinition], sections: PromptSections, window: int) -> tuple[str, ...]:
        places = {name: place for place, name in enumerate(self._by_need)}
        room = window * PREFIX_SHARE - estimate(size_of_text(self._write(sections)))
        left_out: list[str] = []
        for tool in sorted(tools, key=lambda tool: places.get(tool.name, len(places))):
            size = estimate(size_of_tools((tool,)))
            if size > room and places.get(tool.name, ALWAYS) >= ALWAYS:
                left_out.append(tool.name)
            else:
                room -= size
        return tuple(sorted(left_out))

    async def skills_text(self) -> str:
        return await asyncio.to_thread(self.knowledge.skills_text) if self.knowledge else "There are no skills."

    def news(self, log: Log, begun: Prefix) -> tuple[Message, ...]:
        """The notices that a conversation with the prefix `begun` needs now, without those it was given already.

        Takes time proportional to what was appended since it last returned none.
        """
        if self.knowledge is None and self._offered is None:
            return ()
        settled, present = self._settled, (self._sections, begun.seq)
        if settled and settled[:2] == present and log.fork_point(settled[2], log.head) == settled[2]:
            self._settled = (*present, log.head)
            return ()
        # The newest notice about each section since that prefix, by its tag.
        noticed: dict[str, str] = {}
        for entry in reversed(log.path()) if begun.seq else ():
            if isinstance(entry, Prefix):
                break
            if isinstance(entry, Message) and entry.about:
                noticed.setdefault(entry.about, text_in(entry.blocks, between=""))
        own = self.knowledge.own_memory if self.knowledge else ""
        # Say nothing of agents without a tool to run them: both come when the prefix is renewed.
        sections = self._sections._replace(agents="") if self.awaits_agents(begun) else self._sections
        found = news(begun.system, sections, noticed, own_memory=own)
        self._settled = None if found else (*present, log.head)
        return found
