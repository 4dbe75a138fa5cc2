"""The slash commands: what there is, how it is called, and what it does."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Protocol

from tui_agent.agent.commands import COMMANDS
from tui_agent.settings import PermissionMode
from tui_agent.tui.app.keys import keys_text
from tui_agent.tui.app.model_commands import choose_model, enter_key
from tui_agent.tui.app.policy_command import PolicyHost, choose_policy
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.prompt.completion import Choice, Completion

_MODES: Final[dict[PermissionMode, str]] = {
    "plan": "read only",
    "ask": "every change and every command is asked about",
    "auto": "edits and looking around inside the project pass; other commands, network and outside paths ask",
    "allow": "nothing is asked",
}

_USAGE_WIDTH: Final = 24
"""Columns of a command in the help; the few that are longer push their description to the right."""


class BranchVerbs(Protocol):
    """What commands do with the branches of the conversation; each takes what was written behind the command."""

    async def rewind(self, number: str = "", /) -> None: ...

    async def undo_edits(self, argument: str = "", /) -> None: ...

    async def fork(self, number: str = "", /) -> None: ...

    async def tree(self, number: str = "", /) -> None: ...


class Host(PolicyHost, Protocol):
    """What a command may use of the app."""

    @property
    def branches(self) -> BranchVerbs:
        """Goes about the branches of the conversation."""
        ...

    def theme_names(self) -> tuple[str, ...]:
        """The themes there are."""
        ...

    def theme_name(self) -> str:
        """The theme in use."""
        ...

    def use_theme(self, name: str) -> None:
        """Change the colours."""
        ...

    def quit(self) -> None:
        """Leave the program."""
        ...


Handler = Callable[[Host, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """name, aliases: without the slash. argument: how what follows is called in the help; empty: nothing may follow."""

    name: str
    description: str
    handler: Handler
    argument: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """As it is typed."""
        return f"/{self.name} {self.argument}".rstrip()


class Commands:
    """The commands by name."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.all = tuple(commands)
        self._by_name = {name: command for command in self.all for name in (command.name, *command.aliases)}

    async def run(self, host: Host, text: str) -> None:
        """Do what `/name argument` says; a name that nothing goes by is told with the nearest one."""
        word, _, argument = text.strip()[1:].partition(" ")
        command = self._by_name.get(word.lower())
        if command is None:
            close = get_close_matches(word.lower(), self._by_name, n=1)
            hint = f"did you mean /{close[0]}?" if close else "/help lists the commands"
            host.say(Level.WARNING, f"There is no command /{word}", hint=hint)
        elif argument.strip() and not command.argument:
            host.say(Level.WARNING, f"/{command.name} takes nothing after it")
        else:
            await command.handler(host, argument.strip())

    def complete(self, before_cursor: str) -> Completion | None:
        """The commands that begin like what stands before the cursor."""
        if not before_cursor.startswith("/") or " " in before_cursor:
            return None
        typed = before_cursor[1:].lower()
        found = [command for command in self.all if any(n.startswith(typed) for n in (command.name, *command.aliases))]
        return Completion(0, tuple(_choice(command) for command in found)) if found else None

    def help_text(self) -> str:
        """Every command on a line, as Markdown is not needed for it."""
        return "\n".join(f"{command.usage:<{_USAGE_WIDTH}} {_described(command)}" for command in self.all)


def _choice(command: Command) -> Choice:
    needs_more = command.argument.startswith("<")
    return Choice(f"/{command.name}{' ' if needs_more else ''}", command.usage, command.description, not needs_more)


def _described(command: Command) -> str:
    also = f" (also {', '.join(f'/{alias}' for alias in command.aliases)})" if command.aliases else ""
    return command.description + also


_SHOWN_AS_STEP: Final = frozenset(("compact", "done"))
"""Commands whose text stands in the boundary they leave in the conversation."""


async def _mode(host: Host, argument: str) -> None:
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    options = [Option(mode, mode, meaning) for mode, meaning in _MODES.items()]
    name = argument or await host.pick("What may happen without asking", options, agent.mode)
    if name is None:
        return
    mode = next((known for known in _MODES if known == name), None)
    if mode is None:
        host.say(Level.WARNING, f"There is no mode {name}", hint=f"one of {', '.join(_MODES)}")
        return
    agent.mode = mode
    host.refresh_status()
    host.say(Level.INFO, f"Mode {mode}: {_MODES[mode]}")


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


def _steering(name: str) -> Handler:
    """A command of the agent's own, whose answer is shown as a notice; what it does to the context shows itself."""

    async def handler(host: Host, argument: str) -> None:
        from tui_agent.agent.agent import AgentBusy
        from tui_agent.agent.commands import run_command
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


_OWN_FORMS: Final[dict[str, Handler]] = {
    "rewind": _rewind,
    "undo-edits": _undo_edits,
    "fork": _fork,
    "tree": _tree,
    "permissions": _permissions,
}
"""Commands of the agent that the app has in a form of its own."""


async def _quit(host: Host, argument: str) -> None:
    host.quit()


def default_commands() -> Commands:
    """The commands of the app."""

    async def show_help(host: Host, argument: str) -> None:
        host.say(Level.INFO, "Keys and commands", f"{keys_text()}\n\n{commands.help_text()}")

    commands = Commands(
        (
            Command("help", "what can be typed and pressed", show_help, aliases=("?",)),
            Command("model", "choose who answers", choose_model, argument="[name]"),
            Command("key", "enter a provider's key, hidden", enter_key),
            Command("mode", "choose what may happen without asking", _mode, argument="[name]"),
            Command("policy", "choose what staying word for word may cost", choose_policy, argument="[name]"),
            Command("tools", "what the model can use", _steering("tools")),
            Command("escalate", "go on with the provider's frontier model", _steering("escalate")),
            *(
                Command(
                    each.name,
                    each.description,
                    _OWN_FORMS.get(each.name) or _steering(each.name),
                    each.argument,
                    each.aliases,
                )
                for each in COMMANDS
            ),
            Command("theme", "choose the colours", _theme, argument="[name]"),
            Command("quit", "leave; all is kept", _quit, aliases=("exit", "q")),
        )
    )
    return commands
