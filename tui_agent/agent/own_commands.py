"""What users, projects and MCP servers add to a session: slash commands of their own, and output styles.

A command is a Markdown file whose text is sent to the model, with arguments filled in: ``$ARGUMENTS`` stands for
everything typed after the name, ``$1`` for a word of it, `` !`command` `` for a command's output, and ``@path`` for a
file's contents. Typed arguments are never expanded themselves.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.extensions.agents import OwnAgent, own_agents
from tui_agent.agent.extensions.files import (
    COMMANDS,
    STYLES,
    ExtensionFolder,
    MarkdownFile,
    Source,
    markdown_files,
    skill_folders,
    with_places,
)
from tui_agent.agent.extensions.placeholders import Here, Placeholders, as_it_stands, names_in
from tui_agent.agent.turn.goals import DONE, GOAL, Goal
from tui_agent.agent.turn.model_calls import TurnParts
from tui_agent.agent.turn.turns import Turns
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.choice import configured_model, named_model
from tui_agent.regex import regex
from tui_agent.system.durable import threaded
from tui_agent.text import expanded, one_line
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.skills import Skill, find_skills

_SOURCES: Final = {"project": "the project's", "yours": "yours"}
_SERVERS_PROMPT: Final = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class OwnPrompt(msgspec.Struct, frozen=True):
    """A slash command of the user's own, or of an MCP server.

    hint: the argument's name in the help. problem: why it cannot be used; empty if it can. server: the MCP server that
    offers it; empty: it is a file. model: answers the turn that the command starts; empty: the session's. names: those
    of its arguments. skill: it is one. file: where it is written, with all links followed.
    """

    name: str
    description: str
    hint: str
    text: str
    source: Source
    problem: str = ""
    server: str = ""
    model: str = ""
    names: tuple[str, ...] = ()
    skill: bool = False
    file: Path | None = None


class OwnCommands:
    """The slash commands and styles of one session, read from `extensions` on demand.

    `here`: the session; ``@path`` is relative to its folder.
    """

    def __init__(
        self, parts: TurnParts, turns: Turns, briefing: Briefing, extensions: tuple[ExtensionFolder, ...], here: Here
    ) -> None:
        self._parts = parts
        self._turns = turns
        self._briefing = briefing
        self._extensions = extensions
        self._here = here
        self._offered = parts.offered

    async def styles(self) -> tuple[MarkdownFile, ...]:
        return await asyncio.to_thread(markdown_files, self._extensions, STYLES)

    async def use_style(self, name: str) -> bool:
        """Switch to an output style from the next prompt on; empty: none. False if there is no such style.

        The system prompt stays as it is; a notice tells the model.
        """
        if name and not any(style.name == name and not style.problem for style in await self.styles()):
            return False
        self._briefing.style = name
        return True

    async def all(self) -> tuple[OwnPrompt, ...]:
        """All slash commands of the user's own and of MCP servers."""
        return (*await asyncio.to_thread(_in_files, self._extensions), *self._of_servers())

    async def named(self, name: str) -> OwnPrompt | None:
        """The command of this name, the user's own first; None if there is none that can be used."""
        if name == GOAL:
            return OwnPrompt(GOAL, "", "", "", "yours")
        return next((prompt for prompt in await self.all() if prompt.name == name and not prompt.problem), None)

    async def expand(self, prompt: OwnPrompt, argument: str) -> str:
        """The text to send for a command. What the command runs and reads passes the gate.

        If the command names a model, that model answers a turn that is started with this text next.

        Raises `ToolFailure` if something is refused or fails, and `NobodyToAsk`.
        """
        if prompt.name == GOAL:
            return self._begin(Goal.of(argument))
        if prompt.server and self._offered is not None:
            return await self._offered.servers.prompt(prompt.server, prompt.name.partition(":")[2], argument)
        model = await asyncio.to_thread(self._model_of, prompt.model) if prompt.model else ""
        if prompt.file is not None:
            self._parts.hooks.use(prompt.file)
        whole = self._here.filled(prompt.text)
        placeholders = Placeholders(whole, prompt.names, skill=prompt.skill)
        pieces: list[str] = []
        end = 0
        for found in placeholders.signs.finditer(whole):
            pieces.append(whole[end : found.start()])
            end = found.end()
            if command := found["script"] or found["command"]:
                pieces.append(await self._call("run_command", command=placeholders.in_command(command, argument)))
            elif found["argument"]:
                value = placeholders.value(found, argument)
                pieces.append(as_it_stands(found) if value is None else value)
            elif await asyncio.to_thread(self._is_file, found["path"]):
                pieces.append(f"{found[0]}\n{await self._call('read_file', path=found['path'])}\n")
            else:
                # The mention alone, for the model to look up.
                pieces.append(found[0])
        text = "".join((*pieces, whole[end:])).strip()
        if argument and not placeholders.takes_arguments:
            text += f"\n\nArguments: {argument}"
        self._turns.answer_next_with(text, model)
        return text

    def _begin(self, goal: Goal) -> str:
        """Note the goal for the turn that starts with the text that is returned."""
        if self._turns.busy:
            raise ToolFailure("A turn is running.", "Stop it first, or wait for its end.")
        if not goal.until:
            self._parts.toolbox.registry.get(DONE)  # without which the model could not say that it is done
        self._turns.answer_next_with(goal.message, "", goal)
        return goal.message

    def _is_file(self, path: str) -> bool:
        return (self._here.folder / expanded(path)).is_file()

    async def _call(self, tool: str, **arguments: str) -> str:
        parts, given = self._parts, msgspec.json.encode(arguments).decode()
        return (await parts.toolbox.call_for_user(tool, given, parts.steps.tell)).text

    def _model_of(self, name: str) -> str:
        """The model that a command names. Raises `ToolFailure` if it cannot be asked."""
        settings = self._parts.record.engine.settings
        named = named_model(settings, name, self._parts.active.profile.name)
        try:
            model = configured_model(settings, named).profile.name
        except UnknownModel as error:
            raise ToolFailure(error.message, "Name another `model` in the command's file, or none.") from error
        if (missing := catalogue_of(settings).missing_key(model)) is not None:
            raise ToolFailure(f"{model}, which the command names, needs a key: set {missing}.")
        return model

    def _of_servers(self) -> list[OwnPrompt]:
        servers = self._offered.servers if self._offered is not None else None
        return [
            OwnPrompt(
                f"{status.name}:{prompt.name}",
                prompt.description or f"a prompt of the server {status.name}",
                " ".join(f"[{name.rstrip('?')}]" if name.endswith("?") else f"<{name}>" for name in prompt.arguments),
                "",
                "yours",
                server=status.name,
            )
            for status in (servers.statuses() if servers is not None else ())
            if status.known is not None and status.on
            for prompt in status.known.prompts
            if _SERVERS_PROMPT.fullmatch(prompt.name)
        ]

    @threaded
    def listed(self) -> str:
        """A listing of the user's and the project's extensions and their sources, for people."""
        if not self._extensions:
            return "There are no folders for extensions here."
        hooks = self._parts.hooks.look()

        def section(title: str, found: Sequence[OwnPrompt | OwnAgent | MarkdownFile], begins: str = "") -> list[str]:
            lines = [title]
            for each in found:
                # What does not count here, or why it cannot be used.
                note = f"({each.note}) " if isinstance(each, OwnAgent) and each.note else ""
                what = each.problem or f"{note}{each.description}"
                lines.append(_line(f"{begins}{each.name} {getattr(each, 'hint', '')}", what, each.source))
            return lines

        sections = [
            section("Slash commands", _in_files(self._extensions), "/"),
            section("Agents", own_agents(self._extensions)),
            [
                "Hooks",
                *(_line(each.event, each.name.partition(", ")[2], each.source) for each in hooks.hooks),
                *(
                    _line(each.event, f"({of.when}) {each.name.partition(', ')[2]}", each.source)
                    for of in hooks.scoped
                    for each in of.hooks
                ),
            ],
            section("Output styles", markdown_files(self._extensions, STYLES)),
        ]
        parts = ["\n".join(lines) for lines in sections if len(lines) > 1]
        parts += [f"Cannot be used: {problem}" for problem in hooks.problems]
        parts += [f"Hooks of an event that does not occur here: {hook}" for hook in hooks.idle]
        looked = ", ".join(f"{shown(str(root.folder))} ({_SOURCES[root.source]})" for root in self._extensions)
        return "\n\n".join((*parts, f"Looked in: {looked}"))


def _line(name: str, what: str, source: Source) -> str:
    return f"  {one_line(name, 60):<24}  {one_line(what, 200)} ({_SOURCES[source]})"


def _in_files(extensions: tuple[ExtensionFolder, ...]) -> list[OwnPrompt]:
    """The commands in these folders of extensions. Reads files: call it in a thread. Never raises."""
    found = list(_skills_in(extensions))
    for each in markdown_files(extensions, COMMANDS):
        lines = (line.strip("# ").strip() for line in each.text.splitlines())
        first = next(filter(None, lines), "")[:100]
        takes = "[…]" if Placeholders(each.text).takes_arguments else ""
        hint = each.key("argument-hint", "argument_hint", "arguments") or takes
        description = each.description or first
        found.append(
            OwnPrompt(
                each.name,
                description,
                hint,
                each.text,
                each.source,
                each.problem,
                model=each.key("model"),
                names=names_in(each.key("arguments")),
                file=each.file,
            )
        )
    return list({prompt.name: prompt for prompt in found}.values())


def _callable(skill: Skill) -> str:
    """What a skill is called by: its name, or its folder's if that is a title of several words."""
    return (skill.name if len(skill.name.split()) == 1 else skill.file.parent.name).lower()


def _skills_in(extensions: tuple[ExtensionFolder, ...]) -> Iterator[OwnPrompt]:
    """The skills that the user can call; a command of the same name comes before them."""
    for root in extensions:
        for skill in find_skills(skill_folders(root)):
            if skill.invocable and not skill.problem:
                said = with_places(skill.text, root, skill.file.parent)
                text = f"Follow this skill, whose files are in {skill.file.parent}:\n\n{said}"
                name = f"{root.prefix}{_callable(skill)}"
                names = names_in(skill.arguments)
                yield OwnPrompt(
                    name, skill.description, skill.hint, text, root.source, names=names, skill=True, file=skill.file
                )
