"""The slash commands of the table of actions: finding one by what was typed, and doing it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from tui_agent.settings import PermissionMode
from tui_agent.text import one_line
from tui_agent.tui.actions import BY_NAME, SLASH_COMMANDS, Action
from tui_agent.tui.app.host import Host
from tui_agent.tui.app.model_commands import choose_model, enter_key
from tui_agent.tui.app.policy_command import choose_policy
from tui_agent.tui.app.session_commands import (
    export_session,
    pin_item,
    review,
    show_config,
    show_jobs,
    write_instructions,
)
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.fuzzy import best
from tui_agent.tui.keys import commands_text
from tui_agent.tui.prompt.completion import Choice, Completion

if TYPE_CHECKING:
    from tui_agent.agent.extensions.own import OwnPrompt

MODES: Final[dict[PermissionMode, str]] = {
    "plan": "read only",
    "ask": "every change and every command is asked about",
    "auto": "edits here and looking around pass; all else is asked about",
    "allow": "nothing is asked",
}

CYCLE: Final[tuple[PermissionMode, ...]] = ("plan", "ask", "auto")
"""The modes that one key goes through."""


Handler = Callable[[Host, str], Awaitable[None]]


class Commands:
    """The slash commands of the table, and what does each."""

    def __init__(self) -> None:
        self.own: tuple[Action, ...] = ()
        """The user's own commands, as rows beside those of the table."""
        self.choices: dict[str, Callable[[], Iterable[Choice]]] = {}
        """What may follow a command beside what the table says, by the action's id."""
        self._handlers = {action.id: _HANDLERS.get(action.id) or _steering(action.name) for action in SLASH_COMMANDS}

    async def run(self, host: Host, text: str) -> None:
        """Do what `/name argument` says; a name that nothing goes by is told with the nearest one."""
        word, _, argument = text.strip()[1:].partition(" ")
        action = BY_NAME.get(word.lower())
        if action is None and await _sent_own(host, word.lower(), argument.strip()):
            return
        if action is None:
            close = get_close_matches(word.lower(), BY_NAME, n=1)
            hint = f"did you mean /{close[0]}?" if close else "/help lists the commands"
            host.say(Level.WARNING, f"There is no command /{word}", hint=hint)
        elif argument.strip() and not action.argument:
            host.say(Level.WARNING, f"/{action.name} takes nothing after it")
        else:
            await self._handlers[action.id](host, argument.strip())

    def complete(self, before_cursor: str) -> Completion | None:
        """The commands, or what may follow one, that fit what stands before the cursor; the best first."""
        return complete(before_cursor, self.own, self.choices)

    def text(self) -> str:
        """Every command on a line, the user's own last."""
        return commands_text((*SLASH_COMMANDS, *self.own))


async def _sent_own(host: Host, name: str, argument: str) -> bool:
    """Send what the user's own command of this name stands for; whether there is one."""
    from tui_agent.tools.base import ToolFailure

    agent = await host.agent()
    prompt = await agent.own_prompt(name)
    if prompt is None:
        return False
    try:
        host.ask_model(await agent.expand(prompt, argument))
    except ToolFailure as failure:
        host.say(Level.WARNING, f"/{name} was not sent", str(failure))
    return True


def own_actions(prompts: "Iterable[OwnPrompt]") -> tuple[Action, ...]:
    """The user's own commands as rows of the table; one named as a command of the program is none."""
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
    before_cursor: str, own: tuple[Action, ...] = (), more: "Mapping[str, Callable[[], Iterable[Choice]]] | None" = None
) -> Completion | None:
    """The commands, with those of the user's `own`, or what may follow one, that fit; the best first.

    `more`: what may follow one beside what the table says, by the action's id.
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
    table = (Choice(choice, choice) for choice in action.choices)
    known = more[action.id]() if more and action.id in more else table
    choices = best(tuple(known), argument, lambda choice: (choice.insert, choice.label))
    return Completion(len(word) + 2, choices) if choices else None


def _choice(action: Action) -> Choice:
    more = action.needs_argument
    aliases = tuple(f"/{alias}" for alias in action.aliases)
    return Choice(f"/{action.name}{' ' if more else ''}", action.usage, action.help, not more, aliases)


_SHOWN_AS_STEP: Final = frozenset(("compact", "done"))
"""Commands whose text stands in the boundary they leave in the conversation."""


async def _mode(host: Host, argument: str) -> None:
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    options = [Option(mode, mode, meaning) for mode, meaning in MODES.items()]
    name = argument or await host.pick("What may happen without asking", options, agent.mode)
    if name is None:
        return
    mode = next((known for known in MODES if known == name), None)
    if mode is None:
        host.say(Level.WARNING, f"There is no mode {name}", hint=f"one of {', '.join(MODES)}")
        return
    agent.mode = mode
    host.refresh_status()
    host.say(Level.INFO, f"Mode {mode}: {MODES[mode]}")
    if mode != "allow":  # which should not come as a surprise in another folder
        await host.keep("permissions.mode", mode)


async def _theme(host: Host, argument: str) -> None:
    from tui_agent.tui.app.theme import KINDS
    from tui_agent.tui.dialogs.pickers import Option

    names, before = host.theme_names(), host.theme_name()
    options = [Option(name, name, KINDS.get(name, "yours")) for name in names]
    name = argument or await host.pick("Theme", options, before, preview=host.use_theme)
    if name is None:
        host.use_theme(before)
        return
    if name not in names:
        host.say(Level.WARNING, f"There is no theme {name}", hint=f"one of {', '.join(names)}")
        return
    host.use_theme(name)
    await host.keep("ui.theme", name)


def _steering(name: str) -> Handler:
    """A command of the agent's own, whose answer is shown as a notice; what it does to the context shows itself."""

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
        shown = "" if name in _SHOWN_AS_STEP else reply.text
        host.say(Level.WARNING if reply.failed else Level.INFO, reply.title, reply.text if reply.failed else shown)
        host.refresh_status()

    return handler


async def _rewind(host: Host, argument: str) -> None:
    await host.branches.rewind(argument)


async def _undo(host: Host, argument: str) -> None:
    await host.branches.undo(argument)


async def _pin(host: Host, argument: str) -> None:
    await (_steering("pin") if argument else pin_item)(host, argument)


async def _undo_edits(host: Host, argument: str) -> None:
    await host.branches.undo_edits(argument)


async def _fork(host: Host, argument: str) -> None:
    await host.branches.fork(argument)


async def _tree(host: Host, argument: str) -> None:
    await host.branches.tree(argument)


async def _permissions(host: Host, argument: str) -> None:
    """Show every rule; the one that is chosen is taken back, where it can be."""
    from tui_agent.tui.dialogs.pickers import Option

    rules = (await host.agent()).permission_rules()
    if argument or not any(rule.remembered for rule in rules):
        await _steering("permissions")(host, argument)
        return
    options = [
        Option(str(place), rule.said, "Enter takes it back" if rule.remembered else f"of the settings: {rule.kind}")
        for place, rule in enumerate(rules, 1)
    ]
    chosen = await host.pick("What may happen unasked, and what not", options, "1")
    if chosen is not None:
        await _steering("permissions")(host, chosen)


async def _quit(host: Host, argument: str) -> None:
    host.quit()


async def _help(host: Host, argument: str) -> None:
    host.say(Level.INFO, "Keys and commands", f"{host.keymap.help_text('prompt')}\n\n{host.commands_text()}")


async def _new(host: Host, argument: str) -> None:
    await host.sessions.new(argument)


async def _sessions(host: Host, argument: str) -> None:
    await host.sessions.choose(argument)


async def _trust(host: Host, argument: str) -> None:
    await host.sessions.trust(argument)


_HANDLERS: Final[dict[str, Handler]] = {
    "new": _new,
    "sessions": _sessions,
    "trust": _trust,
    "help": _help,
    "model": choose_model,
    "key": enter_key,
    "mode": _mode,
    "policy": choose_policy,
    "config": show_config,
    "init": write_instructions,
    "review": review,
    "export": export_session,
    "jobs": show_jobs,
    "pin": _pin,
    "undo": _undo,
    "rewind": _rewind,
    "undo-edits": _undo_edits,
    "fork": _fork,
    "tree": _tree,
    "permissions": _permissions,
    "theme": _theme,
    "quit": _quit,
}
"""What the app does in a form of its own, by the action's id; everything else is a command of the agent's."""
