"""The table of slash commands in text form, for the full-screen app and for one-shot use alike.

Each command is a row of `COMMANDS` or `IN_TEXT`: name, description and handler. Help and completion read the rows
before there is an agent, so modules that only a handler needs are imported inside it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands import branches, context, servers, session, spending
from tui_agent.agent.commands.command import AT_ONCE, Command, Reply, command_name
from tui_agent.agent.commands.elsewhere import instead_of
from tui_agent.text import sentence

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.extensions.own import OwnPrompt


async def run_command(agent: "Agent", text: str, *, learn: bool = False) -> Reply:
    """Run ``/name argument``. `learn`: wait for the provider's facts on the model, whatever the command.

    Raises `AgentBusy` if the command cannot run during a turn, and `StorageError`.
    """
    word, _, argument = text.strip()[1:].partition(" ")
    name, argument = word.lower(), argument.strip()
    commands = available_commands(agent)
    for command in commands:
        if name in command.names or (command.previewed and name.removesuffix(AT_ONCE) in command.names):
            if argument and not command.argument:
                return Reply(f"/{command.name} takes no argument", failed=True)
            if command.uses_profile or learn:
                await session.learn_profile(agent)
            return await command.run(agent, argument)
    if name in ON_SCREEN:
        instead = ON_SCREEN[name]
        return Reply(
            f"/{name} is a command of the full-screen app: start tui-agent without -p",
            f"With -p, instead: {instead}." if instead else "",
            failed=True,
        )
    instead = sentence(instead_of(name, [known for command in commands for known in command.names]))
    return Reply(
        f"There is no command /{word}",
        f"{instead} A space before the slash sends it to the model as it is.",
        failed=True,
    )


def available_commands(agent: "Agent") -> tuple[Command, ...]:
    """The commands available with this agent; without checkpoints there is no /done."""
    return tuple(command for command in (*COMMANDS, *IN_TEXT) if command.is_available(agent))


async def own_prompt(agent: "Agent", text: str) -> "OwnPrompt | None":
    """The user's own command that a text starts with, unless a built-in one has that name."""
    name = command_name(text)
    known = {known for command in available_commands(agent) for known in command.names}
    return None if name in known else await agent.own_commands.named(name)


async def _help(agent: "Agent", _: str) -> Reply:
    return Reply("Commands", help_text(available_commands(agent)))


def help_text(commands: Iterable[Command]) -> str:
    """The help text of commands, one on each line."""
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
    Command("stats", "show tokens, cost and cache hits per model", spending.stats),
    Command("cost", "show what was spent and the next call's cost", spending.cost, uses_profile=True),
    Command("preview", "see what compact, clear or done would do", context.preview, "[step]", uses_profile=True),
    Command("clear-results", "clear all old tool results", context.clear_results, previews="clear", uses_profile=True),
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
    Command("todo", "show the model's task list", context.todo),
    Command("recall", "search everything ever said", context.recall, "<text>"),
    Command("permissions", "list what is allowed unasked; remove a rule", session.permissions, "[number]"),
    Command("mcp", "MCP servers: state, cost, on and off", servers.mcp, "[name]", uses_profile=True),
    Command("extensions", "list your and the project's commands and hooks", session.extensions),
    Command("style", "show or choose how answers are written", session.style, "[name]"),
    Command("skills", "list the skills the model can use", session.skills),
    Command("memory", "show the notes kept about this project", session.memory),
    Command("continue-spending", "go on after a cost limit", session.continue_spending),
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
    "policy": "--set KEY=VALUE",
    "new": "a run without -c or -r begins a new session",
    "clear": "a run without -c or -r begins a new session",
    "resume": "-r ID; `tui-agent sessions` lists them",
    "sessions": "`tui-agent sessions`",
    "rename": "",
    "trust": "--trust",
    "jobs": "",
    "export": "`tui-agent trace SESSION --html FILE`",
    "config": "`tui-agent config`",
    "theme": "",
    "quit": "",
    "exit": "",
    "q": "",
}
"""Commands that exist only in the full-screen app, with what to use without it (empty: nothing is needed)."""
