"""Looks up the slash commands of the table of actions by what was typed, completes and runs them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.table import instead_of
from tui_agent.text import one_line
from tui_agent.tui.actions import BY_NAME, SLASH_COMMANDS, Action
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.commands.choices import choose_mode, choose_policy, choose_theme, mode_choices, theme_choices
from tui_agent.tui.commands.models import ModelChoices, choose_model, enter_key
from tui_agent.tui.commands.session import (
    copy_answer,
    export_session,
    pin_item,
    read_recalled,
    review,
    show_jobs,
    write_instructions,
)
from tui_agent.tui.fuzzy import best
from tui_agent.tui.host import Host
from tui_agent.tui.keys import commands_text
from tui_agent.tui.prompt.completion import Completion, CompletionItem

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.own_commands import OwnPrompt
    from tui_agent.tui.commands.branches import BranchCommands
    from tui_agent.tui.commands.config import Config
    from tui_agent.tui.commands.loop import Loop
    from tui_agent.tui.commands.switching import Sessions

Handler = Callable[[Host, str], Awaitable[None]]


class Commands:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.own: tuple[Action, ...] = ()
        """The user's own commands, as further rows of the table."""
        self._choices: dict[str, Callable[[], Iterable[CompletionItem]]] = {
            "theme": lambda: theme_choices(host),
            "mode": mode_choices,
            "model": ModelChoices(host).known,
        }
        """Completions of arguments beyond those in the table, by the action's id."""
        self._handlers = {action.id: _of_agent(action.name) for action in SLASH_COMMANDS} | self._app_handlers()

    @cached_property
    def branches(self) -> "BranchCommands":
        from tui_agent.tui.commands.branches import BranchCommands

        return BranchCommands(self._host)

    @cached_property
    def sessions(self) -> "Sessions":
        from tui_agent.tui.commands.switching import Sessions

        return Sessions(self._host)

    @cached_property
    def config(self) -> "Config":
        from tui_agent.tui.commands.config import Config

        return Config(self._host)

    async def run(self, text: str) -> None:
        """Run `/name argument`; for an unknown name, suggest the nearest one."""
        host = self._host
        word, _, argument = text.strip()[1:].partition(" ")
        action = BY_NAME.get(word.lower())
        if action is None and await _sent_own(host, word.lower(), argument.strip()):
            return
        if action is None:
            host.say(Level.WARNING, f"There is no command /{word}", hint=instead_of(word.lower(), BY_NAME))
        elif argument.strip() and not action.argument:
            host.say(Level.WARNING, f"/{action.name} takes no argument")
        else:
            await self._handlers[action.id](host, argument.strip())

    def _app_handlers(self) -> dict[str, Handler]:
        """Handlers of commands that the app does itself, by the action's id; the others go to the agent."""
        return {
            "new": lambda _, argument: self.sessions.new(argument),
            "sessions": lambda _, argument: self.sessions.choose(argument),
            "rename": lambda _, argument: self.sessions.rename(argument),
            "trust": lambda _, argument: self.sessions.trust(argument),
            "help": _help,
            "model": choose_model,
            "key": enter_key,
            "mode": choose_mode,
            "policy": choose_policy,
            "config": lambda _, argument: self.config.edit(argument),
            "init": write_instructions,
            "goal": _goal,
            "unseen": lambda host, argument: host.send_to_background(argument),
            "loop": lambda _, argument: self._loop.run(argument),
            "review": review,
            "export": export_session,
            "jobs": show_jobs,
            "copy-answer": copy_answer,
            "pin": _pin,
            "recall": _recall,
            "undo": lambda _, argument: self.branches.undo(argument),
            "rewind": lambda _, argument: self.branches.rewind(argument),
            "undo-edits": lambda _, argument: self.branches.undo_edits(argument),
            "fork": lambda _, argument: self.branches.fork(argument),
            "tree": lambda _, argument: self.branches.tree(argument),
            "worktree": self._worktree,
            "permissions": _permissions,
            "theme": choose_theme,
            "demo": lambda _, argument: self.sessions.demo(argument),
            "quit": _quit,
        }

    async def _worktree(self, host: Host, argument: str) -> None:
        if not await self.sessions.worktree(argument):
            await _of_agent("worktree")(host, argument)

    @cached_property
    def _loop(self) -> "Loop":
        from tui_agent.tui.commands.loop import Loop

        return Loop(self._host)

    def reload_own(self, agent: "Agent") -> None:
        """Reload the user's own commands for the completion and the help."""

        async def look() -> None:
            self.own = own_actions(await agent.own_commands.all())

        self._host.run_worker(look(), name="own", group="own", exclusive=True)

    def complete(self, before_cursor: str) -> Completion | None:
        """Completions of the text before the cursor, best first: commands, or arguments of one."""
        return complete(before_cursor, self.own, self._choices)

    def text(self) -> str:
        """The help text of all commands, the user's own last."""
        return commands_text((*SLASH_COMMANDS, *self.own))


async def _sent_own(host: Host, name: str, argument: str) -> bool:
    """Send the prompt of the user's own command of this name; False if there is none."""
    from tui_agent.tools.base import ToolFailure

    agent = await host.agent()
    prompt = await agent.own_commands.named(name)
    if prompt is None:
        return False
    try:
        host.ask_model(await agent.own_commands.expand(prompt, argument), f"/{name} {argument}".rstrip())
    except ToolFailure as failure:
        host.say(Level.WARNING, f"/{name} was not sent", str(failure))
    return True


def own_actions(prompts: "Iterable[OwnPrompt]") -> tuple[Action, ...]:
    """The user's own commands as rows of the table, without those named like a built-in command."""
    return tuple(
        Action(
            id=f"own.{prompt.name}",
            name=prompt.name,
            argument=one_line(prompt.hint, 40),
            help=one_line(prompt.description, 120) or "yours",
        )
        for prompt in prompts
        if not prompt.problem and prompt.name not in BY_NAME
    )


def complete(
    before_cursor: str,
    own: tuple[Action, ...] = (),
    more: "Mapping[str, Callable[[], Iterable[CompletionItem]]] | None" = None,
) -> Completion | None:
    """Completions, best first: commands including the user's `own`, or arguments of one.

    `more`: completions of arguments beyond those in the table, by the action's id.
    """
    if not before_cursor.startswith("/"):
        return None
    word, blank, argument = before_cursor[1:].partition(" ")
    if not blank:
        found = best((*SLASH_COMMANDS, *own), word, lambda action: action.names)
        return Completion(0, tuple(map(_choice, found))) if found else None
    action = BY_NAME.get(word.lower())
    if action is None or " " in argument:
        return None
    table = (CompletionItem(choice, choice) for choice in action.choices)
    known = more[action.id]() if more and action.id in more else table
    choices = best(tuple(known), argument, lambda choice: (choice.insert, choice.label, *choice.names))
    return Completion(len(word) + 2, choices) if choices else None


def _choice(action: Action) -> CompletionItem:
    more = action.needs_argument
    aliases = tuple(f"/{alias}" for alias in action.aliases)
    return CompletionItem(f"/{action.name}{' ' if more else ''}", action.usage, action.help, not more, aliases)


_SHOWN_AS_STEP: Final = frozenset(("compact", "done", "undo-step"))
"""Commands whose answer is not shown: the boundary in the conversation says the same."""


_REPORTS: Final = frozenset(("tools", "stats", "skills", "memory", "extensions", "items"))
"""Commands whose answer is read and put away: it opens in a dialog."""


def _of_agent(name: str) -> Handler:
    """The handler of a command of the agent's: shows its answer as a notice, unless a boundary says the same."""

    async def handler(host: Host, argument: str) -> None:
        from tui_agent.agent.commands.table import run_command
        from tui_agent.agent.turn.turns import AgentBusy
        from tui_agent.storage.errors import StorageError

        agent = await host.agent()
        try:
            reply = await run_command(agent, f"/{name} {argument}")
        except AgentBusy:
            host.say(Level.WARNING, f"/{name} waits for no turn", hint="Esc stops the turn")
            return
        except StorageError as error:
            host.say(Level.ERROR, error.message, hint=error.hint)
            return
        if name in _REPORTS and not reply.failed:
            await host.read(reply.title, reply.text)
        elif reply.failed or name not in _SHOWN_AS_STEP:
            host.say(Level.WARNING if reply.failed else Level.INFO, reply.title, reply.text)
        host.refresh_status()

    return handler


async def _pin(host: Host, argument: str) -> None:
    await (_of_agent("pin") if argument else pin_item)(host, argument)


async def _recall(host: Host, argument: str) -> None:
    if not (argument and await read_recalled(host, argument)):
        await _of_agent("recall")(host, argument)


async def _permissions(host: Host, argument: str) -> None:
    """Show every rule, and revoke the one that is chosen, if it can be."""
    from tui_agent.tui.dialogs.pickers import Option

    rules = (await host.agent()).permissions.rules()
    if argument or not any(rule.remembered for rule in rules):
        await _of_agent("permissions")(host, argument)
        return
    options = [Option(str(place), rule.said, rule.source) for place, rule in enumerate(rules, 1)]
    chosen = await host.pick(
        "What may happen unasked, and what not: choosing a remembered rule takes it back", options, ""
    )
    if chosen is not None:
        await _of_agent("permissions")(host, chosen)


async def _goal(host: Host, argument: str) -> None:
    await _sent_own(host, "goal", argument)


async def _quit(host: Host, argument: str) -> None:
    host.quit()


async def _help(host: Host, argument: str) -> None:
    host.action_help()
