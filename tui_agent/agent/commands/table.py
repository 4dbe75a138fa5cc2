"""The table of slash commands in text form, for the full-screen app and for one-shot use alike.

Each command is a row of `COMMANDS` or `IN_TEXT`: name, description and handler. Help and completion read the rows
before there is an agent, so modules that only a handler needs are imported inside it.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands import branches, context, servers, session
from tui_agent.agent.commands.command import AT_ONCE, Command, CommandReply, command_name, refused
from tui_agent.system.resources import prompt_text
from tui_agent.text import sentence

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.own_commands import OwnPrompt


async def run_command(agent: "Agent", text: str, *, learn: bool = False) -> CommandReply:
    """Run ``/name argument``. `learn`: wait for the provider's facts on the model, whatever the command.

    Raises `AgentBusy` if the command cannot run during a turn, and `StorageError`.
    """
    word, _, argument = text.strip()[1:].partition(" ")
    name, argument = word.lower(), argument.strip()
    commands = available_commands(agent)
    for command in commands:
        if name in command.names or (command.previews and name.removesuffix(AT_ONCE) in command.names):
            if argument and not command.argument:
                return refused(f"/{command.name} takes no argument")
            if command.uses_profile or learn:
                await session.learn_profile(agent)
            return await command.run(agent, argument)
    if name in ON_SCREEN:
        instead = f"Without it: {ON_SCREEN[name]}." if ON_SCREEN[name] else ""
        return refused(f"/{name} is a command of the full-screen app", instead)
    instead = sentence(instead_of(name, [known for command in commands for known in command.names]))
    as_is = "A space before the slash sends it to the model as it is."
    return refused(f"There is no command /{word}", f"{instead} {as_is}")


def available_commands(agent: "Agent") -> tuple[Command, ...]:
    """The commands available with this agent; without checkpoints there is no /done."""
    return tuple(command for command in (*COMMANDS, *IN_TEXT) if command.is_available(agent))


async def own_prompt(agent: "Agent", text: str) -> "OwnPrompt | None":
    """The user's own command that a text starts with, unless a built-in one has that name."""
    name = command_name(text)
    known = {known for command in available_commands(agent) for known in command.names}
    return None if name in known else await agent.own_commands.named(name)


async def _help(agent: "Agent", _: str) -> CommandReply:
    return CommandReply("Commands", help_text(available_commands(agent)))


def help_text(commands: Iterable[Command]) -> str:
    usages = [(f"/{command.name} {command.argument}".rstrip(), command) for command in commands]
    width = max(len(usage) for usage, _ in usages) + 2
    return "\n".join(f"{usage:<{width}}{command.description}" for usage, command in usages)


COMMANDS: Final = (
    Command("compact", "summarise older turns now", context.compact, "[focus]", ("summarize",), previews="compact"),
    Command(
        "done",
        "record the finished task",
        context.done,
        "[note]",
        ("checkpoint",),
        previews="checkpoint",
        is_available=lambda agent: agent.has_checkpointer,
    ),
    Command("context", "show what fills the window", context.context, "[text]", ("boundaries",), uses_profile=True),
    Command("stats", "show tokens, cost and cache hits per model", session.stats),
    Command("cost", "show what was spent and the next call's cost", session.cost, uses_profile=True),
    Command("usage", "where the money went, over days and sessions", session.usage, "[days] [by]"),
    Command("preview", "see what compact, clear or done would do", context.preview, "[step]", uses_profile=True),
    Command("clear-results", "clear all old tool results", context.clear_results, previews="clear", uses_profile=True),
    Command("keep", "let nothing leave before the next answer", context.keep),
    Command("at", "see what the model saw at any call", context.at, "[call]"),
    Command("items", "list all messages and results", context.items),
    Command("pin", "keep messages or results whole", context.pin, "[number ...]", uses_profile=True),
    Command("unpin", "unpin them", context.unpin, "<number ...>"),
    Command("restore", "bring them back whole", context.restore, "<number ...>", uses_profile=True),
    Command("words", "what is kept of your own words, or change it", context.words, "[number text]", uses_profile=True),
    Command("undo-step", "undo a context step", context.undo_step, "[number]", ("undo-compact",), uses_profile=True),
    Command("undo", "undo the last turn: files, conversation or both", branches.undo, "[what]"),
    Command("rewind", "go back to before a message", branches.rewind, "[number [what]]"),
    Command("undo-edits", "undo only the last turn's file changes", branches.undo_edits, "[redo]"),
    Command("fork", "start another branch at a message", branches.fork, "[number]"),
    Command("tree", "list branches, or go to one", branches.tree, "[number]", ("branches",)),
    Command("worktree", "open a git worktree, or hand this one back", session.worktree, "[what]"),
    Command("todo", "show the model's task list", context.todo),
    Command("recall", "search everything ever said", context.recall, "[--all] <text>"),
    Command("permissions", "list what is allowed unasked; remove a rule", session.permissions, "[number]"),
    Command("mcp", "MCP servers: state, cost, on and off", servers.mcp, "[name]", uses_profile=True),
    Command("diagnostics", "what language servers find wrong", session.diagnostics),
    Command("extensions", "list your and the project's commands and hooks", session.extensions),
    Command("style", "show or choose how answers are written", session.style, "[name]"),
    Command("skills", "list the skills the model can use", session.skills),
    Command("memory", "notes on this project, and proposals for some", session.memory, "[number]"),
    Command("continue-spending", "spend more", session.continue_spending, aliases=("resume-after-cost-ceiling",)),
)

IN_TEXT: Final = (
    Command("help", "list the commands", _help, aliases=("?",)),
    Command("tools", "list the model's tools", session.tools),
    Command("model", "show or choose the model", session.model, "[name]"),
    Command("escalate", "switch to the provider's strongest model", session.escalate, uses_profile=True),
)
"""Commands that the full-screen app implements itself."""

ON_SCREEN: Final = {
    "key": "set the provider's variable, such as ANTHROPIC_API_KEY",
    "mode": "--ask MODE",
    "policy": "--set context.policy=NAME",
    "new": "a run without -c or -r begins a new session",
    "clear": "a run without -c or -r begins a new session",
    "resume": "-r ID; `tui-agent sessions` lists them",
    "sessions": "`tui-agent sessions`",
    "rename": "",
    "trust": "--trust",
    "jobs": "",
    "background": "",
    "loop": "",
    "copy": "",
    "export": "`tui-agent trace SESSION --html FILE`",
    "config": "`tui-agent config`",
    "theme": "",
    "demo": "`tui-agent --demo`",
    "quit": "",
    "exit": "",
    "q": "",
}
"""Commands that exist only in the full-screen app, with what to use without it (empty: nothing is needed)."""

CLOSE_ENOUGH: Final = 0.7
"""The least similarity, from 0 to 1, of a mistyped name and a command; `/settings` must not suggest `/stats`."""

_INSTEAD: Final = {
    "billing spend spending": "/cost says what was spent, /usage on what in all sessions",
    "status info about": "/config lists what is set, /context what fills the window",
    "tokens ctx": "/context says what fills the window",
    "settings preferences prefs set options setup": "/config lists every setting",
    "login auth connect signin apikey api-key": "/key enters a key",
    "logout signout": "/key forgets a kept key",
    "doctor": "tui-agent doctor, in your shell, looks for what is missing",
    "diff changes": "!git diff shows what changed; /undo-edits diff what could be put back",
    "yank clipboard": "/copy copies the last answer",
    "plan architect code chat-mode": "/mode plan only reads; /mode lists the others",
    "approvals approve allow deny allowed-tools sandbox": "/permissions lists what may happen unasked, /mode the modes",
    "yolo bypass": "/mode allow asks nothing",
    "search find grep history": "/recall WORD finds whatever was said, in your prompts too",
    "agents agent hooks plugins plugin commands": "/extensions lists what you and the project bring",
    "title": "/rename gives the session another title",
    "session chat chats load continue": "/resume opens another session",
    "reset restart": "/new begins a new session",
    "compress condense": "/compact summarises older turns",
    "branch btw side": "/fork tries another way from here, /tree leads back",
    "redo": "/undo-edits redo changes the files again; /tree leads back to what was said",
    "edit editor vim multiline": "a key writes in your editor, another begins a line: /help names them",
    "save share dump transcript": "/export writes it to a file; the session itself is always kept",
    "add attach image file read-only": "@ names a file, a folder or a picture",
    "drop forget": "/context lists what fills the window; a key there clears a result",
    "add-dir dir": "start with --add-dir DIR",
    "run test lint git commit shell bash exec": "! runs a command: !git status",
    "output-style personality": "/style says how answers are written",
    "bashes tasks ps bg kill stop": "/jobs lists the commands in the background",
    "remember note notes": "/memory lists the notes; ask for one to be kept",
    "verbose details thinking": "a key opens all cards: /help names it",
}
_BY_NAME: Final = {name: instead for names, instead in _INSTEAD.items() for name in names.split()}

ERRANDS: Final = (
    ("review", "have the model review your changes", "[what matters]"),
    ("init", "have the model write AGENTS.md for this project", ""),
    ("goal", "go on until a command succeeds", "<text> [--until cmd]"),
)
"""Name, description, and the argument's name in the help (empty: it takes none)."""
INSTRUCTIONS = "AGENTS.md"
"""The name of the instruction file if the settings name none."""


def instead_of(name: str, known: Iterable[str]) -> str:
    """What to type in place of the unknown command `name`: a clause without a full stop. `known`: all commands."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    close = get_close_matches(name, known, n=1, cutoff=CLOSE_ENOUGH)
    return f"did you mean /{close[0]}?" if close else "/help lists the commands"


def errand(text: str, project: Path, names: Sequence[str]) -> str:
    """The message to send for such a slash command when there is no screen; empty if it is not one.

    `names`: of instruction files, from the settings. An existing file is improved, since nobody can be asked whether
    to replace it.
    """
    word, _, about = text.strip().partition(" ")
    if word == "/review":
        return review_message(" ".join(about.split()))
    if word == "/init" and not about.strip():
        name = next(iter(names), INSTRUCTIONS)
        return init_message(name, mend=(project / name).exists())
    return ""


def init_message(name: str, *, mend: bool) -> str:
    """The message for ``/init``: write the instruction file `name`, or with `mend` improve the existing one."""
    texts = [prompt_text("init"), prompt_text("init_again")] if mend else [prompt_text("init")]
    return "\n".join(texts).format(name=name).strip()


def review_message(about: str = "") -> str:
    """The message for ``/review``; `about`: what to pay most attention to."""
    return prompt_text("review").format(about=f" (above all: {about})" if about else "").strip()
